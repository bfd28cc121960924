//! The metrics of the recipe on the held-out samples.

use super::program::Program;
use super::real;
use crate::Recipe;
use crate::diagnostic::Diagnostic;
use crate::schema::{Better, Metric, SampleKind, TestTimeAugmentation};

/// Who computes the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scored {
    /// The program, of images with a class.
    Classes,
    /// The program, of windows of a text.
    Tokens,
    /// `zoo eval`, from what the program predicts.
    Elsewhere,
}

/// Who computes the metrics of a program.
pub(super) fn scored(recipe: &Recipe) -> Scored {
    match recipe.data.source.kind() {
        SampleKind::Image => Scored::Classes,
        SampleKind::Language if recipe.preprocess.masking.is_none() => Scored::Tokens,
        SampleKind::Language | SampleKind::Text | SampleKind::LabelMap | SampleKind::Boxes | SampleKind::Video => {
            Scored::Elsewhere
        }
    }
}

/// Adds the function that evaluates the network, and the target.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let recipe = program.recipe;
    let text = match scored(recipe) {
        Scored::Classes => {
            let text = predict(program, recipe.preprocess.tta);
            program.add(&text);
            IMAGES
        }
        Scored::Tokens => TOKENS,
        Scored::Elsewhere => {
            let outputs = match program.graph.outputs.len() {
                1 => format!("{{\"{}\": outputs}}", program.graph.outputs[0].0),
                _ => "outputs".to_owned(),
            };
            program.add(&PREDICTED.replace("CALL", &program.call("network")).replace("OUTPUTS", &outputs));
            return Ok(());
        }
    };
    let call = match recipe.preprocess.tta {
        Some(_) => program.call("network").replacen("network(", "averaged(network, ", 1),
        None => program.first_output(&program.call("network")),
    };
    program.add(&text.replace("CALL", &call));
    target(program)
}

/// Adds the target.
pub(in crate::emit) fn target(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let Some(target) = &program.recipe.target else { return Ok(()) };
    let mut goals = Vec::new();
    for goal in target.goals() {
        let known = match goal.metric {
            Metric::Top1 | Metric::Top5 | Metric::CrossEntropy | Metric::Perplexity => true,
            Metric::BitsPerCharacter
            | Metric::Hmean
            | Metric::Precision
            | Metric::Recall
            | Metric::MeanIou
            | Metric::PixelAccuracy
            | Metric::Map
            | Metric::Map50
            | Metric::Map75
            | Metric::MapSmall
            | Metric::MapMedium
            | Metric::MapLarge
            | Metric::Mar100
            | Metric::MaskIou
            | Metric::Tracked
            | Metric::Overlap
            | Metric::Eao
            | Metric::MaskedAccuracy
            | Metric::NextSentenceAccuracy => false,
        };
        if !known {
            let message = format!("the metric {} is not written in {} yet", goal.metric, program.dialect.name());
            return Err(program.refuse("target", message));
        }
        let test = match goal.metric.better() {
            Better::Higher => ">=",
            Better::Lower => "<=",
        };
        goals.push(format!("scores[\"{}\"] {test} {}", goal.metric, real(goal.value)));
    }
    program.add(&REACHED.replace("GOALS", &goals.join(" and ")));
    Ok(())
}

const REACHED: &str = r#"
def is_reached(scores: dict[str, float]) -> bool:
    """Whether the scores reach the target."""
    return GOALS
"#;

/// The function that gives the first output for a batch.
fn predict(program: &Program<'_>, tta: Option<TestTimeAugmentation>) -> String {
    let Some(TestTimeAugmentation { mirror, shift }) = tta else { return String::new() };
    let mut lines = vec!["    variants = [image]".to_owned()];
    if shift > 0 {
        lines.push(format!("    padded = functional.pad(image, ({shift},) * 4, \"reflect\")"));
        lines.push("    height, width = image.shape[-2:]".to_owned());
        // The unmoved image counts half.
        let moved = |start: &str| format!("padded[..., {start} : {start} + height, {start} : {start} + width]");
        lines[0] = "    variants = [image, image]".to_owned();
        lines.push(format!("    variants += [{}, {}]", moved("0"), moved(&(2 * shift).to_string())));
    }
    if mirror {
        lines.push("    variants += [variant.flip(-1) for variant in variants]".to_owned());
    }
    let call = program.first_output("network(variant)");
    PREDICT.replace("    # variants", &lines.join("\n")).replace("CALL", &call)
}

const PREDICT: &str = r#"
def averaged(network: nn.Module, image: Tensor) -> Tensor:
    """The mean of the network's output over variants of each image."""
    # variants
    return sum(CALL for variant in variants) / len(variants)
"#;

const IMAGES: &str = r#"
@torch.no_grad()
def evaluate(
    network: nn.Module, batches: DataLoader, autocast: torch.autocast, device: torch.device
) -> dict[str, float]:
    """Top-1, top-5 and cross entropy of the held-out images."""
    network.eval()
    sums = torch.zeros(4, dtype=torch.float64)
    for batch in batches:
        batch = {name: value.to(device) for name, value in batch.items()}
        with autocast:
            logits = CALL
        logits, label = logits.float(), batch["label"]
        hits = logits.topk(min(5, logits.shape[1])).indices == label[:, None]
        entropy = functional.cross_entropy(logits, label, reduction="sum")
        sums += torch.stack([hits[:, 0].sum(), hits.sum(), entropy, torch.tensor(len(label), device=device)]).cpu()
    sums = summed(sums, device)
    return dict(zip(("top1", "top5", "cross_entropy"), (sums[:3] / sums[3]).tolist(), strict=True))
"#;

const TOKENS: &str = r#"
@torch.no_grad()
def evaluate(
    network: nn.Module, batches: DataLoader, autocast: torch.autocast, device: torch.device
) -> dict[str, float]:
    """Cross entropy and perplexity of the held-out windows."""
    network.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        batch = {name: value.to(device) for name, value in batch.items()}
        with autocast:
            logits = CALL
        entropy = functional.cross_entropy(logits.flatten(0, 1).float(), batch["label"].flatten(), reduction="sum")
        sums += torch.tensor([entropy.item(), batch["label"].numel()])
    sums = summed(sums, device)
    entropy = (sums[0] / sums[1]).item()
    return {"cross_entropy": entropy, "perplexity": math.exp(entropy)}
"#;

const PREDICTED: &str = r#"
@torch.no_grad()
def predict(
    network: nn.Module, batches: DataLoader, autocast: torch.autocast, device: torch.device, out: Path, writes: bool
) -> None:
    """Writes the outputs for the held-out samples, which `zoo eval --predictions` scores; one process writes."""
    network.eval()
    found: dict[str, list[Tensor]] = {}
    for batch in batches:
        batch = {name: value.to(device) for name, value in batch.items()}
        with autocast:
            outputs = CALL
        for name, value in OUTPUTS.items():
            found.setdefault(name, []).append(value.float().cpu())
    if not writes:
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, parts in found.items():
        numpy.save(out / f"{name}.npy", torch.cat(parts).numpy())
"#;
