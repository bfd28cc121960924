//! Layers on maps `[C, H, W]`.

use super::values::{weight_norm, weights};
use super::{Draw, Drawing, Layers, settings};
use serde_json::{Map, Value, json};

pub(super) const LAYERS: &[(&str, Draw)] = &[
    ("conv", conv),
    ("conv_transpose", conv_transpose),
    ("pad", pad),
    ("max_pool", |d, x| pool(d, "max_pool", x)),
    ("avg_pool", |d, x| pool(d, "avg_pool", x)),
    ("blur_pool", blur_pool),
    ("adaptive_avg_pool", adaptive_avg_pool),
    ("global_avg_pool", global_avg_pool),
    ("lrn", lrn),
    ("channel_shuffle", channel_shuffle),
    ("pixel_shuffle", pixel_shuffle),
    ("upsample", upsample),
    ("crop", crop),
    ("xcorr", xcorr),
    ("patches", patches),
    ("pair_log_softmax", pair_log_softmax),
    ("tokens", tokens),
    ("grid", grid),
    ("merge_patches", merge_patches),
];

fn chw(x: &[usize]) -> Option<[usize; 3]> {
    x.try_into().ok()
}

/// Extent of the result of a window; `None` if the window does not fit.
fn extent(size: usize, pads: [usize; 2], kernel: usize, stride: usize, ceil: bool) -> Option<usize> {
    let room = (size + pads[0] + pads[1]).checked_sub(kernel)?;
    let out = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
    // The last window must begin inside the map.
    Some(if ceil && (out - 1) * stride >= size + pads[0] { out - 1 } else { out })
}

/// A window that fits: kernel, stride, four sides of padding; and their settings.
fn window(d: &mut Drawing<'_>, [h, w]: [usize; 2], pooled: bool) -> ([[usize; 2]; 2], [usize; 4], Map<String, Value>) {
    let square = d.tape.between(1, 4);
    let kernel = if d.tape.flag() { [square; 2] } else { [square, d.tape.between(1, 4)] };
    let kernel = [kernel[0].min(h), kernel[1].min(w)];
    let mut set = settings([("kernel", d.pair(kernel))]);
    let mut stride = if pooled { kernel } else { [1; 2] };
    if d.tape.flag() {
        stride = if d.tape.flag() { [d.tape.between(1, 3); 2] } else { [d.tape.between(1, 3), d.tape.between(1, 3)] };
        set.insert("stride".to_owned(), d.pair(stride));
    }
    let mut sides = [0; 4];
    if d.tape.flag() {
        // A pool is padded by at most half of its window.
        let limits = if pooled { kernel.map(|extent| extent / 2 + 1) } else { kernel };
        let (value, drawn) = d.padding(limits);
        set.insert("pad".to_owned(), value);
        sides = drawn;
    }
    ([kernel, stride], sides, set)
}

/// The result of a window on a map.
fn moved([h, w]: [usize; 2], [kernel, stride]: [[usize; 2]; 2], pad: [usize; 4], ceil: bool) -> Option<[usize; 2]> {
    Some([
        extent(h, [pad[0], pad[1]], kernel[0], stride[0], ceil)?,
        extent(w, [pad[2], pad[3]], kernel[1], stride[1], ceil)?,
    ])
}

fn conv(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let ([kernel, stride], pad, mut set) = window(d, [h, w], false);
    let mut reach = kernel;
    if d.tape.rarely(4) {
        let dilation = [d.tape.between(1, 3), d.tape.between(1, 3)];
        set.insert("dilation".to_owned(), d.pair(dilation));
        reach = [0, 1].map(|axis| dilation[axis] * (kernel[axis] - 1) + 1);
    }
    let [h, w] = moved([h, w], [reach, stride], pad, false)?;
    let mut out = d.tape.of(&[8, 3, 5, 16, 17, 24, 33, c]);
    if d.tape.rarely(3) {
        let groups = d.tape.divisor(c);
        out = groups * (out.div_ceil(groups));
        set.insert("groups".to_owned(), d.size(groups));
    }
    set.insert("out".to_owned(), d.size(out));
    with_bias(d, &mut set);
    if d.tape.rarely(6) {
        set.insert("standardised".to_owned(), json!(d.tape.of(&[1e-3, 0.1])));
        if d.tape.flag() {
            set.insert("gain".to_owned(), json!(d.tape.number(0.5, 2.0)));
        }
    } else {
        weight_norm(d, &mut set);
    }
    d.only("conv", set, vec![out, h, w])
}

/// Sometimes without bias, sometimes with initial values.
fn with_bias(d: &mut Drawing<'_>, set: &mut Map<String, Value>) {
    if d.tape.flag() {
        set.insert("bias".to_owned(), json!(d.tape.rarely(3)));
    }
    if d.tape.rarely(3) {
        let four_axes = set.get("kernel").is_some() && !set.contains_key("groups");
        set.insert("init".to_owned(), weights(&mut d.tape, four_axes));
    }
}

fn conv_transpose(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [_, h, w] = chw(x)?;
    let kernel = [d.tape.between(1, 4), d.tape.between(1, 4)];
    let mut set = settings([("kernel", d.pair(kernel))]);
    let mut stride = [1; 2];
    if d.tape.flag() {
        stride = [d.tape.between(1, 3), d.tape.between(1, 2)];
        set.insert("stride".to_owned(), d.pair(stride));
    }
    let mut pad = [0; 4];
    if d.tape.flag() {
        let (value, sides) = d.padding(kernel);
        set.insert("pad".to_owned(), value);
        pad = sides;
    }
    let out = d.tape.of(&[4, 3, 7, 16, 18]);
    set.insert("out".to_owned(), d.size(out));
    if d.tape.flag() {
        set.insert("bias".to_owned(), json!(d.tape.rarely(3)));
    }
    if d.tape.rarely(3) {
        set.insert("init".to_owned(), weights(&mut d.tape, false));
    }
    let of = |size: usize, axis: usize| {
        ((size - 1) * stride[axis] + kernel[axis]).checked_sub(pad[2 * axis] + pad[2 * axis + 1]).filter(|n| *n > 0)
    };
    d.only("conv_transpose", set, vec![out, of(h, 0)?, of(w, 1)?])
}

fn pad(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let reflects = d.tape.flag();
    let (value, sides) = d.padding(if reflects { [h, w] } else { [3, 3] });
    let mut set = settings([("size", value)]);
    if reflects || d.tape.flag() {
        set.insert("mode".to_owned(), json!(if reflects { "reflect" } else { "zeros" }));
    }
    d.only("pad", set, vec![c, h + sides[0] + sides[1], w + sides[2] + sides[3]])
}

fn pool(d: &mut Drawing<'_>, tag: &str, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let (window, sides, mut set) = window(d, [h, w], true);
    let ceil = d.tape.flag();
    if ceil || d.tape.rarely(4) {
        set.insert("ceil_mode".to_owned(), json!(ceil));
    }
    if tag == "avg_pool" && d.tape.flag() {
        set.insert("count_include_pad".to_owned(), json!(d.tape.flag()));
    }
    let [h, w] = moved([h, w], window, sides, ceil)?;
    d.only(tag, set, vec![c, h, w])
}

fn blur_pool(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let (mut kernel, mut stride) = (3, 2);
    let mut set = Map::new();
    if d.tape.flag() {
        kernel = d.tape.between(1, 5);
        set.insert("kernel".to_owned(), json!(kernel));
    }
    if d.tape.flag() {
        stride = d.tape.between(1, 3);
        set.insert("stride".to_owned(), json!(stride));
    }
    let [h, w] = moved([h, w], [[kernel; 2], [stride; 2]], [0; 4], false)?;
    d.only("blur_pool", set, vec![c, h, w])
}

fn adaptive_avg_pool(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let out = [d.tape.between(1, h.min(5)), d.tape.between(1, w.min(5))];
    let set = settings([("out", d.pair(out))]);
    d.only("adaptive_avg_pool", set, vec![c, out[0], out[1]])
}

fn global_avg_pool(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, ..] = chw(x)?;
    d.only("global_avg_pool", Map::new(), vec![c, 1, 1])
}

fn lrn(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    chw(x)?;
    let mut set = settings([("size", json!(d.tape.between(1, 6)))]);
    for (key, low, high) in [("alpha", 0.01, 2.0), ("beta", 0.25, 1.0), ("k", 0.5, 2.0)] {
        if d.tape.flag() {
            set.insert(key.to_owned(), json!(d.tape.number(low, high)));
        }
    }
    d.only("lrn", set, x.to_vec())
}

fn channel_shuffle(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, ..] = chw(x)?;
    let groups = d.tape.divisor(c);
    let set = settings([("groups", d.size(groups))]);
    d.only("channel_shuffle", set, x.to_vec())
}

fn pixel_shuffle(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let by = (1..4).rev().find(|by| c.is_multiple_of(by * by))?;
    d.only("pixel_shuffle", settings([("by", json!(by))]), vec![c / by / by, h * by, w * by])
}

fn upsample(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let like = d.tapped(|shape| shape.len() == 3);
    let (mut set, out) = match (d.tape.below(3), like) {
        (0, _) => {
            let by = [d.tape.between(1, 3), d.tape.between(1, 3)];
            (settings([("scale", d.pair(by))]), [h * by[0], w * by[1]])
        }
        (1, Some(like)) => (settings([("like", json!(like.name))]), [like.shape[1], like.shape[2]]),
        _ => {
            let out = [d.tape.between(1, 12), d.tape.between(1, 12)];
            (settings([("size", d.pair(out))]), out)
        }
    };
    match d.tape.below(4) {
        0 => {}
        1 => drop(set.insert("mode".to_owned(), json!("nearest"))),
        2 => drop(set.insert("mode".to_owned(), json!("bilinear"))),
        _ => {
            set.insert("mode".to_owned(), json!("bilinear"));
            set.insert("align_corners".to_owned(), json!(!d.tape.rarely(4)));
        }
    }
    d.only("upsample", set, vec![c, out[0], out[1]])
}

fn crop(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let like = d.tapped(|shape| shape.len() == 3 && shape[1] <= h && shape[2] <= w);
    let (mut set, mut out) = match like {
        Some(like) if d.tape.flag() => (settings([("like", json!(like.name))]), [like.shape[1], like.shape[2]]),
        _ => {
            let margin = d.tape.between(1, 2);
            let left = |size: usize| size.checked_sub(2 * margin).filter(|size| *size > 0);
            (settings([("margin", json!(margin))]), [left(h)?, left(w)?])
        }
    };
    if d.tape.rarely(3) {
        let limit = d.tape.between(1, 20);
        set.insert("narrower_than".to_owned(), json!(limit));
        out = if w >= limit { [h, w] } else { out };
    }
    d.only("crop", set, vec![c, out[0], out[1]])
}

fn xcorr(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    let kernel = [d.tape.between(1, h.min(3)), d.tape.between(1, w.min(3))];
    let (before, search) = d.tap(x);
    let small = json!({ "adaptive_avg_pool": { "out": kernel } });
    let (after, name) = d.tap(&[c, kernel[0], kernel[1]]);
    let word = d.word("xcorr", settings([("kernel", json!(name))]));
    let layers = vec![before, small, after, json!({ "from": search }), word];
    Some((layers, vec![c, h + 1 - kernel[0], w + 1 - kernel[1]]))
}

/// Windows of a map as a batch of their own: an output beside the main one.
fn patches(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [_, h, w] = chw(x)?;
    (d.depth == 0).then_some(())?;
    let (window, sides, set) = window(d, [h, w], false);
    moved([h, w], window, sides, false)?;
    let (before, name) = d.tap(x);
    let word = d.word("patches", set);
    let windows = d.name("windows");
    d.beside.push(windows.clone());
    Some((vec![before, word, json!({ "tap": windows }), json!({ "from": name })], x.to_vec()))
}

fn pair_log_softmax(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    c.is_multiple_of(2).then_some(())?;
    let word = d.word("pair_log_softmax", Map::new());
    let y = vec![c / 2, h, 2 * w];
    Some((vec![word, json!({ "reshape": { "to": y } })], y))
}

fn tokens(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [c, h, w] = chw(x)?;
    if d.tape.flag() {
        let size = d.tape.divisor(c);
        let set = settings([("size", d.size(size))]);
        return d.only("tokens", set, vec![h * w * (c / size), size]);
    }
    d.only("tokens", Map::new(), vec![h * w, c])
}

fn grid(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let &[t, c] = x else { return None };
    let rows = t.isqrt();
    if rows * rows == t && d.tape.flag() {
        return d.only("grid", Map::new(), vec![c, rows, rows]);
    }
    let rows = d.tape.divisor(t);
    let set = settings([("rows", d.size(rows))]);
    d.only("grid", set, vec![c, rows, t / rows])
}

fn merge_patches(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let [h, w, c] = chw(x)?;
    let mut size = [2, 2];
    let mut set = Map::new();
    if d.tape.flag() {
        size = [d.tape.between(1, 3), d.tape.between(1, 3)];
        set.insert("size".to_owned(), d.pair(size));
    }
    d.only("merge_patches", set, vec![h.div_ceil(size[0]), w.div_ceil(size[1]), size[0] * size[1] * c])
}
