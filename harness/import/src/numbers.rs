//! Operands that are numbers.

use crate::Refusal;
use crate::arguments::At;
use crate::reader::{Reader, Seen};
use crate::trace::Argument;

impl Reader<'_> {
    /// The number that an argument is: itself, or the only element of a constant.
    pub(crate) fn one_number(&self, argument: &Argument) -> Option<f64> {
        let only = || self.trace.constant(argument).filter(|constant| constant.len() == 1)?.values().next();
        argument.number().or_else(only)
    }

    /// The number that an operand is beside another one: one number, or a constant of equal ones that makes it no
    /// larger.
    pub(crate) fn number_in(&self, at: &At<'_>, argument: &Argument, beside: &Argument) -> Option<f64> {
        let equal = || {
            let number = self.trace.constant(argument)?.of_one_number()?;
            let shape = beside.value().and_then(|value| self.shape(value))?;
            at.made().is_ok_and(|made| made.shape == shape).then_some(number)
        };
        self.one_number(argument).or_else(equal)
    }

    /// A view times a number: no layer may give the view itself, and one that of its products. `None` for other
    /// operands.
    pub(crate) fn view_times(&mut self, at: &At<'_>, x: &Argument, by: f64) -> Result<Option<()>, Refusal> {
        match x.value().and_then(|value| self.seen(value)).cloned() {
            Some(Seen::Of(base, views)) if !views.is_empty() => {
                self.is(at.made()?.value, Seen::Times(base, views, by));
                Ok(Some(()))
            }
            Some(Seen::Times(base, views, known)) => {
                self.is(at.made()?.value, Seen::Times(base, views, known * by));
                Ok(Some(()))
            }
            _ => Ok(None),
        }
    }

    /// What a call gives is its operand, unchanged: a product with 1, or a sum with 0.
    pub(crate) fn unchanged(&mut self, at: &At<'_>, x: &Argument) -> Result<Option<()>, Refusal> {
        let made = at.made()?;
        match x.value().and_then(|value| Some((self.shape(value)?, self.seen(value)?.clone()))) {
            Some((shape, seen)) if shape == made.shape => {
                self.is(made.value, seen);
                Ok(Some(()))
            }
            _ => Ok(None),
        }
    }
}
