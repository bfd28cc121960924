//! Keeps feature maps in NC1HWC0 between operators.
//!
//! What: convolutions read and write maps in NC1HWC0; element-wise operators, normalisations and pools have the
//! layout of their operands; everything else is row-major. `TransData` nodes are inserted where a value is read in
//! another layout than the one in which it is computed, at most once per value and layout. Filters, their gradients
//! and optimizer slots are always stored in FRACTAL_Z, so that nothing is packed in a step; they are converted when
//! they are read from outside. Why: these are the layouts of the matrix unit and of the fast kernels, and packing at
//! each operator would take as long as the convolution itself. When not: tensors without four axes, and images with
//! at most four channels, which would be padded to sixteen: the first convolution reads them in row-major order.
//! Filters that two convolutions share with different groups stay row-major.

use super::{NewNode, Pass, Patch};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Phase, Place, Source, ValueId},
    ops::{Op, OperandLayout, TransData},
    tensor::{Layout, TensorType},
};
use std::collections::{BTreeSet, HashMap};

/// Largest number of channels of a row-major image that a convolution reads directly.
pub const PLAIN_CHANNELS: usize = 4;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct BlockedLayout {
    /// Operators (device names) that the device only has in row-major form: their operands are converted, and also
    /// their results if a blocked one is needed.
    pub row_major: BTreeSet<String>,
}

impl Pass for BlockedLayout {
    fn name(&self) -> &'static str {
        "blocked_layout"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut placement = Placement::new(graph, &self.row_major);
        for n in 0..graph.nodes.len() {
            placement.place(n)?;
        }
        placement.finish();
        let conversions = placement.conversions.len();
        if conversions == 0 {
            return Ok(Vec::new());
        }
        let label = format!("{conversions} TransData");
        Ok(vec![Patch { label, ..placement.patch }])
    }
}

struct Placement<'g> {
    graph: &'g Graph,
    row_major: &'g BTreeSet<String>,
    /// Types decided so far, by value; includes those of conversions.
    types: Vec<TensorType>,
    conversions: HashMap<(ValueId, Layout), ValueId>,
    patch: Patch,
}

impl<'g> Placement<'g> {
    fn new(graph: &'g Graph, row_major: &'g BTreeSet<String>) -> Self {
        let types = graph.values.iter().map(|v| v.ty.clone()).collect();
        let mut placement = Self { graph, row_major, types, conversions: HashMap::new(), patch: Patch::default() };
        for (id, variable) in graph.parameters() {
            let Some(layout) = filter_layout(graph, variable.value) else { continue };
            let slots = graph.variables.iter().filter(|v| v.role.kept_beside() == Some(id));
            for value in std::iter::once(variable.value).chain(slots.map(|s| s.value)) {
                placement.retype(value, placement.types[value.0].with_layout(layout));
            }
        }
        placement
    }

    fn retype(&mut self, v: ValueId, ty: TensorType) {
        if self.types[v.0] != ty {
            self.types[v.0] = ty.clone();
            self.patch.retype.push((v, ty));
        }
    }

    /// Decides the layouts of the operands and results of node `n`.
    fn place(&mut self, n: usize) -> Result<(), GraphError> {
        let node = &self.graph.nodes[n];
        let wanted = self.wanted(node);
        let inputs: Vec<ValueId> =
            node.inputs.iter().zip(wanted).map(|(v, layout)| self.converted(*v, layout, n)).collect();
        let types: Vec<&TensorType> = inputs.iter().map(|v| &self.types[v.0]).collect();
        let outputs = node.op.infer(&types).map_err(|source| GraphError::Shape {
            name: node.name.clone(),
            origin: node.origin.clone(),
            source,
        })?;
        for (v, ty) in node.outputs.iter().zip(outputs) {
            self.retype(*v, ty);
        }
        if inputs != node.inputs {
            self.patch.remove.push(NodeId(n));
            self.patch.insert.push(NewNode { node: Node { inputs, ..node.clone() }, near: n });
        }
        Ok(())
    }

    /// The layout in which the node reads each operand.
    fn wanted(&self, node: &Node) -> Vec<Layout> {
        if self.row_major.contains(node.op.name()) {
            return vec![Layout::Plain; node.inputs.len()];
        }
        if let Op::Map(map) = &node.op {
            return map.layouts(&node.inputs.iter().map(|v| &self.types[v.0]).collect::<Vec<_>>());
        }
        let layouts = || node.inputs.iter().map(|v| self.types[v.0].layout);
        let common = layouts().find(|layout| *layout != Layout::Plain).unwrap_or(Layout::Plain);
        let wanted = |(i, v): (usize, &ValueId)| match node.op.rules().operand(i).layout {
            OperandLayout::Elements | OperandLayout::Map => self.map_layout(*v, common),
            OperandLayout::Plain => Layout::Plain,
            OperandLayout::Blocked => Layout::Nc1hwc0,
            OperandLayout::Image => self.image_layout(*v),
            OperandLayout::Filters { groups } => Layout::FractalZ { groups },
            OperandLayout::Any => self.types[v.0].layout,
        };
        node.inputs.iter().enumerate().map(wanted).collect()
    }

    /// `map` for a feature map, and row-major for everything else.
    fn map_layout(&self, v: ValueId, map: Layout) -> Layout {
        let ty = &self.types[v.0];
        if ty.shape.len() == 4 && ty.dtype.is_float() { map } else { Layout::Plain }
    }

    /// The layout in which a convolution reads its input.
    fn image_layout(&self, v: ValueId) -> Layout {
        let ty = &self.types[v.0];
        let image = ty.layout == Layout::Plain && ty.shape.get(1).is_some_and(|c| *c <= PLAIN_CHANNELS);
        if image { Layout::Plain } else { Layout::Nc1hwc0 }
    }

    /// The value in another layout; a conversion is inserted before the node at position `n` if there is none yet.
    fn converted(&mut self, v: ValueId, layout: Layout, n: usize) -> ValueId {
        if self.types[v.0].layout == layout {
            return v;
        }
        if let Some(known) = self.conversions.get(&(v, layout)) {
            return *known;
        }
        let ty = self.types[v.0].with_layout(layout);
        let to = ValueId(self.types.len());
        self.types.push(ty.clone());
        self.patch.values.push(ty);
        self.conversions.insert((v, layout), to);
        let (name, phase, origin) = match self.graph.value(v).source {
            Source::Node(made_by, _) => {
                let node = self.graph.node(made_by);
                (node.name.clone(), node.phase, node.origin.clone())
            }
            Source::Variable(id) => {
                let variable = self.graph.variable(id);
                (variable.name.clone(), Phase::Forward, variable.origin.clone())
            }
            Source::Input(i) => (self.graph.inputs[i].name.clone(), Phase::Forward, None),
        };
        let node = Node {
            name: format!("{name}/to_{layout}"),
            op: TransData { to: layout }.into(),
            inputs: vec![v],
            outputs: vec![to],
            phase,
            origin,
            place: Place::Device,
        };
        self.patch.insert.push(NewNode { node, near: n });
        to
    }

    /// Converts the network's outputs to row-major order, and the next values of variables to their initial layout.
    fn finish(&mut self) {
        let last = self.graph.nodes.len();
        let outputs = self.graph.outputs.iter().map(|o| (o.1, Layout::Plain));
        let next = self.graph.variables.iter().filter_map(|v| v.next.map(|n| (n, self.types[v.value.0].layout)));
        let results: Vec<(ValueId, Layout)> = outputs.chain(next).collect();
        for (v, layout) in results {
            let converted = self.converted(v, layout, last);
            if converted != v && !self.patch.redirect.contains(&(v, converted)) {
                self.patch.redirect.push((v, converted));
            }
        }
    }
}

/// FRACTAL_Z for a value that only convolutions with the same groups and element-wise operators read, possibly after
/// a cast.
fn filter_layout(graph: &Graph, value: ValueId) -> Option<Layout> {
    let mut found = None;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        for node in graph.nodes.iter().filter(|n| n.inputs.contains(&value)) {
            if let Op::Cast(_) = &node.op {
                open.extend(&node.outputs);
                continue;
            }
            let reads = node.inputs.iter().enumerate().filter(|(_, v)| **v == value);
            for (i, _) in reads {
                match node.op.rules().operand(i).layout {
                    OperandLayout::Filters { groups } if *found.get_or_insert(groups) == groups => {}
                    OperandLayout::Elements => {}
                    OperandLayout::Filters { .. }
                    | OperandLayout::Map
                    | OperandLayout::Plain
                    | OperandLayout::Blocked
                    | OperandLayout::Image
                    | OperandLayout::Any => return None,
                }
            }
        }
    }
    found.map(|groups| Layout::FractalZ { groups })
}
