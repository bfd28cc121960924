//! Functions of rows: means, sums and maxima along axes, and what is computed with them.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{BnInit, Size};

use crate::Refusal;
use crate::arguments::{At, NAMED, wrapped};
use crate::cosine::Computed;
use crate::formula::{Binds, MOST_TEXT, put, within};
use crate::operation::{Operation, Tensor, Unit, What};
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::view::{self, View};
use crate::word::{Setting, Word, number};

/// A number for each row of a tensor: an axis of one element in place of the last.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The tensor.
    pub of: Tensor,
    /// A formula of it that is equal for all elements of a row.
    pub text: String,
}

/// What is computed of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Add,
    Subtract,
    Mul,
    Divide,
}

impl Join {
    fn text(self, a: &str, b: &str) -> String {
        match self {
            Self::Add => format!("{a} + {}", within(b, Binds::Product)),
            Self::Subtract => format!("{a} - {}", within(b, Binds::Product)),
            Self::Mul => format!("{} * {}", within(a, Binds::Product), within(b, Binds::Power)),
            Self::Divide => format!("{} / {}", within(a, Binds::Product), within(b, Binds::Power)),
        }
    }
}

/// A normalisation that a formula is, without parameters.
enum Normalised {
    /// By the root mean square.
    Rms(f64),
    /// By mean and variance.
    Variance(f64),
}

impl Normalised {
    fn of(formula: &str) -> Option<Self> {
        let inner = |start: &str, end: &str| formula.strip_prefix(start)?.strip_suffix(end);
        let scaled = |x: &str, mean: &str| {
            [(format!("{x} * rsqrt({mean} + "), ")"), (format!("{x} / sqrt({mean} + "), ")")]
                .into_iter()
                .find_map(|(start, end)| inner(&start, end)?.parse::<f64>().ok())
                .or_else(|| inner(&format!("rsqrt({mean} + "), &format!(") * {x}"))?.parse::<f64>().ok())
        };
        let variance = "row_mean((x - row_mean(x))^2)";
        scaled("x", "row_mean(x^2)")
            .map(Self::Rms)
            .or_else(|| scaled("(x - row_mean(x))", variance).map(Self::Variance))
    }
}

impl Reader<'_> {
    /// What an argument is for each row, if it is that.
    fn row(&self, argument: Option<&Argument>) -> Option<Row> {
        match self.computed(argument)? {
            Computed::Row(row) => Some(row.clone()),
            _ => None,
        }
    }

    /// The operand and the formula of a tensor, if a formula gives it.
    fn made_by(&self, at: &At<'_>, tensor: Tensor) -> Option<(Tensor, String)> {
        let made = at.units.iter().rev().find_map(|unit| match unit {
            Unit::Operation(operation) if operation.result == tensor && operation.name.is_none() => Some(operation),
            Unit::Operation(_) | Unit::Module(_) => None,
        })?;
        match (&made.what, &made.operands[..]) {
            (What::Mul, [a, b]) if a == b => Some((*a, "x^2".to_owned())),
            (What::Layer(word), [x]) if word.tag == "map" => match &word.settings.get("")?.value {
                Setting::Text(text) => Some((*x, text.clone())),
                _ => None,
            },
            _ => None,
        }
    }

    /// The formula of a tensor, and of what: of itself, unless a formula gives it. What is computed with numbers of
    /// rows before is part of it.
    fn formula_of(&self, at: &At<'_>, tensor: Tensor) -> (Tensor, String) {
        let Some((mut of, mut text)) = self.made_by(at, tensor) else { return (tensor, "x".to_owned()) };
        while let Some((inner, before)) = self.made_by(at, of).filter(|(_, before)| before.contains("row_")) {
            let longer = put(&text, &before);
            if longer.len() > MOST_TEXT {
                break;
            }
            (of, text) = (inner, longer);
        }
        (of, text)
    }

    /// A formula that a recipe can have.
    fn written(at: &At<'_>, text: String) -> Result<String, Refusal> {
        match text.len() <= MOST_TEXT && zoo_graph::formula::parse(&text, &["x"], 1).is_ok() {
            true => Ok(text),
            false => Err(at.refuse("its formula is too long", "break it up: a module in between gives a tensor")),
        }
    }

    /// PyTorch's norm over axes.
    pub(crate) fn length(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let order = match at.argument(1, &["p", "ord"]) {
            None => Some(2.0),
            Some(Argument::Text(text)) if text == "fro" => Some(2.0),
            Some(order) => order.number(),
        };
        match order {
            Some(2.0) => self.folded_along(at, "sqrt(row_sum(x^2))", [2, 3]),
            Some(1.0) => self.folded_along(at, "row_sum(abs(x))", [2, 3]),
            _ => Err(at.refuse("a norm of another order than 1 or 2", ROWS)),
        }
    }

    /// Means, sums or maxima (`row_mean(x)`, ..) over axes of samples.
    pub(crate) fn folded(&mut self, at: &mut At<'_>, formula: &str) -> Result<(), Refusal> {
        self.folded_along(at, formula, [1, 2])
    }

    /// The axes that an argument at this place names; all of them if there is none.
    fn axes(at: &mut At<'_>, place: usize, rank: usize) -> Result<Vec<usize>, Refusal> {
        let axes: Option<Vec<usize>> = match at.argument(place, &["dim", "axis"]) {
            Some(Argument::List(axes)) if !axes.is_empty() => {
                axes.iter().map(|axis| wrapped(axis.int()?, rank)).collect()
            }
            Some(Argument::Bool(_) | Argument::List(_)) | None => Some((0..rank).collect()),
            Some(axis) => axis.int().and_then(|axis| wrapped(axis, rank)).map(|axis| vec![axis]),
        };
        axes.ok_or_else(|| at.unknown_form("dim"))
    }

    /// As [`Self::folded`], if axes, and whether they are kept, are the arguments at these places.
    fn folded_along(&mut self, at: &mut At<'_>, formula: &str, [place, keeps]: [usize; 2]) -> Result<(), Refusal> {
        let (input, made) = (at.input(), at.made()?);
        let Some(shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let rank = shape.len();
        let mut axes = Self::axes(at, place, rank)?;
        axes.sort_unstable();
        let keeps_axes = at.flag(keeps, "keepdim", false)?;
        if axes.first() == Some(&0) || axes.is_empty() {
            let what = format!("it combines samples: axes {axes:?} of {shape:?}");
            return Err(at.refuse(what, "layers work on each sample separately; the loss takes the mean of samples"));
        }
        if axes == [rank - 1] && keeps_axes {
            let x = self.operand(at, input)?;
            let (of, text) = self.formula_of(at, x);
            let text = Self::written(at, put(formula, &text))?;
            return self.is_computed(at, Computed::Row(Row { of, text }));
        }
        let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
        let size: usize = axes.iter().map(|axis| shape[*axis]).product();
        let together: Vec<usize> = kept.iter().map(|axis| shape[*axis]).chain([size]).collect();
        let order = [&kept[..], &axes[..]].concat();
        let x = self.operand_viewed(at, input, &[View::Permute(order), View::Reshape(together.clone())])?;
        let what = What::Layer(Word::formula(formula.to_owned()));
        let mut views = vec![View::Select(kept.len(), 0)];
        if keeps_axes {
            views.push(View::Reshape(made.shape.clone()));
        }
        self.gives_viewed(at, what, vec![x], None, together, views)
    }

    /// PyTorch's var, or the root of it, over axes: the sum of squares over the number of elements, less one of them
    /// (`unbiased`, or `correction` by number).
    pub(crate) fn variance(&mut self, at: &mut At<'_>, is_root: bool) -> Result<(), Refusal> {
        let Some(shape) = at.input().and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let size: usize = Self::axes(at, 1, shape.len())?.iter().map(|axis| shape[*axis]).product();
        // `x.var(False)` has no axes.
        let of_all = matches!(at.argument(1, &["dim"]), Some(Argument::Bool(_)));
        let unbiased = at.flag(if of_all { 1 } else { 2 }, "unbiased", true)?;
        let less = at.float(NAMED, "correction", f64::from(u8::from(unbiased)))?;
        let squares = "(x - row_mean(x))^2";
        let formula = match (less, size as f64 - less) {
            (0.0, _) => format!("row_mean({squares})"),
            (_, count) if count > 0.0 => format!("row_sum({squares}) / {}", number(count)),
            _ => return Err(at.refuse(format!("the variance of {size} numbers, divided by 0"), ROWS)),
        };
        let formula = if is_root { format!("sqrt({formula})") } else { formula };
        self.folded_along(at, &formula, [1, 3])
    }

    /// A formula of a number for each row. `None` if the operand is none.
    pub(crate) fn formula_of_row(&mut self, at: &mut At<'_>, formula: &str) -> Result<Option<()>, Refusal> {
        let Some(row) = self.row(at.input()) else { return Ok(None) };
        let text = Self::written(at, put(formula, &row.text))?;
        self.is_computed(at, Computed::Row(Row { text, ..row })).map(Some)
    }

    /// Two operands of which one is a number for each row. `None` if none is.
    pub(crate) fn join_of_row(&mut self, at: &mut At<'_>, join: Join, turned: bool) -> Result<Option<()>, Refusal> {
        let (mut first, mut second) = (at.input(), at.argument(1, &["other"]));
        if turned {
            (first, second) = (second, first);
        }
        let rows = [self.row(first), self.row(second)];
        let value = |argument: Option<&Argument>| argument.and_then(Argument::number);
        let (of, [a, b], is_row) = match (rows, [value(first), value(second)]) {
            ([None, None], _) => return Ok(None),
            ([Some(row), _], [_, Some(by)]) => (row.of, [row.text, number(by)], true),
            ([_, Some(row)], [Some(by), _]) => (row.of, [number(by), row.text], true),
            ([Some(one), Some(other)], _) if one.of == other.of => (one.of, [one.text, other.text], true),
            ([row @ Some(_), None] | [None, row @ Some(_)], _) => {
                let is_first = matches!(self.computed(first), Some(Computed::Row(_)));
                let tensor = self.operand(at, if is_first { second } else { first })?;
                let (of, text) = self.formula_of(at, tensor);
                let Some(row) = row else { return Ok(None) };
                // Of the tensor itself, or of what it is a formula of.
                let (of, text) = if row.of == tensor { (tensor, "x".to_owned()) } else { (of, text) };
                if row.of != of {
                    return self.join_of_other(at, join, [first, second]).map(Some);
                }
                (of, if is_first { [row.text, text] } else { [text, row.text] }, false)
            }
            ([Some(_), Some(_)], _) => return Err(at.refuse("it combines numbers of rows of two tensors", ROWS)),
        };
        let text = Self::written(at, join.text(&a, &b))?;
        match is_row {
            true => self.is_computed(at, Computed::Row(Row { of, text })).map(Some),
            false => self.gives(at, What::Layer(Word::formula(text)), vec![of], None).map(Some),
        }
    }

    /// A tensor and numbers of rows of another one.
    fn join_of_other(&mut self, at: &mut At<'_>, join: Join, operands: [Option<&Argument>; 2]) -> Result<(), Refusal> {
        match join {
            Join::Mul => {
                let [first, second] = [self.operand(at, operands[0])?, self.operand(at, operands[1])?];
                self.gives(at, What::Mul, vec![first, second], None)
            }
            Join::Add | Join::Subtract | Join::Divide => {
                Err(at.refuse("it combines a tensor with numbers of rows of another one", ROWS))
            }
        }
    }

    /// The tensor that numbers of rows are.
    pub(crate) fn row_as_tensor(&mut self, row: &Row, units: &mut Vec<Unit>, at: &str) -> (Tensor, Vec<View>) {
        let shape = self.shape_of(row.of).to_vec();
        let last = shape.len().saturating_sub(1);
        let what = What::Layer(Word::formula(row.text.clone()));
        (self.push(units, what, vec![row.of], shape, at), vec![View::Slice(last, 0, 1)])
    }

    /// The parameter that an argument is, in its own shape.
    fn whole_parameter(&self, argument: Option<&Argument>) -> Option<String> {
        match (argument?, self.given(argument)) {
            (Argument::Parameter(name), _) => Some(name.clone()),
            (_, Some(Seen::Reshaped(name, shape))) if shape == self.trace.shape(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// A parameter plus a number. `None` if the operands are others.
    pub(crate) fn shifted(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (first, second) = (at.input(), at.argument(1, &["other"]));
        let name = |argument| self.whole_parameter(argument);
        let value = |argument: Option<&Argument>| argument.and_then(Argument::number);
        match (name(first).zip(value(second))).or_else(|| name(second).zip(value(first))) {
            Some((name, by)) => self.is_computed(at, Computed::Shifted(name, by)).map(Some),
            None => Ok(None),
        }
    }

    /// A normalisation whose scale is a parameter, perhaps plus a number. `None` if the operands are others.
    pub(crate) fn scaled_norm(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (first, second) = (at.input(), at.argument(1, &["other"]));
        let scale = |argument| match self.computed(argument) {
            Some(Computed::Shifted(name, by)) => Some((name.clone(), *by)),
            _ => self.whole_parameter(argument).map(|name| (name, 0.0)),
        };
        let (x, (name, offset)) = match (scale(first), scale(second)) {
            (Some(scale), None) => (second, scale),
            (None, Some(scale)) => (first, scale),
            _ => return Ok(None),
        };
        let Some(Seen::Of(base, views)) = self.given(x).cloned() else { return Ok(None) };
        let (of, text) = self.formula_of(at, base);
        let width = self.shape_of(of).last().copied().unwrap_or_default();
        let Some(norm) = Normalised::of(&text).filter(|_| views.is_empty()) else { return Ok(None) };
        let owner = name.strip_suffix(".weight").filter(|_| self.trace.shape(&name) == [width]);
        let Some(owner) = owner.map(str::to_owned) else { return Ok(None) };
        let layer = match norm {
            Normalised::Rms(eps) => return self.rms_norm_of(at, (eps, offset), of, owner).map(Some),
            Normalised::Variance(eps) if offset == 0.0 => layer_norm(eps, false),
            Normalised::Variance(_) => return Ok(None),
        };
        self.layer(at, layer, of, Some(owner)).map(Some)
    }

    /// A normalisation by the root mean square. If a layer divides the last axis into heads before it, it has their
    /// width as a setting.
    pub(crate) fn rms_norm_of(
        &mut self,
        at: &mut At<'_>,
        (eps, offset): (f64, f64),
        x: Tensor,
        owner: String,
    ) -> Result<(), Refusal> {
        if let Some(whole) = self.divided.get(&x).copied() {
            let apart = self.shape_of(x).to_vec();
            let width = apart.last().copied().map(Size);
            let layer = Layer::RmsNorm(zoo::RmsNorm { eps, offset, width });
            let (shape, views) = (self.shape_of(whole).to_vec(), vec![View::Reshape(apart)]);
            self.gives_viewed(at, What::Layer(Word::of(&layer)), vec![whole], Some(owner), shape, views)?;
            self.normed_heads.extend(at.units.last().map(Unit::result));
            return Ok(());
        }
        self.layer(at, Layer::RmsNorm(zoo::RmsNorm { eps, offset, width: None }), x, Some(owner))
    }

    /// A normalisation by mean and variance with a scale, plus `bias`. `None` if the operands are others.
    pub(crate) fn biased_norm(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (x, bias) = match (at.input(), at.argument(1, &["other"])) {
            (Some(Argument::Parameter(bias)), x) | (x, Some(Argument::Parameter(bias))) => (x, bias),
            _ => return Ok(None),
        };
        let Some(Seen::Of(scaled, views)) = self.given(x).cloned() else { return Ok(None) };
        let is_scaled = |unit: &Unit| match unit {
            Unit::Operation(Operation { what: What::Layer(word), result, name: Some(name), .. }) => {
                let owner = bias.strip_suffix(".bias");
                *result == scaled && word.tag == "layer_norm" && !word.is_on("bias") && owner == Some(name)
            }
            Unit::Operation(_) | Unit::Module(_) => false,
        };
        let Some(place) = at.units.iter().rposition(is_scaled).filter(|_| views.is_empty()) else { return Ok(None) };
        let Unit::Operation(mut norm) = at.units.remove(place) else { return Ok(None) };
        if let What::Layer(word) = &mut norm.what {
            word.settings.shift_remove("bias");
        }
        self.gives(at, norm.what, norm.operands, norm.name).map(Some)
    }
}

fn layer_norm(eps: f64, bias: bool) -> Layer {
    Layer::LayerNorm(zoo::LayerNorm { axes: Size(1), channels_first: false, bias, eps, init: BnInit::default() })
}

const ROWS: &str = "`map` has `row_mean`, `row_sum` and `row_max` of its operand";

/// The formula of a normalisation by mean and variance without parameters.
pub(crate) fn normalised(eps: f64) -> String {
    format!("(x - row_mean(x)) * rsqrt(row_mean((x - row_mean(x))^2) + {})", number(eps))
}

/// The shape of numbers of rows.
pub(crate) fn shape(of: &[usize]) -> Vec<usize> {
    view::shape(of, &[View::Slice(of.len().saturating_sub(1), 0, 1)])
}
