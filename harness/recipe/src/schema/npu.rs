//! The simulated NPU: which device, and the options of its software stack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The simulated NPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Npu {
    /// Device: the name of a file in recipes/devices.
    pub device: String,
    /// How many devices train together, each with its own batch.
    #[schemars(range(min = 1, max = 65536))]
    pub devices: usize,
    /// Which number formats the operators compute in.
    pub precision: Precision,
    /// Operators (device names), layers or nodes that compute in fp32 whatever the mode says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_fp32: Vec<String>,
    /// What becomes of half-precision results below the smallest normal number; as the device's file says, unless
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnormals: Option<Subnormals>,
    /// Factor on the loss that keeps small gradients above fp16's smallest number.
    pub loss_scale: LossScale,
    /// Steps that the device runs before it reports to the host.
    #[schemars(range(min = 1, max = 1000000))]
    pub iterations_per_loop: u64,
    /// How operators get to the device.
    pub mode: Mode,
    /// Whether XLA is asked for; an error on devices that have none.
    pub xla: bool,
    /// Whether convolution, normalisation and activation become one operator.
    pub fusion: bool,
    /// Whether the sums of a normalisation's gradient ride on the convolutions around it.
    pub deep_fusion: bool,
    /// Whether an attention is one kernel that never writes its scores to memory, and computes them again for its
    /// gradient (FlashAttention, arXiv 2205.14135); an error on devices whose software has none.
    pub fused_attention: bool,
    /// Segments of the forward pass of which only the ends are kept; the rest is computed again in the backward pass
    /// (`torch.utils.checkpoint.checkpoint_sequential`). 1 keeps everything.
    #[schemars(range(min = 1, max = 100000))]
    pub recompute: usize,
    /// Micro-batches, one after the other, into which a device cuts its batch; their gradients are added up before the
    /// update. The batch of an update stays `train.batch`. Has to divide it.
    #[schemars(range(min = 1, max = 65536))]
    pub accumulate: usize,
    /// Whether explicit padding becomes padding of the convolution behind it.
    pub fold_pad: bool,
    /// Whether an L2 term of the loss becomes decay of the gradients.
    pub l2_as_decay: bool,
    /// Whether the gradients of biases are summed on the matrix engine.
    pub reduce_on_matrix: bool,
    /// Whether instructions are reordered so that move-in, Cube, Vector and move-out of neighbouring tiles overlap.
    pub instruction_reordering: bool,
    /// Whether operators have been through the tuning engine.
    pub tuned: bool,
    /// Which kernel makes the random mask of a dropout.
    pub dropout: DropoutKernel,
    /// How gradients are summed over the devices.
    pub all_reduce: AllReduce,
    /// How samples get to the device.
    pub input: InputPipeline,
    /// Operators (device names) that run on the host although the device may have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_operators: Vec<String>,
    /// Whether operators that the device lacks run on the host; else they are an error.
    pub host_fallback: bool,
    /// How feature maps change their layout.
    pub trans_data: TransDataKernel,
    /// How windows are cut out of a map (`patches` layers, the mask loss of SiamMask).
    pub extract_patches: PatchesForm,
}

impl Default for Npu {
    fn default() -> Self {
        Self {
            device: "ascend910".to_owned(),
            devices: 1,
            precision: Precision::AllowMixPrecision,
            keep_fp32: Vec::new(),
            subnormals: None,
            loss_scale: LossScale::default(),
            iterations_per_loop: 1,
            mode: Mode::Graph,
            xla: false,
            fusion: true,
            deep_fusion: false,
            fused_attention: false,
            recompute: 1,
            accumulate: 1,
            fold_pad: true,
            l2_as_decay: false,
            reduce_on_matrix: false,
            instruction_reordering: true,
            tuned: false,
            dropout: DropoutKernel::Device,
            all_reduce: AllReduce::default(),
            input: InputPipeline::default(),
            host_operators: Vec::new(),
            host_fallback: true,
            trans_data: TransDataKernel::Blocks,
            extract_patches: PatchesForm::Native,
        }
    }
}

/// What becomes of results below the smallest normal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subnormals {
    /// They stay.
    Keep,
    /// They become zero.
    Flush,
}

/// How operators get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The whole step is compiled and lies on the device.
    Graph,
    /// The host launches one operator after the other.
    Eager,
}

/// Which kernel makes the random mask of a dropout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropoutKernel {
    /// The device's own operator.
    Device,
    /// The framework's: uniform numbers, a comparison and a product, each an operator.
    Framework,
}

/// Which kernel changes the layout of feature maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransDataKernel {
    /// Moves blocks of channels through the on-chip buffers.
    Blocks,
    /// Moves element by element (the operators before their specialised kernels).
    Elements,
}

/// How windows are cut out of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchesForm {
    /// By the device's own operator.
    Native,
    /// By a convolution with the identity.
    Convolution,
    /// By a function on the host.
    Host,
}

/// How gradients are summed over the devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AllReduce {
    /// Which gradients travel together.
    pub split: Split,
    /// Whether gradients travel while the backward pass goes on (TensorFlow's `hcom_parallel`).
    pub overlap: bool,
}

impl Default for AllReduce {
    fn default() -> Self {
        Self { split: Split::Word(SplitWord::Auto), overlap: true }
    }
}

/// Which gradients travel together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Split {
    /// By a rule.
    Word(SplitWord),
    /// Indices of parameters, in the order of their declaration, at which a new bucket begins: `[85, 160]`.
    At(Vec<u32>),
}

/// A rule that splits the gradients into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitWord {
    /// The split that is found to end first.
    Auto,
    /// All gradients in one bucket.
    One,
}

/// How samples get to the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InputPipeline {
    /// `false`: the same batch over and over, without any pipeline.
    pub enabled: bool,
    /// Whether the next batch is copied to the device while the present one is computed.
    pub prefetch: bool,
    /// Where images are normalised.
    pub normalize: NormalizePlace,
    /// Whether images come with their channels last and are transposed on the device.
    pub channels_last: bool,
    /// Images per second of one process; absent: the device file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub images_per_s: Option<f64>,
}

impl Default for InputPipeline {
    fn default() -> Self {
        Self {
            enabled: true,
            prefetch: true,
            normalize: NormalizePlace::Host,
            channels_last: false,
            images_per_s: None,
        }
    }
}

/// Where images are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormalizePlace {
    /// In the input pipeline.
    Host,
    /// By the first operator of the step.
    Device,
}

/// Which number formats the operators of an NPU compute in (CANN's precision_mode, and Gaudi's bf16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Each operator by its list: white in fp16, black in fp32, grey as what feeds it.
    AllowMixPrecision,
    /// fp32 wherever the device has it, fp16 elsewhere.
    AllowFp32ToFp16,
    /// fp16 everywhere.
    ForceFp16,
    /// As the graph says; operators that the device lacks in fp32 are an error.
    MustKeepOriginDtype,
    /// fp32 everywhere.
    Fp32,
    /// bf16 where fp16 would be used.
    Bf16,
}

/// Factor on the loss that keeps small gradients representable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LossScale {
    /// No factor.
    #[default]
    None,
    /// One factor throughout.
    Fixed(FixedScale),
    /// Grows while nothing overflows, shrinks and skips the step when something does (arXiv 1710.03740).
    Dynamic(DynamicScale),
}

/// One factor throughout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedScale {
    /// The factor.
    #[schemars(range(min = 1))]
    pub scale: f64,
    /// Whether a step that overflows leaves out its update (MindSpore's `drop_overflow_update`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_overflow: bool,
}

/// A factor that follows the overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicScale {
    /// The factor at the beginning.
    #[schemars(range(min = 1))]
    pub init: f64,
    /// Multiplies the factor after `window` steps without overflow; divides it at an overflow.
    #[schemars(extend("exclusiveMinimum" = 1))]
    pub factor: f64,
    /// Steps without overflow before the factor grows.
    #[schemars(range(min = 1))]
    pub window: u64,
}

impl Default for DynamicScale {
    fn default() -> Self {
        Self { init: 65536.0, factor: 2.0, window: 2000 }
    }
}
