//! Finds attention in a graph: two products with a softmax between them.
//!
//! `softmax(q * k^T) * v` consists of a product, operators on its result (one of them a softmax along rows), and a
//! second product for the weighted sum (arXiv 1706.03762, equation 1). Software with fused attention runs all of this
//! as one kernel, and the gradient as another (arXiv 2205.14135).

use crate::{
    formula::Term,
    graph::{Graph, NodeId, Phase, Source, ValueId},
    ops::Op,
};
use std::collections::BTreeSet;

/// An attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The product that computes the scores, and the operators on them, in order: indices of nodes.
    pub scores: Vec<usize>,
    /// All nodes of the kernel, in order: the scores and the weighted sum; in the backward pass, everything between
    /// the gradient of the sum and those of its three operands.
    pub nodes: Vec<usize>,
}

/// All attentions. In the backward pass, those whose scores are recomputed there.
pub fn attentions(graph: &Graph) -> Vec<Attention> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|v| readers[v.0].push(n));
    }
    let search = Search { graph, readers };
    let softmax = |n: &usize| is_softmax(&graph.nodes[*n].op);
    (0..graph.nodes.len()).filter(softmax).filter_map(|n| search.around(n)).collect()
}

/// Whether an operator is a softmax along rows.
fn is_softmax(op: &Op) -> bool {
    matches!(op, Op::Map(map) if map.formula.terms().iter().any(|term| matches!(term, Term::Softmax(_))))
}

/// Whether an operator works on single scores or rows of them, so that it is allowed between the products.
fn is_between(op: &Op) -> bool {
    matches!(op, Op::Map(_) | Op::Cast(_) | Op::Dropout(_))
}

struct Search<'g> {
    graph: &'g Graph,
    readers: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// The attention to which a softmax belongs.
    fn around(&self, softmax: usize) -> Option<Attention> {
        let graph = self.graph;
        let phase = graph.nodes[softmax].phase;
        let mut scores = vec![softmax];
        let mut first = softmax;
        while !is_product(&graph.nodes[first].op) {
            first = self.maker(graph.nodes[first].inputs[0]).filter(|by| self.may_join(*by, phase))?;
            scores.insert(0, first);
        }
        // After the softmax there is also a single path, until products read its result.
        let mut last = softmax;
        let mut sums: Vec<usize> = Vec::new();
        while sums.is_empty() {
            let made = graph.nodes[last].outputs.first()?;
            let behind: Vec<usize> = self.readers[made.0].iter().copied().filter(|n| self.joins(*n, phase)).collect();
            sums = behind.iter().copied().filter(|n| is_product(&graph.nodes[*n].op)).collect();
            if sums.is_empty() {
                last = *behind.iter().find(|n| is_between(&graph.nodes[**n].op))?;
                scores.push(last);
            }
        }
        let mut nodes: BTreeSet<usize> = scores.iter().copied().chain(sums).collect();
        if phase == Phase::Backward {
            self.gradient(&scores, &mut nodes);
        }
        Some(Attention { scores, nodes: nodes.into_iter().collect() })
    }

    fn joins(&self, n: usize, phase: Phase) -> bool {
        self.graph.nodes[n].phase == phase
    }

    fn may_join(&self, n: usize, phase: Phase) -> bool {
        let op = &self.graph.nodes[n].op;
        self.joins(n, phase) && (is_product(op) || is_between(op))
    }

    /// The node that computes a value.
    fn maker(&self, v: ValueId) -> Option<usize> {
        match self.graph.value(v).source {
            Source::Node(NodeId(n), _) => Some(n),
            Source::Input(_) | Source::Variable(_) => None,
        }
    }

    /// Adds the nodes of the gradient: those that read the scores, the products that compute the gradient of the
    /// scores, and the products that use it.
    fn gradient(&self, scores: &[usize], nodes: &mut BTreeSet<usize>) {
        let mut down: Vec<usize> = scores.to_vec();
        let mut up: Vec<usize> = Vec::new();
        while let Some(n) = down.pop() {
            for v in &self.graph.nodes[n].outputs {
                for reader in self.readers[v.0].iter().copied().filter(|n| self.may_join(*n, Phase::Backward)) {
                    if nodes.insert(reader) && is_between(&self.graph.nodes[reader].op) {
                        down.push(reader);
                        up.push(reader);
                    }
                }
            }
        }
        while let Some(n) = up.pop() {
            let made_by = self.graph.nodes[n].inputs.iter().filter_map(|v| self.maker(*v));
            for maker in made_by.filter(|n| self.may_join(*n, Phase::Backward)) {
                if nodes.insert(maker) && is_between(&self.graph.nodes[maker].op) {
                    up.push(maker);
                }
            }
        }
    }
}

/// Whether an operator is a matrix product.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::MatMul(_))
}
