//! Graph rewrites, one per file. Engine and device clock choose which to apply.
//!
//! A pass inspects the graph and returns labelled [`Patch`]es. [`Pipeline::run`] applies them and verifies the graph
//! before and after each pass. `--passes-until N` helps to find the pass that breaks a step.

mod average_over_ranks;
mod cast;
mod fold_pad;
mod fuse_bn_grad;
mod fuse_bn_relu;
mod fuse_conv_relu;
mod fuse_conv_statistics;
mod host_placement;
mod input_order;
mod l2_to_decay;
mod layout;
mod normalize_on_device;
mod patch;
mod patches_as_convolution;
mod recompute;
mod reduce_on_matrix;
mod scale_loss;
mod split_decay;
mod sync_batch_norm;

pub use average_over_ranks::{AverageOverRanks, Buckets};
pub use cast::{PlaceCasts, PrecisionMode, PrecisionPolicy, Why};
pub use fold_pad::FoldPad;
pub use fuse_bn_grad::FuseBnGrad;
pub use fuse_bn_relu::FuseBnRelu;
pub use fuse_conv_relu::FuseConvRelu;
pub use fuse_conv_statistics::FuseConvStatistics;
pub use host_placement::{HostPlacement, crossings};
pub use input_order::ChannelsLastInput;
pub use l2_to_decay::L2ToDecay;
pub use layout::BlockedLayout;
pub use normalize_on_device::NormalizeOnDevice;
pub use patch::{NewNode, Patch};
pub use patches_as_convolution::PatchesAsConvolution;
pub use recompute::{Recompute, RecomputeScores};
pub use reduce_on_matrix::ReduceOnMatrix;
pub use scale_loss::ScaleLoss;
pub use split_decay::SplitDecay;
pub use sync_batch_norm::SyncBatchNorm;

use crate::{
    error::GraphError,
    graph::{Graph, Node},
    verify::verify,
};

/// A rewrite of the graph that preserves its meaning.
pub trait Pass {
    /// Its name in `zoo show --passes`.
    fn name(&self) -> &'static str;

    /// The changes for `graph`. The patches change different nodes.
    ///
    /// # Errors
    /// A rewritten node that violates a shape rule.
    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError>;
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The pass.
    pub pass: &'static str,
    /// Labels of its patches.
    pub patches: Vec<String>,
}

/// Passes, in the order of application.
pub struct Pipeline(Vec<Box<dyn Pass + Send + Sync>>);

impl Pipeline {
    /// A pipeline of these passes, in this order.
    pub fn of(passes: Vec<Box<dyn Pass + Send + Sync>>) -> Self {
        Self(passes)
    }

    /// Passes for the engine's fast kernels.
    pub fn fast(fusion: bool) -> Self {
        let mut passes: Vec<Box<dyn Pass + Send + Sync>> = Vec::new();
        if fusion {
            passes.push(Box::new(FuseBnGrad));
            passes.push(Box::new(FuseBnRelu));
            passes.push(Box::new(FuseConvStatistics));
            passes.push(Box::new(FuseConvRelu));
        }
        passes.push(Box::new(BlockedLayout::default()));
        Self(passes)
    }

    /// Names of the passes in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.iter().map(|p| p.name())
    }

    /// Applies the first `until` passes (all by default).
    ///
    /// # Errors
    /// The graph is invalid before the first pass or after any pass.
    pub fn run(&self, graph: &mut Graph, until: Option<usize>) -> Result<Vec<Applied>, GraphError> {
        verify(graph, None)?;
        let mut done = Vec::new();
        for pass in self.0.iter().take(until.unwrap_or(usize::MAX)) {
            let patches = pass.patches(graph)?;
            let labels = patches.iter().map(|p| p.label.clone()).collect();
            patch::apply(graph, pass.name(), patches)?;
            verify(graph, Some(pass.name()))?;
            done.push(Applied { pass: pass.name(), patches: labels });
        }
        Ok(done)
    }
}

/// For each value, the nodes that read it, with an entry for each use as a result.
fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        for v in &node.inputs {
            readers[v.0].push(n);
        }
    }
    for v in graph.results() {
        readers[v.0].push(graph.nodes.len());
    }
    readers
}

/// The error for an operator that updates a parameter but has no settings of a group.
fn without_group(node: &Node) -> GraphError {
    let message = format!("`{}` ({}) optimizes and has no decay to set", node.name, node.op.name());
    GraphError::Invariant { after: None, message }
}
