//! Products of tensors: those of an attention are put together in `scores`, all others are the layer `matmul`.

use zoo_recipe::Layer;
use zoo_recipe::layers::{Dropout, Matmul, Scale, Softmax, Tanh};

use crate::Refusal;
use crate::arguments::At;
use crate::operation::{Tensor, Unit, What};
use crate::reader::{Reader, Seen};
use crate::scores::Scores;
use crate::trace::Argument;
use crate::view::{self, View};
use crate::word::Word;

/// Letters of axes that both factors have.
const SHARED: &str = "hgfebca";

/// A factor of a product, `[n, ..]`, with a letter for each axis beside the samples.
struct Factor {
    of: Tensor,
    views: Vec<View>,
    axes: Vec<char>,
}

/// Where something is computed, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    pub module: &'p str,
    pub at: &'p str,
    pub operator: &'p str,
}

/// What a product sums over, and what it keeps.
pub(crate) const EINSUM: &str = "`matmul` multiplies two values of samples, and sums over the axes that both have";

impl Reader<'_> {
    /// An argument as a view of the result of an operation; what is one axis with the samples becomes an axis again.
    fn with_samples(&mut self, at: &mut At<'_>, argument: Option<&Argument>) -> Result<(Tensor, Vec<View>), Refusal> {
        let (of, mut views) = match self.given(argument) {
            Some(Seen::Of(of, views)) => (*of, views.clone()),
            _ => match (argument, self.given(argument)) {
                (Some(Argument::Parameter(name)), _) => {
                    let (name, to, line) = (name.clone(), self.trace.shape(name).to_vec(), at.call.at.clone());
                    (self.parameter_as_tensor(&name, &to, at.units, &line), Vec::new())
                }
                (_, Some(Seen::Reshaped(name, to))) => {
                    let (name, to, line) = (name.clone(), to.clone(), at.call.at.clone());
                    (self.parameter_as_tensor(&name, &to, at.units, &line), Vec::new())
                }
                _ => (self.operand(at, argument)?, Vec::new()),
            },
        };
        let (shape, n) = (view::shape(self.shape_of(of), &views), self.trace.batch);
        match shape.split_first() {
            Some((samples, _)) if *samples == n => {}
            Some((joined, rest)) if joined.is_multiple_of(n) => {
                views.push(View::Reshape([&[n, joined / n], rest].concat()));
            }
            _ => {
                return Err(
                    at.refuse(format!("it multiplies {shape:?}, of which the first axis is no samples"), EINSUM)
                );
            }
        }
        Ok((of, view::simplified(self.shape_of(of), &views)))
    }

    /// PyTorch's matmul: matrices along leading axes, which broadcast.
    pub(crate) fn multiplied(&mut self, at: &mut At<'_>, operands: [Option<&Argument>; 2]) -> Result<(), Refusal> {
        let [first, second] = [self.with_samples(at, operands[0])?, self.with_samples(at, operands[1])?];
        let shapes = [&first, &second].map(|(of, views)| view::shape(self.shape_of(*of), views));
        let rank = shapes[0].len();
        // A matrix for all heads, as a parameter is.
        let mut shapes = shapes;
        let mut second = second;
        if let [_, rows, columns] = shapes[1][..]
            && rank > 3
        {
            shapes[1] = [&[shapes[1][0]], &vec![1; rank - 3][..], &[rows, columns]].concat();
            second.1.push(View::Reshape(shapes[1].clone()));
        }
        if rank < 3 || rank != shapes[1].len() || rank - 3 > SHARED.len() {
            let [first, second] = shapes;
            return Err(at.refuse(format!("it multiplies matrices {first:?} and {second:?}"), EINSUM));
        }
        let letters: Vec<char> = SHARED.chars().take(rank - 3).collect();
        let mut factors = [(first, ['i', 'd']), (second, ['d', 'j'])].map(|((of, views), own)| Factor {
            of,
            views,
            axes: [&letters[..], &own].concat(),
        });
        // An axis of one element that the other factor has more of is taken away.
        for (place, letter) in letters.iter().enumerate().rev() {
            let own = [shapes[0][place + 1], shapes[1][place + 1]];
            for (factor, extents) in factors.iter_mut().zip([own, [own[1], own[0]]]) {
                if extents[0] == 1 && extents[1] > 1 {
                    factor.views.push(View::Select(place + 1, 0));
                    factor.axes.retain(|axis| axis != letter);
                }
            }
        }
        for factor in &mut factors {
            factor.views = view::simplified(self.shape_of(factor.of), &factor.views);
        }
        let result = [&letters[..], &['i', 'j']].concat();
        self.product_of(at, factors, &result)
    }

    /// Rows `[n, .., d]` times a matrix `[n, d, j]`.
    pub(crate) fn rows_times(
        &mut self,
        at: &mut At<'_>,
        (x, views): (Tensor, Vec<View>),
        (matrix, others): (Tensor, Vec<View>),
    ) -> Result<(), Refusal> {
        let rank = view::shape(self.shape_of(x), &views).len();
        let letters: Vec<char> = SHARED.chars().take(rank.saturating_sub(2)).collect();
        if rank < 2 || letters.len() + 2 != rank {
            return Err(at.refuse("it multiplies a tensor of too many axes by a matrix", EINSUM));
        }
        let rows = Factor { of: x, views, axes: [&letters[..], &['d']].concat() };
        let matrix = Factor { of: matrix, views: others, axes: vec!['d', 'j'] };
        self.product_of(at, [rows, matrix], &[&letters[..], &['j']].concat())
    }

    /// PyTorch's einsum of two tensors.
    pub(crate) fn einsum(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let text = match at.argument(0, &["equation"]) {
            Some(Argument::Text(text)) => text.replace(' ', ""),
            _ => return Err(at.unknown_form("equation")),
        };
        let (first, second) = match (at.argument(1, &["operands"]), at.argument(2, &[])) {
            (Some(Argument::List(operands)), None) => match &operands[..] {
                [first, second] => (Some(first), Some(second)),
                _ => return Err(at.refuse(format!("`{text}` has {} factors", operands.len()), EINSUM)),
            },
            (first @ Some(_), second @ Some(_)) if at.argument(3, &[]).is_none() => (first, second),
            _ => return Err(at.refuse(format!("`{text}` has another number of factors than two"), EINSUM)),
        };
        let axes = |part: &str| part.chars().collect::<Vec<char>>();
        let (factors, result) = text.split_once("->").unwrap_or((&text, ""));
        let Some((own, others)) = factors.split_once(',').map(|(own, others)| (axes(own), axes(others))) else {
            return Err(at.unknown_form("equation"));
        };
        let mut result = axes(result);
        if !text.contains("->") {
            // Those that only one factor has, in their order.
            let both = |axis: &char| own.contains(axis) && others.contains(axis);
            result = own.iter().chain(&others).filter(|axis| !both(axis)).copied().collect();
            result.sort_unstable();
        }
        let known = |axes: &[char]| axes.iter().all(char::is_ascii_alphabetic) && axes.first() == result.first();
        if !known(&own) || !known(&others) || result.is_empty() {
            return Err(at.refuse(format!("`{text}` does not begin with samples in each value"), EINSUM));
        }
        let mut factors = Vec::new();
        for (argument, axes) in [(first, &own), (second, &others)] {
            let (of, views) = match self.given(argument) {
                Some(Seen::Of(of, views)) => (*of, views.clone()),
                _ => (self.operand(at, argument)?, Vec::new()),
            };
            let shape = view::shape(self.shape_of(of), &views);
            if shape.first() != Some(&self.trace.batch) || shape.len() != axes.len() {
                return Err(at.refuse(format!("`{text}` of a tensor {shape:?}"), EINSUM));
            }
            factors.push(Factor { of, views, axes: axes[1..].to_vec() });
        }
        let Ok(factors) = <[Factor; 2]>::try_from(factors) else { return Err(at.unknown_form("operands")) };
        self.product_of(at, factors, &result[1..])
    }

    /// The result of a call is a product.
    fn product_of(&mut self, at: &mut At<'_>, factors: [Factor; 2], result: &[char]) -> Result<(), Refusal> {
        let made = at.made()?;
        let is_lost = |own: &Factor, other: &Factor| {
            own.axes.iter().any(|axis| !result.contains(axis) && !other.axes.contains(axis))
        };
        if is_lost(&factors[0], &factors[1]) || is_lost(&factors[1], &factors[0]) {
            return Err(at.refuse("it sums over an axis of one factor alone", EINSUM));
        }
        let place = Place { module: at.module, at: &at.call.at, operator: &at.call.function };
        let product = self.matmul(place, factors, result, at.units)?;
        let shape = self.shape_of(product);
        if shape.iter().product::<usize>() != made.shape.iter().product::<usize>() {
            return Err(at.unknown_form("other"));
        }
        let views = if *shape == made.shape { Vec::new() } else { vec![View::Reshape(made.shape.clone())] };
        self.is(made.value, Seen::Of(product, views));
        Ok(())
    }

    /// The layer, of axes with letters.
    fn matmul(
        &mut self,
        place: Place<'_>,
        mut factors: [Factor; 2],
        result: &[char],
        units: &mut Vec<Unit>,
    ) -> Result<Tensor, Refusal> {
        let mut shape = vec![0; result.len()];
        for factor in &factors {
            let own = view::shape(self.shape_of(factor.of), &factor.views);
            for (axis, extent) in factor.axes.iter().zip(&own[1..]) {
                result
                    .iter()
                    .zip(&mut shape)
                    .filter(|(other, _)| *other == axis)
                    .for_each(|(_, known)| *known = *extent);
            }
        }
        shape.insert(0, self.trace.batch);
        // The order of axes is a matter of letters.
        for factor in &mut factors {
            while let Some((View::Permute(order), before)) = factor.views.split_last()
                && order.first() == Some(&0)
                && !is_tokens(self.shape_of(factor.of), &factor.views)
            {
                let mut axes = factor.axes.clone();
                order[1..].iter().zip(&factor.axes).for_each(|(place, axis)| axes[place - 1] = *axis);
                (factor.axes, factor.views) = (axes, before.to_vec());
            }
        }
        let [a, b] = factors;
        let text = |axes: &[char]| axes.iter().collect::<String>();
        let axes = format!("{},{}->{}", text(&a.axes), text(&b.axes), text(result));
        let what = What::Layer(Word::of(&Layer::Matmul(Matmul { with: String::new(), axes })));
        let mut operands = Vec::new();
        let is_one = (a.of, &a.views) == (b.of, &b.views);
        for factor in [Some(a), Some(b).filter(|_| !is_one)].into_iter().flatten() {
            let value = self.new_value(Seen::Of(factor.of, factor.views));
            operands.push(self.tensor(value, place.module, place.at, place.operator, units)?);
        }
        operands.extend(operands.first().copied().filter(|_| is_one));
        Ok(self.push(units, what, operands, shape, place.at))
    }

    /// The scores of an attention as a tensor, if they are those of no attention after all.
    pub(crate) fn scores_as_tensor(
        &mut self,
        scores: &Scores,
        place: Place<'_>,
        units: &mut Vec<Unit>,
    ) -> Result<Option<Seen>, Refusal> {
        if !scores.is_plain() {
            return Ok(None);
        }
        let [mut queries, mut keys] = [scores.queries.clone(), scores.keys.clone()];
        if scores.cosine.is_some() {
            for operand in [&mut queries, &mut keys] {
                let last = view::shape(self.shape_of(operand.0), &operand.1).len() - 1;
                let at = (place.module, place.at, place.operator);
                *operand = self.rows_of_length_one((operand.0, &operand.1, last), units, at)?;
            }
        }
        let [(q, of_q), (k, of_k)] = [queries, keys];
        let rank = view::shape(self.shape_of(q), &of_q).len();
        let letters: Vec<char> = SHARED.chars().take(rank.saturating_sub(3)).collect();
        let factor = |of, views, last: char| Factor { of, views, axes: [&letters[..], &[last, 'd']].concat() };
        let result = [&letters[..], &['i', 'j']].concat();
        let mut x = self.matmul(place, [factor(q, of_q, 'i'), factor(k, of_k, 'j')], &result, units)?;
        let shape = self.shape_of(x).to_vec();
        let scale = |by| Word::of(&Layer::Scale(Scale { by }));
        let mut words: Vec<Word> = Vec::new();
        words.extend(Some(scores.scale).filter(|by| *by != 1.0).map(scale));
        if let Some(bound) = scores.bounded {
            words.extend([Word::of(&Layer::Tanh(Tanh {})), scale(bound)]);
        }
        words.extend(scores.is_softmax.then(|| Word::of(&Layer::Softmax(Softmax {}))));
        let dropout = |rate| Word::of(&Layer::Dropout(Dropout { rate, channels: false }));
        words.extend(Some(scores.dropout).filter(|rate| *rate != 0.0).map(dropout));
        for word in words {
            x = self.push(units, What::Layer(word), vec![x], shape.clone(), place.at);
        }
        let views = if shape == scores.shape { Vec::new() } else { vec![View::Reshape(scores.shape.clone())] };
        Ok(Some(Seen::Of(x, views)))
    }
}

/// Whether views make tokens of maps, which have a layer of their own.
fn is_tokens(shape: &[usize], views: &[View]) -> bool {
    shape.len() == 4 && matches!(views, [View::Reshape(to), View::Permute(_)] if to.len() == 3)
}
