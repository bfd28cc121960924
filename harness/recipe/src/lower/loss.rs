//! The `loss` section: components and their total.

use super::section;
use crate::Recipe;
use crate::builder::{BuildOptions, Component, Routing, Terms};
use crate::losses::{comparison_path, further_path};
use zoo_graph::{Graph, GraphError, Phase, ValueId, ops::WeightedSum};

/// Adds the loss, and the inputs that it is compared with. The total comes first; its components follow if there are
/// several, without their weights.
pub(super) fn lower(
    graph: &mut Graph,
    recipe: &Recipe,
    options: &BuildOptions,
    routings: &[Routing],
) -> Result<(), GraphError> {
    let scope = section(recipe, "loss", Phase::Loss);
    let mut terms = Terms {
        graph,
        options,
        parts: &recipe.train.parts,
        classes: recipe.model.classes,
        mixed: recipe.preprocess.mix.is_some(),
        ignored: recipe.loss.ignored().collect(),
        routings,
        scope,
        components: Vec::new(),
    };
    for (tag, term) in recipe.loss.terms() {
        terms.scope = section(recipe, &format!("loss.{tag}"), Phase::Loss);
        term.build(&mut terms)?;
    }
    for (name, term) in &recipe.loss.cross_entropies {
        terms.scope = section(recipe, &further_path(name), Phase::Loss);
        term.build_as(name, &mut terms)?;
    }
    for (name, term) in &recipe.loss.comparisons {
        terms.scope = section(recipe, &comparison_path(name), Phase::Loss);
        term.build_as(name, &mut terms)?;
    }
    for (name, term) in &recipe.loss.formulas {
        terms.scope = section(recipe, &format!("loss.formulas.{name}.formula"), Phase::Loss);
        term.build(name, &mut terms)?;
    }
    let components = terms.components;
    total(graph, recipe, components)
}

fn total(graph: &mut Graph, recipe: &Recipe, components: Vec<Component>) -> Result<(), GraphError> {
    let scope = section(recipe, "loss", Phase::Loss);
    match components.as_slice() {
        [] => {
            let message = "the loss has no term: add `softmax_cross_entropy: {}`".into();
            Err(GraphError::Model { origin: scope.origin, message })
        }
        [(_, 1.0, only)] => {
            graph.losses.push(("loss".into(), *only));
            Ok(())
        }
        several => {
            if several.iter().any(|(name, ..)| name == "loss") {
                let message = "a term cannot be called `loss`: the weighted sum of all is".into();
                return Err(GraphError::Model { origin: scope.origin, message });
            }
            let values: Vec<ValueId> = several.iter().map(|c| c.2).collect();
            let weights = several.iter().map(|c| c.1).collect();
            let total = graph.add(&scope, "loss/total", WeightedSum { weights }, &values)?;
            graph.losses.push(("loss".into(), total));
            graph.losses.extend(components.into_iter().map(|(name, _, value)| (name, value)));
            Ok(())
        }
    }
}
