//! `Map`: a formula applied to tensors.

use super::{OpError, Operand, OperandLayout, Operator, Rounding, Work};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    formula::{Extent, Formula, Given, Outcome, Term},
    ops::Reshape,
    parallel::{self, Call, Need, Part, Slot, Way},
    tensor::{DType, Layout, Shape, TensorType},
    units::Flop,
};

/// Device operators of formulas; the first entry is for formulas without a name.
pub(super) const NAMES: [&str; 51] = [
    "Formula",
    "Addcmul",
    "AddcmulGrad",
    "DiceLoss",
    "DiceLossGrad",
    "Elu",
    "EluGrad",
    "GeGluGradV2",
    "GeGluV2",
    "Gelu",
    "GeluGrad",
    "GroupNorm",
    "GroupNormGrad",
    "HardSigmoid",
    "HardSigmoidGrad",
    "HardSwish",
    "HardSwishGrad",
    "InstanceNorm",
    "InstanceNormGrad",
    "LayerNorm",
    "LayerNormGrad",
    "LeakyRelu",
    "LeakyReluGrad",
    "LogSoftmaxGrad",
    "LogSoftmaxV2",
    "LossFormula",
    "LossFormulaGrad",
    "MaskedL1Loss",
    "MaskedL1LossGrad",
    "Mish",
    "MishGrad",
    "Mul",
    "MulGrad",
    "RmsNorm",
    "RmsNormGrad",
    "RotaryMul",
    "RotaryMulGrad",
    "SelectCrossEntropy",
    "SelectCrossEntropyGrad",
    "Sigmoid",
    "SigmoidGrad",
    "SoftmaxGrad",
    "SoftmaxV2",
    "SwiGlu",
    "SwiGluGrad",
    "Swish",
    "SwishGrad",
    "Tanh",
    "TanhGrad",
    "WeightedL1Loss",
    "WeightedL1LossGrad",
];

/// The device operators for a formula and its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// The formula.
    pub formula: &'static str,
    /// Its gradient.
    pub gradient: &'static str,
}

impl DeviceName {
    /// Both names.
    pub const fn new(formula: &'static str, gradient: &'static str) -> Self {
        Self { formula, gradient }
    }
}

/// Operands: tensors that broadcast to `space`, as in NumPy: axes are counted from the last one, and an axis with one
/// element is repeated. Class indices are read as numbers. Results: one per result of the formula, with the type of
/// the floating-point operands. A result has the shape of `space`, with one element along the axes over which it is
/// summed, and along the axes of a row if all elements of the row are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The formula.
    pub formula: Formula,
    /// The elements for which the formula is computed.
    pub space: Shape,
    /// The device operator. Without one, the formula runs as the vector instructions of its terms.
    pub device: Option<&'static str>,
    /// The device operator of its gradient.
    pub device_gradient: Option<&'static str>,
    /// Pairs (operand, result) that may share memory.
    in_place: Vec<(usize, usize)>,
}

impl Map {
    /// A formula over the common shape of its operands.
    ///
    /// # Errors
    /// The shapes do not broadcast.
    pub fn over(formula: Formula, operands: &[&TensorType]) -> Result<Self, OpError> {
        let mut space: Vec<usize> = Vec::new();
        for ty in operands {
            let missing = ty.shape.len().saturating_sub(space.len());
            space.splice(0..0, std::iter::repeat_n(1, missing));
            let first = space.len() - ty.shape.len();
            for (axis, extent) in space[first..].iter_mut().zip(ty.shape.iter()) {
                if *axis == 1 {
                    *axis = *extent;
                }
            }
        }
        let map = Self::with_space(formula, space.into());
        map.check(operands)?;
        Ok(map)
    }

    /// A formula over `space`.
    pub fn with_space(formula: Formula, space: Shape) -> Self {
        // A result with one number per row is written after the row, so it must not overwrite an operand with its
        // shape.
        let extents = formula.extents();
        let elements = |r: &usize| {
            let result = &formula.results()[*r];
            result.over.is_empty() && (result.whole || extents[result.term.0] != Extent::Row)
        };
        let results: Vec<usize> = (0..formula.results().len()).filter(elements).collect();
        let pairs = |operand| results.iter().map(move |result| (operand, *result));
        let in_place = (0..formula.operands()).flat_map(pairs).collect();
        Self { formula, space, device: None, device_gradient: None, in_place }
    }

    /// The formula with the names of device operators.
    #[must_use]
    pub fn named(self, name: DeviceName) -> Self {
        Self { device: Some(name.formula), device_gradient: Some(name.gradient), ..self }
    }

    /// Another formula over the same elements, with the same names.
    pub(crate) fn with_formula(self, formula: Formula) -> Self {
        let (device, device_gradient) = (self.device, self.device_gradient);
        Self { device, device_gradient, ..Self::with_space(formula, self.space) }
    }

    /// Shape of the `r`-th result.
    fn result_shape(&self, outcome: &Outcome, extent: Extent) -> Shape {
        let mut shape = self.space.to_vec();
        let row = shape.len().saturating_sub(self.formula.rows());
        if extent == Extent::Row && !outcome.whole {
            shape[row..].fill(1);
        }
        for axis in &outcome.over {
            shape[*axis] = 1;
        }
        shape.into()
    }

    fn check(&self, inputs: &[&TensorType]) -> Result<(), OpError> {
        if inputs.len() != self.formula.operands() {
            return Err(OpError::Arity { expected: "as many operands as its formula", found: inputs.len() });
        }
        let rank = self.space.len();
        let axes = self.formula.results().iter().flat_map(|result| result.over.iter().copied());
        let axes = axes.chain(self.formula.coordinates());
        if self.formula.rows() > rank || axes.max().is_some_and(|axis| axis >= rank) {
            return Err(OpError::Attribute(format!("a formula over more axes than {} has", self.space)));
        }
        if self.formula.terms().iter().any(|term| matches!(term, Term::Step(_))) {
            return Err(OpError::Attribute("learning rate, decay and step number can only be used in updates".into()));
        }
        for ty in inputs {
            let fits = ty.shape.len() <= rank
                && ty.shape.iter().rev().zip(self.space.iter().rev()).all(|(own, whole)| own == whole || *own == 1);
            if !fits {
                let expected = format!("{}, or 1 along an axis", self.space);
                return Err(OpError::Shape { operand: "an operand", expected, found: ty.shape.clone() });
            }
        }
        Ok(())
    }

    /// Extent of an operand of this shape along an axis of the space.
    pub fn extent_along(&self, shape: &Shape, axis: usize) -> usize {
        (axis + shape.len()).checked_sub(self.space.len()).map_or(1, |own| shape[own])
    }

    /// Layouts in which it reads operands with these types. Feature maps are in blocks if one of them is and all
    /// others can be; everything else is row-major.
    pub fn layouts(&self, inputs: &[&TensorType]) -> Vec<Layout> {
        let blocked = inputs.iter().any(|ty| ty.layout == Layout::Nc1hwc0) && self.suits_blocks(inputs);
        let layout = |ty: &&TensorType| if blocked && self.is_map(ty) { Layout::Nc1hwc0 } else { Layout::Plain };
        inputs.iter().map(layout).collect()
    }

    /// Whether an operand is a feature map with all channels of the space.
    fn is_map(&self, ty: &TensorType) -> bool {
        ty.dtype.is_float() && ty.shape.len() == 4 && ty.shape[1] == self.space[1]
    }

    /// Whether it can compute in blocks of channels: every operand is a feature map or equal for all channels, and
    /// nothing depends on the index of a channel, or on all channels together.
    fn suits_blocks(&self, inputs: &[&TensorType]) -> bool {
        self.space.len() == 4
            && self.formula.rows() == 0
            && self.formula.coordinates().all(|axis| axis != 1)
            && !self.formula.results().iter().any(|result| result.over.contains(&1))
            && inputs.iter().all(|ty| self.is_map(ty) || self.extent_along(&ty.shape, 1) == 1)
    }

    /// The layout of the results, given those of the operands.
    fn result_layout(&self, inputs: &[&TensorType]) -> Result<Layout, OpError> {
        if !self.layouts(inputs).iter().eq(inputs.iter().map(|ty| &ty.layout)) {
            return Err(OpError::Attribute(format!(
                "a formula over {} reads its operands in other layouts",
                self.space
            )));
        }
        let blocked = inputs.iter().any(|ty| ty.layout == Layout::Nc1hwc0);
        Ok(if blocked { Layout::Nc1hwc0 } else { Layout::Plain })
    }
}

impl Operator for Map {
    fn name(&self) -> Option<&'static str> {
        self.device
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        self.check(inputs)?;
        let mut floats = inputs.iter().map(|ty| ty.dtype).filter(|dtype| dtype.is_float());
        let dtype = floats.next().unwrap_or(DType::F32);
        if let Some(found) = floats.find(|other| *other != dtype) {
            return Err(OpError::DType { operand: "an operand", expected: "the type of the others", found });
        }
        let extents = self.formula.extents();
        let layout = self.result_layout(inputs)?;
        let ty = |result: &Outcome| {
            TensorType::plain(self.result_shape(result, extents[result.term.0]), dtype).with_layout(layout)
        };
        Ok(self.formula.results().iter().map(ty).collect())
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(self.formula.operations() * self.space.numel() as u64)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::in_layout(OperandLayout::Any)
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        let width = inputs.iter().chain(outputs).map(|ty| ty.dtype.bytes().0).max().unwrap_or(0);
        let elements = self.space.numel() as u64;
        Work::Stream { elements, instructions: self.formula.operations().max(1), width }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Formula(self)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        self.formula.coordinates().any(|axis| axis == 0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let results = self.formula.results().len();
        let given: Vec<usize> = (0..results).filter(|n| grad.result_grad(*n).is_some()).collect();
        let wanted: Vec<usize> = (0..grad.operands()).filter(|n| grad.wants(*n)).collect();
        let mut gradient = self.formula.gradient(&given, &wanted);
        let operands = gradient.operands.iter().map(|given| match given {
            Given::Operand(n) => Some(grad.operand(*n)),
            Given::Result(n) => Some(grad.result(*n)),
            Given::ResultGradient(n) => grad.result_grad(*n),
        });
        let Some(operands) = operands.collect::<Option<Vec<_>>>() else { return Ok(()) };
        if gradient.of.is_empty() {
            return Ok(());
        }
        let shapes: Vec<Shape> = gradient.of.iter().map(|n| grad.ty(grad.operand(*n)).shape.clone()).collect();
        let over = shapes.iter().map(|shape| {
            let broadcast = |axis: &usize| self.space[*axis] != 1 && self.extent_along(shape, *axis) == 1;
            (0..self.space.len()).filter(broadcast).collect()
        });
        gradient.formula.sum_results(over);
        let map = Self { device: self.device_gradient, ..Self::with_space(gradient.formula, self.space.clone()) };
        let found = grad.emit_all("grad", map, &operands)?;
        for ((n, shape), mut value) in gradient.of.iter().zip(shapes).zip(found) {
            if grad.ty(value).shape != shape {
                value = grad.emit("grad_shape", Reshape { shape }, &[value])?;
            }
            grad.set(*n, value);
        }
        Ok(())
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let rank = self.space.len();
        let shape = call.shape(known);
        let axis = part.axis + rank - shape.len();
        let row = axis + self.formula.rows() >= rank;
        if row || shape[part.axis] == 1 || self.formula.coordinates().any(|read| read == axis) {
            return None;
        }
        let need = |ty: &&TensorType| match self.extent_along(&ty.shape, axis) {
            1 => Need::Whole,
            _ => Need::Part(part.along(axis + ty.shape.len() - rank)),
        };
        let outcome = |result: &Outcome| match result.over.contains(&axis) {
            true => parallel::Outcome::Partial,
            false => parallel::Outcome::Part(part.along(axis)),
        };
        let op = Self { space: part.along(axis).local(&self.space, call.ranks), ..self.clone() };
        let results = self.formula.results().iter().map(outcome).collect();
        Some(Way { op: op.into(), operands: call.inputs.iter().map(need).collect(), results })
    }
}
