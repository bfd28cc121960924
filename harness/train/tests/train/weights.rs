//! Weights that PyTorch has written: what they compute, and what becomes of damaged files.

use candle_core::{DType, Device, Tensor};
use std::path::{Path, PathBuf};
use zoo_engine::{Inputs, Options, Scalars, Step};
use zoo_graph::Graph;
use zoo_recipe::BuildOptions;
use zoo_recipe::{Library, LoadOptions, Recipe};
use zoo_train::weights::{Fit, Naming, StateDict, Weights, WeightsError, write};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// The network of the fixture for batches of four.
fn tiny() -> (Recipe, Graph) {
    let library = Library::new([fixture("recipes")]);
    let recipe = library.load("tiny", &LoadOptions::default()).unwrap().recipe;
    let graph = zoo_recipe::build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::eval(4)).unwrap();
    (recipe, graph)
}

fn read(path: &Path) -> Weights {
    Weights::read(path, None).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// What the network gives for the fixture's image, and what PyTorch gave.
fn forward(weights: &Weights, naming: &Naming) -> (Vec<f32>, Vec<f32>) {
    let (recipe, graph) = tiny();
    assert!(Fit::new(&graph, weights, naming).is_exact());
    let mut step = Step::new(graph.clone(), Options::of(&recipe)).unwrap();
    for (name, tensor) in StateDict::new(&graph, weights, naming).tensors() {
        step.set_variable(name, tensor).unwrap();
    }
    let truth = candle_core::safetensors::load(fixture("weights/tiny.safetensors"), &Device::Cpu).unwrap();
    let inputs = Inputs::new().with("image", truth["image"].clone());
    let result = step.run(&inputs, Scalars::default(), &mut ()).unwrap();
    (numbers(&result.outputs[0].1), numbers(&truth["logits"]))
}

fn near(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), 40);
    let scale = theirs.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() <= 1e-6 * scale, "{ours} {theirs}");
    }
}

#[test]
fn a_state_dict_computes_what_it_computes_in_pytorch() {
    let (ours, theirs) = forward(&read(&fixture("weights/tiny.pth")), &Naming::default());
    near(&ours, &theirs);
    // What a training keeps: of a DataParallel module, with permuted strides, one entry among others.
    let training = read(&fixture("weights/training.pth"));
    assert_eq!(training.entry.as_deref(), Some("state_dict"));
    let strip = Naming { strip: "module.".into(), add: String::new() };
    assert_eq!(forward(&training, &strip), (ours, theirs));
}

#[test]
fn what_is_written_reads_back() {
    let (_, graph) = tiny();
    let weights = read(&fixture("weights/tiny.pth"));
    let state = StateDict::new(&graph, &weights, &Naming::default()).with_counters(&graph, 7).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["state.pth", "state.safetensors"] {
        let path = dir.path().join(name);
        state.save(&path).unwrap();
        let again = read(&path);
        // PyTorch counts three batches, we say seven.
        assert_eq!(numbers(&again.tensors["bn1.num_batches_tracked"]), [7.0], "{name}");
        assert_eq!(again.tensors["bn1.num_batches_tracked"].dims(), [0; 0]);
        for (name, tensor) in weights.tensors.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked")) {
            assert_eq!(numbers(tensor), numbers(&again.tensors[name]), "{name}");
            assert_eq!(tensor.dims(), again.tensors[name].dims());
        }
        assert_eq!(again.tensors.len(), weights.tensors.len());
    }
}

#[test]
fn entries_are_named_found_and_missed() {
    let path = fixture("weights/training.pth");
    assert_eq!(Weights::read(&path, Some("state_dict")).unwrap().tensors.len(), 10);
    let said = |entry| Weights::read(&path, Some(entry)).unwrap_err().to_string();
    assert!(said("model").contains("it has no entry `model`; its entries: `"), "{}", said("model"));
    assert!(said("epoch").contains("its entry `epoch` is not a dictionary"), "{}", said("epoch"));
    assert!(said("args").contains("its entry `args` has no tensors"), "{}", said("args"));
    let nowhere = Weights::read(&fixture("weights/tiny.safetensors"), Some("model")).unwrap_err().to_string();
    assert!(nowhere.contains("a safetensors file has no entries, so there is no `model`"), "{nowhere}");
}

#[test]
fn damaged_files_are_errors_and_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.pth");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Weights::read(&path, None)
    };
    let whole = std::fs::read(fixture("weights/tiny.pth")).unwrap();
    for end in (0..whole.len()).step_by(97) {
        assert!(refused(&whole[..end]).is_err(), "cut at {end}");
    }
    // The archive has checksums of its content: a changed byte is found, or lies where nothing is read from.
    let before = read(&fixture("weights/tiny.pth"));
    for place in (0..whole.len()).step_by(53) {
        let mut changed = whole.clone();
        changed[place] ^= 0x15;
        if let Ok(weights) = refused(&changed) {
            for (name, tensor) in &weights.tensors {
                assert_eq!(numbers(tensor), numbers(&before.tensors[name]), "byte {place}, {name}");
            }
        }
    }
    let said = |bytes: &[u8]| refused(bytes).unwrap_err().to_string();
    assert!(said(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.").contains("written by PyTorch before 1.6"));
    assert!(said(b"not at all").contains("neither a file of torch.save nor a safetensors file"));
    assert!(matches!(Weights::read(dir.path(), None), Err(WeightsError::NoCheckpoint { .. })));
    assert!(matches!(Weights::read(&dir.path().join("nothing"), None), Err(WeightsError::Io { .. })));
}

/// The running statistics and averages that a checkpoint keeps beside the parameters.
#[test]
fn a_moving_average_is_what_is_exported() {
    let (_, graph) = tiny();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.safetensors");
    let mut tensors: Vec<(String, Tensor)> = read(&fixture("weights/tiny.pth")).tensors.into_iter().collect();
    tensors.push(("fc.bias/ema".into(), Tensor::full(0.5_f32, 10, &Device::Cpu).unwrap()));
    tensors.push(("fc.bias/momentum_buffer".into(), Tensor::zeros(10, DType::F32, &Device::Cpu).unwrap()));
    write(&path, &tensors).unwrap();
    let weights = read(&path);
    let state = StateDict::new(&graph, &weights, &Naming::default());
    let bias = state.tensors().iter().find(|(name, _)| name == "fc.bias").unwrap();
    assert_eq!(numbers(&bias.1), [0.5; 10]);
    assert_eq!(state.tensors().len(), 9);
}

/// Views of one storage, as parameters are that lie side by side in one buffer.
#[test]
fn tensors_may_share_their_storage() {
    let weights = read(&fixture("weights/shared.pth"));
    let of = |name: &str| numbers(&weights.tensors[name]);
    assert_eq!(of("a"), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(of("b"), [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(of("c"), [1.0, 1.0]);
    assert_eq!(of("d"), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}
