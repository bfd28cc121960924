use super::*;
use candle_core::Device;
use proptest::prelude::*;
use std::{collections::HashMap, fs, path::Path};
use zoo_recipe::schema::{Metric, Score};

fn checkpoint(step: u64) -> Checkpoint {
    let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &Device::Cpu).unwrap();
    let variables = BTreeMap::from([
        ("conv.weight".to_owned(), tensor(&[1.0, -2.5, f32::MIN_POSITIVE, -0.0, 1e-42, 3.0], &[2, 3])),
        ("conv.weight/momentum_buffer".to_owned(), tensor(&[0.1; 6], &[2, 3])),
        ("double".to_owned(), Tensor::from_slice(&[0.1f64, 1e300], 2, &Device::Cpu).unwrap()),
        ("scalar".to_owned(), tensor(&[7.0], &[])),
    ]);
    let progress = Progress {
        device: "host".to_owned(),
        loss_scale: None,
        updates_before_reset: 0,
        format: FORMAT,
        zoo: "0.1.0".into(),
        // A number that careless formatting would confuse with adjacent ones.
        recipe: serde_json::json!({"name": "tiny", "weight_decay": 3.0517578125e-5, "odd": 0.1 + 0.2}),
        data: DataIdentity { train_samples: 4, val_samples: 2, classes: 2, labels: "00ff".into() },
        seed: u64::MAX,
        step,
        epoch: 1,
        batch: 2,
        seconds: 1.0 / 3.0,
        evaluations: vec![],
        linear_baseline: Some(0.1),
    };
    Checkpoint { progress, variables }
}

fn bits(checkpoint: &Checkpoint) -> Vec<(String, Vec<usize>, Vec<u64>)> {
    let values = |t: &Tensor| match t.dtype() {
        DType::F32 => {
            t.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().map(|v| u64::from(v.to_bits())).collect()
        }
        _ => t.flatten_all().unwrap().to_vec1::<f64>().unwrap().iter().map(|v| v.to_bits()).collect(),
    };
    checkpoint.variables.iter().map(|(name, t)| (name.clone(), t.dims().to_vec(), values(t))).collect()
}

fn saved(dir: &Path) -> (PathBuf, Vec<u8>) {
    let path = dir.join("checkpoint");
    checkpoint(9).save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn a_checkpoint_reads_back_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = saved(dir.path());
    let loaded = Checkpoint::load(&path).unwrap();
    assert_eq!(loaded.progress, checkpoint(9).progress);
    assert_eq!(bits(&loaded), bits(&checkpoint(9)));
    // The same state gives the same file.
    loaded.save(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    // It is a safetensors file like any other.
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("conv.weight").unwrap().shape(), [2, 3]);
}

#[test]
fn a_strided_view_is_kept_in_its_own_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let mut checkpoint = checkpoint(1);
    let transposed = checkpoint.variables["conv.weight"].t().unwrap();
    let part = transposed.narrow(0, 1, 2).unwrap();
    checkpoint.variables.insert("conv.weight".into(), part.clone());
    checkpoint.save(&path).unwrap();
    let loaded = Checkpoint::load(&path).unwrap();
    assert_eq!(loaded.variables["conv.weight"].to_vec2::<f32>().unwrap(), part.to_vec2::<f32>().unwrap());
}

#[test]
fn every_truncation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = saved(dir.path());
    for length in 0..bytes.len() {
        let error = Checkpoint::decode(&path, &bytes[..length]).expect_err("a truncated file").to_string();
        assert!(error.contains("checkpoint"), "{error}");
    }
    assert!(Checkpoint::decode(&path, &[&bytes[..], &[0]].concat()).is_err());
}

/// Flips every bit. A flipped bit is refused, unless JSON ignores it and it changes nothing.
#[test]
fn every_flipped_bit_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = saved(dir.path());
    let original = Checkpoint::load(&path).unwrap();
    let mut flipped = bytes.clone();
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        flipped[bit / 8] ^= 1 << (bit % 8);
        match Checkpoint::decode(&path, &flipped) {
            Err(_) => refused += 1,
            Ok(loaded) => {
                assert_eq!(loaded.progress, original.progress, "bit {bit}");
                assert_eq!(bits(&loaded), bits(&original), "bit {bit}");
            }
        }
        flipped[bit / 8] = bytes[bit / 8];
    }
    assert!(refused >= bytes.len() * 8 - 64, "{refused} of {}", bytes.len() * 8);
}

#[test]
fn foreign_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.safetensors");
    let tensor = Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap();
    let write = |metadata: Option<HashMap<String, String>>| {
        fs::write(&path, safetensors::serialize([("a", &tensor)], metadata).unwrap()).unwrap();
        Checkpoint::load(&path).unwrap_err().to_string()
    };
    let error = write(None);
    assert!(error.contains("other.safetensors: not a checkpoint of zoo"), "{error}");
    // Metadata that belonged to a checkpoint: the tensors after them cannot be trusted.
    let sealed = "{\"crc32c\":\"00000000\",\"progress\":{}}";
    for (key, value) in [("zoo.checkpoint", "{}"), ("zoo.checkqoint", sealed)] {
        let error = write(Some(HashMap::from([(key.into(), value.into())])));
        assert!(error.contains("damaged"), "{error}");
    }
    assert!(write(Some(HashMap::from([("format".into(), "pt".into())]))).contains("not a checkpoint"));
    fs::write(&path, "GIF89a, or whatever else").unwrap();
    assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("not a readable safetensors file"));
    assert!(matches!(Checkpoint::load(&dir.path().join("absent")), Err(CheckpointError::Io { .. })));
}

/// Content with a valid checksum that no training could have written.
#[test]
fn impossible_progress_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path());
    let mut skipped = checkpoint(3);
    skipped.progress.loss_scale = Some(LossScale { scale: 1.0, good_steps: 0, skipped: 4 });
    let path = store.save(&skipped).unwrap();
    assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("damaged: "));
    fs::rename(&path, dir.path().join("step-00000002.safetensors")).unwrap();
    checkpoint(1).save(&dir.path().join("step-00000004.safetensors")).unwrap();
    let error = store.latest().unwrap_err().to_string();
    assert!(error.contains("4 updates skipped in 3 steps") && error.contains("it is of step 1"), "{error}");
    let mut reset = checkpoint(3);
    reset.progress.loss_scale = Some(LossScale { scale: 1.0, good_steps: 0, skipped: 1 });
    reset.progress.updates_before_reset = 2;
    reset.save(&path).unwrap();
    Checkpoint::load(&path).unwrap();
    reset.progress.updates_before_reset = 3;
    reset.save(&path).unwrap();
    assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("damaged: "));
}

/// A perplexity above e^709 is no f64, but the training goes on.
#[test]
fn scores_that_are_not_finite_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path());
    let mut diverged = checkpoint(3);
    let value = f64::INFINITY;
    diverged.progress.evaluations = vec![Evaluated {
        step: 3,
        epoch: 1.5,
        samples: 4,
        loss: Some(800.0),
        scores: vec![Score { metric: Metric::Perplexity, value, of: None }],
        seconds: 1.0,
    }];
    store.save(&diverged).unwrap();
    let found = store.latest().unwrap().unwrap().checkpoint.progress;
    let [last] = found.evaluations.as_slice() else { panic!("{found:?}") };
    assert!(last.score(Metric::Perplexity).unwrap().is_nan());
    assert_eq!((last.step, last.loss), (3, Some(800.0)));
}

/// The newest two of the steps up to the one that is written are kept. Other files were not written by this training.
#[test]
fn what_was_written_last_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path());
    for step in [1001, 1002, 1003] {
        checkpoint(step).save(&dir.path().join(format!("step-{step:08}.safetensors"))).unwrap();
    }
    let paths: Vec<PathBuf> = (1..=3).map(|step| store.save(&checkpoint(step)).unwrap()).collect();
    assert!(!paths[0].exists() && paths[1].exists() && paths[2].exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
}

/// An impossible header, followed by more zeros than fit in memory.
#[test]
fn a_file_is_not_read_for_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.safetensors");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("not a readable safetensors file"));
}

#[test]
fn later_formats_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let mut later = checkpoint(1);
    later.progress.format = FORMAT + 1;
    later.save(&path).unwrap();
    let error = Checkpoint::load(&path).unwrap_err().to_string();
    assert!(error.contains(&format!("written in format {}, this version reads", FORMAT + 1)), "{error}");
}

#[test]
fn the_newest_two_are_kept_and_the_newest_good_one_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path().join("checkpoints"));
    assert!(store.latest().unwrap().is_none());
    store.rewind(0).unwrap();
    let paths: Vec<PathBuf> = (1..=3).map(|step| store.save(&checkpoint(step)).unwrap()).collect();
    assert!(!paths[0].exists() && paths[1].exists() && paths[2].exists());
    assert_eq!(store.latest().unwrap().unwrap().checkpoint.progress.step, 3);

    fs::write(&paths[2], b"short").unwrap();
    // Files with other names do not count.
    fs::write(store.folder().join("step-9.safetensors"), b"").unwrap();
    fs::write(store.folder().join("step-00000009.txt"), b"").unwrap();
    let found = store.latest().unwrap().unwrap();
    assert_eq!((found.checkpoint.progress.step, &found.path), (2, &paths[1]));
    assert_eq!(found.rejected[0].path, paths[2]);

    store.rewind(2).unwrap();
    assert!(!paths[2].exists() && store.folder().join("step-00000003.safetensors.set-aside").exists());
    store.save(&checkpoint(3)).unwrap();
    assert_eq!(store.latest().unwrap().unwrap().checkpoint.progress.step, 3);

    for path in &paths[1..] {
        fs::write(path, b"short").unwrap();
    }
    let error = store.latest().unwrap_err().to_string();
    assert!(error.contains("step-00000002") && error.contains("step-00000003"), "{error}");
}

#[test]
fn a_failed_save_leaves_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path());
    store.save(&checkpoint(1)).unwrap();
    // There is a folder with the name of the next file, so renaming fails.
    fs::create_dir(dir.path().join("step-00000002.safetensors")).unwrap();
    assert!(matches!(store.save(&checkpoint(2)), Err(CheckpointError::Unwritable { .. })));
    fs::remove_dir(dir.path().join("step-00000002.safetensors")).unwrap();
    assert_eq!(store.latest().unwrap().unwrap().checkpoint.progress.step, 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_not_finite_is_found() {
    let mut checkpoint = checkpoint(1);
    checkpoint.variables.insert("huge".into(), Tensor::full(f32::MAX, 1000, &Device::Cpu).unwrap());
    assert_eq!(checkpoint.not_finite().unwrap(), None);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        checkpoint.variables.insert("bad".into(), Tensor::from_slice(&[0.0, bad], 2, &Device::Cpu).unwrap());
        assert_eq!(checkpoint.not_finite().unwrap(), Some("bad"));
    }
}

proptest! {
    #[test]
    fn no_file_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), header in 0u64..400) {
        let file = [&header.to_le_bytes()[..], &bytes].concat();
        prop_assert!(Checkpoint::decode(Path::new("file"), &file).is_err());
    }
}
