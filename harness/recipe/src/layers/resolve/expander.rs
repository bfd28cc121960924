//! What is known of a network while it is resolved: names, taps, sizes, mistakes.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::args::Args;
use crate::diagnostic::{Diagnostic, suggest};
use crate::layers::{Block, Module, ResolvedLayer};
use crate::shape::Shapes;
use crate::span::{ConfigPath, Span, SpanTable};
use crate::values::{InitDefaults, Scalar};

/// Most layers in a model, with blocks inlined and those of modules that are called again; far above any network, far
/// below what would stall.
const MAX_LAYERS: usize = 20_000;

/// Deepest nesting of lists of layers, counted like [`MAX_LAYERS`].
const MAX_NESTED: usize = 64;

/// Most layers in the modules that can be called again, each counted in every module around it.
pub(super) const MAX_CALLABLE: usize = 8 * MAX_LAYERS;

/// Longest full name of a module or tap, in characters.
const MAX_NAME: usize = 200;

/// What the layers of a list have around them.
#[derive(Clone)]
pub(crate) struct Scope {
    /// Name of the enclosing module with a dot behind it, or nothing.
    pub(super) prefix: String,
    pub(super) args: Args,
    /// Initialisation of parameters whose layer has none.
    pub(super) init: InitDefaults,
    /// Whether layers without a name are named by their index.
    pub(super) indexed: bool,
}

impl Scope {
    /// The scope inside a module called `name` (in full); without a name, the same scope.
    pub(super) fn inside(&self, name: Option<&str>, indexed: bool) -> Self {
        let prefix = name.map_or_else(|| self.prefix.clone(), |name| format!("{name}."));
        Self { prefix, indexed, ..self.clone() }
    }
}

/// The meaning of a module name.
pub(super) struct Known {
    /// A name with parameters, or of a module with others inside, is used once.
    exclusive: bool,
    span: Span,
}

/// What is known of a network while it is resolved.
pub(crate) struct Expander<'a> {
    pub(super) blocks: &'a IndexMap<String, Block>,
    classes: usize,
    pub(super) spans: &'a SpanTable,
    pub(super) shapes: &'a Shapes,
    pub(crate) errors: Vec<Diagnostic>,
    pub(super) modules: HashMap<String, Known>,
    /// Modules with others or parameters inside, for `again`.
    pub(super) callable: HashMap<String, ResolvedLayer>,
    /// Modules that have their own parameters in addition to inner modules.
    own: HashSet<String>,
    /// Full names of taps and inputs known so far.
    pub(super) taps: HashSet<String>,
    /// Taps under the names that blocks have for them, in full, and whether a layer read them so.
    pub(super) lent: HashMap<String, (String, bool)>,
    pub(crate) used_inputs: HashSet<String>,
    /// Blocks that are being inlined, outermost first.
    pub(super) inside: Vec<String>,
    pub(super) count: usize,
    /// Lists of layers around the present place.
    pub(super) nested: usize,
    /// Layers in `callable`.
    pub(super) kept: usize,
}

impl<'a> Expander<'a> {
    /// Before the first layer of a network with these inputs.
    pub(crate) fn new(
        (blocks, classes): (&'a IndexMap<String, Block>, usize),
        inputs: impl Iterator<Item = &'a String> + Clone,
        (spans, shapes): (&'a SpanTable, &'a Shapes),
    ) -> Self {
        Self {
            blocks,
            classes,
            spans,
            shapes,
            errors: Vec::new(),
            modules: HashMap::new(),
            callable: HashMap::new(),
            own: HashSet::new(),
            taps: inputs.clone().cloned().collect(),
            lent: HashMap::new(),
            used_inputs: inputs.take(1).cloned().collect(),
            inside: Vec::new(),
            count: 0,
            nested: 0,
            kept: 0,
        }
    }

    /// What is around all layers.
    pub(crate) fn root(&self, init: &InitDefaults) -> Scope {
        Scope { prefix: String::new(), args: self.with_classes(Args::new()), init: init.clone(), indexed: false }
    }

    pub(super) fn error(&mut self, path: &ConfigPath, message: impl Into<String>) -> &mut Diagnostic {
        self.errors.push(Diagnostic::error(self.spans.get(path), path.clone(), message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    pub(super) fn with_classes(&self, mut args: Args) -> Args {
        args.insert("classes".to_owned(), Scalar::Int(self.classes as i64));
        args
    }

    /// Counts more layers; `None` if they are too many, which is reported once.
    pub(super) fn count(&mut self, more: usize, path: &ConfigPath) -> Option<()> {
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
    pub(super) fn refuse_nesting(&mut self, more: usize, path: &ConfigPath) -> Option<()> {
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
    pub(super) fn name_around(&mut self, module: Module, inner: &ConfigPath, scope: &Scope) -> Option<String> {
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
    pub(crate) fn named_taps(
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

    /// Declares a module that may have other names too.
    pub(super) fn declare(&mut self, name: &str, path: &ConfigPath) {
        if !self.modules.contains_key(name) {
            self.modules.insert(name.to_owned(), Known { exclusive: false, span: self.spans.get(path) });
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
            if let Some((outer, is_read)) = self.lent.get_mut(&full) {
                *is_read = true;
                return Some(outer.clone());
            }
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
