//! What fuzzing found stays fixed, and the seeds are read.

use crate::{files, tensors};
use std::fs;
use std::path::Path;
use std::time::Instant;
use zoo_datasets::Rng;

/// Reads what a fuzzer came up with.
type Target = fn(&[u8]);

/// The targets of tests/fuzz, as they stand in its Cargo.toml.
const TARGETS: [(&str, Target); 29] = [
    ("recipe", files::recipe),
    ("step", files::step),
    ("overrides", files::overrides),
    ("device", files::device),
    ("study", files::study),
    ("throughput", files::throughput),
    ("annotations", files::annotations),
    ("trace", files::trace),
    ("outlines", files::outlines),
    ("cifar", files::cifar),
    ("idx", files::idx),
    ("index", files::index),
    ("tokenizer", files::tokenizer),
    ("coco", files::coco),
    ("voc", files::voc),
    ("image", files::image),
    ("measured", files::measured),
    ("golden", tensors::golden),
    ("tensors", tensors::tensors),
    ("check", tensors::check),
    ("dump", tensors::dump),
    ("msprobe", tensors::msprobe),
    ("padiff", tensors::padiff),
    ("recorded", tensors::recorded),
    ("described", tensors::described),
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

/// The seeds of a target: files of the repository.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = match target {
        "recipe" | "step" => "tests/fixtures/recipes",
        "device" => "recipes/devices",
        "study" => "recipes/studies",
        "throughput" => "recipes/throughput",
        "image" => "datasets/tests/images",
        "weights" => "tests/fixtures/weights",
        "dump" | "msprobe" | "padiff" | "recorded" | "described" | "measured" => &format!("tests/fuzz/seeds/{target}"),
        "trace" => "tests/fixtures/traces",
        "tokenizer" => "datasets/tests/tokenizers",
        _ => "tests/fuzz/seeds",
    };
    let own = folder.ends_with("seeds");
    let wanted = |path: &Path| !own || path.file_stem().is_some_and(|stem| stem == target);
    let all = fs::read_dir(files::project().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = all.filter(|path| path.is_file() && wanted(path)).collect();
    match target {
        "golden" => found.push(files::project().join("tests/fixtures/golden/alexnet-salted.json")),
        "tensors" => found.push(files::project().join("tests/fixtures/golden/alexnet-salted.safetensors")),
        "check" => found.push(files::project().join("tests/fuzz/seeds/tiny.json")),
        _ => {}
    }
    found.sort();
    let mut seeds: Vec<Vec<u8>> = found.into_iter().map(|path| fs::read(path).unwrap()).collect();
    if target == "cifar" {
        seeds.push(vec![0; 2 * 3073]);
    }
    assert!(!seeds.is_empty(), "{target} has no seed");
    seeds
}

/// Numbers that break what is not careful.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "1e308",
    "-1e308",
    "null",
    "\"\"",
    "65536",
    "2147483648",
    "1099511627776",
    "18446744073709551615",
    "[]",
];

/// A few changes of one of the seeds.
fn mutant(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(4) {
        let mut place = |bytes: &[u8]| rng.below(bytes.len().max(1));
        let (start, other) = (place(&bytes), place(&bytes));
        let end = other.clamp(start, (start + 64).min(bytes.len()));
        match rng.below(7) {
            0 => bytes.iter_mut().skip(start).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
            1 => bytes.iter_mut().skip(start).take(8).for_each(|byte| *byte = if rng.below(2) == 0 { 0xff } else { 0 }),
            2 => drop(bytes.drain(start..end)),
            3 => bytes.extend_from_within(start..end),
            4 => bytes.truncate(start),
            5 => bytes.splice(start..start, bytes[start..end].to_vec()).for_each(drop),
            _ => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                let from = bytes.iter().skip(start).position(digits).map(|at| start + at);
                if let Some(from) = from {
                    let length = bytes[from..].iter().take_while(|byte| digits(byte)).count();
                    let number = NUMBERS[rng.below(NUMBERS.len())];
                    bytes.splice(from..from + length, number.bytes());
                }
            }
        }
    }
    bytes
}

/// Mutants of each target's seeds until the time is over; how many there were.
fn mutate(seconds: f64, seed: u64) {
    for (number, (name, run)) in TARGETS.iter().enumerate() {
        let (seeds, mut rng) = (seeds(name), Rng::new(seed, number as u64, 0));
        let (started, mut done) = (Instant::now(), 0);
        while started.elapsed().as_secs_f64() < seconds || done < 20 {
            let bytes = mutant(&seeds, &mut rng);
            let outcome = std::panic::catch_unwind(|| run(&bytes));
            if outcome.is_err() {
                let path = files::project().join("target").join(format!("finding-{name}"));
                fs::write(&path, &bytes).unwrap();
                panic!("{name}: a finding in {}", path.display());
            }
            done += 1;
        }
        println!("{name:<12} {done:>8} mutants in {:.1} s", started.elapsed().as_secs_f64());
    }
}

#[test]
fn mutants_of_every_seed_are_read_or_refused() {
    mutate(0.0, 0);
}

/// `FUZZ_SECONDS=60 FUZZ_SEED=1 cargo test --release --test bad_input -- --ignored --nocapture for_longer`: without
/// libFuzzer.
#[test]
#[ignore = "takes FUZZ_SECONDS per target"]
fn mutants_for_longer() {
    let number =
        |name: &str, otherwise: f64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    mutate(number("FUZZ_SECONDS", 10.0), number("FUZZ_SEED", 1.0) as u64);
}

#[test]
fn every_target_is_built_and_takes_its_seed_and_nothing() {
    let manifest = fs::read_to_string(files::project().join("tests/fuzz/Cargo.toml")).unwrap();
    for (name, run) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        run(b"");
        seeds(name).iter().for_each(|seed| run(seed));
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
