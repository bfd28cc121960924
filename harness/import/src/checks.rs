//! What a call has to be so that a layer can stand for it: its types, its mode, the shape of a view.

use crate::Refusal;
use crate::arguments::At;
use crate::modes::Mode;
use crate::reader::Reader;
use crate::trace::{Argument, Made};
use crate::view::View;

impl Reader<'_> {
    /// A recipe has one type of real numbers, and a gradient for each of them.
    pub(crate) fn check_types(&mut self, at: &At<'_>) -> Result<(), Refusal> {
        for made in at.call.outputs.values() {
            self.made.insert(made.value, made.clone());
            if !made.is_real() {
                continue;
            }
            let real = self.real.get_or_insert_with(|| made.dtype.clone());
            if *real != made.dtype {
                let what = format!("it computes in {}, and other parts in {real}", made.dtype);
                return Err(at.refuse(
                    what,
                    "a recipe has a single floating-point type; the device file decides what is computed in half \
                     precision",
                ));
            }
        }
        Ok(())
    }

    /// A function may name the type that its operand has anyway.
    pub(crate) fn without_conversion(&self, at: &mut At<'_>) {
        let operand = at.call.args.first().or_else(|| at.call.kwargs.get("input")).and_then(Argument::value);
        if let Some(Made { dtype, .. }) = operand.and_then(|value| self.made(value)).filter(|made| made.is_real()) {
            at.without_conversion(dtype);
        }
    }

    /// A rate of dropout, which has to be 0 in evaluation mode.
    pub(crate) fn rate(&self, at: &At<'_>, rate: f64) -> Result<f64, Refusal> {
        match self.mode {
            Mode::Evaluation if rate != 0.0 => Err(at.refuse(
                format!("it drops a share of {rate} of the numbers"),
                "dropout of recipes is for training alone, as `F.dropout(x, p, self.training)` is",
            )),
            // 0.1, where the network keeps the number of f32 next to it: a rate decides how often something is dropped.
            Mode::Evaluation | Mode::Training => Ok(match rate as f32 {
                single if f64::from(single) == rate => single.to_string().parse().unwrap_or(rate),
                // And where it computed 0.1 as 0.10000000000000002.
                _ => format!("{rate:.14e}")
                    .parse()
                    .ok()
                    .filter(|short: &f64| (short - rate).abs() <= 2.0 * f64::EPSILON * rate.abs())
                    .filter(|short| short.to_string().len() + 4 < rate.to_string().len())
                    .unwrap_or(rate),
            }),
        }
    }

    /// Refuses a normalisation that does not use the statistics that its mode wants: those of the batch in training,
    /// the stored ones in evaluation.
    pub(crate) fn check_statistics(&self, at: &At<'_>, of_batch: bool) -> Result<(), Refusal> {
        match (self.mode, of_batch) {
            (Mode::Training, true) | (Mode::Evaluation, false) => Ok(()),
            (Mode::Training, false) => Err(at.refuse(
                "it is frozen: it normalises by its running statistics",
                "`train.parts` with `statistics: stored` freezes parts of a recipe",
            )),
            (Mode::Evaluation, true) => Err(at.refuse(
                "it normalises by the statistics of the batch",
                "`bn` normalises by its running statistics there, as `F.batch_norm(.., training=self.training)` does",
            )),
        }
    }

    /// What a call gives as a view of a tensor of the trace has to have its type.
    pub(crate) fn check_type(&self, at: &At<'_>, from: usize, made: &Made) -> Result<(), Refusal> {
        match self.made(from) {
            Some(Made { dtype, .. }) if *dtype == made.dtype => Ok(()),
            // Whole numbers stay what they are.
            Some(from) if !from.is_real() && !made.is_real() && made.dtype != "bool" => Ok(()),
            Some(Made { dtype, .. }) => {
                let what = format!("it makes {} of {dtype}", made.dtype);
                Err(at.refuse(what, "recipes have no type conversion"))
            }
            None => Err(at.unknown_form("input")),
        }
    }

    /// What a call gives as these views of a tensor of the trace has to have its type, its number of elements, and that
    /// shape.
    pub(crate) fn check_view(&self, at: &At<'_>, from: usize, made: &Made, views: &[View]) -> Result<(), Refusal> {
        self.check_type(at, from, made)?;
        let Some(mut shape) = self.shape(from) else { return Err(at.unknown_form("input")) };
        for view in views {
            let next = view.shape(&shape);
            let keeps_elements = match view {
                View::Reshape(_) => next.iter().product::<usize>() == shape.iter().product::<usize>(),
                View::Permute(_) | View::Select(..) | View::Slice(..) | View::Every(..) => true,
                View::Roll(_) | View::Fill(_) => true,
            };
            if !keeps_elements {
                return Err(at.unknown_form("shape"));
            }
            shape = next;
        }
        if shape != made.shape {
            return Err(at.refuse(format!("it gives {:?}", made.shape), "this form of the function is not supported"));
        }
        Ok(())
    }
}
