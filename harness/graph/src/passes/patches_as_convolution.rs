//! Extracts patches with a convolution.
//!
//! What: `ExtractImagePatches` becomes one `Conv2D` with the identity as its filter (output channel `i * kw + j` is
//! the pixel at `(i, j)` of the window) and a transpose; its gradient becomes the reverse transpose and
//! `Conv2DBackpropInput`. The channels of the map are first converted to separate images, so that one filter with
//! `kh * kw` channels suffices. Why: it runs on the matrix engine if the device lacks the operator, or if the
//! operator would run on the host. When not: the filter has `(kh * kw)^2` elements and almost all products are with
//! zero, so for large windows a copy is cheaper; and zero times infinity is NaN, so one overflow spreads to all
//! windows that contain it.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Scope, ValueId},
    ops::{Conv2D, Conv2DBackpropInput, ExtractPatches, Eye, Op, Reshape, Transpose},
    tensor::{DType, Layout},
};

/// See the module's documentation. Runs before [`super::BlockedLayout`].
pub struct PatchesAsConvolution;

impl Pass for PatchesAsConvolution {
    fn name(&self) -> &'static str {
        "patches_as_convolution"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let mut count = 0;
        for (n, node) in graph.nodes.iter().enumerate() {
            let (patches, map, is_forward) = if let Op::ExtractPatches(op) = &node.op {
                (op, graph.ty(node.inputs[0]), true)
            } else if let Op::ExtractPatchesGrad(op) = &node.op {
                (&op.patches, graph.ty(node.outputs[0]), false)
            } else {
                continue;
            };
            let (Layout::Plain, Some(shape)) = (map.layout, map.shape.nchw()) else { continue };
            let mut rewrite = Rewrite::new(&mut draft, n, node, patches, shape)?;
            let filter = rewrite.filter(map.dtype)?;
            if is_forward {
                rewrite.forward(filter)?
            } else {
                rewrite.gradient(filter)?
            }
            count += 1;
        }
        Ok(draft.finish(format!("{count} extractions")))
    }
}

/// The axes of `[images, channels, positions in the window, places]` and of `[images, places, channels, positions]`.
const TO_PATCHES: [usize; 4] = [0, 3, 1, 2];

/// The rewrite of one node.
struct Rewrite<'a, 'g> {
    draft: &'a mut Draft<'g>,
    place: usize,
    node: &'g Node,
    scope: Scope,
    conv: Conv2D,
    /// Images, channels, height and width of the map.
    map: [usize; 4],
    /// Height and width of the window.
    kernel: [usize; 2],
    /// Rows and columns of window positions.
    places: [usize; 2],
}

impl<'a, 'g> Rewrite<'a, 'g> {
    fn new(
        draft: &'a mut Draft<'g>,
        place: usize,
        node: &'g Node,
        patches: &ExtractPatches,
        map: [usize; 4],
    ) -> Result<Self, GraphError> {
        let kernel = patches.window.kernel;
        let scope = Scope { phase: node.phase, origin: node.origin.clone() };
        let bad = |source| GraphError::Shape { name: node.name.clone(), origin: node.origin.clone(), source };
        let places = patches.window.output(map[2], map[3]).map_err(bad)?;
        let conv = Conv2D::new(patches.window, 1);
        Ok(Self { draft, place, node, scope, conv, map, kernel, places })
    }

    fn add(&mut self, suffix: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        self.draft.add(self.place, &self.scope, format!("{}/{suffix}", self.node.name), op, inputs)
    }

    /// The identity as `[kh * kw, 1, kh, kw]`.
    fn filter(&mut self, dtype: DType) -> Result<ValueId, GraphError> {
        let [kh, kw] = self.kernel;
        let eye = self.add("eye", Eye { size: kh * kw, dtype }, &[])?;
        self.add("filter", Reshape { shape: [kh * kw, 1, kh, kw].into() }, &[eye])
    }

    fn forward(&mut self, filter: ValueId) -> Result<(), GraphError> {
        let ([n, c, h, w], [kh, kw], [oh, ow]) = (self.map, self.kernel, self.places);
        let maps = self.add("maps", Reshape { shape: [n * c, 1, h, w].into() }, &[self.node.inputs[0]])?;
        let conv = self.conv.clone();
        let columns = self.add("columns", conv, &[maps, filter])?;
        let columns = self.add("by_channel", Reshape { shape: [n, c, kh * kw, oh * ow].into() }, &[columns])?;
        let rows = self.add("rows", Transpose { permutation: TO_PATCHES.to_vec() }, &[columns])?;
        let op = Reshape { shape: [n * oh * ow, c, kh, kw].into() };
        self.draft.replace(self.place, Node { op: op.into(), inputs: vec![rows], ..self.node.clone() });
        Ok(())
    }

    fn gradient(&mut self, filter: ValueId) -> Result<(), GraphError> {
        let ([n, c, h, w], [kh, kw], [oh, ow]) = (self.map, self.kernel, self.places);
        let back = Transpose { permutation: TO_PATCHES.to_vec() }.inverse();
        let rows = self.add("rows", Reshape { shape: [n, oh * ow, c, kh * kw].into() }, &[self.node.inputs[0]])?;
        let columns = self.add("columns", back, &[rows])?;
        let columns = self.add("by_place", Reshape { shape: [n * c, kh * kw, oh, ow].into() }, &[columns])?;
        let op = Conv2DBackpropInput { conv: self.conv.clone(), input: [n * c, 1, h, w].into() };
        let maps = self.add("maps", op, &[columns, filter])?;
        let op = Reshape { shape: [n, c, h, w].into() };
        self.draft.replace(self.place, Node { op: op.into(), inputs: vec![maps], ..self.node.clone() });
        Ok(())
    }
}
