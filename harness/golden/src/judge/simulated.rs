//! Computes the step in the declared arithmetic of a recording. Its errors are those that this arithmetic explains.

use super::{judged::element_type, start::Start, targets::Targets};
use crate::{GoldenError, bound::Bound, device::scaled, probe::to_f64};
use candle_core::Tensor;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};
use zoo_engine::{
    Arithmetic, EngineError, Observer, Options, Step,
    simulate::{Overflow, Range, Subnormals},
};
use zoo_graph::{
    DType, Graph, Phase, ValueId,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};

/// The arithmetic of a recording.
#[derive(Clone, Copy, Debug)]
pub enum Declared<'a> {
    /// f32 everywhere.
    F32,
    /// A half-precision type for everything except losses, statistics and the update, like automatic mixed precision.
    Half {
        /// The type.
        dtype: DType,
        /// The loss scale of the simulated step: that of the recording.
        loss_scale: f64,
    },
    /// The arithmetic of a device.
    Device {
        /// Its name.
        name: &'a str,
        /// Its arithmetic.
        arithmetic: &'a Arithmetic,
        /// The loss scale of the simulated step.
        loss_scale: f64,
    },
}

impl Declared<'_> {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::F32 => "f32".to_owned(),
            Self::Half { dtype, .. } => dtype.to_string(),
            Self::Device { name, .. } => (*name).to_owned(),
        }
    }

    /// The same with the loss scale of a recording. That of a device is its own.
    pub(super) fn scaled_by(self, loss_scale: f64) -> Self {
        match self {
            Self::F32 | Self::Device { .. } => self,
            Self::Half { dtype, .. } => Self::Half { dtype, loss_scale },
        }
    }

    /// The relative error of a tensor whose elements were rounded once more than their operands.
    pub(super) fn one_rounding(&self) -> f64 {
        2.0 * element_type(self.narrowest()).unit_roundoff()
    }

    /// Its narrowest type.
    pub(super) fn narrowest(&self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Half { dtype, .. } => *dtype,
            Self::Device { arithmetic, .. } => arithmetic.policy.reduced,
        }
    }

    /// The loss scale of the simulated step.
    pub(super) fn loss_scale(&self) -> f64 {
        match self {
            Self::F32 => 1.0,
            Self::Half { loss_scale, .. } | Self::Device { loss_scale, .. } => *loss_scale,
        }
    }

    /// The arithmetic for a step of this graph; `None` for f32.
    fn arithmetic(&self, graph: &Graph) -> Option<Arithmetic> {
        match self {
            Self::F32 => None,
            Self::Half { dtype, loss_scale } => {
                let scales_loss = (*loss_scale != 1.0).then(ScaleLoss::default);
                Some(Arithmetic { scales_loss, ..mixed(graph, *dtype) })
            }
            Self::Device { arithmetic, .. } => Some(Arithmetic { skips_overflow: false, ..(*arithmetic).clone() }),
        }
    }
}

/// Automatic mixed precision: everything that belongs to the loss stays f32.
fn mixed(graph: &Graph, reduced: DType) -> Arithmetic {
    let losses = graph.nodes.iter().filter(|node| node.phase == Phase::Loss);
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Reduced,
            reduced,
            white: BTreeSet::new(),
            black: BTreeSet::new(),
            reduced_only: BTreeSet::new(),
            keep: losses.map(|node| node.name.clone()).collect(),
        },
        range: Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep },
        scales_loss: None,
        skips_overflow: false,
        planted: BTreeMap::new(),
    }
}

/// Values of the quantities at these places in a step with the declared arithmetic, by place.
///
/// # Errors
/// A step that cannot be built or run.
pub(super) fn simulate(
    bound: &Bound,
    start: &Start,
    declared: &Declared<'_>,
    engine: Options,
    targets: &Targets,
    places: &[usize],
) -> Result<HashMap<usize, Arc<[f32]>>, GoldenError> {
    let bound = bound.in_f32(engine)?;
    let (graph, engine) = (bound.graph.clone(), engine.without_fusion());
    let loss_scale = declared.loss_scale();
    let mut step = match declared.arithmetic(&graph) {
        Some(arithmetic) => Step::simulated(graph, engine, &arithmetic)?,
        None => Step::new(graph, engine)?,
    };
    start.set(&mut step, &bound.golden)?;
    let own = Targets::of(step.graph(), &bound.recipe);
    let scaled = scaled(step.graph());
    let mut wanted: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for place in places {
        if let Some(found) = own.find(&targets.list[*place].quantity) {
            wanted.entry(own.list[found].value).or_default().push(*place);
        }
    }
    let mut seen = Seen { wanted, scaled, loss_scale, values: HashMap::new(), failed: None };
    step.run(&bound.inputs()?, start.scalars(loss_scale), &mut seen)?;
    seen.failed.map_or(Ok(seen.values), |error| Err(EngineError::from(error).into()))
}

/// Stores the wanted values of a step.
struct Seen {
    wanted: HashMap<ValueId, Vec<usize>>,
    /// Whether each value is multiplied by the loss scale.
    scaled: Vec<bool>,
    loss_scale: f64,
    values: HashMap<usize, Arc<[f32]>>,
    failed: Option<candle_core::Error>,
}

impl Observer for Seen {
    fn wants(&self, value: ValueId) -> bool {
        self.wanted.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let by = if self.scaled[value.0] { self.loss_scale } else { 1.0 };
        match to_f64(tensor) {
            Ok(values) => {
                let values: Arc<[f32]> = values.into_iter().map(|x| (x / by) as f32).collect();
                for place in self.wanted.get(&value).into_iter().flatten() {
                    self.values.insert(*place, Arc::clone(&values));
                }
            }
            Err(error) => self.failed = Some(error),
        }
    }
}
