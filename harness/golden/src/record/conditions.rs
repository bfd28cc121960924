//! The conditions of a recorded golden, known before the step runs: hyper-parameters, initial values, learning rates.

use super::{RecordOptions, inputs::MadeInputs};
use crate::conditions::eps;
use crate::manifest::{Group, HashVectors, Hyper, Init, MAKER, Manifest, Optimizer, ScheduleTable};
use std::collections::BTreeMap;
use zoo_datasets::hash::{NameHash, fnv1a64};
use zoo_graph::{Graph, Op, Optimized, Variable, VariableRole};
use zoo_recipe::{Recipe, schema};

/// All parts of the manifest that are known before a step runs.
pub(crate) fn conditions(recipe: &Recipe, graph: &Graph, inputs: &MadeInputs, options: &RecordOptions) -> Manifest {
    let mut groups: Vec<Group> = Vec::new();
    let (mut bn, mut shapes, mut init) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for node in &graph.nodes {
        if let Op::BnRunningUpdate(op) = &node.op {
            let pair = (eps(graph, node).unwrap_or_default(), op.momentum);
            if !bn.contains(&pair) {
                bn.push(pair);
            }
        }
        let Some(Optimized { parameter, group, .. }) = graph.optimized(node) else { continue };
        let zoo_graph::ops::Group { weight_decay, lr_scale } = group;
        let name = graph.variable(parameter).name.clone();
        let lr = options.learning_rate * lr_scale;
        match groups.iter_mut().find(|g| g.weight_decay == weight_decay && g.lr == lr) {
            Some(group) => group.params.push(name),
            None => groups.push(Group { lr, weight_decay, params: vec![name] }),
        }
    }
    for variable in &graph.variables {
        let shape = graph.ty(variable.value).shape.to_vec();
        if let Some(rule) = start(variable, &shape) {
            init.insert(variable.name.clone(), rule);
            shapes.insert(variable.name.clone(), shape);
        }
    }
    let loss = &recipe.loss;
    let vectors = ["a", "conv1.weight"].map(|name| (name.to_string(), hash_vectors(name)));
    Manifest {
        model: recipe.name.clone(),
        salt: options.salt.clone(),
        precision: "f64 of the engine is the truth; f32_rel is its f32 run's error on the stored samples".into(),
        made_with: BTreeMap::from([(MAKER.to_string(), env!("CARGO_PKG_VERSION").to_string())]),
        optimizer: optimizer(recipe, groups, options.learning_rate),
        hyper: Hyper {
            label_smoothing: loss.softmax_cross_entropy.as_ref().map(|l| l.label_smoothing),
            smoothing_over: loss
                .softmax_cross_entropy
                .as_ref()
                .map(|l| l.smoothing_over)
                .filter(|over| *over != schema::SmoothingOver::AllClasses),
            l2_in_loss: loss.l2.as_ref().map(|l2| l2.weight),
            l2_over: loss.l2.as_ref().map(|l2| l2.over).filter(|over| *over != schema::L2Over::All),
            loss_weights: None,
            negative_ratio: None,
        },
        parameter_count: graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum(),
        bn,
        hash_vectors: BTreeMap::from(vectors),
        inputs: inputs.described(),
        shapes,
        init,
        parameters_without_gradient: untouched(graph),
        losses_f64: Vec::new(),
        losses_f32: Vec::new(),
        losses_moved: Vec::new(),
        output_order: Vec::new(),
        tensors: BTreeMap::new(),
        variants: BTreeMap::new(),
        schedule: Some(schedule(recipe)),
    }
}

fn optimizer(recipe: &Recipe, groups: Vec<Group>, lr: f64) -> Optimizer {
    let (clip_grad_norm, clip) = match recipe.gradients.clip.as_slice() {
        [] => (None, Vec::new()),
        [schema::Clip::Norm(bound)] => (Some(*bound), Vec::new()),
        clips => (None, clips.to_vec()),
    };
    let tag = recipe.optimizer.tag();
    let settings = serde_json::to_value(&recipe.optimizer).unwrap_or_default();
    let settings = settings[tag].as_object().cloned().unwrap_or_default().into_iter();
    // Decay and learning rates are in the groups.
    let settings = settings.filter(|(key, _)| !matches!(key.as_str(), "weight_decay" | "no_decay" | "groups"));
    let is_largest = groups.iter().map(|group| group.lr).fold(0.0, f64::max) == lr;
    Optimizer {
        kind: tag.into(),
        momentum: None,
        nesterov: false,
        betas: None,
        eps: None,
        settings: settings.collect(),
        clip_grad_norm,
        clip,
        lr: (!is_largest).then_some(lr),
        groups,
    }
}

fn hash_vectors(name: &str) -> HashVectors {
    let hash = NameHash::new(name);
    HashVectors {
        fnv1a64: format!("{:016x}", fnv1a64(name.as_bytes())),
        h: (0..4).map(|i| format!("{:016x}", hash.h(i))).collect(),
        s_f32: (0..4).map(|i| f64::from(hash.s(i))).collect(),
    }
}

/// Parameters without an update.
fn untouched(graph: &Graph) -> Vec<String> {
    graph.parameters().filter(|(_, v)| v.next.is_none()).map(|(_, v)| v.name.clone()).collect()
}

/// The rule for initial values of a variable in a recorded golden; see `golden/README.md`. What an optimizer keeps
/// starts at zero without one.
fn start(variable: &Variable, shape: &[usize]) -> Option<Init> {
    let tenth = f64::from(0.1f32);
    Some(match variable.role {
        VariableRole::Weight => {
            let fan_in: usize = shape.iter().skip(1).product();
            Init::Uniform { bound: f64::from((6.0 / fan_in.max(1) as f64).sqrt() as f32) }
        }
        VariableRole::Bias | VariableRole::NormBias => Init::Uniform { bound: tenth },
        VariableRole::NormWeight => Init::OnePlus { bound: tenth, gain: 1.0 },
        VariableRole::RunningMean => Init::Const { value: 0.0 },
        VariableRole::RunningVar => Init::Const { value: 1.0 },
        VariableRole::Slot { .. } => {
            let zoo_graph::Init::Constant(value) = variable.init else { return None };
            return (value != 0.0).then_some(Init::Const { value: f64::from(value as f32) });
        }
        VariableRole::Average { .. } => return None,
    })
}

/// Steps per epoch in a recorded schedule: the recipe does not know the size of its data.
const STEPS_PER_EPOCH: usize = 100;

/// Learning rates at every tenth of an epoch.
fn schedule(recipe: &Recipe) -> ScheduleTable {
    let length = recipe.train.length(STEPS_PER_EPOCH);
    let steps = (0..length.steps()).step_by(STEPS_PER_EPOCH / 10);
    let lr = steps.map(|step| (step.to_string(), recipe.schedule.lr(step, length))).collect();
    ScheduleTable { steps_per_epoch: STEPS_PER_EPOCH, epochs: recipe.train.epochs, batch: recipe.train.batch, lr }
}
