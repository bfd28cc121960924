//! A tensor of fixed numbers as a value.

use zoo_graph::formula::{Expression, Formula, Term, names, parse};
use zoo_graph::{GraphError, TensorType, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Piece, Var};
use crate::values::Size;

/// Most elements of a value.
const MOST_ELEMENTS: usize = 1 << 22;

/// Names of the indices along the axes of a value.
const INDICES: [&str; 8] = ["i", "j", "k", "l", "m", "n", "o", "p"];

zoo_settings::settings! {
    /// Continues with fixed numbers in place of the current value, the same for all samples: the mean of images that a
    /// network subtracts, a mask, a table of sines. They are `values`, or computed by a `formula`.
    pub struct Constant {
        /// Shape of the numbers, without the batch.
        #[schemars(length(min = 1, max = 8))]
        pub shape: Vec<Size>,
        /// The numbers, row-major.
        #[schemars(length(min = 1, max = 256))]
        pub values?: Vec<f64>,
        /// The numbers as a formula of their indices along the axes, `i`, `j`, `k` and so on, from 0:
        /// `sin(i * 10000^(-j / 32))`. It has the operations of `map`, except those of rows.
        pub formula?: String,
        /// Shape of the value, whose axes repeat those of one element; by default that of the numbers.
        #[schemars(length(min = 1, max = 8))]
        pub to?: Vec<Size>,
        /// Whether each sample gets a value of its own, as `concat` and the last layer need. Otherwise there is one,
        /// which sums and products repeat.
        pub each: bool = false,
    }
}

/// In Python. Programs are also proven in f64, and run in the precision of their device.
const TYPE: &str = r#"
def type_beside(x: Tensor) -> torch.dtype:
    """The type of numbers beside a value: its own, or the usual one beside indices."""
    return x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
"#;

impl Constant {
    /// Shapes of the numbers and of the value, without the batch.
    fn shapes(&self) -> [Vec<usize>; 2] {
        let extents = |sizes: &[Size]| sizes.iter().map(|size| size.0).collect::<Vec<_>>();
        [extents(&self.shape), extents(self.to.as_ref().unwrap_or(&self.shape))]
    }

    /// The axes whose indices the formula reads, and the formula of these indices.
    fn formula(&self, text: &str) -> Result<(Vec<usize>, Formula), String> {
        let known = &INDICES[..self.shape.len().min(INDICES.len())];
        let used = names(text);
        let axes: Vec<usize> = (0..known.len()).filter(|axis| used.iter().any(|name| name == known[*axis])).collect();
        let operands: Vec<&str> = axes.iter().map(|axis| known[*axis]).collect();
        let formula = parse(text, if operands.is_empty() { known } else { &operands }, 1);
        let formula = formula.map_err(|error| error.to_string())?;
        let folds = |term: &Term| matches!(term, Term::RowSize | Term::Coordinate(_) | Term::Row(..));
        match formula.terms().iter().any(|term| folds(term) || matches!(term, Term::Softmax(_) | Term::LogSoftmax(_))) {
            _ if axes.is_empty() => Err(format!("it reads no index ({}): give `values`", known.join(", "))),
            true => Err("it reads rows; numbers depend on their own indices alone".to_owned()),
            false => Ok((axes, formula)),
        }
    }

    /// Why it cannot be, with the key.
    fn mistake(&self) -> Option<(&'static str, String)> {
        let [own, to] = self.shapes();
        let count = |extents: &[usize]| extents.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
        let fits = own.len() == to.len() && own.iter().zip(&to).all(|(own, to)| own == to || *own == 1);
        match (&self.values, &self.formula) {
            _ if count(&to).is_none_or(|count| count > MOST_ELEMENTS) => {
                Some(("shape", format!("a value {to:?} has more than {MOST_ELEMENTS} elements")))
            }
            _ if !fits => Some(("to", format!("{own:?} cannot be repeated to {to:?}"))),
            (Some(values), None) if count(&own) != Some(values.len()) => {
                Some(("values", format!("there are {} numbers, and the shape is {own:?}", values.len())))
            }
            (Some(_), None) => None,
            (None, Some(text)) => self.formula(text).err().map(|message| ("formula", message)),
            (None, None) | (Some(_), Some(_)) => Some(("", "needs either `values` or `formula`".to_owned())),
        }
    }

    /// The elements of the value, row-major; `None` if it is none.
    pub fn elements(&self) -> Option<Vec<f64>> {
        if self.mistake().is_some() {
            return None;
        }
        let [own, to] = self.shapes();
        let formula = match &self.formula {
            Some(text) => Some(self.formula(text).ok()?),
            None => None,
        };
        let element = |place: usize| {
            let (mut rest, mut indices) = (place, vec![0; to.len()]);
            for (index, extent) in indices.iter_mut().zip(&to).rev() {
                (*index, rest) = (rest % extent, rest / extent);
            }
            let own_index = |axis: usize| if own[axis] == 1 { 0 } else { indices[axis] };
            match (&self.values, &formula) {
                (Some(values), _) => {
                    let place = (0..own.len()).fold(0, |place, axis| place * own[axis] + own_index(axis));
                    values.get(place).copied()
                }
                (None, Some((axes, formula))) => {
                    let known =
                        |term: &Term| if let Term::Operand(n) = term { Some(own_index(axes[*n]) as f64) } else { None };
                    *formula.values(known).get(formula.results().first()?.term.0)?
                }
                (None, None) => None,
            }
        };
        (0..to.iter().product()).map(element).collect()
    }

    /// The numbers of one sample, `[1, shape..]`.
    fn numbers(&self, at: &mut Builder<'_, '_>) -> Result<ValueId, GraphError> {
        let ([own, _], dtype) = (self.shapes(), at.dtype());
        let filled = |value: f64, shape: &[usize]| ops::Fill { value, ty: TensorType::plain(shape, dtype) };
        let whole = [&[1], &own[..]].concat();
        match (&self.values, &self.formula) {
            (Some(values), None) if values.iter().all(|value| *value == values[0]) => {
                at.add_part("numbers", filled(values[0], &whole), &[])
            }
            (Some(values), None) => {
                let places = at.add_part("places", filled(0.0, &[1, values.len()]), &[])?;
                let table = Formula::define(0, |[zero]| [chosen(zero.coordinate(1), values, 0)]);
                let row = at.unnamed_part("row", table, &[places])?;
                at.add_part("numbers", ops::Reshape { shape: whole.into() }, &[row])
            }
            (_, text) => {
                let (axes, formula) =
                    self.formula(text.as_deref().unwrap_or_default()).map_err(|message| at.refuse(message))?;
                let mut indices = Vec::new();
                for axis in axes {
                    let along: Vec<usize> =
                        whole.iter().enumerate().map(|(n, extent)| if n == axis + 1 { *extent } else { 1 }).collect();
                    let (zeros, index) = (format!("zeros{axis}"), format!("index{axis}"));
                    let zeros = at.add_part(&zeros, filled(0.0, &along), &[])?;
                    let own = Formula::define(0, |[zero]| [zero.coordinate(axis + 1)]);
                    indices.push(at.unnamed_part(&index, own, &[zeros])?);
                }
                at.unnamed_part("numbers", formula, &indices)
            }
        }
    }
}

/// The number at a place, of those that begin at another one.
fn chosen<'f>(place: Expression<'f>, values: &[f64], from: usize) -> Expression<'f> {
    match values {
        [first, rest @ ..] if rest.iter().all(|value| value == first) => place.number(*first),
        _ => {
            let (before, behind) = values.split_at(values.len() / 2);
            let middle = from + before.len();
            place.at_least(middle as f64).select(chosen(place, behind, middle), chosen(place, before, from))
        }
    }
}

impl Word for Constant {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        match self.mistake() {
            None => Some(()),
            Some((key, message)) => {
                at.error(key, message);
                None
            }
        }
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let samples = if self.each { at.shape(x)[0] } else { 1 };
        let whole = [&[samples], &self.shapes()[1][..]].concat();
        let numbers = self.numbers(at)?;
        if at.shape(numbers)[..] == whole {
            return Ok(numbers);
        }
        at.add(ops::Map::with_space(Formula::define(0, |[own]| [own]), whole.into()), &[numbers])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let ([own, to], x) = (self.shapes(), at.x());
        at.helper(TYPE);
        let device = Code::named("device", Code::of(x, ".device"));
        let ty = Code::named("dtype", Code::applied("type_beside", x, vec![]));
        let sizes = |extents: &[usize]| extents.iter().map(|extent| Code::count(*extent)).collect::<Vec<_>>();
        let mut code = match (&self.values, &self.formula) {
            (Some(values), _) => {
                let numbers = values.iter().enumerate();
                let numbers =
                    numbers.map(|(n, value)| Code::number(at.real(&format!("values[{n}]"), *value))).collect();
                let mut code = Code::call("torch.tensor", vec![Code::list(numbers), ty, device]);
                if own.len() > 1 {
                    code.pieces.extend([Piece::Text(".reshape".into()), Piece::List("(", sizes(&own), ")")]);
                }
                code
            }
            (None, text) => {
                let (axes, formula) =
                    self.formula(text.as_deref().unwrap_or_default()).map_err(|message| at.refuse(message))?;
                let mut indices = Vec::new();
                for axis in axes {
                    let behind = own.len() - 1 - axis;
                    let view = if behind == 0 { String::new() } else { format!("[:{}]", ", None".repeat(behind)) };
                    let mut code = Code::call("torch.arange", vec![Code::count(own[axis]), ty.clone(), device.clone()]);
                    code.pieces.push(Piece::Text(view));
                    let index = at.function(code);
                    at.shaped(index, &[&own[axis..=axis], &vec![1; behind]].concat());
                    indices.push(index);
                }
                Code::value(at.formula(&formula, &indices)?)
            }
        };
        // One value for all samples.
        let samples = if self.each { Code::of(x, ".shape[0]") } else { Code::count(1) };
        let extents = std::iter::once(samples).chain(sizes(&to)).collect();
        code = Code::value(at.function(code));
        code.pieces.extend([Piece::Text(".expand".into()), Piece::List("(", extents, ")")]);
        Ok(at.function(code))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let extents: Vec<String> = self.shapes()[1].iter().map(usize::to_string).collect();
        Step::new(Work::Other, format!("constant {}", extents.join("x"))).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shape: &[usize]) -> Constant {
        let shape = shape.iter().map(|extent| Size(*extent)).collect();
        Constant { shape, values: None, formula: None, to: None, each: false }
    }

    #[test]
    fn numbers_and_formulas_of_indices() {
        let values = Constant { values: Some(vec![1.0, 2.0]), to: Some(vec![Size(2), Size(2)]), ..of(&[2, 1]) };
        assert_eq!(values.elements(), Some(vec![1.0, 1.0, 2.0, 2.0]));
        let formula = Constant { formula: Some("10 * i + j".to_owned()), ..of(&[2, 3]) };
        assert_eq!(formula.elements(), Some(vec![0.0, 1.0, 2.0, 10.0, 11.0, 12.0]));
    }

    #[test]
    fn mistakes_have_a_key() {
        let text = |text: &str| Constant { formula: Some(text.to_owned()), ..of(&[2, 3]) };
        for (wrong, key) in [
            (of(&[2]), ""),
            (Constant { values: Some(vec![1.0]), ..of(&[2]) }, "values"),
            (text("i + k"), "formula"),
            (text("row_sum(i)"), "formula"),
            (text("3"), "formula"),
            (Constant { to: Some(vec![Size(3), Size(3)]), ..text("i") }, "to"),
            (text("i + j + (").clone(), "formula"),
            (Constant { formula: Some("i".to_owned()), ..of(&[1 << 20, 1 << 20]) }, "shape"),
        ] {
            assert_eq!(wrong.mistake().map(|(key, _)| key), Some(key), "{wrong:?}");
            assert_eq!(wrong.elements(), None);
        }
    }
}
