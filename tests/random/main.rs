//! Random recipes, and what must hold for each of them: see docs/reliability.md.

mod corpus;
mod draw;
mod emitted;
mod prove;
mod refused;
mod tape;
mod vocabulary;

use emitted::Written;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use prove::{Outcome, Prover};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use vocabulary::Vocabulary;
use zoo_golden::{Precision, Stage, Verdict};

/// Sections of a recipe of which every word has to be drawn.
const SECTIONS: [&str; 6] = ["model", "loss", "gradients", "optimizer", "schedule", "train"];

/// Beginnings of words that are not drawn, and why.
const NOT_DRAWN: [(&str, &str); 5] = [
    ("Block.from", "needs another file: tests/shared_blocks.rs of the crate of recipes"),
    ("InitFrom", "needs a file of weights: tests of training"),
    ("Train.init_from", "the same"),
    ("Whiten", "needs images, and changes only what a training starts from: tests of training"),
    ("Train.whiten", "the same"),
];

/// The relative error that bounds have to find.
const PLANTED: f64 = 1e-2;

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The tapes of a recipe: one for each layer of the trunk, one for the rest.
fn tapes() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u32>)> {
    let tape = |longest| prop::collection::vec(any::<u32>(), longest);
    (prop::collection::vec(tape(160), 1..7), tape(160))
}

/// The runner of one case: its number is the seed.
fn runner(case: u64) -> TestRunner {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&case.to_le_bytes());
    let config = Config { cases: 1, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// What a fault is about: the operator, the stage, the part of the program.
fn kind(reason: &str) -> String {
    reason.split_whitespace().next().unwrap_or_default().to_owned()
}

/// `RANDOM_CASES=1000` draws more recipes, `RANDOM_SEED=7000` begins with another one.
#[test]
fn what_holds_for_every_recipe() {
    let (first, count) = (number("RANDOM_SEED", 0), number("RANDOM_CASES", 60));
    let prover = Prover::new();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    for case in first..first + count {
        let outcome = Cell::new(Outcome::Proven);
        let fault = RefCell::new(None);
        let tried = runner(case).run(&tapes(), |(trunk, frame)| {
            let recipe = draw::recipe(&trunk, &frame);
            match prover.prove(&draw::text(&recipe), case as usize) {
                Ok(shown) if shown == Outcome::Cancelled => {
                    println!("case {case}: values cancel");
                    outcome.set(shown);
                }
                Ok(shown) => outcome.set(shown),
                // A simpler recipe has to show the same fault.
                Err(reason) if *fault.borrow_mut().get_or_insert_with(|| kind(&reason)) == kind(&reason) => {
                    return Err(TestCaseError::fail(reason));
                }
                Err(_) => {}
            }
            Ok(())
        });
        match tried {
            Ok(()) => *outcomes.entry(format!("{:?}", outcome.get())).or_default() += 1,
            Err(TestError::Fail(reason, (trunk, frame))) => {
                println!("case {case}: {reason}\n{}", draw::text(&draw::recipe(&trunk, &frame)));
                failed.push(case);
            }
            Err(error) => panic!("case {case}: {error}"),
        }
    }
    println!("{outcomes:?}");
    assert!(failed.is_empty(), "RANDOM_SEED={} RANDOM_CASES=1 repeats the first of {failed:?}", failed[0]);
    let [proven, cancelled] = ["Proven", "Cancelled"].map(|outcome| outcomes.get(outcome).copied().unwrap_or(0));
    assert!(proven * 10 >= count as usize * 8, "too few were compared: {outcomes:?}");
    assert!(cancelled * 50 <= count.max(100) as usize, "too many cancel: {outcomes:?}");
}

/// `RANDOM_CASES=200` draws more recipes. `PYTHON` names an interpreter with PyTorch.
#[test]
#[ignore = "needs PyTorch"]
fn programs_compute_the_step_of_their_recipe() {
    let (first, count) = (number("RANDOM_SEED", 0), number("RANDOM_CASES", 20));
    let (prover, kept) = (Prover::new(), std::env::var_os("RANDOM_OUT"));
    let folder = tempfile::tempdir().unwrap();
    let folder = kept.as_deref().map_or(folder.path(), Path::new);
    let (mut programs, mut refused, mut infinite) = (Vec::new(), Vec::new(), 0);
    for case in first..first + count {
        let tree = tapes().new_tree(&mut runner(case)).unwrap();
        let (trunk, frame) = proptest::strategy::ValueTree::current(&tree);
        let text = draw::text(&draw::recipe(&trunk, &frame));
        match emitted::write(&prover, &text, &format!("drawn{case}"), folder) {
            Ok(Written::Program(program)) => programs.push(program),
            Ok(Written::Refused(reason)) => refused.push(format!("case {case}: {reason}")),
            Ok(Written::NotFinite) => infinite += 1,
            Err(error) => panic!("case {case}: {error}"),
        }
    }
    println!(
        "{} programs, {infinite} steps that are not finite, {} refused: {refused:#?}",
        programs.len(),
        refused.len()
    );
    assert!(programs.len() * 2 >= count as usize, "too few have a program");
    assert!(emitted::prove(&programs), "programs differ");
}

/// Recipes in which a fault was found once, with the fault in their first line.
#[test]
fn what_failed_once_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random/known");
    let prover = Prover::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        for turn in 0..3 {
            let outcome = prover.prove(&text, turn);
            assert_eq!(outcome, Ok(Outcome::Proven), "{} in turn {turn}", file.display());
        }
        count += 1;
    }
    assert!(count > 0);
}

/// Bounds are no wider than they need be: a small error in a tile of any result of any node is found.
#[test]
fn a_planted_error_is_found() {
    let (first, count) = (number("RANDOM_SEED", 0), number("RANDOM_CASES", 60));
    let prover = Prover::new();
    let (mut found, mut missed) = (0, Vec::new());
    for case in first..first + count {
        let tree = tapes().new_tree(&mut runner(case)).unwrap();
        let (trunk, frame) = proptest::strategy::ValueTree::current(&tree);
        let text = draw::text(&draw::recipe(&trunk, &frame));
        for planted in prover.planted(&text, case as usize, PLANTED).unwrap() {
            match planted.after > 1.0 {
                true => found += 1,
                false => missed.push(format!("case {case}: {planted:?}")),
            }
        }
    }
    println!("{found} found, {} missed: {missed:#?}", missed.len());
    // One percent of what cancellation leaves is less than its rounding: of 60 recipes, because the one or two of a
    // single recipe are no share.
    assert!(found > 1000 && missed.len() * 1000 <= found, "{missed:#?}");
}

/// A new layer, option or choice has to be drawn.
#[test]
fn every_word_is_drawn() {
    let vocabulary = Vocabulary::new();
    let mut used = BTreeSet::new();
    for case in 0..9000 {
        let tree = tapes().new_tree(&mut runner(case)).unwrap();
        let (trunk, frame) = proptest::strategy::ValueTree::current(&tree);
        vocabulary.used(&draw::recipe(&trunk, &frame), &mut used);
    }
    let words = vocabulary.words(&SECTIONS);
    let excused = |word: &&String| NOT_DRAWN.iter().any(|(known, _)| word.starts_with(known));
    let missing: Vec<&String> = words.difference(&used).filter(|word| !excused(word)).collect();
    assert!(missing.is_empty(), "of {} words, these are not drawn: {missing:#?}", words.len());
    let drawn: Vec<&String> = used.iter().filter(excused).collect();
    assert!(drawn.is_empty(), "these are drawn: {drawn:?}");
}

/// One value out of range, of another type, or unknown, anywhere in a recipe.
#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let (first, count) = (number("RANDOM_SEED", 0), number("RANDOM_CASES", 60));
    let (vocabulary, prover) = (Vocabulary::new(), Prover::new());
    let sections = [&SECTIONS[..], &["data", "preprocess"]].concat();
    let mut faults = Vec::new();
    for case in first..first + count {
        let tree = tapes().new_tree(&mut runner(case)).unwrap();
        let (trunk, frame) = proptest::strategy::ValueTree::current(&tree);
        let recipe = draw::recipe(&trunk, &frame);
        let settings = vocabulary.settings(&recipe, &sections);
        for n in 0..4 {
            let setting = &settings[(case as usize * 31 + n * 17) % settings.len()];
            let values = refused::impossible(setting);
            let (value, what) = values[(case as usize + n) % values.len()].clone();
            faults.extend(refused::expect_refusal(&prover, &recipe, setting, value, what).err());
        }
    }
    assert!(faults.is_empty(), "{}: {faults:#?}", faults.len());
}

/// PyTorch's values of every network of the corpus, in f64 and in f32.
#[test]
fn the_corpus_agrees_with_pytorch() {
    let networks = corpus::networks();
    assert!(networks.len() >= corpus::FEWEST, "{} networks", networks.len());
    let mut faults = Vec::new();
    for known in &networks {
        assert!(!known.golden.is_baseline(), "{}: not PyTorch's values", known.name);
        for precision in [Precision::F64, Precision::F32] {
            let report =
                corpus::judged(&known.recipe, known, precision).unwrap_or_else(|e| panic!("{}: {e}", known.name));
            let judged = |stage: &Stage| report.stages.iter().any(|s| s.stage == *stage && s.tensors > 0);
            assert!(corpus::STAGES.iter().all(judged), "{}: a stage has no data", known.name);
            if report.verdict != Verdict::Pass {
                faults.push(format!("{} in {precision:?}: {}", known.name, corpus::failed(&report)));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// A new layer or optimizer has to be in the corpus.
#[test]
fn the_corpus_has_every_layer_and_optimizer() {
    let vocabulary = Vocabulary::new();
    let mut used = BTreeSet::new();
    for known in corpus::networks() {
        vocabulary.used(&serde_json::to_value(&known.recipe).unwrap(), &mut used);
    }
    let wanted = |word: &&String| word.starts_with("Layer.") || word.starts_with("Optimizer.");
    let excused = |word: &str| corpus::NOT_IN_CORPUS.iter().any(|(known, _)| *known == word);
    let words = vocabulary.words(&SECTIONS);
    let wrong: Vec<&String> =
        words.iter().filter(wanted).filter(|word| used.contains(*word) == excused(word.as_str())).collect();
    assert!(wrong.is_empty(), "missing without a reason, or there in spite of one: {wrong:#?}");
}

/// Single changes of settings in recipes of the corpus: each is noticed, or changes no bit of three steps.
/// `RANDOM_CHANGES=500` tries more.
#[test]
fn a_changed_setting_is_noticed() {
    let (first, count) = (number("RANDOM_SEED", 0) as usize, number("RANDOM_CHANGES", 100) as usize);
    let (vocabulary, prover) = (Vocabulary::new(), Prover::new());
    let networks = corpus::networks();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut missed = Vec::new();
    for n in first..first + count {
        let known = &networks[n % networks.len()];
        let written = serde_json::to_value(&known.recipe).unwrap();
        let mut settings = vocabulary.settings(&written, &["model", "loss", "gradients", "optimizer"]);
        settings.retain(corpus::is_of_step);
        let setting = &settings[(n / networks.len() * 7919 + n * 31) % settings.len()];
        let Some(value) = corpus::another(setting, n) else { continue };
        let changed = setting.changed(&written, value.clone());
        let told = || format!("{}: {} = {value}, not {:?}", known.name, setting.told(), setting.form);
        let outcome = match prover.read(&draw::text(&changed)) {
            Err(_) => "invalid",
            Ok(recipe) => match corpus::judged(&recipe, known, Precision::F64) {
                Err(_) => "invalid",
                Ok(report) if report.verdict == Verdict::Fail => "noticed",
                Ok(_) if corpus::bits(&recipe, known) == corpus::bits(&known.recipe, known) => "without effect",
                Ok(_) => {
                    missed.push(told());
                    "missed"
                }
            },
        };
        if std::env::var("RANDOM_CHANGES").is_ok() && outcome != "noticed" {
            println!("{outcome}: {}", told());
        }
        *counts.entry(outcome).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(missed.is_empty(), "{counts:?}: {missed:#?}");
    let noticed = counts.get("noticed").copied().unwrap_or(0);
    assert!(noticed * 2 > count, "{counts:?}");
}
