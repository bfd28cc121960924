//! A layer in the form of a recipe: its key and its settings, each with its default.

use std::fmt;

use indexmap::IndexMap;
use serde_yaml::with::singleton_map_recursive;
use serde_yaml::{Mapping, Value};
use zoo_recipe::Layer;
use zoo_recipe::layers::{AvgPool, MaxPool};

use crate::scalar::scalar;
use crate::tables;

/// The key of the numbers of parts of windows, and their tap.
pub const SEGMENTS: &str = "segments";

/// The key of whether a layer exists.
pub const ENABLED: &str = "enabled";

/// A setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A switch.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A word, or an expression of block arguments.
    Text(String),
    /// A list.
    List(Vec<Setting>),
    /// Height and width, or the four sides of a map, of which equal ones may be written once.
    Sides(Vec<Setting>),
    /// Settings under one key.
    Group(IndexMap<String, Setting>),
}

impl Setting {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Mapping(settings) => Self::Group(
                settings
                    .iter()
                    .map(|(key, value)| Some((key.as_str()?.to_owned(), Self::of(value)?)))
                    .collect::<Option<_>>()?,
            ),
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Float(number.as_f64()?),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Sequence(items) => Self::List(items.iter().map(Self::of).collect::<Option<_>>()?),
            Value::Null | Value::Tagged(_) => return None,
        })
    }

    /// Equal sides become one number, and two equal pairs become one pair.
    pub fn shortest(self) -> Self {
        let Self::Sides(items) = self else { return self };
        match &items[..] {
            [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|item| item == first) => first.clone(),
            [top, bottom, left, right] if top == bottom && left == right => {
                Self::Sides(vec![top.clone(), left.clone()])
            }
            _ => Self::Sides(items),
        }
    }

    /// The elements of a list.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) | Self::Sides(items) => Some(items),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Group(_) => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => f.write_str(&number(*value)),
            Self::Text(text) => f.write_str(&scalar(text)),
            Self::List(items) | Self::Sides(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Group(settings) => {
                let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                write!(f, "{{{}}}", settings.join(", "))
            }
        }
    }
}

/// `1e-6`, `0.1`: the shorter of the two notations of a number.
pub fn number(value: f64) -> String {
    let (plain, scientific) = (format!("{value}"), format!("{value:e}"));
    if scientific.len() < plain.len() { scientific } else { plain }
}

/// A setting with its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Setting,
    /// The default; `None` if it is required.
    pub default: Option<Setting>,
}

/// The properties of a layer for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A formula, which is not a module.
    Formula,
    /// A layer with its own number of channels.
    Wide,
    /// A layer with a single parameter, whose name it has.
    Parameter,
    /// A module that returns its result first, followed by another value.
    First,
    /// Multiplies a value by what others make of it.
    Gate,
    /// Applies others to the windows of a map.
    Windows,
    /// A parameter or constant as a value; it reads nothing.
    Source,
    /// A layer of two values: the key of the second one's tap, and what it is.
    Second {
        /// The key of its tap.
        key: &'static str,
        /// What it is, as the name of the tap.
        role: &'static str,
    },
    /// Makes a tap of parameters for attention, which has it under this key; changes nothing.
    Beside(&'static str),
    /// Any other layer: a module where it has a name.
    Plain,
}

impl Kind {
    fn of(layer: &Layer) -> Self {
        match layer {
            Layer::Map(_) => Self::Formula,
            Layer::Conv(_) | Layer::Conv1d(_) | Layer::Linear(_) | Layer::ConvTranspose(_) => Self::Wide,
            Layer::AddParameter(_) | Layer::Prepend(_) | Layer::LayerScale(_) => Self::Parameter,
            Layer::Attention(_) => Self::First,
            Layer::Gate(_) => Self::Gate,
            Layer::Parameter(_) | Layer::Constant(_) => Self::Source,
            Layer::Experts(_) => Self::Second { key: "scores", role: "scores" },
            Layer::Matmul(_) => Self::Second { key: "with", role: "factor" },
            Layer::Xcorr(_) => Self::Second { key: "kernel", role: "kernel" },
            Layer::Windows(_) => Self::Windows,
            Layer::RelativePositionBias(_) | Layer::ContinuousPositionBias(_) | Layer::DistanceBias(_) => {
                Self::Beside("bias")
            }
            Layer::LogitScale(_) => Self::Beside("cosine"),
            _ => Self::Plain,
        }
    }
}

/// A layer without settings that say what is so anyway, as the step of a pool that is its window; a constant as the
/// importer writes it.
fn usual(layer: &Layer) -> Layer {
    match layer {
        Layer::MaxPool(pool) if pool.stride == Some(pool.kernel) => {
            Layer::MaxPool(MaxPool { stride: None, ..pool.clone() })
        }
        Layer::AvgPool(pool) if pool.stride == Some(pool.kernel) => {
            Layer::AvgPool(AvgPool { stride: None, ..pool.clone() })
        }
        Layer::Constant(constant) => Layer::Constant(tables::usual(constant).unwrap_or_else(|| constant.clone())),
        other => other.clone(),
    }
}

/// A layer without its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// The layer's key.
    pub tag: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its settings, in the order in which they are written.
    pub settings: IndexMap<String, Entry>,
}

impl Word {
    /// All settings of a layer.
    pub fn of(layer: &Layer) -> Self {
        let layer = &usual(layer);
        if let Layer::Map(map) = layer {
            return Self::formula(map.formula.clone());
        }
        if let Layer::Constant(constant) = layer
            && let Some(digest) = tables::undescribed(constant)
        {
            return Self::with("constant", "elements", Setting::Text(digest));
        }
        let mut settings = written(layer).unwrap_or_default();
        shorten_groups(layer, &mut settings);
        let known = |key: &Value| {
            let mut others = settings.clone();
            others.shift_remove(key);
            let usual = read(layer.tag(), others)?;
            let all = written(&usual)?;
            // Optional settings have no default value.
            Some(all.get(key).and_then(Setting::of))
        };
        // Sides are read from one number too; other lists are not.
        let are_sides = |key: &Value, first: &Value| {
            let mut one = settings.clone();
            one.insert(key.clone(), first.clone());
            read(layer.tag(), one).is_some()
        };
        let short = |key: &Value, setting: Setting| match (setting, settings.get(key)) {
            (Setting::List(items), Some(Value::Sequence(list)))
                if list.first().is_some_and(|first| are_sides(key, first)) =>
            {
                Setting::Sides(items).shortest()
            }
            (other, _) => other,
        };
        let entry = |(key, value): (&Value, &Value)| {
            let default = known(key).flatten().map(|default| short(key, default));
            Some((key.as_str()?.to_owned(), Entry { value: short(key, Setting::of(value)?), default }))
        };
        // Of initial values, only those of tables that others share are known.
        let is_known = |(key, _): &(String, Entry)| !key.ends_with("init") || matches!(layer, Layer::Embedding(_));
        let settings = settings.iter().filter_map(entry).filter(is_known).collect();
        Self { tag: layer.tag(), kind: Kind::of(layer), settings }
    }

    /// A layer that multiplies by what others make of a value.
    pub fn gate() -> Self {
        Self { tag: "gate", kind: Kind::Gate, settings: IndexMap::new() }
    }

    /// A layer that applies others to windows of a map; whether they use the numbers of its parts.
    pub fn windows(size: [usize; 2], shift: usize, segments: bool) -> Self {
        let int = |number: usize| Setting::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let size = Setting::Sides(size.map(int).to_vec()).shortest();
        let mut settings = IndexMap::from([
            ("size".to_owned(), Entry { value: size, default: None }),
            ("shift".to_owned(), Entry { value: int(shift), default: Some(int(0)) }),
        ]);
        if segments {
            let value = Setting::Text(SEGMENTS.to_owned());
            settings.insert(SEGMENTS.to_owned(), Entry { value, default: None });
        }
        Self { tag: "windows", kind: Kind::Windows, settings }
    }

    /// A layer with one setting.
    pub fn with(tag: &'static str, key: &str, value: Setting) -> Self {
        let settings = IndexMap::from([(key.to_owned(), Entry { value, default: None })]);
        Self { tag, kind: Kind::Plain, settings }
    }

    /// Whether a setting is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.settings.get(key).is_some_and(|entry| entry.value == Setting::Bool(true))
    }

    /// A formula of the present value.
    pub fn formula(text: String) -> Self {
        let entry = Entry { value: Setting::Text(text), default: None };
        Self { tag: "map", kind: Kind::Formula, settings: IndexMap::from([(String::new(), entry)]) }
    }

    /// The settings that differ from their defaults, as a text that is equal for equal layers.
    pub fn key(&self) -> String {
        let said = self.settings.iter().filter(|(_, entry)| entry.default.as_ref() != Some(&entry.value));
        // Neither how parameters start nor whether a module is called or its parameters are used is one of the
        // operation.
        let said = said.filter(|(key, _)| *key != "functional" && !key.ends_with("init"));
        let said: Vec<String> = said.map(|(key, entry)| format!("{key}={}", entry.value)).collect();
        format!("{} {}", self.tag, said.join(" "))
    }

    /// An integer setting.
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.settings.get(key)?.value {
            Setting::Int(value) => Some(value),
            Setting::Bool(_)
            | Setting::Float(_)
            | Setting::Text(_)
            | Setting::List(_)
            | Setting::Sides(_)
            | Setting::Group(_) => None,
        }
    }
}

/// Takes defaults out of settings that stand under a key of others.
fn shorten_groups(layer: &Layer, settings: &mut Mapping) {
    for path in nested(settings, &[]) {
        let mut shorter = settings.clone();
        let Some((last, around)) = path.split_last() else { continue };
        let group = around.iter().try_fold(&mut shorter, |group, key| group.get_mut(key)?.as_mapping_mut());
        if group.is_some_and(|group| group.shift_remove(last).is_some())
            && read(layer.tag(), shorter.clone()).as_ref() == Some(layer)
        {
            *settings = shorter;
        }
    }
}

/// The paths of all settings under a key of others.
fn nested(settings: &Mapping, around: &[Value]) -> Vec<Vec<Value>> {
    let mut found = Vec::new();
    for (key, value) in settings {
        let path = [around, std::slice::from_ref(key)].concat();
        if let Value::Mapping(group) = value {
            found.extend(nested(group, &path));
        }
        if !around.is_empty() {
            found.push(path);
        }
    }
    found
}

/// The content of a layer, as YAML.
fn written(layer: &Layer) -> Option<Mapping> {
    let value = singleton_map_recursive::serialize(layer, serde_yaml::value::Serializer).ok()?;
    match value.as_mapping()?.values().next()? {
        Value::Mapping(settings) => Some(settings.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Sequence(_) | Value::Tagged(_) => {
            None
        }
    }
}

fn read(tag: &str, settings: Mapping) -> Option<Layer> {
    let whole = Mapping::from_iter([(Value::from(tag), Value::Mapping(settings))]);
    singleton_map_recursive::deserialize(Value::Mapping(whole)).ok()
}
