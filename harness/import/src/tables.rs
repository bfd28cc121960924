//! Constants as layers: few numbers as they are, many as a formula of their indices.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};

use zoo_recipe::layers::Constant as Layer;
use zoo_recipe::schema::Size;

use crate::turned::rounded;
use crate::word::number;

/// Most numbers that are written down.
const MOST_NUMBERS: usize = 64;

/// Most elements of which a formula is looked for.
const MOST_ELEMENTS: usize = 1 << 20;

/// Most parts into which a table is divided inside each other, and most tables that are looked at for one.
const DEEPEST: usize = 4;
const MOST_LOOKS: usize = 2000;

/// The layer of these elements, row-major; `None` if they are many and no known formula gives them.
pub(crate) fn layer(values: &[f64], shape: &[usize], each: bool) -> Option<Layer> {
    let whole = Table { extents: shape.to_vec(), values: values.to_vec() };
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let repeated: Vec<bool> = (0..shape.len()).map(|axis| whole.repeats(axis)).collect();
    let own = (0..shape.len()).rev().filter(|axis| repeated[*axis]).fold(whole, |table, axis| table.first(axis));
    let extents = shape.iter().zip(&repeated).map(|(extent, repeated)| if *repeated { 1 } else { *extent });
    let extents: Vec<usize> = extents.collect();
    let sizes = |extents: &[usize]| extents.iter().map(|extent| Size(*extent)).collect::<Vec<_>>();
    let (own_shape, to) = (sizes(&extents), (extents != shape).then(|| sizes(shape)));
    let written = Layer { shape: own_shape, values: None, formula: None, to, each };
    if own.values.len() > MOST_ELEMENTS {
        return None;
    }
    if own.values.len() <= MOST_NUMBERS {
        return Some(Layer { values: Some(own.values), ..written });
    }
    let names = ["i", "j", "k", "l", "m", "n", "o", "p"].iter().zip(&repeated);
    let names: Vec<String> = names.filter(|(_, repeated)| !**repeated).map(|(name, _)| (*name).to_owned()).collect();
    // As few parts inside each other as possible.
    let formula = (1..=DEEPEST).find_map(|depth| own.text(&names, depth, &Cell::new(MOST_LOOKS)));
    formula.map(|formula| Layer { formula: Some(formula), ..written })
}

/// The layer that the importer writes for the same elements.
pub(crate) fn usual(given: &Layer) -> Option<Layer> {
    let shape: Vec<usize> = given.to.as_ref().unwrap_or(&given.shape).iter().map(|size| size.0).collect();
    layer(&given.elements()?, &shape, given.each)
}

/// A text that is the same for the same elements, if the importer writes no layer of them.
pub(crate) fn undescribed(given: &Layer) -> Option<String> {
    let shape: Vec<usize> = given.to.as_ref().unwrap_or(&given.shape).iter().map(|size| size.0).collect();
    let elements = given.elements().filter(|elements| layer(elements, &shape, given.each).is_none())?;
    Some(digest(&elements, &shape, given.each))
}

/// A text that is the same for the same elements, but for rounding in f64.
pub(crate) fn digest(values: &[f64], shape: &[usize], each: bool) -> String {
    let mut hasher = DefaultHasher::new();
    let size = values.iter().fold(0.0f64, |size, value| size.max(value.abs()));
    values.iter().for_each(|value| ((value / size.max(f64::MIN_POSITIVE) * 1e9).round() as i64).hash(&mut hasher));
    format!("{shape:?} {each} {:016x}", hasher.finish())
}

/// Whether two numbers are the same but for rounding in f64.
fn near(found: f64, wanted: f64, size: f64) -> bool {
    (found - wanted).abs() <= 1e-11 * (1.0 + size.abs())
}

/// Numbers along several axes.
#[derive(Clone, Debug)]
struct Table {
    extents: Vec<usize>,
    values: Vec<f64>,
}

/// Elements that grow by one factor from one to the next.
struct Geometric {
    first: f64,
    /// The factor as a power: `base^(-1 / steps)`.
    base: f64,
    steps: f64,
}

impl Geometric {
    /// Of this first element and this factor, as they were typed.
    fn of(first: f64, factor: f64, count: usize) -> Option<Self> {
        let fits = factor.is_finite() && factor > 0.0 && (factor - 1.0).abs() > 1e-9 && count > 1;
        let steps = [count as f64, (count - 1) as f64];
        let typed = steps.map(|steps| (steps, rounded(factor.powf(-steps))));
        let near_own = |(steps, base): &(f64, f64)| (base.powf(-1.0 / steps) / factor - 1.0).abs() < 1e-9;
        let shortest = typed.into_iter().filter(near_own).min_by_key(|(_, base)| number(*base).len());
        let (steps, base) = shortest.unwrap_or((1.0, exact(1.0 / factor)));
        fits.then_some(Self { first: exact(first), base, steps })
    }

    fn at(&self, place: usize) -> f64 {
        self.first * self.base.powf(-(place as f64) / self.steps)
    }

    fn text(&self, index: &str) -> String {
        let power = match self.steps == 1.0 {
            true => format!("{}^(-{index})", number(self.base)),
            false => format!("{}^(-{index} / {})", number(self.base), number(self.steps)),
        };
        if self.first == 1.0 { power } else { format!("{} * {power}", number(self.first)) }
    }
}

/// The number that was typed, if one of few digits is as near as rounding in f64; otherwise without the digits that
/// rounding may have changed.
fn exact(value: f64) -> f64 {
    let short = rounded(value);
    let without = || format!("{value:.11e}").parse().unwrap_or(value);
    if (short - value).abs() <= 1e-9 * value.abs() { short } else { without() }
}

impl Table {
    /// The index of the first element of each line along an axis, and the distance between its elements.
    fn lines(&self, axis: usize) -> (impl Iterator<Item = usize>, usize) {
        let stride: usize = self.extents[axis + 1..].iter().product();
        let block = stride * self.extents[axis];
        ((0..self.values.len() / block.max(1)).flat_map(move |n| (0..stride).map(move |at| n * block + at)), stride)
    }

    /// Whether elements along an axis that are so far apart are the same.
    fn is_same(&self, axis: usize, same: impl Fn(usize) -> usize) -> bool {
        let (mut lines, stride) = self.lines(axis);
        let extent = self.extents[axis];
        lines.all(|line| (0..extent).all(|n| self.values[line + n * stride] == self.values[line + same(n) * stride]))
    }

    fn repeats(&self, axis: usize) -> bool {
        self.is_same(axis, |_| 0)
    }

    /// The elements at these places of an axis.
    fn taken(&self, axis: usize, places: &[usize]) -> Self {
        let stride: usize = self.extents[axis + 1..].iter().product();
        let block = stride * self.extents[axis];
        let line = |start: usize| places.iter().flat_map(move |n| start + n * stride..start + (n + 1) * stride);
        let all = (0..self.values.len()).step_by(block.max(1)).flat_map(line);
        let values = all.map(|at| self.values[at]).collect();
        let mut extents = self.extents.clone();
        extents[axis] = places.len();
        Self { extents, values }
    }

    /// The first elements of an axis, without it.
    fn first(&self, axis: usize) -> Self {
        let mut first = self.taken(axis, &[0]);
        first.extents.remove(axis);
        first
    }

    /// A formula of indices with these names.
    fn text(&self, indices: &[String], depth: usize, looks: &Cell<usize>) -> Option<String> {
        looks.set(looks.get().checked_sub(1)?);
        if let Some(axis) = (0..self.extents.len()).find(|axis| self.repeats(*axis)) {
            let others: Vec<String> =
                indices.iter().enumerate().filter(|(n, _)| *n != axis).map(|(_, name)| name.clone()).collect();
            return self.first(axis).text(&others, depth, looks);
        }
        if self.extents.is_empty() {
            return self.values.first().map(|value| number(*value));
        }
        if let Some((axis, places, name)) = self.shorter(indices) {
            let mut names = indices.to_vec();
            names[axis] = name;
            return self.taken(axis, &places).text(&names, depth, looks);
        }
        self.affine(indices)
            .or_else(|| self.geometric(indices))
            .or_else(|| self.wave(indices))
            .or_else(|| self.divided(indices, depth.checked_sub(1)?, looks))
    }

    /// An axis whose elements are the same again after some, or several times each: places of those that differ, and
    /// their index.
    fn shorter(&self, indices: &[String]) -> Option<(usize, Vec<usize>, String)> {
        (0..self.extents.len()).find_map(|axis| {
            let (extent, name) = (self.extents[axis], &indices[axis]);
            let mut sizes = (2..=extent / 2).filter(|size| extent.is_multiple_of(*size));
            let period = sizes.clone().find(|size| self.is_same(axis, |n| n % size));
            if let Some(size) = period {
                let index = format!("({name} - {size} * floor({name} / {size}))");
                return Some((axis, (0..size).collect(), index));
            }
            let run = sizes.find(|size| self.is_same(axis, |n| n / size * size));
            run.map(|size| (axis, (0..extent).step_by(size).collect(), format!("floor({name} / {size})")))
        })
    }

    /// Sums of multiples of indices.
    fn affine(&self, indices: &[String]) -> Option<String> {
        let first = self.values[0];
        let strides: Vec<usize> =
            (0..self.extents.len()).map(|axis| self.extents[axis + 1..].iter().product()).collect();
        let step = |axis: usize| {
            let last = self.extents[axis] - 1;
            exact((self.values[last * strides[axis]] - first) / last as f64)
        };
        let steps: Vec<f64> = (0..self.extents.len()).map(step).collect();
        let start = exact(first);
        let value = |place: usize| {
            (0..steps.len()).map(|axis| (place / strides[axis] % self.extents[axis]) as f64 * steps[axis]).sum::<f64>()
        };
        let fits = |(place, found): (usize, &f64)| near(*found, start + value(place), start);
        if !self.values.iter().enumerate().all(fits) {
            return None;
        }
        let mut text = if start == 0.0 { String::new() } else { number(start) };
        for (step, index) in steps.iter().zip(indices) {
            let product = if step.abs() == 1.0 { index.clone() } else { format!("{} * {index}", number(step.abs())) };
            text += match (*step < 0.0, text.is_empty()) {
                (false, true) => "",
                (false, false) => " + ",
                (true, true) => "-",
                (true, false) => " - ",
            };
            text += &product;
        }
        Some(if text.contains(' ') || text.starts_with('-') { format!("({text})") } else { text })
    }

    /// Powers along the only axis.
    fn geometric(&self, indices: &[String]) -> Option<String> {
        let (&[count], [first, .., last]) = (&self.extents[..], &self.values[..]) else { return None };
        let found = Geometric::of(*first, (last / first).powf(1.0 / (count - 1) as f64), count)?;
        let fits = |(place, value): (usize, &f64)| (value / found.at(place) - 1.0).abs() < 1e-9;
        self.values.iter().enumerate().all(fits).then(|| found.text(&indices[0]))
    }

    /// Sines or cosines of products of a position and powers, along two axes, or along one at a fixed position.
    fn wave(&self, indices: &[String]) -> Option<String> {
        match self.extents[..] {
            [count] => self.waves([1, count], [0, 1], ["", &indices[0]]),
            [a, b] => {
                let (first, second) = (&indices[0], &indices[1]);
                self.waves([a, b], [b, 1], [first, second]).or_else(|| self.waves([b, a], [1, b], [second, first]))
            }
            _ => None,
        }
    }

    /// The same of so many positions and powers, with the distances between them.
    fn waves(&self, [positions, count]: [usize; 2], strides: [usize; 2], [place, index]: [&str; 2]) -> Option<String> {
        let value = |position: usize, power: usize| self.values[position * strides[0] + power * strides[1]];
        if count < 2 || self.values.iter().any(|value| value.abs() > 1.0) {
            return None;
        }
        let last = positions - 1;
        [false, true].into_iter().find_map(|cosine| {
            let angle = |position: usize, power: usize| {
                let value = value(position, power);
                if cosine { value.acos() } else { value.asin() }
            };
            (0..count - 1).find_map(|power| {
                let [own, next] = [angle(last, power), angle(last, power + 1)];
                // How far a position turns, and how many positions are before the first.
                let (rate, before) = match positions {
                    1 => (own, 1.0),
                    _ => {
                        let rate = own - angle(last - 1, power);
                        (rate, own / rate - last as f64)
                    }
                };
                let before = if before.abs() < 1e-6 { 0.0 } else { exact(before) };
                let factor = next / own;
                let rates = Geometric::of(rate / factor.powf(power as f64), factor, count)?;
                let fits = |position: usize, power: usize| {
                    let angle = (position as f64 + before) * rates.at(power);
                    let wanted = if cosine { angle.cos() } else { angle.sin() };
                    near(value(position, power), wanted, 100.0 + angle)
                };
                let all = (0..positions).all(|position| (0..count).all(|power| fits(position, power)));
                let position = match (positions, before) {
                    (1, _) => String::new(),
                    (_, 0.0) => format!("{place} * "),
                    (_, before) if before < 0.0 => format!("({place} - {}) * ", number(-before)),
                    (_, before) => format!("({place} + {}) * ", number(before)),
                };
                let function = if cosine { "cos" } else { "sin" };
                all.then(|| format!("{function}({position}{})", rates.text(index)))
            })
        })
    }

    /// Halves of an axis, elements in turn, or all behind the first, each of which has a formula.
    fn divided(&self, indices: &[String], depth: usize, looks: &Cell<usize>) -> Option<String> {
        (0..self.extents.len()).rev().find_map(|axis| {
            let (extent, name) = (self.extents[axis], &indices[axis]);
            let half = extent / 2;
            let is_even = extent.is_multiple_of(2);
            let of = |places: Vec<usize>, index: String| {
                let mut names = indices.to_vec();
                names[axis] = index;
                self.taken(axis, &places).text(&names, depth, looks)
            };
            let turns = format!("floor({name} / 2)");
            let halves = || {
                let first = of((0..half).collect(), name.clone())?;
                let second = of((half..extent).collect(), format!("({name} - {half})"))?;
                Some(format!("select({name} < {half}, {first}, {second})"))
            };
            let in_turn = || {
                let even = of((0..extent).step_by(2).collect(), turns.clone())?;
                let odd = of((1..extent).step_by(2).collect(), turns.clone())?;
                Some(format!("select({name} == 2 * {turns}, {even}, {odd})"))
            };
            let behind = || {
                let first = of(vec![0], name.clone())?;
                let others = of((1..extent).collect(), format!("({name} - 1)"))?;
                Some(format!("select({name} < 1, {first}, {others})"))
            };
            let divided = if is_even && extent > 2 { halves().or_else(in_turn) } else { None };
            divided.or_else(|| if extent > 2 { behind() } else { None })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of elements that a function of two indices gives.
    fn formula(shape: [usize; 2], value: impl Fn(usize, usize) -> f64) -> Option<String> {
        let values: Vec<f64> = (0..shape[0] * shape[1]).map(|n| value(n / shape[1], n % shape[1])).collect();
        let found = layer(&values, &shape, false)?;
        let elements = found.elements().unwrap();
        assert!(values.iter().zip(&elements).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert_eq!(usual(&found), Some(found.clone()));
        found.formula
    }

    #[test]
    fn few_numbers_stay_numbers() {
        let repeated = layer(&[1.5; 300], &[3, 100], true).unwrap();
        assert_eq!((repeated.values, repeated.shape), (Some(vec![1.5]), vec![Size(1), Size(1)]));
        let rows: Vec<f64> = (0..300).map(|n| f64::from(n / 100)).collect();
        let rows = layer(&rows, &[3, 100], false).unwrap();
        assert_eq!((rows.values, rows.to), (Some(vec![0.0, 1.0, 2.0]), Some(vec![Size(3), Size(100)])));
    }

    #[test]
    fn many_numbers_are_formulas() {
        assert_eq!(formula([10, 8], |i, j| 3.0 * i as f64 - 0.5 * j as f64), Some("(3 * i - 0.5 * j)".to_owned()));
        let rate = |power: usize| 10000f64.powf(-(power as f64) / 16.0);
        let sines = |i: usize, j: usize| (i as f64 * rate(j)).sin();
        assert_eq!(formula([9, 16], sines), Some("sin(i * 1e4^(-j / 16))".to_owned()));
        // Sines and cosines in turn, of positions from 1 on in a circle.
        let turn = std::f64::consts::TAU / (9.0 + 1e-6);
        let circle = |i: usize, j: usize| {
            let angle = (i + 1) as f64 * turn * rate(j / 2);
            if j.is_multiple_of(2) { angle.sin() } else { angle.cos() }
        };
        let text = formula([9, 32], circle).unwrap();
        assert!(text.starts_with("select(j == 2 * floor(j / 2), sin((i + 1) * 0.698"), "{text}");
        // Pixels of a map row by row: one half of the channels counts rows, the other one columns.
        let pixels = |i: usize, j: usize| {
            let place = if j < 32 { i / 5 } else { i % 5 };
            let angle = place as f64 * rate(j % 16);
            if j % 32 < 16 { angle.sin() } else { angle.cos() }
        };
        let text = formula([20, 64], pixels).unwrap();
        assert!(text.contains("floor(i / 5)") && text.contains("(i - 5 * floor(i / 5))"), "{text}");
        // A fixed time.
        let time = |_: usize, j: usize| (7.0 * 10000f64.powf(-(j as f64) / 128.0)).cos();
        assert_eq!(formula([1, 128], time), Some("cos(7 * 1e4^(-j / 128))".to_owned()));
        assert_eq!(formula([20, 20], |i, j| ((i * 31 + j * 17) as f64 * 0.7).sin() + (i * j) as f64), None);
    }
}
