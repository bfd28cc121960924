//! Products of many matrices, rows of tables, cuts, and the layers of transformers.

use crate::{
    gradients::{check, check_loss},
    tiny::{OPTIONS, SCALARS, Tiny, assert_close, elements, noise},
    words::expect,
};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, Inputs, Kernels, Options, Step};
use zoo_graph::{DType, TensorType, ValueId, ops::*};

/// (shape of a, shape of b, transposed a, transposed b): shared matrices, broadcast axes on either side, all forms.
const PRODUCTS: [(&[usize], &[usize], bool, bool); 9] = [
    (&[2, 3, 4], &[5, 4], false, true),
    (&[2, 3, 4], &[4, 5], false, false),
    (&[2, 2, 3, 4], &[2, 2, 4, 5], false, false),
    (&[2, 3, 3, 4], &[2, 1, 5, 4], false, true),
    (&[1, 3, 4], &[2, 4, 5], false, false),
    (&[3, 4], &[2, 4, 5], false, false),
    (&[2, 4, 3], &[2, 4, 5], true, false),
    (&[2, 4, 3], &[5, 4], true, true),
    (&[2, 70, 300], &[2, 33, 300], false, true),
];

#[test]
fn gradients_of_products() {
    for (a, b, transpose_a, transpose_b) in PRODUCTS.into_iter().filter(|(a, ..)| a.iter().product::<usize>() < 1000) {
        let op = MatMul { transpose_a, transpose_b };
        let n = b[b.len() - if transpose_b { 2 } else { 1 }];
        let what = format!("{a:?} {b:?} {op:?}");
        check(&[a, b, &[n]], &what, |tiny, operands| tiny.add(op.clone(), operands));
        check(&[a, b], &what, |tiny, operands| tiny.add(op.clone(), operands));
    }
}

/// What both executors make of a graph, in f32.
fn both(tiny: &Tiny, inputs: &Inputs) -> [Vec<Vec<f64>>; 2] {
    [Kernels::Reference, Kernels::Fast { fusion: true }].map(|kernels| {
        let mut step = Step::new(tiny.graph.clone(), Options { kernels, ..OPTIONS }).unwrap();
        for (i, value) in tiny.values.iter().enumerate() {
            step.set_variable(&format!("v{i}"), value).unwrap();
        }
        let outputs = step.run(inputs, SCALARS, &mut ()).unwrap().outputs;
        outputs.iter().map(|(_, tensor)| elements(tensor)).collect()
    })
}

#[test]
fn fast_products_are_the_reference_ones() {
    for (a, b, transpose_a, transpose_b) in PRODUCTS {
        let mut tiny = Tiny::new(DType::F32);
        let operands = [tiny.noisy(a), tiny.noisy(b)];
        let y = tiny.add(MatMul { transpose_a, transpose_b }, &operands);
        tiny.show(y);
        tiny.probe(y);
        tiny.differentiate(2);
        let [expected, found] = both(&tiny, &Inputs::new());
        for (found, expected) in found.iter().zip(&expected) {
            assert_close(found, expected, 1e-5, &format!("{a:?} {b:?}"));
        }
    }
}

#[test]
fn cuts_and_joins_along_any_axis() {
    for axis in 0..3 {
        let mut sizes = [3, 4, 5];
        sizes[axis] = 6;
        let split = Split { axis, sizes: vec![1, 3, 2] };
        let build = |tiny: &mut Tiny, x: &[ValueId]| {
            let parts = tiny.add_all(split.clone(), x);
            let moved = tiny.add(Transpose { permutation: vec![2, 0, 1] }, &parts[1..2]);
            let back = tiny.add(Transpose { permutation: vec![1, 2, 0] }, &[moved]);
            // The first part is not used.
            tiny.add(Concat { axis }, &[parts[2], back])
        };
        check(&[&sizes], &format!("axis {axis}"), build);
        let mut tiny = Tiny::new(DType::F32);
        let x = tiny.noisy(&sizes);
        let y = build(&mut tiny, &[x]);
        tiny.show(y);
        tiny.probe(y);
        tiny.differentiate(1);
        let [expected, found] = both(&tiny, &Inputs::new());
        assert_eq!(found, expected);
    }
}

#[test]
fn rows_of_tables() {
    let indices = Tensor::new(&[[4u32, 0, 2], [2, 2, 1]], &Device::Cpu).unwrap();
    let inputs = Inputs::new().with("tokens", indices);
    let make = |dtype| {
        let mut tiny = Tiny::new(dtype);
        let table = tiny.noisy(&[5, 3]);
        let tokens = tiny.graph.add_input("tokens", TensorType::plain([2, 3], DType::U32));
        let y = tiny.add(Gather::BY_OPERAND, &[table, tokens]);
        tiny.probe(y);
        tiny
    };
    check_loss(make(DType::F64), 1, &inputs, "gather");
    let mut tiny = make(DType::F32);
    tiny.differentiate(1);
    let [expected, found] = both(&tiny, &inputs);
    assert_close(&found[0], &expected[0], 1e-6, "scattered");
    let mut padded = Tiny::new(DType::F32);
    let table = padded.noisy(&[5, 3]);
    let tokens = padded.graph.add_input("tokens", TensorType::plain([2, 3], DType::U32));
    let y = padded.add(Gather { padding: Some(2), ..Gather::BY_OPERAND }, &[table, tokens]);
    padded.probe(y);
    padded.differentiate(1);
    for found in both(&padded, &inputs) {
        let zeros: Vec<bool> = found[0].chunks(3).map(|row| row.iter().all(|value| *value == 0.0)).collect();
        assert_eq!(zeros, [false, false, true, true, false], "{found:?}");
    }
    let beyond = Inputs::new().with("tokens", Tensor::new(&[[4u32, 0, 2], [2, 5, 1]], &Device::Cpu).unwrap());
    for kernels in [Kernels::Reference, Kernels::Fast { fusion: true }] {
        let mut step = Step::new(tiny.graph.clone(), Options { kernels, ..OPTIONS }).unwrap();
        let error = step.run(&beyond, SCALARS, &mut ()).unwrap_err();
        assert!(matches!(error, EngineError::Node { .. }), "{error}");
        assert!(error.to_string().ends_with("index 5 at position 4 is not below 5, the number of rows"), "{error}");
    }
}

/// Rows by one column of the indices: rows without one of its numbers get no gradient.
#[test]
fn rows_of_tables_by_a_column() {
    let indices = Tensor::new(&[[9u32, 4, 2], [7, 2, 8]], &Device::Cpu).unwrap();
    let inputs = Inputs::new().with("tokens", indices);
    let make = |dtype| {
        let mut tiny = Tiny::new(dtype);
        let table = tiny.noisy(&[5, 3]);
        let tokens = tiny.graph.add_input("tokens", TensorType::plain([2, 3], DType::U32));
        let y = tiny.add(Gather { indices: Indices::Column(1), padding: None }, &[table, tokens]);
        tiny.probe(y);
        tiny
    };
    check_loss(make(DType::F64), 1, &inputs, "gather by a column");
    let mut tiny = make(DType::F32);
    tiny.differentiate(1);
    for found in both(&tiny, &inputs) {
        let zeros: Vec<bool> = found[0].chunks(3).map(|row| row.iter().all(|value| *value == 0.0)).collect();
        assert_eq!(zeros, [true, true, false, true, false], "{found:?}");
    }
}

/// Rows whose numbers are part of the operator: the same row several times, and one that nobody reads.
#[test]
fn fixed_rows_of_tables() {
    let make = |dtype| {
        let mut tiny = Tiny::new(dtype);
        let table = tiny.noisy(&[5, 3]);
        let y =
            tiny.add(Gather { indices: Indices::Fixed([4, 0, 2, 2, 1].as_slice().into()), padding: None }, &[table]);
        tiny.probe(y);
        tiny
    };
    check_loss(make(DType::F64), 1, &Inputs::new(), "gather of fixed rows");
    let mut tiny = make(DType::F32);
    tiny.differentiate(1);
    let [expected, found] = both(&tiny, &Inputs::new());
    assert_close(&found[0], &expected[0], 1e-6, "scattered to fixed rows");
}

/// softmax(q k^T / sqrt(d) + bias) v by plain loops, of rows `[t][heads * d]`. bias: by head, query and key.
fn attention(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    [t, heads, kv, d]: [usize; 4],
    bias: impl Fn(usize, usize, usize) -> f64,
) -> Vec<f64> {
    let mut y = vec![0.0; t * heads * d];
    for (head, i) in (0..heads).flat_map(|head| (0..t).map(move |i| (head, i))) {
        let of = head / (heads / kv);
        let score = |j: usize| {
            let products = (0..d).map(|n| q[(i * heads + head) * d + n] * k[(j * kv + of) * d + n]);
            (products.sum::<f64>() / (d as f64).sqrt() + bias(head, i, j)).exp()
        };
        let scores: Vec<f64> = (0..t).map(score).collect();
        let sum: f64 = scores.iter().sum();
        for n in 0..d {
            y[(i * heads + head) * d + n] = (0..t).map(|j| scores[j] / sum * v[(j * kv + of) * d + n]).sum();
        }
    }
    y
}

/// Hides later keys.
fn causal(_head: usize, query: usize, key: usize) -> f64 {
    if key <= query { 0.0 } else { f64::NEG_INFINITY }
}

/// `x W^T + b`, row by row.
fn linear(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let inputs = weight.len() / bias.len();
    let row = |x: &[f64]| {
        let output = |(o, bias): (usize, &f64)| bias + (0..inputs).map(|i| x[i] * weight[o * inputs + i]).sum::<f64>();
        bias.iter().enumerate().map(output).collect::<Vec<_>>()
    };
    x.chunks(inputs).flat_map(row).collect()
}

/// Columns `from..to` of rows of `width` numbers.
fn columns(x: &[f64], width: usize, from: usize, to: usize) -> Vec<f64> {
    x.chunks(width).flat_map(|row| row[from..to].to_vec()).collect()
}

/// Tokens `[t, e]` of two samples, as the image `[e, 1, t]` that the body makes them of.
fn image(tokens: &[f64], [t, e]: [usize; 2]) -> Vec<f64> {
    let place = |i: usize| tokens[i / (t * e) * t * e + i % t * e + i / t % e];
    (0..tokens.len()).map(place).collect()
}

#[test]
fn attention_of_every_form() {
    let ([t, heads, d], e) = ([5, 4, 3], 12);
    let tokens = noise(2 * t * e, 3);
    let x = image(&tokens, [t, e]);
    let (w, b) = (noise(3 * e * e, 4), noise(3 * e, 5));
    let (out, out_bias) = (noise(e * e, 6), noise(e, 7));
    let packed = linear(&tokens, &w, &b);
    for is_causal in [false, true] {
        let bias = |head, i, j| if is_causal { causal(head, i, j) } else { 0.0 };
        let attended: Vec<f64> = packed
            .chunks(t * 3 * e)
            .flat_map(|sample| {
                let [q, k, v] = [0, 1, 2].map(|part| columns(sample, 3 * e, part * e, (part + 1) * e));
                attention(&q, &k, &v, [t, heads, heads, d], bias)
            })
            .collect();
        let names = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"];
        let values = [&w, &b, &out, &out_bias];
        let parameters: Vec<_> =
            names.iter().zip(values).map(|(name, value)| (format!("a.{name}"), value.clone())).collect();
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let body = format!("    - tokens\n    - attention: {{name: a, heads: {heads}, causal: {is_causal}}}");
        expect(&body, [e, 1, t], &x, &parameters, &linear(&attended, &out, &out_bias));
        let body = format!(
            "    - tokens\n    - linear: {{name: qkv, out: {}}}\n    - dot_product_attention: {{heads: {heads}, causal: {is_causal}}}",
            3 * e
        );
        expect(&body, [e, 1, t], &x, &[("qkv.weight", w.clone()), ("qkv.bias", b.clone())], &attended);
    }
    // Keys and values of other tokens: here those twice as large, and their negatives.
    let twice: Vec<f64> = tokens.iter().map(|x| 2.0 * x).collect();
    let minus: Vec<f64> = tokens.iter().map(|x| -x).collect();
    let projected = [(&tokens, 0), (&twice, 1), (&minus, 2)]
        .map(|(of, part)| linear(of, &w[part * e * e..(part + 1) * e * e], &b[part * e..(part + 1) * e]));
    let sample = |of: &[f64], n: usize| of[n * t * e..(n + 1) * t * e].to_vec();
    let attended: Vec<f64> = (0..2)
        .flat_map(|n| {
            let [q, k, v] = projected.each_ref().map(|of| sample(of, n));
            attention(&q, &k, &v, [t, heads, heads, d], causal)
        })
        .collect();
    let body = format!(
        "    - tokens\n    - tap: x\n    - scale: {{by: 2}}\n    - tap: k\n    - from: x\n    - scale: {{by: -1}}\n    - tap: v\n    - from: x\n    \
         - attention: {{name: a, heads: {heads}, key: k, value: v, causal: true}}"
    );
    let parameters = [
        ("a.in_proj_weight", w.clone()),
        ("a.in_proj_bias", b.clone()),
        ("a.out_proj.weight", out.clone()),
        ("a.out_proj.bias", out_bias.clone()),
    ];
    expect(&body, [e, 1, t], &x, &parameters, &linear(&attended, &out, &out_bias));
    // Two heads of keys and values serve four of queries.
    let kv = 2;
    let width = (heads + 2 * kv) * d;
    let (w, b) = (noise(width * e, 8), noise(width, 9));
    let attended: Vec<f64> = linear(&tokens, &w, &b)
        .chunks(t * width)
        .flat_map(|sample| {
            let [q, k, v] = [(0, heads), (heads, heads + kv), (heads + kv, heads + 2 * kv)]
                .map(|(from, to)| columns(sample, width, from * d, to * d));
            attention(&q, &k, &v, [t, heads, kv, d], causal)
        })
        .collect();
    let attend = format!("dot_product_attention: {{heads: {heads}, kv_heads: {kv}, causal: true}}");
    let body = format!("    - tokens\n    - linear: {{name: qkv, out: {width}}}\n    - {attend}");
    let parameters = [("qkv.weight", w.clone()), ("qkv.bias", b.clone())];
    expect(&body, [e, 1, t], &x, &parameters, &attended);
    // The same with a dense layer for each of them.
    let parts = [("q", 0, heads), ("k", heads, heads + kv), ("v", heads + kv, heads + 2 * kv)];
    let mut parameters = Vec::new();
    let mut body = "    - tokens\n    - tap: x\n".to_owned();
    for (name, from, to) in parts.into_iter().rev() {
        body +=
            &format!("    - from: x\n    - linear: {{name: {name}, out: {}}}\n    - tap: of_{name}\n", (to - from) * d);
        parameters.push((format!("{name}.weight"), w[from * d * e..to * d * e].to_vec()));
        parameters.push((format!("{name}.bias"), b[from * d..to * d].to_vec()));
    }
    body += "    - dot_product_attention: {heads: 4, kv_heads: 2, causal: true, key: of_k, value: of_v}";
    let parameters: Vec<_> = parameters.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    expect(&body, [e, 1, t], &x, &parameters, &attended);
}

#[test]
fn a_convolution_along_one_axis_by_hand() {
    let ([c, l], [out, k, stride, pad, dilation, groups]) = ([4, 9], [6, 3, 2, 2, 2, 2]);
    let (x, w, b) = (noise(2 * c * l, 3), noise(out * c / groups * k, 4), noise(out, 5));
    let length = (l + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
    let at = |n: usize, filter: usize, place: usize| {
        let first = filter / (out / groups) * (c / groups);
        let taps = (0..c / groups).flat_map(|i| (0..k).map(move |tap| (i, tap)));
        let tap = |(i, tap): (usize, usize)| {
            let source = (place * stride + tap * dilation).checked_sub(pad).filter(|source| *source < l);
            source.map_or(0.0, |source| x[(n * c + first + i) * l + source] * w[(filter * c / groups + i) * k + tap])
        };
        b[filter] + taps.map(tap).sum::<f64>()
    };
    let places = (0..2 * out * length).map(|i| (i / (out * length), i / length % out, i % length));
    let expected: Vec<f64> = places.map(|(n, filter, place)| at(n, filter, place)).collect();
    let body = format!(
        "    - reshape: {{to: [{c}, {l}]}}\n    - conv1d: {{name: c, out: {out}, kernel: {k}, stride: {stride}, \
         pad: {pad}, dilation: {dilation}, groups: {groups}}}"
    );
    expect(&body, [c, 1, l], &x, &[("c.weight", w.clone()), ("c.bias", b.clone())], &expected);
}

/// Every row and column that padding by reflection adds, and a filter that takes every second pixel of the result.
#[test]
fn reflection_and_binomial_filters_by_hand() {
    let [c, h, w] = [3, 5, 4];
    let x = noise(2 * c * h * w, 3);
    let mirror = |at: isize, extent: usize| {
        let last = extent as isize - 1;
        (last - (last - at.abs()).abs()) as usize
    };
    let mirrored = |plane: usize, row: isize, column: isize| x[(plane * h + mirror(row, h)) * w + mirror(column, w)];
    let [top, bottom, left, right] = [1, 2, 3, 0];
    let padded: Vec<f64> = (0..2 * c)
        .flat_map(|plane| (-top..h as isize + bottom).map(move |row| (plane, row)))
        .flat_map(|(plane, row)| (-left..w as isize + right).map(move |column| (plane, row, column)))
        .map(|(plane, row, column)| mirrored(plane, row, column))
        .collect();
    let body = "    - pad: {size: [1, 2, 3, 0], mode: reflect}";
    expect(body, [c, h, w], &x, &[], &padded);

    // The row between two edges is on both sides.
    let (edges, mirrored_edges) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 1.0, 2.0, 3.0, 2.0, 5.0, 4.0, 5.0, 6.0, 5.0]);
    expect("    - pad: {size: [1, 1, 0, 0], mode: reflect}", [1, 3, 1], &edges, &[], &mirrored_edges);

    let filter = [0.25, 0.5, 0.25];
    let pixel = |(plane, row, column): (usize, isize, isize)| {
        let taps = (-1..2).flat_map(|i| (-1..2).map(move |j| (i, j)));
        taps.map(|(i, j)| {
            filter[(i + 1) as usize] * filter[(j + 1) as usize] * mirrored(plane, 2 * row + i, 2 * column + j)
        })
        .sum()
    };
    let places =
        (0..2 * c).flat_map(|plane| (0..3).flat_map(move |row| (0..2).map(move |column| (plane, row, column))));
    let blurred: Vec<f64> = places.map(pixel).collect();
    expect("    - pad: {size: 1, mode: reflect}\n    - blur_pool", [c, h, w], &x, &[], &blurred);
}

#[test]
fn an_affine_layer_by_hand() {
    let [t, e] = [5, 6];
    let (tokens, alpha, beta) = (noise(2 * t * e, 3), noise(e, 4), noise(e, 5));
    let expected: Vec<f64> = tokens.iter().enumerate().map(|(n, x)| alpha[n % e] * x + beta[n % e]).collect();
    let body = "    - tokens\n    - affine: {name: a}";
    expect(body, [e, 1, t], &image(&tokens, [t, e]), &[("a.alpha", alpha), ("a.beta", beta)], &expected);
}

#[test]
fn sine_positions_by_hand() {
    let [t, e] = [5, 6];
    let tokens = noise(2 * t * e, 3);
    let table = |n: usize| {
        let (place, channel) = (n / e % t, n % e);
        let angle = place as f64 / 100f64.powf((channel / 2 * 2) as f64 / e as f64);
        if channel % 2 == 0 { angle.sin() } else { angle.cos() }
    };
    let sums: Vec<f64> = tokens.iter().enumerate().map(|(n, x)| x + table(n)).collect();
    let body = "    - tokens\n    - sine_positions: {base: 100}";
    expect(body, [e, 1, t], &image(&tokens, [t, e]), &[], &sums);
    // Sines before cosines, of places from 2 on, with exponents 0, 1/2 and 1.
    let closed = |n: usize| {
        let (place, channel) = ((n / e % t + 2) as f64, n % e);
        let angle = place / 100f64.powf((channel % 3) as f64 / 2.0);
        if channel < 3 { angle.sin() } else { angle.cos() }
    };
    let sums: Vec<f64> = tokens.iter().enumerate().map(|(n, x)| x + closed(n)).collect();
    let body = "    - tokens\n    - sine_positions: {base: 100, from: 2, pairs: halves, closed: true}";
    expect(body, [e, 1, t], &image(&tokens, [t, e]), &[], &sums);
}

#[test]
fn constants_by_hand() {
    let [c, h, w] = [2, 3, 4];
    let x = noise(2 * c * h * w, 3);
    let shifts = [0.5, -1.5];
    let sums: Vec<f64> = x.iter().enumerate().map(|(n, x)| x + shifts[n / (h * w) % c]).collect();
    let body = "    - tap: x\n    - constant: {shape: [2, 1, 1], values: [0.5, -1.5]}\n    - add: x";
    expect(body, [c, h, w], &x, &[], &sums);
    let table = |n: usize| {
        let [i, j, k] = [n / (h * w) % c, n / w % h, n % w].map(|index| index as f64);
        (i + 2.0 * j).sin() * 4f64.powf(-k / 2.0)
    };
    let products: Vec<f64> = x.iter().enumerate().map(|(n, x)| x * table(n)).collect();
    let body = "    - tap: x\n    - constant: {shape: [2, 3, 4], formula: sin(i + 2 * j) * 4^(-k / 2), each: true}\n    - mul: x";
    expect(body, [c, h, w], &x, &[], &products);
}

/// Queries and keys of heads that share keys, turned by their places (arXiv 2104.09864, section 3.2.2).
#[test]
fn attention_with_rotary_positions() {
    let ([t, heads, kv, d], e) = ([5, 4, 2, 6], 3);
    let width = (heads + 2 * kv) * d;
    let (tokens, w, b) = (noise(2 * t * e, 3), noise(width * e, 8), noise(width, 9));
    let turned = |x: Vec<f64>, heads: usize| -> Vec<f64> {
        let number = |n: usize| {
            let (place, channel) = (n / (heads * d), n % d);
            let angle = place as f64 * 100f64.powf(-2.0 * (channel % (d / 2)) as f64 / d as f64);
            let partner = if channel < d / 2 { -x[n + d / 2] } else { x[n - d / 2] };
            x[n] * angle.cos() + partner * angle.sin()
        };
        (0..x.len()).map(number).collect()
    };
    let attended: Vec<f64> = linear(&tokens, &w, &b)
        .chunks(t * width)
        .flat_map(|sample| {
            let [q, k, v] = [(0, heads), (heads, heads + kv), (heads + kv, heads + 2 * kv)]
                .map(|(from, to)| columns(sample, width, from * d, to * d));
            attention(&turned(q, heads), &turned(k, kv), &v, [t, heads, kv, d], causal)
        })
        .collect();
    let attend = "dot_product_attention: {heads: 4, kv_heads: 2, causal: true, rotary: {base: 100}}";
    let body = format!("    - tokens\n    - linear: {{name: qkv, out: {width}}}\n    - {attend}");
    expect(&body, [e, 1, t], &image(&tokens, [t, e]), &[("qkv.weight", w), ("qkv.bias", b)], &attended);
}

#[test]
fn attention_that_falls_with_the_distance_of_a_key() {
    let ([t, heads, d], e) = ([5, 6, 2], 12);
    let (tokens, w, b) = (noise(2 * t * e, 3), noise(3 * e * e, 4), noise(3 * e, 5));
    let slopes = [-2, -4, -6, -8, -1, -3].map(|power| 2f64.powi(power));
    let attended: Vec<f64> = linear(&tokens, &w, &b)
        .chunks(t * 3 * e)
        .flat_map(|sample| {
            let [q, k, v] = [0, 1, 2].map(|part| columns(sample, 3 * e, part * e, (part + 1) * e));
            attention(&q, &k, &v, [t, heads, heads, d], |head, i, j| -slopes[head] * i.abs_diff(j) as f64)
        })
        .collect();
    let body = "    - tokens\n    - linear: {name: qkv, out: 36}\n    - dot_product_attention: {heads: 6, alibi: 8}";
    expect(body, [e, 1, t], &image(&tokens, [t, e]), &[("qkv.weight", w), ("qkv.bias", b)], &attended);
}

#[test]
fn words_of_transformers() {
    let [t, e] = [6, 4];
    let tokens = noise(2 * t * e, 3);
    let x = image(&tokens, [t, e]);
    expect("    - tokens", [e, 1, t], &x, &[], &tokens);
    let token = noise(e, 5);
    let prepended: Vec<f64> =
        tokens.chunks(t * e).flat_map(|sample| [token.clone(), sample.to_vec()].concat()).collect();
    let body = "    - tokens\n    - prepend: {name: class}";
    expect(body, [e, 1, t], &x, &[("class", token.clone())], &prepended);
    let body = "    - tokens\n    - prepend: {name: class}\n    - take: {index: 0}";
    expect(body, [e, 1, t], &x, &[("class", token.clone())], &[token.clone(), token.clone()].concat());
    let third: Vec<f64> = tokens.chunks(e).map(|row| row[2]).collect();
    expect("    - tokens\n    - take: {axis: 1, index: 2}", [e, 1, t], &x, &[], &third);
    let own = noise(t * e, 6);
    let sums: Vec<f64> = tokens.iter().enumerate().map(|(i, x)| x + own[i % own.len()]).collect();
    expect("    - tokens\n    - add_parameter: {name: p}", [e, 1, t], &x, &[("p", own.clone())], &sums);
    let body = "    - tokens\n    - positions: {name: p, rows: 9}";
    let table = [own, noise(3 * e, 7)].concat();
    expect(body, [e, 1, t], &x, &[("p.weight", table)], &sums);
    let table = noise(3 * e, 8);
    let sums: Vec<f64> = tokens.iter().enumerate().map(|(i, x)| x + table[e + i % e]).collect();
    let body = "    - tokens\n    - positions: {name: p, rows: 3, from: 1, step: 0}";
    expect(body, [e, 1, t], &x, &[("p.weight", table)], &sums);
    let scaled: Vec<f64> = tokens.iter().enumerate().map(|(i, x)| x * token[i % e]).collect();
    expect("    - tokens\n    - layer_scale: {name: s}", [e, 1, t], &x, &[("s", token.clone())], &scaled);
    let scaled: Vec<f64> = x.iter().enumerate().map(|(i, x)| x * token[i / t % e]).collect();
    expect("    - layer_scale: {name: s}", [e, 1, t], &x, &[("s", token)], &scaled);
    let gated: Vec<f64> = x
        .chunks(t)
        .flat_map(|map| {
            let mean = map.iter().sum::<f64>() / t as f64;
            map.iter().map(|x| x / (1.0 + (-mean).exp())).collect::<Vec<_>>()
        })
        .collect();
    expect("    - gate: {body: [global_avg_pool, sigmoid]}", [e, 1, t], &x, &[], &gated);
}
