//! What a word of a recipe is called in PyTorch, torchvision, MindSpore and Keras: for suggestions, and for the
//! reference, which shows the table.

use zoo_graph::did_you_mean;

/// Words of recipes, and their names elsewhere, without those that differ only in case, `_` and plural. Where a name
/// stands for several words, that one is suggested which is known at the place.
pub(crate) const ELSEWHERE: &[(&str, &[&str])] = &[
    // Layers.
    ("conv", &["Conv2d", "Convolution2D", "DepthwiseConv2D", "convolution"]),
    ("conv1d", &["Convolution1D"]),
    ("conv_transpose", &["ConvTranspose2d", "Conv2DTranspose", "deconv", "deconvolution"]),
    ("bn", &["BatchNorm2d", "BatchNorm1d", "BatchNorm", "BatchNormalization", "SyncBatchNorm"]),
    ("layer_norm", &["LayerNormalization"]),
    ("group_norm", &["GroupNormalization"]),
    ("instance_norm", &["InstanceNorm2d"]),
    ("rms_norm", &["RMSNormalization", "LlamaRMSNorm"]),
    ("lrn", &["LocalResponseNorm"]),
    ("linear", &["Dense", "fc", "fully_connected", "Gemm", "addmm"]),
    ("leaky_relu", &["LReLU"]),
    ("silu", &["swish"]),
    ("hard_swish", &["HSwish"]),
    ("hard_sigmoid", &["HSigmoid"]),
    ("max_pool", &["MaxPool2d", "MaxPooling2D"]),
    ("avg_pool", &["AvgPool2d", "AveragePooling2D", "average_pool"]),
    ("adaptive_avg_pool", &["AdaptiveAvgPool2d", "AdaptiveAvgPool1d"]),
    ("global_avg_pool", &["GlobalAveragePooling2D", "GlobalAvgPool2d", "GAP"]),
    ("dropout", &["Dropout2d", "SpatialDropout2D"]),
    ("drop_path", &["StochasticDepth"]),
    ("flatten", &["ravel"]),
    ("concat", &["cat", "Concatenate"]),
    ("add", &["TensorAdd"]),
    ("mul", &["Multiply"]),
    ("subtract", &["sub"]),
    ("matmul", &["BatchMatMul", "bmm"]),
    ("pad", &["ZeroPad2d", "ZeroPadding2D"]),
    ("reshape", &["view", "unflatten"]),
    ("permute", &["transpose"]),
    ("upsample", &["interpolate", "UpSampling2D", "ResizeBilinear", "ResizeNearestNeighbor"]),
    ("embedding", &["EmbeddingLookup"]),
    ("attention", &["MultiheadAttention", "self_attention", "mha"]),
    ("dot_product_attention", &["scaled_dot_product_attention", "sdpa", "FlashAttention"]),
    ("experts", &["moe", "MixtureOfExperts"]),
    ("gate", &["SqueezeExcitation", "se"]),
    ("sequential", &["SequentialCell", "ModuleList", "CellList"]),
    ("residual", &["skip", "shortcut", "BasicBlock", "Bottleneck"]),
    ("map", &["lambda"]),
    // Their keys.
    ("out", &["out_channels", "out_features", "filters", "units", "output_size"]),
    ("kernel", &["kernel_size", "pool_size", "ksize"]),
    ("stride", &["subsample"]),
    ("pad", &["padding"]),
    ("dilation", &["dilation_rate", "atrous"]),
    ("groups", &["group", "num_groups", "param_groups", "params"]),
    ("bias", &["use_bias", "has_bias"]),
    ("eps", &["epsilon"]),
    ("rate", &["p", "drop_prob"]),
    ("axis", &["dim"]),
    ("heads", &["num_heads", "nhead", "n_head", "num_attention_heads"]),
    ("kv_heads", &["num_key_value_heads", "num_query_groups"]),
    ("causal", &["is_causal", "use_causal_mask"]),
    ("slope", &["negative_slope"]),
    ("rows", &["num_embeddings", "vocab_size", "input_dim"]),
    ("size", &["embedding_dim", "output_dim"]),
    ("classes", &["num_classes", "n_classes"]),
    ("init", &["kernel_initializer", "weight_init"]),
    // Initial values.
    ("kaiming_normal", &["HeNormal", "kaiming"]),
    ("kaiming_uniform", &["HeUniform"]),
    ("xavier_normal", &["GlorotNormal", "XavierNormal2d"]),
    ("xavier_uniform", &["GlorotUniform", "xavier"]),
    ("truncated_normal", &["trunc_normal"]),
    // Losses.
    (
        "softmax_cross_entropy",
        &[
            "CrossEntropyLoss",
            "cross_entropy",
            "SoftmaxCrossEntropyWithLogits",
            "categorical_crossentropy",
            "sparse_categorical_crossentropy",
            "ce",
        ],
    ),
    ("bce", &["BCEWithLogitsLoss", "BCELoss", "binary_crossentropy", "SigmoidCrossEntropyWithLogits"]),
    ("mse", &["MSELoss", "mean_squared_error"]),
    ("mae", &["L1Loss", "mean_absolute_error", "l1"]),
    ("smooth_l1", &["SmoothL1Loss"]),
    ("nll", &["NLLLoss"]),
    ("triplet", &["TripletMarginLoss"]),
    ("sigmoid_focal", &["sigmoid_focal_loss", "FocalLoss", "focal", "BinaryFocalCrossentropy"]),
    ("dice", &["DiceLoss"]),
    ("giou", &["generalized_box_iou_loss", "GIoULoss"]),
    ("label_smoothing", &["smoothing", "smooth_factor"]),
    ("ignore", &["ignore_index", "ignore_class"]),
    // Optimizers and their keys.
    ("sgd", &["Momentum", "nesterov"]),
    ("adamw", &["AdamWeightDecay"]),
    ("beta1", &["betas"]),
    ("alpha", &["rho"]),
    ("weight_decay", &["wd", "decay"]),
    ("no_decay", &["skip_weight_decay", "no_weight_decay"]),
    ("clip", &["clip_grad_norm", "clip_grad", "clipnorm", "max_grad_norm", "global_clipnorm"]),
    // Schedules and their keys.
    ("cosine", &["CosineAnnealingLR", "CosineDecay", "CosineDecayLR"]),
    ("multi_step", &["MultiStepLR", "PiecewiseConstantDecay", "piecewise_constant"]),
    ("step", &["StepLR"]),
    ("exponential", &["ExponentialLR", "ExponentialDecay"]),
    ("poly", &["PolynomialLR", "PolynomialDecay", "LinearLR", "linear"]),
    ("one_cycle", &["OneCycleLR"]),
    ("constant", &["ConstantLR", "fixed"]),
    ("base_lr", &["lr", "learning_rate", "initial_learning_rate"]),
    ("min_lr", &["eta_min"]),
    ("every", &["step_size", "decay_steps"]),
    ("warmup", &["warmup_epochs", "warmup_steps"]),
    // Training and data.
    ("batch", &["batch_size", "bs"]),
    ("epochs", &["num_epochs", "max_epochs"]),
    ("max_steps", &["steps", "max_iters"]),
    ("ema", &["model_ema", "ExponentialMovingAverage"]),
    ("horizontal_flip", &["RandomHorizontalFlip", "random_flip", "flip", "hflip"]),
    ("resize_to", &["Resizing"]),
    ("random_erasing", &["cutout"]),
    ("color_jitter", &["RandomColorAdjust"]),
    ("top1", &["accuracy", "acc", "top_1_accuracy", "SparseCategoricalAccuracy"]),
    ("mean_iou", &["miou", "iou"]),
];

/// The candidate that was probably meant by `word`: the same but for case and `_`, the one that another framework calls
/// so, the same but for the plural, or the nearest one by edit distance.
pub(crate) fn meant<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let wanted = plain(word);
    let find = |fits: &dyn Fn(&str) -> bool| candidates.clone().into_iter().find(|candidate| fits(candidate));
    let called = |candidate: &str| {
        let of_it = ELSEWHERE.iter().filter(|(word, _)| *word == candidate);
        of_it.flat_map(|(_, names)| *names).any(|name| plain(name) == wanted)
    };
    find(&|candidate| plain(candidate) == wanted)
        .or_else(|| find(&called))
        .or_else(|| find(&|candidate| singular(&plain(candidate)) == singular(&wanted)))
        .or_else(|| did_you_mean(word, candidates.clone()))
}

/// A name without its package, in lower case and without separators.
fn plain(name: &str) -> String {
    let name = name.rsplit_once('.').map_or(name, |(_, last)| last);
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

fn singular(name: &str) -> &str {
    name.strip_suffix('s').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor_schema::json_schema;
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};

    /// The words that can stand at the same place: for each definition of the schema, its keys and choices.
    fn places() -> BTreeMap<String, BTreeSet<String>> {
        fn words(value: &Value, found: &mut BTreeSet<String>) {
            let Value::Object(map) = value else { return };
            found.extend(
                map.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()),
            );
            found.extend(map.get("const").and_then(Value::as_str).map(str::to_owned));
            let texts = map.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            found.extend(texts.map(str::to_owned));
            map.get("oneOf").and_then(Value::as_array).into_iter().flatten().for_each(|option| words(option, found));
        }
        let schema = json_schema();
        let mut places = BTreeMap::new();
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            words(definition, places.entry(name.clone()).or_default());
        }
        places
    }

    #[test]
    fn every_word_of_the_table_is_one_of_recipes() {
        let places = places();
        for &(word, names) in ELSEWHERE {
            assert!(places.values().any(|words| words.contains(word)), "{word}");
            assert!(!names.is_empty(), "{word}");
        }
    }

    #[test]
    fn a_name_means_one_word_at_each_place_and_none_that_is_there() {
        for (place, words) in places() {
            for name in ELSEWHERE.iter().flat_map(|(_, names)| *names).filter(|name| !words.contains(**name)) {
                let called = |(word, names): &&(&str, &[&str])| {
                    words.contains(*word) && names.iter().any(|other| plain(other) == plain(name))
                };
                let called: BTreeSet<&str> = ELSEWHERE.iter().filter(called).map(|(word, _)| *word).collect();
                assert!(called.len() <= 1, "{name} in {place}: {called:?}");
                let same = words.iter().find(|word| plain(word) == plain(name));
                assert!(same.is_none() || called.is_empty(), "{name} in {place} is {same:?} but for its case");
            }
        }
    }

    #[test]
    fn names_of_frameworks_are_understood() {
        let places = places();
        for (place, word, expected) in [
            ("Layer", "Conv2d", "conv"),
            ("Layer", "nn.Conv2d", "conv"),
            ("Layer", "ReLU", "relu"),
            ("Layer", "swish", "silu"),
            ("Layer", "batch_norm", "bn"),
            ("Layer", "BatchNormalization", "bn"),
            ("Layer", "Dense", "linear"),
            ("Layer", "MaxPooling2D", "max_pool"),
            ("Layer", "GlobalAveragePooling2D", "global_avg_pool"),
            ("Layer", "LayerNorm", "layer_norm"),
            ("Layer", "lineer", "linear"),
            ("Layer", "tokenz", "tokens"),
            ("Conv", "kernel_size", "kernel"),
            ("Conv", "padding", "pad"),
            ("Conv", "out_channels", "out"),
            ("Conv", "strides", "stride"),
            ("Optimizer", "AdamW", "adamw"),
            ("Optimizer", "Momentum", "sgd"),
            ("Optimizer", "RMSprop", "rmsprop"),
            ("Adam", "epsilon", "eps"),
            ("Loss", "cross_entropy", "softmax_cross_entropy"),
            ("Loss", "CrossEntropyLoss", "softmax_cross_entropy"),
            ("Loss", "MSELoss", "mse"),
            ("Step", "random_flip", "horizontal_flip"),
            ("Step", "RandomHorizontalFlip", "horizontal_flip"),
            ("Step", "RandomResizedCrop", "random_resized_crop"),
            ("Step", "Normalise", "normalize"),
            ("Train", "batch_size", "batch"),
            ("Train", "epoch", "epochs"),
            ("Schedule", "CosineAnnealingLR", "cosine"),
            ("Cosine", "learning_rate", "base_lr"),
            ("Metric", "accuracy", "top1"),
            ("Metric", "mAP", "map"),
        ] {
            let words = &places[place];
            assert_eq!(meant(word, words.iter().map(String::as_str)), Some(expected), "{word} in {place}");
        }
        assert_eq!(meant("LSTM", places["Layer"].iter().map(String::as_str)), None);
    }
}
