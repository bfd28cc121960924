//! The table of supported torch functions and their readers.

use indexmap::IndexMap;
use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;

use crate::Refusal;
use crate::arguments::At;
use crate::operation::{Tensor, Unit, What};
use crate::reader::Reader;
use crate::trace::{Argument, FunctionCall, Made};
use crate::word::Word;

/// Adds the operations of a call.
type Reading = fn(&mut Reader<'_>, &mut At<'_>) -> Result<(), Refusal>;

/// Supported functions, with synonyms grouped.
const FUNCTIONS: &[(&[&str], Reading)] = &[
    (&["conv2d"], |network, at| network.conv(at)),
    (&["conv_transpose2d"], |network, at| network.conv_transpose(at)),
    (&["linear"], |network, at| network.linear(at)),
    (&["addmm"], |network, at| network.addmm(at)),
    (&["addcmul"], |network, at| network.affine(at)),
    (&["conv1d"], |network, at| network.conv1d(at)),
    (&["_weight_norm"], |network, at| network.weight_norm(at)),
    (&["prelu"], |network, at| network.prelu(at)),
    (&["embedding"], |network, at| network.embedding(at)),
    (&["batch_norm"], |network, at| network.batch_norm(at)),
    (&["layer_norm"], |network, at| network.layer_norm(at)),
    (&["group_norm"], |network, at| network.group_norm(at)),
    (&["rms_norm"], |network, at| network.rms_norm(at)),
    (&["instance_norm"], |network, at| network.instance_norm(at)),
    (&["local_response_norm"], |network, at| network.lrn(at)),
    (&["relu"], |network, at| network.unary(at, Layer::Relu(zoo::Relu {}))),
    (&["relu6"], |network, at| network.unary(at, Layer::Relu6(zoo::Relu6 {}))),
    (&["sigmoid"], |network, at| network.unary(at, Layer::Sigmoid(zoo::Sigmoid {}))),
    (&["silu"], |network, at| network.unary(at, Layer::Silu(zoo::Silu {}))),
    (&["hardswish"], |network, at| network.unary(at, Layer::HardSwish(zoo::HardSwish {}))),
    (&["hardsigmoid"], |network, at| network.unary(at, Layer::HardSigmoid(zoo::HardSigmoid {}))),
    (&["mish"], |network, at| network.unary(at, Layer::Mish(zoo::Mish {}))),
    (&["tanh"], |network, at| network.tangent(at)),
    (&["neg", "__neg__"], |network, at| network.negated(at)),
    (&["exp"], |network, at| network.exponential(at)),
    (&["normalize"], |network, at| network.of_length_one(at)),
    (&["__setitem__"], |network, at| network.overwritten(at)),
    (&["expm1"], |network, at| network.formula(at, "expm1(x)")),
    (&["log"], |network, at| network.formula(at, "log(x)")),
    (&["sqrt"], |network, at| network.formula(at, "sqrt(x)")),
    (&["rsqrt"], |network, at| network.formula(at, "rsqrt(x)")),
    (&["abs"], |network, at| network.formula(at, "abs(x)")),
    (&["erf"], |network, at| network.formula(at, "erf(x)")),
    (&["sin"], |network, at| network.formula(at, "sin(x)")),
    (&["cos"], |network, at| network.formula(at, "cos(x)")),
    (&["floor"], |network, at| network.formula(at, "floor(x)")),
    (&["selu"], |network, at| network.formula(at, SELU)),
    (&["celu"], |network, at| network.celu(at)),
    (&["logsigmoid"], |network, at| network.formula(at, "-softplus(-x)")),
    (&["softsign"], |network, at| network.formula(at, "x / (1 + abs(x))")),
    (&["tanhshrink"], |network, at| network.formula(at, "x - tanh(x)")),
    (&["glu"], |network, at| network.glu(at)),
    (&["square"], |network, at| network.formula(at, "x^2")),
    (&["pow", "__pow__"], |network, at| network.power(at)),
    (&["softplus"], |network, at| network.softplus(at)),
    (&["hardtanh"], |network, at| network.hardtanh(at)),
    (&["clamp", "clip"], |network, at| network.clamp(at)),
    (&["gelu"], |network, at| network.gelu(at)),
    (&["leaky_relu"], |network, at| network.leaky_relu(at)),
    (&["elu"], |network, at| network.elu(at)),
    (&["softmax"], |network, at| network.softmax(at, Word::of(&Layer::Softmax(zoo::Softmax {})))),
    (&["log_softmax"], |network, at| network.log_softmax(at)),
    (&["dropout"], |network, at| network.dropout(at, false)),
    (&["dropout2d"], |network, at| network.dropout(at, true)),
    (&["drop_path"], |network, at| network.drop_path(at)),
    (&["max_pool2d", "max_pool1d"], |network, at| network.max_pool(at)),
    (&["avg_pool2d", "avg_pool1d"], |network, at| network.avg_pool(at)),
    (&["adaptive_avg_pool2d", "adaptive_avg_pool1d"], |network, at| network.adaptive_avg_pool(at)),
    (&["adaptive_max_pool2d", "adaptive_max_pool1d"], |network, at| network.adaptive_max_pool(at)),
    (&["mean"], |network, at| network.mean(at)),
    (&["pad"], |network, at| network.pad(at)),
    (&["unfold"], |network, at| network.unfold(at)),
    (&["pixel_shuffle"], |network, at| network.pixel_shuffle(at)),
    (&["channel_shuffle"], |network, at| network.channel_shuffle(at)),
    (&["interpolate"], |network, at| network.interpolate(at)),
    (&["add", "__add__", "__iadd__", "__radd__"], |network, at| network.add(at)),
    (&["sub", "subtract", "__sub__", "__isub__"], |network, at| network.subtract(at, false)),
    (&["rsub", "__rsub__"], |network, at| network.subtract(at, true)),
    (&["mul", "multiply", "__mul__", "__imul__", "__rmul__"], |network, at| network.multiply(at)),
    (&["div", "divide", "true_divide", "__truediv__", "__itruediv__"], |network, at| network.divide(at)),
    (&["reciprocal"], |network, at| network.formula(at, "1 / x")),
    (&["__rdiv__", "__rtruediv__"], |network, at| network.divide_by(at)),
    (&["cat", "concat", "concatenate"], |network, at| network.concat(at)),
    (&["stack"], |network, at| network.stack(at)),
    (&["sum"], |network, at| network.sum(at)),
    (&["amax"], |network, at| network.folded(at, "row_max(x)")),
    (&["logsumexp"], |network, at| network.folded(at, "row_log_sum_exp(x)")),
    (&["max"], |network, at| network.maximum(at)),
    (&["norm", "vector_norm", "linalg_norm", "linalg_vector_norm"], |network, at| network.length(at)),
    (&["var"], |network, at| network.variance(at, false)),
    (&["std"], |network, at| network.variance(at, true)),
    (&["scaled_dot_product_attention"], |network, at| network.dot_product_attention(at)),
    (&["ne", "__ne__"], |network, at| network.compared(at)),
    (&["__and__", "bitwise_and", "logical_and"], |network, at| network.both_seen(at)),
    (&["where"], |network, at| network.chosen(at)),
    (&["masked_fill"], |network, at| network.fill_of_scores(at)),
    (&["matmul", "__matmul__", "bmm"], |network, at| network.product(at)),
    (&["baddbmm"], |network, at| network.biased_product(at)),
    (&["maximum"], |network, at| network.larger(at)),
    (&["empty", "new_empty", "empty_like"], |network, at| network.unset(at)),
    (&["einsum"], |network, at| network.einsum(at)),
    (&["multi_head_attention_forward"], |network, at| network.attention(at)),
    (
        &["flatten", "view", "reshape", "unsqueeze", "squeeze", "unflatten", "_unsafe_view", "view_as", "reshape_as"],
        |network, at| network.reshaped(at),
    ),
    (&["permute", "transpose", "swapaxes", "swapdims", "t", "T", "mT"], |network, at| network.permuted(at)),
    (&["chunk", "split", "split_with_sizes", "tensor_split", "unbind"], |network, at| network.pieces(at)),
    (&["repeat_interleave"], |network, at| network.repeated(at)),
    (&["roll"], |network, at| network.rolled(at)),
    (&["cumsum"], |network, at| network.cumsum(at)),
    (&["topk"], |network, at| network.top_k(at)),
    (&["select", "__getitem__"], |network, at| network.indexed(at)),
    (&["expand", "expand_as", "repeat", "tile"], |network, at| network.expanded(at)),
    (&["contiguous", "clone"], |network, at| network.same(at)),
    (&["detach", "data"], |network, at| {
        network.same(at)?;
        network.without_gradient(at)
    }),
    // Conversions: of types that differ, `check_types` says so.
    (
        &[
            "to", "type_as", "type", "float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte",
            "bool",
        ],
        |network, at| network.same(at),
    ),
    (&["_assert"], |_, at| {
        at.told_by_the_result();
        Ok(())
    }),
];

/// Functions of which the shape of the result contains all arguments, the number of samples too.
const BY_SHAPE: &[&str] = &[
    "flatten",
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "unflatten",
    "_unsafe_view",
    "view_as",
    "reshape_as",
    "expand",
    "expand_as",
    "repeat",
    "tile",
    "empty",
    "new_empty",
    "_assert",
];

pub(crate) const PRODUCTS: &str = "only `dot_product_attention` and `attention` multiply tensors by each other";

const RECURRENT: &str = "recipes have no recurrent layers; attention and `conv1d` work on sequences";
const RANDOM: &str = "`dropout` and `drop_path` are the only layers that draw random numbers";
const WEIGHTS: &str = "parameters are trained directly; `weight_norm` is the only weight that is computed";
const LOSS: &str = "the loss is beside the model: give what it compares, and `port --loss` says which it is";
const CHANNELS: &str = "`dropout` drops single numbers or channels of maps, and `drop_path` whole samples";
pub(crate) const CHOICE: &str =
    "numbers are compared in formulas alone: `map: \"select(x > 0, x, 0)\"`, written by hand";
const INDICES: &str = "`take` and `slice` take fixed places of an axis, `embedding` rows of a table";

/// Functions without a layer, and the closest alternative.
const WITHOUT_LAYER: &[(&str, &str)] = &[
    ("lstm", RECURRENT),
    ("gru", RECURRENT),
    ("rnn_tanh", RECURRENT),
    ("rnn_relu", RECURRENT),
    ("lstm_cell", RECURRENT),
    ("gru_cell", RECURRENT),
    ("rand", RANDOM),
    ("rand_like", RANDOM),
    ("randn", RANDOM),
    ("randn_like", RANDOM),
    ("randint", RANDOM),
    ("randperm", RANDOM),
    ("bernoulli", RANDOM),
    ("multinomial", RANDOM),
    ("fractional_max_pool2d", RANDOM),
    ("mv", WEIGHTS),
    ("uniform", RANDOM),
    ("normal", RANDOM),
    ("dropout1d", CHANNELS),
    ("dropout3d", CHANNELS),
    ("alpha_dropout", CHANNELS),
    ("feature_alpha_dropout", CHANNELS),
    ("eq", CHOICE),
    ("gt", CHOICE),
    ("ge", CHOICE),
    ("lt", CHOICE),
    ("le", CHOICE),
    ("__eq__", CHOICE),
    ("__gt__", CHOICE),
    ("__ge__", CHOICE),
    ("__lt__", CHOICE),
    ("__le__", CHOICE),
    ("minimum", "`map` has min(x, number); of two tensors there is no smaller one"),
    ("cross_entropy", LOSS),
    ("nll_loss", LOSS),
    ("mse_loss", LOSS),
    ("l1_loss", LOSS),
    ("smooth_l1_loss", LOSS),
    ("binary_cross_entropy", LOSS),
    ("binary_cross_entropy_with_logits", LOSS),
    ("triplet_margin_loss", LOSS),
    ("kl_div", LOSS),
    ("conv_transpose1d", "`conv_transpose` works on maps, [C, H, W]"),
    ("gather", INDICES),
    ("index_select", INDICES),
    ("scatter", INDICES),
    ("take_along_dim", INDICES),
    ("argmax", INDICES),
    ("cumsum", "formulas compute with an element or a whole row"),
    ("bilinear", PRODUCTS),
    ("conv3d", "`conv` works on maps, [C, H, W], and `conv1d` on [C, L]"),
    ("max_pool2d_with_indices", "`max_pool` gives no indices"),
    ("pixel_unshuffle", "`reshape` and `permute` move the pixels of a square to channels"),
    ("movedim", "use `permute`, which takes the whole order"),
];

/// PyTorch's selu, with its constants.
const SELU: &str = "1.0507009873554805 * select(x > 0, x, 1.6732632423543772 * expm1(x))";

pub(crate) const OUTSIDE: &str = "modules of recipes have the layers and parameters inside them, under one name";

/// Whether a module, or a parameter, is a part of another, or that itself.
pub(crate) fn is_inside(name: &str, module: &str) -> bool {
    module.is_empty() || name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Reader<'_> {
    /// Reads a call as one of another function, of other arguments, with another result.
    pub(crate) fn calls(
        &mut self,
        at: &mut At<'_>,
        function: &str,
        args: Vec<Argument>,
        kwargs: IndexMap<String, Argument>,
        made: &Made,
    ) -> Result<(), Refusal> {
        let outputs = IndexMap::from([(String::new(), made.clone())]);
        let call = FunctionCall { function: function.to_owned(), args, kwargs, outputs, ..at.call.clone() };
        self.function(&mut At::new(at.module, &call, at.units))
    }

    /// Adds the operation of a function.
    pub(crate) fn function(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let name = at.call.name();
        // `relu_` is `relu` in place. The trace distinguishes the values before and after it.
        let name = if name.starts_with("__") { name } else { name.trim_end_matches('_') };
        if let Some(()) = self.of_choices(at, name)? {
            return Ok(());
        }
        let Some((_, reading)) = FUNCTIONS.iter().find(|(names, _)| names.contains(&name)) else {
            return Err(at.refuse(format!("`{name}` is not supported"), nearest(name)));
        };
        self.check_types(at)?;
        if self.correlated(at)?.is_some() {
            return at.all_read();
        }
        if !BY_SHAPE.contains(&name) {
            at.without_batch()?;
        }
        self.without_conversion(at);
        let before = at.units.len();
        if self.of_offsets(at, name)?.is_none()
            && let Err(refusal) = reading(self, at)
        {
            at.units.truncate(before);
            if !matches!(self.of_parameters(at, name), Ok(Some(()))) {
                return Err(refusal);
            }
        }
        if at.call.no_grad {
            self.without_gradient(at)?;
        }
        at.all_read()?;
        let names = at.units[before..].iter().filter_map(|unit| match unit {
            Unit::Operation(operation) => operation.name.as_deref(),
            Unit::Module(_) => None,
        });
        match names.into_iter().find(|name| !is_inside(name, at.module)) {
            Some(name) => Err(at.refuse(format!("it uses parameters of `{name}`, which is no part of it"), OUTSIDE)),
            None => Ok(()),
        }
    }

    /// The first operand of a function.
    pub(crate) fn first(&mut self, at: &mut At<'_>) -> Result<Tensor, Refusal> {
        let argument = at.input();
        self.operand(at, argument)
    }

    /// A function with one operand that is a layer.
    pub(crate) fn unary(&mut self, at: &mut At<'_>, layer: Layer) -> Result<(), Refusal> {
        let input = at.input();
        let (x, views) = self.rows(at, input, None)?;
        let shape = self.shape_of(x).to_vec();
        self.gives_viewed(at, What::Layer(Word::of(&layer)), vec![x], None, shape, views)
    }

    /// The operand of a pool: maps, or `[n, c, length]`.
    pub(crate) fn pooled(&mut self, at: &mut At<'_>) -> Result<Tensor, Refusal> {
        let x = self.first(at)?;
        match self.shape_of(x) {
            [_, _, _] | [_, _, _, _] => Ok(x),
            shape => Err(at.refuse(
                format!("it works on a tensor of shape {shape:?}"),
                "pools work on maps, [C, H, W], and on [C, L]",
            )),
        }
    }

    /// The operand of a function on feature maps, `[n, c, h, w]`.
    pub(crate) fn maps(&mut self, at: &mut At<'_>) -> Result<Tensor, Refusal> {
        let x = self.first(at)?;
        match self.shape_of(x) {
            [_, _, _, _] => Ok(x),
            shape => Err(at.refuse(
                format!("it works on a tensor of shape {shape:?}"),
                "this layer works on maps, [C, H, W] for each sample",
            )),
        }
    }
}

/// The closest alternative to a function without a layer.
fn nearest(name: &str) -> &'static str {
    let known = WITHOUT_LAYER.iter().find(|(other, _)| *other == name);
    known.map_or("no layer does this, and no combination of layers that the importer knows", |(_, nearest)| nearest)
}
