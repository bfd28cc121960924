//! Weights that PyTorch has written: what they compute, and what becomes of damaged files.

use candle_core::{DType, Device, Tensor};
use std::path::{Path, PathBuf};
use zoo_engine::{Inputs, Options, Scalars, Step};
use zoo_graph::Graph;
use zoo_recipe::BuildOptions;
use zoo_recipe::{Library, LoadOptions, Recipe};
use zoo_tensors::{Array, ElementType, ckpt};
use zoo_train::CheckpointError;
use zoo_train::weights::{Beside, Naming, Renamed, StateDict, Tied, Weights, write};

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

/// The weights of a file for the network of the fixture.
fn open(path: &Path, entry: Option<&str>) -> Result<Weights, CheckpointError> {
    Weights::read(path, entry, &tiny().1, &Naming::default())
}

fn read(path: &Path) -> Weights {
    open(path, None).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// What the network gives for the fixture's image, and what PyTorch gave.
fn forward(weights: &Weights) -> (Vec<f32>, Vec<f32>) {
    let (recipe, graph) = tiny();
    assert!(weights.fit.is_exact(), "{}", weights.fit);
    let mut step = Step::new(graph.clone(), Options::of(&recipe)).unwrap();
    for (name, tensor) in StateDict::new(weights).tensors() {
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
    let (ours, theirs) = forward(&read(&fixture("weights/tiny.pth")));
    near(&ours, &theirs);
    // What a training keeps: of a DataParallel module, with permuted strides, one entry among others.
    let training = read(&fixture("weights/training.pth"));
    assert_eq!((training.fit.entry.as_deref(), training.fit.prefix.as_deref()), (Some("state_dict"), Some("module.")));
    assert_eq!(forward(&training).0, ours);
    // Among what only a training has, and its average beside it.
    let beside = read(&fixture("weights/beside.pth"));
    assert_eq!(
        (beside.fit.entry.as_deref(), &beside.fit.also[..]),
        (Some("deep.er.net"), &["state_dict_ema".into()][..])
    );
    assert_eq!(forward(&beside).0, ours);
    let average = open(&fixture("weights/beside.pth"), Some("state_dict_ema")).unwrap();
    assert_eq!((average.fit.prefix.as_deref(), forward(&average).0 == ours), (Some("module."), true));
    // A module instead of its state_dict.
    assert_eq!(forward(&read(&fixture("weights/whole.pth"))).0, ours);
    // In bf16, as PyTorch wrote it before 1.6.
    let older = read(&fixture("weights/older.pth"));
    let rounded = |weights: &Weights, name: &str| -> Vec<f32> {
        numbers(&weights.tensors[name]).into_iter().map(|value| half::bf16::from_f32(value).to_f32()).collect()
    };
    let whole = read(&fixture("weights/tiny.pth"));
    assert!(older.fit.is_exact());
    assert_eq!(numbers(&older.tensors["fc.weight"]), rounded(&whole, "fc.weight"));
}

#[test]
fn what_is_written_reads_back() {
    let (_, graph) = tiny();
    let weights = read(&fixture("weights/tiny.pth"));
    let state = StateDict::new(&weights).with_counters(&graph, 7).unwrap();
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
    let path = dir.path().join("state.ckpt");
    let state = StateDict::new(&weights).with_names_of_mindspore(&graph);
    for name in ["bn1.gamma", "bn1.beta", "bn1.moving_mean", "bn1.moving_variance", "fc.weight"] {
        assert!(state.tensors().iter().any(|(known, _)| known == name), "{name}");
    }
    state.save(&path).unwrap();
    let again = read(&path);
    assert!(again.fit.is_exact());
    for (name, _) in StateDict::new(&weights).tensors() {
        assert_eq!(numbers(&again.tensors[name]), numbers(&weights.tensors[name]), "{name}");
    }
}

#[test]
fn entries_are_named_found_and_missed() {
    let path = fixture("weights/training.pth");
    assert_eq!(open(&path, Some("state_dict")).unwrap().tensors.len(), 10);
    let said = |entry| open(&path, Some(entry)).unwrap_err().to_string();
    for entry in ["model", "epoch", "args"] {
        let wanted = format!("it has no entry `{entry}` with tensors; those with tensors: `state_dict`");
        assert!(said(entry).contains(&wanted), "{}", said(entry));
    }
    let nowhere = open(&fixture("weights/tiny.safetensors"), Some("model")).unwrap_err().to_string();
    assert!(nowhere.contains("it has no entries, so there is no `model`"), "{nowhere}");
}

/// The tensors of the fixture under other names.
fn renamed(name: impl Fn(&str) -> String) -> Vec<(String, Tensor)> {
    let tensors = read(&fixture("weights/tiny.pth")).tensors;
    tensors.into_iter().map(|(theirs, tensor)| (name(&theirs), tensor)).collect()
}

fn of_mindspore(name: &str) -> String {
    let pairs =
        [("bn1.weight", "bn1.gamma"), ("bn1.bias", "bn1.beta"), ("mean", "mean"), ("running_mean", "moving_mean")];
    let name = pairs.iter().fold(name.to_owned(), |name, (ours, theirs)| name.replace(ours, theirs));
    name.replace("running_var", "moving_variance")
}

#[test]
fn a_checkpoint_of_mindspore_is_read_with_its_names() {
    let array = |tensor: &Tensor| Array {
        dtype: ElementType::F32,
        shape: tensor.dims().to_vec(),
        values: numbers(tensor).into_iter().map(f64::from).collect(),
    };
    let of_network = renamed(of_mindspore).into_iter().filter(|(name, _)| !name.ends_with("num_batches_tracked"));
    let mut arrays: Vec<(String, Array)> = of_network.map(|(name, tensor)| (name, array(&tensor))).collect();
    let slot = arrays.iter().find(|(name, _)| name == "fc.bias").unwrap().1.clone();
    arrays.push(("moments.fc.bias".into(), slot));
    let number = Array { dtype: ElementType::F32, shape: vec![], values: vec![0.1] };
    arrays.push(("learning_rate".into(), number));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.ckpt");
    std::fs::write(&path, ckpt::encode(&arrays)).unwrap();
    let weights = read(&path);
    near(&forward(&weights).0, &forward(&weights).1);
    let gamma = Renamed { file: "bn1.gamma".into(), network: "bn1.weight".into() };
    assert!(weights.fit.renamed.contains(&gamma) && weights.fit.renamed.len() == 4, "{:?}", weights.fit.renamed);
    let ignored: Vec<&str> = weights.fit.ignored.iter().map(|beside| beside.name.as_str()).collect();
    assert_eq!(ignored, ["learning_rate", "moments.fc.bias"]);
}

#[test]
fn shards_are_read_together_and_agree_with_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = renamed(str::to_owned);
    let (one, two) = tensors.split_at(4);
    let index = |of_second: &str| {
        let place = |file: &str, part: &[(String, Tensor)]| {
            part.iter().map(|(name, _)| format!("\"{name}\": \"{file}\"")).collect::<Vec<_>>().join(", ")
        };
        format!(
            "{{\"metadata\": {{}}, \"weight_map\": {{{}, {}}}}}",
            place("model-00001-of-00002.safetensors", one),
            place(of_second, two)
        )
    };
    write(&dir.path().join("model-00001-of-00002.safetensors"), one).unwrap();
    write(&dir.path().join("model-00002-of-00002.safetensors"), two).unwrap();
    let path = dir.path().join("model.safetensors.index.json");
    std::fs::write(&path, index("model-00002-of-00002.safetensors")).unwrap();
    for path in [dir.path(), &path] {
        let weights = read(path);
        near(&forward(&weights).0, &forward(&weights).1);
    }
    let shard = read(&dir.path().join("model-00001-of-00002.safetensors"));
    assert_eq!(shard.fit.hint.as_deref(), Some("the file is one of several shards: name its folder, or the index"));
    for (second, said) in [
        ("model-00003-of-00003.safetensors", "model-00003-of-00003.safetensors: "),
        ("../model-00002-of-00002.safetensors", "is not in the folder of the index"),
        ("model-00001-of-00002.safetensors", "is not in model-00001-of-00002.safetensors, where the index has it"),
    ] {
        std::fs::write(&path, index(second)).unwrap();
        let refused = open(dir.path(), None).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

/// Buffers and copies beside the network, and what contradicts it.
#[test]
fn what_is_beside_the_network_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.safetensors");
    let of = |shape: &[usize], values: &[f32]| Tensor::from_vec(values.to_vec(), shape, &Device::Cpu).unwrap();
    let plain = renamed(|name| format!("_orig_mod.module.{name}"));
    let table = plain.iter().find(|(name, _)| name.ends_with("fc.weight")).unwrap().1.clone();
    let with = |name: &str, tensor: Tensor| {
        write(&path, &[&plain[..], &[(format!("_orig_mod.module.{name}"), tensor)]].concat()).unwrap();
        read(&path).fit
    };
    let mask = with("h.0.attn.bias", of(&[1, 1, 2, 2], &[1.0, 0.0, 1.0, 1.0]));
    assert_eq!(mask.prefix.as_deref(), Some("_orig_mod.module."));
    let name = |name: &str| format!("_orig_mod.module.{name}");
    let causal = Beside { name: name("h.0.attn.bias"), what: "causal masks" };
    assert!(mask.is_exact() && mask.ignored.contains(&causal), "{mask}");
    assert_eq!(mask.ignored.len(), 2, "with num_batches_tracked");
    // A mask that hides the past is none, and neither is another bias.
    let reversed = with("h.0.attn.bias", of(&[1, 1, 2, 2], &[1.0, 1.0, 0.0, 1.0]));
    assert_eq!((reversed.is_exact(), reversed.surplus.len()), (false, 1));
    assert!(with("embeddings.position_ids", of(&[1, 3], &[0.0, 1.0, 2.0])).is_exact());
    assert!(!with("embeddings.position_ids", of(&[1, 3], &[0.0, 2.0, 1.0])).is_exact());
    let window = |last: f32| {
        let rows = [4.0, 3.0, 1.0, 0.0, 5.0, 4.0, 2.0, 1.0, 7.0, 6.0, 4.0, 3.0, 8.0, 7.0, 5.0, last];
        with("attn.relative_position_index", of(&[4, 4], &rows))
    };
    assert!(window(4.0).is_exact() && !window(3.0).is_exact());
    assert!(with("rotary.inv_freq", of(&[2], &[1.0, 0.01])).is_exact());
    // The same tensor under a second name; a tensor of one value may be equal by chance.
    let tied = with("head.weight", table.clone());
    assert_eq!(tied.tied, [Tied { name: name("head.weight"), to: "fc.weight".into() }]);
    assert!(tied.is_exact());
    assert!(!with("head.weight", (table + 1.0).unwrap()).is_exact());
    assert!(!with("head.weight", of(&[10, 24], &[0.0; 240])).is_exact());
    // Values that are not finite.
    let mut broken = plain.clone();
    let bias = broken.iter_mut().find(|(name, _)| name.ends_with("fc.bias")).unwrap();
    bias.1 = of(&[10], &[f32::NAN; 10]);
    write(&path, &broken).unwrap();
    let fit = read(&path).fit;
    assert_eq!((fit.is_enough(), &fit.not_finite[..]), (false, &["fc.bias".to_owned()][..]));
    assert!(fit.to_string().contains("1 with values that are not finite: fc.bias"), "{fit}");
}

#[test]
fn prefixes_are_found_by_fit_and_two_that_fit_are_a_choice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.safetensors");
    let with = |tensors: &[(String, Tensor)], naming: &Naming| {
        write(&path, tensors).unwrap();
        Weights::read(&path, None, &tiny().1, naming).unwrap().fit
    };
    let plain = Naming::default();
    let inside = renamed(|name| name.replace("conv1.", "conv1._fsdp_wrapped_module."));
    let fit = with(&inside, &plain);
    assert_eq!((fit.is_exact(), fit.prefix.as_deref(), fit.renamed.len()), (true, None, 1));
    for prefix in ["backbone.", "model.net.", "module._orig_mod.", "x."] {
        let fit = with(&renamed(|name| format!("{prefix}{name}")), &plain);
        assert_eq!((fit.is_exact(), fit.prefix.as_deref()), (true, Some(prefix)));
    }
    let both = [renamed(|name| format!("encoder_q.{name}")), renamed(|name| format!("encoder_k.{name}"))].concat();
    let fit = with(&both, &plain);
    let hint = "names fit without the prefix `encoder_k.` and without the prefix `encoder_q.`: choose one with --strip";
    assert_eq!((fit.taken.len(), fit.hint.as_deref()), (0, Some(hint)));
    let chosen = with(&both, &Naming { strip: "encoder_q.".into(), add: String::new() });
    assert_eq!((chosen.taken.len(), chosen.is_enough()), (9, true));
}

#[test]
fn damaged_files_are_errors_and_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.pth");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(&path, None)
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
    let older = std::fs::read(fixture("weights/older.pth")).unwrap();
    for end in (1..older.len()).step_by(61) {
        assert!(refused(&older[..end]).is_err(), "cut at {end}");
    }
    assert!(said(b"not at all").contains("a text file: name a file of weights"));
    assert!(said(b"version https://git-lfs.github.com/spec/v1").contains("git lfs pull"));
    assert!(open(dir.path(), None).unwrap_err().to_string().contains("no checkpoint in this folder, and no weights"));
    assert!(matches!(open(&dir.path().join("nothing"), None), Err(CheckpointError::Io { .. })));
}

/// The running statistics and averages that a checkpoint keeps beside the parameters.
#[test]
fn a_moving_average_is_what_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.safetensors");
    let mut tensors: Vec<(String, Tensor)> = read(&fixture("weights/tiny.pth")).tensors.into_iter().collect();
    tensors.push(("fc.bias/ema".into(), Tensor::full(0.5_f32, 10, &Device::Cpu).unwrap()));
    tensors.push(("fc.bias/momentum_buffer".into(), Tensor::zeros(10, DType::F32, &Device::Cpu).unwrap()));
    write(&path, &tensors).unwrap();
    let weights = read(&path);
    let state = StateDict::new(&weights);
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
