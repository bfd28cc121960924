//! Passes that devices apply: the rewritten step computes what the plain one does.

use crate::tiny::{SCALARS, Tiny, assert_close, elements};
use candle_core::{Device, Tensor};
use std::path::Path;
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step};
use zoo_graph::{
    DType, Graph, Phase, Place, Scope, Shape,
    ops::{ClipByValue, ExtractPatches, MatMul, Op, Reshape, Window},
    passes::{
        ChannelsLastInput, FoldPad, HostPlacement, L2ToDecay, NormalizeOnDevice, Pass, PatchesAsConvolution, Pipeline,
        ReduceOnMatrix, ScaleLoss, SplitDecay,
    },
};
use zoo_recipe::{BuildOptions, build};
use zoo_recipe::{Library, LoadOptions};

const OPTIONS: Options = Options { kernels: Kernels::Reference, threads: None, level: None };
const BATCH: usize = 4;

fn graph(name: &str, dtype: DType) -> Graph {
    changed(name, &[], dtype)
}

/// The graph of a recipe with these overrides.
fn changed(name: &str, sets: &[&str], dtype: DType) -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recipes");
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let loaded = Library::new([folder]).load(name, &LoadOptions { profile: None, sets });
    let recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    let options = BuildOptions { dtype, dropout: false, ..BuildOptions::train(BATCH) };
    build(&recipe, &recipe.resolve().unwrap(), &options).unwrap()
}

/// Pixels of an image `[n, c, h, w]`, by index.
fn image(size: usize, dtype: DType) -> Tensor {
    let numel = BATCH * 3 * size * size;
    let pixels: Vec<f64> = (0..numel).map(|i| ((i * 7919 % 1013) as f64 / 506.0 - 1.0) * 1.5).collect();
    let pixels = Tensor::from_vec(pixels, (BATCH, 3, size, size), &Device::Cpu).unwrap();
    let dtype = if dtype == DType::F64 { candle_core::DType::F64 } else { candle_core::DType::F32 };
    pixels.to_dtype(dtype).unwrap()
}

/// Values of the variables after one step, and the loss.
fn after(graph: Graph, image: Tensor) -> (Vec<(String, Vec<f64>)>, f64) {
    let labels = Tensor::new(&[0u32, 3, 1, 4], &Device::Cpu).unwrap();
    let mut step = Step::new(graph, OPTIONS).unwrap();
    step.initialize(5).unwrap();
    // Whoever does not scale the loss does not see the scale.
    let scalars = Scalars { loss_scale: 1000.0, ..SCALARS };
    let result = step.run(&Inputs::new().with("image", image).with("label", labels), scalars, &mut ()).unwrap();
    let variables = step.variables().unwrap();
    let values = variables.iter().map(|(variable, tensor)| (variable.name.clone(), elements(tensor)));
    (values.collect(), result.losses[0].1)
}

fn rewritten(name: &str, dtype: DType, passes: Vec<Box<dyn Pass + Send + Sync>>) -> Graph {
    let mut graph = graph(name, dtype);
    let applied = Pipeline::of(passes).run(&mut graph, None).unwrap();
    assert!(applied.iter().all(|pass| !pass.patches.is_empty()), "a pass did nothing: {applied:?}");
    graph
}

#[track_caller]
fn assert_same(found: &[(String, Vec<f64>)], expected: &[(String, Vec<f64>)], tolerance: f64) {
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        let size = expected.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-30);
        let error = found.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / size;
        assert!(error <= tolerance, "{name}: {error:e}");
    }
}

#[test]
fn rewrites_leave_the_update_as_it_was() {
    for (network, passes) in [
        ("padded", vec!["fold_pad", "l2_to_decay", "scale_loss", "reduce_on_matrix", "all"]),
        ("tiny", vec!["scale_loss", "split_decay", "reduce_on_matrix"]),
    ] {
        let size = if network == "padded" { 12 } else { 16 };
        let (plain, _) = after(graph(network, DType::F64), image(size, DType::F64));
        for name in passes {
            let of = |name: &str| -> Box<dyn Pass + Send + Sync> {
                match name {
                    "fold_pad" => Box::new(FoldPad),
                    "l2_to_decay" => Box::new(L2ToDecay),
                    "scale_loss" => Box::new(ScaleLoss::default()),
                    "split_decay" => Box::new(SplitDecay),
                    _ => Box::new(ReduceOnMatrix),
                }
            };
            let all = ["fold_pad", "l2_to_decay", "scale_loss", "split_decay", "reduce_on_matrix"];
            let chosen = if name == "all" { all.map(of).into() } else { vec![of(name)] };
            let (found, _) = after(rewritten(network, DType::F64, chosen), image(size, DType::F64));
            assert_same(&found, &plain, 1e-11);
        }
    }
}

#[test]
fn images_may_come_otherwise() {
    let (plain, loss) = after(graph("padded", DType::F64), image(12, DType::F64));
    let last = image(12, DType::F64).permute((0, 2, 3, 1)).unwrap().contiguous().unwrap();
    let (found, same) = after(rewritten("padded", DType::F64, vec![Box::new(ChannelsLastInput)]), last);
    assert_same(&found, &plain, 1e-12);
    assert!((same / loss - 1.0).abs() < 1e-12);
    // Levels whose normalisation gives the same image: x * 3 + 5.
    let raw = image(12, DType::F64).affine(3.0, 5.0).unwrap();
    let normalize = NormalizeOnDevice { mean: [5.0; 3], std: [3.0; 3] };
    let (found, same) = after(rewritten("padded", DType::F64, vec![Box::new(normalize)]), raw);
    assert_same(&found, &plain, 1e-9);
    assert!((same / loss - 1.0).abs() < 1e-9);
}

/// After one step with the loss times 1000, with these bounds on gradients, before or after they are divided again.
fn clipped(clip: &str, clips_scaled: bool) -> Vec<(String, Vec<f64>)> {
    let mut graph = changed("tiny", &[&format!("gradients.clip=[{clip}]")], DType::F64);
    let applied = Pipeline::of(vec![Box::new(ScaleLoss { clips_scaled })]).run(&mut graph, None).unwrap();
    assert!(!applied[0].patches.is_empty());
    after(graph, image(16, DType::F64)).0
}

#[test]
fn gradients_are_clipped_before_or_after_they_are_scaled_back() {
    let without = after(changed("tiny", &["gradients.clip=[value: 0.001]"], DType::F64), image(16, DType::F64)).0;
    // Scaled back first, the bounds are on the gradients themselves; else on a thousand times as much.
    assert_same(&clipped("value: 0.001", false), &without, 1e-11);
    assert_same(&clipped("value: 1", true), &without, 1e-11);
    let norm = after(changed("tiny", &["gradients.clip=[norm: 0.01]"], DType::F64), image(16, DType::F64)).0;
    assert_same(&clipped("norm: 0.01", false), &norm, 1e-11);
    // Only the 1e-6 beside the norm is not scaled.
    assert_same(&clipped("norm: 10", true), &norm, 1e-3);
    let apart = |a: &[(String, Vec<f64>)], b: &[(String, Vec<f64>)]| {
        a.iter().zip(b).any(|((_, a), (_, b))| a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-6))
    };
    assert!(apart(&clipped("value: 0.001", true), &without), "the order matters");
}

#[test]
fn clipping_by_hand() {
    // Loss x.w with x = (0.1, 0.5, 2), so the gradient of w is x; scale 4, bound 1, learning rate 0.1, no momentum yet.
    let step = |clips_scaled: Option<bool>| {
        let mut tiny = Tiny::new(DType::F64);
        let w = tiny.given(&[3, 1], vec![0.0; 3]);
        let x = tiny.given(&[1, 3], vec![0.1, 0.5, 2.0]);
        let slot = tiny.given(&[3, 1], vec![0.0; 3]);
        let product = tiny.add(MatMul { transpose_a: false, transpose_b: false }, &[x, w]);
        let loss = tiny.add(Reshape { shape: Shape::scalar() }, &[product]);
        tiny.graph.losses.push(("loss".into(), loss));
        tiny.differentiate(1);
        tiny.graph.outputs.clear();
        let (id, gradient) = tiny.graph.gradients[0];
        let scope = Scope { phase: Phase::Update, origin: None };
        let clip = tiny.graph.add(&scope, "w/clip", ClipByValue { bound: 1.0 }, &[gradient]).unwrap();
        let op = crate::optimizers::momentum();
        let next = tiny.graph.add_node(&scope, "w/update", op, &[w, slot, clip]).unwrap();
        tiny.graph.variables[id.0].next = Some(next[0]);
        tiny.graph.variables[2].next = Some(next[1]);
        let passes: Vec<Box<dyn Pass + Send + Sync>> =
            clips_scaled.map(|clips_scaled| Box::new(ScaleLoss { clips_scaled }) as _).into_iter().collect();
        Pipeline::of(passes).run(&mut tiny.graph, None).unwrap();
        let mut step = tiny.step();
        step.run(&Inputs::new(), Scalars { loss_scale: 4.0, ..SCALARS }, &mut ()).unwrap();
        elements(&step.variable("v0").unwrap())
    };
    let close = |found: Vec<f64>, wanted: [f64; 3]| {
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-15), "{found:?} instead of {wanted:?}");
    };
    close(step(None), [-0.01, -0.05, -0.1]);
    // (0.1, 0.5, 2), clipped at 1.
    close(step(Some(false)), [-0.01, -0.05, -0.1]);
    // (0.4, 2, 8), clipped at 1, divided by 4: (0.1, 0.25, 0.25).
    close(step(Some(true)), [-0.01, -0.025, -0.025]);
}

#[test]
fn patches_are_the_same_by_convolution_and_on_the_host() {
    let window = |kernel, stride, pad| Window { pad, ..Window::new(kernel, stride) };
    for (map, window) in [
        ([2, 3, 5, 6], window([2, 3], [1, 2], [0; 4])),
        ([1, 2, 7, 7], window([3, 3], [2, 2], [1; 4])),
        ([2, 1, 5, 6], window([4, 2], [3, 1], [2, 1, 0, 1])),
        ([3, 4, 3, 3], window([1, 1], [1, 1], [0; 4])),
    ] {
        let mut native = Tiny::new(DType::F64);
        let x = native.noisy(&map);
        let y = native.add(ExtractPatches { window }, &[x]);
        native.show(y);
        native.probe(y);
        native.differentiate(1);
        let expected = native.run();
        let host =
            HostPlacement { operators: ["ExtractImagePatches", "ExtractImagePatchesGrad"].map(str::to_owned).into() };
        let passes: [Box<dyn Pass + Send + Sync>; 2] = [Box::new(PatchesAsConvolution), Box::new(host)];
        for pass in passes {
            let mut other = Tiny::new(DType::F64);
            (other.graph, other.values) = (native.graph.clone(), native.values.clone());
            let name = pass.name();
            Pipeline::of(vec![pass]).run(&mut other.graph, None).unwrap();
            let changed = |node: &zoo_graph::Node| match node.op {
                Op::ExtractPatches(_) | Op::ExtractPatchesGrad(_) => node.place == Place::Host,
                _ => true,
            };
            assert!(other.graph.nodes.iter().all(changed), "{name}");
            let found = other.run();
            assert_eq!(elements(&found.outputs[0].1), elements(&expected.outputs[0].1), "{name}: {window:?}");
            let last = expected.outputs.len() - 1;
            let [a, b] = [&found, &expected].map(|result| elements(&result.outputs[last].1));
            assert_close(&a, &b, 1e-14, &format!("{name}: gradient of {window:?}"));
        }
    }
}
