//! Invariants of graphs, checked after building, differentiation and every pass.

use crate::{
    error::GraphError,
    graph::{Graph, Source, TapState, ValueId},
    ops::Op,
    tensor::TensorType,
};

/// Checks that
/// - every operand is defined before its use, by exactly the node, input or variable that its source names;
/// - the results of every node follow from the shape rule of its operator;
/// - results, taps, gradients and the variables' next values exist, the latter with the variables' types and from an
///   operator that updates variables;
/// - a training normalisation gets the statistics of its own input.
///
/// # Errors
/// The first violated invariant, with the name of `after`, the pass that ran last.
pub fn verify(graph: &Graph, after: Option<&'static str>) -> Result<(), GraphError> {
    let broken = |message: String| GraphError::Invariant { after, message };
    let mut defined = vec![false; graph.values.len()];
    for (i, input) in graph.inputs.iter().enumerate() {
        define(graph, &mut defined, input.value, Source::Input(i)).map_err(broken)?;
    }
    for (i, variable) in graph.variables.iter().enumerate() {
        define(graph, &mut defined, variable.value, Source::Variable(crate::VariableId(i))).map_err(broken)?;
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        if let Some(v) = node.inputs.iter().find(|v| !defined.get(v.0).copied().unwrap_or(false)) {
            return Err(broken(format!("node {n} `{}` reads value {} before it is defined", node.name, v.0)));
        }
        let types: Vec<&TensorType> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
        let inferred = node.op.infer(&types).map_err(|e| broken(format!("node {n} `{}`: {e}", node.name)))?;
        let found: Vec<&TensorType> = node.outputs.iter().map(|v| graph.ty(*v)).collect();
        if !inferred.iter().eq(found.iter().copied()) {
            return Err(broken(format!("node {n} `{}` has results {found:?}, its rule gives {inferred:?}", node.name)));
        }
        for (i, v) in node.outputs.iter().enumerate() {
            define(graph, &mut defined, *v, Source::Node(crate::NodeId(n), i)).map_err(broken)?;
        }
        if matches!(node.op, Op::BnTrainingUpdate(_)) {
            expect_own_statistics(graph, node).map_err(broken)?;
        }
    }
    let tapped = graph.taps.iter().filter_map(|t| match t.state {
        TapState::Value(v) => Some(v),
        TapState::Fused(_) => None,
    });
    let gradients = graph.gradients.iter().map(|g| g.1);
    if let Some(v) = graph.results().chain(tapped).chain(gradients).find(|v| !defined[v.0]) {
        return Err(broken(format!("value {} is asked for and never defined", v.0)));
    }
    for variable in &graph.variables {
        if let Some(next) = variable.next.filter(|next| graph.ty(*next) != graph.ty(variable.value)) {
            let (was, becomes) = (graph.ty(variable.value), graph.ty(next));
            return Err(broken(format!("variable `{}` is {was} and becomes {becomes}", variable.name)));
        }
    }
    Ok(())
}

/// Marks a value as defined by `source`, once.
fn define(graph: &Graph, defined: &mut [bool], v: ValueId, source: Source) -> Result<(), String> {
    if graph.values.get(v.0).map(|value| value.source) != Some(source) {
        return Err(format!("value {} does not come from {source:?}", v.0));
    }
    if std::mem::replace(&mut defined[v.0], true) {
        return Err(format!("value {} is defined twice", v.0));
    }
    Ok(())
}

/// The statistic of a rank from which one of all ranks is pooled.
fn pooled_from(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(node) = graph.producer(value)
        && matches!(node.op, Op::Collective(_) | Op::Scale(_) | Op::Map(_))
    {
        value = node.inputs[0];
    }
    value
}

/// Checks that mean and variance are those of the input, on this rank or on all. The gradient of `BNTrainingUpdate`
/// assumes this.
fn expect_own_statistics(graph: &Graph, node: &crate::Node) -> Result<(), String> {
    let [x, mut mean, mut var] = [0, 1, 2].map(|i| node.inputs[i]);
    if let Some(gather) = graph.producer(mean).filter(|node| matches!(node.op, Op::GatherStatistics(_)))
        && gather.outputs[..] == [mean, var]
    {
        [mean, var] = [0, 1].map(|i| gather.inputs[i]);
    }
    if !matches!(&node.op, Op::BnTrainingUpdate(op) if op.ranks.is_empty()) {
        // Pooled over the ranks of a mesh: by sums of the statistics of each.
        [mean, var] = [mean, var].map(|value| pooled_from(graph, value));
    }
    let own = match graph.producer(mean).filter(|_| graph.producer(var).is_some()) {
        Some(reduce) if matches!(reduce.op, Op::Conv2D(_)) => reduce.outputs[..] == [x, mean, var],
        Some(reduce) => {
            let reduces = matches!(reduce.op, Op::BnTrainingReduce(_));
            reduces && reduce.inputs[0] == x && reduce.outputs[..] == [mean, var]
        }
        None => false,
    };
    if own { Ok(()) } else { Err(format!("`{}` normalises with the statistics of another tensor", node.name)) }
}
