//! What a file holds beside the variables of a network: tensors that follow from others, and those of a training.

use candle_core::{DType, Tensor};
use std::collections::BTreeMap;

use super::naming::{Matched, Wanted, unwrapped};

/// PyTorch's batch counter of running statistics, which is only used by normalisations without momentum.
pub(super) const COUNTER: &str = "num_batches_tracked";

/// State that MindSpore stores beside the parameters, as a prefix of their names.
const SLOTS: [&str; 10] =
    ["moments", "moment1", "moment2", "adam_m", "adam_v", "accum", "stat", "ms", "mg", "accumulation"];
/// Numbers that trainings store beside the parameters.
const NUMBERS: [&str; 12] = [
    "learning_rate",
    "global_step",
    "epoch_num",
    "step_num",
    "momentum",
    "beta1_power",
    "beta2_power",
    "weight_decay",
    "loss_scale",
    "current_iterator_step",
    "last_overflow_iterator_step",
    "n_averaged",
];
/// Constants of modules that a recipe computes from its settings, and whose values are not compared.
const CONSTANTS: [&str; 9] = [
    "inv_freq",
    "masked_bias",
    "attn_mask",
    "relative_coords_table",
    "cos_cached",
    "sin_cached",
    "rope_cache",
    "freqs_cis",
    "token_type_ids",
];

/// What a tensor is that the network does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is equal to this variable.
    Tied(String),
    /// The network uses this variable in its place, and it is not equal.
    Untied(String),
    /// It is not needed.
    Ignored(&'static str),
    /// State of an optimizer that zoo stores.
    State,
    /// It belongs to something that the network does not have.
    Surplus,
}

/// What the tensor `name` is.
pub(super) fn meaning(name: &str, theirs: &BTreeMap<String, Tensor>, wanted: &Wanted, matched: &Matched) -> Meaning {
    if let Some((parameter, _)) = name.split_once('/')
        && theirs.contains_key(parameter)
    {
        return Meaning::State;
    }
    let Some(tensor) = theirs.get(name) else { return Meaning::Surplus };
    let file_name = |variable: &str| matched.names.iter().find(|(_, ours)| *ours == variable).map(|(name, _)| name);
    if let Some(variable) = matched.tied.get(name) {
        let other = file_name(variable).and_then(|name| theirs.get(name));
        return match other.is_some_and(|other| are_equal(tensor, other)) {
            true => Meaning::Tied(variable.clone()),
            false => Meaning::Untied(variable.clone()),
        };
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if last == COUNTER {
        return Meaning::Ignored("counters of batches");
    }
    if let Some(what) = constant(last, tensor) {
        return Meaning::Ignored(what);
    }
    if CONSTANTS.contains(&last) {
        return Meaning::Ignored("constants that are not compared");
    }
    if !name.contains('.') && tensor.elem_count() == 1 && NUMBERS.contains(&name) {
        return Meaning::Ignored("numbers of the training");
    }
    if let Some((slot, parameter)) = unwrapped(name).split_once('.')
        && SLOTS.contains(&slot)
        && matched.names.values().any(|variable| variable == parameter)
    {
        return Meaning::Ignored("state of the optimizer");
    }
    equal_variable(name, tensor, theirs, wanted, matched).map_or(Meaning::Surplus, Meaning::Tied)
}

/// A variable that is equal, bit by bit. A tensor of one value may be so by chance.
fn equal_variable(
    name: &str,
    tensor: &Tensor,
    theirs: &BTreeMap<String, Tensor>,
    wanted: &Wanted,
    matched: &Matched,
) -> Option<String> {
    let last = name.rsplit('.').next();
    let alike = |variable: &str| variable.rsplit('.').next() == last;
    let values = numbers(tensor)?;
    values.iter().any(|value| *value != values[0]).then_some(())?;
    let mut others = matched.names.iter().filter(|(_, variable)| {
        alike(variable) && wanted.variables.get(*variable).is_some_and(|shape| shape == tensor.dims())
    });
    others.find(|(name, _)| theirs.get(*name).is_some_and(|other| are_equal(tensor, other))).map(|(_, v)| v.clone())
}

fn numbers(tensor: &Tensor) -> Option<Vec<f32>> {
    tensor.to_dtype(DType::F32).ok()?.flatten_all().ok()?.to_vec1().ok()
}

fn are_equal(one: &Tensor, other: &Tensor) -> bool {
    let bits = |tensor| Some(numbers(tensor)?.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
    one.dims() == other.dims() && bits(one).is_some_and(|one| Some(one) == bits(other))
}

/// The constant that a buffer holds, by its name and its values.
fn constant(last: &str, tensor: &Tensor) -> Option<&'static str> {
    let found = match last {
        "bias" | "mask" | "causal_mask" | "tril" => is_causal(tensor).then_some("causal masks"),
        "position_ids" => is_range(tensor).then_some("positions in order"),
        "relative_position_index" => is_window(tensor).then_some("places of a window relative to each other"),
        _ => None,
    };
    found.filter(|_| tensor.elem_count() > 0)
}

/// `[.., T, T]` with ones on and below the diagonal and zeros above, or 1 and 0 exchanged.
fn is_causal(tensor: &Tensor) -> bool {
    let Some((rows, columns)) = square(tensor) else { return false };
    let Some(values) = numbers(tensor) else { return false };
    if columns < 2 || values.len() != rows * columns {
        return false;
    }
    let is = |below: f32, above: f32| {
        values
            .iter()
            .enumerate()
            .all(|(place, value)| *value == if place % columns <= place / columns { below } else { above })
    };
    is(1.0, 0.0) || is(0.0, 1.0)
}

/// The last two dimensions, if all others are one.
fn square(tensor: &Tensor) -> Option<(usize, usize)> {
    let [before @ .., rows, columns] = tensor.dims() else { return None };
    (rows == columns && before.iter().all(|extent| *extent == 1)).then_some((*rows, *columns))
}

/// 0, 1, 2, ...
fn is_range(tensor: &Tensor) -> bool {
    numbers(tensor).is_some_and(|values| values.iter().enumerate().all(|(place, value)| *value == place as f32))
}

/// The index of Swin into its table of biases, for a square window.
fn is_window(tensor: &Tensor) -> bool {
    let Some(values) = numbers(tensor) else { return false };
    let places = values.len().isqrt();
    let side = places.isqrt();
    if side * side != places || places * places != values.len() {
        return false;
    }
    let index = |one: usize, other: usize| {
        let row = one / side + side - 1 - other / side;
        let column = one % side + side - 1 - other % side;
        row * (2 * side - 1) + column
    };
    values.iter().enumerate().all(|(at, value)| *value == index(at / places, at % places) as f32)
}
