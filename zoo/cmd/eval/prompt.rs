//! `zoo eval --prompt`: text generation.

use crate::Failure;
use crate::context::Context;
use crate::options::Format;
use serde::Serialize;
use std::io::Write;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use zoo_tasks::Sampling;
use zoo_train::{Job, Weights, continue_text};

/// Options of text generation.
#[derive(Clone, Debug, clap::Args)]
pub struct PromptArgs {
    /// Generate text after this prompt with a language model, instead of evaluating it
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["draw", "drawn"])]
    pub prompt: Option<String>,
    /// Number of tokens to generate: characters, or those of the tokenizer
    #[arg(long, value_name = "N", default_value_t = NonZero::<usize>::MIN.saturating_add(199), requires = "prompt")]
    length: NonZero<usize>,
    /// Sampling temperature: logits are divided by it; 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.8, requires = "prompt", value_parser = temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Seed of the random sampling
    #[arg(long, value_name = "N", default_value_t = 0, requires = "prompt")]
    seed: u64,
}

fn temperature(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|error| error.to_string())?;
    if value >= 0.0 && value.is_finite() { Ok(value) } else { Err("a number that is not negative".to_owned()) }
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    checkpoint: &'a Path,
    device: &'a str,
    prompt: &'a str,
    continuation: &'a str,
    temperature: f64,
    seed: u64,
}

/// Writes the prompt and the generated text as it is generated. Returns false if it was interrupted.
pub fn run(
    args: &PromptArgs,
    prompt: &str,
    job: Job<'_>,
    weights: &Weights,
    cancel: &AtomicBool,
    context: &mut Context,
) -> Result<bool, Failure> {
    let Some(generator) = job.data.samples.generator() else {
        let name = &job.recipe.name;
        return Err(Failure::Usage(format!("--prompt: `{name}` does not predict the next token of a text")));
    };
    let sampling = Sampling { length: args.length.get(), temperature: args.temperature, seed: args.seed };
    let (mut text, mut written) = (String::new(), Ok(()));
    let as_text = context.format == Format::Text;
    let mut tell = |piece: &str| {
        if as_text && written.is_ok() {
            // The prompt is printed with the first piece, so that an error is on its own line.
            let before = if text.is_empty() { prompt } else { "" };
            written = write!(context.out, "{before}{piece}").and_then(|()| context.out.flush());
        }
        text.push_str(piece);
    };
    let done = continue_text(job, weights, &generator, (prompt, sampling), cancel, &mut tell)?;
    written?;
    let report = Report {
        recipe: &job.recipe.name,
        checkpoint: &weights.file,
        device: job.device_name(),
        prompt,
        continuation: &text,
        temperature: args.temperature,
        seed: args.seed,
    };
    context.show(&report, |out| Ok(writeln!(out)?))?;
    Ok(done)
}
