//! Split steps against one device.

mod drawn;

use std::path::Path;
use zoo_golden::{
    GoldenError, Precision,
    split::{
        SplitOptions, SplitReport, check_split,
        mutants::{self, SplitPlanting},
    },
};
use zoo_recipe::{Library, LoadOptions, Parallel, Recipe};

/// A recipe at a small size.
fn recipe(name: &str) -> Recipe {
    let (profile, sets): (Option<&str>, &[&str]) = match name {
        "llama" => (
            None,
            &[
                "model.inputs.tokens.indices=[8]",
                "model.classes=96",
                "model.blocks.decoder_layer.args={width: 32, hidden: 24, heads: 8, kv_heads: 4}",
                "model.body[0].scope.body[0].embedding.size=32",
                "model.body[0].scope.body[1].scope.body[0].stack.repeat=4",
            ],
        ),
        "gpt2" => (
            Some("mini"),
            &[
                "model.inputs.tokens.indices=[8]",
                "model.classes=64",
                "model.blocks.decoder_block.args={width: 32, heads: 4, dropout: 0.1}",
                "model.transformer.wte.size=32",
                "model.transformer.wpe.rows=8",
            ],
        ),
        "qwen3_moe" => (None, &["model.inputs.tokens.indices=[8]", "model.classes=96"]),
        "bert_base" => (
            Some("mini"),
            &[
                "model.inputs={input_ids: {indices: [8]}, token_type_ids: {indices: [8]}, attention_mask: {numbers: [8]}}",
                "model.classes=64",
                "model.body=[{block: {use: bert, args: {width: 32, heads: 4, layers: 2}}}]",
            ],
        ),
        "vit_b_16" => (Some("mini"), &["model.blocks.encoder_block.args={width: 96, heads: 4}"]),
        "resnet18" => (Some("mini"), &["model.inputs.image=[3, 32, 32]"]),
        other => panic!("no size for {other}"),
    };
    loaded(name, profile, &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>())
}

/// A recipe with a profile and values of `--set`.
fn loaded(name: &str, profile: Option<&str>, sets: &[String]) -> Recipe {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let options = LoadOptions { profile: profile.map(str::to_owned), sets: sets.to_vec() };
    Library::new([recipes]).load(name, &options).unwrap().recipe
}

fn checked(name: &str, parallel: &str, batch: usize, precision: Precision) -> Result<SplitReport, GoldenError> {
    let (recipe, parallel) = (recipe(name), parallel.parse::<Parallel>().unwrap());
    let options = SplitOptions::new(precision, batch);
    check_split(&recipe, &parallel, &options, &mut |_| {})
}

/// Every kind of split, alone and with others.
const SPLITS: [(&str, &str, usize); 35] = [
    ("llama", "tensor=2", 2),
    ("llama", "tensor=4,sequence", 1),
    ("llama", "data=2", 2),
    ("llama", "data=2,tensor=2,sequence", 2),
    ("llama", "context=2", 1),
    ("llama", "context=2,tensor=2,sequence", 1),
    ("llama", "data=2,zero=1", 2),
    ("llama", "data=2,zero=3,tensor=2", 2),
    ("llama", "micro_batch=1", 4),
    ("llama", "pipeline=2,micro_batch=1", 3),
    ("llama", "pipeline=2x2,data=2,tensor=2,sequence,micro_batch=1", 4),
    ("gpt2", "tensor=2", 2),
    ("gpt2", "tensor=2,sequence", 2),
    ("gpt2", "data=2,zero=2", 2),
    ("gpt2", "context=4", 1),
    ("gpt2", "pipeline=2", 2),
    ("gpt2", "pipeline=2,tensor=2,data=2,micro_batch=1", 4),
    ("qwen3_moe", "tensor=2", 2),
    ("qwen3_moe", "tensor=2,sequence", 2),
    ("qwen3_moe", "expert=2", 2),
    ("qwen3_moe", "expert=8", 8),
    ("qwen3_moe", "expert=2,data=2,tensor=2,sequence", 4),
    ("qwen3_moe", "pipeline=2,expert=2,micro_batch=1", 4),
    ("bert_base", "tensor=2,sequence", 2),
    ("bert_base", "data=2", 2),
    ("bert_base", "pipeline=2,data=2", 2),
    ("bert_base", "data=2,context=4,zero=2", 2),
    ("bert_base", "data=2,micro_batch=1", 2),
    ("llama", "pipeline=4", 1),
    ("llama", "data=2,tensor=2,sequence,recompute=3", 2),
    ("gpt2", "tensor=2,recompute=selective", 2),
    ("vit_b_16", "tensor=2", 2),
    ("vit_b_16", "data=2,zero=3", 2),
    ("resnet18", "data=2", 4),
    ("resnet18", "pipeline=2,data=2", 4),
];

#[test]
fn ranks_compute_the_step_of_one_device() {
    let mut failed = Vec::new();
    for (name, parallel, batch) in SPLITS {
        match checked(name, parallel, batch, Precision::F64) {
            Ok(report) if report.passed() => {}
            Ok(report) => failed.push(format!("{name} {parallel}: {:?}", report.first_divergence)),
            Err(error) => failed.push(format!("{name} {parallel}: {error}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn f32_gives_no_false_alarm() {
    for (name, parallel, batch) in [("gpt2", "data=2,tensor=2,sequence", 2), ("resnet18", "data=2", 4)] {
        let report = checked(name, parallel, batch, Precision::F32).unwrap();
        assert!(report.passed(), "{name} {parallel}: {:?}", report.first_divergence);
    }
}

#[test]
fn planted_faults_are_found_with_their_kind() {
    let (recipe, parallel) = (recipe("llama"), "data=2,tensor=2,sequence".parse::<Parallel>().unwrap());
    let options = SplitOptions::new(Precision::F64, 2);
    let planting = mutants::run(&recipe, &parallel, &options, &mut |_, _| {}).unwrap();
    let SplitPlanting::Found(faults) = planting else { panic!("{planting:#?}") };
    let wrong: Vec<_> = faults.iter().filter(|fault| !fault.is_right()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(faults.iter().any(|fault| fault.harmless), "another order of sums is no fault");
    let found = |fault: &str| {
        let found = faults.iter().find(|it| it.fault == fault).and_then(|it| it.found.as_ref());
        found.map(|found| (found.tensor.as_str(), found.explanation.as_str()))
    };
    let missing = "each tensor rank has a partial sum: the sum over the tensor group is missing";
    assert_eq!(
        found("no sum: model.norm.weight/tensor_copy/grad"),
        Some(("model.norm.weight", missing)),
        "{faults:#?}"
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |name: &str, parallel: &str, batch: usize| {
        checked(name, parallel, batch, Precision::F64).unwrap_err().to_string()
    };
    let ends = |name, parallel, batch, end: &str| {
        let error = refused(name, parallel, batch);
        assert!(error.ends_with(end), "{error}");
    };
    ends(
        "llama",
        "tensor=16",
        1,
        "divides `model.layers.0.mlp.down_proj.weight`, and 24 of `model.layers.0.mlp.down_proj.weight` is no multiple of 16",
    );
    ends("llama", "data=2", 3, "data=2 divides a batch of 3, which is no multiple of 2");
    ends("llama", "context=3", 1, "context=3 divides 8 tokens, which is no multiple of 3");
    ends("llama", "expert=2", 2, "expert=2 divides experts, and the network has none");
    ends("llama", "pipeline=16", 1, "and there are 8: a stage ends where one activation leads on");
    ends("qwen3_moe", "expert=3", 3, "expert=3 divides 8 experts, which is no multiple of 3");
    ends("vit_b_16", "tensor=2,sequence", 2, "has 65 elements along axis 1, which 2 tensor ranks cannot share equally");
    ends("resnet18", "context=2", 2, "context=2 divides tokens, and the network has no input of them");
    ends("resnet18", "micro_batch=1", 2, "leave out `micro_batch`");
    ends("llama", "data=2,micro_batch=2", 6, "a batch of 8 is");
}
