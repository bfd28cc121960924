//! Numbers that can be worked out by hand.

use crate::{
    Device, DeviceLibrary, Seconds, Work,
    collective::all_reduce,
    composed::{Composed, composed},
    input::{Input, InputLimit, input},
    kernel, matrix,
    traffic::Cache,
    vector,
};
use std::path::Path;
use zoo_graph::{
    Bytes, DType, Graph, Layout, Phase, Scope, TensorType, VariableRole,
    formula::Formula,
    ops::{
        Assign, Concat, Conv2D, DeviceName, Map, MatMul, MaxPool, Op, Reshape, TransData, Transpose, Update, Window,
    },
};
use zoo_recipe::schema::{Init, TransDataKernel};

fn ascend() -> Device {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    DeviceLibrary::new([folder]).load("ascend910").unwrap_or_else(|error| panic!("{error}"))
}

fn scope() -> Scope {
    Scope { phase: Phase::Forward, origin: None }
}

fn half(shape: &[usize]) -> TensorType {
    TensorType::plain(shape, DType::F16)
}

/// A graph of one convolution over an input `[n, c, h, w]`.
fn convolution(x: [usize; 4], out: usize, window: Window, groups: usize) -> Graph {
    let mut graph = Graph::default();
    let input = graph.add_input("x", half(&x).with_layout(Layout::Nc1hwc0));
    let filters = half(&[out, x[1] / groups, window.kernel[0], window.kernel[1]]);
    let filters = filters.with_layout(Layout::FractalZ { groups });
    let w = graph.add_variable("w", VariableRole::Weight, filters, Init::Constant(0.0), None);
    let w = graph.variable(w).value;
    let y = graph.add(&scope(), "conv", Conv2D::new(window, groups), &[input, w]).unwrap();
    graph.outputs.push(("y".into(), y));
    graph
}

fn product(graph: &Graph) -> matrix::Product {
    matrix::product(graph, &graph.nodes[0], &ascend()).unwrap()
}

#[test]
fn convolutions_in_fractals() {
    // 56x56 pixels are 196 fractals of 16 rows per image; 64 channels are 4 blocks; 9 taps of 4 blocks each.
    let three = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
    let p = product(&convolution([8, 64, 56, 56], 64, three, 1));
    assert_eq!([p.m, p.n, p.k], [8 * 196, 4, 9 * 4]);
    // 7x7 pixels: 49 rows are padded to 4 fractals in each image.
    let p = product(&convolution([8, 64, 7, 7], 100, three, 1));
    assert_eq!([p.m, p.n, p.k], [8 * 4, 7, 36]);
    // Three channels are padded to a block of 16 at each of 49 taps.
    let stem = Window { pad: [3; 4], ..Window::new([7; 2], [2; 2]) };
    let p = product(&convolution([1, 3, 224, 224], 64, stem, 1));
    assert_eq!([p.m, p.n, p.k], [784, 4, 49]);
    assert_eq!(p.flop, 2 * 64 * 112 * 112 * 147);
    // Depthwise: each block of 16 channels is a product of its own, one block deep.
    let p = product(&convolution([1, 96, 28, 28], 96, three, 96));
    assert_eq!([p.m, p.n, p.k], [49 * 6, 1, 9]);
    // 32 groups of 4 channels: a block of 16 outputs sees the 16 channels of 4 groups.
    let p = product(&convolution([1, 128, 28, 28], 128, three, 32));
    assert_eq!([p.m, p.n, p.k], [49 * 8, 1, 9]);
}

#[test]
fn the_heads_of_an_attention_are_products_of_their_own() {
    // 4 samples of 12 heads: 197 tokens of 64 numbers, padded to 13 and 4 fractals, by as many.
    let mut graph = Graph::default();
    let [q, k] = ["q", "k"].map(|name| graph.add_input(name, half(&[4, 12, 197, 64])));
    graph.add(&scope(), "scores", MatMul { transpose_a: false, transpose_b: true }, &[q, k]).unwrap();
    let p = product(&graph);
    assert_eq!([p.count, p.m, p.n, p.k], [48, 13, 13, 4]);
    assert_eq!([p.left_bytes, p.right_bytes], [2 * 197 * 64; 2]);
    assert_eq!(p.flop, 48 * 2 * 197 * 197 * 64);
    // On 32 cores, 48 products of their own take two rounds; cores that share products take as long together as there
    // is work.
    let tiling = matrix::search(&p, &ascend(), false, &|t| t.cube);
    let ideal = (48 * 13 * 13 * 4) as f64 / 32.0 / (0.9766e9 * ascend().matrix.efficiency.value);
    assert!(tiling.cube.0 >= ideal * (1.0 - 1e-12) && tiling.cube.0 < 1.4 * ideal, "{tiling:?} {ideal}");
    // One matrix of weights for all rows is one product.
    let w = graph.add_input("w", half(&[64, 64]));
    graph.nodes.clear();
    graph.add(&scope(), "linear", MatMul { transpose_a: false, transpose_b: true }, &[q, w]).unwrap();
    let p = product(&graph);
    assert_eq!([p.count, p.m, p.n, p.k], [1, 48 * 197 / 16, 4, 4]);
}

#[test]
fn a_search_reaches_the_peak_of_full_tiles() {
    let device = ascend();
    let three = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
    let p = product(&convolution([64, 256, 56, 56], 256, three, 1));
    let tiling = matrix::search(&p, &device, false, &|t| t.cube.max(t.l2));
    let ideal = (p.m * p.n * p.k) as f64 / 32.0 / (0.9766e9 * device.matrix.efficiency.value);
    assert!(tiling.cube.0 >= ideal * (1.0 - 1e-12) && tiling.cube.0 < 1.05 * ideal, "{} {ideal}", tiling.cube.0);
    assert_eq!(tiling.split.iter().product::<u64>(), 32, "every core works");
    assert!(tiling.block[0] * tiling.block[1] <= 128, "half of L0C: 128 KiB of f32 tiles of 1 KiB");
}

#[test]
fn pools_pay_for_the_rows_of_their_output() {
    let mut graph = Graph::default();
    let x = graph.add_input("x", half(&[2, 32, 28, 28]).with_layout(Layout::Nc1hwc0));
    let window = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
    graph.add(&scope(), "pool", MaxPool { window }, &[x]).unwrap();
    let work = vector::work(&graph, &graph.nodes[0], &ascend());
    // 2 images, 2 blocks of channels, 28 rows, and 18 instructions for 9 taps.
    assert_eq!(work.starts, (2 * 2 * 28 * 18) as f64);
    assert_eq!(work.bytes, (2 * 32 * 28 * 28 * 2 * 18) as f64);
}

/// Traffic of a graph's only kernel.
fn traffic(graph: &Graph, trans_data: TransDataKernel) -> crate::traffic::Traffic {
    let device = ascend();
    let kernels =
        kernel::kernels(graph, kernel::Riding { elementwise: true, sums: false, attention: false, views: &[] });
    assert_eq!(kernels.len(), 1);
    Cache::new(graph, &kernels, &device, true, trans_data).run(graph, &kernels[0])
}

#[test]
fn conversions_pay_for_short_runs() {
    let mut graph = Graph::default();
    let x = graph.add_input("x", half(&[2, 32, 28, 28]));
    let y = graph.add(&scope(), "y", TransData { to: Layout::Nc1hwc0 }, &[x]).unwrap();
    graph.outputs.push(("y".into(), y));
    let overhead = ascend().hbm.run_overhead_bytes.value;
    let blocks = traffic(&graph, TransDataKernel::Blocks);
    assert_eq!(blocks.hbm(), 2 * 2 * (2 * 32 * 28 * 28));
    assert_eq!(blocks.run_factor, 1.0 + overhead / 32.0, "runs of 16 channels of 2 bytes");
    assert_eq!(traffic(&graph, TransDataKernel::Elements).run_factor, 1.0 + overhead / 2.0);
}

#[test]
fn concatenation_copies_whole_blocks_or_single_lanes() {
    let joined = |channels: usize| {
        let mut graph = Graph::default();
        let parts: Vec<_> = (0..2)
            .map(|i| graph.add_input(format!("x{i}"), half(&[1, channels, 8, 8]).with_layout(Layout::Nc1hwc0)))
            .collect();
        let y = graph.add(&scope(), "y", Concat { axis: 1 }, &parts).unwrap();
        graph.outputs.push(("y".into(), y));
        traffic(&graph, TransDataKernel::Blocks)
    };
    let overhead = ascend().hbm.run_overhead_bytes.value;
    // 32 channels of 64 pixels are 4096 bytes in one piece, read and written once.
    assert_eq!((joined(32).hbm(), joined(32).run_factor), (4 * 4096, 1.0 + overhead / 4096.0));
    // 24 channels end inside a block: stored as 32, copied lane by lane.
    assert!(joined(24).run_factor > 10.0);
}

#[test]
fn sums_over_devices() {
    let device = ascend();
    let close =
        |found: Seconds, expected: f64| assert!((found.0 / expected - 1.0).abs() < 1e-9, "{} {expected}", found.0);
    // 102 MB on 8: 0.5 ms and 102e6 / 22.7e9.
    close(all_reduce(&device, 8, 102_000_000), 0.5e-3 + 102e6 / 22.7e9);
    // On 4, 3/4 of the bytes are passed on instead of 7/8.
    close(all_reduce(&device, 4, 102_000_000), 0.5e-3 + 102e6 / 22.7e9 * 0.75 / 0.875);
    // On 16, two servers pass on an eighth of the sum each: 2 * 1/2 * 102e6 / 8 at 10 GB/s, and one more latency.
    close(all_reduce(&device, 16, 102_000_000), 0.5e-3 + 102e6 / 22.7e9 + 0.1e-3 + 102e6 / 8.0 / 10e9);
    assert_eq!(all_reduce(&device, 1, 102_000_000), Seconds::ZERO);
}

#[test]
fn memory_holds_what_is_live() {
    let three = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
    let graph = convolution([2, 16, 8, 8], 16, three, 1);
    let (map, filters) = (2 * 16 * 64 * 2, 16 * 16 * 9 * 2);
    assert_eq!(crate::memory::peak_memory(&graph, &Default::default()), Bytes(2 * map + filters));
    assert!(matches!(graph.nodes[0].op, Op::Conv2D(_)));
}

#[test]
fn convolutions_in_f32_transpose_maps_that_lie_channels_first() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let mut device = DeviceLibrary::new([folder]).load("a100").unwrap();
    let mut graph = Graph::default();
    let x = graph.add_input("x", TensorType::plain([2, 8, 10, 10], DType::F32));
    let filters = TensorType::plain([4, 8, 1, 1], DType::F32);
    let w = graph.add_variable("w", VariableRole::Weight, filters, Init::Constant(0.0), None);
    let w = graph.variable(w).value;
    let y = graph.add(&scope(), "conv", Conv2D::new(Window::new([1; 2], [1; 2]), 1), &[x, w]).unwrap();
    graph.outputs.push(("y".into(), y));
    let kernels =
        kernel::kernels(&graph, kernel::Riding { elementwise: false, sums: false, attention: false, views: &[] });
    let mut bytes = |transposes| {
        device.matrix.transposes_f32 = transposes;
        Cache::new(&graph, &kernels, &device, false, TransDataKernel::Blocks).run(&graph, &kernels[0]).hbm()
    };
    // Maps of 2 x 8 and 2 x 4 planes of 100 numbers, each read and written once more; filters of 4 x 8 numbers stay.
    assert_eq!(bytes(false), 4 * (1600 + 800 + 32));
    assert_eq!(bytes(true), 4 * (3 * (1600 + 800) + 32));
}

/// An input side on the Ascend server.
fn input_of(recipe: &str, devices: usize, change: impl Fn(&mut Device)) -> Input {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let loaded = zoo_recipe::Library::new([folder]).load(recipe, &zoo_recipe::LoadOptions::default());
    let recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    let mut device = ascend();
    change(&mut device);
    input(&recipe, &device, Work::Train, 64, devices)
}

#[test]
fn an_input_is_as_fast_as_its_workers_its_cores_or_its_lock() {
    // Decode, crop and scale, mirror, normalise: of stored pixels, then of 224 x 224.
    let found = input_of("resnet50", 8, |_| ());
    let steps = &ascend().host.steps;
    let of_sample = steps.resize_ns.value + steps.flip_ns.value + steps.normalize_ns.value;
    let core = ascend().host.core_time.value * 1e-9;
    let cost = core * (steps.stored_pixels.value * steps.decode_ns.value + 224.0 * 224.0 * of_sample);
    let close =
        |found: Seconds, expected: f64| assert!((found.0 / expected - 1.0).abs() < 1e-9, "{found:?} {expected}");
    close(found.steps.iter().map(|step| step.time).sum(), cost);
    // Twelve workers each; 192 cores would feed 24.
    close(found.pipeline, 64.0 * cost / 12.0);
    assert_eq!(found.limit, InputLimit::Workers);
    let found = input_of("resnet50", 8, |device| device.host.workers.value = 100.0);
    close(found.pipeline, 64.0 * cost / 24.0);
    assert_eq!(found.limit, InputLimit::Cores);
    // One thread of Python at a time: more workers would not help.
    let found = input_of("efficientnet_b0", 8, |device| {
        let stack = device.stacks.iter().find(|stack| stack.name == "mindcv").unwrap().clone();
        *device = device.clone().under(&stack);
    });
    assert_eq!(found.limit, InputLimit::Lock);
    close(found.pipeline, 64.0 * core * steps.auto_augment_ns.value * 224.0 * 224.0);
}

/// `0.7 * x + exp(y)` of 1000 numbers in f32: a product, an exponential, a sum.
fn formula_graph() -> Graph {
    let mut graph = Graph::default();
    let plain = TensorType::plain([1000], DType::F32);
    let [x, y] = ["x", "y"].map(|name| graph.add_input(name, plain.clone()));
    let formula = Formula::define(0, |[x, y]| [0.7 * x + y.exp()]);
    let map = Map::over(formula, &[&plain, &plain]).unwrap().named(DeviceName::new("Elu", "EluGrad"));
    let z = graph.add(&scope(), "z", map, &[x, y]).unwrap();
    graph.outputs.push(("z".into(), z));
    graph
}

#[test]
fn composed_formulas_run_term_by_term() {
    let graph = formula_graph();
    assert_eq!(composed(&graph, &graph.nodes[0], &[]), None);
    let found = composed(&graph, &graph.nodes[0], &["Elu".to_owned()]).unwrap();
    // Read: x, y, and both products of these; written: three results.
    let expected = Composed { kernels: 3, read: 4 * 4000, written: 3 * 4000, operand: 4000 };
    assert_eq!(found, expected);
    let device = Device {
        operators: crate::device::Operators { composed: vec!["Elu".into()], ..ascend().operators },
        ..ascend()
    };
    let kernels =
        kernel::kernels(&graph, kernel::Riding { elementwise: true, sums: false, attention: false, views: &[] });
    let traffic = Cache::new(&graph, &kernels, &device, true, TransDataKernel::Blocks).run(&graph, &kernels[0]);
    // What a term leaves fits the cache.
    assert_eq!((traffic.launches, traffic.hbm(), traffic.cached), (3, 3 * 4000, 4 * 4000));
}

#[test]
fn transposes_that_keep_rows_copy_unless_readers_take_any_strides() {
    let mut graph = Graph::default();
    let x = graph.add_input("x", half(&[4, 49, 3, 32]));
    let y = graph.add(&scope(), "heads", Transpose { permutation: vec![0, 2, 1, 3] }, &[x]).unwrap();
    let z = graph.add(&scope(), "scores", MatMul { transpose_a: false, transpose_b: true }, &[y, y]).unwrap();
    graph.outputs.push(("z".into(), z));
    let riding = kernel::Riding { elementwise: true, sums: false, attention: false, views: &[] };
    let run = |riding| {
        let kernels = kernel::kernels(&graph, riding);
        let device = ascend();
        let mut cache = Cache::new(&graph, &kernels, &device, true, TransDataKernel::Blocks);
        kernels.iter().map(|kernel| cache.run(&graph, kernel)).collect::<Vec<_>>()
    };
    // Rows of 32 numbers, 64 bytes: starting each costs 128 more.
    let copied = run(riding);
    let bytes = 4 * 49 * 3 * 32 * 2;
    assert_eq!((copied.len(), copied[0].hbm(), copied[0].run_factor), (2, 2 * bytes, 3.0));
    assert_eq!((copied[1].read, copied[1].cached), (0, bytes), "what was copied is in the cache");
    let views = ["TransposeD".to_owned()];
    let viewed = run(kernel::Riding { views: &views, ..riding });
    assert_eq!((viewed.len(), viewed[0].read), (1, bytes));
    assert_eq!(
        run(kernel::Riding { attention: true, ..riding }).len(),
        1,
        "rows of heads lie apart for a fused attention"
    );
}

#[test]
fn what_is_only_reshaped_stays_in_the_cache() {
    let mut graph = Graph::default();
    let x = graph.add_input("x", half(&[16, 64]));
    let square = MatMul { transpose_a: false, transpose_b: true };
    let y = graph.add(&scope(), "y", square.clone(), &[x, x]).unwrap();
    let flat = graph.add(&scope(), "flat", Reshape { shape: [2, 8, 16].into() }, &[y]).unwrap();
    let z = graph.add(&scope(), "z", square, &[flat, flat]).unwrap();
    graph.outputs.push(("z".into(), z));
    let kernels =
        kernel::kernels(&graph, kernel::Riding { elementwise: true, sums: false, attention: false, views: &[] });
    let device = ascend();
    let mut cache = Cache::new(&graph, &kernels, &device, true, TransDataKernel::Blocks);
    let traffic: Vec<_> = kernels.iter().map(|kernel| cache.run(&graph, kernel)).collect();
    assert_eq!((traffic.len(), traffic[1].read, traffic[1].cached), (2, 0, 16 * 16 * 2));
}

#[test]
fn an_update_takes_each_function_once_per_element() {
    // An average moves in two products and a sum; a root on top is one function more, of four instructions.
    let plain = TensorType::plain([1000], DType::F32);
    let bytes = |formula: Formula| {
        let mut graph = Graph::default();
        let [a, b] = ["a", "b"].map(|name| graph.add_input(name, plain.clone()));
        let update = Assign::new(formula, "ApplyEma", Update::Average);
        graph.add(&scope(), "update", update, &[a, b]).unwrap();
        vector::work(&graph, &graph.nodes[0], &ascend()).bytes
    };
    assert_eq!(bytes(Formula::define(0, |[a, b]| [0.5 * a + 0.5 * b])), (3 * 4000) as f64);
    assert_eq!(bytes(Formula::define(0, |[a, b]| [0.5 * a + 0.5 * b.sqrt()])), (7 * 4000) as f64);
}

#[test]
fn functions_take_several_instructions() {
    let graph = formula_graph();
    let work = vector::work(&graph, &graph.nodes[0], &ascend());
    // A product, a sum, and an exponential of four instructions.
    assert_eq!(work.bytes, (6 * 4000) as f64);
}

#[test]
fn depthwise_convolutions_have_a_rate_of_their_own() {
    let three = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
    let graph = convolution([1, 96, 28, 28], 96, three, 96);
    let p = product(&graph);
    assert!(p.depthwise && !product(&convolution([1, 96, 28, 28], 96, three, 1)).depthwise);
    let cube = |p: &matrix::Product| matrix::search(p, &ascend(), false, &|t| t.cube).cube.0;
    let rate = ascend().matrix.depthwise_rate.value;
    assert!((cube(&p) * rate / cube(&matrix::Product { depthwise: false, ..p }) - 1.0).abs() < 1e-9);
    // On a GPU it is no product: instructions at nine taps, in half the width, and the conversion of each result.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let v100 = DeviceLibrary::new([folder]).load("v100").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(matrix::product(&graph, &graph.nodes[0], &v100), None);
    let results = (96 * 28 * 28) as f64;
    let of_tap = v100.vector.depthwise_instructions.as_ref().unwrap().value;
    let expected = results * (2.0 * 9.0 * of_tap + 4.0);
    assert_eq!(vector::work(&graph, &graph.nodes[0], &v100).bytes, expected);
}

#[test]
fn what_needs_a_sum_of_a_long_row_reads_it_twice() {
    // x less the sum of its row: 60000 numbers in f32 fit a core's 256 KiB, 70000 do not, and stay in the cache.
    let of = |row: usize| {
        let mut graph = Graph::default();
        let plain = TensorType::plain([8, row], DType::F32);
        let x = graph.add_input("x", plain.clone());
        let map = Map::over(Formula::define(1, |[x]| [x - x.row_sum()]), &[&plain]).unwrap();
        let y = graph.add(&scope(), "y", map, &[x]).unwrap();
        graph.outputs.push(("y".into(), y));
        traffic(&graph, TransDataKernel::Blocks)
    };
    assert_eq!((of(60_000).read, of(60_000).cached), (8 * 4 * 60_000, 0));
    assert_eq!((of(70_000).read, of(70_000).cached), (8 * 4 * 70_000, 8 * 4 * 70_000));
    // Sixteen million do not fit the cache either.
    assert_eq!((of(2_000_000).read, of(2_000_000).cached), (2 * 8 * 4 * 2_000_000, 0));
}
