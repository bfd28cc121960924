//! Products of matrices.

use std::collections::HashMap;

use zoo_graph::{GraphError, ValueId, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Multiplies by the value of a tap and sums over the axes that the result does not have (PyTorch's einsum):
    /// `- matmul: {with: keys, axes: "hid,hjd->hij"}` multiplies the rows of each head of two values.
    pub struct Matmul {
        /// Tap of the second factor.
        pub with: String,
        /// Axes of the current value, of the tap and of the result, a letter each, without the batch. An axis of one
        /// factor alone is an axis of the result.
        #[schemars(extend("pattern" = "^[a-zA-Z]+,[a-zA-Z]+->[a-zA-Z]+$"))]
        pub axes: String,
    }
}

/// The axes of a product by letters.
struct Axes {
    first: Vec<char>,
    second: Vec<char>,
    result: Vec<char>,
}

impl Axes {
    fn of(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is not of the form `hid,hjd->hij`");
        let (factors, result) = text.split_once("->").ok_or_else(form)?;
        let (first, second) = factors.split_once(',').ok_or_else(form)?;
        let [first, second, result] = [first, second, result].map(|part| part.trim().chars().collect::<Vec<char>>());
        for part in [&first, &second, &result] {
            if part.is_empty() || !part.iter().all(char::is_ascii_alphabetic) {
                return Err(form());
            }
            if let Some(twice) = part.iter().enumerate().find_map(|(n, axis)| part[..n].contains(axis).then_some(axis))
            {
                return Err(format!("`{text}` has the axis `{twice}` twice in one value"));
            }
        }
        let axes = Self { first, second, result };
        if let Some(unknown) = axes.result.iter().find(|axis| !axes.first.contains(axis) && !axes.second.contains(axis))
        {
            return Err(format!("no factor of `{text}` has the axis `{unknown}` of the result"));
        }
        let is_lost =
            |axis: &&char| !axes.result.contains(axis) && axes.first.contains(axis) != axes.second.contains(axis);
        match axes.first.iter().chain(&axes.second).find(is_lost) {
            Some(lost) => Err(format!("the axis `{lost}` of `{text}` is of one factor alone: the result needs it")),
            None => Ok(axes),
        }
    }

    /// The axes of the result that both factors have, or only one.
    fn kept(&self, in_first: bool, in_second: bool) -> Vec<char> {
        let is_kept = |axis: &&char| (self.first.contains(axis), self.second.contains(axis)) == (in_first, in_second);
        self.result.iter().filter(is_kept).copied().collect()
    }

    /// The axes that are summed over, in the order of the first factor.
    fn summed(&self) -> Vec<char> {
        self.first.iter().filter(|axis| !self.result.contains(axis)).copied().collect()
    }
}

/// A factor as matrices: `[n, both.., rows, columns]`, each of several axes, transposed if `swapped`.
fn matrices(
    at: &mut Builder<'_, '_>,
    part: &str,
    x: ValueId,
    axes: &[char],
    [both, rows, columns]: [&[char]; 3],
) -> Result<(ValueId, bool), GraphError> {
    let swapped = axes == [both, columns, rows].concat();
    let [rows, columns] = if swapped { [columns, rows] } else { [rows, columns] };
    let wanted = [both, rows, columns].concat();
    let place = |axis: &char| axes.iter().position(|own| own == axis).unwrap_or(0) + 1;
    let shape = at.shape(x).to_vec();
    let order: Vec<usize> = std::iter::once(0).chain(wanted.iter().map(place)).collect();
    let x = if order.is_sorted() { x } else { at.transposed(&format!("{part}_axes"), &order, x)? };
    let count = |axes: &[char]| axes.iter().map(|axis| shape[place(axis)]).product::<usize>();
    let leading = both.iter().map(|axis| shape[place(axis)]);
    let to: Vec<usize> = std::iter::once(shape[0]).chain(leading).chain([count(rows), count(columns)]).collect();
    let same = at.shape(x)[..] == to;
    Ok((if same { x } else { at.add_part(part, ops::Reshape { shape: to.into() }, &[x])? }, swapped))
}

impl Word for Matmul {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if let Err(message) = Axes::of(&self.axes) {
            at.error("axes", message);
            return None;
        }
        self.with = at.tap("with", &self.with)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let axes = Axes::of(&self.axes).map_err(|message| at.refuse(message))?;
        let other = at.tapped(&self.with)?;
        let mut extents: HashMap<char, usize> = HashMap::new();
        for (value, own) in [(x, &axes.first), (other, &axes.second)] {
            let shape = at.shape(value).to_vec();
            if shape.len() != own.len() + 1 {
                let own: String = own.iter().collect();
                return Err(at.refuse(format!("`{own}` are the axes of a value of {} axes", shape.len() - 1)));
            }
            for (axis, extent) in own.iter().zip(&shape[1..]) {
                let known = *extents.entry(*axis).or_insert(*extent);
                if known != *extent {
                    return Err(at.refuse(format!("the axis `{axis}` has {known} and {extent} elements")));
                }
            }
        }
        let (both, rows, columns, summed) =
            (axes.kept(true, true), axes.kept(true, false), axes.kept(false, true), axes.summed());
        let (a, transpose_a) = matrices(at, "first", x, &axes.first, [&both, &rows, &summed])?;
        let (b, transpose_b) = matrices(at, "second", other, &axes.second, [&both, &summed, &columns])?;
        let product = ops::MatMul { transpose_a, transpose_b };
        let given = [&both[..], &rows, &columns].concat();
        let samples = at.shape(x)[0];
        let shape = |axes: &[char]| -> Vec<usize> {
            std::iter::once(samples).chain(axes.iter().map(|axis| extents[axis])).collect()
        };
        let is_plain = (rows.len(), columns.len()) == (1, 1);
        if is_plain && given == axes.result {
            return at.add(product, &[a, b]);
        }
        let y = at.add_part("product", product, &[a, b])?;
        let together = ops::Reshape { shape: shape(&given).into() };
        if given == axes.result {
            return at.add(together, &[y]);
        }
        let y = if is_plain { y } else { at.add_part("apart", together, &[y])? };
        let place = |axis: &char| given.iter().position(|own| own == axis).unwrap_or(0) + 1;
        let permutation = std::iter::once(0).chain(axes.result.iter().map(place)).collect();
        at.add(ops::Transpose { permutation }, &[y])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let axes = Axes::of(&self.axes).map_err(|message| at.refuse(message))?;
        let taken = |letter: &char| axes.first.contains(letter) || axes.second.contains(letter);
        let batch = std::iter::once('n').chain('a'..='z').find(|letter| !taken(letter));
        let Some(n) = batch else { return Err(at.refuse("no letter is left for the batch")) };
        let [first, second, result] =
            [&axes.first, &axes.second, &axes.result].map(|part| part.iter().collect::<String>());
        let text = Code::text(format!("\"{n}{first},{n}{second}->{n}{result}\""));
        let other = Code::value(at.tap(&self.with));
        Ok(at.function(Code::call("torch.einsum", vec![text, Code::value(at.x()), other])))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step { reads: vec![&self.with], ..Step::new(Work::Dense, format!("matmul {}", self.axes)) }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read() {
        let axes = Axes::of("hid,hjd->hij").unwrap();
        assert_eq!(
            [axes.kept(true, true), axes.kept(true, false), axes.kept(false, true), axes.summed()],
            [vec!['h'], vec!['i'], vec!['j'], vec!['d']]
        );
        for wrong in ["hid", "hid,hjd", "hid->h", "iid,jd->ij", "id,jd->ik", "id,je->ij", "i1,j1->ij", ",j->j"] {
            assert!(Axes::of(wrong).is_err(), "{wrong}");
        }
    }
}
