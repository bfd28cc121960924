//! Parameters and constants side by side: the bias of queries, keys and values that one layer makes.

use indexmap::IndexMap;

use crate::Refusal;
use crate::arguments::At;
use crate::cosine::Computed;
use crate::joins::along;
use crate::operation::What;
use crate::products::Place;
use crate::reader::{Reader, Seen};
use crate::trace::{Argument, Made};

pub(crate) const SIDES: &str = "`parameter` is a value, and `concat` joins values";

impl Reader<'_> {
    /// Whether these are parameters and constants of one axis, and parameters among them.
    pub(crate) fn are_sides(&self, parts: &[&Argument]) -> bool {
        let parameter =
            |part: &&Argument| matches!(part, Argument::Parameter(name) if self.trace.shape(name).len() == 1);
        let constant = |part: &&Argument| self.trace.constant(part).is_some_and(|constant| constant.shape.len() == 1);
        parts.iter().any(parameter) && parts.iter().all(|part| parameter(part) || constant(part))
    }

    /// An argument that is such a row, as a value with as many axes as what it is combined with; any other as it is.
    pub(crate) fn sides_beside(
        &mut self,
        at: &mut At<'_>,
        argument: &Argument,
        rank: usize,
    ) -> Result<Argument, Refusal> {
        let Some(Computed::Sides(parts)) = self.computed(Some(argument)).cloned() else { return Ok(argument.clone()) };
        let Some(axis) = rank.checked_sub(1).and_then(along) else { return Err(at.unknown_form("other")) };
        let samples = self.trace.batch;
        let (mut operands, mut width) = (Vec::new(), 0);
        for part in &parts {
            let of_size = |size: usize| [&vec![1; rank - 2][..], &[size]].concat();
            let operand = match (part, self.trace.constant(part).cloned()) {
                (_, Some(constant)) => {
                    let shape = [&[samples], &of_size(constant.len())[..]].concat();
                    let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
                    self.constant_as_tensor(&constant, shape, place, at.units)?
                }
                (Argument::Parameter(name), None) => {
                    let to = of_size(self.trace.shape(name).iter().product());
                    self.parameter_as_tensor(name, &to, at.units, &at.call.at)
                }
                _ => return Err(at.unknown_form("other")),
            };
            width += self.shape_of(operand).last().copied().unwrap_or_default();
            operands.push(operand);
        }
        let shape = [&[samples], &vec![1; rank - 2][..], &[width]].concat();
        let joined = self.inner(at, What::Concat(axis), operands, shape);
        Ok(Argument::Value(self.new_value(Seen::Of(joined, Vec::new()))))
    }

    /// A dense layer whose bias is such a row: the layer without a bias, and the sum. `None` for others.
    pub(crate) fn with_sides(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (x, weight, bias) = (at.input(), at.argument(1, &["weight"]), at.argument(2, &["bias"]));
        let (Some(x), Some(weight), Some(bias), Some(Computed::Sides(_))) = (x, weight, bias, self.computed(bias))
        else {
            return Ok(None);
        };
        let made = at.made()?;
        let value = self.new_value(Seen::Unsaid("it is computed here"));
        let product = Made { value, ..made.clone() };
        let linear = "torch.nn.functional.linear";
        self.calls(at, linear, vec![x.clone(), weight.clone()], IndexMap::new(), &product)?;
        self.calls(at, "torch.add", vec![Argument::Value(value), bias.clone()], IndexMap::new(), made).map(Some)
    }
}
