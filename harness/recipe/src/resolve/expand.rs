//! From the architecture as written to the architecture with everything decided.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::args::{Args, FromScalar, evaluate};
use super::{
    AvgPool, BatchNorm, Conv, ConvTranspose, LayerKind, Linear, Lrn, MaxPool, Patches, ResolvedLayer, ResolvedModel,
    Upsample, UpsampleTo,
};
use crate::diagnostic::{Diagnostic, suggest};
use crate::schema::{self, Count, Init, InitDefaults, Layer, Model, Padding, Pair, Param, Scalar, Size};
use crate::span::{ConfigPath, Span, SpanTable};

/// Most layers in a model, blocks inlined; far above any network, far below what would stall.
const MAX_LAYERS: usize = 20_000;

/// Decides everything; reports all that does not fit together.
pub(crate) fn expand(model: &Model, spans: &SpanTable) -> Result<ResolvedModel, Vec<Diagnostic>> {
    let mut expander = Expander {
        model,
        spans,
        errors: Vec::new(),
        modules: HashMap::new(),
        containers: HashMap::new(),
        taps: model.inputs.keys().cloned().collect(),
        used_inputs: model.inputs.keys().take(1).cloned().collect(),
        inside: Vec::new(),
        count: 0,
    };
    expander.declarations();
    let root = Scope { prefix: String::new(), args: expander.with_classes(Args::new()), indexed: false };
    let body = expander.layers(&model.body, &ConfigPath::from("model").key("body"), &root);
    let outputs = expander.named_taps(&model.outputs, &ConfigPath::from("model").key("outputs"), &root);
    for input in model.inputs.keys().filter(|input| !expander.used_inputs.contains(*input)) {
        let path = ConfigPath::from("model").key("inputs").key(input);
        let error = Diagnostic::error(spans.get(&path), path, format!("nothing uses the input `{input}`"));
        expander
            .errors
            .push(error.with_hint(format!("the body starts from the first input; `- from: {input}` gets at this one")));
    }
    if !expander.errors.is_empty() {
        return Err(expander.errors);
    }
    let inputs = model.inputs.iter().map(|(name, shape)| (name.clone(), shape.map(|extent| extent.0))).collect();
    Ok(ResolvedModel { inputs, classes: model.classes, body, outputs })
}

/// What the layers of a list have around them.
pub(super) struct Scope {
    /// Name of the enclosing module with a dot behind it, or nothing.
    pub(super) prefix: String,
    pub(super) args: Args,
    /// Whether layers without a name are named by their index.
    pub(super) indexed: bool,
}

/// What a module name stands for.
struct Module {
    /// A name with parameters, or of a module with others inside, is used once.
    exclusive: bool,
    span: Span,
}

pub(super) struct Expander<'a> {
    pub(super) model: &'a Model,
    spans: &'a SpanTable,
    errors: Vec<Diagnostic>,
    modules: HashMap<String, Module>,
    /// Modules with others inside, for `again`.
    containers: HashMap<String, ResolvedLayer>,
    /// Full names of taps and inputs known so far.
    taps: HashSet<String>,
    used_inputs: HashSet<String>,
    /// Blocks that are being inlined, outermost first.
    pub(super) inside: Vec<&'a str>,
    count: usize,
}

impl<'a> Expander<'a> {
    pub(super) fn error(&mut self, path: &ConfigPath, message: impl Into<String>) -> &mut Diagnostic {
        self.errors.push(Diagnostic::error(self.spans.get(path), path.clone(), message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    pub(super) fn with_classes(&self, mut args: Args) -> Args {
        args.insert("classes".to_owned(), Scalar::Int(self.model.classes as i64));
        args
    }

    pub(super) fn layers(&mut self, layers: &'a [Layer], path: &ConfigPath, scope: &Scope) -> Vec<ResolvedLayer> {
        let layer = |(index, layer)| self.layer(layer, index, &path.index(index), scope);
        layers.iter().enumerate().filter_map(layer).collect()
    }

    /// One layer; `None` if it is switched off or wrong.
    fn layer(&mut self, layer: &'a Layer, index: usize, path: &ConfigPath, scope: &Scope) -> Option<ResolvedLayer> {
        self.count += 1;
        if self.count > MAX_LAYERS {
            if self.count == MAX_LAYERS + 1 {
                self.error(path, format!("more than {MAX_LAYERS} layers, counting those of blocks each time"));
            }
            return None;
        }
        let (tag, name, enabled) = head(layer);
        let inner = path.key(tag);
        if !self.value(enabled, &inner.key("enabled"), scope)? {
            return None;
        }
        let own = match name {
            Some(name) => Some(name.to_owned()),
            None if scope.indexed && is_module(layer) => Some(index.to_string()),
            None => None,
        };
        if let Some(own) = &own
            && !own.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        {
            self.error(&inner.key("name"), format!("`{own}` is no module name")).hint =
                Some("letters, digits and `_`; names of enclosing modules are put before it with a dot".to_owned());
        }
        let full = own.map(|own| format!("{}{own}", scope.prefix));
        self.register(layer, full.as_deref(), &inner, path);
        let kind = self.kind(layer, full.as_deref(), &inner, path, scope)?;
        let returns = match layer {
            Layer::Sequential(schema::Sequential { returns, .. }) | Layer::Block(schema::UseBlock { returns, .. }) => {
                self.named_taps(returns, &inner.key("returns"), &scope.inside(full.as_deref(), true))
            }
            _ => IndexMap::new(),
        };
        let name = full.filter(|_| !matches!(layer, Layer::Scope(_)));
        let resolved = ResolvedLayer { name, path: path.clone(), span: self.spans.get(path), kind, returns };
        if let (Some(name), LayerKind::Sequential(_)) = (&resolved.name, &resolved.kind) {
            self.containers.insert(name.clone(), resolved.clone());
        }
        Some(resolved)
    }

    /// Taps under other names: what a module or the network gives.
    fn named_taps(
        &mut self,
        names: &IndexMap<String, String>,
        path: &ConfigPath,
        scope: &Scope,
    ) -> IndexMap<String, String> {
        let tap = |(key, tap): (&String, &String)| Some((key.clone(), self.find_tap(tap, &path.key(key), scope)?));
        names.iter().filter_map(tap).collect()
    }

    /// Layers with parameters need a name, and one that is theirs alone.
    fn register(&mut self, layer: &Layer, name: Option<&str>, inner: &ConfigPath, path: &ConfigPath) {
        let has_parameters =
            matches!(layer, Layer::Conv(_) | Layer::ConvTranspose(_) | Layer::Bn(_) | Layer::Linear(_));
        let Some(name) = name else {
            if has_parameters {
                self.error(path, "a layer with parameters needs a `name`").hint =
                    Some("its parameters are called `<name>.weight` and so on".to_owned());
            }
            return;
        };
        let holds_others = matches!(
            layer,
            Layer::Sequential(_) | Layer::Stack(_) | Layer::Block(_) | Layer::Residual(_) | Layer::Concat(_)
        );
        let exclusive = has_parameters || holds_others;
        match self.modules.get(name) {
            Some(other) if exclusive || other.exclusive => {
                let hint = format!("the first is at {}", other.span);
                self.error(&inner.key("name"), format!("two modules are called `{name}`")).hint = Some(hint);
            }
            Some(_) => {}
            None => {
                self.modules.insert(name.to_owned(), Module { exclusive, span: self.spans.get(path) });
            }
        }
    }

    fn kind(
        &mut self,
        layer: &'a Layer,
        name: Option<&str>,
        inner: &ConfigPath,
        path: &ConfigPath,
        scope: &Scope,
    ) -> Option<LayerKind> {
        let inits: &InitDefaults = &self.model.init;
        Some(match layer {
            Layer::Conv(conv) => {
                let bias = self.value(&conv.bias, &inner.key("bias"), scope);
                let out = self.value(&conv.out, &inner.key("out"), scope);
                let kernel = self.pair(&conv.kernel, &inner.key("kernel"), scope);
                let stride = self.pair(&conv.stride, &inner.key("stride"), scope);
                let pad = self.padding(&conv.pad, &inner.key("pad"), scope);
                let dilation = self.pair(&conv.dilation, &inner.key("dilation"), scope);
                let groups = self.value(&conv.groups, &inner.key("groups"), scope);
                let (weight_init, bias_init) = parameter_inits(conv.init.as_ref(), &inits.conv);
                LayerKind::Conv(Conv {
                    out: out?.0,
                    kernel: kernel?,
                    stride: stride?,
                    pad: pad?,
                    dilation: dilation?,
                    groups: groups?.0,
                    weight_init,
                    bias_init: bias?.then_some(bias_init),
                })
            }
            Layer::Pad(pad) => LayerKind::Pad(self.padding(&pad.size, &inner.key("size"), scope)?),
            Layer::Bn(bn) => {
                let own = bn.init.clone().unwrap_or_default();
                LayerKind::BatchNorm(BatchNorm {
                    eps: bn.eps,
                    momentum: bn.momentum,
                    gamma_init: own.gamma.or(inits.bn.gamma).unwrap_or(1.0),
                    beta_init: own.beta.or(inits.bn.beta).unwrap_or(0.0),
                })
            }
            Layer::Relu(_) => LayerKind::Relu,
            Layer::Relu6(_) => LayerKind::Relu6,
            Layer::MaxPool(pool) => {
                let kernel = self.pair(&pool.kernel, &inner.key("kernel"), scope);
                let stride = pool.stride.as_ref().map(|stride| self.pair(stride, &inner.key("stride"), scope));
                let pad = self.padding(&pool.pad, &inner.key("pad"), scope);
                let (kernel, pad) = (kernel?, pad?);
                self.window(kernel, pad, inner);
                LayerKind::MaxPool(MaxPool {
                    kernel,
                    stride: stride.unwrap_or(Some(kernel))?,
                    pad,
                    ceil_mode: pool.ceil_mode,
                })
            }
            Layer::AvgPool(pool) => {
                let kernel = self.pair(&pool.kernel, &inner.key("kernel"), scope);
                let stride = pool.stride.as_ref().map(|stride| self.pair(stride, &inner.key("stride"), scope));
                let pad = self.padding(&pool.pad, &inner.key("pad"), scope);
                let (kernel, pad) = (kernel?, pad?);
                self.window(kernel, pad, inner);
                let (ceil_mode, count_include_pad) = (pool.ceil_mode, pool.count_include_pad);
                LayerKind::AvgPool(AvgPool {
                    kernel,
                    stride: stride.unwrap_or(Some(kernel))?,
                    pad,
                    ceil_mode,
                    count_include_pad,
                })
            }
            Layer::AdaptiveAvgPool(pool) => {
                LayerKind::AdaptiveAvgPool(self.pair(&pool.out, &inner.key("out"), scope)?)
            }
            Layer::GlobalAvgPool(_) => LayerKind::GlobalAvgPool,
            Layer::Lrn(lrn) => {
                let size = self.value(&lrn.size, &inner.key("size"), scope)?.0;
                LayerKind::Lrn(Lrn { size, alpha: lrn.alpha, beta: lrn.beta, k: lrn.k })
            }
            Layer::Linear(linear) => {
                let bias = self.value(&linear.bias, &inner.key("bias"), scope);
                let out = self.value(&linear.out, &inner.key("out"), scope);
                let (weight_init, bias_init) = parameter_inits(linear.init.as_ref(), &inits.linear);
                LayerKind::Linear(Linear { out: out?.0, weight_init, bias_init: bias?.then_some(bias_init) })
            }
            Layer::Sigmoid(_) => LayerKind::Sigmoid,
            Layer::PairLogSoftmax(_) => LayerKind::PairLogSoftmax,
            Layer::Scale(scale) => LayerKind::Scale(scale.by),
            Layer::ConvTranspose(conv) => {
                let bias = self.value(&conv.bias, &inner.key("bias"), scope);
                let out = self.value(&conv.out, &inner.key("out"), scope);
                let kernel = self.pair(&conv.kernel, &inner.key("kernel"), scope);
                let stride = self.pair(&conv.stride, &inner.key("stride"), scope);
                let pad = self.padding(&conv.pad, &inner.key("pad"), scope);
                let (weight_init, bias_init) = parameter_inits(conv.init.as_ref(), &inits.conv);
                LayerKind::ConvTranspose(ConvTranspose {
                    out: out?.0,
                    kernel: kernel?,
                    stride: stride?,
                    pad: pad?,
                    weight_init,
                    bias_init: bias?.then_some(bias_init),
                })
            }
            Layer::Upsample(upsample) => {
                let to = match (&upsample.scale, &upsample.size) {
                    (Some(scale), None) => UpsampleTo::Scale(self.pair(scale, &inner.key("scale"), scope)?),
                    (None, Some(size)) => UpsampleTo::Size(self.pair(size, &inner.key("size"), scope)?),
                    _ => {
                        self.error(inner, "says how large either by `scale` or by `size`").hint =
                            Some("for example `scale: 2`".to_owned());
                        return None;
                    }
                };
                LayerKind::Upsample(Upsample { to, mode: upsample.mode, align_corners: upsample.align_corners })
            }
            Layer::Crop(crop) => {
                let margin = self.value(&crop.margin, &inner.key("margin"), scope)?.0;
                LayerKind::Crop { margin, narrower_than: crop.narrower_than.map(|size| size.0) }
            }
            Layer::Xcorr(xcorr) => LayerKind::Xcorr(self.find_tap(&xcorr.kernel, &inner.key("kernel"), scope)?),
            Layer::Patches(patches) => {
                let kernel = self.pair(&patches.kernel, &inner.key("kernel"), scope);
                let stride = self.pair(&patches.stride, &inner.key("stride"), scope);
                let pad = self.padding(&patches.pad, &inner.key("pad"), scope);
                LayerKind::Patches(Patches { kernel: kernel?, stride: stride?, pad: pad? })
            }
            Layer::Scope(inside) => {
                LayerKind::Sequential(self.layers(&inside.body, &inner.key("body"), &scope.inside(name, false)))
            }
            Layer::Unused(unused) => LayerKind::Unused(self.layers(&unused.body, &inner.key("body"), scope)),
            Layer::Again(module) => {
                let full = format!("{}{module}", scope.prefix);
                let known = [&full, module].into_iter().find_map(|name| self.containers.get(name).cloned());
                let Some(known) = known else {
                    let hint = suggest(module, self.containers.keys().map(String::as_str));
                    self.error(inner, format!("there is no module `{module}` above with layers in it")).hint =
                        Some(hint);
                    return None;
                };
                LayerKind::Again(Box::new(known))
            }
            Layer::Add(tap) => LayerKind::Add(self.find_tap(tap, inner, scope)?),
            Layer::Subtract(tap) => LayerKind::Subtract(self.find_tap(tap, inner, scope)?),
            Layer::Dropout(dropout) => LayerKind::Dropout { rate: dropout.rate },
            Layer::Flatten(_) => LayerKind::Flatten,
            Layer::Residual(residual) => {
                let inside = scope.inside(name, false);
                let main = self.layers(&residual.main, &inner.key("main"), &inside);
                let shortcut = self.layers(&residual.shortcut, &inner.key("shortcut"), &inside);
                LayerKind::Residual { main, shortcut }
            }
            Layer::Concat(concat) => {
                let inside = scope.inside(name, false);
                let path = inner.key("branches");
                let branch =
                    |(index, branch): (usize, &'a Vec<Layer>)| self.layers(branch, &path.index(index), &inside);
                LayerKind::Concat {
                    branches: concat.branches.iter().enumerate().map(branch).collect(),
                    axis: concat.axis,
                }
            }
            Layer::Sequential(sequential) => {
                LayerKind::Sequential(self.layers(&sequential.body, &inner.key("body"), &scope.inside(name, true)))
            }
            Layer::Stack(stack) => {
                let repeat = self.value(&stack.repeat, &inner.key("repeat"), scope)?.0;
                let inside = scope.inside(name, true);
                let mut uses = Vec::with_capacity(repeat);
                for index in 0..repeat {
                    let first = (index == 0).then_some((&stack.first, inner.key("first")));
                    let sources = first.into_iter().chain([(&stack.args, inner.key("args"))]);
                    let name = format!("{}{index}", inside.prefix);
                    let body = self.inline(&stack.block, sources.collect(), Some(&name), &inner.key("block"), scope)?;
                    uses.push(ResolvedLayer {
                        name: Some(name),
                        path: path.clone(),
                        span: self.spans.get(path),
                        kind: LayerKind::Sequential(body),
                        returns: IndexMap::new(),
                    });
                }
                LayerKind::Sequential(uses)
            }
            Layer::Block(block) => {
                let sources = vec![(&block.args, inner.key("args"))];
                LayerKind::Sequential(self.inline(&block.block, sources, name, &inner.key("use"), scope)?)
            }
            Layer::Tap(tap) => {
                let full = format!("{}{tap}", scope.prefix);
                if !self.taps.insert(full.clone()) {
                    self.error(inner, format!("there is a tap or input `{tap}` already"));
                }
                LayerKind::Tap(full)
            }
            Layer::From(tap) => LayerKind::From(self.find_tap(tap, inner, scope)?),
        })
    }

    /// The full name of a tap, looked for in this module and in those around it.
    fn find_tap(&mut self, tap: &str, path: &ConfigPath, scope: &Scope) -> Option<String> {
        let mut prefix = scope.prefix.as_str();
        loop {
            let full = format!("{prefix}{tap}");
            if self.taps.contains(&full) {
                self.used_inputs.insert(full.clone());
                return Some(full);
            }
            if prefix.is_empty() {
                break;
            }
            let outer = prefix.trim_end_matches('.').rfind('.').map_or(0, |dot| dot + 1);
            prefix = &prefix[..outer];
        }
        let known: Vec<String> = self.taps.iter().cloned().collect();
        let hint = suggest(tap, known.iter().map(String::as_str));
        self.error(path, format!("there is no tap or input `{tap}` before this layer")).hint = Some(hint);
        None
    }

    pub(super) fn value<T: FromScalar + Copy>(
        &mut self,
        param: &Param<T>,
        path: &ConfigPath,
        scope: &Scope,
    ) -> Option<T> {
        match evaluate(param, &scope.args) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(path, error.message).hint = error.hint;
                None
            }
        }
    }

    fn pair(&mut self, pair: &Pair, path: &ConfigPath, scope: &Scope) -> Option<[usize; 2]> {
        match pair {
            Pair::Both(size) => self.value(size, path, scope).map(|Size(size)| [size, size]),
            Pair::Each([height, width]) => {
                let height = self.value(height, &path.index(0), scope);
                let width = self.value(width, &path.index(1), scope);
                Some([height?.0, width?.0])
            }
        }
    }

    fn padding(&mut self, padding: &Padding, path: &ConfigPath, scope: &Scope) -> Option<[usize; 4]> {
        let mut side =
            |index: usize, side: &Param<Count>| self.value(side, &path.index(index), scope).map(|Count(side)| side);
        match padding {
            Padding::All(all) => self.value(all, path, scope).map(|Count(side)| [side; 4]),
            Padding::Axes([height, width]) => {
                let (height, width) = (side(0, height), side(1, width));
                Some([height?, height?, width?, width?])
            }
            Padding::Sides([top, bottom, left, right]) => {
                let sides = [side(0, top), side(1, bottom), side(2, left), side(3, right)];
                Some([sides[0]?, sides[1]?, sides[2]?, sides[3]?])
            }
        }
    }

    /// A window that lies in the padding alone has no maximum and no mean.
    fn window(&mut self, kernel: [usize; 2], pad: [usize; 4], inner: &ConfigPath) {
        let [top, bottom, left, right] = pad;
        if top.max(bottom) >= kernel[0] || left.max(right) >= kernel[1] {
            let message = format!(
                "a pool of {}x{} cannot be padded by {pad:?}: windows would see padding only",
                kernel[0], kernel[1]
            );
            self.error(&inner.key("pad"), message);
        }
    }
}

impl Scope {
    /// The scope inside a module called `name` (in full); without a name, the same scope.
    pub(super) fn inside(&self, name: Option<&str>, indexed: bool) -> Self {
        let prefix = name.map_or_else(|| self.prefix.clone(), |name| format!("{name}."));
        Self { prefix, args: self.args.clone(), indexed }
    }
}

/// Whether a layer is a module, which has a name inside a sequential, and no move between values.
fn is_module(layer: &Layer) -> bool {
    !matches!(
        layer,
        Layer::Tap(_) | Layer::From(_) | Layer::Add(_) | Layer::Subtract(_) | Layer::Unused(_) | Layer::Again(_)
    )
}

/// Key, name and switch of a layer.
fn head(layer: &Layer) -> (&'static str, Option<&str>, &Param<bool>) {
    macro_rules! heads {
        ($($variant:ident => $tag:literal),* $(,)?) => {
            match layer {
                $(Layer::$variant(layer) => ($tag, layer.name.as_deref(), &layer.enabled),)*
                Layer::Scope(scope) => ("scope", Some(scope.name.as_str()), &Param::Value(true)),
                Layer::Unused(_) => ("unused", None, &Param::Value(true)),
                Layer::Again(_) => ("again", None, &Param::Value(true)),
                Layer::Add(_) => ("add", None, &Param::Value(true)),
                Layer::Subtract(_) => ("subtract", None, &Param::Value(true)),
                Layer::Tap(_) => ("tap", None, &Param::Value(true)),
                Layer::From(_) => ("from", None, &Param::Value(true)),
            }
        };
    }
    heads! {
        Conv => "conv", Pad => "pad", Bn => "bn", Relu => "relu", Relu6 => "relu6", MaxPool => "max_pool", AvgPool => "avg_pool",
        AdaptiveAvgPool => "adaptive_avg_pool", GlobalAvgPool => "global_avg_pool", Lrn => "lrn", Linear => "linear",
        Sigmoid => "sigmoid", Scale => "scale", ConvTranspose => "conv_transpose", Upsample => "upsample", Crop => "crop",
        PairLogSoftmax => "pair_log_softmax", Xcorr => "xcorr", Patches => "patches", Dropout => "dropout", Flatten => "flatten", Residual => "residual", Concat => "concat", Sequential => "sequential",
        Stack => "stack", Block => "block",
    }
}

/// Initialisers of weight and bias: the layer's own, or the model's, or PyTorch's.
fn parameter_inits(own: Option<&schema::WeightInit>, model: &schema::WeightInit) -> (Init, Init) {
    let pick = |own: Option<&Init>, model: Option<&Init>| {
        own.or(model).cloned().unwrap_or(Init::TorchDefault(schema::TorchDefault {}))
    };
    let own = own.cloned().unwrap_or_default();
    (pick(own.weight.as_ref(), model.weight.as_ref()), pick(own.bias.as_ref(), model.bias.as_ref()))
}
