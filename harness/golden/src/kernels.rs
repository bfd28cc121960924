//! Judges kernels node by node: the results of each node of a step in f32 are compared with the same operator in f64
//! on the same operands. So errors are neither inherited nor hidden by other nodes, and branches of ReLUs do not
//! matter.
//!
//! The bound of each element is the largest effect of rounding on it (see [`zoo_engine::bounds`]).

use crate::{GoldenError, bound::Bound, golden::Golden, options::CheckOptions, probe::Probe, report::Item};
use candle_core::Tensor;
use zoo_datasets::Rng;
use zoo_engine::{
    EngineError, Observer, Options, Scalars,
    bounds::{self, Farthest, Machine, Ran},
};
use zoo_graph::{Graph, Node, NodeId, Phase, ValueId};
use zoo_recipe::Recipe;

/// Judges every node of a step while it runs, and passes values to a probe.
pub(crate) struct Judge<'a> {
    graph: &'a Graph,
    machine: Machine,
    scalars: Scalars,
    probe: Probe,
    found: Vec<(NodeId, Farthest)>,
    failed: Option<EngineError>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(graph: &'a Graph, engine: Options, scalars: Scalars, probe: Probe) -> Self {
        Self { graph, machine: Machine::of(engine), scalars, probe, found: Vec::new(), failed: None }
    }

    /// The probe with its readings, and an item for every node, in execution order.
    ///
    /// # Errors
    /// A node that could not be recomputed.
    pub(crate) fn finish(self) -> Result<(Probe, Vec<(NodeId, Item)>), GoldenError> {
        let Self { graph, probe, found, failed, .. } = self;
        failed.map_or(Ok(()), Err)?;
        let items = found.into_iter().map(|(node, farthest)| (node, item(graph.node(node), farthest)));
        Ok((probe, items.collect()))
    }
}

/// The item of a node: its worst element, relative to the bound.
fn item(node: &Node, farthest: Farthest) -> Item {
    let Farthest { ratio, result, element, found, exact, bound } = farthest;
    let note = (ratio > 1.0).then(|| {
        let what = if node.outputs.len() > 1 {
            format!("element {element} of result {result}")
        } else {
            format!("element {element}")
        };
        format!("{what} is {found:.9e}, in f64 {exact:.9e} from the same operands: rounding explains {bound:.1e}")
    });
    Item { ratio, note, ..Item::measured(&node.name, (found - exact).abs(), bound) }
}

impl Observer for Judge<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.probe.wants(value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.probe.observe(value, tensor);
    }

    fn follows(&self, _node: NodeId) -> bool {
        self.failed.is_none()
    }

    fn follow(&mut self, id: NodeId, operands: &[Tensor], results: &[Tensor]) {
        let node = self.graph.node(id);
        let half = node.inputs.iter().any(|value| self.graph.value(*value).ty.dtype.is_half());
        let ran = Ran { node, operands, results, scalars: self.scalars, half };
        match bounds::judge(self.machine, &ran) {
            Ok(farthest) => self.found.push((id, farthest)),
            Err(error) => self.failed = Some(error),
        }
    }
}

/// A relative error planted in one tile of one result of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Planted {
    /// The node.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Part of the step.
    pub phase: Phase,
    /// Index of the result.
    pub result: usize,
    /// Error of the node's worst element without the planted error, relative to its bound.
    pub before: f64,
    /// The same with the planted error; found if above 1.
    pub after: f64,
}

/// Plants a relative error `by` in a tile of each result of every node of the golden's first step, and measures the
/// error of the node. `seed` determines the tiles. Tiles that contain only zeros are not used.
///
/// # Errors
/// As [`crate::check`].
pub fn sensitivity(
    recipe: &Recipe,
    golden: &Golden,
    options: &CheckOptions,
    by: f64,
    seed: u64,
) -> Result<Vec<Planted>, GoldenError> {
    let bound = Bound::new(recipe, golden, options.precision, options.engine)?;
    let mut step = bound.step()?;
    let graph = step.graph().clone();
    let judge = Judge::new(&graph, bound.engine, bound.scalars(0), Probe::default());
    let mut planter = Planter { judge, by, rng: Rng::new(seed, 0, 0), planted: Vec::new() };
    step.run(&bound.inputs()?, bound.scalars(0), &mut planter)?;
    let Planter { judge, planted, .. } = planter;
    judge.failed.map_or(Ok(()), Err)?;
    Ok(planted)
}

/// Judges every node twice: as it is, and with a planted error.
struct Planter<'a> {
    judge: Judge<'a>,
    by: f64,
    rng: Rng,
    planted: Vec<Planted>,
}

/// Elements of a tile: sixteen channels by fourteen pixels of a map, or the same number of adjacent elements.
const TILE: [usize; 2] = [16, 14];

/// Attempts to find a tile that is not zero.
const DRAWS: usize = 20;

impl Planter<'_> {
    /// A result with an error in one tile; `None` if no tile with a nonzero element was found.
    fn plant(&mut self, result: &Tensor) -> Result<Option<Tensor>, candle_core::Error> {
        let mut values: Vec<f32> = result.flatten_all()?.to_vec1()?;
        // Channels are a plane apart. A tensor that is not a map counts as one long row.
        let (channels, plane) = match *result.dims() {
            [n, c, h, w] => (n * c, h * w),
            _ => (1, values.len()),
        };
        for _ in 0..DRAWS {
            let mut draw = |below: usize| self.rng.below(below);
            let (channel, pixel) =
                (draw(channels.saturating_sub(TILE[0]) + 1), draw(plane.saturating_sub(TILE[1]) + 1));
            let tile: Vec<usize> = (channel..channels.min(channel + TILE[0]))
                .flat_map(|c| (pixel..plane.min(pixel + TILE[1])).map(move |p| c * plane + p))
                .collect();
            if tile.iter().any(|place| values[*place] != 0.0) {
                tile.iter().for_each(|place| values[*place] = (f64::from(values[*place]) * (1.0 + self.by)) as f32);
                return Ok(Some(Tensor::from_vec(values, result.dims(), result.device())?));
            }
        }
        Ok(None)
    }
}

impl Observer for Planter<'_> {
    fn wants(&self, _value: ValueId) -> bool {
        false
    }

    fn observe(&mut self, _value: ValueId, _tensor: &Tensor) {}

    fn follows(&self, node: NodeId) -> bool {
        self.judge.follows(node)
    }

    fn follow(&mut self, node: NodeId, operands: &[Tensor], results: &[Tensor]) {
        self.judge.follow(node, operands, results);
        let Some((_, Farthest { ratio: before, .. })) = self.judge.found.last().copied() else { return };
        for (n, result) in results.iter().enumerate() {
            let faulty = match self.plant(result) {
                Ok(Some(faulty)) => faulty,
                Ok(None) => continue,
                Err(error) => return self.judge.failed = Some(error.into()),
            };
            let mut results = results.to_vec();
            results[n] = faulty;
            self.judge.follow(node, operands, &results);
            let Some((_, Farthest { ratio: after, .. })) = self.judge.found.pop() else { return };
            let Node { name, op, phase, .. } = self.judge.graph.node(node);
            let (node, op, phase) = (name.clone(), op.name(), *phase);
            self.planted.push(Planted { node, op, phase, result: n, before, after });
        }
    }
}
