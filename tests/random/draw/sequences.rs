//! Layers on tokens `[T, E]`, and on windows of them.

use super::values::{distribution, initial, weight_norm, weights};
use super::{Draw, Drawing, Layers, settings};
use serde_json::{Map, Value, json};

pub(super) const LAYERS: &[(&str, Draw)] = &[
    ("positions", positions),
    ("sine_positions", sine_positions),
    ("prepend", prepend),
    ("affine", affine),
    ("attention", attention),
    ("dot_product_attention", dot_product_attention),
    ("conv1d", conv1d),
    ("unembed", unembed),
    ("windows", windows),
    ("experts", experts),
];

fn te(x: &[usize]) -> Option<[usize; 2]> {
    x.try_into().ok()
}

/// The layers from indices `[T]` to `[T, E]`, or from one of them to `[E]`, with what uses the input `unseen`.
pub(super) fn embedding(d: &mut Drawing<'_>, x: &[usize]) -> Layers {
    let (rows, size) = (d.tape.between(4, 9), d.tape.of(&[8, 6, 16, 5]));
    let mut set = settings([("rows", json!(rows)), ("size", json!(size))]);
    if d.tape.rarely(3) {
        set.insert("padding".to_owned(), json!(d.tape.below(rows)));
    }
    if d.tape.flag() {
        set.insert("init".to_owned(), distribution(&mut d.tape, false));
    }
    let column = (d.masked.is_none() && d.tape.rarely(5)).then(|| d.tape.below(x[0]));
    set.extend(column.map(|place| ("column".to_owned(), json!(place))));
    let owner = d.tape.rarely(4).then(|| d.name("e"));
    set.extend(owner.iter().map(|owner| ("table".to_owned(), json!(owner))));
    let word = d.word("embedding", set);
    if let Some(name) = owner.as_deref().or(word["embedding"]["name"].as_str()) {
        d.embeddings.push((name.to_owned(), [rows, size]));
    }
    let y = if column.is_some() { vec![size] } else { vec![x[0], size] };
    let mut layers = vec![word];
    d.switched_off(&mut layers);
    if d.masked.is_some() {
        let (tap, name) = d.tap(&y);
        // One in four of the numbers is 1: here those that are not seen, so that some are.
        let seen = d.name("t");
        layers.extend([tap, json!({ "from": "unseen" }), json!({ "map": "1 - x" }), json!({ "tap": seen })]);
        layers.push(json!({ "from": name }));
        let heads = d.tape.divisor(size);
        let set = settings([("heads", json!(heads)), ("mask", json!(seen))]);
        if d.tape.flag() {
            layers.push(d.word("attention", set));
        } else {
            let linear = settings([("out", json!(3 * size))]);
            layers.push(d.word("linear", linear));
            layers.push(d.word("dot_product_attention", set));
        }
    }
    (layers, y)
}

fn positions(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [t, _] = te(x)?;
    let mut set = initial(d);
    let from = if d.tape.rarely(3) { d.tape.below(3) } else { 0 };
    if from > 0 {
        set.insert("from".to_owned(), json!(from));
    }
    let step = if d.tape.rarely(3) { d.tape.below(3) } else { 1 };
    if step != 1 {
        set.insert("step".to_owned(), json!(step));
    }
    set.insert("rows".to_owned(), json!((t - 1) * step + 1 + from + d.tape.below(3)));
    d.only("positions", set, x.to_vec())
}

fn sine_positions(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [_, e] = te(x)?;
    e.is_multiple_of(2).then_some(())?;
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert("base".to_owned(), json!(d.tape.number(1.0, 100.0)));
    }
    if d.tape.rarely(3) {
        set.insert("from".to_owned(), json!(d.tape.below(5)));
    }
    if d.tape.flag() {
        set.insert("pairs".to_owned(), json!(d.tape.of(&["adjacent", "halves"])));
        set.insert("closed".to_owned(), json!(d.tape.flag()));
    }
    d.only("sine_positions", set, x.to_vec())
}

fn prepend(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [t, e] = te(x)?;
    let set = initial(d);
    d.only("prepend", set, vec![t + 1, e])
}

fn affine(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    te(x)?;
    d.only("affine", Map::new(), x.to_vec())
}

/// Sometimes `causal` and `dropout`.
fn chances(d: &mut Drawing<'_>, set: &mut Map<String, Value>) {
    if d.tape.rarely(3) {
        set.insert("causal".to_owned(), json!(!d.tape.rarely(4)));
    }
    if d.tape.rarely(4) {
        set.insert("dropout".to_owned(), json!(d.tape.number(0.0, 0.6)));
    }
}

fn attention(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [t, e] = te(x)?;
    (e <= 64 && t <= 64).then_some(())?;
    let heads = d.tape.divisor(e);
    let mut set = settings([("heads", d.size(heads))]);
    chances(d, &mut set);
    for key in ["init", "out_init"] {
        if d.tape.rarely(3) {
            set.insert(key.to_owned(), weights(&mut d.tape, false));
        }
    }
    if !d.tape.rarely(3) {
        return d.only("attention", set, x.to_vec());
    }
    // To the tokens of a dense layer.
    let (tap, from) = d.tap(x);
    let dense = d.word("linear", settings([("out", json!(e))]));
    let (other, name) = d.tap(x);
    for key in ["key", "value"] {
        set.insert(key.to_owned(), json!(if d.tape.flag() { &name } else { &from }));
    }
    Some((vec![tap, dense, other, json!({ "from": from }), d.word("attention", set)], x.to_vec()))
}

/// Experts on `[T, E]`, with the dense layer of their scores.
fn experts(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [t, _] = te(x)?;
    let count = d.tape.between(2, 5);
    let (tap, from) = d.tap(x);
    let bias = d.tape.flag();
    let scores = d.word("linear", settings([("out", json!(count)), ("bias", json!(bias))]));
    let (scored, name) = d.tap(&[t, count]);
    let mut set = settings([("scores", json!(name)), ("top", json!(d.tape.between(1, count)))]);
    set.insert("hidden".to_owned(), json!(d.tape.between(1, 9)));
    if d.tape.flag() {
        set.insert("weights".to_owned(), json!(d.tape.of(&["softmax", "sigmoid"])));
        set.insert("activation".to_owned(), json!(d.tape.of(&["silu", "gelu", "gelu_tanh", "relu"])));
    }
    if d.tape.flag() {
        set.insert("normalize".to_owned(), json!(d.tape.flag()));
        set.insert("scale".to_owned(), json!(d.tape.number(0.5, 3.0)));
    }
    if d.tape.rarely(3) {
        set.insert("bias".to_owned(), json!(d.name("p")));
    }
    if d.tape.rarely(3) {
        set.insert("capacity".to_owned(), json!(d.tape.number(0.5, 2.0)));
    }
    if d.tape.rarely(3) {
        let bound = json!({ "uniform": { "bound": d.tape.number(0.1, 1.0) } });
        set.insert("init".to_owned(), json!({ "weight": bound }));
    }
    d.experts.push(count);
    let experts = d.word("experts", set);
    Some((vec![tap, scores, scored, json!({ "from": from }), experts], x.to_vec()))
}

fn dot_product_attention(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let tap = None;
    attend(d, x, tap)
}

/// Attention of `[T, E]` or `[windows, T, E]`, with dense layers before it, and the parts of the scores; `segments` is
/// a tap.
fn attend(d: &mut Drawing<'_>, x: &[usize], segments: Option<String>) -> Option<Layers> {
    let [leading @ .., t, e] = x else { return None };
    (*e <= 64 && *t <= 64 && leading.len() <= 1).then_some(())?;
    let kv_heads = d.tape.between(1, 2);
    let shared = if d.tape.flag() { 2 } else { 1 };
    let (heads, width) = (kv_heads * shared, d.tape.of(&[4, 2, 6, 3]));
    let mut set = settings([("heads", json!(heads))]);
    if shared > 1 || d.tape.rarely(3) {
        set.insert("kv_heads".to_owned(), json!(kv_heads));
    }
    let mut layers = Vec::new();
    let dense = |d: &mut Drawing<'_>, out: usize| d.word("linear", settings([("out", json!(out))]));
    if d.tape.flag() {
        let (tap, from) = d.tap(x);
        layers.push(tap);
        for key in ["key", "value"] {
            layers.push(dense(d, kv_heads * width));
            let name = d.name("t");
            layers.extend([json!({ "tap": name }), json!({ "from": from })]);
            set.insert(key.to_owned(), json!(name));
        }
        layers.push(dense(d, heads * width));
    } else {
        layers.push(dense(d, (heads + 2 * kv_heads) * width));
    }
    chances(d, &mut set);
    if d.tape.rarely(3) {
        set.insert("masked".to_owned(), json!(-d.tape.number(0.5, 100.0)));
    }
    if width.is_multiple_of(2) && d.tape.rarely(3) {
        let rotary = rotary(d, width);
        set.insert("rotary".to_owned(), rotary);
    }
    if d.tape.rarely(4) {
        set.insert("window".to_owned(), json!(d.tape.between(1, *t)));
    }
    if d.tape.rarely(4) {
        set.insert("softcap".to_owned(), json!(d.tape.number(1.0, 20.0)));
    }
    if d.tape.flag() {
        let [h, name] = [d.tape.divisor(*t).to_string(), d.name("t")];
        let h: usize = h.parse().ok()?;
        let mut bias = settings([("heads", json!(heads)), ("tap", json!(name)), ("size", d.pair([h, t / h]))]);
        let tag = if h > 1 && t / h > 1 && d.tape.flag() {
            if d.tape.rarely(4) {
                bias.insert("init".to_owned(), weights(&mut d.tape, false));
            }
            bias.insert("hidden".to_owned(), json!(d.tape.between(3, 9)));
            if d.tape.rarely(4) {
                bias.remove("hidden");
            }
            "continuous_position_bias"
        } else {
            bias.extend(initial(d));
            if d.tape.rarely(3) {
                bias.insert("mirrored".to_owned(), json!(d.tape.flag()));
            }
            "relative_position_bias"
        };
        layers.push(d.word(tag, bias));
        set.insert("bias".to_owned(), json!(name));
    } else if leading.is_empty() && d.tape.rarely(4) {
        let (name, ahead) = (d.name("t"), d.tape.flag());
        let (buckets, most) = (d.tape.between(4, 9), d.tape.between(5, 20));
        let bias = json!({"heads": heads, "tap": name, "buckets": buckets, "most": most, "ahead": ahead});
        let mut bias: Map<String, Value> = bias.as_object()?.clone();
        bias.extend(initial(d));
        layers.push(d.word("distance_bias", bias));
        set.insert("bias".to_owned(), json!(name));
    } else if d.tape.rarely(3) {
        set.insert("alibi".to_owned(), json!(d.tape.number(0.5, 9.0)));
    }
    if d.tape.rarely(4) {
        let name = d.name("t");
        let mut scale = initial(d);
        scale.extend([("heads".to_owned(), json!(heads)), ("tap".to_owned(), json!(name))]);
        if d.tape.flag() {
            scale.insert("most".to_owned(), json!(d.tape.number(1.5, 20.0)));
        }
        layers.push(d.word("logit_scale", scale));
        set.insert("cosine".to_owned(), json!(name));
    } else if d.tape.rarely(4) {
        set.insert("scale".to_owned(), json!(d.tape.number(0.1, 1.5)));
    }
    let own = segments.or_else(|| (d.masked == Some(*t) && leading.is_empty()).then(|| "unseen".to_owned()));
    if let Some(segments) = own {
        set.insert("segments".to_owned(), json!(segments));
    }
    layers.push(d.word("dot_product_attention", set));
    let mut y = x.to_vec();
    *y.last_mut()? = heads * width;
    Some((layers, y))
}

/// Rotary positions of heads with so many channels.
fn rotary(d: &mut Drawing<'_>, width: usize) -> Value {
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert("base".to_owned(), json!(d.tape.number(2.0, 50.0)));
    }
    if d.tape.rarely(3) {
        set.insert("width".to_owned(), json!(2 * d.tape.between(1, width / 2)));
    }
    if d.tape.flag() {
        set.insert("pairs".to_owned(), json!(d.tape.of(&["halves", "adjacent"])));
    }
    if d.tape.rarely(3) {
        let mut llama3 = Map::new();
        for (key, low, high) in [("factor", 1.5, 9.0), ("low", 0.5, 2.0), ("high", 3.0, 9.0), ("positions", 4.0, 40.0)]
        {
            if d.tape.flag() {
                llama3.insert(key.to_owned(), json!(d.tape.number(low, high)));
            }
        }
        let linear = json!({ "linear": d.tape.number(1.5, 9.0) });
        set.insert("scaling".to_owned(), if d.tape.flag() { linear } else { json!({ "llama3": llama3 }) });
    }
    Value::Object(set)
}

fn conv1d(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, length] = te(x)?;
    (c <= 64).then_some(())?;
    let kernel = d.tape.between(1, 4);
    let mut set = settings([("kernel", json!(kernel))]);
    let mut drawn = [("stride", 1), ("pad", 0), ("dilation", 1)];
    for (key, value) in &mut drawn {
        if d.tape.flag() {
            *value = if *key == "pad" { d.tape.below(3) } else { d.tape.between(1, 3) };
            set.insert((*key).to_owned(), json!(*value));
        }
    }
    let [stride, pad, dilation] = drawn.map(|(_, value)| value);
    let room = (length + 2 * pad).checked_sub(dilation * (kernel - 1) + 1)?;
    let mut out = d.tape.of(&[6, 4, 16, 17, c]);
    if d.tape.rarely(3) {
        let groups = d.tape.divisor(c);
        out = groups * out.div_ceil(groups);
        set.insert("groups".to_owned(), d.size(groups));
    }
    set.insert("out".to_owned(), d.size(out));
    weight_norm(d, &mut set);
    if d.tape.rarely(3) {
        set.insert("bias".to_owned(), json!(d.tape.flag()));
    }
    if d.tape.rarely(3) {
        set.insert("init".to_owned(), weights(&mut d.tape, false));
    }
    d.only("conv1d", set, vec![out, room / stride + 1])
}

fn unembed(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let width = *x.last()?;
    let (table, [rows, _]) = d.embeddings.iter().find(|(_, [_, size])| *size == width)?.clone();
    let mut set = settings([("table", json!(table))]);
    if d.depth == 0 && d.tape.flag() {
        let name = d.name("bias");
        set.insert("bias".to_owned(), json!(name));
    }
    let mut y = x.to_vec();
    *y.last_mut()? = rows;
    d.only("unembed", set, y)
}

fn windows(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [h, w, c] = x.try_into().ok()?;
    (d.depth < super::DEEPEST).then_some(())?;
    let size = [d.tape.between(1, h.min(3)), d.tape.between(1, w.min(3))];
    let mut set = settings([("size", d.pair(size))]);
    if d.tape.flag() {
        set.insert("shift".to_owned(), json!(d.tape.below(4)));
    }
    let inner = [h.div_ceil(size[0]) * w.div_ceil(size[1]), size[0] * size[1], c];
    let segments = d.tape.flag().then(|| d.name("t"));
    if let Some(tap) = &segments {
        set.insert("segments".to_owned(), json!(tap));
    }
    let (body, y) = d.inside(false, |d| {
        let attended = if segments.is_some() || d.tape.flag() { attend(d, &inner, segments.clone()) } else { None };
        attended.unwrap_or_else(|| d.body(&inner, 2, &|y| y.len() == 3 && y[..2] == inner[..2]))
    });
    set.insert("body".to_owned(), json!(body));
    let y = vec![h, w, *y.last()?];
    d.only("windows", set, y)
}
