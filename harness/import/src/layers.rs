//! Functions with parameters, and normalisations.

use indexmap::IndexMap;
use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::layers::WeightNorm;
use zoo_recipe::schema::{BnInit, Count, Padding, Pair, Size, WeightInit};

use crate::Refusal;
use crate::arguments::{At, NAMED};
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::operation::{Tensor, What};
use crate::reader::{Reader, Seen};
use crate::rows::normalised;
use crate::trace::{Argument, Made};
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    pub(crate) fn conv(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        if let Some(weight) = at.argument(1, &["weight"]).and_then(|weight| self.trace.constant(weight)) {
            return self.blur_pool(at, x, weight);
        }
        let argument = at.argument(1, &["weight"]);
        let filters = self.standardised_filters(argument);
        let (name, shape, weight_norm) = match &filters {
            Some(filters) => {
                let own = Argument::Parameter(filters.weight.clone());
                let (name, shape) = self.parameter(at, Some(&own), "weight")?;
                (name, shape, None)
            }
            None => self.weight_or_normed(at, 1)?,
        };
        let gain = filters.as_ref().and_then(|filters| filters.gain.as_ref());
        if gain.is_some_and(|(gain, _)| *gain != format!("{name}.gain")) {
            return Err(at.refuse("a factor of filters belongs to another module", "`gain` of `conv` is `<name>.gain`"));
        }
        let (standardised, gain) = (filters.as_ref().map(|filters| filters.eps), gain.map(|(_, by)| *by));
        let [out, _, kh, kw] = shape[..] else { return Err(at.unknown_form("weight")) };
        let bias = self.bias(at, 2, &name)?;
        let (stride, dilation) = (at.pair(3, "stride", Some([1, 1]))?, at.pair(5, "dilation", Some([1, 1]))?);
        let pad = match at.argument(4, &["padding"]) {
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
        let layer =
            zoo::Conv { out, kernel, stride, pad, dilation, groups, bias, standardised, gain, weight_norm, init };
        self.layer(at, Layer::Conv(layer), x, Some(name))
    }

    /// A convolution whose weights are constant: binomial filters are known.
    fn blur_pool(&mut self, at: &mut At<'_>, x: Tensor, weight: &Constant) -> Result<(), Refusal> {
        let channels = self.shape_of(x)[1];
        let (stride, groups) = (at.pair(3, "stride", Some([1, 1]))?, at.size(6, "groups", Some(1))?);
        let fits = at.argument(2, &["bias"]).is_none_or(|bias| *bias == Argument::None)
            && at.padding(4, "padding")? == Padding::default()
            && at.pair(5, "dilation", Some([1, 1]))? == [1, 1]
            && groups == channels
            && stride[0] == stride[1];
        let is_binomial = |taps: usize| {
            let along = zoo::BlurPool::weights(taps);
            let filter = along.iter().flat_map(|row| along.iter().map(move |column| row * column));
            weight.values().eq((0..channels).flat_map(|_| filter.clone()))
        };
        let taps = (1..=zoo::BlurPool::MOST).find(|taps| weight.shape == [channels, 1, *taps, *taps]);
        let kernel = taps.filter(|taps| fits && is_binomial(*taps));
        let Some(kernel) = kernel else {
            return Err(
                at.refuse("its weights are not parameters", "`blur_pool` has binomial filters, one per channel")
            );
        };
        let layer = zoo::BlurPool { kernel: Size(kernel), stride: Size(stride[0]) };
        self.layer(at, Layer::BlurPool(layer), x, None)
    }

    /// A convolution of `[n, c, length]`.
    pub(crate) fn conv1d(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let (name, shape, weight_norm) = self.weight_or_normed(at, 1)?;
        let ([out, _, kernel], [_, _, _]) = (&shape[..], self.shape_of(x)) else {
            return Err(at.unknown_form("weight"));
        };
        let bias = self.bias(at, 2, &name)?;
        let [stride, _] = at.pair(3, "stride", Some([1, 1]))?;
        let [pad, _] = at.pair(4, "padding", Some([0, 0]))?;
        let [dilation, _] = at.pair(5, "dilation", Some([1, 1]))?;
        let (stride, pad, dilation) = (Size(stride), Count(pad), Size(dilation));
        let groups = Size(at.size(6, "groups", Some(1))?);
        let (out, kernel, init) = (Size(*out), Size(*kernel), WeightInit::default());
        let layer = zoo::Conv1d { out, kernel, stride, pad, dilation, groups, bias, weight_norm, init };
        self.layer(at, Layer::Conv1d(layer), x, Some(name))
    }

    /// beta + alpha * x, both parameters of the module (ResMLP in timm).
    pub(crate) fn affine(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let value = at.float(NAMED, "value", 1.0)?;
        at.only("value", value, 1.0)?;
        let (beta, alpha, x) = (at.input(), at.argument(1, &["tensor1"]), at.argument(2, &["tensor2"]));
        let Some(tokens) = x.and_then(|x| self.shape(x.value()?)).filter(|shape| shape.len() == 3) else {
            return self.sum_of_product(at);
        };
        let own = |local: &str| Some(Argument::Parameter(format!("{}.{local}", at.module)));
        let (is_beta, is_alpha) = (beta.cloned() == own("beta"), alpha.cloned() == own("alpha"));
        let width = tokens[2];
        let shapes = ["alpha", "beta"].map(|local| self.trace.shape(&format!("{}.{local}", at.module)));
        if !is_beta || !is_alpha || shapes != [[1, 1, width]; 2].each_ref().map(|s| &s[..]) {
            return self.sum_of_product(at);
        }
        let x = self.operand(at, x)?;
        let name = at.module.to_owned();
        self.layer(at, Layer::Affine(zoo::Affine {}), x, Some(name))
    }

    /// PyTorch's addcmul, as the product and the sum that it is.
    fn sum_of_product(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (Some(sum), Some(a), Some(b)) = (at.input(), at.argument(1, &["tensor1"]), at.argument(2, &["tensor2"]))
        else {
            return Err(at.unknown_form("tensor1"));
        };
        let made = at.made()?;
        let shape = |argument: &Argument| match (argument, self.given(Some(argument))) {
            (Argument::Parameter(name), _) => Some(self.trace.shape(name).to_vec()),
            (_, Some(Seen::Reshaped(_, shape))) => Some(shape.clone()),
            _ => self.shape(argument.value()?),
        };
        let (Some(first), Some(second)) = (shape(a), shape(b)) else { return Err(at.unknown_form("tensor1")) };
        let rank = first.len().max(second.len());
        let extent = |of: &[usize], axis: usize| (axis + of.len()).checked_sub(rank).map_or(1, |place| of[place]);
        let shape = (0..rank).map(|axis| extent(&first, axis).max(extent(&second, axis))).collect();
        let value = self.new_value(Seen::Unsaid("it is computed here"));
        let product = Made { value, shape, dtype: made.dtype.clone() };
        self.calls(at, "torch.mul", vec![a.clone(), b.clone()], IndexMap::new(), &product)?;
        self.calls(at, "torch.add", vec![sum.clone(), Argument::Value(value)], IndexMap::new(), made)
    }

    pub(crate) fn conv_transpose(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let (name, shape) = self.weight(at, 1)?;
        let [_, out, kh, kw] = shape[..] else { return Err(at.unknown_form("weight")) };
        let bias = self.bias(at, 2, &name)?;
        let stride = Pair(at.pair(3, "stride", Some([1, 1]))?);
        let pad = at.padding(4, "padding")?;
        // Rows and columns that stay at the end, instead of going away.
        let [more, beside] = at.pair(5, "output_padding", Some([0, 0]))?;
        let Padding([top, bottom, left, right]) = pad;
        let (Some(bottom), Some(right)) = (bottom.checked_sub(more), right.checked_sub(beside)) else {
            return Err(at.refuse(
                format!("its output_padding {:?} is larger than its padding {:?}", [more, beside], [bottom, right]),
                "`conv_transpose` takes rows and columns away from the output, and adds none",
            ));
        };
        let pad = Padding([top, bottom, left, right]);
        let groups = at.size(6, "groups", Some(1))?;
        at.only("groups", groups, 1)?;
        let dilation = at.pair(7, "dilation", Some([1, 1]))?;
        at.only("dilation", dilation, [1, 1])?;
        let (out, kernel, init) = (Size(out), Pair([kh, kw]), WeightInit::default());
        let layer = zoo::ConvTranspose { out, kernel, stride, pad, bias, init };
        self.layer(at, Layer::ConvTranspose(layer), x, Some(name))
    }

    pub(crate) fn linear(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.with_sides(at)?.is_some() {
            return Ok(());
        }
        let input = at.input();
        let (name, shape, weight_norm) = self.weight_or_normed(at, 1)?;
        let [out, _] = shape[..] else { return Err(at.unknown_form("weight")) };
        let (x, views) = self.rows(at, input, Some(out))?;
        let shape = self.widened(x, out);
        if let Some((layer, own)) = self.unembed(at, &name)? {
            return self.gives_viewed(at, What::Layer(Word::of(&layer)), vec![x], own, shape, views);
        }
        let given = at.argument(2, &["bias"]);
        let (bias, bias_of) = match self.parts_of_bias(given, &name) {
            Some(parts) => (true, parts),
            None => (self.bias(at, 2, &name)?, Vec::new()),
        };
        let (init, functional) = (WeightInit::default(), name != at.module);
        let layer = zoo::Linear { out: Size(out), bias, bias_of, transposed: false, functional, weight_norm, init };
        self.gives_viewed(at, What::Layer(Word::of(&Layer::Linear(layer))), vec![x], Some(name), shape, views)
    }

    /// bias + x weight, of a weight `[in, out]` and rows `[.., in]` that are one axis.
    pub(crate) fn addmm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (beta, alpha) = (at.float(NAMED, "beta", 1.0)?, at.float(NAMED, "alpha", 1.0)?);
        at.only("beta", beta, 1.0)?;
        at.only("alpha", alpha, 1.0)?;
        let rows = at.argument(1, &["mat1"]);
        let weight = at.argument(2, &["mat2"]);
        let (name, shape) = self.parameter(at, weight, "weight")?;
        let [inputs, out] = shape[..] else { return Err(at.unknown_form("mat2")) };
        if at.input() != Some(&Argument::Parameter(format!("{name}.bias"))) {
            return Err(
                at.refuse("its bias is computed, or belongs to another module", "a layer's bias is `<name>.bias`")
            );
        }
        let (x, views) = self.rows(at, rows, Some(out))?;
        if self.shape_of(x).last() != Some(&inputs) {
            return Err(at.unknown_form("mat1"));
        }
        let shape = self.widened(x, out);
        let init = WeightInit::default();
        let layer = zoo::Linear {
            out: Size(out),
            bias: true,
            bias_of: Vec::new(),
            transposed: true,
            functional: false,
            weight_norm: None,
            init,
        };
        let what = What::Layer(Word::of(&Layer::Linear(layer)));
        self.gives_viewed(at, what, vec![x], Some(name), shape, views)
    }

    /// A learned slope of negative numbers, for each channel or one for all.
    pub(crate) fn prelu(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let (name, shape) = self.weight(at, 1)?;
        let start = self.trace.parameters.get(&format!("{name}.weight")).and_then(|own| own.start).unwrap_or(0.25);
        // One channel has one slope either way.
        let shared = shape == [1] && self.shape_of(x).get(1) != Some(&1);
        self.layer(at, Layer::Prelu(zoo::Prelu { shared, start }), x, Some(name))
    }

    /// Of maps `[n, c, h, w]`, signals `[n, c, length]` or rows `[n, c]`; rows of samples and tokens that are one axis
    /// are signals.
    pub(crate) fn batch_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if self.standardised(at)?.is_some() {
            return Ok(());
        }
        let input = at.input();
        let (x, views) = self.rows(at, input, None)?;
        let (name, _) = self.weight(at, 3)?;
        if !self.bias(at, 4, &name)? {
            return Err(at.refuse("it has a scale and no shift", "`bn` has both"));
        }
        for (place, leaf) in [(1, "running_mean"), (2, "running_var")] {
            if at.argument(place, &[leaf]) != Some(&Argument::Buffer(format!("{name}.{leaf}"))) {
                return Err(at.refuse(
                    "it keeps no running statistics",
                    "`bn` keeps them; `instance_norm` and `group_norm` have none",
                ));
            }
        }
        let of_batch = at.flag(5, "training", false)?;
        self.check_statistics(at, of_batch)?;
        let (momentum, eps) = (at.float(6, "momentum", 0.1)?, at.float(7, "eps", 1e-5)?);
        let what = What::Layer(Word::of(&Layer::Bn(zoo::Bn { eps, momentum, init: BnInit::default() })));
        let shape = self.shape_of(x).to_vec();
        if views.is_empty() {
            return self.gives_viewed(at, what, vec![x], Some(name), shape, views);
        }
        let last = shape.len() - 1;
        let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
        let back: Vec<usize> = std::iter::once(0).chain(2..=last).chain([1]).collect();
        let x = self.view(at, x, vec![View::Permute(order)])?;
        let shape = self.shape_of(x).to_vec();
        let views = [&[View::Permute(back)], &views[..]].concat();
        self.gives_viewed(at, what, vec![x], Some(name), shape, views)
    }

    pub(crate) fn layer_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let Some(Argument::Value(value)) = at.input() else { return Err(at.unknown_form("input")) };
        if at.argument(2, &["weight"]).is_none() && at.argument(3, &["bias"]).is_none() {
            let rows = at.numbers(1, "normalized_shape")?;
            if rows.len() != 1 {
                return Err(at.refuse("it normalises several axes without a scale", "`layer_norm` has a scale"));
            }
            let eps = at.float(4, "eps", 1e-5)?;
            return self.formula(at, normalised(eps));
        }
        let (name, shape) = self.weight(at, 2)?;
        let rows = at.numbers(1, "normalized_shape")?;
        if !rows.iter().map(|extent| usize::try_from(*extent).ok()).eq(shape.iter().map(|extent| Some(*extent))) {
            return Err(at.unknown_form("normalized_shape"));
        }
        let bias = self.bias(at, 3, &name)?;
        let eps = at.float(4, "eps", 1e-5)?;
        // [n, c, h, w] viewed as [n, h, w, c]: the channels of each pixel are normalised.
        if let Some(Seen::Of(base, views)) = self.seen(*value)
            && views[..] == [View::Permute(vec![0, 2, 3, 1])]
            && shape.len() == 1
            && name == at.module
        {
            let (base, views) = (*base, views.clone());
            let layer = zoo::LayerNorm { axes: Size(1), channels_first: true, bias, eps, init: BnInit::default() };
            let what = What::Layer(Word::of(&Layer::LayerNorm(layer)));
            let maps = self.shape_of(base).to_vec();
            return self.gives_viewed(at, what, vec![base], Some(name), maps, views);
        }
        let (axes, init) = (Size(shape.len().max(1)), BnInit::default());
        let layer = Layer::LayerNorm(zoo::LayerNorm { axes, channels_first: false, bias, eps, init });
        let input = at.input();
        let (x, views) = self.rows(at, input, None)?;
        let shape = self.shape_of(x).to_vec();
        self.gives_viewed(at, What::Layer(Word::of(&layer)), vec![x], Some(name), shape, views)
    }

    pub(crate) fn group_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let groups = Size(at.size(1, "num_groups", None)?);
        let (name, _) = self.weight(at, 2)?;
        let bias = self.bias(at, 3, &name)?;
        let eps = at.float(4, "eps", 1e-5)?;
        self.layer(at, Layer::GroupNorm(zoo::GroupNorm { groups, eps, bias, init: BnInit::default() }), x, Some(name))
    }

    pub(crate) fn rms_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.first(at)?;
        let (name, shape) = self.weight(at, 2)?;
        if at.numbers(1, "normalized_shape")?.len() != 1 || shape.len() != 1 {
            return Err(at.refuse("it normalises several axes", "`rms_norm` normalises the last one"));
        }
        let Some(Argument::Float(eps)) = at.argument(3, &["eps"]) else {
            return Err(at.refuse("its eps depends on the data type", "write its eps: `rms_norm: {eps: 1e-6}`"));
        };
        self.rms_norm_of(at, (*eps, 0.0), x, name)
    }

    pub(crate) fn instance_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        for (place, key) in [(1, "running_mean"), (2, "running_var"), (3, "weight"), (4, "bias")] {
            if at.argument(place, &[key]).is_some() {
                return Err(
                    at.refuse(format!("it has `{key}`"), "`instance_norm` has neither parameters nor statistics")
                );
            }
        }
        // Without running statistics, an instance is normalised with its own statistics, and momentum has no effect.
        at.argument(5, &["use_input_stats"]);
        at.argument(6, &["momentum"]);
        let eps = at.float(7, "eps", 1e-5)?;
        self.layer(at, Layer::InstanceNorm(zoo::InstanceNorm { eps }), x, None)
    }

    pub(crate) fn lrn(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let size = Size(at.size(1, "size", None)?);
        let (alpha, beta, k) = (at.float(2, "alpha", 1e-4)?, at.float(3, "beta", 0.75)?, at.float(4, "k", 1.0)?);
        self.layer(at, Layer::Lrn(zoo::Lrn { size, alpha, beta, k }), x, None)
    }

    /// The module with a weight, and the shape of the weight.
    pub(crate) fn weight(&self, at: &mut At<'_>, place: usize) -> Result<(String, Vec<usize>), Refusal> {
        let argument = at.argument(place, &["weight"]);
        self.parameter(at, argument, "weight")
    }

    /// As [`Self::weight`], for a weight that may be a direction times a length.
    fn weight_or_normed(
        &self,
        at: &mut At<'_>,
        place: usize,
    ) -> Result<(String, Vec<usize>, Option<WeightNorm>), Refusal> {
        let argument = at.argument(place, &["weight"]);
        if let Some(Computed::Normed(owner, norm)) = self.computed(argument) {
            let [_, directions] = norm.names();
            let shape = self.trace.shape(&format!("{owner}.{directions}")).to_vec();
            return Ok((owner.clone(), shape, Some(*norm)));
        }
        self.weight(at, place).map(|(name, shape)| (name, shape, None))
    }

    /// Directions, divided by their lengths, times others.
    pub(crate) fn weight_norm(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (directions, lengths) = (at.input(), at.argument(1, &["g"]));
        let axis = at.argument(2, &["dim"]).and_then(Argument::int);
        let found = [WeightNorm::Parametrized, WeightNorm::Hooked].into_iter().find_map(|norm| {
            let [of_lengths, of_directions] = norm.names();
            let owner = |argument: Option<&Argument>, leaf: &str| match argument {
                Some(Argument::Parameter(name)) => Some(name.strip_suffix(leaf)?.strip_suffix('.')?.to_owned()),
                _ => None,
            };
            let own = owner(lengths, of_lengths)?;
            (owner(directions, of_directions).as_ref() == Some(&own)).then_some((own, norm))
        });
        match (found, axis) {
            (Some((owner, norm)), Some(0)) => self.is_computed(at, Computed::Normed(owner, norm)),
            _ => Err(at.refuse(
                "it divides a weight by lengths along another axis than the first",
                "`weight_norm` has a length for each output",
            )),
        }
    }

    /// The module with a parameter, and the shape of the parameter.
    pub(crate) fn parameter(
        &self,
        at: &At<'_>,
        argument: Option<&Argument>,
        leaf: &str,
    ) -> Result<(String, Vec<usize>), Refusal> {
        match argument {
            Some(Argument::Parameter(name)) => match name.strip_suffix(leaf).and_then(|rest| rest.strip_suffix('.')) {
                Some(owner) if !owner.is_empty() => Ok((owner.to_owned(), self.trace.shape(name).to_vec())),
                Some(_) | None => Err(at.refuse(
                    format!("its {leaf} is the parameter `{name}`"),
                    format!("layers have a parameter `<name>.{leaf}`"),
                )),
            },
            None => Err(at.refuse(format!("it has no {leaf}"), "the layer has one")),
            Some(_) => Err(at.refuse(
                format!("its {leaf} is computed"),
                "parameters are trained directly: weight standardisation is not supported",
            )),
        }
    }

    /// Whether there is a bias that belongs to the same module.
    fn bias(&self, at: &mut At<'_>, place: usize, owner: &str) -> Result<bool, Refusal> {
        match at.argument(place, &["bias"]) {
            None => Ok(false),
            Some(Argument::Parameter(name)) if *name == format!("{owner}.bias") => Ok(true),
            Some(_) => {
                Err(at.refuse("its bias is computed, or belongs to another module", "a layer's bias is `<name>.bias`"))
            }
        }
    }
}
