//! What fuzzing found stays fixed, and the seeds are read.

use crate::{files, tensors};
use std::fs;

/// The targets of tests/fuzz, as they stand in its Cargo.toml.
const TARGETS: [(&str, fn(&[u8])); 19] = [
    ("recipe", files::recipe),
    ("step", files::step),
    ("overrides", files::overrides),
    ("device", files::device),
    ("study", files::study),
    ("throughput", files::throughput),
    ("annotations", files::annotations),
    ("outlines", files::outlines),
    ("cifar", files::cifar),
    ("index", files::index),
    ("image", files::image),
    ("golden", tensors::golden),
    ("tensors", tensors::tensors),
    ("check", tensors::check),
    ("dump", tensors::dump),
    ("weights", tensors::weights),
    ("pickle", tensors::pickle),
    ("checkpoint", tensors::checkpoint),
    ("events", tensors::events),
];

#[test]
fn every_finding_is_read_or_refused() {
    let folder = files::project().join("tests/fuzz/findings");
    for target in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = target.file_name().into_string().unwrap();
        let (_, run) = TARGETS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no target {name}"));
        for finding in fs::read_dir(target.path()).unwrap() {
            let path = finding.unwrap().path();
            println!("{}", path.display());
            run(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_target_is_built_and_takes_its_seed_and_nothing() {
    let manifest = fs::read_to_string(files::project().join("tests/fuzz/Cargo.toml")).unwrap();
    let seeds = files::project().join("tests/fuzz/seeds");
    for (name, run) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        run(b"");
        let own = fs::read_dir(&seeds).unwrap().map(|seed| seed.unwrap().path());
        for seed in own.filter(|seed| seed.file_stem().is_some_and(|stem| stem == name) && seed.is_file()) {
            run(&fs::read(seed).unwrap());
        }
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    tensors::check(&fs::read(seeds.join("tiny.json")).unwrap());
}
