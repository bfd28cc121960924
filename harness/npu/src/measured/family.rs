//! What an operator does, by the names that the clock, Ascend's profiler and PyTorch give it.

use serde::Serialize;

/// Operators that do the same under different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Convolutions and their gradients.
    Convolution,
    /// Products of matrices.
    Product,
    /// Whole attentions.
    Attention,
    /// Normalisations.
    Normalisation,
    /// Functions of single elements, with their gradients.
    Activation,
    /// Pooling.
    Pool,
    /// Softmax and its logarithm.
    Softmax,
    /// Sums of tensors.
    Sum,
    /// Other arithmetic of elements.
    Elementwise,
    /// Sums, means and norms over axes.
    Reduction,
    /// Rows by their number.
    Gather,
    /// The same numbers in another order, shape or layout.
    Layout,
    /// The same numbers in another type.
    Cast,
    /// Dropout and its masks.
    Dropout,
    /// Losses.
    Loss,
    /// Optimizers.
    Update,
    /// Constants.
    Fill,
    /// Interpolation.
    Resize,
    /// Collectives.
    Collective,
}

use Family::*;

/// Stems of names, in lower case; with `*`, all that begin so. The longest that fits decides.
const STEMS: &[(Family, &[&str])] = &[
    (Convolution, &["conv*", "mkldnn_conv*", "cudnn_conv*", "depthwiseconv*", "depthwisecorrelation*", "slow_conv*"]),
    (
        Product,
        &["matmul*", "batchmatmul*", "addmm", "mm", "bmm", "baddbmm", "addbmm", "linear", "groupedmatmul*", "einsum"],
    ),
    (Attention, &["scaled_dot_product*", "scaleddotproduct*", "flashattention*", "_flash*", "_efficient*"]),
    (
        Normalisation,
        &[
            "bn*",
            "batch_norm*",
            "batchnorm*",
            "native_batch_norm*",
            "nativebatchnorm*",
            "cudnnbatchnorm*",
            "cudnn_batch_norm*",
            "layer_norm*",
            "layernorm*",
            "native_layer_norm*",
            "nativelayernorm*",
            "group_norm*",
            "groupnorm*",
            "native_group_norm*",
            "nativegroupnorm*",
            "instance_norm*",
            "instancenorm*",
            "rms_norm*",
            "rmsnorm*",
            "fusedrmsnorm*",
            "lrn*",
            "local_response_norm*",
            "addrmsnorm*",
            "addlayernorm*",
        ],
    ),
    (
        Activation,
        &[
            "relu*",
            "gelu*",
            "fastgelu*",
            "silu*",
            "swish*",
            "sigmoid*",
            "tanh*",
            "hard_swish*",
            "hardswish*",
            "hard_sigmoid*",
            "hardsigmoid*",
            "hardtanh*",
            "elu*",
            "leaky_relu*",
            "leakyrelu*",
            "mish*",
            "swiglu*",
            "geglu*",
            "threshold*",
            "prelu*",
            "softplus*",
        ],
    ),
    (
        Pool,
        &[
            "max_pool*",
            "maxpool*",
            "avg_pool*",
            "avgpool*",
            "adaptive_*_pool*",
            "adaptive_avg_pool*",
            "adaptiveavgpool*",
            "adaptive_max_pool*",
            "adaptivemaxpool*",
        ],
    ),
    (Softmax, &["softmax*", "log_softmax*", "logsoftmax*", "scaledmaskedsoftmax*", "maskedsoftmax*"]),
    (Sum, &["add", "addn*", "addv2", "accumulate*", "sub", "rsub", "axpy*", "addbackward"]),
    (
        Elementwise,
        &[
            "mul*",
            "div*",
            "realdiv*",
            "pow*",
            "exp*",
            "log",
            "sqrt*",
            "rsqrt*",
            "neg*",
            "abs*",
            "where*",
            "masked_fill*",
            "maskedfill*",
            "clamp*",
            "clip*",
            "maximum*",
            "minimum*",
            "formula",
            "less*",
            "greater*",
            "equal*",
            "eq",
            "ne",
            "gt",
            "ge",
            "lt",
            "le",
            "logical*",
            "square*",
            "reciprocal*",
            "sin",
            "cos",
            "rotarymul*",
            "bitwise*",
            "isfinite*",
            "biasadd",
        ],
    ),
    (
        Reduction,
        &[
            "sum*",
            "reduce*",
            "mean*",
            "norm*",
            "lpnorm*",
            "l2loss*",
            "biasaddgrad*",
            "argmax*",
            "max",
            "min",
            "cumsum*",
            "std*",
            "var*",
            "topk*",
            "clipbyglobalnorm*",
            "linalg_vector_norm*",
            "any",
            "all",
            "nonzero*",
            "sort*",
        ],
    ),
    (Gather, &["embedding*", "gather*", "index*", "unsortedsegment*", "scatter*", "one_hot*", "onehot*", "moe*"]),
    (
        Layout,
        &[
            "transpose*",
            "permute*",
            "transdata*",
            "reshape*",
            "view*",
            "unsafe_view*",
            "unsafeview*",
            "contiguous*",
            "clone*",
            "copy*",
            "as_strided*",
            "asstrided*",
            "slice*",
            "stridedslice*",
            "split*",
            "concat*",
            "cat*",
            "stack*",
            "pad*",
            "constant_pad*",
            "constantpad*",
            "im2col*",
            "extractimagepatches*",
            "expand*",
            "broadcastto*",
            "flatten*",
            "unflatten*",
            "unsqueeze*",
            "squeeze*",
            "select",
            "selectbackward",
            "narrow*",
            "unfold*",
            "unbind*",
            "t",
            "tensormove*",
            "identity*",
            "roll*",
            "tile*",
            "repeat*",
            "chunk*",
            "movedim*",
            "detach*",
            "alias*",
            "lift*",
            "resolve*",
        ],
    ),
    (Cast, &["cast*", "to", "to_copy", "tocopy*", "type_as*"]),
    (Dropout, &["dropout*", "native_dropout*", "nativedropout*", "bernoulli*", "dsa*", "statelessdropout*", "rand*"]),
    (
        Loss,
        &[
            "cross_entropy*",
            "softmaxcrossentropy*",
            "selectcrossentropy*",
            "nll_loss*",
            "nllloss*",
            "mse_loss*",
            "mseloss*",
            "smooth_l1*",
            "smoothl1*",
            "l1_loss*",
            "binary_cross_entropy*",
            "binarycrossentropy*",
            "soft_margin*",
            "softmargin*",
            "masksoftmargin*",
            "diceloss*",
            "weightedl1*",
            "maskedl1*",
            "lossformula*",
            "balancedbce*",
        ],
    ),
    (
        Update,
        &[
            "apply*",
            "adam*",
            "sgd*",
            "fused_adam*",
            "fusedadam*",
            "fused_sgd*",
            "lerp*",
            "addcdiv*",
            "addcmul*",
            "lamb*",
            "lars*",
            "bnrunningupdate",
            "assign*",
            "_fused_*",
        ],
    ),
    (
        Fill,
        &[
            "zero*",
            "fill*",
            "ones*",
            "memset*",
            "empty*",
            "arange*",
            "eye*",
            "range*",
            "tril*",
            "scalar_tensor*",
            "full*",
        ],
    ),
    (Resize, &["resizenearest*", "resizebilinear*", "upsample*", "interpolate*", "grid_sample*"]),
    (Collective, &["hcom*", "allreduce*", "nccl*", "allgather*", "reducescatter*", "c10d*", "gloo*", "bngather*"]),
];

/// The family of an operator; `None` if its name is not known.
pub(super) fn family(name: &str) -> Option<Family> {
    let stem = stem(name);
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => stem.starts_with(beginning),
        None => stem == pattern,
    };
    let all = STEMS.iter().flat_map(|(family, patterns)| patterns.iter().map(move |pattern| (*family, *pattern)));
    all.filter(|(_, pattern)| fits(pattern)).max_by_key(|(_, pattern)| pattern.len()).map(|(family, _)| family)
}

/// What is left of a name without what frameworks put around it: `aten::_foreach_add_` is `add`, `AddBackward0` too,
/// `aclnnMm_TransData_TransData` is `transdata`.
fn stem(name: &str) -> String {
    let last = if name.starts_with("aclnn") { name.rsplit('_').next().unwrap_or(name) } else { name };
    let bare = last.rsplit("::").next().unwrap_or(last).to_ascii_lowercase();
    let bare = bare.trim_start_matches("_foreach_").trim_matches('_');
    let bare = bare.trim_end_matches(|c: char| c.is_ascii_digit());
    bare.strip_suffix("backward").unwrap_or(bare).to_owned()
}

impl Family {
    /// Whether it only changes how numbers are stored.
    pub(super) fn converts(self) -> bool {
        match self {
            Layout | Cast | Fill => true,
            Convolution | Product | Attention | Normalisation | Activation | Pool | Softmax | Sum | Elementwise
            | Reduction | Gather | Dropout | Loss | Update | Resize | Collective => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::Op;

    #[test]
    fn all_operators_of_the_clock_have_a_family() {
        let unknown: Vec<&str> = Op::names().filter(|name| family(name).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn names_of_frameworks() {
        let cases = [
            ("aten::conv2d", Convolution),
            ("ConvolutionBackward0", Convolution),
            ("Conv2DBackpropFilter", Convolution),
            ("aten::linear", Product),
            ("AddmmBackward0", Product),
            ("aclnnMatmul_MatMulV3Common_MatMulV3", Product),
            ("aclnnMm_TransData_TransData", Layout),
            ("aclnnMm_CastAiCore_Cast", Cast),
            ("aten::_foreach_add_", Sum),
            ("aten::addcmul_", Update),
            ("AddBackward0", Sum),
            ("aten::add_", Sum),
            ("TBackward0", Layout),
            ("aten::to", Cast),
            ("aten::topk", Reduction),
            ("aten::contiguous", Layout),
            ("MaxPool2DWithIndicesBackward0", Pool),
            ("NativeBatchNormBackward0", Normalisation),
            ("ScaledDotProductFlashAttentionForCpuBackward0", Attention),
            ("ApplyAdamW", Update),
            ("hcom_allReduce_", Collective),
            ("DSAStatelessGenBitMask", Dropout),
            ("BiasAddGrad", Reduction),
        ];
        for (name, expected) in cases {
            assert_eq!(family(name), Some(expected), "{name}");
        }
        assert_eq!(family("torch::autograd::AccumulateGrad"), Some(Sum));
        assert_eq!(family("MyKernel"), None);
    }
}
