//! The bias of scores that a small network computes from offsets of pixels (Swin Transformer V2).

use zoo_recipe::Layer;
use zoo_recipe::layers::{ContinuousPositionBias, RelativePositionBias};
use zoo_recipe::schema::{Pair, Size, WeightInit};

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::operation::{Tensor, What};
use crate::reader::Reader;
use crate::scores::{MOST_TOKENS, is_by_head};
use crate::trace::{Argument, Made};
use crate::view::View;
use crate::word::Word;

/// What has been computed of a constant table so far.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    table: Constant,
    steps: Vec<Step>,
    /// The numbers of the rows that are taken of the result.
    rows: Option<Constant>,
    /// What is made of the result, or of its rows.
    views: Vec<View>,
    pub shape: Vec<usize>,
}

/// A function of each row.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// A module with a weight and perhaps a bias.
    Dense(String, bool),
    Relu,
    Sigmoid,
    Times(f64),
}

impl Offsets {
    pub fn viewed(&self, made: &Made, views: &[View]) -> Self {
        Self { views: [&self.views, views].concat(), shape: made.shape.clone(), ..self.clone() }
    }
}

impl Reader<'_> {
    /// Reads a function of a constant or of what was computed from it; `None` if the function is another one.
    pub(crate) fn of_offsets(&mut self, at: &mut At<'_>, function: &str) -> Result<Option<()>, Refusal> {
        let input = at.input();
        let known = match self.computed(input) {
            Some(Computed::Offsets(offsets)) => Some(offsets.clone()),
            _ => None,
        };
        let known = match (known, input.and_then(|input| self.trace.constant(input)), function) {
            (Some(known), _, _) => known,
            // Offsets have two coordinates.
            (None, Some(table), "linear") if table.shape.last() == Some(&2) => {
                let (table, shape) = (table.clone(), table.shape.clone());
                Offsets { table, steps: Vec::new(), rows: None, views: Vec::new(), shape }
            }
            _ => return Ok(None),
        };
        let made = at.made()?;
        let (mut next, shape) = (known, made.shape.clone());
        match function {
            "linear" if next.views.is_empty() => {
                let (weight, bias) = (at.argument(1, &["weight"]), at.argument(2, &["bias"]));
                let (name, _) = self.parameter(at, weight, "weight")?;
                let has_bias = match bias {
                    None => false,
                    Some(Argument::Parameter(bias)) if *bias == format!("{name}.bias") => true,
                    Some(_) => return Err(at.unknown_form("bias")),
                };
                next.steps.push(Step::Dense(name, has_bias));
            }
            "relu" => next.steps.push(Step::Relu),
            "sigmoid" => next.steps.push(Step::Sigmoid),
            "mul" | "__mul__" | "__rmul__" => match at.argument(1, &["other"]).and_then(Argument::number) {
                Some(by) => next.steps.push(Step::Times(by)),
                None => return Ok(None),
            },
            "__getitem__" if next.rows.is_none() => {
                let rows = at.argument(1, &["key"]).and_then(|rows| self.trace.constant(rows)).cloned();
                let is_table = matches!(next.views[..], [View::Reshape(_)]) && next.shape.len() == 2;
                let Some(rows) = rows.filter(|_| is_table) else { return Ok(None) };
                (next.rows, next.views) = (Some(rows), Vec::new());
            }
            _ => return Ok(None),
        }
        next.shape = shape;
        self.is_computed(at, Computed::Offsets(next)).map(Some)
    }

    /// The layer that gives this bias of scores of `heads` heads among the `t` pixels of a window.
    pub(crate) fn continuous_bias(
        &mut self,
        at: &mut At<'_>,
        bias: &Offsets,
        [heads, t, s]: [usize; 3],
        window: Option<[usize; 2]>,
    ) -> Result<Tensor, Refusal> {
        let refuse = |at: &At<'_>, what: &str| {
            let nearest = "`continuous_position_bias` is 16 sigmoid of a dense layer, ReLU and a dense layer without \
                           bias, of torchvision's table of offsets";
            Err(at.refuse(format!("a bias of scores is computed from constants: {what}"), nearest))
        };
        let [Step::Dense(first, true), Step::Relu, Step::Dense(second, false), Step::Sigmoid, Step::Times(by)] =
            &bias.steps[..]
        else {
            return refuse(at, "its functions are others");
        };
        let name = first.strip_suffix(".0").filter(|name| second.strip_suffix(".2") == Some(name));
        let Some(name) = name.filter(|_| *by == ContinuousPositionBias::MOST) else {
            return refuse(at, "its modules are not `0` and `2`, or its factor is not 16");
        };
        let shapes = [first, second].map(|name| self.trace.shape(&format!("{name}.weight")));
        let ([hidden, 2], Some(rows)) = (shapes[0], &bias.rows) else { return refuse(at, "its table has no rows") };
        let square = (2..=t.min(MOST_TOKENS)).find(|side| side * side == t).map(|side| [side, side]);
        let fits = |[h, w]: &[usize; 2]| t <= MOST_TOKENS && t == s && h * w == t && *h > 1 && *w > 1;
        let Some([height, width]) = window.or(square).filter(fits) else {
            return refuse(at, "its window is not known");
        };
        let size = [height, width];
        let is_table = || {
            let table = ContinuousPositionBias::table(size);
            bias.table.values().eq(table.into_iter().flatten().map(f64::from))
        };
        // Before the table is made.
        if bias.table.len() != 2 * (2 * height - 1) * (2 * width - 1) || !is_table() {
            return refuse(at, "its table is another one");
        }
        if !rows.values().eq(RelativePositionBias::rows(size).into_iter().map(f64::from)) {
            return refuse(at, "its rows are not those of relative positions");
        }
        if shapes[1] != [heads, *hidden] || !is_by_head(rows, &bias.views, &bias.shape, [heads, t, s]) {
            return refuse(at, "it is not [heads, queries, keys]");
        }
        let (size, heads, hidden, init) = (Pair(size), Size(heads), Size(*hidden), WeightInit::default());
        let layer = ContinuousPositionBias { size, heads, hidden, tap: String::new(), init };
        let what = What::Layer(Word::of(&Layer::ContinuousPositionBias(layer)));
        Ok(self.beside(at, what, name.to_owned(), vec![heads.0, t, s]))
    }
}
