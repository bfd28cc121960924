//! The optimizer, with its groups of parameters.

use std::fmt::Write;

use super::program::Program;
use super::{parts, real};
use crate::diagnostic::Diagnostic;
use crate::python::{Code, Dialect, Parameter, condition, mindspore, parameters};
use crate::values::{Training, matches};

/// Weight decay, and factor on the learning rate.
type Settings = (f64, f64);

/// Adds the optimizer.
pub(in crate::emit) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let mut written = program.recipe.optimizer.emit();
    let dialect = program.dialect;
    let (module, rule, kind) = match dialect {
        Dialect::PyTorch => ("nn.Module", "torch.optim.Optimizer", "nn.Parameter"),
        Dialect::MindSpore => ("nn.Cell", "Rule", "Parameter"),
    };
    if dialect == Dialect::MindSpore {
        let refused = |reason| program.refuse("optimizer", reason);
        (written.class, written.text) = mindspore::optimizer(written.class).map_err(refused)?;
        program.add(mindspore::RULE);
    }
    if let Some(text) = written.text {
        program.add(text);
    }
    let (all, leaks) = (parameters(program.graph), parts::leak(program));
    let settings: Vec<Settings> = all.iter().map(|parameter| settings(program, parameter)).collect();
    let mut distinct: Vec<Settings> = Vec::new();
    settings.iter().for_each(|own| distinct.extend((!distinct.contains(own)).then_some(*own)));
    let scaled = distinct.iter().any(|(_, factor)| *factor != 1.0);
    let mut arguments = vec![Code::named("lr", Code::text(real(program.recipe.schedule.peak_lr())))];
    let own = written.arguments.into_iter().map(|(key, value)| Code::named(key, Code::text(value)));
    arguments.extend(own);
    let groups = match &distinct[..] {
        [] | [(_, 1.0)] => {
            let (decay, _) = distinct.first().copied().unwrap_or((0.0, 1.0));
            arguments.push(Code::named("weight_decay", Code::text(real(decay))));
            if leaks { "own" } else { dialect.parameters() }
        }
        _ => {
            program.add(&chosen(program, &all, &settings, &distinct, scaled));
            "groups"
        }
    };
    arguments.insert(0, Code::text(groups));
    let mut lines = vec![
        format!("def optimizer(network: {module}) -> {rule}:"),
        format!("    \"\"\"The update rule: {}.\"\"\"", program.recipe.optimizer.tag()),
    ];
    if dialect == Dialect::MindSpore {
        idle(program, &mut lines);
    }
    if groups == "own" {
        lines.push(format!(
            "    own = [parameter for name, parameter in {} if not leaks(name)]",
            dialect.named_parameters()
        ));
    }
    if groups == "groups" {
        let (keys, entry) = match scaled {
            true => ("tuple[float, float]", "\"weight_decay\": decay, \"factor\": factor} for (decay, factor), own"),
            false => ("float", "\"weight_decay\": decay} for decay, own"),
        };
        lines.push(format!("    parts: dict[{keys}, list[{kind}]] = {{}}"));
        lines.push(format!("    for name, parameter in {}:", dialect.named_parameters()));
        let depth = if leaks { "            " } else { "        " };
        lines.extend(leaks.then(|| "        if not leaks(name):".to_owned()));
        lines.push(format!("{depth}parts.setdefault(settings(name, parameter), []).append(parameter)"));
        lines.push(format!("    groups = [{{\"params\": own, {entry} in parts.items()]"));
    }
    Code::call(written.class, arguments).lines(4, "return ", "", &mut lines);
    program.add(&lines.join("\n"));
    program.add(&(if scaled { SCALED } else { PLAIN }).replace("torch.optim.Optimizer", rule));
    Ok(())
}

/// Parameters on which no loss depends, which PyTorch leaves alone by itself.
fn idle(program: &mut Program<'_>, lines: &mut Vec<String>) {
    let graph = program.graph;
    let has_gradient = |id| graph.gradients.iter().any(|(parameter, _)| *parameter == id);
    let idle = graph.parameters().filter(|(id, _)| !has_gradient(*id));
    let names: Vec<Code> = idle.map(|(_, parameter)| Code::text(format!("\"{}\"", parameter.name))).collect();
    if !names.is_empty() {
        let mut text = Vec::new();
        Code::list(names).lines(0, "IDLE = ", "\n\"\"\"Parameters on which no loss depends.\"\"\"", &mut text);
        program.add(&text.join("\n"));
        lines.push("    for name, parameter in parameters(network).items():".to_owned());
        lines.push("        parameter.requires_grad = name not in IDLE".to_owned());
    }
}

const PLAIN: &str = r#"
def set_rate(rule: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate."""
    for group in rule.param_groups:
        group["lr"] = rate
"#;

const SCALED: &str = r#"
def set_rate(rule: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate, times the factor of each group."""
    for group in rule.param_groups:
        group["lr"] = rate * group["factor"]
"#;

/// Those of a parameter, as its group, its role and its part decide.
fn settings(program: &Program<'_>, parameter: &Parameter) -> Settings {
    let recipe = program.recipe;
    let (decay, spared, groups) = recipe.optimizer.decay();
    let own = groups.iter().find(|group| group.patterns.all().iter().any(|pattern| matches(pattern, &parameter.name)));
    let spared = spared.iter().any(|group| group.has(&parameter.role));
    let decay = own.and_then(|group| group.weight_decay).unwrap_or(if spared { 0.0 } else { decay });
    let factor = own.and_then(|group| group.lr).map_or(1.0, |lr| lr.0);
    (decay, factor * Training::of(&recipe.train.parts, &parameter.name, 0).lr)
}

/// The function that gives the settings of a parameter: those of the fewest parameters first.
fn chosen(
    program: &Program<'_>,
    all: &[Parameter],
    settings: &[Settings],
    distinct: &[Settings],
    scaled: bool,
) -> String {
    let (_, _, groups) = program.recipe.optimizer.decay();
    let of_groups = groups.iter().map(|group| group.patterns.all().to_vec());
    let inside = |module: &String| [module.clone(), format!("{module}.*")];
    let of_parts = program.recipe.train.parts.iter().map(|part| part.modules.iter().flat_map(inside).collect());
    let patterns: Vec<Vec<String>> = of_groups.chain(of_parts).collect();
    let patterns: Vec<&[String]> = patterns.iter().map(Vec::as_slice).collect();
    let count = |one: &Settings| settings.iter().filter(|own| *own == one).count();
    let mut distinct = distinct.to_vec();
    distinct.sort_by_key(count);
    let value = |(decay, factor): &Settings| match scaled {
        true => format!("{}, {}", real(*decay), real(*factor)),
        false => real(*decay),
    };
    let (kind, doc) = match scaled {
        true => ("tuple[float, float]", "Weight decay of a parameter, and the factor on its learning rate."),
        false => ("float", "Weight decay of a parameter."),
    };
    let mut text = format!("def settings(name: str, parameter: Tensor) -> {kind}:\n    \"\"\"{doc}\"\"\"\n");
    let mut left: Vec<(Parameter, Settings)> = all.iter().cloned().zip(settings.iter().copied()).collect();
    for one in &distinct[..distinct.len() - 1] {
        let of: Vec<Parameter> = left.iter().map(|(parameter, _)| parameter.clone()).collect();
        let chosen: Vec<bool> = left.iter().map(|(_, own)| own == one).collect();
        let mut lines = Vec::new();
        condition(&of, &chosen, &patterns).lines(4, "if ", ":", &mut lines);
        let _ = writeln!(text, "{}\n        return {}", lines.join("\n"), value(one));
        left.retain(|(_, own)| own != one);
    }
    text + &format!("    return {}\n", value(&distinct[distinct.len() - 1]))
}
