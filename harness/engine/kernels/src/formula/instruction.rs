//! The instructions of formulas, each a loop over the elements of a block.

use crate::{
    exp::{exp, expm1},
    simd::Simd,
    simd::vectorised,
};

/// Index of an earlier instruction.
pub type Place = usize;

/// Elements, or a number that all of them are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'v> {
    Elements(&'v [f32]),
    Number(f32),
}

/// One instruction; its value is a block of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// The n-th operand.
    Operand(usize),
    /// A number.
    Constant(f32),
    /// An element's place along an axis of this extent, with so many elements behind each place.
    Coordinate {
        /// Elements of the axes behind it.
        inner: usize,
        /// Elements of the axis.
        extent: usize,
    },
    /// A function of one value.
    Unary(Unary, Place),
    /// A function of two values.
    Binary(Binary, Place, Place),
    /// The second where the first is not zero, else the third.
    Select(Place, Place, Place),
    /// The sum of each row.
    RowSum(Place),
    /// The largest element of each row, NaN if one is NaN.
    RowMax(Place),
}

impl Instruction {
    /// The instructions that it reads.
    pub fn arguments(&self) -> impl Iterator<Item = Place> {
        let arguments = match *self {
            Self::Operand(_) | Self::Constant(_) | Self::Coordinate { .. } => [None; 3],
            Self::Unary(_, x) | Self::RowSum(x) | Self::RowMax(x) => [Some(x), None, None],
            Self::Binary(_, a, b) => [Some(a), Some(b), None],
            Self::Select(condition, yes, no) => [Some(condition), Some(yes), Some(no)],
        };
        arguments.into_iter().flatten()
    }
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it; zoo-graph's formulas document them")]
pub enum Unary {
    Neg,
    Abs,
    Sign,
    Exp,
    Expm1,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sigmoid,
    Softplus,
    Erf,
    Sin,
    Cos,
    Floor,
    /// x
    Same,
}

/// A function of two numbers; comparisons give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it; zoo-graph's formulas document them")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
    Greater,
    AtLeast,
    Equal,
}

/// Natural logarithm, to two units in the last place.
///
/// Cephes' `logf` (Moshier, 1992): the mantissa in `[sqrt(1/2), sqrt(2))`, a polynomial of degree 8.
#[inline(always)]
fn log<S: Simd>(simd: S, x: f32) -> f32 {
    const COEFFICIENTS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    // A subnormal number has no exponent of its own: 2^23 times it is a normal one.
    let (factor, shift) = if x < f32::MIN_POSITIVE { (8_388_608.0, 23.0) } else { (1.0, 0.0) };
    let bits = (x * factor).to_bits();
    let mut exponent = ((bits >> 23) as i32 - 126) as f32 - shift;
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let small = m < std::f32::consts::FRAC_1_SQRT_2;
    exponent -= if small { 1.0 } else { 0.0 };
    m = if small { m + m - 1.0 } else { m - 1.0 };
    let z = m * m;
    let mut p = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        p = simd.fma(p, m, *coefficient);
    }
    let mut y = m * z * p;
    y = simd.fma(exponent, -2.121_944_4e-4, y);
    y = simd.fma(-0.5, z, y);
    let log = simd.fma(exponent, 0.693_359_4, m + y);
    let log = if x == f32::INFINITY { x } else { log };
    let log = if x == 0.0 { f32::NEG_INFINITY } else { log };
    if x < 0.0 || x.is_nan() { f32::NAN } else { log }
}

/// Hyperbolic tangent, to three units in the last place (Cephes' `tanhf`).
#[inline(always)]
fn tanh<S: Simd>(simd: S, x: f32) -> f32 {
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    for coefficient in [2.063_909e-2, -5.373_971e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = simd.fma(p, z, coefficient);
    }
    let near = simd.fma(p * z, x, x);
    let size = x.abs();
    let far = 1.0 - 2.0 / (exp(simd, 2.0 * size) + 1.0);
    let far = if x < 0.0 { -far } else { far };
    if size < 0.625 { near } else { far }
}

/// Error function, to a few units in the last place: a quotient of polynomials on `[-4, 4]`, beyond which the result is
/// 1 in f32 (the coefficients are those of Eigen's and XLA's `erf` for f32).
#[inline(always)]
fn erf<S: Simd>(simd: S, x: f32) -> f32 {
    let bounded = if x > 4.0 { 4.0 } else { x };
    let bounded = if bounded < -4.0 { -4.0 } else { bounded };
    let z = bounded * bounded;
    let mut p = -2.726_142_3e-10;
    for coefficient in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2] {
        p = simd.fma(p, z, coefficient);
    }
    let mut q = -1.456_607_2e-5;
    for coefficient in [-2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_474e-2] {
        q = simd.fma(q, z, coefficient);
    }
    // The quotient first: the product of two small numbers is lost.
    bounded * (p / q)
}

/// log(1 + e^x): where e^-|x| is lost beside 1, it is the logarithm itself.
#[inline(always)]
fn softplus<S: Simd>(simd: S, x: f32) -> f32 {
    let small = exp(simd, -x.abs());
    let sum = 1.0 + small;
    let rest = sum - 1.0;
    let log = if rest == 0.0 { small } else { log(simd, sum) * (small / rest) };
    (if x < 0.0 { 0.0 } else { x }) + log
}

#[inline(always)]
fn each(x: Value<'_>, y: &mut [f32], f: impl Fn(f32) -> f32) {
    match x {
        Value::Elements(x) => y.iter_mut().zip(x).for_each(|(y, x)| *y = f(*x)),
        Value::Number(x) => y.fill(f(x)),
    }
}

#[inline(always)]
fn both(a: Value<'_>, b: Value<'_>, y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    match (a, b) {
        (Value::Elements(a), Value::Elements(b)) => {
            y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = f(*a, *b));
        }
        (a, Value::Number(b)) => each(a, y, |a| f(a, b)),
        (Value::Number(a), b) => each(b, y, |b| f(a, b)),
    }
}

#[inline(always)]
fn truth(truth: bool) -> f32 {
    if truth { 1.0 } else { 0.0 }
}

vectorised! {
    pub(super) fn unary(simd, function: Unary, x: Value<'_>, y: &mut [f32]) -> () {
        match function {
            Unary::Neg => each(x, y, |x| -x),
            Unary::Abs => each(x, y, f32::abs),
            Unary::Sign => each(x, y, |x| if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }),
            Unary::Exp => each(x, y, |x| exp(simd, x)),
            Unary::Expm1 => each(x, y, |x| expm1(simd, x)),
            Unary::Log => each(x, y, |x| log(simd, x)),
            Unary::Sqrt => each(x, y, f32::sqrt),
            Unary::Rsqrt => each(x, y, |x| 1.0 / x.sqrt()),
            Unary::Tanh => each(x, y, |x| tanh(simd, x)),
            Unary::Sigmoid => each(x, y, |x| 1.0 / (1.0 + exp(simd, -x))),
            Unary::Softplus => each(x, y, |x| softplus(simd, x)),
            Unary::Erf => each(x, y, |x| erf(simd, x)),
            Unary::Sin => each(x, y, |x| libm::sin(f64::from(x)) as f32),
            Unary::Cos => each(x, y, |x| libm::cos(f64::from(x)) as f32),
            Unary::Floor => each(x, y, libm::floorf),
            Unary::Same => each(x, y, |x| x),
        }
    }
}

vectorised! {
    pub(super) fn binary(_simd, function: Binary, a: Value<'_>, b: Value<'_>, y: &mut [f32]) -> () {
        match function {
            Binary::Add => both(a, b, y, |a, b| a + b),
            Binary::Sub => both(a, b, y, |a, b| a - b),
            Binary::Mul => both(a, b, y, |a, b| a * b),
            Binary::Div => both(a, b, y, |a, b| a / b),
            Binary::Max => both(a, b, y, |a, b| if a > b || a.is_nan() { a } else { b }),
            Binary::Min => both(a, b, y, |a, b| if a < b || a.is_nan() { a } else { b }),
            Binary::Pow => both(a, b, y, |a, b| libm::pow(f64::from(a), f64::from(b)) as f32),
            Binary::Greater => both(a, b, y, |a, b| truth(a > b)),
            Binary::AtLeast => both(a, b, y, |a, b| truth(a >= b)),
            Binary::Equal => both(a, b, y, |a, b| truth(a == b)),
        }
    }
}

/// One of two numbers. Of a branch the compiler makes a choice between addresses, which it then gathers.
#[inline(always)]
fn choose(condition: f32, yes: f32, no: f32) -> f32 {
    let mask = u32::from(condition != 0.0).wrapping_neg();
    f32::from_bits(yes.to_bits() & mask | no.to_bits() & !mask)
}

vectorised! {
    pub(super) fn select(_simd, condition: Value<'_>, yes: Value<'_>, no: Value<'_>, y: &mut [f32]) -> () {
        match (condition, yes, no) {
            (Value::Number(condition), yes, no) => each(if condition == 0.0 { no } else { yes }, y, |x| x),
            (condition, yes, Value::Number(no)) => both(condition, yes, y, |condition, yes| choose(condition, yes, no)),
            (condition, Value::Number(yes), no) => both(condition, no, y, |condition, no| choose(condition, yes, no)),
            (Value::Elements(condition), Value::Elements(yes), Value::Elements(no)) => {
                for (y, (condition, (yes, no))) in y.iter_mut().zip(condition.iter().zip(yes.iter().zip(no))) {
                    *y = choose(*condition, *yes, *no);
                }
            }
        }
    }
}

vectorised! {
    /// Places along an axis of `extent`, with `inner` elements behind each place, of the elements from `at` on.
    pub(super) fn coordinates(_simd, inner: usize, extent: usize, at: usize, y: &mut [f32]) -> () {
        let (mut rest, mut next) = (y, at);
        while !rest.is_empty() {
            let place = next / inner % extent;
            let len = if inner == 1 { extent - place } else { inner - next % inner }.min(rest.len());
            let Some(part) = rest.split_off_mut(..len) else { return };
            match inner {
                1 => part.iter_mut().zip(place as u32..).for_each(|(y, place)| *y = place as f32),
                _ => part.fill(place as f32),
            }
            next += len;
        }
    }
}

/// Sums that are kept side by side.
const LANES: usize = 16;

/// One number of the lanes: halves are combined, which takes fewer steps than one lane after the other.
#[inline(always)]
fn halved<T: Copy>(mut lanes: [T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut len = LANES;
    while len > 1 {
        len /= 2;
        for lane in 0..len {
            lanes[lane] = combine(lanes[lane], lanes[lane + len]);
        }
    }
    lanes[0]
}

#[inline(always)]
fn sum_of(x: &[f32]) -> f64 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    halved(sums, |a, b| a + b) + rest.iter().map(|x| f64::from(*x)).sum::<f64>()
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
fn largest_of(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (mut largest, mut nan) = ([f32::NEG_INFINITY; LANES], [0; LANES]);
    for chunk in chunks {
        largest.iter_mut().zip(chunk).for_each(|(largest, x)| *largest = larger(*largest, *x));
        nan.iter_mut().zip(chunk).for_each(|(nan, x)| *nan |= u32::from(x.is_nan()));
    }
    let largest = rest.iter().fold(halved(largest, larger), |all, x| larger(all, *x));
    let nan = halved(nan, |a, b| a | b) != 0 || rest.iter().any(|x| x.is_nan());
    if nan { f32::NAN } else { largest }
}

vectorised! {
    /// The sum of a block, in f64.
    pub(super) fn sum(_simd, x: &[f32]) -> f64 {
        sum_of(x)
    }
}

vectorised! {
    /// The largest of a block, NaN if one is NaN, -infinity of nothing.
    pub(super) fn largest(_simd, x: &[f32]) -> f32 {
        largest_of(x)
    }
}

vectorised! {
    /// The sum of each row of `row` elements.
    pub(super) fn row_sums(_simd, row: usize, x: Value<'_>, y: &mut [f32]) -> () {
        match x {
            Value::Elements(x) => y.iter_mut().zip(x.chunks_exact(row)).for_each(|(y, x)| *y = sum_of(x) as f32),
            // The sum of equal numbers is exact in f64, so rounding it is rounding this product.
            Value::Number(x) => y.fill(x * row as f32),
        }
    }
}

vectorised! {
    /// The largest element of each row of `row` elements, as [`largest`].
    pub(super) fn row_maxima(_simd, row: usize, x: Value<'_>, y: &mut [f32]) -> () {
        match x {
            Value::Elements(x) => y.iter_mut().zip(x.chunks_exact(row)).for_each(|(y, x)| *y = largest_of(x)),
            Value::Number(x) => y.fill(x),
        }
    }
}

vectorised! {
    /// `sums[i] += x[i]`, for each part of `x` as long as `sums`.
    pub(super) fn accumulate(_simd, x: &[f32], sums: &mut [f64]) -> () {
        match sums.as_mut_array::<LANES>() {
            Some(sums) => {
                let mut lanes = *sums;
                for x in x.as_chunks::<LANES>().0 {
                    lanes.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                *sums = lanes;
            }
            None => x.chunks(sums.len().max(1)).for_each(|x| {
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
            }),
        }
    }
}

vectorised! {
    /// Each number of `rows`, for all elements of its row.
    pub(super) fn spread(_simd, row: usize, rows: &[f32], y: &mut [f32]) -> () {
        y.chunks_exact_mut(row).zip(rows).for_each(|(y, x)| y.fill(*x));
    }
}

vectorised! {
    /// `pattern`, as many times as `y` holds it.
    pub(super) fn repeat(_simd, pattern: &[f32], y: &mut [f32]) -> () {
        match pattern.as_array::<LANES>() {
            Some(pattern) => y.as_chunks_mut::<LANES>().0.iter_mut().for_each(|y| *y = *pattern),
            None => y.chunks_mut(pattern.len().max(1)).for_each(|y| y.copy_from_slice(&pattern[..y.len()])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// A function, what it is in f64, and by how many units in the last place it may be off.
    type Case = (Unary, fn(f64) -> f64, f64);

    /// Every function on numbers of all sizes, against f64.
    #[test]
    fn functions_are_right_to_a_few_units_in_the_last_place() {
        let positive = (0x0000_0001..0x7f80_0000u32).step_by(20_011).map(f32::from_bits);
        let x: Vec<f32> = positive.flat_map(|x| [x, -x]).chain([0.0, -0.0]).collect();
        let near: Vec<f32> = x.iter().copied().filter(|x| x.abs() < 1e4).collect();
        let cases: [Case; 9] = [
            (Unary::Exp, libm::exp, 1.0),
            (Unary::Expm1, libm::expm1, 2.0),
            (Unary::Log, libm::log, 2.0),
            (Unary::Sqrt, libm::sqrt, 1.0),
            (Unary::Tanh, libm::tanh, 3.0),
            (Unary::Erf, libm::erf, 8.0),
            (Unary::Softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())), 4.0),
            (Unary::Sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), 4.0),
            (Unary::Rsqrt, |x| 1.0 / x.sqrt(), 2.0),
        ];
        for isa in Isa::available() {
            for (function, exact, units) in cases {
                let mut y = vec![0.0; near.len()];
                unary(isa, function, Value::Elements(&near), &mut y);
                for (x, y) in near.iter().zip(y) {
                    let exact = exact(f64::from(*x));
                    let rounded = exact as f32;
                    if !rounded.is_finite() || rounded.abs() < f32::MIN_POSITIVE {
                        let same = y.is_nan() == rounded.is_nan()
                            && (rounded.is_nan() || (y - rounded).abs() < 1e-37 || y == rounded);
                        assert!(same, "{function:?}({x}) = {y}, not {rounded}");
                        continue;
                    }
                    let unit = f64::from(rounded.abs().next_up()) - f64::from(rounded.abs());
                    assert!((f64::from(y) - exact).abs() <= units * unit, "{function:?}({x}) = {y}, not {exact}");
                }
            }
        }
    }

    #[test]
    fn maxima_keep_nan() {
        let mut x = vec![1.0; 50];
        for isa in Isa::available() {
            for place in [0, 7, 20, 49] {
                x[place] = f32::NAN;
                assert!(largest(isa, &x).is_nan());
                x[place] = 2.0;
                assert_eq!(largest(isa, &x), 2.0);
                x[place] = 1.0;
            }
            assert_eq!(largest(isa, &[]), f32::NEG_INFINITY);
        }
    }
}
