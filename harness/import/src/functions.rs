//! Functions of torch as layers of recipes. Arguments are looked up by place and name, with PyTorch's defaults.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{BnInit, Padding, Pair, Size, WeightInit};

use crate::Refusal;
use crate::operation::{Tensor, What};
use crate::read::{At, Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    /// Adds what a function does.
    pub(crate) fn function(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let name = at.call.name().to_owned();
        let is_special = name.starts_with("__");
        // `relu_` is `relu` in place: what has been there is told apart by the trace.
        let name = if is_special { name.as_str() } else { name.trim_end_matches('_') };
        match name {
            "conv2d" => self.conv(at),
            "conv_transpose2d" => self.conv_transpose(at),
            "linear" => self.linear(at),
            "batch_norm" => self.batch_norm(at),
            "layer_norm" => self.layer_norm(at),
            "group_norm" => self.group_norm(at),
            "rms_norm" => self.rms_norm(at),
            "instance_norm" => self.instance_norm(at),
            "relu" => self.unary(at, Layer::Relu(zoo::Relu {})),
            "relu6" => self.unary(at, Layer::Relu6(zoo::Relu6 {})),
            "hardtanh" | "clamp" | "clip" => self.clamp(at),
            "sigmoid" => self.unary(at, Layer::Sigmoid(zoo::Sigmoid {})),
            "silu" => self.unary(at, Layer::Silu(zoo::Silu {})),
            "hardswish" => self.unary(at, Layer::HardSwish(zoo::HardSwish {})),
            "hardsigmoid" => self.unary(at, Layer::HardSigmoid(zoo::HardSigmoid {})),
            "mish" => self.unary(at, Layer::Mish(zoo::Mish {})),
            "tanh" => self.unary(at, Layer::Tanh(zoo::Tanh {})),
            "gelu" => self.gelu(at),
            "leaky_relu" => {
                let slope = at.float(1, "negative_slope", 0.01)?;
                self.unary(at, Layer::LeakyRelu(zoo::LeakyRelu { slope }))
            }
            "elu" => {
                let alpha = at.float(1, "alpha", 1.0)?;
                self.unary(at, Layer::Elu(zoo::Elu { alpha }))
            }
            "exp" | "log" | "sqrt" | "rsqrt" | "abs" | "erf" | "sin" | "cos" | "floor" | "softplus" => {
                self.formula(at, format!("{name}(x)"))
            }
            "neg" | "__neg__" => self.unary(at, Layer::Scale(zoo::Scale { by: -1.0 })),
            "square" => self.formula(at, "x^2".to_owned()),
            "softmax" => self.softmax(at),
            "max_pool2d" | "_max_pool2d" | "boolean_dispatch" => self.max_pool(at),
            "avg_pool2d" => self.avg_pool(at),
            "adaptive_avg_pool2d" => self.adaptive_avg_pool(at),
            "mean" => self.mean(at),
            "local_response_norm" => self.lrn(at),
            "dropout" => self.dropout(at),
            "drop_path" => self.drop_path(at),
            "pad" => self.pad(at),
            "pixel_shuffle" => {
                let by = Size(at.size(1, "upscale_factor", None)?);
                self.unary(at, Layer::PixelShuffle(zoo::PixelShuffle { by }))
            }
            "channel_shuffle" => {
                let groups = Size(at.size(1, "groups", None)?);
                self.unary(at, Layer::ChannelShuffle(zoo::ChannelShuffle { groups }))
            }
            "interpolate" => self.interpolate(at),
            "add" | "__add__" | "__iadd__" | "__radd__" => self.add(at),
            "sub" | "subtract" | "__sub__" | "__isub__" => self.subtract(at),
            "mul" | "multiply" | "__mul__" | "__imul__" | "__rmul__" => self.multiply(at),
            "div" | "true_divide" | "__truediv__" | "__itruediv__" => self.divide(at),
            "cat" | "concat" | "concatenate" => self.concat(at),
            "scaled_dot_product_attention" => self.dot_product_attention(at),
            "multi_head_attention_forward" => self.attention(at),
            "embedding" => self.embedding(at),
            "flatten" | "view" | "reshape" | "unsqueeze" | "squeeze" | "unflatten" | "_unsafe_view" | "view_as" => {
                self.reshaped(at)
            }
            "permute" | "transpose" | "swapaxes" | "swapdims" | "movedim" | "t" | "T" | "mT" => self.permuted(at),
            "chunk" | "split" | "unbind" | "tensor_split" => self.pieces(at),
            "select" | "__getitem__" => self.indexed(at),
            "expand" => self.expanded(at),
            "contiguous" | "clone" | "to" | "type_as" | "float" | "double" | "requires_grad" | "alias" => self.same(at),
            "_assert" | "manual_seed" | "set_grad_enabled" | "_set_grad_enabled" => Ok(()),
            other => {
                let known = WORDS.iter().find(|(name, _)| *name == other);
                let nearest = match known {
                    Some((_, nearest)) => (*nearest).to_owned(),
                    None => zoo_graph::did_you_mean(other, FUNCTIONS.iter().copied()).map_or_else(
                        || "no layer does this".to_owned(),
                        |near| format!("a function that can be said is `{near}`"),
                    ),
                };
                Err(at.refuse(format!("there is no layer for `{other}`"), nearest))
            }
        }
    }

    fn unary(&mut self, at: &mut At<'_>, layer: Layer) -> Result<(), Refusal> {
        let argument = at.call.argument(0, &["input", "self"]).cloned();
        let x = self.operand(at, argument.as_ref())?;
        self.layer(at, layer, x, None)
    }

    /// A formula of the operand `x`.
    pub(crate) fn formula(&mut self, at: &mut At<'_>, formula: String) -> Result<(), Refusal> {
        let argument = at.call.argument(0, &["input", "self"]).cloned();
        let x = self.operand(at, argument.as_ref())?;
        self.gives(at, What::Layer(Word::formula(formula)), vec![x], None).map(drop)
    }

    fn first(&mut self, at: &mut At<'_>) -> Result<Tensor, Refusal> {
        let argument = at.call.argument(0, &["input", "self"]).cloned();
        self.operand(at, argument.as_ref())
    }

    /// The operand of a function on feature maps, `[n, c, h, w]`.
    fn maps(&mut self, at: &mut At<'_>) -> Result<Tensor, Refusal> {
        let x = self.first(at)?;
        let shape = self.shape_of(x);
        if shape.len() == 4 {
            return Ok(x);
        }
        Err(at.refuse(
            format!("it works on a tensor of shape {shape:?}"),
            "this layer works on maps, [C, H, W] for each sample",
        ))
    }

    fn conv(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let (name, shape) = self.weight(at, 1, "weight")?;
        let [out, _, kh, kw] = shape[..] else { return Err(at.unknown_form("weight")) };
        let bias = self.bias(at, 2, &name)?;
        let (stride, dilation) = (at.pair(3, "stride", Some([1, 1]))?, at.pair(5, "dilation", Some([1, 1]))?);
        let pad = match at.call.argument(4, &["padding"]) {
            Some(Argument::Text(text)) if text == "valid" => Padding::default(),
            Some(Argument::Text(text)) if text == "same" => {
                let [v, h] = [dilation[0] * kh.saturating_sub(1), dilation[1] * kw.saturating_sub(1)];
                Padding([v / 2, v - v / 2, h / 2, h - h / 2])
            }
            _ => at.padding(4, "padding")?,
        };
        let groups = at.size(6, "groups", Some(1))?;
        let (kernel, stride, dilation) = (Pair([kh, kw]), Pair(stride), Pair(dilation));
        let (out, groups, init) = (Size(out), Size(groups), WeightInit::default());
        self.layer(at, Layer::Conv(zoo::Conv { out, kernel, stride, pad, dilation, groups, bias, init }), x, Some(name))
    }

    fn conv_transpose(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let (name, shape) = self.weight(at, 1, "weight")?;
        let [_, out, kh, kw] = shape[..] else { return Err(at.unknown_form("weight")) };
        let bias = self.bias(at, 2, &name)?;
        let stride = Pair(at.pair(3, "stride", Some([1, 1]))?);
        let pad = at.padding(4, "padding")?;
        at.only_pair(5, "output_padding", [0, 0])?;
        at.only_size(6, "groups", 1)?;
        at.only_pair(7, "dilation", [1, 1])?;
        let (out, kernel, init) = (Size(out), Pair([kh, kw]), WeightInit::default());
        self.layer(at, Layer::ConvTranspose(zoo::ConvTranspose { out, kernel, stride, pad, bias, init }), x, Some(name))
    }

    fn linear(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let (name, shape) = self.weight(at, 1, "weight")?;
        let [out, _] = shape[..] else { return Err(at.unknown_form("weight")) };
        let shared = self.trace.parameters.get(&format!("{}.weight", at.module)).and_then(|own| own.same_as.clone());
        if let Some(table) =
            shared.as_ref().and_then(|shared| shared.strip_suffix(".weight")).filter(|_| name != at.module)
        {
            if at.call.argument(2, &["bias"]).is_some() {
                return Err(at.refuse(
                    "a table of an embedding is used with a bias",
                    "write `unembed: {table: .., bias: ..}` by hand",
                ));
            }
            let layer = Layer::Unembed(zoo::Unembed { table: table.to_owned(), bias: None });
            return self.layer(at, layer, x, Some(at.module.to_owned()));
        }
        let bias = self.bias(at, 2, &name)?;
        let layer = zoo::Linear { out: Size(out), bias, init: WeightInit::default() };
        self.layer(at, Layer::Linear(layer), x, Some(name))
    }

    fn batch_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let (name, _) = self.weight(at, 3, "weight")?;
        if !self.bias(at, 4, &name)? {
            return Err(at.refuse("it has a scale and no shift", "`bn` has both"));
        }
        let statistics = [(1, "running_mean"), (2, "running_var")];
        let kept = statistics.iter().all(|(place, leaf)| {
            let buffer = at.call.argument(*place, &[leaf]);
            buffer == Some(&Argument::Buffer(format!("{name}.{leaf}")))
        });
        if !kept {
            return Err(at.refuse(
                "it keeps no running statistics",
                "`bn` keeps them; `instance_norm` and `group_norm` have none",
            ));
        }
        if at.call.argument(5, &["training"]) != Some(&Argument::Bool(true)) {
            return Err(at.refuse(
                "it is frozen: it normalises by its running statistics",
                "`train.parts` with `statistics: stored` freezes parts of a recipe",
            ));
        }
        let (momentum, eps) = (at.float(6, "momentum", 0.1)?, at.float(7, "eps", 1e-5)?);
        self.layer(at, Layer::Bn(zoo::Bn { eps, momentum, init: BnInit::default() }), x, Some(name))
    }

    fn layer_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(Argument::Value(value)) = at.call.argument(0, &["input"]) else {
            return Err(at.unknown_form("input"));
        };
        let value = *value;
        let (name, shape) = self.weight(at, 2, "weight")?;
        let bias = self.bias(at, 3, &name)?;
        let eps = at.float(4, "eps", 1e-5)?;
        // [n, c, h, w] seen as [n, h, w, c]: the channels of each pixel.
        if let Some(Seen::Of(base, views)) = self.seen(value).cloned()
            && views == [View::Permute(vec![0, 2, 3, 1])]
            && shape.len() == 1
            && name == at.module
        {
            let layer = zoo::LayerNorm { axes: Size(1), channels_first: true, bias, eps, init: BnInit::default() };
            let what = What::Layer(Word::of(&Layer::LayerNorm(layer)));
            let maps = self.shape_of(base);
            self.gives_viewed(at, what, vec![base], Some(name), maps, views);
            return Ok(());
        }
        let x = self.first(at)?;
        let layer = zoo::LayerNorm {
            axes: Size(shape.len().max(1)),
            channels_first: false,
            bias,
            eps,
            init: BnInit::default(),
        };
        self.layer(at, Layer::LayerNorm(layer), x, Some(name))
    }

    fn group_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let groups = Size(at.size(1, "num_groups", None)?);
        let (name, _) = self.weight(at, 2, "weight")?;
        if !self.bias(at, 3, &name)? {
            return Err(at.refuse("it has a scale and no shift", "`group_norm` has both"));
        }
        let eps = at.float(4, "eps", 1e-5)?;
        self.layer(at, Layer::GroupNorm(zoo::GroupNorm { groups, eps, init: BnInit::default() }), x, Some(name))
    }

    fn rms_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let (name, shape) = self.weight(at, 2, "weight")?;
        if shape.len() != 1 {
            return Err(at.refuse("it normalises several axes", "`rms_norm` normalises the last one"));
        }
        let Some(Argument::Float(eps)) = at.call.argument(3, &["eps"]) else {
            return Err(at.refuse("its eps depends on the type of numbers", "write its eps: `rms_norm: {eps: 1e-6}`"));
        };
        let eps = *eps;
        self.layer(at, Layer::RmsNorm(zoo::RmsNorm { eps }), x, Some(name))
    }

    fn instance_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        for (place, key) in [(1, "running_mean"), (2, "running_var"), (3, "weight"), (4, "bias")] {
            if at.call.argument(place, &[key]).is_some() {
                return Err(
                    at.refuse(format!("it has `{key}`"), "`instance_norm` has neither parameters nor statistics")
                );
            }
        }
        let eps = at.float(7, "eps", 1e-5)?;
        self.layer(at, Layer::InstanceNorm(zoo::InstanceNorm { eps }), x, None)
    }

    fn clamp(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let least = at.float(1, if at.call.name().starts_with("hard") { "min_val" } else { "min" }, -1.0)?;
        let most = at.float(2, if at.call.name().starts_with("hard") { "max_val" } else { "max" }, 1.0)?;
        if [least, most] == [0.0, 6.0] {
            return self.unary(at, Layer::Relu6(zoo::Relu6 {}));
        }
        Err(at.refuse(format!("it bounds values to [{least}, {most}]"), "`relu6` bounds them to [0, 6]"))
    }

    fn gelu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let approximate = match at.call.argument(1, &["approximate"]) {
            Some(Argument::Text(form)) if form == "tanh" => zoo::Approximation::Tanh,
            Some(Argument::Text(form)) if form != "none" => return Err(at.unknown_form("approximate")),
            _ => zoo::Approximation::None,
        };
        self.unary(at, Layer::Gelu(zoo::Gelu { approximate }))
    }

    fn softmax(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let rank = self.shape_of(x).len();
        match at.axis(1, "dim", rank)? {
            axis if axis + 1 == rank => self.layer(at, Layer::Softmax(zoo::Softmax {}), x, None),
            axis => Err(at.refuse(
                format!("it is taken along axis {axis} of {rank}"),
                "`softmax` is taken along the last axis; `permute` moves one there",
            )),
        }
    }

    fn max_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let kernel = at.pair(1, "kernel_size", None)?;
        let stride = at.pair(2, "stride", Some(kernel))?;
        let pad = at.padding(3, "padding")?;
        at.only_pair(4, "dilation", [1, 1])?;
        let ceil_mode = at.flag(5, "ceil_mode", false)?;
        let stride = (stride != kernel).then_some(Pair(stride));
        self.layer(at, Layer::MaxPool(zoo::MaxPool { kernel: Pair(kernel), stride, pad, ceil_mode }), x, None)
    }

    fn avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let kernel = at.pair(1, "kernel_size", None)?;
        let stride = at.pair(2, "stride", Some(kernel))?;
        let pad = at.padding(3, "padding")?;
        let ceil_mode = at.flag(4, "ceil_mode", false)?;
        let count_include_pad = at.flag(5, "count_include_pad", true)?;
        if at.call.argument(6, &["divisor_override"]).is_some() {
            return Err(at.refuse(
                "it divides by a number of its own",
                "`avg_pool` divides by the number of pixels; `scale` multiplies",
            ));
        }
        // Whether zeros count matters only where there are any.
        let count_include_pad = count_include_pad || pad == Padding::default();
        let stride = (stride != kernel).then_some(Pair(stride));
        let layer = zoo::AvgPool { kernel: Pair(kernel), stride, pad, ceil_mode, count_include_pad };
        self.layer(at, Layer::AvgPool(layer), x, None)
    }

    fn adaptive_avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let Some([_, _, h, w]) =
            at.call.outputs.values().next().and_then(|made| <[usize; 4]>::try_from(made.shape.clone()).ok())
        else {
            return Err(at.unknown_form("output_size"));
        };
        let layer = match [h, w] {
            [1, 1] => Layer::GlobalAvgPool(zoo::GlobalAvgPool {}),
            out => Layer::AdaptiveAvgPool(zoo::AdaptiveAvgPool { out: Pair(out) }),
        };
        self.layer(at, layer, x, None)
    }

    fn mean(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let shape = self.shape_of(x);
        let axes = match at.call.argument(1, &["dim", "axis"]) {
            Some(Argument::List(axes)) => axes.iter().filter_map(|axis| at.wrapped(axis, shape.len())).collect(),
            Some(axis) => at.wrapped(axis, shape.len()).into_iter().collect::<Vec<_>>(),
            None => Vec::new(),
        };
        let mut sorted = axes;
        sorted.sort_unstable();
        let [n, c, _, _] = shape[..] else {
            return Err(at.refuse(
                format!("a mean over axes {sorted:?} of {shape:?}"),
                "`global_avg_pool` is the mean over height and width",
            ));
        };
        if sorted != [2, 3] {
            return Err(at.refuse(
                format!("a mean over axes {sorted:?} of {shape:?}"),
                "`global_avg_pool` is the mean over height and width",
            ));
        }
        let what = What::Layer(Word::of(&Layer::GlobalAvgPool(zoo::GlobalAvgPool {})));
        let made = at.call.outputs.values().next().map(|made| made.shape.clone()).unwrap_or_default();
        let views = if made.len() == 4 { Vec::new() } else { vec![View::Reshape(vec![n, c])] };
        self.gives_viewed(at, what, vec![x], None, vec![n, c, 1, 1], views);
        Ok(())
    }

    fn lrn(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let size = Size(at.size(1, "size", None)?);
        let (alpha, beta, k) = (at.float(2, "alpha", 1e-4)?, at.float(3, "beta", 0.75)?, at.float(4, "k", 1.0)?);
        self.unary(at, Layer::Lrn(zoo::Lrn { size, alpha, beta, k }))
    }

    fn dropout(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let rate = at.float(1, "p", 0.5)?;
        let rate = if at.flag(2, "training", true)? { rate } else { 0.0 };
        self.unary(at, Layer::Dropout(zoo::Dropout { rate }))
    }

    fn drop_path(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let rate = at.float(usize::MAX, "p", 0.0)?;
        let row = at.call.argument(usize::MAX, &["mode"]) == Some(&Argument::Text("row".to_owned()));
        if !row || !at.flag(usize::MAX, "scale_by_keep", true)? {
            return Err(at.refuse(
                "it drops the whole batch, or does not scale what it keeps",
                "`drop_path` drops samples and scales the others",
            ));
        }
        self.unary(at, Layer::DropPath(zoo::DropPath { rate }))
    }

    fn pad(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let constant = at.call.argument(2, &["mode"]).is_none_or(|mode| *mode == Argument::Text("constant".to_owned()));
        if !constant || at.float(3, "value", 0.0)? != 0.0 {
            return Err(at.refuse("it pads with something else than zeros", "`pad` adds zeros"));
        }
        let sides = at.numbers(1, "pad")?;
        let [left, right, rest @ ..] = &sides[..] else { return Err(at.unknown_form("pad")) };
        let (top, bottom) = match rest {
            [] => (0, 0),
            [top, bottom] => (*top, *bottom),
            _ => return Err(at.refuse("it pads other axes than height and width", "`pad` works on height and width")),
        };
        let Ok(sides) = <[usize; 4]>::try_from(
            [top, bottom, *left, *right]
                .map(|side| usize::try_from(side).ok())
                .into_iter()
                .flatten()
                .collect::<Vec<_>>(),
        ) else {
            return Err(at.refuse("it cuts margins off", "`crop` cuts the same margin off all sides"));
        };
        self.layer(at, Layer::Pad(zoo::Pad { size: Padding(sides) }), x, None)
    }

    fn interpolate(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let mode = match at.call.argument(3, &["mode"]) {
            Some(Argument::Text(mode)) if mode == "bilinear" => zoo::UpsampleMode::Bilinear,
            Some(Argument::Text(mode)) if mode == "nearest" => zoo::UpsampleMode::Nearest,
            None => zoo::UpsampleMode::Nearest,
            _ => return Err(at.refuse("this mode of interpolation", "`upsample` has nearest and bilinear")),
        };
        if at.flag(6, "antialias", false)? {
            return Err(at.refuse("it filters before it samples", "`upsample` does not filter"));
        }
        let Some([_, _, h, w]) =
            at.call.outputs.values().next().and_then(|made| <[usize; 4]>::try_from(made.shape.clone()).ok())
        else {
            return Err(at.unknown_form("size"));
        };
        let align_corners = at.flag(4, "align_corners", false)?;
        let layer = zoo::Upsample { scale: None, like: None, size: Some(Pair([h, w])), mode, align_corners };
        self.layer(at, Layer::Upsample(layer), x, None)
    }

    fn embedding(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (name, shape) = self.weight(at, 1, "weight")?;
        let [rows, size] = shape[..] else { return Err(at.unknown_form("weight")) };
        let x = self.first(at)?;
        let init = zoo_graph::Init::Normal(zoo_graph::init::NormalInit { std: 1.0 });
        let layer = zoo::Embedding { rows: Size(rows), size: Size(size), init };
        self.layer(at, Layer::Embedding(layer), x, Some(name))
    }

    fn reshaped(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(made) = at.call.outputs.values().next() else { return Err(at.unknown_form("shape")) };
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        if let Some(Argument::Value(value)) = at.call.argument(0, &["input", "self"])
            && count(&self.shape(*value)) != count(&made.shape)
            && matches!(self.seen(*value), Some(Seen::Of(..)))
        {
            return Err(at.unknown_form("shape"));
        }
        let view = View::Reshape(made.shape.clone());
        self.viewed(at, made.value, vec![view])
    }

    /// Makes a tensor of the trace a view of the call's first argument.
    fn viewed(&mut self, at: &mut At<'_>, made: usize, views: Vec<View>) -> Result<(), Refusal> {
        match at.call.argument(0, &["input", "self", "tensor"]) {
            Some(Argument::Value(value)) => match self.seen(*value).cloned() {
                Some(Seen::Of(base, mut all)) => {
                    all.extend(views);
                    let all = crate::view::simplified(&self.shape_of(base), &all);
                    self.is(made, Seen::Of(base, all));
                }
                Some(other) => self.is(made, other),
                None => return Err(at.unknown_form("input")),
            },
            Some(Argument::Parameter(_)) => {
                self.is(made, Seen::Unsaid("it computes with a parameter in another shape"))
            }
            Some(Argument::Buffer(_)) => self.is(made, Seen::Unsaid("it computes with a buffer")),
            _ => return Err(at.unknown_form("input")),
        }
        Ok(())
    }

    fn permuted(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let rank = self.rank(at);
        let mut order: Vec<usize> = (0..rank).collect();
        let axis = |at: &At<'_>, place: usize, key: &str| at.axis(place, key, rank);
        match at.call.name().trim_end_matches('_') {
            "permute" => {
                let axes = match at.call.argument(1, &["dims"]) {
                    Some(Argument::List(axes)) => axes.clone(),
                    _ => at.call.args.iter().skip(1).cloned().collect(),
                };
                order = axes.iter().filter_map(|axis| at.wrapped(axis, rank)).collect();
            }
            "movedim" => return Err(at.refuse("it moves axes by `movedim`", "`permute` says the whole order")),
            "t" | "T" | "mT" => match rank {
                2.. => order.swap(rank - 1, rank - 2),
                _ => return Err(at.unknown_form("input")),
            },
            _ => {
                let (first, second) = (axis(at, 1, "dim0")?, axis(at, 2, "dim1")?);
                order.swap(first, second);
            }
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            return Err(at.unknown_form("dims"));
        }
        match at.call.outputs.values().next().map(|made| made.value) {
            Some(made) => self.viewed(at, made, vec![View::Permute(order)]),
            None => Err(at.unknown_form("dims")),
        }
    }

    /// Number of axes of the call's first argument.
    fn rank(&self, at: &At<'_>) -> usize {
        match at.call.argument(0, &["input", "self", "tensor", "tensors"]) {
            Some(Argument::Value(value)) => self.shape(*value).len(),
            Some(Argument::Parameter(name)) => self.trace.parameters.get(name).map_or(0, |own| own.shape.len()),
            _ => 0,
        }
    }

    /// Equal pieces of an axis: the axis is split in two, and one index of the first taken.
    fn pieces(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let rank = self.rank(at);
        let place = if at.call.name() == "unbind" { 1 } else { 2 };
        let axis = match at.call.argument(place, &["dim"]) {
            Some(axis) => at.wrapped(axis, rank),
            None => Some(0),
        };
        let (Some(axis), Some(Argument::Value(value))) = (axis, at.call.argument(0, &["input", "self", "tensor"]))
        else {
            return Err(at.unknown_form("dim"));
        };
        let mut shape = self.shape(*value);
        let made: Vec<_> = at.call.outputs.values().cloned().collect();
        let unbinds = at.call.name() == "unbind";
        if !unbinds {
            let sizes: Vec<usize> = made.iter().filter_map(|piece| piece.shape.get(axis).copied()).collect();
            let (Some(size), Some(extent)) = (sizes.first().copied(), shape.get(axis).copied()) else {
                return Err(at.unknown_form("dim"));
            };
            if sizes.iter().any(|other| *other != size) || size * sizes.len() != extent {
                return Err(at.refuse(
                    format!("it splits an axis in pieces of {sizes:?}"),
                    "`reshape` and `take` give equal pieces",
                ));
            }
            shape.splice(axis..=axis, [sizes.len(), size]);
        }
        for (index, piece) in made.iter().enumerate() {
            let take = View::Select(axis, index);
            let views = if unbinds { vec![take] } else { vec![View::Reshape(shape.clone()), take] };
            self.viewed(at, piece.value, views)?;
        }
        Ok(())
    }

    fn indexed(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(made) = at.call.outputs.values().next() else { return Err(at.unknown_form("index")) };
        let made = made.value;
        let (Some(Argument::Value(value)), rank) = (at.call.argument(0, &["input", "self"]), self.rank(at)) else {
            self.is(made, Seen::Unsaid("it takes a part of a parameter or buffer"));
            return Ok(());
        };
        let shape = self.shape(*value);
        let at_index = |axis: usize, index: i64| {
            let extent = i64::try_from(shape.get(axis).copied()?).ok()?;
            usize::try_from(if index < 0 { index + extent } else { index })
                .ok()
                .filter(|index| *index < extent as usize)
        };
        if at.call.name() == "select" {
            let (axis, index) = (at.axis(1, "dim", rank)?, at.call.argument(2, &["index"]));
            let Some(Argument::Int(index)) = index else { return Err(at.unknown_form("index")) };
            let Some(index) = at_index(axis, *index) else { return Err(at.unknown_form("index")) };
            return self.viewed(at, made, vec![View::Select(axis, index)]);
        }
        let parts = match at.call.argument(1, &["key"]) {
            Some(Argument::List(parts)) => parts.clone(),
            Some(part) => vec![part.clone()],
            None => return Err(at.unknown_form("index")),
        };
        let mut views = Vec::new();
        let (mut axis, mut from) = (0, 0);
        for part in &parts {
            match part {
                Argument::Ellipsis => {
                    let skipped = rank.saturating_sub(parts.len() - 1);
                    (axis, from) = (axis + skipped, from + skipped);
                }
                Argument::Slice([None | Some(0), None, None | Some(1)]) => (axis, from) = (axis + 1, from + 1),
                Argument::Slice([None | Some(0), Some(stop), None | Some(1)])
                    if shape.get(from).is_some_and(|extent| *stop >= *extent as i64) =>
                {
                    (axis, from) = (axis + 1, from + 1);
                }
                Argument::Int(index) => {
                    let Some(index) = at_index(from, *index) else { return Err(at.unknown_form("index")) };
                    views.push(View::Select(axis, index));
                    from += 1;
                }
                _ => {
                    return Err(at.refuse(
                        "it takes a part of an axis, or places that tensors say",
                        "`take` gives what lies at one index, `crop` cuts margins off maps",
                    ));
                }
            }
        }
        self.viewed(at, made, views)
    }

    fn expanded(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(made) = at.call.outputs.values().next().cloned() else { return Err(at.unknown_form("sizes")) };
        match at.call.argument(0, &["input", "self"]) {
            Some(Argument::Parameter(name)) => {
                let own = self.trace.parameters.get(name).map(|own| own.shape.clone()).unwrap_or_default();
                let each_sample =
                    own.len() == made.shape.len() && own.first() == Some(&1) && own[1..] == made.shape[1..];
                let seen =
                    if each_sample { Seen::Expanded(name.clone()) } else { Seen::Unsaid("it repeats a parameter") };
                self.is(made.value, seen);
                Ok(())
            }
            Some(Argument::Value(value)) if self.shape(*value) == made.shape => self.same(at),
            _ => Err(at.refuse(
                "it repeats a tensor",
                "sums and products repeat what has one element where the other has several",
            )),
        }
    }

    /// A function that changes nothing.
    fn same(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        match at.call.outputs.values().next().map(|made| made.value) {
            Some(made) => self.viewed(at, made, Vec::new()),
            None => Ok(()),
        }
    }

    /// The module that has a parameter, and the parameter's shape.
    pub(crate) fn weight(&self, at: &At<'_>, place: usize, leaf: &str) -> Result<(String, Vec<usize>), Refusal> {
        match at.call.argument(place, &[leaf]) {
            Some(Argument::Parameter(name)) => {
                let shape = self.trace.parameters.get(name).map(|own| own.shape.clone()).unwrap_or_default();
                match name.strip_suffix(leaf).and_then(|rest| rest.strip_suffix('.')) {
                    Some(owner) if !owner.is_empty() => Ok((owner.to_owned(), shape)),
                    _ => {
                        let what = format!("its {leaf} is the parameter `{name}`");
                        Err(at.refuse(what, format!("layers have a parameter `<name>.{leaf}`")))
                    }
                }
            }
            None => Err(at.refuse(format!("it has no {leaf}"), "the layer has one")),
            Some(_) => Err(at.refuse(
                format!("its {leaf} is computed"),
                "parameters of layers are trained themselves: no weight standardisation, no weight norm",
            )),
        }
    }

    /// Whether there is a bias, which belongs to the same module.
    fn bias(&self, at: &At<'_>, place: usize, owner: &str) -> Result<bool, Refusal> {
        match at.call.argument(place, &["bias"]) {
            None => Ok(false),
            Some(Argument::Parameter(name)) if *name == format!("{owner}.bias") => Ok(true),
            Some(_) => Err(at.refuse("its bias is computed, or another module's", "a layer's bias is `<name>.bias`")),
        }
    }
}

/// Functions without a layer, and what comes nearest.
const WORDS: &[(&str, &str)] = &[
    ("roll", "windows that are shifted need an operator that recipes do not have"),
    ("matmul", "`dot_product_attention` and `attention` multiply tensors by each other; other products cannot be said"),
    (
        "__matmul__",
        "`dot_product_attention` and `attention` multiply tensors by each other; other products cannot be said",
    ),
    ("bmm", "`dot_product_attention` and `attention` multiply tensors by each other; other products cannot be said"),
    ("einsum", "`dot_product_attention` and `attention` multiply tensors by each other; other products cannot be said"),
    ("normalize", "`rms_norm` and `layer_norm` normalise rows"),
    (
        "conv1d",
        "`conv` works on maps, [C, H, W]: a kernel of 1 x k on maps of height 1 is the same, under another shape",
    ),
    ("conv3d", "`conv` works on maps, [C, H, W]"),
    ("max", "`max_pool` takes the largest of a window"),
    ("adaptive_max_pool2d", "`max_pool` with the window of the whole map"),
    ("addmm", "`linear` has its weight as [out, in]; transformers' Conv1D has [in, out]"),
];

/// Functions that there are layers for.
const FUNCTIONS: &[&str] = &[
    "conv2d",
    "conv_transpose2d",
    "linear",
    "batch_norm",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "instance_norm",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "hardswish",
    "hardsigmoid",
    "mish",
    "tanh",
    "gelu",
    "leaky_relu",
    "elu",
    "softmax",
    "max_pool2d",
    "avg_pool2d",
    "adaptive_avg_pool2d",
    "mean",
    "local_response_norm",
    "dropout",
    "pad",
    "pixel_shuffle",
    "channel_shuffle",
    "interpolate",
    "add",
    "sub",
    "mul",
    "div",
    "cat",
    "scaled_dot_product_attention",
    "embedding",
    "flatten",
    "reshape",
    "permute",
    "chunk",
    "unbind",
];

impl At<'_> {
    /// An argument that has another form than is known.
    pub fn unknown_form(&self, key: &str) -> Refusal {
        self.refuse(
            format!("its argument `{key}` has a form that is not known"),
            "plain numbers, switches and tensors are",
        )
    }

    pub(crate) fn float(&self, place: usize, key: &str, usual: f64) -> Result<f64, Refusal> {
        match self.call.argument(place, &[key]) {
            None => Ok(usual),
            Some(Argument::Int(value)) => Ok(*value as f64),
            Some(Argument::Float(value)) => Ok(*value),
            Some(_) => Err(self.unknown_form(key)),
        }
    }

    fn flag(&self, place: usize, key: &str, usual: bool) -> Result<bool, Refusal> {
        match self.call.argument(place, &[key]) {
            None => Ok(usual),
            Some(Argument::Bool(value)) => Ok(*value),
            Some(_) => Err(self.unknown_form(key)),
        }
    }

    fn size(&self, place: usize, key: &str, usual: Option<usize>) -> Result<usize, Refusal> {
        match (self.call.argument(place, &[key]), usual) {
            (Some(Argument::Int(value)), _) => usize::try_from(*value).map_err(|_| self.unknown_form(key)),
            (None, Some(usual)) => Ok(usual),
            _ => Err(self.unknown_form(key)),
        }
    }

    fn numbers(&self, place: usize, key: &str) -> Result<Vec<i64>, Refusal> {
        let number = |argument: &Argument| match argument {
            Argument::Int(value) => Some(*value),
            _ => None,
        };
        match self.call.argument(place, &[key]) {
            Some(Argument::List(items)) => {
                items.iter().map(number).collect::<Option<_>>().ok_or_else(|| self.unknown_form(key))
            }
            Some(Argument::Int(value)) => Ok(vec![*value]),
            _ => Err(self.unknown_form(key)),
        }
    }

    fn pair(&self, place: usize, key: &str, usual: Option<[usize; 2]>) -> Result<[usize; 2], Refusal> {
        let empty = self.call.argument(place, &[key]).is_none_or(|argument| *argument == Argument::List(Vec::new()));
        if let (true, Some(usual)) = (empty, usual) {
            return Ok(usual);
        }
        let sizes: Vec<usize> =
            self.numbers(place, key)?.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
        match sizes[..] {
            [both] => Ok([both, both]),
            [height, width] => Ok([height, width]),
            _ => Err(self.unknown_form(key)),
        }
    }

    fn padding(&self, place: usize, key: &str) -> Result<Padding, Refusal> {
        let [height, width] = self.pair(place, key, Some([0, 0]))?;
        Ok(Padding([height, height, width, width]))
    }

    fn only_pair(&self, place: usize, key: &str, only: [usize; 2]) -> Result<(), Refusal> {
        match self.pair(place, key, Some(only))? {
            found if found == only => Ok(()),
            found => Err(self.refuse(format!("its {key} is {found:?}"), format!("the layer has {only:?}"))),
        }
    }

    fn only_size(&self, place: usize, key: &str, only: usize) -> Result<(), Refusal> {
        match self.size(place, key, Some(only))? {
            found if found == only => Ok(()),
            found => Err(self.refuse(format!("its {key} is {found}"), format!("the layer has {only}"))),
        }
    }

    /// An axis that may be counted from the end.
    pub(crate) fn axis(&self, place: usize, key: &str, rank: usize) -> Result<usize, Refusal> {
        let argument = self.call.argument(place, &[key]);
        argument.and_then(|axis| self.wrapped(axis, rank)).ok_or_else(|| self.unknown_form(key))
    }

    fn wrapped(&self, axis: &Argument, rank: usize) -> Option<usize> {
        let Argument::Int(axis) = axis else { return None };
        let axis = if *axis < 0 { axis.checked_add(i64::try_from(rank).ok()?)? } else { *axis };
        usize::try_from(axis).ok().filter(|axis| *axis < rank)
    }
}
