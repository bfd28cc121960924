//! Drawn combinations of a network, its sizes and a split, up to 16 ranks.

use super::loaded;
use zoo_datasets::Rng;
use zoo_golden::{
    GoldenError, Precision,
    split::{SplitOptions, check_split},
};
use zoo_graph::GraphError;
use zoo_recipe::Parallel;

/// Combinations that are proven, unless RANDOM_SPLITS says how many.
const DRAWN: u64 = 24;
/// Most ranks.
const RANKS: usize = 16;
/// Of the proofs in f32, one in so many may be decided in f64, in which rounding decides nothing.
const IN_F64: usize = 10;
/// Most draws for one combination that fits.
const TRIES: u64 = 1000;

/// One of the values.
fn one<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.below(values.len())]
}

/// A network, and values for its sizes.
fn network(rng: &mut Rng) -> (&'static str, Option<&'static str>, Vec<String>) {
    let name = one(rng, &["llama", "gpt2", "qwen3_moe", "bert_base", "vit_b_16", "resnet18"]);
    let tokens = one(rng, &[4, 8, 16]);
    let (heads, classes, layers) = (one(rng, &[4, 8]), one(rng, &[60, 64, 96]), one(rng, &[2, 3, 4]));
    let indices = format!("model.inputs.tokens.indices=[{tokens}]");
    // Ranks then have different numbers of labels that count.
    let ignores = one(rng, &[true, false]) && matches!(name, "llama" | "gpt2" | "qwen3_moe");
    let ignore = ignores.then(|| "loss.softmax_cross_entropy.ignore=65535".to_owned());
    let (name, profile, mut sets): (_, _, Vec<String>) = match name {
        "llama" => {
            let (kv_heads, hidden) = (one(rng, &[1, 2, 4]), one(rng, &[24, 48]));
            let args = format!("{{width: 32, hidden: {hidden}, heads: {heads}, kv_heads: {kv_heads}}}");
            let sets = [
                indices,
                format!("model.classes={classes}"),
                format!("model.blocks.decoder_layer.args={args}"),
                "model.body[0].scope.body[0].embedding.size=32".to_owned(),
                format!("model.body[0].scope.body[1].scope.body[0].stack.repeat={layers}"),
            ];
            (name, None, sets.into())
        }
        "gpt2" => {
            let dropout = one(rng, &["0.0", "0.1"]);
            let sets = [
                indices,
                format!("model.classes={classes}"),
                format!("model.blocks.decoder_block.args={{width: 32, heads: {heads}, dropout: {dropout}}}"),
                "model.transformer.wte.size=32".to_owned(),
                format!("model.transformer.wpe.rows={tokens}"),
            ];
            (name, Some("mini"), sets.into())
        }
        "qwen3_moe" => (name, None, vec![indices, format!("model.classes={classes}")]),
        "bert_base" => {
            let inputs = format!(
                "model.inputs={{input_ids: {{indices: [{tokens}]}}, token_type_ids: {{indices: [{tokens}]}}, \
                 attention_mask: {{numbers: [{tokens}]}}}}"
            );
            let body = format!("[{{block: {{use: bert, args: {{width: 32, heads: {heads}, layers: {layers}}}}}}}]");
            (name, Some("mini"), vec![inputs, format!("model.classes={classes}"), format!("model.body={body}")])
        }
        "vit_b_16" => {
            let args = format!("model.blocks.encoder_block.args={{width: 96, heads: {heads}}}");
            (name, Some("mini"), vec![args])
        }
        _ => (name, Some("mini"), vec!["model.inputs.image=[3, 64, 64]".to_owned()]),
    };
    sets.extend(ignore);
    (name, profile, sets)
}

/// A split, and a batch for it.
fn split(rng: &mut Rng) -> Option<(Parallel, usize)> {
    let mut words = Vec::new();
    let mut axis = |rng: &mut Rng, word: &str, counts: &[usize]| {
        let ranks = one(rng, counts);
        words.extend((ranks > 1).then(|| format!("{word}={ranks}")));
        ranks
    };
    let tensor = axis(rng, "tensor", &[1, 1, 2, 2, 4]);
    let data = axis(rng, "data", &[1, 1, 2, 2, 4]);
    axis(rng, "context", &[1, 1, 1, 2, 4]);
    axis(rng, "expert", &[1, 1, 1, 2, 4]);
    let (pipeline, interleave) = (one(rng, &[1, 1, 1, 2, 4]), one(rng, &[1, 2]));
    if pipeline > 1 {
        words.push(format!("pipeline={pipeline}x{interleave}"));
    }
    words.extend((tensor > 1 && one(rng, &[true, false])).then(|| "sequence".to_owned()));
    let zero = one(rng, &[0, 0, 1, 2, 3]);
    words.extend((data > 1 && zero > 0).then(|| format!("zero={zero}")));
    let micro_batch = one(rng, &[None, None, Some(1), Some(2)]);
    words.extend(micro_batch.map(|samples| format!("micro_batch={samples}")));
    let parallel: Parallel = words.join(",").parse().ok()?;
    let batch = parallel.parts_of_batch() * micro_batch.unwrap_or(1) * one(rng, &[1, 2, 3]);
    (parallel.ranks() <= RANKS && batch <= 16).then_some((parallel, batch))
}

#[test]
fn drawn_splits_compute_the_step_of_one_device() {
    let count = std::env::var("RANDOM_SPLITS").map_or(DRAWN, |text| text.parse().unwrap());
    let first: u64 = std::env::var("FIRST_SPLIT").map_or(0, |text| text.parse().unwrap());
    let (mut failed, mut in_f64) = (Vec::new(), 0);
    for case in first..first + count {
        let fits = (0..TRIES).find_map(|attempt| {
            let mut rng = Rng::new(case, 0, attempt);
            let (name, profile, sets) = network(&mut rng);
            let (parallel, batch) = split(&mut rng)?;
            let recipe = loaded(name, profile, &sets);
            let checked =
                |precision| check_split(&recipe, &parallel, &SplitOptions::new(precision, batch), &mut |_| {});
            let what = format!("case {case}: {name} {parallel} batch {batch}, {}", sets.join("; "));
            for precision in [Precision::F64, Precision::F32] {
                match checked(precision) {
                    Ok(report) if report.passed() => in_f64 += usize::from(report.dtype != precision),
                    Ok(report) => failed.push(format!("{what} in {precision:?}: {:?}", report.first_divergence)),
                    // What does not fit, and a mask that leaves no token.
                    Err(GoldenError::Graph(GraphError::Model { .. }) | GoldenError::NoTruth { .. }) => return None,
                    Err(error) => failed.push(format!("{what}: {error}")),
                }
            }
            Some(what)
        });
        println!("{}", fits.expect("a combination that fits"));
    }
    println!("{in_f64} of {count} in f32 were decided in f64");
    assert!(in_f64 * IN_F64 <= count as usize, "{in_f64} of {count} are decided in f64");
    assert!(failed.is_empty(), "{} of {count}:\n{}", failed.len(), failed.join("\n"));
}
