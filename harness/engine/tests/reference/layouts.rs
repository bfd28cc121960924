//! TransData: blocked layouts by their definitions, and back.

use crate::{
    naive::indices,
    tiny::{OPTIONS, SCALARS, Tiny, elements, noise},
};
use candle_core::{Device, Tensor};
use zoo_engine::{EngineError, Inputs, KernelError, Step, layout::to_stored};
use zoo_graph::{
    C0, DType, Graph, Layout, Phase, Scope, TensorType, VariableRole,
    ops::{Rectifier, Relu, TransData},
};
use zoo_recipe::schema::Init;

/// The memory of a tensor in a layout.
fn stored(dims: [usize; 4], x: &[f64], layout: Layout) -> Vec<f64> {
    let plain = Tensor::from_vec(x.to_vec(), dims.to_vec(), &Device::Cpu).unwrap();
    elements(&to_stored(&plain, &TensorType::plain(dims, DType::F64).with_layout(layout)).unwrap())
}

/// A tensor after conversions in a graph.
fn converted(dims: [usize; 4], x: &[f64], to: &[Layout]) -> Vec<f64> {
    let mut tiny = Tiny::new(DType::F64);
    let mut value = tiny.given(&dims, x.to_vec());
    for &to in to {
        value = tiny.add(TransData { to }, &[value]);
    }
    tiny.show(value);
    elements(&tiny.run().outputs[0].1)
}

#[test]
fn feature_maps_in_blocks() {
    let [n, c, h, w] = [2, 20, 3, 5];
    let x = noise(n * c * h * w, 1);
    let blocked = stored([n, c, h, w], &x, Layout::Nc1hwc0);
    let c1 = c.div_ceil(C0);
    let mut expected = vec![0.0; n * c1 * C0 * h * w];
    for ((image, channel, i, j), x) in indices([n, c, h, w]).zip(&x) {
        expected[(((image * c1 + channel / C0) * h + i) * w + j) * C0 + channel % C0] = *x;
    }
    assert_eq!(blocked, expected);
}

/// Filters `[o, i, kh, kw]` in FRACTAL_Z by its definition `[o1][i1][kh][kw][i][o0]`, block by block.
fn fractal_z([o, i, kh, kw]: [usize; 4], groups: usize, x: &[f64]) -> Vec<f64> {
    let (channels, per_group) = (i * groups, o / groups);
    let weight = |out: usize, channel: usize, tap: usize| {
        let inside = out < o && channel < channels && channel / i == out / per_group;
        if inside { x[(out * i + channel % i) * kh * kw + tap] } else { 0.0 }
    };
    let mut stored = Vec::new();
    for o1 in 0..o.div_ceil(C0) {
        let outs = o1 * C0..((o1 + 1) * C0).min(o);
        let (first, last) = (outs.start / per_group * i, ((outs.end - 1) / per_group + 1) * i - 1);
        for i1 in first / C0..=last / C0 {
            for (tap, i0) in (0..kh * kw).flat_map(|tap| (0..C0.min(channels)).map(move |i0| (tap, i0))) {
                stored.extend((0..C0).map(|o0| weight(o1 * C0 + o0, i1 * C0 + i0, tap)));
            }
        }
    }
    stored
}

/// Filters at awkward numbers of channels and groups.
const FILTERS: [([usize; 4], usize); 6] = [
    ([16, 16, 1, 1], 1),
    ([40, 3, 3, 2], 1),
    ([20, 35, 2, 2], 1),
    ([40, 3, 3, 2], 2),
    ([60, 12, 1, 3], 4),
    ([24, 2, 3, 3], 12),
];

#[test]
fn filters_in_blocks() {
    for (dims, groups) in FILTERS {
        let x = noise(dims.iter().product(), 1);
        let found = stored(dims, &x, Layout::FractalZ { groups });
        assert_eq!(found, fractal_z(dims, groups, &x), "{dims:?} in {groups} groups");
    }
}

#[test]
fn depthwise_filters_in_blocks() {
    let dims = [20, 1, 2, 3];
    let x = noise(120, 1);
    let mut expected = vec![0.0; 2 * 6 * C0];
    for ((c, _, r, s), x) in indices(dims).zip(&x) {
        expected[((c / C0 * 2 + r) * 3 + s) * C0 + c % C0] = *x;
    }
    assert_eq!(stored(dims, &x, Layout::FractalZ { groups: 20 }), expected);
}

#[test]
fn there_and_back() {
    for (dims, groups) in FILTERS {
        let x = noise(dims.iter().product(), 1);
        for layout in [Layout::Nc1hwc0, Layout::FractalZ { groups }] {
            assert_eq!(converted(dims, &x, &[layout]), x, "{dims:?} in {layout}");
            assert_eq!(converted(dims, &x, &[layout, Layout::Plain]), x, "{dims:?} in {layout} and back");
        }
        let all = [Layout::FractalZ { groups }, Layout::Nc1hwc0, Layout::Plain];
        assert_eq!(converted(dims, &x, &all), x, "{dims:?}");
    }
}

#[test]
fn other_operators_refuse_blocks() {
    let mut tiny = Tiny::new(DType::F64);
    let x = tiny.noisy(&[1, 2, 3, 3]);
    let blocked = tiny.add(TransData { to: Layout::Nc1hwc0 }, &[x]);
    let y = tiny.add(Relu { rectifier: Rectifier::Relu }, &[blocked]);
    tiny.show(y);
    let refused = Step::new(tiny.graph, OPTIONS).err();
    let Some(EngineError::Node { source: KernelError::Layout(Layout::Nc1hwc0), .. }) = refused else {
        panic!("{refused:?}")
    };
}

#[test]
fn variables_in_blocks_are_given_and_read_row_major() {
    let mut graph = Graph::default();
    let layout = Layout::FractalZ { groups: 1 };
    let ty = TensorType::plain([20, 3, 2, 2], DType::F32).with_layout(layout);
    let id = graph.add_variable("w", VariableRole::Weight, ty, Init::Constant(0.5), None);
    let scope = Scope { phase: Phase::Forward, origin: None };
    let value = graph.variable(id).value;
    let plain = graph.add(&scope, "plain", TransData { to: Layout::Plain }, &[value]).unwrap();
    graph.outputs.push(("w".into(), plain));
    let mut step = Step::new(graph, OPTIONS).unwrap();
    step.initialize(0).unwrap();
    assert_eq!(elements(&step.variable("w").unwrap()), [0.5; 240]);
    let w = Tensor::arange(0f32, 240.0, &Device::Cpu).unwrap().reshape((20, 3, 2, 2)).unwrap();
    step.set_variable("w", &w).unwrap();
    assert_eq!(elements(&step.variable("w").unwrap()), elements(&w));
    assert_eq!(elements(&step.variables().unwrap()[0].1), elements(&w));
    let result = step.run(&Inputs::new(), SCALARS, &mut ()).unwrap();
    assert_eq!(elements(&result.outputs[0].1), elements(&w));
}
