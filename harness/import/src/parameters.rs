//! Parameters that are values: tokens before others, and whatever is computed with one beside its module's layer.

use zoo_graph::Init;
use zoo_graph::init::NormalInit;
use zoo_recipe::Layer;
use zoo_recipe::layers::{Parameter, Prepend};
use zoo_recipe::schema::Size;

use crate::Refusal;
use crate::arguments::At;
use crate::operation::{Tensor, Unit, What};
use crate::reader::{Reader, Seen};
use crate::trace::{Argument, Made};
use crate::word::Word;

impl Reader<'_> {
    /// A parameter of this shape is repeated: for every sample, or otherwise.
    pub(crate) fn repeated_parameter(&mut self, name: String, own: &[usize], made: &Made) {
        let missing = made.shape.len().saturating_sub(own.len());
        let aligned = [&vec![1; missing][..], own].concat();
        let each_sample = aligned.first() == Some(&1)
            && aligned.get(1..) == made.shape.get(1..)
            && made.shape.first() == Some(&self.trace.batch);
        let seen = match each_sample {
            true => Seen::Expanded(name, made.shape.clone()),
            false => Seen::Unsaid("it repeats a parameter"),
        };
        self.is(made.value, seen);
    }

    /// The layer that gives a parameter in this shape to every sample.
    pub(crate) fn parameter_as_tensor(&mut self, name: &str, to: &[usize], units: &mut Vec<Unit>, at: &str) -> Tensor {
        let own = self.trace.shape(name);
        let usual = match own {
            [] => &[1],
            [1, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let sizes = |extents: &[usize]| extents.iter().map(|extent| Size(*extent)).collect::<Vec<_>>();
        let (shape, other) = (sizes(own), (usual != to).then(|| sizes(to)));
        let layer = Parameter { shape, to: other, init: Init::Normal(NormalInit { std: 0.02 }) };
        let shape = [&[self.trace.batch], to].concat();
        let result = self.push(units, What::Layer(Word::of(&Layer::Parameter(layer))), Vec::new(), shape, at);
        if let Some(Unit::Operation(operation)) = units.last_mut() {
            operation.name = Some(name.to_owned());
        }
        result
    }

    /// A tensor and a parameter, seen in this shape, whose axes of one element are repeated; whether the parameter
    /// comes first.
    pub(crate) fn with_parameter(
        &mut self,
        at: &mut At<'_>,
        what: What,
        x: Tensor,
        (name, seen, is_first): (&str, &[usize], bool),
    ) -> Result<(), Refusal> {
        let (shape, made) = (self.shape_of(x).to_vec(), at.made()?);
        let missing = shape.len().saturating_sub(seen.len());
        let aligned = [&vec![1; missing][..], seen].concat();
        let largest = shape.iter().zip(&aligned).map(|(one, other)| *one.max(other));
        let fits = aligned.len() == shape.len()
            && aligned.len() > 1
            && aligned[0] == 1
            && largest.eq(made.shape.iter().copied())
            && shape.iter().zip(&aligned).all(|(one, other)| one == other || *one == 1 || *other == 1);
        if !fits {
            return Err(at.refuse(
                format!("it computes with {shape:?} and the parameter `{name}` in the shape {seen:?}"),
                "`parameter` is the same for all samples, and axes of one element are repeated",
            ));
        }
        let line = at.call.at.clone();
        let parameter = self.parameter_as_tensor(name, &aligned[1..], at.units, &line);
        self.gives(at, what, if is_first { vec![parameter, x] } else { vec![x, parameter] }, None)
    }

    /// Learned tokens before others. `None` if the parts are others.
    pub(crate) fn leading_tokens(&mut self, at: &mut At<'_>, parts: &[&Argument]) -> Result<Option<()>, Refusal> {
        let Some((last, tokens)) = parts.split_last() else { return Ok(None) };
        let token = |part: &&Argument| match self.given(Some(*part)) {
            Some(Seen::Expanded(name, _)) if matches!(self.trace.shape(name), [1, 1, _]) => Some(name.clone()),
            _ => None,
        };
        let tokens: Option<Vec<String>> = tokens.iter().map(token).collect();
        let Some(mut tokens) = tokens.filter(|tokens| !tokens.is_empty() && token(last).is_none()) else {
            return Ok(None);
        };
        let mut x = self.operand(at, Some(last))?;
        let layer = Layer::Prepend(Prepend { init: Init::Constant(0.0) });
        let first = tokens.remove(0);
        for name in tokens.into_iter().rev() {
            let mut shape = self.shape_of(x).to_vec();
            shape.iter_mut().skip(1).take(1).for_each(|rows| *rows += 1);
            x = self.inner(at, What::Layer(Word::of(&layer)), vec![x], shape);
            if let Some(Unit::Operation(operation)) = at.units.last_mut() {
                operation.name = Some(name);
            }
        }
        self.layer(at, layer, x, Some(first)).map(Some)
    }
}
