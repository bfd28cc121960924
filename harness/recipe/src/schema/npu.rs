//! The simulated NPU: which device, and the options of its software stack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_settings::settings;

settings! {
    /// The simulated NPU.
    pub struct Npu {
        /// Device: the name of a file in recipes/devices.
        pub device: String = "ascend910".to_owned(),
        /// Number of devices that train together, each with its own batch.
        #[schemars(range(min = 1, max = 65536))]
        pub devices: usize = 1,
        /// Which number formats the operators compute in.
        pub precision: Precision = Precision::AllowMixPrecision,
        /// Operators (device names), layers or nodes that always compute in fp32, independent of the mode.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub keep_fp32: Vec<String> = Vec::new(),
        /// How half-precision results below the smallest normal number are handled; by default as in the device file.
        pub subnormals?: Subnormals,
        /// Factor on the loss that keeps small gradients representable in fp16.
        pub loss_scale: LossScale = LossScale::default(),
        /// Steps that the device runs before it reports to the host.
        #[schemars(range(min = 1, max = 1000000))]
        pub iterations_per_loop: u64 = 1,
        /// How operators are launched.
        pub mode: Mode = Mode::Graph,
        /// Whether XLA is used; an error on devices without XLA.
        pub xla: bool = false,
        /// Whether convolution, normalisation and activation are fused.
        pub fusion: bool = true,
        /// Whether the sums for the gradient of a normalisation are fused into the adjacent convolutions.
        pub deep_fusion: bool = false,
        /// Whether attention is one kernel that never writes its scores to memory, and recomputes them for the gradient
        /// (FlashAttention, arXiv 2205.14135); an error on devices without such a kernel.
        pub fused_attention: bool = false,
        /// Number of segments of the forward pass. Only their outputs are kept; the rest is recomputed in the backward
        /// pass (`torch.utils.checkpoint.checkpoint_sequential`). 1 keeps everything.
        #[schemars(range(min = 1, max = 100000))]
        pub recompute: usize = 1,
        /// Number of consecutive micro-batches into which a device splits its batch; their gradients are summed before
        /// the update. The batch of an update remains `train.batch`, which must be divisible by it.
        #[schemars(range(min = 1, max = 65536))]
        pub accumulate: usize = 1,
        /// Whether explicit padding is folded into the following convolution.
        pub fold_pad: bool = true,
        /// Whether an L2 term of the loss is computed as weight decay of the gradients.
        pub l2_as_decay: bool = false,
        /// Whether the gradients of biases are summed by the matrix units.
        pub reduce_on_matrix: bool = false,
        /// Whether instructions are reordered so that move-in, Cube, Vector and move-out of consecutive tiles overlap.
        pub instruction_reordering: bool = true,
        /// Whether operators have been tuned.
        pub tuned: bool = false,
        /// Which kernel generates the random mask of a dropout.
        pub dropout: DropoutKernel = DropoutKernel::Device,
        /// How gradients are summed over the devices.
        pub all_reduce: AllReduce = AllReduce::default(),
        /// The input pipeline.
        pub input: InputPipeline = InputPipeline::default(),
        /// Operators (device names) that run on the host even if the device has them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub host_operators: Vec<String> = Vec::new(),
        /// Whether operators that the device lacks run on the host; otherwise they are an error.
        pub host_fallback: bool = true,
        /// How the layout of feature maps is converted.
        pub trans_data: TransDataKernel = TransDataKernel::Blocks,
        /// How windows are extracted from a map (`patches` layers, the mask loss of SiamMask).
        pub extract_patches: PatchesForm = PatchesForm::Native,
    }
}

/// How results below the smallest normal number are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subnormals {
    /// They are kept.
    Keep,
    /// They become zero.
    Flush,
}

/// How operators are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The whole step is compiled and stored on the device.
    Graph,
    /// The host launches one operator after the other.
    Eager,
}

/// Which kernel generates the random mask of a dropout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropoutKernel {
    /// The operator of the device.
    Device,
    /// The framework: uniform random numbers, a comparison and a product, each as a separate operator.
    Framework,
}

/// Which kernel changes the layout of feature maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransDataKernel {
    /// Moves blocks of channels through the on-chip buffers.
    Blocks,
    /// Moves element by element (before specialised kernels existed).
    Elements,
}

/// How windows are extracted from a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchesForm {
    /// By the operator of the device.
    Native,
    /// By a convolution with the identity.
    Convolution,
    /// By a function on the host.
    Host,
}

settings! {
    /// How gradients are summed over the devices.
    pub struct AllReduce {
        /// Which gradients are transferred together.
        pub split: Split = Split::Word(SplitWord::Auto),
        /// Whether gradients are transferred during the backward pass (`hcom_parallel` in TensorFlow).
        pub overlap: bool = true,
    }
}

/// Which gradients are transferred together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Split {
    /// By a rule.
    Word(SplitWord),
    /// Indices of parameters, in declaration order, at which a new bucket starts: `[85, 160]`.
    At(#[schemars(inner(range(max = 4294967295u32)))] Vec<u32>),
}

/// A rule that splits the gradients into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitWord {
    /// The split with the shortest predicted time.
    Auto,
    /// All gradients in one bucket.
    One,
}

settings! {
    /// The input pipeline.
    pub struct InputPipeline {
        /// With `false`, the same batch is used in every step, without a pipeline.
        pub enabled: bool = true,
        /// Whether the next batch is copied to the device while the current one is computed.
        pub prefetch: bool = true,
        /// Where images are normalised.
        pub normalize: NormalizePlace = NormalizePlace::Host,
        /// Whether images have their channels last and are transposed on the device.
        pub channels_last: bool = false,
        /// Images per second of one process; by default as in the device file.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub images_per_s?: f64,
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
    /// Each operator by its list: white in fp16, black in fp32, grey like its producer.
    AllowMixPrecision,
    /// fp32 if the device supports it, otherwise fp16.
    AllowFp32ToFp16,
    /// fp16 everywhere.
    ForceFp16,
    /// As in the graph; operators that the device does not support in fp32 are an error.
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
    /// A constant factor.
    Fixed(FixedScale),
    /// Increases while nothing overflows; decreases and skips the step when something overflows (arXiv 1710.03740).
    Dynamic(DynamicScale),
}

settings! {
    /// A constant factor.
    pub struct FixedScale {
        /// The factor.
        #[schemars(range(min = 1))]
        pub scale: f64,
        /// Whether the update of a step that overflows is skipped (`drop_overflow_update` in MindSpore).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub skip_overflow: bool = false,
    }
}

settings! {
    /// A factor that adapts to overflows.
    pub struct DynamicScale {
        /// Initial factor.
        #[schemars(range(min = 1))]
        pub init: f64 = 65536.0,
        /// Multiplies the factor after `window` steps without overflow; divides it at an overflow.
        #[schemars(extend("exclusiveMinimum" = 1))]
        pub factor: f64 = 2.0,
        /// Steps without overflow before the factor grows.
        #[schemars(range(min = 1))]
        pub window: u64 = 2000,
    }
}
