//! Resolves the architecture.

use std::collections::{BTreeMap, HashMap, HashSet};

use indexmap::IndexMap;
use serde_yaml::with::singleton_map_recursive;

use super::args::{Args, substitute};
use super::place::Place;
use super::{ResolvedLayer, ResolvedModel};
use crate::diagnostic::{Diagnostic, suggest};
use crate::layers::{Body, Description, Layer, Module, Off};
use crate::schema::Model;
use crate::shape::{ShapeId, Shapes};
use crate::span::{ConfigPath, Span, SpanTable};
use crate::tree::{Entry, Map, Node, Value};
use crate::values::{Expression, InitDefaults, Scalar};

/// Most layers in a model, with blocks inlined and those of modules that are called again; far above any network, far
/// below what would stall.
const MAX_LAYERS: usize = 20_000;

/// Deepest nesting of lists of layers, counted like [`MAX_LAYERS`].
const MAX_NESTED: usize = 64;

/// Most layers in the modules that can be called again, each counted in every module around it.
const MAX_CALLABLE: usize = 8 * MAX_LAYERS;

/// Longest full name of a module or tap, in characters.
const MAX_NAME: usize = 200;

/// Decides everything; reports all that does not fit together.
pub(crate) fn expand(model: &Model, spans: &SpanTable, shapes: &Shapes) -> Result<ResolvedModel, Vec<Diagnostic>> {
    let mut expander = Expander {
        model,
        spans,
        shapes,
        errors: Vec::new(),
        modules: HashMap::new(),
        callable: HashMap::new(),
        own: HashSet::new(),
        taps: model.inputs.keys().cloned().collect(),
        used_inputs: model.inputs.keys().take(1).cloned().collect(),
        inside: Vec::new(),
        count: 0,
        nested: 0,
        kept: 0,
    };
    expander.declarations();
    let args = expander.with_classes(Args::new());
    let root = Scope { prefix: String::new(), args, init: model.init.clone(), indexed: false };
    let body = expander.layers(model.body.written(), &ConfigPath::from("model").key("body"), &root).layers;
    let outputs = expander.named_taps(&model.outputs, &ConfigPath::from("model").key("outputs"), &root);
    for input in model.inputs.keys().filter(|input| !expander.used_inputs.contains(*input)) {
        let path = ConfigPath::from("model").key("inputs").key(input);
        let error = Diagnostic::error(spans.get(&path), path, format!("nothing uses the input `{input}`"));
        expander
            .errors
            .push(error.with_hint(format!("the body starts from the first input; use `- from: {input}` for this one")));
    }
    if !expander.errors.is_empty() {
        return Err(expander.errors);
    }
    Ok(ResolvedModel { inputs: model.inputs.clone(), classes: model.classes, body, outputs })
}

/// The name of a layer whose parameters are those of the module around it.
const OWN: &str = ".";

/// What the layers of a list have around them.
#[derive(Clone)]
pub(super) struct Scope {
    /// Name of the enclosing module with a dot behind it, or nothing.
    pub(super) prefix: String,
    pub(super) args: Args,
    /// Initialisation of parameters whose layer has none.
    pub(super) init: InitDefaults,
    /// Whether layers without a name are named by their index.
    pub(super) indexed: bool,
}

/// A layer of a list.
enum Present {
    On(Box<ResolvedLayer>),
    /// A module that an argument of its block switches off: its full name, and the expression.
    Off(String, Expression),
}

/// The meaning of a module name.
pub(super) struct Known {
    /// A name with parameters, or of a module with others inside, is used once.
    exclusive: bool,
    span: Span,
}

pub(super) struct Expander<'a> {
    pub(super) model: &'a Model,
    pub(super) spans: &'a SpanTable,
    shapes: &'a Shapes,
    errors: Vec<Diagnostic>,
    pub(super) modules: HashMap<String, Known>,
    /// Modules with others or parameters inside, for `again`.
    pub(super) callable: HashMap<String, ResolvedLayer>,
    /// Modules that have their own parameters in addition to inner modules.
    own: HashSet<String>,
    /// Full names of taps and inputs known so far.
    pub(super) taps: HashSet<String>,
    used_inputs: HashSet<String>,
    /// Blocks that are being inlined, outermost first.
    pub(super) inside: Vec<String>,
    count: usize,
    /// Lists of layers around the present place.
    nested: usize,
    /// Layers in `callable`.
    kept: usize,
}

impl Expander<'_> {
    pub(super) fn error(&mut self, path: &ConfigPath, message: impl Into<String>) -> &mut Diagnostic {
        self.errors.push(Diagnostic::error(self.spans.get(path), path.clone(), message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    pub(super) fn with_classes(&self, mut args: Args) -> Args {
        args.insert("classes".to_owned(), Scalar::Int(self.model.classes as i64));
        args
    }

    pub(super) fn layers(&mut self, written: &[Node], path: &ConfigPath, scope: &Scope) -> Body {
        let mut body = Body::default();
        if self.refuse_nesting(1, path).is_none() {
            return body;
        }
        self.nested += 1;
        for (index, node) in written.iter().enumerate() {
            match self.layer(node, index, &path.index(index), scope) {
                Some(Present::On(layer)) => body.layers.push(*layer),
                Some(Present::Off(name, when)) => body.off.push(Off { before: body.layers.len(), name, when }),
                None => {}
            }
        }
        self.nested -= 1;
        body
    }

    /// Counts more layers; `None` if they are too many, which is reported once.
    fn count(&mut self, more: usize, path: &ConfigPath) -> Option<()> {
        let before = self.count;
        self.count += more;
        if self.count <= MAX_LAYERS {
            return Some(());
        }
        if before <= MAX_LAYERS {
            self.error(path, format!("more than {MAX_LAYERS} layers, with blocks expanded"));
        }
        None
    }

    /// `None` if so many more lists of layers in each other are too many, which is reported.
    fn refuse_nesting(&mut self, more: usize, path: &ConfigPath) -> Option<()> {
        if self.nested + more <= MAX_NESTED {
            return Some(());
        }
        self.error(path, format!("layers nested deeper than {MAX_NESTED} levels, with blocks expanded"));
        None
    }

    /// Counts the layers of a module that is called again; `None` if they are too many or nested too deeply.
    pub(super) fn count_again(&mut self, module: &str, path: &ConfigPath) -> Option<()> {
        let size = self.callable.get(module).map_or(Size::default(), Size::of);
        self.count(size.layers, path)?;
        self.refuse_nesting(size.levels + 1, path)
    }

    /// One layer; `None` if it is switched off for good or wrong.
    fn layer(&mut self, written: &Node, index: usize, path: &ConfigPath, scope: &Scope) -> Option<Present> {
        let before = self.count;
        self.count(1, path)?;
        let (tag, mut content) = written.as_map()?.first().map(|(tag, entry)| (tag.as_str(), entry.node.clone()))?;
        let (module, shape) = (Layer::module(tag)?, self.shapes.layer(tag)?);
        let inner = path.key(tag);
        let [name, enabled] = match &mut content.value {
            Value::Map(keys) if module != Module::None => ["name", "enabled"].map(|key| keys.shift_remove(key)),
            _ => [None, None],
        };
        let [name, enabled] = [name, enabled].map(|entry| entry.map(|entry| entry.node));
        let own = match name.as_ref().and_then(Node::as_text) {
            Some(name) => Some(name.to_owned()),
            None if scope.indexed && module != Module::None => Some(index.to_string()),
            None => None,
        };
        let mut expressions = BTreeMap::new();
        if let Some(mut enabled) = enabled {
            let shape = self.shapes.key(shape, "enabled")?;
            self.substitute(&mut enabled, shape, &inner, "enabled", scope, &mut expressions)?;
            if enabled.value == Value::Bool(false) {
                let name = format!("{}{}", scope.prefix, own?);
                return Some(Present::Off(name, expressions.remove("enabled")?));
            }
        }
        let is_module = own.as_deref() != Some(OWN);
        let full = match own {
            Some(own) if is_module => Some(self.full_name(&own, &inner, scope)?),
            Some(_) => Some(self.name_around(module, &inner, scope)?),
            None => None,
        };
        if is_module {
            self.register(module, full.as_deref(), &inner, path);
        }
        self.substitute(&mut content, shape, &inner, "", scope, &mut expressions)?;
        let mut kind = self.read(tag, content, path)?;
        let mut place = Place::new(self, scope, path, inner, full);
        kind.resolve(&mut place)?;
        let (name, returns) = place.into_parts();
        let (path, span) = (path.clone(), self.spans.get(path));
        let resolved = ResolvedLayer { name, is_module, path, span, kind, returns, expressions };
        let parameters = Layer::module(tag) == Some(Module::Parameters);
        let again = parameters || matches!(resolved.kind.describe(), Description::Row(_));
        if let Some(name) = resolved.name.as_ref().filter(|_| again) {
            self.kept += self.count - before;
            if self.kept > MAX_CALLABLE {
                self.error(&resolved.path, format!("more than {MAX_CALLABLE} layers in modules inside each other"));
                return None;
            }
            self.callable.insert(name.clone(), resolved.clone());
        }
        Some(Present::On(Box::new(resolved)))
    }

    /// Values for expressions, except those of layers inside. The node is at `key` of the layer whose content is at
    /// `inner`; adds the expressions by the keys that lead to them.
    fn substitute(
        &mut self,
        node: &mut Node,
        shape: ShapeId,
        inner: &ConfigPath,
        key: &str,
        scope: &Scope,
        expressions: &mut BTreeMap<String, Expression>,
    ) -> Option<()> {
        let before = self.errors.len();
        let path = if key.is_empty() { inner.clone() } else { inner.key(key) };
        substitute(node, shape, &path, (self.shapes, &scope.args), &mut |path, found| match found {
            Ok(expression) => {
                let keys = path.as_str().strip_prefix(inner.as_str()).unwrap_or_default();
                expressions.insert(keys.trim_start_matches('.').to_owned(), expression);
            }
            Err(error) => self.error(path, error.message).hint = error.hint,
        });
        (self.errors.len() == before).then_some(())
    }

    /// A layer without expressions as its type. What is wrong with it has been said by the validation.
    fn read(&mut self, tag: &str, content: Node, path: &ConfigPath) -> Option<Layer> {
        let entry = Entry { key_span: Span::default(), node: content };
        let whole = Node { span: Span::default(), value: Value::Map(Map::from([(tag.to_owned(), entry)])) };
        let read: Result<Layer, serde_yaml::Error> = singleton_map_recursive::deserialize(whole.to_yaml());
        read.inspect_err(|error| {
            self.error(path, error.to_string());
        })
        .ok()
    }

    /// The name of a module with those around it; `None` if it is too long.
    pub(super) fn full_name(&mut self, own: &str, inner: &ConfigPath, scope: &Scope) -> Option<String> {
        if !own.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            self.error(&inner.key("name"), format!("`{own}` is not a module name")).hint =
                Some("use letters, digits and `_`; the names of enclosing modules are prepended with dots".to_owned());
        }
        self.name_within(own, &inner.key("name"), scope)
    }

    /// A name with those of the modules around it; `None` if it is too long, which is reported.
    pub(super) fn name_within(&mut self, own: &str, path: &ConfigPath, scope: &Scope) -> Option<String> {
        let full = format!("{}{own}", scope.prefix);
        self.refuse_long(&full, path)?;
        Some(full)
    }

    /// `None` if a name is too long, which is reported.
    pub(super) fn refuse_long(&mut self, name: &str, path: &ConfigPath) -> Option<()> {
        if name.chars().nth(MAX_NAME).is_none() {
            return Some(());
        }
        self.error(path, format!("a name of more than {MAX_NAME} characters, with those of enclosing modules"));
        None
    }

    /// The name of the module around a layer that has its parameters.
    fn name_around(&mut self, module: Module, inner: &ConfigPath, scope: &Scope) -> Option<String> {
        let name = scope.prefix.trim_end_matches('.');
        if module != Module::Parameters || name.is_empty() {
            self.error(&inner.key("name"), "`.` is for a layer whose parameters belong to the enclosing module").hint =
                Some("use it for layers with parameters inside a named module".to_owned());
            return None;
        }
        if !self.own.insert(name.to_owned()) {
            self.error(&inner.key("name"), format!("`{name}` already has a layer with the name `.`"));
        }
        Some(name.to_owned())
    }

    /// Taps under other names: the outputs of a module or of the network.
    pub(super) fn named_taps(
        &mut self,
        names: &IndexMap<String, String>,
        path: &ConfigPath,
        scope: &Scope,
    ) -> IndexMap<String, String> {
        let tap = |(key, tap): (&String, &String)| Some((key.clone(), self.find_tap(tap, &path.key(key), scope)?));
        names.iter().filter_map(tap).collect()
    }

    /// Layers with parameters need a name, and one that is theirs alone.
    pub(super) fn register(&mut self, module: Module, name: Option<&str>, inner: &ConfigPath, path: &ConfigPath) {
        let Some(name) = name else {
            if module == Module::Parameters {
                self.error(path, "a layer with parameters needs a `name`").hint =
                    Some("its parameters are called `<name>.weight` and so on".to_owned());
            }
            return;
        };
        let exclusive = matches!(module, Module::Parameters | Module::Container);
        match self.modules.get(name) {
            Some(other) if exclusive || other.exclusive => {
                let hint = format!("the first is at {}", other.span);
                self.error(&inner.key("name"), format!("two modules are called `{name}`")).hint = Some(hint);
            }
            Some(_) => {}
            None => {
                self.modules.insert(name.to_owned(), Known { exclusive, span: self.spans.get(path) });
            }
        }
    }

    /// The full name of a tap, looked for in this module and in those around it.
    pub(super) fn find_tap(&mut self, tap: &str, path: &ConfigPath, scope: &Scope) -> Option<String> {
        self.refuse_long(tap, path)?;
        if let Some(full) = self.known_tap(tap, scope) {
            return Some(full);
        }
        let known: Vec<String> = self.taps.iter().cloned().collect();
        let hint = suggest(tap, known.iter().map(String::as_str));
        self.error(path, format!("there is no tap or input `{tap}` before this layer")).hint = Some(hint);
        None
    }

    /// The full name of a tap, the nearest around this place, if there is one.
    pub(super) fn known_tap(&mut self, tap: &str, scope: &Scope) -> Option<String> {
        let mut prefix = scope.prefix.as_str();
        loop {
            let full = format!("{prefix}{tap}");
            if self.taps.contains(&full) {
                self.used_inputs.insert(full.clone());
                return Some(full);
            }
            if prefix.is_empty() {
                return None;
            }
            let outer = prefix.trim_end_matches('.').rfind('.').map_or(0, |dot| dot + 1);
            prefix = &prefix[..outer];
        }
    }
}

/// How large a resolved layer is.
#[derive(Default)]
struct Size {
    /// Layers, itself and those of modules called again included.
    layers: usize,
    /// Lists of layers in each other.
    levels: usize,
}

impl Size {
    fn of(layer: &ResolvedLayer) -> Self {
        let mut size = Self { layers: 1, levels: 0 };
        for list in layer.kind.describe().inside() {
            let inside: Vec<Self> = list.iter().map(Self::of).collect();
            size.layers += inside.iter().map(|inner| inner.layers).sum::<usize>();
            size.levels = size.levels.max(1 + inside.iter().map(|inner| inner.levels).max().unwrap_or(0));
        }
        size
    }
}

impl Scope {
    /// The scope inside a module called `name` (in full); without a name, the same scope.
    pub(super) fn inside(&self, name: Option<&str>, indexed: bool) -> Self {
        let prefix = name.map_or_else(|| self.prefix.clone(), |name| format!("{name}."));
        Self { prefix, indexed, ..self.clone() }
    }
}
