//! `train.parts`: modules that are frozen, or trained in some epochs only.

use std::fmt::Write;

use super::program::Program;
use crate::diagnostic::Diagnostic;
use crate::python::Code;
use crate::schema::LossScale;
use crate::values::Statistics;

/// Whether parts are frozen, or trained in some epochs only.
pub(super) fn change(program: &Program<'_>) -> bool {
    program.recipe.train.parts.iter().any(|part| !part.trained || part.from_epoch > 0 || part.until_epoch.is_some())
}

/// Whether normalisations of parts use stored statistics.
pub(super) fn stored(program: &Program<'_>) -> bool {
    program.recipe.train.parts.iter().any(|part| part.statistics == Statistics::Stored)
}

/// Adds what freezes them.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let parts = &program.recipe.train.parts;
    if let Some(n) = parts.iter().position(|part| part.leaks && part.trained) {
        let message = "gradients that leak from parts that join or leave the training are not written in PyTorch yet";
        return Err(program.refuse(&format!("train.parts[{n}].leaks"), message));
    }
    if leak(program) && program.recipe.npu.loss_scale != LossScale::None {
        let message = "a loss scale beside gradients that leak (train.parts) is not written in PyTorch yet";
        return Err(program.refuse("npu.loss_scale", message));
    }
    if program.recipe.train.init_from.is_some() {
        let message = "loading a part of other weights is not written in PyTorch yet: use `--weights`";
        return Err(program.refuse("train.init_from", message));
    }
    if stored(program) {
        let of_stored = parts.iter().filter(|part| part.statistics == Statistics::Stored);
        let names = of_stored.flat_map(|part| &part.modules);
        let text = format!("{}\n{STORED}", listed("STORED", names));
        program.add(&text);
    }
    if !change(program) {
        return Ok(());
    }
    let mut text = String::from("PARTS = {\n");
    for part in &program.recipe.train.parts {
        let (first, end) = match (part.trained, part.until_epoch) {
            (false, _) => ("0".to_owned(), "0".to_owned()),
            (true, None) => (part.from_epoch.to_string(), "math.inf".to_owned()),
            (true, Some(end)) => (part.from_epoch.to_string(), end.to_string()),
        };
        for module in &part.modules {
            let _ = writeln!(text, "    \"{module}\": ({first}, {end}),");
        }
    }
    text += "}\n\"\"\"The first epoch in which a part is trained, and the first in which it no longer is.\"\"\"\n";
    program.add(&text);
    let mut freeze = FREEZE.to_owned();
    if parts_join(program) {
        freeze = freeze.replace(PLAIN, RESET);
    }
    if leak(program) {
        let leaking = program.recipe.train.parts.iter().filter(|part| part.leaks).flat_map(|part| &part.modules);
        let text = format!("{}\n{LEAKS}", listed("LEAKS", leaking));
        program.add(&text);
        freeze = freeze.replace("!= is_trained(name, epoch)", "!= (is_trained(name, epoch) or leaks(name))");
    }
    program.add(&freeze);
    Ok(())
}

/// A list of modules with a name, on as many lines as it needs.
fn listed<'m>(name: &str, modules: impl Iterator<Item = &'m String>) -> String {
    let mut lines = Vec::new();
    let names = modules.map(|module| Code::text(format!("\"{module}\""))).collect();
    Code::list(names).lines(0, &format!("{name} = "), "", &mut lines);
    lines.join("\n")
}

/// Whether gradients of parts that are not trained are kept.
pub(super) fn leak(program: &Program<'_>) -> bool {
    program.recipe.train.parts.iter().any(|part| part.leaks)
}

/// Whether parts join later.
fn parts_join(program: &Program<'_>) -> bool {
    program.recipe.train.parts.iter().any(|part| part.trained && part.from_epoch > 0)
}

const FREEZE: &str = r#"
def is_trained(name: str, epoch: int) -> bool:
    """Whether a parameter is trained in an epoch: the innermost part that it is in decides."""
    inside = [part for part in PARTS if f"{name}.".startswith(f"{part}.")]
    first, end = PARTS[max(inside, key=len)] if inside else (0, math.inf)
    return first <= epoch < end


def freeze(network: nn.Module, rule: torch.optim.Optimizer, epoch: int) -> bool:
    """Trains the parts of an epoch only; returns whether they are others than before."""
    changed = False
    for name, parameter in network.named_parameters():
        if parameter.requires_grad != is_trained(name, epoch):
            parameter.requires_grad_(not parameter.requires_grad)
            parameter.grad = None
            changed = True
    return changed
"#;

const LEAKS: &str = r#""""Parts that are not trained, and whose gradients are summed over the steps and counted in their norm."""


def leaks(name: str) -> bool:
    """Whether the gradients of a parameter are kept, which the optimizer does not know: the innermost part decides."""
    inside = [part for part in PARTS if f"{name}.".startswith(f"{part}.")]
    return bool(inside) and max(inside, key=len) in LEAKS
"#;

const PLAIN: &str = "            parameter.grad = None
            changed = True
    return changed
";

/// Parts that join reset the optimizer.
const RESET: &str = "            parameter.grad = None
            changed = True
            if parameter.requires_grad:
                rule.state.clear()
    return changed
";

const STORED: &str = r#""""Parts whose normalisations use their running statistics."""


def keep_statistics(network: nn.Module) -> None:
    """Makes the normalisations of these parts use their running statistics."""
    for name, module in network.named_modules():
        inside = any(f"{name}.".startswith(f"{part}.") for part in STORED)
        if inside and isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
"#;
