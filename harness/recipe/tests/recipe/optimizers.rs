//! Groups of parameters, and terms of the loss that are formulas, as an author writes them.

use std::fs;
use zoo_graph::ops::Group;
use zoo_recipe::{BuildOptions, Library, LoadOptions, build};

/// Loads a recipe with these sections and builds its training step: by parameter its decay and rate, or the errors.
fn groups(optimizer: &str, loss: &str) -> Result<Vec<(String, Group)>, String> {
    let text = format!(
        "name: r\nmodel:\n  inputs: {{image: [3, 8, 8]}}\n  classes: 10\n  body:\n    - conv: {{name: conv, out: 4, \
         kernel: 3}}\n    \
         - bn: {{name: bn}}\n    - flatten\n    - linear: {{name: fc, out: $classes}}\n\
         data: {{source: {{characters: {{}}}}}}\nloss: {loss}\noptimizer: {optimizer}\n\
         schedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    fs::write(folder.path().join("r.yaml"), text).map_err(|error| error.to_string())?;
    let loaded =
        Library::new([folder.path()]).load("r", &LoadOptions::default()).map_err(|errors| errors.to_string())?;
    let model = loaded.recipe.resolve().map_err(|errors| errors.to_string())?;
    let graph = build(&loaded.recipe, &model, &BuildOptions::train(2)).map_err(|error| error.to_string())?;
    let updates = graph.nodes.iter().filter_map(|node| graph.optimized(node));
    Ok(updates.map(|update| (graph.variable(update.parameter).name.clone(), update.group)).collect())
}

const ENTROPY: &str = "{softmax_cross_entropy: {}}";

#[test]
fn the_first_group_that_matches_decides() {
    let optimizer = "{adamw: {weight_decay: 0.1, no_decay: [bn, bias], groups: [\
                     {match: fc.bias, weight_decay: 0.5}, {match: ['*.bias', 'conv.*'], lr: 64x}]}}";
    let groups = groups(optimizer, ENTROPY).unwrap();
    let of = |name: &str| groups.iter().find(|(own, _)| own == name).map(|(_, group)| *group).unwrap();
    let group = |weight_decay, lr_scale| Group { weight_decay, lr_scale };
    assert_eq!(of("fc.bias"), group(0.5, 1.0));
    assert_eq!(of("fc.weight"), group(0.1, 1.0));
    assert_eq!(of("bn.bias"), group(0.0, 64.0), "it is spared all the same");
    assert_eq!(of("conv.weight"), group(0.1, 64.0));
}

#[test]
fn groups_without_effect_are_refused() {
    let error = |groups_yaml: &str| groups(&format!("{{sgd: {{groups: [{groups_yaml}]}}}}"), ENTROPY).unwrap_err();
    let unknown = error("{match: fc.wieght, weight_decay: 0}");
    assert!(unknown.contains("no parameter matches `fc.wieght`: did you mean `fc.weight`?"), "{unknown}");
    assert!(unknown.contains("r.yaml:12:"), "{unknown}");
    let hidden = error("{match: '*', weight_decay: 0}, {match: fc.bias, lr: 2x}");
    assert!(hidden.contains("all parameters that match `fc.bias` belong to earlier groups"), "{hidden}");
    let empty = error("{match: fc.bias}");
    assert!(empty.contains("this group sets nothing"), "{empty}");
    let factor = error("{match: fc.bias, lr: 64}");
    assert!(factor.contains("r.yaml:12:"), "{factor}");
}

#[test]
fn mistakes_in_a_formula_of_the_loss_are_shown_at_their_character() {
    let error = |formula: &str| groups("sgd", &format!("{{formulas: {{a: {{formula: \"{formula}\"}}}}}}")).unwrap_err();
    let unknown = error("logits * sigmod(logits)");
    assert!(unknown.contains("did you mean `sigmoid`?") && unknown.contains("r.yaml:11:42"), "{unknown}");
    let idle = error("t * t");
    assert!(idle.contains("it uses no output of the model") && idle.contains("outputs: logits"), "{idle}");
    let shapes = error("logits + abs(");
    assert!(shapes.contains("unexpected end of the formula"), "{shapes}");
}
