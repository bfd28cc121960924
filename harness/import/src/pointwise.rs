//! Functions of single elements or rows: activations, softmax, dropout.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::Count;

use crate::Refusal;
use crate::arguments::At;
use crate::cosine::Computed;
use crate::operation::What;
use crate::reader::Reader;
use crate::trace::Argument;
use crate::view::View;
use crate::word::{Kind, Word, number};

impl Reader<'_> {
    /// A formula of the operand `x`.
    pub(crate) fn formula(&mut self, at: &mut At<'_>, formula: impl Into<String>) -> Result<(), Refusal> {
        let formula = formula.into();
        if self.formula_of_row(at, &formula)?.is_some() {
            return Ok(());
        }
        let x = self.first(at)?;
        self.gives(at, What::Layer(Word::formula(formula)), vec![x], None)
    }

    pub(crate) fn negated(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.turned_negated(at)?.is_some() || self.formula_of_row(at, "-x")?.is_some() {
            return Ok(());
        }
        self.unary(at, Layer::Scale(zoo::Scale { by: -1.0 }))
    }

    pub(crate) fn tangent(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        match self.scores(at.input()) {
            Some(scores) => self.tangent_of_scores(at, scores),
            None => self.unary(at, Layer::Tanh(zoo::Tanh {})),
        }
    }

    pub(crate) fn cumsum(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let axis = at.axis(1, &["dim"], self.shape_of(x).len())?;
        let Some(axis) = axis.checked_sub(1) else {
            return Err(at.refuse("it sums along the batch", "`cumsum` sums along an axis of each sample"));
        };
        let layer = Layer::Cumsum(zoo::Cumsum { axis: Count(axis), reverse: false });
        self.gives(at, What::Layer(Word::of(&layer)), vec![x], None)
    }

    pub(crate) fn exponential(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        if let Some(Computed::Bounded(name, bound)) = self.computed(input).cloned() {
            return self.is_computed(at, Computed::Factor(name, bound));
        }
        self.formula(at, "exp(x)")
    }

    pub(crate) fn power(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        match at.argument(1, &["exponent"]).and_then(Argument::number) {
            Some(exponent) if exponent.fract() == 0.0 && (1.0..=8.0).contains(&exponent) => {
                self.formula(at, format!("x^{exponent}"))
            }
            Some(0.5) => self.formula(at, "sqrt(x)"),
            Some(-0.5) => self.formula(at, "rsqrt(x)"),
            Some(-1.0) => self.formula(at, "1 / x"),
            _ => {
                Err(at.refuse("its exponent is not a whole number from 1 to 8", "`map` has powers with such exponents"))
            }
        }
    }

    /// `threshold` is where PyTorch takes x for softplus(x), which is the same but for rounding from 20 on.
    pub(crate) fn softplus(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (beta, threshold) = (at.float(1, "beta", 1.0)?, at.float(2, "threshold", 20.0)?);
        at.only("beta", beta, 1.0)?;
        at.only("threshold", threshold, 20.0)?;
        self.formula(at, "softplus(x)")
    }

    /// The gradient is 0 at the bounds, as for `max` and `min` with `x` as the first argument.
    pub(crate) fn hardtanh(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (least, most) = (at.float(1, "min_val", -1.0)?, at.float(2, "max_val", 1.0)?);
        match [least, most] {
            [0.0, 6.0] => self.unary(at, Layer::Relu6(zoo::Relu6 {})),
            _ => self.formula(at, format!("min(max(x, {}), {})", number(least), number(most))),
        }
    }

    /// The gradient passes at the bounds, as for `max` and `min` with `x` as the last argument.
    pub(crate) fn clamp(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if let Some(Argument::Parameter(name)) = at.input() {
            return self.bounded(at, name);
        }
        let mut bound = |place: usize, key: &str| match at.argument(place, &[key]) {
            None => Ok(None),
            Some(value) => value.number().map(Some).ok_or_else(|| at.unknown_form(key)),
        };
        let formula = match (bound(1, "min")?, bound(2, "max")?) {
            (Some(least), Some(most)) if least <= most => format!("min({}, max({}, x))", number(most), number(least)),
            (Some(least), None) => format!("max({}, x)", number(least)),
            (None, Some(most)) => format!("min({}, x)", number(most)),
            (Some(_) | None, Some(_) | None) => return Err(at.unknown_form("min")),
        };
        self.formula(at, formula)
    }

    pub(crate) fn gelu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let approximate = match at.argument(1, &["approximate"]) {
            None => zoo::Approximation::None,
            Some(Argument::Text(form)) if form == "none" => zoo::Approximation::None,
            Some(Argument::Text(form)) if form == "tanh" => zoo::Approximation::Tanh,
            Some(_) => return Err(at.unknown_form("approximate")),
        };
        self.unary(at, Layer::Gelu(zoo::Gelu { approximate }))
    }

    pub(crate) fn leaky_relu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let slope = at.float(1, "negative_slope", 0.01)?;
        self.unary(at, Layer::LeakyRelu(zoo::LeakyRelu { slope }))
    }

    pub(crate) fn elu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let alpha = at.float(1, "alpha", 1.0)?;
        self.unary(at, Layer::Elu(zoo::Elu { alpha }))
    }

    /// max(0, x) + min(0, alpha * (e^(x / alpha) - 1))
    pub(crate) fn celu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        match at.float(1, "alpha", 1.0)? {
            1.0 => self.unary(at, Layer::Elu(zoo::Elu { alpha: 1.0 })),
            alpha => {
                let alpha = number(alpha);
                self.formula(at, format!("select(x > 0, x, {alpha} * expm1(x / {alpha}))"))
            }
        }
    }

    /// A half of an axis, times the sigmoid of the other.
    pub(crate) fn glu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let Some(shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let axis = match at.argument(1, &["dim"]) {
            None => shape.len() - 1,
            Some(_) => at.axis(1, &["dim"], shape.len())?,
        };
        let half = shape[axis] / 2;
        let value = self.operand_viewed(at, input, &[View::Slice(axis, 0, half)])?;
        let gate = self.operand_viewed(at, input, &[View::Slice(axis, half, half)])?;
        let shape = self.shape_of(gate).to_vec();
        let gate = self.inner(at, What::Layer(Word::of(&Layer::Sigmoid(zoo::Sigmoid {}))), vec![gate], shape);
        self.gives(at, What::Mul, vec![value, gate], None)
    }

    /// Softmax along an axis, or its logarithm.
    pub(crate) fn softmax(&mut self, at: &mut At<'_>, word: Word) -> Result<(), Refusal> {
        let input = at.input();
        let Some(shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let rank = shape.len();
        let axis = at.axis(1, &["dim"], rank)?;
        let is_formula = word.kind == Kind::Formula;
        if let Some(scores) = self.scores(input)
            && !is_formula
            && !(scores.is_plain() && axis + 1 != rank)
        {
            return self.softmax_of_scores(at, scores, axis);
        }
        if axis + 1 == rank {
            let (x, views) = self.rows(at, input, None)?;
            let shape = self.shape_of(x).to_vec();
            return self.gives_viewed(at, What::Layer(word), vec![x], None, shape, views);
        }
        // `softmax` is taken along the last axis, which changes places with the one that is meant.
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(axis, rank - 1);
        let swapped = View::Permute(order);
        let x = self.operand_viewed(at, input, std::slice::from_ref(&swapped))?;
        self.gives_viewed(at, What::Layer(word), vec![x], None, swapped.shape(&shape), vec![swapped])
    }

    pub(crate) fn dropout(&mut self, at: &mut At<'_>, channels: bool) -> Result<(), Refusal> {
        let rate = at.float(1, "p", 0.5)?;
        let rate = if at.flag(2, "training", true)? { rate } else { 0.0 };
        let rate = self.rate(at, rate)?;
        let input = at.input();
        if channels {
            let x = self.maps(at)?;
            return self.layer(at, Layer::Dropout(zoo::Dropout { rate, channels }), x, None);
        }
        if let Some(scores) = self.scores(input) {
            return self.dropout_of_scores(at, scores, rate);
        }
        self.unary(at, Layer::Dropout(zoo::Dropout { rate, channels }))
    }

    /// The function that the trace records for modules that drop whole samples (`_chance` in
    /// golden/export/zoo_golden/trace.py).
    pub(crate) fn drop_path(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(rate) = at.named("p").and_then(Argument::number) else { return Err(at.unknown_form("p")) };
        let rate = self.rate(at, rate)?;
        let drops_samples = matches!(at.named("mode"), Some(Argument::Text(mode)) if mode == "row");
        let keeps_scale = match at.named("scale_by_keep") {
            None | Some(Argument::Bool(true)) => true,
            Some(_) => false,
        };
        if !drops_samples || !keeps_scale {
            return Err(at.refuse(
                "it drops the whole batch, or does not scale what remains",
                "`drop_path` drops samples and scales the others",
            ));
        }
        self.unary(at, Layer::DropPath(zoo::DropPath { rate }))
    }
}
