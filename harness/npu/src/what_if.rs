//! The effect of each option: the step is simulated again with one option changed.

use crate::{
    NpuError, Work,
    device::{Device, Half},
    profile::profile,
};
use serde::Serialize;
use zoo_graph::{Graph, Op, attention::attentions};
use zoo_recipe::{
    BuildOptions, Recipe, build,
    schema::{
        DropoutKernel, LossScale, Mode, NormalizePlace, PatchesForm, Precision, Split, SplitWord, TransDataKernel,
    },
};

/// A changed option.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The change, as for `--set`.
    pub set: String,
    /// Description of the option.
    pub what: &'static str,
    /// Step time with the change; absent if the device refuses it.
    pub step_ms: Option<f64>,
    /// Images per second with the change, divided by those without, minus one.
    pub gain: Option<f64>,
    /// The reason, if the device refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Simulates the step with each option changed, one at a time. The largest gain comes first.
///
/// # Errors
/// The step without a change cannot be simulated.
pub fn what_if(recipe: &Recipe, device: &Device, work: Work) -> Result<Vec<WhatIf>, NpuError> {
    let base = profile(recipe, device, work)?;
    let simulated = |set: &str| profile(&recipe.with(set)?, device, work);
    let mut found = Vec::new();
    for (set, what) in changes(recipe, device, work, &base.graph) {
        found.push(match simulated(&set) {
            Ok(other) => {
                let (step_ms, gain) = (Some(other.step.ms()), Some(other.images_per_s / base.images_per_s - 1.0));
                WhatIf { set, what, step_ms, gain, refused: None }
            }
            Err(error) => WhatIf { set, what, step_ms: None, gain: None, refused: Some(error.to_string()) },
        });
    }
    let gain = |w: &WhatIf| w.gain.unwrap_or(f64::NEG_INFINITY);
    found.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.set.cmp(&b.set)));
    Ok(found)
}

/// The options that can be changed: the texts of their `--set`, and descriptions.
fn changes(recipe: &Recipe, device: &Device, work: Work, graph: &Graph) -> Vec<(String, &'static str)> {
    let npu = &recipe.npu;
    let train = work == Work::Train;
    let several = train && npu.devices > 1;
    let has = |wanted: fn(&Op) -> bool| graph.nodes.iter().any(|node| wanted(&node.op));
    let sums = has(|op| matches!(op, Op::BnTrainingUpdateGrad(_)));
    let attends = device.operators.fused_attention.is_some() && !attentions(graph).is_empty();
    let cuts = npu.extract_patches == PatchesForm::Convolution || has(|op| matches!(op, Op::ExtractPatches(_)));
    let flag = |wanted, path, is: bool, what| (wanted, path, if is { "false" } else { "true" }, what);
    // The first word, or the second if the option has the first.
    let words = |wanted, path, is_first: bool, [first, second]: [&'static str; 2], what| {
        (wanted, path, if is_first { second } else { first }, what)
    };
    let one = npu.all_reduce.split == Split::Word(SplitWord::One);
    let on_host = npu.input.normalize == NormalizePlace::Host;
    let options = [
        flag(true, "fusion", npu.fusion, "convolution, normalisation and activation as one operator"),
        flag(
            train && npu.fusion && sums,
            "deep_fusion",
            npu.deep_fusion,
            "sums for normalisation gradients computed in adjacent convolutions",
        ),
        flag(attends, "fused_attention", npu.fused_attention, "attention without storing its scores"),
        flag(pads(recipe), "fold_pad", npu.fold_pad, "explicit padding inside the convolution"),
        flag(train && recipe.loss.l2.is_some(), "l2_as_decay", npu.l2_as_decay, "L2 loss as decay of the gradients"),
        flag(
            train && has(|op| matches!(op, Op::BiasAddGrad(_))),
            "reduce_on_matrix",
            npu.reduce_on_matrix,
            "bias gradients summed on the matrix engine",
        ),
        flag(
            true,
            "instruction_reordering",
            npu.instruction_reordering,
            "overlap of move-in, Cube, Vector and move-out of adjacent tiles",
        ),
        flag(true, "tuned", npu.tuned, "operators from the tuning engine"),
        flag(several, "all_reduce.overlap", npu.all_reduce.overlap, "gradients summed during the backward pass"),
        flag(true, "input.prefetch", npu.input.prefetch, "next batch copied during the step"),
        flag(true, "input.channels_last", npu.input.channels_last, "images transposed on the device"),
        flag(train, "input.enabled", npu.input.enabled, "samples from the input pipeline"),
        words(
            true,
            "mode",
            npu.mode == Mode::Eager,
            ["eager", "graph"],
            "operators launched by the device as a graph, or by the host one by one",
        ),
        words(
            true,
            "iterations_per_loop",
            npu.iterations_per_loop != 1,
            ["100", "1"],
            "steps that the device runs before it reports to the host",
        ),
        words(
            train,
            "loss_scale",
            npu.loss_scale != LossScale::None,
            ["{fixed: {scale: 1024}}", "none"],
            "factor on the loss, by which every gradient is divided",
        ),
        words(several, "all_reduce.split", one, ["one", "auto"], "which gradients are sent together"),
        words(
            crate::compile::normalization(recipe, work).is_some(),
            "input.normalize",
            on_host,
            ["host", "device"],
            "where images are normalised",
        ),
        words(
            has(|op| matches!(op, Op::Dropout(_))),
            "dropout",
            npu.dropout == DropoutKernel::Device,
            ["device", "framework"],
            "which kernel generates the masks of dropout",
        ),
        words(
            has(|op| matches!(op, Op::TransData(_))),
            "trans_data",
            npu.trans_data == TransDataKernel::Blocks,
            ["blocks", "elements"],
            "how feature maps change their layout",
        ),
        (train && npu.recompute > 1, "recompute", "1", "no recomputation in the backward pass"),
        (train && npu.accumulate > 1, "accumulate", "1", "the whole batch without micro-batches"),
    ];
    let forms = PATCHES_FORMS.map(|(form, name)| {
        (cuts && form != npu.extract_patches, "extract_patches", name, "how patches are extracted from a map")
    });
    let modes = precisions(device).iter().map(|(mode, name, what)| (*mode != npu.precision, "precision", *name, *what));
    let all = options.into_iter().chain(forms).chain(modes);
    let mut found: Vec<_> = all
        .filter(|(wanted, ..)| *wanted)
        .map(|(_, path, value, what)| (format!("npu.{path}={value}"), what))
        .collect();
    let twice = format!("train.batch={}", 2 * recipe.train.batch);
    found.push((twice, "twice the images per step (gain per image)"));
    found
}

const PATCHES_FORMS: [(PatchesForm, &str); 3] =
    [(PatchesForm::Native, "native"), (PatchesForm::Convolution, "convolution"), (PatchesForm::Host, "host")];

/// Whether the model has explicit padding.
pub(crate) fn pads(recipe: &Recipe) -> bool {
    let graph = recipe.resolve().ok().and_then(|model| build(recipe, &model, &BuildOptions::eval(1)).ok());
    graph.is_some_and(|graph| graph.nodes.iter().any(|node| matches!(node.op, Op::Pad(_))))
}

/// The precision modes of a device, with their words and descriptions.
fn precisions(device: &Device) -> &'static [(Precision, &'static str, &'static str)] {
    match device.operators.half {
        Half::Bf16 => {
            &[(Precision::Bf16, "bf16", "bf16 where it is allowed"), (Precision::Fp32, "fp32", "fp32 throughout")]
        }
        Half::Fp16 => &[
            (Precision::AllowMixPrecision, "allow_mix_precision", "white operators in half precision"),
            (Precision::AllowFp32ToFp16, "allow_fp32_to_fp16", "fp32 wherever the device has it"),
            (Precision::ForceFp16, "force_fp16", "fp16 throughout"),
            (Precision::MustKeepOriginDtype, "must_keep_origin_dtype", "the types of the graph: fp32"),
        ],
    }
}
