//! Layers of the recipe as nodes, and the outputs of its modules as taps.

use super::{BuildOptions, Mode};
use crate::{
    error::GraphError,
    graph::{Graph, Origin, Phase, Scope, Tap, TapState, ValueId, VariableId, VariableRole},
    ops::{
        AdaptiveAvgPool, Add, AvgPool, BnInfer, BnRunningUpdate, BnTrainingReduce, BnTrainingUpdate, Concat, Conv2D,
        Dropout, Lrn, MatMul, MaxPool, Op, Pad, Relu, Relu6, Reshape, Window,
    },
    tensor::{Layout, TensorType},
};
use std::collections::HashMap;
use zoo_recipe::{LayerKind, ResolvedLayer, ResolvedModel, resolve, schema::Axis, schema::Init};

/// Adds inputs and network; returns the network's output.
pub(super) fn lower(graph: &mut Graph, model: &ResolvedModel, options: &BuildOptions) -> Result<ValueId, GraphError> {
    let mut taps = HashMap::new();
    let mut first = None;
    for (name, [c, h, w]) in &model.inputs {
        let value = graph.add_input(name, TensorType::plain([options.batch, *c, *h, *w], options.dtype));
        taps.insert(name.clone(), value);
        first.get_or_insert(value);
    }
    let Some(input) = first else {
        return Err(GraphError::Model { span: None, message: "the model has no input".into() });
    };
    let mut lowering = Lowering { graph, options, taps, calls: HashMap::new(), dropouts: 0 };
    let output = lowering.body(&model.body, input)?;
    lowering.tap("@root", output, None);
    Ok(output)
}

struct Lowering<'a> {
    graph: &'a mut Graph,
    options: &'a BuildOptions,
    /// Values that the recipe keeps under a name, model inputs among them.
    taps: HashMap<String, ValueId>,
    /// Calls of each module so far.
    calls: HashMap<String, usize>,
    dropouts: u64,
}

/// A layer on its way into the graph.
struct Site<'a> {
    layer: &'a ResolvedLayer,
    /// Its module name, or its place in the recipe if it has none.
    name: String,
    scope: Scope,
}

impl Lowering<'_> {
    fn body(&mut self, layers: &[ResolvedLayer], input: ValueId) -> Result<ValueId, GraphError> {
        layers.iter().try_fold(input, |x, layer| self.layer(layer, x))
    }

    fn layer(&mut self, layer: &ResolvedLayer, x: ValueId) -> Result<ValueId, GraphError> {
        let origin = Origin { path: layer.path.to_string(), span: layer.span.clone() };
        let site = Site {
            layer,
            name: layer.name.clone().unwrap_or_else(|| layer.path.to_string()),
            scope: Scope { phase: Phase::Forward, origin: Some(origin.clone()) },
        };
        let y = self.kind(&site, x)?;
        if let Some(name) = &layer.name {
            self.tap(name, y, Some(origin));
        }
        Ok(y)
    }

    fn tap(&mut self, module: &str, value: ValueId, origin: Option<Origin>) {
        let calls = self.calls.entry(module.to_string()).or_default();
        let tap = Tap { module: module.to_string(), call: *calls, state: TapState::Value(value), origin };
        *calls += 1;
        self.graph.taps.push(tap);
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
            LayerKind::From(name) => self.taps.get(name).copied().ok_or_else(|| GraphError::Model {
                span: Some(site.layer.span.clone()),
                message: format!("no tap or input `{name}` before this layer"),
            }),
        }
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
        if self.options.mode == Mode::Eval {
            return self.add(site, BnInfer { eps: bn.eps }, &[x, gamma, beta, running_mean, running_var]);
        }
        let scope = &site.scope;
        let batch = self.graph.add_node(scope, format!("{}/statistics", site.name), BnTrainingReduce, &[x])?;
        let count = self.graph.ty(x).shape.numel() / channels.max(1);
        let running = BnRunningUpdate { momentum: bn.momentum, count };
        let scope = Scope { phase: Phase::Update, ..scope.clone() };
        let operands = [running_mean, running_var, batch[0], batch[1]];
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
        let name = format!("{}.{leaf}", site.name);
        let refuse = |message| Err(GraphError::Model { span: Some(site.layer.span.clone()), message });
        if self.graph.find_variable(&name).is_some() {
            return refuse(format!("`{name}` is there already: give this layer a name of its own"));
        }
        let ty = TensorType { shape: shape.into(), dtype: self.options.dtype, layout: Layout::Plain };
        if ty.shape.checked_numel().is_none_or(|n| n == 0 || n > 1 << 40) {
            return refuse(format!("`{name}` would have shape {}", ty.shape));
        }
        Ok(self.graph.add_variable(name, role, ty, init.clone(), site.scope.origin.clone()))
    }
}
