//! Queries, keys and values of an attention: heads of samples, whichever axes they are.

use zoo_recipe::layers::Rotary;

use crate::arguments::At;
use crate::cosine::Computed;
use crate::operation::{Tensor, Unit, What};
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::turned::Turned;
use crate::view::{View, shape, simplified};
use crate::word::Setting;

/// Queries, keys or values.
pub(crate) struct Heads {
    /// A view `[n, heads, t, d]`.
    pub of: (Tensor, Vec<View>),
    /// A number that they are multiplied by.
    pub by: f64,
    pub rotary: Option<Rotary>,
    /// Number of heads of queries that share one of these.
    pub group: usize,
}

impl Reader<'_> {
    /// Queries or keys as views of the result of an operation, and the number that they are multiplied by.
    pub(crate) fn factor(&self, at: &At<'_>, argument: Option<&Argument>) -> Option<((Tensor, Vec<View>), f64)> {
        let (tensor, views, by) = match self.given(argument) {
            Some(Seen::Of(tensor, views)) => (*tensor, views, 1.0),
            Some(Seen::Times(tensor, views, by)) => (*tensor, views, *by),
            _ => return None,
        };
        // A layer that only multiplies.
        let scaled = at.units.iter().rev().find_map(|unit| match unit {
            Unit::Operation(operation) if operation.result == tensor => {
                match (&operation.what, &operation.operands[..]) {
                    (What::Layer(word), [x]) if word.tag == "scale" => match word.settings.get("by")?.value {
                        Setting::Float(by) => Some((*x, by)),
                        Setting::Int(by) => Some((*x, by as f64)),
                        Setting::Bool(_)
                        | Setting::Text(_)
                        | Setting::List(_)
                        | Setting::Sides(_)
                        | Setting::Group(_) => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        });
        let (tensor, own) = scaled.unwrap_or((tensor, 1.0));
        Some(((tensor, views.clone()), by * own))
    }

    /// Heads `[n, heads, t, d]`; `columns`: as `[n, heads, d, t]`. Samples and heads may be one axis.
    pub(crate) fn heads(&self, at: &At<'_>, argument: Option<&Argument>, columns: bool) -> Option<Heads> {
        let turned = |turned: &Turned| {
            let (of, rotary) = turned.rotary()?;
            Some(Heads { of, by: 1.0, rotary: Some(rotary), group: 1 })
        };
        match self.given(argument)? {
            Seen::Computed(computed) => match &**computed {
                Computed::Turned(own) if !columns => turned(own),
                Computed::Columns(own) if columns => turned(own),
                Computed::Grouped { of, group, columns: own } if *own == columns => {
                    Some(Heads { group: *group, ..self.heads(at, Some(&Argument::Value(*of)), false)? })
                }
                _ => None,
            },
            _ => {
                let ((base, mut views), by) = self.factor(at, argument)?;
                let rank = shape(self.shape_of(base), &views).len();
                if columns {
                    let order = (0..rank.checked_sub(2)?).chain([rank - 1, rank - 2]).collect();
                    views.push(View::Permute(order));
                }
                if let Some(apart) = self.apart(&shape(self.shape_of(base), &views)) {
                    views.push(View::Reshape(apart));
                }
                Some(Heads { of: (base, simplified(self.shape_of(base), &views)), by, rotary: None, group: 1 })
            }
        }
    }

    /// The shape with axes of samples and of heads, of one that has them as one axis, `[n*heads, t, d]`.
    pub(crate) fn apart(&self, together: &[usize]) -> Option<Vec<usize>> {
        let (&[both, t, d], n) = (together, self.trace.batch) else { return None };
        both.is_multiple_of(n).then(|| vec![n, both / n, t, d])
    }
}
