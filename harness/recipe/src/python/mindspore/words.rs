//! The table: what MindSpore calls the modules, functions and methods of PyTorch, and their arguments.

use super::helpers::{ATTENTION, CROSS_ENTROPY, DEPTH, LAYER_NORM, RMS_NORM, UNFLATTEN};
use crate::python::code::{Binding, Code, Piece};

/// A call, argument by argument.
pub(super) struct Call {
    /// What is called.
    name: String,
    positional: Vec<Code>,
    named: Vec<(String, Code)>,
}

/// A line of the table.
struct Word {
    pytorch: &'static str,
    mindspore: &'static str,
    /// Arguments by name, as `pytorch` or `pytorch=mindspore`; nothing behind the sign drops it.
    arguments: &'static [&'static str],
    /// What else changes.
    more: Option<More>,
}

/// A change of a call; it may need a function of the program.
type More = fn(&mut Call, &mut Vec<&'static str>) -> Result<(), String>;

const fn word(pytorch: &'static str, mindspore: &'static str, arguments: &'static [&'static str]) -> Word {
    Word { pytorch, mindspore, arguments, more: None }
}

const fn other(pytorch: &'static str, mindspore: &'static str, arguments: &'static [&'static str], more: More) -> Word {
    Word { pytorch, mindspore, arguments, more: Some(more) }
}

const WINDOW: &[&str] = &["kernel_size", "stride", "padding", "dilation", "groups=group", "bias=has_bias"];
const POOL: &[&str] = &["stride", "padding", "ceil_mode", "count_include_pad"];

const WORDS: &[Word] = &[
    other("nn.Conv2d", "nn.Conv2d", WINDOW, convolution),
    other("nn.ConvTranspose2d", "nn.Conv2dTranspose", WINDOW, convolution),
    word("nn.Linear", "nn.Dense", &["bias=has_bias"]),
    word("nn.Embedding", "nn.Embedding", &[]),
    other("nn.BatchNorm2d", "nn.BatchNorm2d", &["eps", "momentum"], momentum),
    other("nn.BatchNorm1d", "nn.BatchNorm1d", &["eps", "momentum"], momentum),
    other("nn.LayerNorm", "nn.LayerNorm", &["eps=epsilon", "bias"], layer_norm),
    word("nn.GroupNorm", "nn.GroupNorm", &["eps"]),
    other("nn.Dropout", "nn.Dropout", &["p"], rate),
    other("nn.MaxPool2d", "nn.MaxPool2d", POOL, pool),
    other("nn.AvgPool2d", "nn.AvgPool2d", POOL, pool),
    word("nn.AdaptiveAvgPool2d", "nn.AdaptiveAvgPool2d", &[]),
    other("nn.Upsample", "nn.Upsample", &["scale_factor", "size", "mode", "align_corners"], scale),
    word("nn.MultiheadAttention", "nn.MultiheadAttention", &["dropout", "batch_first"]),
    word("nn.ZeroPad2d", "nn.ZeroPad2d", &[]),
    word("nn.Identity", "nn.Identity", &[]),
    word("nn.Flatten", "nn.Flatten", &[]),
    word("nn.ReLU", "nn.ReLU", &[]),
    word("nn.ReLU6", "nn.ReLU6", &[]),
    word("nn.Sigmoid", "nn.Sigmoid", &[]),
    word("nn.Tanh", "nn.Tanh", &[]),
    word("nn.SiLU", "nn.SiLU", &[]),
    word("nn.Hardswish", "nn.HSwish", &[]),
    word("nn.Hardsigmoid", "nn.HSigmoid", &[]),
    other("nn.RMSNorm", "RmsNorm", &["eps"], rms_norm),
    other("StochasticDepth", "StochasticDepth", &[], depth),
    other("stochastic_depth", "stochastic_depth", &[], depth),
    other("nn.GELU", "nn.GELU", &["approximate"], gelu),
    word("nn.Softmax", "nn.Softmax", &["dim=axis"]),
    word("nn.Parameter", "Parameter", &[]),
    word("functional.relu", "ops.relu", &[]),
    word("functional.relu6", "ops.relu6", &[]),
    word("functional.silu", "ops.silu", &[]),
    word("functional.hardswish", "ops.hardswish", &[]),
    word("functional.hardsigmoid", "ops.hardsigmoid", &[]),
    other("functional.avg_pool2d", "ops.avg_pool2d", POOL, window),
    other("functional.max_pool2d", "ops.max_pool2d", POOL, window),
    word("functional.pad", "ops.pad", &["mode", "value"]),
    word("functional.gelu", "ops.gelu", &["approximate"]),
    word("functional.dropout", "ops.dropout", &[]),
    word("functional.linear", "ops.dense", &[]),
    word("functional.softmax", "ops.softmax", &["dim=axis"]),
    word("functional.adaptive_avg_pool2d", "ops.adaptive_avg_pool2d", &[]),
    other("functional.interpolate", "ops.interpolate", &["scale_factor", "size", "mode", "align_corners"], scale),
    other("functional.scaled_dot_product_attention", "attention", &["is_causal", "dropout_p", "scale"], attention),
    other("functional.cross_entropy", "cross_entropy", &["ignore_index", "label_smoothing"], cross_entropy),
    word("torch.sigmoid", "ops.sigmoid", &[]),
    word("torch.tanh", "ops.tanh", &[]),
    word("torch.exp", "ops.exp", &[]),
    word("torch.arange", "ops.arange", &["device="]),
    word("torch.cat", "ops.cat", &["dim=axis"]),
    other("torch.zeros", "ops.zeros", &[], size),
    other("torch.full", "ops.full", &[], full),
    other(".flatten", ".flatten", &[], flatten),
    other(".unflatten", "unflatten", &[], unflatten),
    word(".transpose", ".swapaxes", &[]),
    other(".expand", ".broadcast_to", &[], size),
    word(".split", ".split", &["dim=axis"]),
    word(".repeat_interleave", ".repeat_interleave", &["dim"]),
    word(".reshape", ".reshape", &[]),
    word(".permute", ".permute", &[]),
    word(".square", ".square", &[]),
    word(".items", ".items", &[]),
    word(".endswith", ".endswith", &[]),
    word(".trainable_params", ".trainable_params", &[]),
    word(".sum", ".sum", &[]),
    word(".mean", ".mean", &[]),
];

/// A call in MindSpore's words.
pub(super) fn called(mut call: Call, helpers: &mut Vec<&'static str>) -> Result<Code, String> {
    let unwritten = |name: &str| super::unwritten(name.trim_start_matches('.'));
    let word = WORDS.iter().find(|word| word.pytorch == call.name).ok_or_else(|| unwritten(&call.name))?;
    let mut named = Vec::new();
    for (key, value) in std::mem::take(&mut call.named) {
        let is_key = |argument: &&&str| argument.split('=').next() == Some(key.as_str());
        let Some(argument) = word.arguments.iter().find(is_key) else {
            return Err(format!("`{}` with `{key}` is not written in MindSpore yet", word.pytorch));
        };
        match argument.split_once('=') {
            Some((_, renamed)) => named.push((renamed.to_owned(), value)),
            None => named.push((key, value)),
        }
    }
    call.named = named;
    call.name = word.mindspore.to_owned();
    if let Some(more) = word.more {
        more(&mut call, helpers)?;
    }
    Ok(call.code())
}

/// Whether a call in MindSpore's words is without an argument.
pub(super) fn drops(name: &str, argument: &Code) -> bool {
    let word = WORDS.iter().find(|word| word.pytorch == name);
    let dropped = |key: &str| word.is_some_and(|word| word.arguments.iter().any(|one| *one == format!("{key}=")));
    key(argument).is_some_and(|(key, _)| dropped(&key))
}

/// Checks the operands of a module.
pub(super) fn expect_operands(operands: &[Code]) -> Result<(), String> {
    let named = operands.iter().filter_map(key).find(|(key, _)| key != "need_weights");
    named.map_or(Ok(()), |(key, _)| Err(format!("a module with `{key}` is not written in MindSpore yet")))
}

impl Call {
    /// A call of `name` with arguments.
    pub(super) fn of(name: &str, arguments: Vec<Code>) -> Self {
        let mut call = Self { name: name.to_owned(), positional: Vec::new(), named: Vec::new() };
        for argument in arguments {
            match key(&argument) {
                Some((key, value)) => call.named.push((key, value)),
                None => call.positional.push(argument),
            }
        }
        call
    }

    /// As Python.
    pub(super) fn code(self) -> Code {
        let named = self.named.into_iter().map(|(key, value)| Code::named(&key, value));
        Code::call(self.name, self.positional.into_iter().chain(named).collect())
    }

    fn take(&mut self, key: &str) -> Option<Code> {
        let place = self.named.iter().position(|(known, _)| known == key)?;
        Some(self.named.remove(place).1)
    }

    fn add(&mut self, key: &str, value: Code) {
        self.named.push((key.to_owned(), value));
    }

    fn get(&self, key: &str) -> Option<&Code> {
        self.named.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }
}

/// The name and the value of an argument by name.
fn key(argument: &Code) -> Option<(String, Code)> {
    let Some(Piece::Text(text)) = argument.pieces.first() else { return None };
    let (key, rest) = text.split_once('=')?;
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || rest.starts_with('=') {
        return None;
    }
    let mut value = argument.clone();
    match rest {
        "" => _ = value.pieces.remove(0),
        rest => value.pieces[0] = Piece::Text(rest.to_owned()),
    }
    Some((key.to_owned(), value))
}

/// Padding is a mode, and a tuple has all four sides; there is no bias by default.
fn convolution(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let bias = call.take("has_bias");
    match call.take("padding") {
        Some(padding) => {
            let padding = match &padding.pieces[..] {
                [Piece::List("(", items, _)] => {
                    Code::tuple(items.iter().flat_map(|side| [side.clone(), side.clone()]).collect())
                }
                _ => padding,
            };
            call.add("pad_mode", Code::text("\"pad\""));
            call.add("padding", padding);
        }
        None => call.add("pad_mode", Code::text("\"valid\"")),
    }
    if bias.is_none_or(|bias| bias.flat() != "False") {
        call.add("has_bias", Code::switch(true));
    }
    Ok(())
}

/// A window moves by one unless it is told.
fn window(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let kernel = call.positional.last().filter(|_| call.get("stride").is_none());
    if let Some(kernel) = kernel.cloned() {
        call.named.insert(0, ("stride".to_owned(), kernel));
    }
    Ok(())
}

/// As [`window`]; padding is a mode.
fn pool(call: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    window(call, helpers)?;
    if call.get("padding").is_some() || call.get("ceil_mode").is_some() {
        call.named.insert(1, ("pad_mode".to_owned(), Code::text("\"pad\"")));
    }
    Ok(())
}

/// The weight of the old statistics, not of the new.
fn momentum(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    if let Some(new) = call.take("momentum") {
        let old = match new.flat().parse::<f64>() {
            Ok(value) => Code::real(1.0 - value),
            Err(_) => new.around("1 - ", "", Binding::Sum),
        };
        call.add("momentum", old);
    }
    Ok(())
}

/// The shape is a tuple, eps has another default, and there is always a bias.
fn layer_norm(call: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    let shape = call.positional.remove(0);
    if matches!(shape.pieces[..], [Piece::List("[", ..)]) {
        // It counts its axes from the first.
        return Err("`nn.LayerNorm` over several axes is not written in MindSpore yet".to_owned());
    }
    call.positional.push(Code::tuple(vec![shape]));
    if call.get("epsilon").is_none() {
        call.add("epsilon", Code::real(1e-5));
    }
    if call.take("bias").is_some() {
        helpers.push(LAYER_NORM);
        call.name = "UnbiasedLayerNorm".to_owned();
    }
    Ok(())
}

fn rms_norm(_: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    helpers.push(RMS_NORM);
    Ok(())
}

fn depth(_: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    helpers.push(DEPTH);
    Ok(())
}

/// The first argument of a dropout is the share that is kept.
fn rate(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let rates = std::mem::take(&mut call.positional);
    rates.into_iter().for_each(|rate| call.add("p", rate));
    Ok(())
}

/// The exact form is not the default.
fn gelu(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let tanh = call.take("approximate").is_some();
    call.add("approximate", Code::switch(tanh));
    Ok(())
}

/// A factor is no whole number; maps get a size from it.
fn scale(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let Some(factor) = call.take("scale_factor") else { return Ok(()) };
    let real = |factor: &Code| match factor.flat().parse::<f64>() {
        Ok(value) => Code::real(value),
        Err(_) => Code::call("float", vec![factor.clone()]),
    };
    let factor = match &factor.pieces[..] {
        [Piece::List("(", items, _)] => Code::tuple(items.iter().map(real).collect()),
        _ => real(&factor),
    };
    call.named.insert(0, ("scale_factor".to_owned(), factor));
    call.add("recompute_scale_factor", Code::switch(true));
    Ok(())
}

fn attention(_: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    helpers.push(ATTENTION);
    Ok(())
}

fn cross_entropy(_: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    helpers.push(CROSS_ENTROPY);
    Ok(())
}

/// Without a type, the numbers are whole.
fn full(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    call.add("dtype", Code::text("mindspore.float32"));
    Ok(())
}

/// Sizes are one argument.
fn size(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let sizes = std::mem::take(&mut call.positional);
    call.positional.push(Code::tuple(sizes));
    Ok(())
}

/// Tensors cannot do it themselves.
fn unflatten(_: &mut Call, helpers: &mut Vec<&'static str>) -> Result<(), String> {
    helpers.push(UNFLATTEN);
    Ok(())
}

/// The first argument of `flatten` is the order.
fn flatten(call: &mut Call, _: &mut Vec<&'static str>) -> Result<(), String> {
    let axes = std::mem::take(&mut call.positional);
    ["start_dim", "end_dim"].into_iter().zip(axes).for_each(|(key, axis)| call.add(key, axis));
    Ok(())
}
