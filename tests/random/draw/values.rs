//! Layers on values of any shape: activations, arithmetic with taps, moves of elements; and initial values.

use super::{Draw, Drawing, Layers, settings};
use crate::tape::Tape;
use serde_json::{Map, Value, json};

pub(super) const LAYERS: &[(&str, Draw)] = &[
    ("relu", |d, x| plain(d, "relu", x)),
    ("relu6", |d, x| plain(d, "relu6", x)),
    ("sigmoid", |d, x| plain(d, "sigmoid", x)),
    ("silu", |d, x| plain(d, "silu", x)),
    ("hard_swish", |d, x| plain(d, "hard_swish", x)),
    ("hard_sigmoid", |d, x| plain(d, "hard_sigmoid", x)),
    ("mish", |d, x| plain(d, "mish", x)),
    ("tanh", |d, x| plain(d, "tanh", x)),
    ("softmax", |d, x| plain(d, "softmax", x)),
    ("leaky_relu", |d, x| with_number(d, "leaky_relu", "slope", [-0.2, 0.4], x)),
    ("elu", |d, x| with_number(d, "elu", "alpha", [0.3, 1.5], x)),
    ("gelu", gelu),
    ("scale", scale),
    ("map", map),
    ("slice", slice),
    ("take", take),
    ("roll", roll),
    ("cumsum", cumsum),
    ("permute", permute),
    ("reshape", reshape),
    ("flatten", flatten),
    ("linear", linear),
    ("layer_norm", layer_norm),
    ("group_norm", group_norm),
    ("instance_norm", instance_norm),
    ("rms_norm", rms_norm),
    ("prelu", prelu),
    ("bn", bn),
    ("layer_scale", layer_scale),
    ("add_parameter", add_parameter),
    ("dropout", |d, x| chance(d, "dropout", x)),
    ("drop_path", |d, x| chance(d, "drop_path", x)),
    ("add", |d, x| with_tap(d, "add", x)),
    ("subtract", |d, x| with_tap(d, "subtract", x)),
    ("mul", multiply),
    ("matmul", matmul),
    ("parameter", parameter),
    ("constant", constant),
    ("from", from),
];

fn plain(d: &mut Drawing<'_>, tag: &str, x: &[usize]) -> Option<Layers> {
    d.only(tag, Map::new(), x.to_vec())
}

fn with_number(d: &mut Drawing<'_>, tag: &str, key: &str, [low, high]: [f64; 2], x: &[usize]) -> Option<Layers> {
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert(key.to_owned(), json!(d.tape.number(low, high)));
    }
    d.only(tag, set, x.to_vec())
}

fn gelu(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let set = match d.tape.below(3) {
        0 => Map::new(),
        1 => settings([("approximate", json!("none"))]),
        _ => settings([("approximate", json!("tanh"))]),
    };
    d.only("gelu", set, x.to_vec())
}

fn scale(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let by = d.tape.number(-1.5, 1.5);
    d.only("scale", settings([("by", json!(by))]), x.to_vec())
}

/// Formulas of the current value, and of a tap `t` of the same shape.
const FORMULAS: [&str; 12] = [
    "x * sigmoid(1.702 * x)",
    "max(x, 0.1 * x) + 0.5",
    "1 - x",
    "x / (1 + abs(x))",
    "select(x > 0, x, expm1(min(x, 0)))",
    "softplus(x) - log(2)",
    "x * erf(x / 2) + sin(x) * cos(x)",
    "x - row_mean(x)",
    "tanh(x)^2 + sqrt(1 + x^2)",
    "log_softmax(x)",
    "rsqrt(1 + x * x) * x",
    "softmax(x) * row_max(x) + row_log_sum_exp(x) / 8 - row_sum(x) / 64",
];

fn map(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let formula = d.tape.of(&FORMULAS).to_owned();
    let tap = if d.tape.flag() { d.tapped(|shape| shape == x) } else { None };
    let formula = tap.map_or(formula.clone(), |tap| format!("({formula}) * 0.5 + {}", tap.name));
    Some((vec![json!({ "map": formula })], x.to_vec()))
}

fn slice(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let axis = d.tape.below(x.len());
    let size = d.tape.between(x[axis].div_ceil(2), x[axis]);
    let from = d.tape.between(0, x[axis] - size);
    let mut set = settings([("size", d.size(size))]);
    if axis > 0 || d.tape.flag() {
        set.insert("axis".to_owned(), json!(axis));
    }
    if from > 0 || d.tape.flag() {
        set.insert("from".to_owned(), json!(from));
    }
    let mut y = x.to_vec();
    y[axis] = size;
    d.only("slice", set, y)
}

fn take(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    (x.len() > 1).then_some(())?;
    let axis = d.tape.below(x.len());
    let mut set = settings([("index", json!(d.tape.below(x[axis])))]);
    if axis > 0 || d.tape.flag() {
        set.insert("axis".to_owned(), json!(axis));
    }
    let mut y = x.to_vec();
    y.remove(axis);
    d.only("take", set, y)
}

fn roll(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let by: Vec<i64> = (0..d.tape.between(1, x.len())).map(|_| d.tape.below(9) as i64 - 4).collect();
    d.only("roll", settings([("by", json!(by))]), x.to_vec())
}

fn cumsum(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let mut set = Map::new();
    let axis = d.tape.below(x.len());
    if axis > 0 || d.tape.flag() {
        set.insert("axis".to_owned(), json!(axis));
    }
    if d.tape.flag() {
        set.insert("reverse".to_owned(), json!(d.tape.flag()));
    }
    d.only("cumsum", set, x.to_vec())
}

fn permute(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    (x.len() > 1).then_some(())?;
    let mut rest: Vec<usize> = (0..x.len()).collect();
    let order: Vec<usize> = (0..x.len()).map(|_| rest.remove(d.tape.below(rest.len()))).collect();
    let y = order.iter().map(|axis| x[*axis]).collect();
    d.only("permute", settings([("order", json!(order))]), y)
}

fn reshape(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let numel: usize = x.iter().product();
    let first = d.tape.divisor(numel);
    let second = d.tape.divisor(numel / first);
    let y = match d.tape.below(3) {
        0 => vec![numel],
        1 => vec![first, numel / first],
        _ => vec![first, second, numel / first / second],
    };
    let to: Vec<Value> = y.iter().map(|extent| d.size(*extent)).collect();
    d.only("reshape", settings([("to", json!(to))]), y)
}

fn flatten(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.only("flatten", Map::new(), vec![x.iter().product()])
}

fn linear(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let inputs = *x.last()?;
    (inputs <= 400).then_some(())?;
    let out = d.tape.of(&[6, 4, 9, 16, 17, inputs]);
    let mut set = settings([("out", d.size(out))]);
    match d.tape.below(5) {
        1 => drop(set.insert("bias".to_owned(), json!(false))),
        2 => drop(set.insert("bias".to_owned(), json!(true))),
        3 if out.is_multiple_of(2) => {
            set.insert("bias_of".to_owned(), json!([d.tape.flag(), true]));
        }
        _ => {}
    }
    if d.tape.rarely(4) {
        set.insert("transposed".to_owned(), json!(d.tape.flag()));
    }
    if d.tape.rarely(6) {
        set.insert("functional".to_owned(), json!(d.tape.flag()));
    }
    if d.tape.rarely(4) {
        set.insert("init".to_owned(), weights(&mut d.tape, false));
    }
    // Neither the transposed weight nor the one of a function is normalised.
    if !set.contains_key("transposed") && !set.contains_key("functional") {
        weight_norm(d, &mut set);
    }
    let mut y = x.to_vec();
    *y.last_mut()? = out;
    d.only("linear", set, y)
}

/// Sometimes a weight that is a direction times a length.
pub(super) fn weight_norm(d: &mut Drawing<'_>, set: &mut Map<String, Value>) {
    if d.tape.rarely(5) {
        set.insert("weight_norm".to_owned(), json!(d.tape.of(&["parametrized", "hooked"])));
    }
}

fn prelu(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert("shared".to_owned(), json!(d.tape.flag()));
        set.insert("start".to_owned(), json!(d.tape.number(0.0, 1.0)));
    }
    d.only("prelu", set, x.to_vec())
}

/// Sometimes eps, and the initial values of a normalisation.
fn normalisation(d: &mut Drawing<'_>, mut set: Map<String, Value>, init: bool) -> Map<String, Value> {
    if d.tape.flag() {
        set.insert("eps".to_owned(), json!(d.tape.of(&[1e-3, 1e-6, 0.1])));
    }
    if init && d.tape.rarely(3) {
        set.insert("init".to_owned(), affine(&mut d.tape));
    }
    set
}

fn affine(tape: &mut Tape<'_>) -> Value {
    match tape.below(3) {
        0 => json!({ "gamma": tape.number(0.0, 2.0) }),
        1 => json!({ "beta": tape.number(-1.0, 1.0) }),
        _ => json!({ "gamma": tape.number(0.0, 2.0), "beta": tape.number(-1.0, 1.0) }),
    }
}

fn layer_norm(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let mut set = Map::new();
    match d.tape.below(3) {
        1 if x.len() == 3 => drop(set.insert("channels_first".to_owned(), json!(true))),
        2 => drop(set.insert("axes".to_owned(), json!(d.tape.between(1, x.len())))),
        _ if d.tape.rarely(4) => drop(set.insert("channels_first".to_owned(), json!(false))),
        _ => {}
    }
    if d.tape.rarely(3) {
        set.insert("bias".to_owned(), json!(d.tape.flag()));
    }
    let set = normalisation(d, set, true);
    d.only("layer_norm", set, x.to_vec())
}

fn group_norm(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let groups = d.tape.divisor(x[0]);
    let set = settings([("groups", d.size(groups))]);
    let mut set = normalisation(d, set, true);
    if d.tape.rarely(3) {
        set.insert("bias".to_owned(), json!(d.tape.flag()));
    }
    d.only("group_norm", set, x.to_vec())
}

fn instance_norm(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    (x.len() > 1).then_some(())?;
    let set = normalisation(d, Map::new(), false);
    d.only("instance_norm", set, x.to_vec())
}

fn rms_norm(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let mut set = normalisation(d, Map::new(), false);
    if d.tape.rarely(3) {
        set.insert("offset".to_owned(), json!(d.tape.of(&[1.0, 0.5])));
    }
    if d.tape.rarely(3) {
        let width = d.tape.divisor(*x.last()?);
        set.insert("width".to_owned(), d.size(width));
    }
    d.only("rms_norm", set, x.to_vec())
}

fn bn(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    (x.len() == 1 || x.len() == 3).then_some(())?;
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert("momentum".to_owned(), json!(d.tape.number(0.0, 1.0)));
    }
    let set = normalisation(d, set, true);
    d.only("bn", set, x.to_vec())
}

fn layer_scale(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let mut set = settings([("start", json!(d.tape.number(0.1, 2.0)))]);
    if d.tape.rarely(3) {
        set.remove("start");
    }
    if d.tape.rarely(3) {
        set.insert("flat".to_owned(), json!(d.tape.flag()));
    }
    d.only("layer_scale", set, x.to_vec())
}

fn add_parameter(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let set = initial(d);
    d.only("add_parameter", set, x.to_vec())
}

fn chance(d: &mut Drawing<'_>, tag: &str, x: &[usize]) -> Option<Layers> {
    let mut set = settings([("rate", json!(d.tape.number(0.0, 0.8)))]);
    if tag == "dropout" && d.tape.rarely(3) {
        set.insert("channels".to_owned(), json!(d.tape.flag()));
    }
    d.only(tag, set, x.to_vec())
}

fn with_tap(d: &mut Drawing<'_>, tag: &str, x: &[usize]) -> Option<Layers> {
    let tap = d.tapped(|shape| shape == x);
    match tap {
        Some(tap) => Some((vec![json!({ tag: tap.name })], x.to_vec())),
        None => {
            // A tap, a layer that keeps its shape, and the tap again.
            let (tapped, name) = d.tap(x);
            Some((vec![tapped, json!("tanh"), json!({ tag: name })], x.to_vec()))
        }
    }
}

fn multiply(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let one = |shape: &[usize]| shape.len() == x.len() && shape.iter().zip(x).all(|(own, x)| own == x || *own == 1);
    let Some(tap) = d.tapped(one) else { return with_tap(d, "mul", x) };
    Some((vec![json!({ "mul": tap.name })], x.to_vec()))
}

/// Rows of the current value by those of a value of the same shape.
fn matmul(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let letters: String = ('a'..='z').take(x.len()).collect();
    let (axes, y) = match x {
        [a] => ("a,b->ab".to_owned(), vec![*a, *a]),
        [leading @ .., t, _] => {
            let (before, last) = letters.split_at(x.len() - 2);
            let (row, column) = last.split_at(1);
            (format!("{letters},{before}z{column}->{before}{row}z"), [leading, &[*t, *t]].concat())
        }
        [] => return None,
    };
    let (tapped, name) = d.tap(x);
    let product = d.word("matmul", settings([("with", json!(name)), ("axes", json!(axes))]));
    Some((vec![tapped, json!("tanh"), product], y))
}

fn parameter(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let y: Vec<usize> = x.iter().map(|extent| if d.tape.rarely(3) { 1 } else { *extent }).collect();
    let flat = d.tape.flag();
    // Of one axis, a parameter has no fan.
    let mut set = match flat {
        true => settings([("init", json!({ "normal": { "std": d.tape.number(0.05, 0.5) } }))]),
        false => initial(d),
    };
    let shape = if flat { vec![y.iter().product()] } else { [&[1], &y[..]].concat() };
    if flat || d.tape.flag() {
        set.insert("to".to_owned(), json!(y));
    }
    set.insert("shape".to_owned(), json!(shape));
    d.only("parameter", set, y)
}

/// Fixed numbers, which are added to the value.
fn constant(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let own: Vec<usize> = x.iter().map(|extent| if d.tape.rarely(3) { 1 } else { *extent }).collect();
    let mut set = settings([("shape", json!(own))]);
    let count: usize = own.iter().product();
    if count <= 64 && d.tape.flag() {
        let values: Vec<f64> = (0..count).map(|_| d.tape.number(-2.0, 2.0)).collect();
        set.insert("values".to_owned(), json!(values));
    } else {
        let last = ["i", "j", "k", "l", "m", "n", "o", "p"].get(own.len() - 1)?;
        let formula = d.tape.of(&["sin(i * 10^(-LAST / 4))", "1 - 0.25 * LAST", "select(LAST > 1, cos(i), i / 8)"]);
        set.insert("formula".to_owned(), json!(formula.replace("LAST", last)));
    }
    if own != x {
        set.insert("to".to_owned(), json!(x));
    }
    if d.tape.flag() {
        set.insert("each".to_owned(), json!(d.tape.flag()));
    }
    let (tapped, name) = d.tap(x);
    Some((vec![tapped, json!({ "constant": set }), json!({ "add": name })], x.to_vec()))
}

fn from(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let (tapped, _) = d.tap(x);
    let other = d.tapped(|_| true)?;
    Some((vec![tapped, json!({ "from": other.name })], other.shape))
}

/// Initial values of a single parameter, sometimes.
pub(super) fn initial(d: &mut Drawing<'_>) -> Map<String, Value> {
    match d.tape.flag() {
        true => settings([("init", distribution(&mut d.tape, false))]),
        false => Map::new(),
    }
}

/// A distribution; `dirac` only where it has a meaning.
pub(super) fn distribution(tape: &mut Tape<'_>, dirac: bool) -> Value {
    let gain = tape.number(0.2, 1.5);
    match tape.below(if dirac { 14 } else { 13 }) {
        0 => json!({ "normal": { "std": tape.number(0.05, 0.5) } }),
        1 => json!({ "uniform": { "bound": tape.number(0.05, 0.5) } }),
        2 => json!({ "truncated_normal": { "std": tape.number(0.05, 0.5) } }),
        3 => json!({ "constant": tape.number(-0.3, 0.3) }),
        4 => json!("kaiming_normal"),
        5 => json!({ "kaiming_normal": { "mode": tape.of(&["fan_in", "fan_out"]), "gain": gain } }),
        6 => json!({ "kaiming_uniform": { "mode": tape.of(&["fan_in", "fan_out"]) } }),
        7 => json!({ "kaiming_uniform": { "gain": gain } }),
        8 => json!({ "xavier_normal": { "gain": gain } }),
        9 => json!({ "xavier_uniform": { "gain": gain } }),
        10 => json!("xavier_uniform"),
        11 => json!("xavier_normal"),
        12 => json!({ "torch_default": {} }),
        _ => json!({ "dirac": {} }),
    }
}

/// Initial values of weight and bias.
pub(super) fn weights(tape: &mut Tape<'_>, dirac: bool) -> Value {
    let weight = distribution(tape, dirac);
    match tape.below(3) {
        0 => json!({ "weight": weight }),
        1 => json!({ "bias": distribution(tape, false) }),
        _ => json!({ "weight": weight, "bias": distribution(tape, false) }),
    }
}

/// Initial values of all layers that have none.
pub(super) fn defaults(tape: &mut Tape<'_>) -> Value {
    let mut all = Map::new();
    if tape.flag() {
        all.insert("conv".to_owned(), weights(tape, false));
    }
    if tape.flag() {
        all.insert("linear".to_owned(), weights(tape, false));
    }
    if all.is_empty() || tape.flag() {
        all.insert("bn".to_owned(), affine(tape));
    }
    Value::Object(all)
}
