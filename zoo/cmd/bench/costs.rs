//! Where the time of a step goes: by operator and by node.

use crate::numbers::{median, percent};
use crate::table::{Cell, Table};
use indexmap::IndexMap;
use serde::Serialize;
use zoo_graph::{Bytes, Cost, Flop, Graph, Phase, TensorType, ValueId};

/// The cost of one kind of operator in a step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OpCost {
    op: &'static str,
    /// Nodes.
    count: usize,
    #[serde(flatten)]
    rates: Rates,
}

/// The cost of one node in a step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeCost {
    name: String,
    op: &'static str,
    phase: Phase,
    /// Types of the operands and of the results, as `f32 2x3`.
    inputs: Vec<String>,
    outputs: Vec<String>,
    #[serde(flatten)]
    rates: Rates,
}

/// A time, and what was done in it.
#[derive(Clone, Debug, Serialize)]
struct Rates {
    /// Median over the steps.
    ms: f64,
    /// Share of the time of all nodes.
    share: f64,
    gflops: f64,
    /// Gigabytes moved per second, if every operand is read and every result written once.
    gbps: f64,
}

impl Rates {
    /// `times` by step, in ms, of work that costs `flop` and moves `bytes`.
    fn of(times: Vec<f64>, flop: Flop, bytes: Bytes) -> Self {
        let ms = median(times);
        let per_second = |n: u64| if ms > 0.0 { n as f64 / ms / 1e6 } else { 0.0 };
        Self { ms, share: 0.0, gflops: per_second(flop.0), gbps: per_second(bytes.0) }
    }

    const COLUMNS: [&'static str; 4] = [">ms", ">share", ">GFLOP/s", ">GB/s"];

    fn cells(&self) -> [Cell; 4] {
        let one = |number: f64| format!("{number:.1}").into();
        [format!("{:.2}", self.ms).into(), percent(self.share).into(), one(self.gflops), one(self.gbps)]
    }
}

/// The arithmetic and the traffic of each node.
pub(super) fn of(graph: &Graph) -> impl Iterator<Item = Cost> + '_ {
    graph.nodes.iter().map(|node| node.op.cost(&types(graph, &node.inputs), &types(graph, &node.outputs)))
}

fn types<'g>(graph: &'g Graph, values: &[ValueId]) -> Vec<&'g TensorType> {
    values.iter().map(|value| graph.ty(*value)).collect()
}

/// Sums over the nodes of each operator, in descending order of time. `node_ms` are times by step and node.
pub(super) fn by_operator(graph: &Graph, node_ms: &[Vec<f64>]) -> Vec<OpCost> {
    let mut ops: IndexMap<&'static str, (usize, Flop, Bytes, Vec<f64>)> = IndexMap::new();
    for (n, (node, cost)) in graph.nodes.iter().zip(of(graph)).enumerate() {
        let (count, flop, bytes, sums) =
            ops.entry(node.op.name()).or_insert_with(|| (0, Flop(0), Bytes(0), vec![0.0; node_ms.len()]));
        *count += 1;
        (*flop, *bytes) = (*flop + cost.flop, *bytes + cost.bytes);
        sums.iter_mut().zip(times(n, node_ms)).for_each(|(sum, time)| *sum += time);
    }
    let ops = ops.into_iter().map(|(op, (count, flop, bytes, sums))| ((op, count), Rates::of(sums, flop, bytes)));
    in_order(ops).map(|((op, count), rates)| OpCost { op, count, rates }).collect()
}

/// All nodes in descending order of time. `node_ms` are times by step and node.
pub(super) fn by_node(graph: &Graph, node_ms: &[Vec<f64>]) -> Vec<NodeCost> {
    let spelled = |values: &[ValueId]| types(graph, values).into_iter().map(ToString::to_string).collect();
    let rates = |(n, cost): (usize, Cost)| (n, Rates::of(times(n, node_ms).collect(), cost.flop, cost.bytes));
    let cost = |(n, rates): (usize, Rates)| {
        let node = &graph.nodes[n];
        NodeCost {
            name: node.name.clone(),
            op: node.op.name(),
            phase: node.phase,
            inputs: spelled(&node.inputs),
            outputs: spelled(&node.outputs),
            rates,
        }
    };
    in_order(of(graph).enumerate().map(rates)).map(cost).collect()
}

/// A node's time in each step.
fn times(node: usize, node_ms: &[Vec<f64>]) -> impl Iterator<Item = f64> + '_ {
    node_ms.iter().map(move |step| step.get(node).copied().unwrap_or_default())
}

/// With their shares of the time, in descending order of it.
fn in_order<T>(rates: impl Iterator<Item = (T, Rates)>) -> impl Iterator<Item = (T, Rates)> {
    let mut all: Vec<(T, Rates)> = rates.collect();
    let ms: f64 = all.iter().map(|(_, rates)| rates.ms).sum();
    all.iter_mut().for_each(|(_, rates)| rates.share = rates.ms / ms);
    all.sort_by(|(_, a), (_, b)| b.ms.total_cmp(&a.ms));
    all.into_iter()
}

impl OpCost {
    /// A table with a row per operator.
    pub(super) fn table(ops: &[Self]) -> Table {
        let own = ["operator", ">nodes"];
        let mut table = Table::new(own.into_iter().chain(Rates::COLUMNS));
        for op in ops {
            table.row([op.op.into(), op.count.into()].into_iter().chain(op.rates.cells()));
        }
        table
    }
}

impl NodeCost {
    /// A table with a row per node.
    pub(super) fn table(nodes: &[Self]) -> Table {
        let own = ["node", "operator"];
        let mut table = Table::new(own.into_iter().chain(Rates::COLUMNS).chain(["operands"]));
        for node in nodes {
            let own = [Cell::from(&node.name), node.op.into()];
            table.row(own.into_iter().chain(node.rates.cells()).chain([node.inputs.join(", ").into()]));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_first_and_shares_of_all() {
        let rates = |ms: [f64; 3]| Rates::of(ms.into(), Flop(4_000_000), Bytes(2_000_000));
        let slowest: Vec<_> =
            in_order([("a", rates([1.0, 9.0, 1.0])), ("b", rates([2.0, 3.0, 4.0]))].into_iter()).collect();
        let [(first, b), (last, a)] = &slowest[..] else { panic!("{slowest:?}") };
        assert_eq!((*first, *last), ("b", "a"));
        assert_eq!((b.ms, b.share, b.gflops), (3.0, 0.75, 4.0 / 3.0));
        assert_eq!((a.ms, a.share, a.gbps), (1.0, 0.25, 2.0));
        assert_eq!(Rates::of(vec![], Flop(1), Bytes(1)).gflops, 0.0, "no time");
    }
}
