//! The truth of the branch that a run in f32 took.
//!
//! A ReLU passes a gradient or does not, and where its input is zero but for rounding, that is chance: the reference's own
//! f32 run may take one side, an equally good one the other, and gradients then differ by far more than any rounding of
//! arithmetic. The floors of a golden come from one or two such runs and cannot know.
//!
//! So a step in f32 whose outputs and losses pass, and whose gradients or updates do not, is judged once more: against the
//! engine's own f64 step, in which every ReLU decides as it did in f32. This counts only if
//! - the f64 steps themselves pass the golden, the later ones too if they are judged, so that they may stand for the truth,
//! - the two do decide differently somewhere, and each input on which they do is zero but for rounding: no larger than
//!   [`NEAR_ZERO`] of the largest output of its ReLU.
//!
//! The floors and limits stay what they are, and errors are taken over whole tensors.

use crate::{
    GoldenError,
    check::CheckOptions,
    compare::{LOSS_FLOOR, Precision, TENSOR_FLOOR},
    manifest::Golden,
    probe::to_f64,
    report::Item,
    run::{self, Run, Setup},
    weights,
};
use candle_core::{DType, Tensor};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use zoo_engine::{Elements, EngineError, Inputs, Observer, Step, StepMemory, StepResult};
use zoo_graph::{Bytes, Graph, Op, Source, ValueId, VariableRole};
use zoo_recipe::Recipe;

/// Largest input of a ReLU that counts as zero but for rounding, relative to its largest output: what a hundred layers
/// of f32 arithmetic may be off.
const NEAR_ZERO: f64 = 3e-5;

/// What the second judgement rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Branch {
    /// Inputs of ReLUs on which f32 and f64 decide differently, over all steps.
    pub decisions: usize,
    /// The largest of them, relative to the largest output of its ReLU.
    pub largest: f64,
}

impl Branch {
    /// Adds the outputs of a ReLU that are above zero on one side only.
    fn add(&mut self, rounded: &Tensor, exact: &Tensor) -> Result<(), candle_core::Error> {
        let (rounded, exact) = (Elements::of(rounded)?, Elements::of(exact)?);
        let (rounded, exact) = (rounded.slice::<f64>()?, exact.slice::<f64>()?);
        let largest = exact.iter().fold(0.0f64, |largest, x| largest.max(*x)).max(f64::MIN_POSITIVE);
        for (a, b) in rounded.iter().zip(exact).filter(|(a, b)| (**a > 0.0) != (**b > 0.0)) {
            self.decisions += 1;
            self.largest = self.largest.max((a - b).abs() / largest);
        }
        Ok(())
    }
}

/// Judges gradients and updates of an f32 run once more; `None` where that is not called for or not allowed.
///
/// # Errors
/// As a run; [`GoldenError::NoRoom`] where this would take more memory than there may be.
pub(crate) fn judge(
    recipe: &Recipe,
    golden: &Golden,
    options: &CheckOptions,
    setup: &Setup,
    run: &mut Run<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<Branch>, GoldenError> {
    let limit = options.precision.limit();
    let fails = |items: &[Item]| items.iter().any(|i| i.ratio.is_nan() || i.ratio > limit);
    let off = fails(&run.backward) || fails(&run.update) || fails(&run.trajectory);
    let sound = !fails(&run.forward) && !fails(&run.loss);
    if options.precision != Precision::F32 || !off || !sound {
        return Ok(None);
    }
    let exact = CheckOptions { precision: Precision::F64, ..options.clone() };
    let truth = Setup::new(recipe, golden, &exact)?;
    let needed = memory([(setup, options), (&truth, &exact)])?;
    if options.room.is_some_and(|room| needed > room) {
        return Err(GoldenError::NoRoom { needed });
    }
    progress("f64 step");
    let mut proof = Run::new(&truth, golden, &exact)?;
    proof.first_step(&mut |_| {})?;
    // Later steps that pass as they are need no second judgement.
    let steps = if fails(&run.trajectory) { golden.manifest.losses_f64.len() } else { 1 };
    if steps > 1 {
        proof.later_steps(&mut |_| {})?;
    }
    let proven = |items: &[Item]| items.iter().all(|i| i.ratio <= exact.precision.limit());
    if ![&proof.forward, &proof.loss, &proof.backward, &proof.update, &proof.trajectory].into_iter().all(|i| proven(i))
    {
        return Ok(None);
    }
    drop(proof);
    let mut pair = Pair::new(&truth, &mut run.step, golden, &exact)?;
    let (mut backward, mut update, mut trajectory) = (run.backward.clone(), run.update.clone(), run.trajectory.clone());
    for n in 0..steps {
        progress(&format!("step {} on the branch that f32 took", n + 1));
        let (rounded, exact) = pair.step(n)?;
        if n == 0 {
            update = pair.losses(&rounded, &exact, n, update);
            backward = pair.gradients(backward);
            update = pair.changes(1, update)?;
        } else {
            trajectory = pair.losses(&rounded, &exact, n, trajectory);
        }
    }
    if steps > 1 {
        trajectory = pair.changes(steps, trajectory)?;
    }
    let branch = pair.branch;
    let by_chance = branch.decisions > 0 && branch.largest <= NEAR_ZERO;
    if by_chance {
        (run.backward, run.update, run.trajectory) = (backward, update, trajectory);
    }
    Ok(by_chance.then_some(branch))
}

/// What the judgement takes at its peak, on top of what the process has before the check: the step in f32, which is there
/// already, the one in f64 with the decisions that it takes, both steps' gradients, and the decisions on their way.
fn memory([rounded, exact]: [(&Setup, &CheckOptions); 2]) -> Result<Bytes, GoldenError> {
    let gradients = |(setup, _): (&Setup, _)| {
        let graph = setup.graph();
        graph.gradients.iter().map(|(_, value)| graph.ty(*value).bytes()).sum::<Bytes>()
    };
    let gradients = gradients(rounded) + gradients(exact);
    let mut following = exact.0.graph().clone();
    let decisions = follow(&mut following);
    let largest = decisions.iter().map(|(value, _)| following.ty(*value).bytes()).max().unwrap_or_default();
    let rounded = StepMemory::of(rounded.0.graph().clone(), rounded.1.engine(), None)?;
    let exact = StepMemory::of(following, exact.1.engine(), None)?;
    Ok(rounded.peak() + rounded.inputs + exact.peak() + gradients + largest)
}

/// A step in f32 and one in f64 that takes the same decisions.
struct Pair<'a> {
    golden: &'a Golden,
    rounded: &'a mut Step,
    exact: Step,
    inputs: [Inputs; 2],
    /// Outputs of ReLUs whose sign decides, with the inputs of the exact step that stand for them.
    decisions: Vec<(ValueId, String)>,
    /// Gradient of each parameter, in both.
    gradients: HashMap<String, [ValueId; 2]>,
    /// Gradients that were seen of the last first step.
    seen: [HashMap<ValueId, Tensor>; 2],
    branch: Branch,
}

impl<'a> Pair<'a> {
    /// `rounded` is a step in f32, whatever it has done so far; `truth` and `options` are those of the f64 step.
    fn new(
        truth: &Setup,
        rounded: &'a mut Step,
        golden: &'a Golden,
        options: &CheckOptions,
    ) -> Result<Self, GoldenError> {
        let inputs = [run::inputs(golden, rounded.graph())?, run::inputs(golden, truth.graph())?];
        let mut graph = truth.graph().clone();
        let decisions = follow(&mut graph);
        let mut exact = Step::new(graph, options.engine())?;
        run::set_weights(rounded, golden, false)?;
        run::set_weights(&mut exact, golden, false)?;
        let name = |graph: &Graph, id| graph.variable(id).name.clone();
        let theirs: HashMap<String, ValueId> =
            exact.graph().gradients.iter().map(|(id, v)| (name(exact.graph(), *id), *v)).collect();
        let gradients = rounded.graph().gradients.iter().filter_map(|(id, v)| {
            let name = name(rounded.graph(), *id);
            let theirs = *theirs.get(&name)?;
            Some((name, [*v, theirs]))
        });
        let gradients = gradients.collect();
        let seen = [HashMap::new(), HashMap::new()];
        Ok(Self { golden, rounded, exact, inputs, decisions, gradients, seen, branch: Branch::default() })
    }

    /// Runs both, the one in f32 first.
    fn step(&mut self, n: usize) -> Result<(StepResult, StepResult), GoldenError> {
        let scalars = run::scalars(self.golden, n as u64);
        let gradients = |side: usize| Watch::of(self.gradients.values().map(|pair| pair[side]).filter(|_| n == 0));
        let mut ours =
            Deciding { decisions: Watch::of(self.decisions.iter().map(|(v, _)| *v)), gradients: gradients(0) };
        let rounded = self.rounded.run(&self.inputs[0], scalars, &mut ours)?;
        let decided = &ours.decisions.seen;
        let mut inputs = self.inputs[1].clone();
        for (value, input) in &self.decisions {
            inputs = inputs.with(input, decided.get(value).ok_or_else(|| unseen(input))?.clone());
        }
        let mut theirs = Following { decided, compared: 0, branch: self.branch, gradients: gradients(1) };
        let exact = self.exact.run(&inputs, scalars, &mut theirs)?;
        if theirs.compared != decided.len() {
            return Err(unseen("some decisions"));
        }
        self.branch = theirs.branch;
        if n == 0 {
            self.seen = [ours.gradients.seen, theirs.gradients.seen];
        }
        Ok((rounded, exact))
    }

    fn losses(&self, rounded: &StepResult, exact: &StepResult, n: usize, items: Vec<Item>) -> Vec<Item> {
        let manifest = &self.golden.manifest;
        let values = |result: &StepResult, name: &str| {
            result.losses.iter().chain(&result.metrics).find(|(n, _)| n == name).map(|(_, value)| *value)
        };
        let again = |item: Item| {
            let suffix = format!(" of step {}", n + 1);
            let name = if n == 0 { Some(item.name.as_str()) } else { item.name.strip_suffix(suffix.as_str()) };
            let judged = name.and_then(|name| {
                let (ours, truth) = (values(rounded, name)?, values(exact, name)?);
                let (known, floor) = (manifest.losses_f64[n].get(name)?, manifest.losses_f32[n].get(name)?);
                let scale = if *known == 0.0 { 1.0 } else { known.abs() };
                let floor = Precision::F32.floor((floor - known).abs() / scale, LOSS_FLOOR);
                Some(Item { counts: item.counts, ..Item::measured(&item.name, (ours - truth).abs() / scale, floor) })
            });
            judged.unwrap_or(item)
        };
        items.into_iter().map(again).collect()
    }

    fn gradients(&self, items: Vec<Item>) -> Vec<Item> {
        let again = |item: Item| {
            let judged = self.gradients.get(&item.name).filter(|_| item.counts).and_then(|pair| {
                let facts = self.golden.manifest.tensors.get(&format!("grad/{}", item.name))?;
                let [ours, truth] = [0, 1].map(|side| self.seen[side].get(&pair[side]).and_then(|t| to_f64(t).ok()));
                Some(measured(&item, &ours?, &truth?, facts.f32_rel))
            });
            judged.unwrap_or(item)
        };
        items.into_iter().map(again).collect()
    }

    /// Parameters by their changes, everything else as it is, after so many steps.
    fn changes(&self, steps: usize, items: Vec<Item>) -> Result<Vec<Item>, GoldenError> {
        let manifest = &self.golden.manifest;
        let graph = self.rounded.graph();
        let mut judged = Vec::with_capacity(items.len());
        for item in items {
            let known =
                graph.find_variable(&item.name).filter(|_| item.counts).map(|id| graph.variable(id).role.clone());
            let Some(role) = known else {
                judged.push(item);
                continue;
            };
            let key = match role {
                VariableRole::Slot { parameter, .. } => format!("momentum{steps}/{}", graph.variable(parameter).name),
                role if role.is_statistic() => format!("buffer{steps}/{}", item.name),
                _ => format!("param{steps}/{}", item.name),
            };
            let Some(facts) = manifest.tensors.get(&key) else {
                judged.push(item);
                continue;
            };
            let values =
                |step: &Step| Ok::<_, GoldenError>(to_f64(&step.variable(&item.name)?).map_err(EngineError::from)?);
            let (mut ours, mut truth) = (values(self.rounded)?, values(&self.exact)?);
            let floor = match (facts.delta_f32_rel, manifest.init.get(&item.name)) {
                (Some(floor), Some(rule)) => {
                    let start = weights::initial(rule, &manifest.salt, &item.name, ours.len());
                    for values in [&mut ours, &mut truth] {
                        values.iter_mut().zip(&start).for_each(|(value, start)| *value -= f64::from(*start));
                    }
                    floor
                }
                _ => facts.f32_rel,
            };
            judged.push(measured(&item, &ours, &truth, floor));
        }
        Ok(judged)
    }
}

/// Relative error over a whole tensor.
fn measured(item: &Item, ours: &[f64], truth: &[f64], floor: f64) -> Item {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let (distance, size) = (norm(&mut ours.iter().zip(truth).map(|(a, b)| a - b)), norm(&mut truth.iter().copied()));
    let error = match distance {
        _ if ours.len() != truth.len() => f64::INFINITY,
        0.0 => 0.0,
        _ if size > 0.0 => distance / size,
        _ => f64::INFINITY,
    };
    Item::measured(&item.name, error, Precision::F32.floor(floor, TENSOR_FLOOR))
}

fn unseen(input: &str) -> GoldenError {
    GoldenError::Engine(candle_core::Error::Msg(format!("nothing was seen of {input}")).into())
}

/// Lets the gradient of every ReLU ask a new input of the step, and not the ReLU's own output. Returns those outputs, with
/// the names of the inputs that stand for them.
fn follow(graph: &mut Graph) -> Vec<(ValueId, String)> {
    let mut decisions: Vec<(ValueId, String)> = Vec::new();
    for n in 0..graph.nodes.len() {
        let decides = match &graph.nodes[n].op {
            Op::ReluGrad(_) => graph.nodes[n].inputs[1],
            _ => continue,
        };
        let of_relu =
            matches!(graph.value(decides).source, Source::Node(node, 0) if matches!(graph.node(node).op, Op::Relu(_)));
        if !of_relu {
            continue;
        }
        let name = format!("decision/{}", decides.0);
        let known = graph.inputs.iter().find(|input| input.name == name).map(|input| input.value);
        let input = known.unwrap_or_else(|| {
            let ty = graph.ty(decides).clone();
            decisions.push((decides, name.clone()));
            graph.add_input(name, ty)
        });
        graph.nodes[n].inputs[1] = input;
    }
    decisions
}

/// Keeps chosen values of a step.
struct Watch {
    wanted: HashSet<ValueId>,
    seen: HashMap<ValueId, Tensor>,
}

impl Watch {
    fn of(values: impl Iterator<Item = ValueId>) -> Self {
        Self { wanted: values.collect(), seen: HashMap::new() }
    }

    fn keep(&mut self, value: ValueId, tensor: &Tensor) {
        if self.wanted.contains(&value) {
            self.seen.insert(value, tensor.clone());
        }
    }
}

/// The step in f32: keeps gradients, and what its ReLUs gave in f64, as the other step takes it.
struct Deciding {
    decisions: Watch,
    gradients: Watch,
}

impl Observer for Deciding {
    fn wants(&self, value: ValueId) -> bool {
        self.decisions.wanted.contains(&value) || self.gradients.wanted.contains(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.gradients.keep(value, tensor);
        // What cannot be converted is missed where it is asked for.
        if let (true, Ok(exact)) = (self.decisions.wanted.contains(&value), tensor.to_dtype(DType::F64)) {
            self.decisions.seen.insert(value, exact);
        }
    }
}

/// The step in f64: keeps gradients, and compares what its ReLUs give with what they gave in f32.
struct Following<'a> {
    decided: &'a HashMap<ValueId, Tensor>,
    /// How many of them were compared.
    compared: usize,
    branch: Branch,
    gradients: Watch,
}

impl Observer for Following<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.decided.contains_key(&value) || self.gradients.wanted.contains(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.gradients.keep(value, tensor);
        if let Some(decided) = self.decided.get(&value) {
            self.compared += 1;
            // What cannot be compared is no rounding.
            self.branch.add(decided, tensor).unwrap_or_else(|_| self.branch.largest = f64::INFINITY);
        }
    }
}
