//! The `loss` section: components and their total.

use super::section;
use crate::{
    error::GraphError,
    graph::{Graph, Phase, ValueId, VariableRole},
    ops::{L2Loss, SmoothingOver, SoftmaxCrossEntropy, WeightedSum},
};
use zoo_recipe::{Recipe, schema};

/// Adds the loss. The total comes first; its components follow if there are several.
pub(super) fn lower(graph: &mut Graph, recipe: &Recipe, logits: ValueId, labels: ValueId) -> Result<(), GraphError> {
    let mut components: Vec<(String, ValueId)> = Vec::new();
    if let Some(loss) = &recipe.loss.softmax_cross_entropy {
        let scope = section(recipe, "loss.softmax_cross_entropy", Phase::Loss);
        let over = match loss.smoothing_over {
            schema::SmoothingOver::AllClasses => SmoothingOver::AllClasses,
            schema::SmoothingOver::OtherClasses => SmoothingOver::OtherClasses,
        };
        let op = SoftmaxCrossEntropy { smoothing: loss.label_smoothing, over };
        let outputs = graph.add_node(&scope, "loss/cross_entropy", op, &[logits, labels])?;
        components.push(("cross_entropy".into(), outputs[0]));
    }
    if let Some(l2) = recipe.loss.l2.as_ref().filter(|l2| l2.weight > 0.0) {
        let scope = section(recipe, "loss.l2", Phase::Loss);
        let regularised: Vec<(String, ValueId)> = graph
            .parameters()
            .filter(|(_, v)| l2.over == schema::L2Over::All || v.role == VariableRole::Weight)
            .map(|(_, v)| (v.name.clone(), v.value))
            .collect();
        let mut squares = Vec::new();
        for (name, value) in regularised {
            squares.push(graph.add(&scope, format!("loss/l2/{name}"), L2Loss, &[value])?);
        }
        if !squares.is_empty() {
            let weights = vec![l2.weight; squares.len()];
            let sum = graph.add(&scope, "loss/l2", WeightedSum { weights }, &squares)?;
            components.push(("l2".into(), sum));
        }
    }
    let scope = section(recipe, "loss", Phase::Loss);
    match components.as_slice() {
        [] => {
            let message = "the loss has no component: add `softmax_cross_entropy: {}`".into();
            Err(GraphError::Model { origin: scope.origin, message })
        }
        [(_, only)] => {
            graph.losses.push(("loss".into(), *only));
            Ok(())
        }
        several => {
            let values: Vec<ValueId> = several.iter().map(|c| c.1).collect();
            let weights = vec![1.0; values.len()];
            let total = graph.add(&scope, "loss/total", WeightedSum { weights }, &values)?;
            graph.losses.push(("loss".into(), total));
            graph.losses.extend(components);
            Ok(())
        }
    }
}
