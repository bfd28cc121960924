//! Products whose shapes do not fill the tiles of the matrix units, which compute what is missing to the next tile,
//! too.

use super::{
    causes::{Cause, Reason},
    family::{Family, family},
    table::{Line, share},
};
use crate::{device::Device, profile::Profile};
use indexmap::{IndexMap, IndexSet};
use std::collections::HashMap;
use zoo_graph::{
    Graph, Node, Phase, TensorType,
    ops::{Conv2D, Product, Work},
};

/// An axis of a product: what lies along it, and its length, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Axis {
    what: &'static str,
    length: usize,
    /// Numbers along a tile.
    tile: usize,
}

impl Axis {
    /// The next length that fills its tiles.
    fn next(self) -> usize {
        self.length.next_multiple_of(self.tile)
    }

    /// The share of its tiles that it fills.
    fn filled(self) -> f64 {
        self.length as f64 / self.next() as f64
    }
}

/// Rows, columns and depth of a product. Empty for other operators, and for convolutions in groups and products of
/// experts, whose tiles depend on more than their lengths.
fn axes(graph: &Graph, node: &Node, device: &Device) -> Vec<Axis> {
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let Work::Product { product, .. } = node.op.rules().work(&inputs, &outputs) else { return Vec::new() };
    let [rows, columns, depth] = device.matrix.tile;
    let ([first, second, ..], [result, ..]) = (&inputs[..], &outputs[..]) else { return Vec::new() };
    match product {
        Product::Convolution(conv) => of_convolution(conv, device, second, result, [rows, columns, depth]),
        Product::ConvolutionInput(conv) => {
            // A window that overlaps itself is applied to the whole input grid.
            let map = if conv.window.taps() == 1 { first } else { result };
            of_convolution(conv, device, second, map, [rows, depth, columns])
        }
        Product::ConvolutionFilter(conv) => of_convolution(conv, device, result, second, [depth, rows, columns]),
        Product::Matrices(op) => {
            let lengths = op.joined(first, second).map(|products| [products.m, products.n, products.k]);
            let axes = lengths.into_iter().flatten().zip(["rows", "columns", "depth"]).zip(device.matrix.tile);
            axes.map(|((length, what), tile)| Axis { what, length, tile }).collect()
        }
        Product::Groups(_) | Product::GroupGradients(_) => Vec::new(),
    }
}

/// The axes of a convolution or one of its gradients, whose pixels are those of `map`, with the tiles of pixels, output
/// channels and input channels.
fn of_convolution(
    conv: &Conv2D,
    device: &Device,
    filters: &TensorType,
    map: &TensorType,
    tiles: [usize; 3],
) -> Vec<Axis> {
    let (1, Some([out, channels, ..]), Some([images, _, h, w])) = (conv.groups, filters.shape.nchw(), map.shape.nchw())
    else {
        return Vec::new();
    };
    let pixels = if device.matrix.pads_each_image { ("pixels of an image", h * w) } else { ("pixels", images * h * w) };
    let depth = if device.matrix.blocked_channels {
        ("input channels", channels)
    } else {
        ("input channels with their taps", channels * conv.window.taps())
    };
    let axes = [pixels, ("output channels", out), depth].into_iter().zip(tiles);
    axes.map(|((what, length), tile)| Axis { what, length, tile }).collect()
}

/// What products of a line lose.
#[derive(Default)]
struct Lost {
    ms: f64,
    operators: IndexSet<String>,
    /// The axes that cost it.
    axes: IndexMap<Axis, f64>,
}

/// Lines with products that do not fill their tiles. They lose the share of their measured time that the clock would
/// save if the matrix units only computed what is useful, until another unit is the slowest.
pub(super) fn off_tile(lines: &[Line], profile: &Profile, device: &Device, step: f64) -> Vec<Cause> {
    let measured: HashMap<(&str, Phase, Option<Family>), &Line> =
        lines.iter().map(|line| ((line.line.as_str(), line.phase, line.family), line)).collect();
    let mut lost: IndexMap<String, Lost> = IndexMap::new();
    for (k, (kernel, price)) in profile.kernels.iter().zip(&profile.prices).enumerate() {
        let nodes = || kernel.nodes.iter().map(|node| &profile.graph.nodes[*node]);
        let axes = nodes().map(|node| axes(&profile.graph, node, device)).find(|axes| !axes.is_empty());
        let (Some(axes), Some(line)) = (axes, profile.line_of(kernel)) else { continue };
        let family = nodes().next().and_then(|node| family(node.op.name()));
        let Some(measured) = measured.get(&(line.as_str(), kernel.phase, family)) else { continue };
        let filled: f64 = axes.iter().map(|axis| axis.filled()).product();
        let others = price.vector.max(price.hbm).max(price.l2).ms();
        let saved = (price.cube.ms() - others.max(filled * price.cube.ms())).max(0.0) * profile.runs(k) as f64;
        let ms = measured.measured_ms * share(saved, measured.predicted_ms);
        let Some(worst) = axes.into_iter().min_by(|a, b| a.filled().total_cmp(&b.filled())).filter(|_| ms > 0.0) else {
            continue;
        };
        let lost = lost.entry(measured.line.clone()).or_default();
        lost.ms += ms;
        *lost.axes.entry(worst).or_default() += ms;
        lost.operators.extend(measured.operators.iter().cloned());
    }
    lost.into_iter().filter_map(|(line, lost)| cause(line, &lost, step)).collect()
}

fn cause(line: String, lost: &Lost, step: f64) -> Option<Cause> {
    let (axis, _) = lost.axes.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let next = axis.next();
    let operators: Vec<&str> = lost.operators.iter().map(String::as_str).collect();
    let evidence = format!(
        "{}: {} of {next} {} in the tiles ({:.0} %); {next} is the next that fits",
        operators.join(", "),
        axis.length,
        axis.what,
        100.0 * axis.filled(),
    );
    Some(Cause { reason: Reason::OffTile, line: Some(line), ms: lost.ms, share: share(lost.ms, step), evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceLibrary;
    use zoo_graph::{
        DType, Scope,
        ops::{MatMul, Op, Window},
    };

    /// Rows, columns and depth, or pixels, output and input channels, with the next lengths that fit tiles of 16.
    fn lengths(op: impl Into<Op>, operands: [&[usize]; 2]) -> Vec<(&'static str, usize, usize)> {
        let mut graph = Graph::default();
        let scope = Scope { phase: Phase::Forward, origin: None };
        let operands =
            operands.map(|shape| graph.add_input(format!("{shape:?}"), TensorType::plain(shape, DType::F16)));
        graph.add(&scope, "product".to_owned(), op, &operands).unwrap();
        let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
        let device = DeviceLibrary::new([recipes]).load("ascend910").unwrap();
        axes(&graph, &graph.nodes[0], &device).into_iter().map(|axis| (axis.what, axis.length, axis.next())).collect()
    }

    #[test]
    fn lengths_and_the_next_that_fit() {
        let product = MatMul { transpose_a: false, transpose_b: true };
        let expected = [("rows", 4, 16), ("columns", 1000, 1008), ("depth", 512, 512)];
        assert_eq!(lengths(product, [&[4, 512], &[1000, 512]]), expected);
        // 7x7 pixels of each image.
        let window = Window { pad: [1; 4], ..Window::new([3; 2], [1; 2]) };
        let expected = [("pixels of an image", 49, 64), ("output channels", 100, 112), ("input channels", 64, 64)];
        assert_eq!(lengths(Conv2D::new(window, 1), [&[8, 64, 7, 7], &[100, 64, 3, 3]]), expected);
        assert_eq!(lengths(Conv2D::new(window, 2), [&[8, 64, 7, 7], &[100, 32, 3, 3]]), []);
    }
}
