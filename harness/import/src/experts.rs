//! Mixtures of experts: the largest scores of each token, its rows by expert, products of groups of rows with a matrix
//! of their own, and the weighted sum of their results. The steps are one layer of a recipe, so that they are put
//! together here, by what each computes of the choices.

use zoo_recipe::Layer;
use zoo_recipe::layers::{ExpertActivation, ExpertWeights, Experts};
use zoo_recipe::schema::Size;

use crate::Refusal;
use crate::arguments::{At, wrapped};
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::operation::{Operation, Tensor, Unit, What};
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

pub(crate) const EXPERTS: &str = "`experts` takes the largest scores of each token, computes gated layers of its rows by expert, \
                       and adds their results with weights";

/// What is computed of the choices of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Routed {
    choice: Choice,
    part: Part,
}

/// Which experts a token uses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    /// Scores, `[n, tokens, experts]`.
    scores: Tensor,
    experts: usize,
    top: usize,
}

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weighting {
    /// `None` while they are scores.
    weights: Option<ExpertWeights>,
    normalize: bool,
    scale: f64,
}

/// A tensor of the computation. A *choice* is one of the `top` experts of a token.
#[derive(Clone, Debug)]
enum Part {
    /// The weights of all choices, `[tokens, top]` or in one axis.
    Weights(Weighting),
    /// Their sums by token.
    Sums,
    /// The numbers of the experts, in the same order.
    Numbers,
    /// The same sorted.
    Sorted,
    /// The order of choices that sorts them.
    Order,
    /// Its inverse.
    Inverse,
    /// Room for it.
    Room,
    /// The token of each sorted choice.
    Tokens,
    /// The weight of each sorted choice.
    SortedWeights(Weighting),
    /// By sorted choice, 1 at its expert.
    OneHot,
    /// Number of choices of each expert.
    Counts,
    /// Where the sorted choices of each expert end.
    Ends,
    /// The rows of the tokens of sorted choices, and what experts make of them.
    Rows(Rows),
}

/// Rows of sorted choices.
#[derive(Clone, Debug)]
struct Rows {
    /// The tokens, `[n, tokens, width]`.
    of: Tensor,
    step: Step,
}

/// The matrices of experts, and the activation between them.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    first: String,
    activation: ExpertActivation,
    second: String,
}

/// How far an expert has come.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// The rows themselves.
    Given,
    /// Both halves of the first product, with this parameter.
    Both(String),
    /// The first half.
    Gate(String),
    /// The second half.
    Up(String),
    /// The activation of the first half.
    Active(String, ExpertActivation),
    /// Times the second half.
    Hidden(String, ExpertActivation),
    /// The second product.
    Result(Made),
    /// Times the weights.
    Weighted(Made, Weighting),
    /// The same in the order of tokens, perhaps with an axis for the choices of each.
    ByToken(Made, Weighting),
}

/// Whether a call sorts from the largest to the smallest.
fn descends(at: &mut At<'_>) -> bool {
    at.argument(2, &["descending"]) == Some(&Argument::Bool(true))
}

impl Reader<'_> {
    fn routed(&self, argument: Option<&Argument>) -> Option<&Routed> {
        match self.computed(argument)? {
            Computed::Routed(routed) => Some(routed),
            _ => None,
        }
    }

    /// A tensor `[n, tokens, ..]` whose samples and tokens may be one axis.
    fn of_tokens(&self, argument: Option<&Argument>) -> Option<Tensor> {
        let Some(Seen::Of(base, views)) = self.given(argument) else { return None };
        let [n, t, last] = self.shape_of(*base) else { return None };
        match &views[..] {
            [] => Some(*base),
            [View::Reshape(to)] if to == &[n * t, *last] => Some(*base),
            _ => None,
        }
    }

    /// The unnamed layer that gives a tensor, and its operand.
    fn layer_before(&self, at: &At<'_>, tensor: Tensor) -> Option<(&'static str, Tensor)> {
        at.units.iter().rev().find_map(|unit| match unit {
            Unit::Operation(Operation { what: What::Layer(word), operands, result, name: None, .. }) => {
                (*result == tensor).then_some((word.tag, *operands.first()?))
            }
            Unit::Operation(_) | Unit::Module(_) => None,
        })
    }

    /// The scores that weights of experts are made of, and how.
    fn weights_of(&self, at: &At<'_>, tensor: Tensor) -> (Tensor, Option<ExpertWeights>) {
        match self.layer_before(at, tensor) {
            Some(("softmax", scores)) => (scores, Some(ExpertWeights::Softmax)),
            Some(("sigmoid", scores)) => (scores, Some(ExpertWeights::Sigmoid)),
            Some(_) | None => (tensor, None),
        }
    }

    /// The largest elements of each row: the choices of a mixture of experts.
    pub(crate) fn top_k(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let refuse = |at: &At<'_>| Err(at.refuse("it takes the largest elements of rows", EXPERTS));
        let Some(tensor) = self.of_tokens(input) else { return refuse(at) };
        let experts = self.shape_of(tensor).last().copied().unwrap_or(0);
        let rank = input.and_then(|input| self.shape(input.value()?)).map_or(0, |shape| shape.len());
        let top = at.size(1, "k", None)?;
        let axis = at.argument(2, &["dim"]).map_or(Some(-1), Argument::int).and_then(|axis| wrapped(axis, rank));
        let largest = at.flag(3, "largest", true)?;
        at.flag(4, "sorted", true)?;
        if axis != rank.checked_sub(1) || !largest || top == 0 || top > experts {
            return refuse(at);
        }
        let (scores, weights) = self.weights_of(at, tensor);
        let choice = Choice { scores, experts, top };
        let weights = Part::Weights(Weighting { weights, normalize: false, scale: 1.0 });
        for (made, part) in at.call.outputs.values().zip([weights, Part::Numbers]) {
            let routed = Routed { choice, part };
            self.is(made.value, Seen::Computed(Box::new(Computed::Routed(routed))));
        }
        Ok(())
    }

    /// A function of choices; `None` if none is among the operands.
    pub(crate) fn of_choices(&mut self, at: &mut At<'_>, function: &str) -> Result<Option<()>, Refusal> {
        if let Some(()) = self.matrices(at, function) {
            return Ok(Some(()));
        }
        let operands: Vec<Option<&Argument>> = at.call.args.iter().chain(at.call.kwargs.values()).map(Some).collect();
        let Some(choice) = operands.iter().find_map(|operand| Some(self.routed(*operand)?.choice)) else {
            return Ok(None);
        };
        let others = operands.iter().filter_map(|operand| self.routed(*operand));
        if !others.into_iter().all(|other| other.choice == choice) {
            return Err(at.refuse("it combines the choices of several mixtures of experts", EXPERTS));
        }
        self.check_types(at)?;
        at.told_by_the_result();
        match self.next_part(at, function, &operands, choice)? {
            Some(()) => Ok(Some(())),
            None => {
                let what = format!("it computes `{function}` of the choices of experts, in a form that is not known");
                Err(at.refuse(what, EXPERTS))
            }
        }
    }

    /// The matrices of experts, `[experts, outputs, inputs]`, transposed.
    fn matrices(&mut self, at: &mut At<'_>, function: &str) -> Option<()> {
        let Some(Argument::Parameter(name)) = at.call.args.first() else { return None };
        let shape = self.trace.shape(name);
        let made = at.call.outputs.values().next()?;
        let &[experts, outputs, inputs] = shape else { return None };
        let is_transposed = matches!(function, "transpose" | "mT" | "permute" | "swapaxes" | "swapdims");
        if !is_transposed || outputs == inputs && function == "permute" || made.shape != [experts, inputs, outputs] {
            return None;
        }
        let axes: Vec<i64> = at.call.args[1..].iter().filter_map(Argument::int).collect();
        let last = [-1, -2, 1, 2];
        if function != "mT" && function != "permute" && !axes.iter().all(|axis| last.contains(axis)) {
            return None;
        }
        let matrices = Computed::Matrices(name.clone());
        self.is(made.value, Seen::Computed(Box::new(matrices)));
        Some(())
    }

    fn next_part(
        &mut self,
        at: &mut At<'_>,
        function: &str,
        operands: &[Option<&Argument>],
        choice: Choice,
    ) -> Result<Option<()>, Refusal> {
        let [first, second] = [0, 1].map(|place| operands.get(place).copied().flatten());
        let part = |argument| self.routed(argument).map(|routed| routed.part.clone());
        let number = |argument: Option<&Argument>| argument.and_then(Argument::number);
        let keyword = |name: &str| at.call.kwargs.get(name);
        let made = at.made()?.shape.clone();
        let choices = self.choices(&choice);
        let is_flat = made == [choices];
        let along = |at: &mut At<'_>, place: usize, rank: usize| match at.argument(place, &["dim"]) {
            None => Some(rank.saturating_sub(1)),
            Some(axis) => axis.int().and_then(|axis| wrapped(axis, rank)),
        };
        let next = match (function, part(first), part(second)) {
            ("to" | "float" | "double" | "type_as" | "int" | "long" | "contiguous" | "clone", Some(same), _) => same,
            ("div" | "__truediv__", Some(Part::Weights(weighting)), Some(Part::Sums)) if weighting.scale == 1.0 => {
                Part::Weights(Weighting { normalize: true, ..weighting })
            }
            ("mul" | "__mul__", Some(Part::Weights(weighting)), None) if let Some(by) = number(second) => {
                Part::Weights(Weighting { scale: weighting.scale * by, ..weighting })
            }
            // The softmax of the largest scores is that of all, divided by the sum of the largest.
            ("softmax", Some(Part::Weights(Weighting { weights: None, scale, .. })), _)
                if made.len() == 2 && scale == 1.0 && along(at, 1, 2) == Some(1) =>
            {
                Part::Weights(Weighting { weights: Some(ExpertWeights::Softmax), normalize: true, scale })
            }
            ("sum", Some(Part::Weights(_)), _) if made == [choices / choice.top, 1] => Part::Sums,
            ("gather", None, _) => {
                let numbers = operands.iter().any(|operand| matches!(part(*operand), Some(Part::Numbers)));
                let of_rows = numbers && along(at, 1, 2) == Some(1);
                let Some(tensor) = self.of_tokens(first).filter(|_| of_rows) else { return Ok(None) };
                let (scores, weights) = self.weights_of(at, tensor);
                if scores != choice.scores {
                    return Ok(None);
                }
                Part::Weights(Weighting { weights, normalize: false, scale: 1.0 })
            }
            ("reshape" | "view" | "flatten", Some(same @ (Part::Weights(_) | Part::Numbers)), _) if is_flat => same,
            ("reshape" | "view" | "unsqueeze", Some(same @ Part::SortedWeights(_)), _) => same,
            ("sort" | "argsort", Some(Part::Numbers | Part::Order), _) if descends(at) => return Ok(None),
            ("sort" | "argsort", Some(Part::Numbers), _) => {
                let parts = if function == "sort" { vec![Part::Sorted, Part::Order] } else { vec![Part::Order] };
                for (made, part) in at.call.outputs.values().zip(parts) {
                    let routed = Routed { choice, part };
                    self.is(made.value, Seen::Computed(Box::new(Computed::Routed(routed))));
                }
                return Ok(Some(()));
            }
            ("argsort", Some(Part::Order), _) => Part::Inverse,
            ("empty_like" | "zeros_like", Some(Part::Order), _) => Part::Room,
            // The places of sorted choices are written where they come from.
            ("__setitem__", Some(Part::Room), Some(Part::Order)) if self.are_places(at.call.args.get(2)) => {
                Part::Inverse
            }
            ("__floordiv__" | "floor_divide" | "div", Some(Part::Order), None) => {
                match number(second).or_else(|| number(keyword("other"))) {
                    Some(by) if by == choice.top as f64 => Part::Tokens,
                    _ => return Ok(None),
                }
            }
            ("__getitem__", Some(Part::Weights(weighting)), Some(Part::Order)) => Part::SortedWeights(weighting),
            ("__getitem__", Some(same @ Part::SortedWeights(_)), None) if made == [choices, 1] => same,
            ("__getitem__", Some(Part::Numbers), Some(Part::Order)) => Part::Sorted,
            ("__getitem__" | "index_select", None, _) => {
                let tokens = operands.iter().any(|operand| matches!(part(*operand), Some(Part::Tokens)));
                let Some(of) = self.of_tokens(first).filter(|_| tokens) else { return Ok(None) };
                Part::Rows(Rows { of, step: Step::Given })
            }
            ("bincount", Some(Part::Sorted | Part::Numbers), _) if made == [choice.experts] => Part::Counts,
            ("histc", Some(Part::Sorted | Part::Numbers), _) if made == [choice.experts] => {
                let limits = [at.float(2, "min", 0.0)?, at.float(3, "max", 0.0)?];
                if limits != [0.0, (choice.experts - 1) as f64] {
                    return Ok(None);
                }
                Part::Counts
            }
            ("one_hot", Some(Part::Sorted), _) if made == [choices, choice.experts] => Part::OneHot,
            ("sum", Some(Part::OneHot), _) if made == [choice.experts] => Part::Counts,
            ("cumsum", Some(Part::Counts), _) => Part::Ends,
            (_, Some(Part::Rows(rows)), other) => return self.next_rows(at, function, rows, other, choice),
            ("mul" | "__mul__", Some(weights @ Part::SortedWeights(_)), Some(Part::Rows(rows))) => {
                return self.next_rows(at, function, rows, Some(weights), choice);
            }
            ("index_add", _, _) if at.float(4, "alpha", 1.0)? == 1.0 && at.size(1, "dim", None)? == 0 => {
                let rows = operands.iter().find_map(|operand| match part(*operand) {
                    Some(Part::Rows(rows)) => Some(rows),
                    _ => None,
                });
                let tokens = operands.iter().any(|operand| matches!(part(*operand), Some(Part::Tokens)));
                let zeros =
                    first.and_then(|first| self.trace.constant(first)).is_some_and(|it| it.values().all(|x| x == 0.0));
                return match rows {
                    Some(Rows { of, step: Step::Weighted(made, weighting) }) if tokens && zeros => {
                        self.mixed(at, of, (made, weighting), choice)
                    }
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        self.is_computed(at, Computed::Routed(Routed { choice, part: next })).map(Some)
    }

    /// Whether an argument is 0, 1, 2 and so on: a constant, or one that depends on the number of samples.
    fn are_places(&self, argument: Option<&Argument>) -> bool {
        let constant = argument.and_then(|argument| self.trace.constant(argument));
        let counts = |values: &Constant| values.values().eq((0..values.len()).map(|n| n as f64));
        matches!(argument, Some(Argument::Batch(_))) || constant.is_some_and(counts)
    }

    /// Number of choices of all tokens.
    fn choices(&self, choice: &Choice) -> usize {
        let scores = self.shape_of(choice.scores);
        scores.iter().rev().skip(1).product::<usize>() * choice.top
    }

    /// A function of rows of sorted choices, and perhaps another part.
    fn next_rows(
        &mut self,
        at: &mut At<'_>,
        function: &str,
        rows: Rows,
        other: Option<Part>,
        choice: Choice,
    ) -> Result<Option<()>, Refusal> {
        let Rows { of, step } = rows;
        let made = at.made()?.shape.clone();
        let choices = self.choices(&choice);
        let matrix = at.call.args.get(1).and_then(|argument| match self.computed(Some(argument))? {
            Computed::Matrices(name) => Some(name.clone()),
            _ => None,
        });
        let by_groups = at.call.args.iter().chain(at.call.kwargs.values());
        let by_groups = by_groups.filter_map(|argument| self.routed(Some(argument)));
        let has_ends = by_groups.into_iter().any(|routed| matches!(routed.part, Part::Ends));
        let activation = match function {
            "silu" => Some(ExpertActivation::Silu),
            "relu" => Some(ExpertActivation::Relu),
            "gelu" => match at.call.args.get(1).or_else(|| at.call.kwargs.get("approximate")) {
                Some(Argument::Text(text)) if text == "tanh" => Some(ExpertActivation::GeluTanh),
                _ => Some(ExpertActivation::Gelu),
            },
            _ => None,
        };
        let step = match (function, step, other) {
            ("to" | "float" | "type_as" | "contiguous", step, _) => step,
            ("grouped_mm" | "_grouped_mm", step, _) if has_ends => match (step, matrix) {
                (Step::Given, Some(first)) => Step::Both(first),
                (Step::Hidden(first, activation), Some(second)) => Step::Result(Made { first, activation, second }),
                _ => return Ok(None),
            },
            ("chunk" | "split", Step::Both(name), _) => {
                let outputs: Vec<_> = at.call.outputs.values().map(|made| (made.value, made.shape.clone())).collect();
                let [(gate, half), (up, other_half)] = &outputs[..] else { return Ok(None) };
                if half != other_half || half.first() != Some(&choices) {
                    return Ok(None);
                }
                for (value, step) in [(*gate, Step::Gate(name.clone())), (*up, Step::Up(name))] {
                    let part = Part::Rows(Rows { of, step });
                    let routed = Routed { choice, part };
                    self.is(value, Seen::Computed(Box::new(Computed::Routed(routed))));
                }
                return Ok(Some(()));
            }
            (_, Step::Gate(name), None) if let Some(activation) = activation => Step::Active(name, activation),
            (
                "mul" | "__mul__",
                Step::Active(name, activation),
                Some(Part::Rows(Rows { step: Step::Up(other), .. })),
            )
            | (
                "mul" | "__mul__",
                Step::Up(other),
                Some(Part::Rows(Rows { step: Step::Active(name, activation), .. })),
            ) if name == other => Step::Hidden(name, activation),
            ("mul" | "__mul__", Step::Result(made), Some(Part::SortedWeights(weighting))) => {
                Step::Weighted(made, weighting)
            }
            ("mul" | "__mul__", Step::Weighted(made, weighting), None)
                if let Some(by) = at.call.args.get(1).and_then(Argument::number) =>
            {
                Step::Weighted(made, Weighting { scale: weighting.scale * by, ..weighting })
            }
            ("__getitem__", Step::Weighted(made, weighting), Some(Part::Inverse)) => Step::ByToken(made, weighting),
            ("view" | "reshape", step @ Step::ByToken(..), _)
                if made.len() == 3 && made[0] * made[1] == choices && made[1] == choice.top =>
            {
                step
            }
            ("sum", Step::ByToken(experts, weighting), _) if made.len() == 2 => {
                return self.mixed(at, of, (experts, weighting), choice);
            }
            _ => return Ok(None),
        };
        let routed = Routed { choice, part: Part::Rows(Rows { of, step }) };
        self.is_computed(at, Computed::Routed(routed)).map(Some)
    }

    /// The layer.
    fn mixed(
        &mut self,
        at: &mut At<'_>,
        x: Tensor,
        (Made { first, activation, second }, weighting): (Made, Weighting),
        choice: Choice,
    ) -> Result<Option<()>, Refusal> {
        let owner =
            first.strip_suffix(".gate_up_proj").filter(|owner| second.strip_suffix(".down_proj") == Some(owner));
        let (&[experts, both, width], Some(owner), Some(weights)) =
            (self.trace.shape(&first), owner.map(str::to_owned), weighting.weights)
        else {
            return Err(at.refuse(
                "the weights of experts are other parameters than `gate_up_proj` and `down_proj`, or are scores",
                EXPERTS,
            ));
        };
        let (hidden, shape) = (both / 2, self.shape_of(x).to_vec());
        let fits = self.trace.shape(&second) == [experts, width, hidden] && shape.last() == Some(&width);
        if !fits || experts != choice.experts {
            return Ok(None);
        }
        let layer = Experts {
            scores: String::new(),
            top: Size(choice.top),
            hidden: Size(hidden),
            weights,
            normalize: weighting.normalize,
            scale: weighting.scale,
            bias: None,
            capacity: None,
            activation,
            init: Default::default(),
        };
        let joined = at.made()?.shape.clone();
        let views = if joined == shape { Vec::new() } else { vec![View::Reshape(joined)] };
        let what = What::Layer(Word::of(&Layer::Experts(layer)));
        self.gives_viewed(at, what, vec![x, choice.scores], Some(owner), shape, views).map(Some)
    }
}
