//! Update rules that ports use in place of the recipe's.

use zoo_graph::formula::{Expression, Formula, UpdateOperands};
use zoo_recipe::{
    Recipe,
    schema::{Adam, AdamW, Clip, Optimizer, RmsForm, Sgd},
};

/// How gradients are clipped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Clipping {
    /// As in the recipe.
    Recipe,
    /// Not at all.
    None,
    /// The Euclidean norm of each tensor by itself.
    NormOfEach(f64),
    /// The largest magnitude of all elements together, as a norm.
    Largest(f64),
    /// The Euclidean norm of all tensors together.
    Norm(f64),
    /// Each element.
    Elements(f64),
    /// All gradients are multiplied by this.
    Factor(f64),
}

/// An update in place of the recipe's.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// What it is, after "as if".
    pub text: String,
    /// The rule; none: the recipe's.
    pub formula: Option<Formula>,
    pub clipping: Clipping,
    /// Factor on the learning rate.
    pub rate: f64,
    /// Weight decay in place of that of groups that have one.
    pub decay: Option<f64>,
}

impl Rule {
    fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), formula: None, clipping: Clipping::Recipe, rate: 1.0, decay: None }
    }

    /// The recipe's own rule.
    pub fn recipe() -> Self {
        Self::of("")
    }

    pub fn with_rate(factor: f64, rate: f64) -> Self {
        Self {
            rate: factor,
            ..Self::of(format!("the learning rate were {} ({factor:.3} times that of the step)", short(rate)))
        }
    }

    pub fn with_decay(decay: f64) -> Self {
        Self { decay: Some(decay), ..Self::of(format!("the weight decay were {}", short(decay))) }
    }

    pub fn with_factor(factor: f64) -> Self {
        let text = format!("the recorded gradients were multiplied by {} before the update", short(factor));
        Self { clipping: Clipping::Factor(factor), ..Self::of(text) }
    }

    pub fn with_norm(bound: f64) -> Self {
        let text = format!("the norm of all gradients were clipped to {}", short(bound));
        Self { clipping: Clipping::Norm(bound), ..Self::of(text) }
    }

    /// The recipe's optimizer with other settings.
    pub fn with(text: impl Into<String>, optimizer: &Optimizer) -> Self {
        let group = zoo_graph::ops::Group { weight_decay: 0.0, lr_scale: 1.0 };
        Self { formula: Some(optimizer.operator(group).formula), ..Self::of(text) }
    }

    fn written(
        text: impl Into<String>,
        slots: usize,
        write: impl for<'f> FnOnce(UpdateOperands<'f>) -> Vec<Expression<'f>>,
    ) -> Self {
        Self { formula: Some(Formula::update(slots, write)), ..Self::of(text) }
    }
}

/// A number with three digits.
pub(super) fn short(x: f64) -> String {
    let rounded: f64 = format!("{x:.2e}").parse().unwrap_or(x);
    if (1e-3..1e4).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// All candidates that need no estimate.
pub(super) fn candidates(recipe: &Recipe) -> Vec<Rule> {
    let mut rules = of_optimizer(&recipe.optimizer);
    rules.extend(of_clipping(&recipe.gradients.clip));
    rules
}

fn of_clipping(clips: &[Clip]) -> Vec<Rule> {
    let rule = |text: String, clipping| Rule { clipping, ..Rule::of(text) };
    if clips.is_empty() {
        let each =
            |bound| rule(format!("each element of the gradients were clipped to {bound}"), Clipping::Elements(bound));
        return [1.0, 5.0, 10.0, 0.5, 0.1].map(each).into();
    }
    let mut rules = vec![rule("gradients were not clipped".into(), Clipping::None)];
    for clip in clips {
        let (Clip::Norm(bound) | Clip::Value(bound)) = *clip;
        let each = format!("the norm of each gradient by itself were clipped to {bound}");
        let largest = format!("gradients were clipped by their largest element ({bound}), not their norm");
        let (other, own, clipping) = match clip {
            Clip::Norm(_) => ("each element of the gradients", "their norm", Clipping::Elements(bound)),
            Clip::Value(_) => ("the norm of all gradients", "each element", Clipping::Norm(bound)),
        };
        rules.push(rule(each, Clipping::NormOfEach(bound)));
        rules.push(rule(largest, Clipping::Largest(bound)));
        rules.push(rule(format!("{other} were clipped to {bound}, not {own}"), clipping));
    }
    rules
}

fn of_optimizer(optimizer: &Optimizer) -> Vec<Rule> {
    match optimizer {
        Optimizer::Sgd(sgd) => of_sgd(sgd),
        Optimizer::Adam(adam) => {
            let other = AdamW {
                beta1: adam.beta1,
                beta2: adam.beta2,
                eps: adam.eps,
                weight_decay: adam.weight_decay,
                ..AdamW::default()
            };
            let swapped =
                Rule::with("the optimizer were AdamW: decay apart from the gradient", &Optimizer::AdamW(other));
            let same = |beta1, beta2, eps| Optimizer::Adam(Adam { beta1, beta2, eps, ..adam.clone() });
            let mut rules = vec![swapped];
            rules.extend(of_moments([adam.beta1, adam.beta2, adam.eps], &same, Decay::InGradient));
            rules
        }
        Optimizer::AdamW(adamw) => {
            let other = Adam {
                beta1: adamw.beta1,
                beta2: adamw.beta2,
                eps: adamw.eps,
                weight_decay: adamw.weight_decay,
                ..Adam::default()
            };
            let swapped = Rule::with("the optimizer were Adam: decay added to the gradient", &Optimizer::Adam(other));
            let same = |beta1, beta2, eps| Optimizer::AdamW(AdamW { beta1, beta2, eps, ..adamw.clone() });
            let mut rules = vec![swapped];
            rules.extend(of_moments([adamw.beta1, adamw.beta2, adamw.eps], &same, Decay::Apart));
            rules
        }
        Optimizer::RmsProp(rms) => {
            let form = match rms.form {
                RmsForm::Pytorch => RmsForm::Tensorflow,
                RmsForm::Tensorflow => RmsForm::Pytorch,
            };
            let mut other = rms.clone();
            other.form = form;
            vec![Rule::with(
                "eps and learning rate were where the other framework has them (`form`)",
                &Optimizer::RmsProp(other),
            )]
        }
        Optimizer::Adagrad(_) | Optimizer::Lion(_) | Optimizer::Lars(_) | Optimizer::Lamb(_) => Vec::new(),
    }
}

fn of_sgd(sgd: &Sgd) -> Vec<Rule> {
    let (m, nesterov) = (sgd.momentum, sgd.nesterov);
    if m == 0.0 {
        return Vec::new();
    }
    let toggled = Sgd { nesterov: !nesterov, ..sgd.clone() };
    let text = if nesterov { "without Nesterov's momentum" } else { "with Nesterov's momentum" };
    vec![
        Rule::with(format!("momentum were {text}"), &Optimizer::Sgd(toggled)),
        // torch.optim.SGD dampens all steps but the first.
        Rule::written(format!("gradients were dampened by {m} in the momentum"), 1, move |at| {
            let d = at.gradient + at.weight_decay * at.parameter;
            let share = at.update.greater(1.5).select(at.update.number(1.0 - m), 1.0);
            let v = m * at.slots[0] + share * d;
            vec![at.parameter - at.learning_rate * v, v]
        }),
        Rule::written(
            format!("the momentum were an average: {m} of itself and {} of the gradient", short(1.0 - m)),
            1,
            move |at| {
                let d = at.gradient + at.weight_decay * at.parameter;
                let v = m * at.slots[0] + (1.0 - m) * d;
                vec![at.parameter - at.learning_rate * v, v]
            },
        ),
        Rule::written("the momentum contained the learning rate (v = m*v + lr*g)", 1, move |at| {
            let d = at.gradient + at.weight_decay * at.parameter;
            let v = m * at.slots[0] + at.learning_rate * d;
            let step = if nesterov { at.learning_rate * d + m * v } else { v };
            vec![at.parameter - step, v]
        }),
        Rule::written("there were no momentum", 1, |at| {
            let d = at.gradient + at.weight_decay * at.parameter;
            vec![at.parameter - at.learning_rate * d, d]
        }),
        Rule::written("weight decay were apart from the gradient and its momentum (as in AdamW)", 1, move |at| {
            let v = m * at.slots[0] + at.gradient;
            let direction = if nesterov { at.gradient + m * v } else { v };
            vec![at.parameter * (1.0 - at.learning_rate * at.weight_decay) - at.learning_rate * direction, v]
        }),
    ]
}

/// The place of weight decay.
#[derive(Clone, Copy, PartialEq)]
enum Decay {
    InGradient,
    Apart,
}

/// Other forms of Adam and AdamW.
fn of_moments([beta1, beta2, eps]: [f64; 3], same: &dyn Fn(f64, f64, f64) -> Optimizer, decay: Decay) -> Vec<Rule> {
    let mut rules = Vec::new();
    for other in [0.99, 0.999, 0.95, 0.98, 0.9].into_iter().filter(|other| *other != beta2) {
        rules.push(Rule::with(format!("beta2 were {other}, not {beta2}"), &same(beta1, other, eps)));
    }
    for other in [0.9, 0.95, 0.5, 0.0].into_iter().filter(|other| *other != beta1) {
        rules.push(Rule::with(format!("beta1 were {other}, not {beta1}"), &same(other, beta2, eps)));
    }
    if beta1 != beta2 {
        rules.push(Rule::with("beta1 and beta2 were exchanged", &same(beta2, beta1, eps)));
    }
    for other in [1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 1e-12].into_iter().filter(|other| *other != eps) {
        rules.push(Rule::with(format!("eps were {other:e}, not {eps:e}"), &same(beta1, beta2, other)));
    }
    let places: [(&str, Place); 4] = [
        ("eps were added inside the root", Place::Inside),
        (
            "eps were added to the root before the correction of its bias (TensorFlow's and MindSpore's form)",
            Place::Uncorrected,
        ),
        ("the bias of the moments were not corrected", Place::NoCorrection),
        ("weight decay were not multiplied by the learning rate", Place::DecayAlone),
    ];
    for (text, place) in places {
        if place == Place::DecayAlone && decay == Decay::InGradient {
            continue;
        }
        rules.push(Rule::written(text, 2, move |at| moments([beta1, beta2, eps], decay, place, &at)));
    }
    rules
}

/// What is different in Adam's formula.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Inside,
    Uncorrected,
    NoCorrection,
    DecayAlone,
}

fn moments<'f>(
    [beta1, beta2, eps]: [f64; 3],
    decay: Decay,
    place: Place,
    at: &UpdateOperands<'f>,
) -> Vec<Expression<'f>> {
    let d = match decay {
        Decay::InGradient => at.gradient + at.weight_decay * at.parameter,
        Decay::Apart => at.gradient + 0.0,
    };
    let kept = match (decay, place) {
        (Decay::InGradient, _) => at.parameter + 0.0,
        (Decay::Apart, Place::DecayAlone) => at.parameter * (1.0 - at.weight_decay),
        (Decay::Apart, _) => at.parameter * (1.0 - at.learning_rate * at.weight_decay),
    };
    let first = beta1 * at.slots[0] + (1.0 - beta1) * d;
    let second = beta2 * at.slots[1] + (1.0 - beta2) * d * d;
    let [c1, c2] = [beta1, beta2].map(|beta| 1.0 - at.update.number(beta).pow(at.update));
    let step = match place {
        Place::Inside => first / c1 / (second / c2 + eps).sqrt(),
        Place::Uncorrected => c2.sqrt() / c1 * first / (second.sqrt() + eps),
        Place::NoCorrection => first / (second.sqrt() + eps),
        Place::DecayAlone => first / c1 / (second.sqrt() / c2.sqrt() + eps),
    };
    vec![kept - at.learning_rate * step, first, second]
}
