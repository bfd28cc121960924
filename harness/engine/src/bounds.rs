//! Bounds on the rounding errors of an operator in f32, relative to the same operator in f64 on the same operands.
//!
//! [`judge`] recomputes a node in f64 and, in the same pass, computes a bound for every element of its results. Let
//! `u` be the unit roundoff of f32, 2^-24:
//!
//! - **Sums of products** (convolutions, matrix products, `product`): every partial sum `s_k` that the kernel rounds
//!   adds an error of at most `u |s_k|`. If these errors are independent with mean zero, as the model of
//!   probabilistic rounding error analysis assumes, the total error is at most `lambda u sqrt(sum of s_k^2)` with
//!   probability `1 - 2 exp(-lambda^2 / 2)`. This is the Azuma-Hoeffding inequality, used as in Higham and Mary, "A
//!   New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41 (2019). The partial sums are
//!   computed in the order of the kernel, so the bound is as sharp as the kernel is accurate. Rounding errors of
//!   similar terms are not independent: an element that exceeds its bound is summed again in f32, and the drift of
//!   this sum is added to the bound.
//! - **Everything else** has few roundings between an operand and a result. Each error is at most `u` times the
//!   rounded number, and running error analysis (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd
//!   edition, sections 3.3 and 4.2) adds up their effects. Sums that kernels compute in f64 add `WIDE` times the sum
//!   of the magnitudes, or the size of a random walk in f64.
//!
//! No bound was fitted to the errors of kernels.

mod conv;
mod feature_map;
mod formula;
mod magnitudes;
mod norm;
mod product;
mod winograd;

use crate::{EngineError, KernelError, Kernels, Options, Scalars, elements::Elements, reference};
use candle_core::Tensor;
use rayon::prelude::*;
use zoo_graph::{
    Node, TensorType,
    ops::{Normalisation, Product, Rounding, Summed},
};
use zoo_kernels::{Isa, Level, Loops};

/// Unit roundoff of f32.
pub(crate) const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Limit of a sum's error in standard deviations. The probability of a larger error is 2 exp(-50), 4e-22, per
/// element.
pub(crate) const LAMBDA: f64 = 10.0;

/// Error of a sum in f64, relative to the sum of the magnitudes: thousands of roundings of 2^-53, more than the error
/// of any sum here, with up to a million terms (Higham and Mary: `lambda sqrt(n)` roundings).
pub(crate) const WIDE: f64 = 1.0 / (1u64 << 40) as f64;

/// Error of a subnormal number.
const TINY: f64 = f32::MIN_POSITIVE as f64;

/// A node that has run, with its operands and results.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its operands: row-major tensors in f32, class indices in u32.
    pub operands: &'a [Tensor],
    /// Its results, row-major in f32.
    pub results: &'a [Tensor],
    /// The scalars of the step.
    pub scalars: Scalars,
    /// Whether operands have a half-precision type of a simulated device.
    pub half: bool,
}

/// The kernels that are judged, and the instructions that are used to judge them.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    isa: Isa,
    /// The instructions of the fast kernels, if these are judged.
    fast: Option<Isa>,
    /// Whether the kernels round a product and its sum together, and not separately.
    fused: bool,
}

impl Machine {
    /// For a step with these options.
    pub fn of(options: Options) -> Self {
        let fast = match options.kernels {
            Kernels::Fast { .. } => Some(options.isa()),
            Kernels::Reference => None,
        };
        // candle's products use the instructions of the processor.
        let fused = fast.is_some_and(|isa| isa.level() != Level::Portable);
        Self { isa: Isa::best(), fast, fused }
    }
}

/// The worst element of a node's results: the one with the largest error relative to its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Farthest {
    /// Error divided by bound; infinite for NaN.
    pub ratio: f64,
    /// Index of the result.
    pub result: usize,
    /// Row-major index of the element.
    pub element: usize,
    /// The result of the kernel.
    pub found: f64,
    /// The result of the operator in f64.
    pub exact: f64,
    /// The largest error that rounding explains.
    pub bound: f64,
}

impl Farthest {
    /// No error.
    const NONE: Self = Self { ratio: 0.0, result: 0, element: 0, found: 0.0, exact: 0.0, bound: 0.0 };

    /// From one element.
    fn of(result: usize, element: usize, found: f32, exact: f64, bound: f64) -> Self {
        let (found, bound) = (f64::from(found), bound + TINY);
        let ratio = match (found - exact).abs() / bound {
            _ if found == exact || (found.is_nan() && exact.is_nan()) => 0.0,
            // Infinity is the nearest value to numbers beyond the largest one of f32.
            _ if found.is_infinite()
                && found.signum() == exact.signum()
                && exact.abs() + bound > f64::from(f32::MAX) =>
            {
                0.0
            }
            ratio if ratio.is_nan() => f64::INFINITY,
            ratio => ratio,
        };
        Self { ratio, result, element, found, exact, bound }
    }

    /// The worse of this element and another one. Most elements are better, which is checked first.
    fn or_of(self, result: usize, element: usize, found: f32, exact: f64, bound: f64) -> Self {
        if (f64::from(found) - exact).abs() <= self.ratio * (bound + TINY) {
            self
        } else {
            self.or(Self::of(result, element, found, exact, bound))
        }
    }

    /// The worse of two elements; if they are equal, the first one.
    fn or(self, other: Self) -> Self {
        let first = (self.result, self.element) <= (other.result, other.element);
        match self.ratio.total_cmp(&other.ratio) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal if first => self,
            std::cmp::Ordering::Equal => other,
        }
    }
}

/// Elements per task.
const PIECE: usize = 1 << 14;

/// Elements that are compared at once with the worst one so far, since most are better.
const BLOCK: usize = 64;

/// The worst element of a result. `of` gives the exact value of an element, and its bound.
fn farthest(result: usize, found: &[f32], of: impl Fn(usize) -> (f64, f64) + Sync) -> Farthest {
    let look = |(piece, found): (usize, &[f32])| farthest_of(result, piece * PIECE, found, &of);
    found.par_chunks(PIECE).enumerate().map(look).reduce(|| Farthest::NONE, Farthest::or)
}

/// The worst of consecutive elements, starting at `first`.
fn farthest_of(result: usize, first: usize, found: &[f32], of: impl Fn(usize) -> (f64, f64)) -> Farthest {
    let mut farthest = Farthest::NONE;
    for (first, found) in (first..).step_by(BLOCK).zip(found.chunks(BLOCK)) {
        let nearer = (first..).zip(found).fold(true, |nearer, (element, found)| {
            let (exact, bound) = of(element);
            nearer & ((f64::from(*found) - exact).abs() <= farthest.ratio * (bound + TINY))
        });
        if !nearer {
            farthest = (first..).zip(found).fold(farthest, |farthest, (element, found)| {
                let (exact, bound) = of(element);
                farthest.or_of(result, element, *found, exact, bound)
            });
        }
    }
    farthest
}

/// Finds the worst of consecutive elements, each of which is a function of the operands' elements at the same
/// position, compiled for the vectors of the processor.
struct Along<'a, const N: usize, F> {
    /// The worst element so far.
    farthest: Farthest,
    /// Index of the result, and of the first element here.
    place: (usize, usize),
    /// The results of the kernel.
    found: &'a [f32],
    /// Operands with the length of `found`.
    operands: [&'a [f32]; N],
    /// The exact value of an element, and its bound.
    of: F,
}

impl<const N: usize, F: Fn([f32; N]) -> (f64, f64)> Loops for Along<'_, N, F> {
    type Output = Farthest;

    #[inline(always)]
    fn run(self) -> Farthest {
        let (result, first) = self.place;
        let mut farthest = self.farthest;
        let (mut read, mut exact, mut bound) = ([[0.0; BLOCK]; N], [0.0; BLOCK], [0.0; BLOCK]);
        for (start, found) in (0..).step_by(BLOCK).zip(self.found.chunks(BLOCK)) {
            for (read, operand) in read.iter_mut().zip(self.operands) {
                read[..found.len()].copy_from_slice(&operand[start..start + found.len()]);
            }
            for i in 0..BLOCK {
                (exact[i], bound[i]) = (self.of)(std::array::from_fn(|n| read[n][i]));
            }
            if !are_nearer(farthest, found, &exact, &bound) {
                farthest = farther(farthest, result, first + start, found, &exact, &bound);
            }
        }
        farthest
    }
}

/// Whether no element is worse than the worst one so far. `exact` and `bound` may be longer than `found`.
#[inline(always)]
fn are_nearer(farthest: Farthest, found: &[f32], exact: &[f64], bound: &[f64]) -> bool {
    let mut nearer = true;
    for ((found, exact), bound) in found.iter().zip(exact).zip(bound) {
        nearer &= (f64::from(*found) - exact).abs() <= farthest.ratio * (bound + TINY);
    }
    nearer
}

/// The worst element so far, compared with the elements from `first` on.
#[inline(never)]
fn farther(farthest: Farthest, result: usize, first: usize, found: &[f32], exact: &[f64], bound: &[f64]) -> Farthest {
    let elements = (first..).zip(found).zip(exact).zip(bound);
    elements.fold(farthest, |farthest, (((element, found), exact), bound)| {
        farthest.or_of(result, element, *found, *exact, *bound)
    })
}

/// Returns the worst element of a node's results. A ratio above 1 is not explained by rounding.
///
/// # Errors
/// Operands or results that do not belong to the operator.
pub fn judge(machine: Machine, ran: &Ran<'_>) -> Result<Farthest, EngineError> {
    let in_node =
        |source: KernelError| EngineError::Node { name: ran.node.name.clone(), op: ran.node.op.name(), source };
    let results = ran.results.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let found = results.iter().map(Elements::slice::<f32>).collect::<candle_core::Result<Vec<_>>>()?;
    let types: Vec<TensorType> = ran.operands.iter().map(reference::type_of).collect();
    let types: Vec<&TensorType> = types.iter().collect();
    let expected = reference::infer(&ran.node.name, &ran.node.op, &types)?;
    if found.len() != expected.len() {
        return Err(in_node(KernelError::Arity { found: found.len() }));
    }
    if let Some(place) = (0..found.len()).find(|place| found[*place].len() != expected[*place].shape.numel()) {
        return Err(in_node(KernelError::Result { place, expected: "as long as that of the operator" }));
    }
    match ran.node.op.rules().rounding(&types) {
        Rounding::Product(product) => match product {
            Product::Convolution(op) => conv::forward(machine, op, ran, &found),
            Product::ConvolutionInput(op) => conv::input_gradient(machine, op, ran, &found),
            Product::ConvolutionFilter(op) => conv::filter_gradient(machine, op, ran, &found),
            Product::Matrices(op) => product::matrices(machine, op, ran, &found),
            Product::Groups(_) => return narrow_sums(types[0].shape[1], Summed::All, ran, &found),
            // All tokens may choose the same expert, once each.
            Product::GroupGradients(_) => return narrow_sums(types[2].shape[0], Summed::All, ran, &found),
        }
        .map_err(in_node),
        Rounding::Normalisation(which) => match which {
            Normalisation::Statistics => norm::statistics(machine.isa, ran, &found),
            Normalisation::Training(op) => norm::normalised(machine.isa, op, ran, &found),
            Normalisation::Stored { eps } => norm::stored(machine.isa, eps, ran, &found),
            Normalisation::Sums { eps } => norm::sums(machine.isa, eps, ran, &found),
            Normalisation::InputGradient { eps } => norm::input_gradient(machine.isa, eps, ran, &found),
            Normalisation::Gradient(op) => norm::gradient(machine.isa, op, ran, &found),
        }
        .map_err(in_node),
        Rounding::Formula(op) => formula::map(machine.isa, op, ran, &found),
        Rounding::Update(op) => formula::assign(machine.isa, op, ran, &found),
        Rounding::Sum => elementwise_sum(ran, &found).map_err(in_node),
        Rounding::Moves => magnitudes::moved(ran, &found),
        Rounding::Converts => magnitudes::converted(ran, &found),
        Rounding::Relative(roundings) => magnitudes::within(ran, &found, |_, _, exact| roundings * UNIT * exact.abs()),
        Rounding::Elementwise(roundings) => magnitudes::elementwise(roundings, ran, &found),
        Rounding::Wide(summed) => {
            let of = magnitudes::of_sums(ran, summed)?;
            let bound =
                |result: usize, element: usize, exact: f64| 2.0 * UNIT * exact.abs() + WIDE * of[result][element].abs();
            magnitudes::within(ran, &found, bound)
        }
        Rounding::Narrow(terms, summed) => narrow_sums(terms, summed, ran, &found),
        Rounding::Softmax(op) => {
            let of = magnitudes::probabilities(op, ran)?;
            // The loss is a logarithm: the relative error of its argument is its absolute error.
            let magnitude = |result: usize, element: usize| if result == 0 { 1.0 } else { of[element] };
            let bound = |result: usize, element: usize, exact: f64| {
                16.0 * UNIT * (exact.abs() + magnitude(result, element).abs())
            };
            magnitudes::within(ran, &found, bound)
        }
        Rounding::LrnGrad(op) => {
            let of = magnitudes::through_neighbours(op, ran)?;
            let bound = |_, element: usize, exact: f64| 16.0 * UNIT * (exact.abs() + of[element].abs());
            magnitudes::within(ran, &found, bound)
        }
        Rounding::MaskSoftMargin(op) => {
            let share = magnitudes::share_of_a_logit(op, ran)?;
            magnitudes::within(ran, &found, |_, _, exact| 16.0 * UNIT * exact.abs() + WIDE * share)
        }
    }
}

/// The sum of tensors with the same shape, element by element: as [`Rounding::Narrow`], in one pass.
fn elementwise_sum(ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let opened = ran.operands.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let operands = opened.iter().map(Elements::slice::<f32>).collect::<candle_core::Result<Vec<_>>>()?;
    let [found] = found else { return Err(KernelError::Arity { found: found.len() }) };
    if operands.iter().any(|operand| operand.len() != found.len()) {
        return Err(KernelError::Operand { place: 0, expected: "tensors of one shape" });
    }
    let of = |element: usize| {
        let terms = operands.iter().map(|operand| f64::from(operand[element]));
        let [sum, magnitude] = terms.fold([0.0; 2], |[sum, magnitude], x| [sum + x, magnitude + x.abs()]);
        (sum, narrow(operands.len(), sum, magnitude))
    };
    Ok(farthest(0, found, of))
}

/// Sums in f32 of at most `terms` terms.
fn narrow_sums(terms: usize, summed: Summed, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let of = magnitudes::of_sums(ran, summed)?;
    magnitudes::within(ran, found, |result, element, exact| narrow(terms, exact, of[result][element].abs()))
}

/// The bound of a sum in f32 of `terms` terms, if no partial sum exceeds the sum of the magnitudes.
fn narrow(terms: usize, exact: f64, magnitudes: f64) -> f64 {
    let roundings = terms as f64;
    UNIT * (exact.abs() + roundings.min(LAMBDA * roundings.sqrt()) * magnitudes)
}
