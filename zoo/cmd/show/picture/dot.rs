//! Writes an outline in the language of Graphviz (<https://graphviz.org/doc/info/lang.html>).

use super::layout::fill;
use super::outline::{Outline, Part, Unit};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The file.
pub(super) fn write(outline: &Outline, name: &str) -> String {
    let mut dot = Dot { out: String::new(), edges: Vec::new(), taps: BTreeMap::new(), nodes: 0, frames: 0 };
    let _ = writeln!(dot.out, "digraph {} {{", quoted(name));
    dot.out.push_str("  node [shape=box, style=\"rounded,filled\", fontname=Helvetica, fontsize=11];\n");
    dot.out.push_str("  edge [fontname=Helvetica, fontsize=9, color=\"#555555\"];\n");
    dot.row(&outline.body, None, 1);
    let Dot { mut out, edges, .. } = dot;
    edges.into_iter().for_each(|edge| out.push_str(&edge));
    out.push_str("}\n");
    out
}

/// A node and the shape of its output.
type From = (usize, String);

struct Dot {
    out: String,
    edges: Vec<String>,
    /// The source of each named value.
    taps: BTreeMap<String, From>,
    nodes: usize,
    frames: usize,
}

impl Dot {
    /// Writes consecutive parts after `incoming`; returns the output of the last one.
    fn row(&mut self, parts: &[Part], incoming: Option<From>, depth: usize) -> Option<From> {
        parts.iter().fold(incoming, |incoming, part| self.part(part, incoming, depth))
    }

    fn part(&mut self, part: &Part, incoming: Option<From>, depth: usize) -> Option<From> {
        match part {
            Part::Input { name, shape } => Some((self.node(name, "#fff7cc", depth), shape.clone())),
            Part::Output { name, shape } => {
                let node = self.node(name, "#fff7cc", depth);
                self.edge(incoming.as_ref(), node);
                Some((node, shape.clone()))
            }
            Part::Box(unit) => {
                let node = self.unit(unit, depth);
                self.edge(incoming.as_ref(), node);
                Some((node, unit.shape.clone()))
            }
            Part::Frame { title, body } => {
                let indent = "  ".repeat(depth);
                self.frames += 1;
                let frame = self.frames;
                let _ = writeln!(self.out, "{indent}subgraph cluster_{frame} {{\n{indent}  label={};", quoted(title));
                let _ = writeln!(self.out, "{indent}  fontname=Helvetica; fontsize=11; color=\"#b8c0c8\";");
                let outgoing = self.row(body, incoming, depth + 1);
                let _ = writeln!(self.out, "{indent}}}");
                outgoing
            }
            Part::Branches { lanes, join } => {
                let ends: Vec<Option<From>> =
                    lanes.iter().map(|lane| self.row(lane, incoming.clone(), depth)).collect();
                let node = self.unit(join, depth);
                ends.iter().for_each(|end| self.edge(end.as_ref(), node));
                Some((node, join.shape.clone()))
            }
            Part::Tap { name, output, .. } => {
                let from = incoming?;
                self.taps.insert(name.clone(), from.clone());
                if let Some(output) = output {
                    let node = self.node(output, "#fff7cc", depth);
                    self.edge(Some(&from), node);
                }
                Some(from)
            }
            Part::From(name) => self.taps.get(name).cloned(),
        }
    }

    fn unit(&mut self, unit: &Unit, depth: usize) -> usize {
        let label: Vec<&str> = unit.text().collect();
        let node = self.node(&label.join("\n"), fill(unit.work), depth);
        for name in &unit.reads {
            let from = self.taps.get(name).cloned();
            self.edge(from.as_ref(), node);
        }
        node
    }

    fn node(&mut self, label: &str, colour: &str, depth: usize) -> usize {
        self.nodes += 1;
        let indent = "  ".repeat(depth);
        let _ = writeln!(self.out, "{indent}n{} [label={}, fillcolor=\"{colour}\"];", self.nodes, quoted(label));
        self.nodes
    }

    fn edge(&mut self, from: Option<&From>, to: usize) {
        if let Some((from, shape)) = from {
            self.edges.push(format!("  n{from} -> n{to} [label={}];\n", quoted(shape)));
        }
    }
}

/// A quoted string of the language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
