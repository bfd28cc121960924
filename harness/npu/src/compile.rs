//! Builds the graph that the device runs. The options of the recipe and the device file determine the passes.

use crate::{
    NpuError,
    device::{Device, Half},
    price::flop,
};
use std::collections::BTreeSet;
use zoo_graph::{
    DType, Graph, Place,
    ops::{ExtractPatches, ExtractPatchesGrad},
    passes::{
        Applied, BlockedLayout, ChannelsLastInput, FoldPad, FuseBnRelu, FuseConvRelu, FuseConvStatistics,
        HostPlacement, L2ToDecay, NormalizeOnDevice, Pass, PatchesAsConvolution, Pipeline, PlaceCasts, PrecisionMode,
        PrecisionPolicy, Recompute, RecomputeScores, ReduceOnMatrix, ScaleLoss, SplitDecay,
    },
};
use zoo_recipe::{BuildOptions, build};
use zoo_recipe::{
    Recipe,
    schema::{Levels, LossScale, Normalize, NormalizePlace, Npu, PatchesForm, Precision, Step},
};

/// What the device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A training step.
    Train,
    /// The network alone, with stored statistics.
    Eval,
}

/// A graph, compiled for a device.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The graph.
    pub graph: Graph,
    /// What each pass changed.
    pub applied: Vec<Applied>,
    /// Floating-point operations of its products, without recomputed ones.
    pub flop: u64,
}

/// Builds the graph of a recipe and applies the device's passes.
///
/// # Errors
/// Options that the device does not have, or a recipe from which no graph can be built.
pub fn compile(recipe: &Recipe, device: &Device, work: Work, batch: usize) -> Result<Compiled, NpuError> {
    let npu = &recipe.npu;
    let name = || device.name.clone();
    if npu.xla && !device.control.xla {
        return Err(NpuError::NoXla { device: name() });
    }
    if npu.fused_attention && device.operators.fused_attention.is_none() {
        return Err(NpuError::NoFusedAttention { device: name() });
    }
    if npu.precision == Precision::Bf16 && !device.operators.computes_bf16() {
        return Err(NpuError::NoBf16 { device: name() });
    }
    if work == Work::Train && device.inference_only {
        return Err(NpuError::InferenceOnly { device: name() });
    }
    let options = match work {
        Work::Train => BuildOptions::train(batch),
        Work::Eval => BuildOptions::eval(batch),
    };
    let mut graph = build(recipe, &recipe.resolve()?, &options)?;
    let mut applied = pipeline(recipe, device, work).run(&mut graph, None)?;
    refuse_missing(&graph, device, npu)?;
    let flop = graph.nodes.iter().filter(|node| node.place == Place::Device).map(|node| flop(&graph, node)).sum();
    // Recomputation comes last, so that recomputed operators are fused and placed like the original ones.
    applied.extend(recomputation(npu, work).run(&mut graph, None)?);
    Ok(Compiled { graph, applied, flop })
}

/// Operators that the device lacks are an error, unless a pass has rewritten them or they may run on the host.
fn refuse_missing(graph: &Graph, device: &Device, npu: &Npu) -> Result<(), NpuError> {
    let mut missing: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
    missing.retain(|name| device.operators.missing.iter().any(|missing| missing == name));
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() || npu.host_fallback {
        return Ok(());
    }
    Err(NpuError::MissingOperators { device: device.name.clone(), operators: missing.join(", ") })
}

/// The passes for recomputation.
fn recomputation(npu: &Npu, work: Work) -> Pipeline {
    let mut passes: Vec<Box<dyn Pass + Send + Sync>> = Vec::new();
    if work == Work::Train && npu.fused_attention {
        passes.push(Box::new(RecomputeScores));
    }
    if work == Work::Train && npu.recompute > 1 {
        passes.push(Box::new(Recompute { segments: npu.recompute }));
    }
    Pipeline::of(passes)
}

/// The passes, in order.
fn pipeline(recipe: &Recipe, device: &Device, work: Work) -> Pipeline {
    let npu = &recipe.npu;
    let mut passes: Vec<Box<dyn Pass + Send + Sync>> = Vec::new();
    let mut add = |wanted: bool, pass: Box<dyn Pass + Send + Sync>| {
        if wanted {
            passes.push(pass);
        }
    };
    add(npu.fold_pad, Box::new(FoldPad));
    add(npu.l2_as_decay, Box::new(L2ToDecay));
    add(npu.extract_patches == PatchesForm::Convolution, Box::new(PatchesAsConvolution));
    if let (NormalizePlace::Device, Some(normalize)) = (npu.input.normalize, normalization(recipe, work)) {
        let levels = if normalize.scale == Levels::Byte { 1.0 } else { 255.0 };
        let [mean, std] = [normalize.mean, normalize.std].map(|values| values.map(|v| v * levels));
        add(true, Box::new(NormalizeOnDevice { mean, std }));
    }
    add(npu.input.channels_last, Box::new(ChannelsLastInput));
    add(true, Box::new(PlaceCasts(policy(device, npu.precision, &npu.keep_fp32))));
    if work == Work::Train {
        add(npu.loss_scale != LossScale::None, Box::new(ScaleLoss { clips_scaled: recipe.gradients.clip_scaled }));
        add(!device.control.decay_in_optimizer, Box::new(SplitDecay));
    }
    add(npu.reduce_on_matrix, Box::new(ReduceOnMatrix));
    add(npu.fusion, Box::new(FuseBnRelu));
    add(npu.fusion && device.matrix.feeds_vector, Box::new(FuseConvStatistics));
    add(npu.fusion && device.matrix.feeds_vector, Box::new(FuseConvRelu));
    let row_major = device.operators.row_major.iter().cloned().collect();
    add(device.matrix.blocked_channels, Box::new(BlockedLayout { row_major }));
    let mut on_host: BTreeSet<String> = device.operators.missing.iter().chain(&npu.host_operators).cloned().collect();
    if npu.extract_patches == PatchesForm::Host {
        let names = [ExtractPatches::NAMES, ExtractPatchesGrad::NAMES];
        on_host.extend(names.concat().into_iter().map(str::to_owned));
    }
    add(!on_host.is_empty(), Box::new(HostPlacement { operators: on_host }));
    Pipeline::of(passes)
}

/// The steps that prepare a sample.
pub(crate) fn preprocessing(recipe: &Recipe, work: Work) -> &[Step] {
    match work {
        Work::Train => &recipe.preprocess.train,
        Work::Eval => &recipe.preprocess.eval,
    }
}

/// The recipe's normalisation of images, if there is one.
pub(crate) fn normalization(recipe: &Recipe, work: Work) -> Option<&Normalize> {
    preprocessing(recipe, work)
        .iter()
        .find_map(|step| if let Step::Normalize(normalize) = step { Some(normalize) } else { None })
}

/// The precision policy of a device in a mode. `keep` names operators, layers or nodes that stay f32.
pub fn policy(device: &Device, precision: Precision, keep: &[String]) -> PrecisionPolicy {
    let half = match device.operators.half {
        Half::Fp16 => DType::F16,
        Half::Bf16 => DType::Bf16,
    };
    let (mode, reduced) = match precision {
        Precision::AllowMixPrecision => (PrecisionMode::Mixed, half),
        Precision::AllowFp32ToFp16 => (PrecisionMode::PreferF32, half),
        Precision::ForceFp16 => (PrecisionMode::Reduced, half),
        Precision::MustKeepOriginDtype | Precision::Fp32 => (PrecisionMode::KeepF32, half),
        Precision::Bf16 => (PrecisionMode::Mixed, DType::Bf16),
    };
    let set = |names: &[String]| names.iter().cloned().collect();
    let operators = &device.operators;
    PrecisionPolicy {
        mode,
        reduced,
        white: set(&operators.white),
        black: set(&operators.black),
        reduced_only: set(&operators.half_only),
        keep: set(keep),
    }
}
