//! Layers of the recipe as nodes, and the outputs of its modules as taps.

use super::{BuildOptions, Mode};
use crate::{
    LayerKind, ResolvedLayer, ResolvedModel,
    resolve::{self, UpsampleTo},
    schema::{Axis, Init, Part, Statistics, Training, UpsampleMode},
};
use std::collections::HashMap;
use zoo_graph::{
    Graph, GraphError, Layout, Op, Origin, Phase, Scope, Tap, TapState, TensorType, ValueId, VariableId, VariableRole,
    ops::{
        AdaptiveAvgPool, Add, AvgPool, BiasAdd, BnInfer, BnRunningUpdate, BnTrainingReduce, BnTrainingUpdate, Concat,
        Conv2D, Conv2DBackpropInput, DepthwiseCorrelation, Dropout, ExtractPatches, Interpolation, Lrn, MatMul,
        MaxPool, Pad, PairLogSoftmax, Relu, Relu6, Reshape, Resize, Scale, Sigmoid, Slice, WeightedSum, Window,
    },
};

/// Name of the output of a network that gives one value.
pub(super) const LOGITS: &str = "logits";

/// Adds inputs and network, and names its outputs.
pub(super) fn lower(
    graph: &mut Graph,
    model: &ResolvedModel,
    parts: &[Part],
    options: &BuildOptions,
) -> Result<(), GraphError> {
    let mut taps = HashMap::new();
    let mut first = None;
    for (name, [c, h, w]) in &model.inputs {
        let value = graph.add_input(name, TensorType::plain([options.batch, *c, *h, *w], options.dtype));
        taps.insert(name.clone(), value);
        first.get_or_insert(value);
    }
    let Some(input) = first else {
        return Err(GraphError::Model { origin: None, message: "the model has no input".into() });
    };
    let mut lowering = Lowering { graph, options, parts, taps, calls: HashMap::new(), dropouts: 0, again: false };
    let last = lowering.body(&model.body, input)?;
    if model.outputs.is_empty() {
        lowering.tap(super::ROOT, last, None);
        lowering.graph.outputs.push((LOGITS.into(), last));
        return Ok(());
    }
    for (name, tap) in &model.outputs {
        let Some(value) = lowering.taps.get(tap).copied() else {
            return Err(GraphError::Model { origin: None, message: format!("no tap `{tap}` for the output `{name}`") });
        };
        lowering.graph.outputs.push((name.clone(), value));
    }
    Ok(())
}

struct Lowering<'a> {
    graph: &'a mut Graph,
    options: &'a BuildOptions,
    /// What is trained differently from the rest.
    parts: &'a [Part],
    /// Values that the recipe keeps under a name, model inputs among them.
    taps: HashMap<String, ValueId>,
    /// Calls of each module so far.
    calls: HashMap<String, usize>,
    dropouts: u64,
    /// Whether a module is called once more, so that its parameters are there already.
    again: bool,
}

/// A layer on its way into the graph.
struct Site<'a> {
    layer: &'a ResolvedLayer,
    /// Its module name, or its place in the recipe if it has none.
    module: String,
    /// Name of its nodes: the module's, with the number of the call if it is called once more.
    name: String,
    scope: Scope,
}

impl Lowering<'_> {
    fn body(&mut self, layers: &[ResolvedLayer], input: ValueId) -> Result<ValueId, GraphError> {
        layers.iter().try_fold(input, |x, layer| self.layer(layer, x))
    }

    fn layer(&mut self, layer: &ResolvedLayer, x: ValueId) -> Result<ValueId, GraphError> {
        let origin = Origin { path: layer.path.to_string(), span: layer.span.clone() };
        let module = layer.name.clone().unwrap_or_else(|| layer.path.to_string());
        let name = match self.calls.get(&module) {
            Some(call) if self.again => format!("{module}#{call}"),
            _ => module.clone(),
        };
        let site = Site { layer, module, name, scope: Scope { phase: Phase::Forward, origin: Some(origin.clone()) } };
        let y = self.kind(&site, x)?;
        if let Some(name) = &layer.name {
            if layer.returns.is_empty() {
                self.tap(name, y, Some(origin));
            } else {
                self.tap_parts(name, layer, &origin)?;
            }
        }
        Ok(y)
    }

    fn tap(&mut self, module: &str, value: ValueId, origin: Option<Origin>) {
        let calls = self.calls.entry(module.to_string()).or_default();
        let tap = Tap { module: module.to_string(), call: *calls, part: None, state: TapState::Value(value), origin };
        *calls += 1;
        self.graph.taps.push(tap);
    }

    /// Taps of a module that gives several values.
    fn tap_parts(&mut self, module: &str, layer: &ResolvedLayer, origin: &Origin) -> Result<(), GraphError> {
        let calls = self.calls.entry(module.to_string()).or_default();
        let call = *calls;
        *calls += 1;
        for (key, tap) in &layer.returns {
            let value = self.tapped(tap, layer)?;
            self.graph.taps.push(Tap {
                module: module.to_string(),
                call,
                part: Some(key.clone()),
                state: TapState::Value(value),
                origin: Some(origin.clone()),
            });
        }
        Ok(())
    }

    /// The value that was kept under a name.
    fn tapped(&self, tap: &str, layer: &ResolvedLayer) -> Result<ValueId, GraphError> {
        self.taps.get(tap).copied().ok_or_else(|| GraphError::Model {
            origin: Some(Origin { path: layer.path.to_string(), span: layer.span.clone() }),
            message: format!("no tap or input `{tap}` before this layer"),
        })
    }

    fn kind(&mut self, site: &Site<'_>, x: ValueId) -> Result<ValueId, GraphError> {
        match &site.layer.kind {
            LayerKind::Conv(conv) => self.conv(site, conv, x),
            LayerKind::BatchNorm(bn) => self.batch_norm(site, bn, x),
            LayerKind::Linear(linear) => self.linear(site, linear, x),
            LayerKind::Pad([top, bottom, left, right]) => {
                let (before, after) = (vec![0, 0, *top, *left], vec![0, 0, *bottom, *right]);
                self.add(site, Pad { before, after }, &[x])
            }
            LayerKind::Relu => self.add(site, Relu, &[x]),
            LayerKind::Relu6 => self.add(site, Relu6, &[x]),
            LayerKind::MaxPool(p) => {
                let window = Window { pad: p.pad, ceil: p.ceil_mode, ..Window::new(p.kernel, p.stride) };
                self.add(site, MaxPool { window }, &[x])
            }
            LayerKind::AvgPool(p) => {
                let window = Window { pad: p.pad, ceil: p.ceil_mode, ..Window::new(p.kernel, p.stride) };
                self.add(site, AvgPool { window, count_include_pad: p.count_include_pad }, &[x])
            }
            LayerKind::AdaptiveAvgPool(out) => self.add(site, AdaptiveAvgPool { out: *out }, &[x]),
            LayerKind::GlobalAvgPool => self.add(site, AdaptiveAvgPool { out: [1, 1] }, &[x]),
            LayerKind::Lrn(l) => self.add(site, Lrn { size: l.size, alpha: l.alpha, beta: l.beta, k: l.k }, &[x]),
            LayerKind::Dropout { rate } => self.dropout(site, *rate, x),
            LayerKind::Flatten => {
                let shape = &self.graph.ty(x).shape;
                let n = shape.first().copied().unwrap_or(1);
                let shape = [n, shape.iter().skip(1).product()].into();
                self.add(site, Reshape { shape }, &[x])
            }
            LayerKind::Sequential(body) => self.body(body, x),
            LayerKind::Residual { main, shortcut } => {
                let main = self.body(main, x)?;
                let shortcut = self.body(shortcut, x)?;
                self.add_named(site, &format!("{}/add", site.name), Add, &[main, shortcut])
            }
            LayerKind::Concat { branches, axis } => {
                let parts = branches.iter().map(|b| self.body(b, x)).collect::<Result<Vec<_>, _>>()?;
                let axis = match axis {
                    Axis::Channel => 1,
                    Axis::Height => 2,
                    Axis::Width => 3,
                };
                self.add_named(site, &format!("{}/concat", site.name), Concat { axis }, &parts)
            }
            LayerKind::Tap(name) => {
                self.taps.insert(name.clone(), x);
                Ok(x)
            }
            LayerKind::From(name) => self.tapped(name, site.layer),
            LayerKind::Add(name) => {
                let other = self.tapped(name, site.layer)?;
                self.add(site, Add, &[x, other])
            }
            LayerKind::Subtract(name) => {
                let other = self.tapped(name, site.layer)?;
                self.add(site, WeightedSum { weights: vec![1.0, -1.0] }, &[x, other])
            }
            LayerKind::Sigmoid => self.add(site, Sigmoid, &[x]),
            LayerKind::Scale(factor) => self.add(site, Scale { factor: *factor }, &[x]),
            LayerKind::ConvTranspose(conv) => self.conv_transpose(site, conv, x),
            LayerKind::Upsample(upsample) => self.upsample(site, upsample, x),
            LayerKind::Crop { margin, narrower_than } => self.crop(site, *margin, *narrower_than, x),
            LayerKind::PairLogSoftmax => self.add(site, PairLogSoftmax, &[x]),
            LayerKind::Xcorr(kernel) => {
                let kernel = self.tapped(kernel, site.layer)?;
                self.add(site, DepthwiseCorrelation, &[x, kernel])
            }
            LayerKind::Patches(p) => {
                let window = Window { pad: p.pad, ..Window::new(p.kernel, p.stride) };
                self.add(site, ExtractPatches { window }, &[x])
            }
            LayerKind::Unused(body) => self.unused(body, x),
            LayerKind::Again(module) => {
                let outer = std::mem::replace(&mut self.again, true);
                let y = self.layer(module, x);
                self.again = outer;
                y
            }
        }
    }

    /// Declares the parameters of layers as if they were called, without calling them.
    fn unused(&mut self, body: &[ResolvedLayer], x: ValueId) -> Result<ValueId, GraphError> {
        let known = self.graph.variables.len();
        let mut elsewhere = self.graph.clone();
        let mut lowering = Lowering {
            graph: &mut elsewhere,
            options: self.options,
            parts: self.parts,
            taps: self.taps.clone(),
            calls: self.calls.clone(),
            dropouts: self.dropouts,
            again: self.again,
        };
        lowering.body(body, x)?;
        for variable in &elsewhere.variables[known..] {
            let ty = elsewhere.ty(variable.value).clone();
            let (name, role) = (variable.name.clone(), variable.role.clone());
            self.graph.add_variable(name, role, ty, variable.init.clone(), variable.origin.clone());
        }
        Ok(x)
    }

    fn conv_transpose(
        &mut self,
        site: &Site<'_>,
        conv: &resolve::ConvTranspose,
        x: ValueId,
    ) -> Result<ValueId, GraphError> {
        let Some([n, channels, h, w]) = self.graph.ty(x).shape.nchw() else {
            return Err(refuse(site, format!("a transposed convolution of {}", self.graph.ty(x).shape)));
        };
        let [kh, kw] = conv.kernel;
        let extent = |size: usize, axis: usize| {
            let whole = size.saturating_sub(1).checked_mul(conv.stride[axis])?.checked_add(conv.kernel[axis])?;
            whole.checked_sub(conv.pad[2 * axis])?.checked_sub(conv.pad[2 * axis + 1]).filter(|size| *size > 0)
        };
        let (Some(oh), Some(ow)) = (extent(h, 0), extent(w, 1)) else {
            return Err(refuse(site, format!("padding {:?} leaves nothing of the output", conv.pad)));
        };
        let shape = vec![channels, conv.out, kh, kw];
        let weight = self.parameter(site, "weight", VariableRole::Weight, shape, &conv.weight_init)?;
        let forward = Conv2D::new(Window { pad: conv.pad, ..Window::new(conv.kernel, conv.stride) }, 1);
        let op = Conv2DBackpropInput { conv: forward, input: [n, conv.out, oh, ow].into() };
        let Some(init) = &conv.bias_init else { return self.add(site, op, &[x, weight]) };
        let y = self.add_named(site, &format!("{}/product", site.name), op, &[x, weight])?;
        let bias = self.parameter(site, "bias", VariableRole::Bias, vec![conv.out], init)?;
        self.add(site, BiasAdd, &[y, bias])
    }

    fn upsample(&mut self, site: &Site<'_>, upsample: &resolve::Upsample, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([_, _, h, w]) = self.graph.ty(x).shape.nchw() else {
            return Err(refuse(site, format!("no height and width in {}", self.graph.ty(x).shape)));
        };
        let out = match upsample.to {
            UpsampleTo::Scale([by_h, by_w]) => [h.saturating_mul(by_h), w.saturating_mul(by_w)],
            UpsampleTo::Size(size) => size,
        };
        let interpolation = match upsample.mode {
            UpsampleMode::Nearest => Interpolation::Nearest,
            UpsampleMode::Bilinear => Interpolation::Bilinear { align_corners: upsample.align_corners },
        };
        self.add(site, Resize { out, interpolation }, &[x])
    }

    fn crop(
        &mut self,
        site: &Site<'_>,
        margin: usize,
        narrower_than: Option<usize>,
        x: ValueId,
    ) -> Result<ValueId, GraphError> {
        let Some([n, c, h, w]) = self.graph.ty(x).shape.nchw() else {
            return Err(refuse(site, format!("no height and width in {}", self.graph.ty(x).shape)));
        };
        if narrower_than.is_some_and(|limit| w >= limit) {
            return Ok(x);
        }
        let left = |size: usize| size.checked_sub(2 * margin).filter(|size| *size > 0);
        let (Some(oh), Some(ow)) = (left(h), left(w)) else {
            return Err(refuse(site, format!("a margin of {margin} leaves nothing of {h}x{w}")));
        };
        self.add(site, Slice { start: vec![0, 0, margin, margin], size: vec![n, c, oh, ow] }, &[x])
    }

    fn conv(&mut self, site: &Site<'_>, conv: &resolve::Conv, x: ValueId) -> Result<ValueId, GraphError> {
        let channels = self.graph.ty(x).shape.get(1).copied().unwrap_or(0);
        let window = Window { pad: conv.pad, dilation: conv.dilation, ..Window::new(conv.kernel, conv.stride) };
        let shape = vec![conv.out, channels / conv.groups.max(1), conv.kernel[0], conv.kernel[1]];
        let weight = self.parameter(site, "weight", VariableRole::Weight, shape, &conv.weight_init)?;
        let mut operands = vec![x, weight];
        if let Some(init) = &conv.bias_init {
            operands.push(self.parameter(site, "bias", VariableRole::Bias, vec![conv.out], init)?);
        }
        self.add(site, Conv2D::new(window, conv.groups), &operands)
    }

    fn linear(&mut self, site: &Site<'_>, linear: &resolve::Linear, x: ValueId) -> Result<ValueId, GraphError> {
        let inputs = self.graph.ty(x).shape.last().copied().unwrap_or(0);
        let weight =
            self.parameter(site, "weight", VariableRole::Weight, vec![linear.out, inputs], &linear.weight_init)?;
        let mut operands = vec![x, weight];
        if let Some(init) = &linear.bias_init {
            operands.push(self.parameter(site, "bias", VariableRole::Bias, vec![linear.out], init)?);
        }
        self.add(site, MatMul { transpose_a: false, transpose_b: true }, &operands)
    }

    fn batch_norm(&mut self, site: &Site<'_>, bn: &resolve::BatchNorm, x: ValueId) -> Result<ValueId, GraphError> {
        let channels = self.graph.ty(x).shape.get(1).copied().unwrap_or(0);
        let constant = Init::Constant;
        let shape = || vec![channels];
        let gamma = self.parameter(site, "weight", VariableRole::NormWeight, shape(), &constant(bn.gamma_init))?;
        let beta = self.parameter(site, "bias", VariableRole::NormBias, shape(), &constant(bn.beta_init))?;
        let mean = self.variable(site, "running_mean", VariableRole::RunningMean, shape(), &constant(0.0))?;
        let var = self.variable(site, "running_var", VariableRole::RunningVar, shape(), &constant(1.0))?;
        let [running_mean, running_var] = [mean, var].map(|id| self.graph.variable(id).value);
        let training = Training::of(self.parts, &site.module, self.options.epoch);
        if self.options.mode == Mode::Eval || training.statistics == Statistics::Stored {
            return self.add(site, BnInfer { eps: bn.eps }, &[x, gamma, beta, running_mean, running_var]);
        }
        let scope = &site.scope;
        let batch = self.graph.add_node(scope, format!("{}/statistics", site.name), BnTrainingReduce, &[x])?;
        let count = self.graph.ty(x).shape.numel() / channels.max(1);
        let running = BnRunningUpdate { momentum: bn.momentum, count };
        let scope = Scope { phase: Phase::Update, ..scope.clone() };
        // A second call of the module moves on from where the first left them.
        let [mean_now, var_now] = [mean, var].map(|id| self.graph.variable(id).next);
        let operands = [mean_now.unwrap_or(running_mean), var_now.unwrap_or(running_var), batch[0], batch[1]];
        let next = self.graph.add_node(&scope, format!("{}/running", site.name), running, &operands)?;
        self.graph.variables[mean.0].next = Some(next[0]);
        self.graph.variables[var.0].next = Some(next[1]);
        let op = BnTrainingUpdate { eps: bn.eps, residual: false, relu: false };
        self.add(site, op, &[x, batch[0], batch[1], gamma, beta])
    }

    fn dropout(&mut self, site: &Site<'_>, rate: f64, x: ValueId) -> Result<ValueId, GraphError> {
        let stream = self.dropouts;
        self.dropouts += 1;
        if self.options.mode == Mode::Eval || !self.options.dropout || rate == 0.0 {
            return Ok(x);
        }
        self.add(site, Dropout { rate, stream }, &[x])
    }

    fn add(&mut self, site: &Site<'_>, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId, GraphError> {
        self.graph.add(&site.scope, site.name.clone(), op, operands)
    }

    fn add_named(
        &mut self,
        site: &Site<'_>,
        name: &str,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        self.graph.add(&site.scope, name, op, operands)
    }

    fn parameter(
        &mut self,
        site: &Site<'_>,
        leaf: &str,
        role: VariableRole,
        shape: Vec<usize>,
        init: &Init,
    ) -> Result<ValueId, GraphError> {
        let id = self.variable(site, leaf, role, shape, init)?;
        Ok(self.graph.variable(id).value)
    }

    fn variable(
        &mut self,
        site: &Site<'_>,
        leaf: &str,
        role: VariableRole,
        shape: Vec<usize>,
        init: &Init,
    ) -> Result<VariableId, GraphError> {
        let name = format!("{}.{leaf}", site.module);
        let ty = TensorType { shape: shape.into(), dtype: self.options.dtype, layout: Layout::Plain };
        if let Some(known) = self.graph.find_variable(&name) {
            let theirs = &self.graph.ty(self.graph.variable(known).value).shape;
            return match self.again {
                true if *theirs == ty.shape => Ok(known),
                true => Err(refuse(site, format!("`{name}` has shape {theirs}, this call would need {}", ty.shape))),
                false => Err(refuse(site, format!("`{name}` is there already: give this layer a name of its own"))),
            };
        }
        if ty.shape.checked_numel().is_none_or(|n| n == 0 || n > 1 << 40) {
            return Err(refuse(site, format!("`{name}` would have shape {}", ty.shape)));
        }
        Ok(self.graph.add_variable(name, role, ty, init.clone(), site.scope.origin.clone()))
    }
}

/// A layer that cannot be built.
fn refuse(site: &Site<'_>, message: String) -> GraphError {
    GraphError::Model { origin: site.scope.origin.clone(), message }
}
