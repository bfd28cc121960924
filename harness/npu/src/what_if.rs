//! The effect of each option: the step is simulated again with one option changed.

use crate::{
    NpuError, Work,
    device::{Device, Half},
    profile::profile,
};
use serde::Serialize;
use zoo_graph::{Op, attention::attentions};
use zoo_recipe::{
    Recipe,
    schema::{
        DropoutKernel, FixedScale, LossScale, Mode, NormalizePlace, Npu, PatchesForm, Precision, Split, SplitWord,
        TransDataKernel,
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

/// A change of the recipe: its `--set` text, its description, and the change.
type Change = (String, &'static str, Box<dyn Fn(&mut Recipe)>);

/// Simulates the step with each option changed, one at a time. The largest gain comes first.
///
/// # Errors
/// The step without a change cannot be simulated.
pub fn what_if(recipe: &Recipe, device: &Device, work: Work) -> Result<Vec<WhatIf>, NpuError> {
    let base = profile(recipe, device, work)?;
    let mut found: Vec<WhatIf> = changes(recipe, device, work, &base.graph)
        .into_iter()
        .map(|(set, what, change)| {
            let mut changed = recipe.clone();
            change(&mut changed);
            match profile(&changed, device, work) {
                Ok(other) => WhatIf {
                    set,
                    what,
                    step_ms: Some(other.step.ms()),
                    gain: Some(other.images_per_s / base.images_per_s - 1.0),
                    refused: None,
                },
                Err(error) => WhatIf { set, what, step_ms: None, gain: None, refused: Some(error.to_string()) },
            }
        })
        .collect();
    let gain = |w: &WhatIf| w.gain.unwrap_or(f64::NEG_INFINITY);
    found.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.set.cmp(&b.set)));
    Ok(found)
}

const PATCHES_FORMS: [(PatchesForm, &str); 3] =
    [(PatchesForm::Native, "native"), (PatchesForm::Convolution, "convolution"), (PatchesForm::Host, "host")];

/// The options that can be changed.
fn changes(recipe: &Recipe, device: &Device, work: Work, graph: &zoo_graph::Graph) -> Vec<Change> {
    let npu = &recipe.npu;
    let train = work == Work::Train;
    let has = |wanted: fn(&Op) -> bool| graph.nodes.iter().any(|node| wanted(&node.op));
    let mut found: Vec<Change> = Vec::new();
    let mut flag = |wanted: bool, path: &str, what, is: bool, change: fn(&mut Npu, bool)| {
        if wanted {
            found.push((format!("npu.{path}={}", !is), what, Box::new(move |recipe| change(&mut recipe.npu, !is))));
        }
    };
    flag(true, "fusion", "convolution, normalisation and activation as one operator", npu.fusion, |n, v| n.fusion = v);
    flag(
        train && npu.fusion && has(|op| matches!(op, Op::BnTrainingUpdateGrad(_))),
        "deep_fusion",
        "sums for normalisation gradients computed in adjacent convolutions",
        npu.deep_fusion,
        |n, v| n.deep_fusion = v,
    );
    flag(
        device.operators.fused_attention.is_some() && !attentions(graph).is_empty(),
        "fused_attention",
        "attention without storing its scores",
        npu.fused_attention,
        |n, v| n.fused_attention = v,
    );
    flag(pads(recipe), "fold_pad", "explicit padding inside the convolution", npu.fold_pad, |n, v| n.fold_pad = v);
    flag(
        train && recipe.loss.l2.is_some(),
        "l2_as_decay",
        "L2 loss as decay of the gradients",
        npu.l2_as_decay,
        |n, v| n.l2_as_decay = v,
    );
    flag(
        train && has(|op| matches!(op, Op::BiasAddGrad(_))),
        "reduce_on_matrix",
        "bias gradients summed on the matrix engine",
        npu.reduce_on_matrix,
        |n, v| n.reduce_on_matrix = v,
    );
    flag(
        true,
        "instruction_reordering",
        "overlap of move-in, Cube, Vector and move-out of adjacent tiles",
        npu.instruction_reordering,
        |n, v| n.instruction_reordering = v,
    );
    flag(true, "tuned", "operators from the tuning engine", npu.tuned, |n, v| n.tuned = v);
    let several = train && npu.devices > 1;
    flag(several, "all_reduce.overlap", "gradients summed during the backward pass", npu.all_reduce.overlap, |n, v| {
        n.all_reduce.overlap = v;
    });
    flag(true, "input.prefetch", "next batch copied during the step", npu.input.prefetch, |n, v| n.input.prefetch = v);
    flag(true, "input.channels_last", "images transposed on the device", npu.input.channels_last, |n, v| {
        n.input.channels_last = v
    });
    flag(train, "input.enabled", "samples from the input pipeline", npu.input.enabled, |n, v| n.input.enabled = v);
    let mut set = |wanted: bool, text: String, what, change: Box<dyn Fn(&mut Recipe)>| {
        if wanted {
            found.push((format!("npu.{text}"), what, change));
        }
    };
    for (precision, name, what) in precisions(device) {
        let change = Box::new(move |recipe: &mut Recipe| recipe.npu.precision = precision);
        set(precision != npu.precision, format!("precision={name}"), what, change);
    }
    let (mode, name) = match npu.mode {
        Mode::Graph => (Mode::Eager, "eager"),
        Mode::Eager => (Mode::Graph, "graph"),
    };
    set(
        true,
        format!("mode={name}"),
        "operators launched by the device as a graph, or by the host one by one",
        Box::new(move |recipe| recipe.npu.mode = mode),
    );
    let steps = if npu.iterations_per_loop == 1 { 100 } else { 1 };
    set(
        true,
        format!("iterations_per_loop={steps}"),
        "steps that the device runs before it reports to the host",
        Box::new(move |recipe| recipe.npu.iterations_per_loop = steps),
    );
    let (scale, name) = match npu.loss_scale {
        LossScale::None => {
            (LossScale::Fixed(FixedScale { scale: 1024.0, skip_overflow: false }), "{fixed: {scale: 1024}}")
        }
        LossScale::Fixed(_) | LossScale::Dynamic(_) => (LossScale::None, "none"),
    };
    set(
        train,
        format!("loss_scale={name}"),
        "factor on the loss, by which every gradient is divided",
        Box::new(move |recipe| recipe.npu.loss_scale = scale.clone()),
    );
    let one = Split::Word(SplitWord::One);
    let (split, name) = if npu.all_reduce.split == one { (Split::Word(SplitWord::Auto), "auto") } else { (one, "one") };
    set(
        several,
        format!("all_reduce.split={name}"),
        "which gradients are sent together",
        Box::new(move |recipe| recipe.npu.all_reduce.split = split.clone()),
    );
    let (place, name) = match npu.input.normalize {
        NormalizePlace::Host => (NormalizePlace::Device, "device"),
        NormalizePlace::Device => (NormalizePlace::Host, "host"),
    };
    set(
        crate::compile::normalization(recipe, work).is_some(),
        format!("input.normalize={name}"),
        "where images are normalised",
        Box::new(move |recipe| recipe.npu.input.normalize = place),
    );
    let (dropout, name) = match npu.dropout {
        DropoutKernel::Device => (DropoutKernel::Framework, "framework"),
        DropoutKernel::Framework => (DropoutKernel::Device, "device"),
    };
    set(
        has(|op| matches!(op, Op::Dropout(_))),
        format!("dropout={name}"),
        "which kernel generates the masks of dropout",
        Box::new(move |recipe| recipe.npu.dropout = dropout),
    );
    let (kernel, name) = match npu.trans_data {
        TransDataKernel::Blocks => (TransDataKernel::Elements, "elements"),
        TransDataKernel::Elements => (TransDataKernel::Blocks, "blocks"),
    };
    set(
        has(|op| matches!(op, Op::TransData(_))),
        format!("trans_data={name}"),
        "how feature maps change their layout",
        Box::new(move |recipe| recipe.npu.trans_data = kernel),
    );
    let cuts = npu.extract_patches == PatchesForm::Convolution || has(|op| matches!(op, Op::ExtractPatches(_)));
    for (form, name) in PATCHES_FORMS.into_iter().filter(|(form, _)| cuts && *form != npu.extract_patches) {
        found.push((
            format!("npu.extract_patches={name}"),
            "how patches are extracted from a map",
            Box::new(move |recipe| recipe.npu.extract_patches = form),
        ));
    }
    if train && npu.recompute > 1 {
        let change = Box::new(|recipe: &mut Recipe| recipe.npu.recompute = 1);
        found.push(("npu.recompute=1".to_owned(), "no recomputation in the backward pass", change));
    }
    if train && npu.accumulate > 1 {
        let change = Box::new(|recipe: &mut Recipe| recipe.npu.accumulate = 1);
        found.push(("npu.accumulate=1".to_owned(), "the whole batch without micro-batches", change));
    }
    found.push((
        format!("train.batch={}", 2 * recipe.train.batch),
        "twice the images per step (gain per image)",
        Box::new(|recipe| recipe.train.batch *= 2),
    ));
    found
}

/// Whether the model has explicit padding.
pub(crate) fn pads(recipe: &Recipe) -> bool {
    let of_model = zoo_recipe::build(
        recipe,
        &match recipe.resolve() {
            Ok(model) => model,
            Err(_) => return false,
        },
        &zoo_recipe::BuildOptions::eval(1),
    );
    of_model.is_ok_and(|graph| graph.nodes.iter().any(|node| matches!(node.op, Op::Pad(_))))
}

/// The precision modes of a device.
fn precisions(device: &Device) -> Vec<(Precision, &'static str, &'static str)> {
    let mixed = (Precision::AllowMixPrecision, "allow_mix_precision", "white operators in half precision");
    match device.operators.half {
        Half::Bf16 => {
            vec![(Precision::Bf16, "bf16", "bf16 where it is allowed"), (Precision::Fp32, "fp32", "fp32 throughout")]
        }
        Half::Fp16 => vec![
            mixed,
            (Precision::AllowFp32ToFp16, "allow_fp32_to_fp16", "fp32 wherever the device has it"),
            (Precision::ForceFp16, "force_fp16", "fp16 throughout"),
            (Precision::MustKeepOriginDtype, "must_keep_origin_dtype", "the types of the graph: fp32"),
        ],
    }
}
