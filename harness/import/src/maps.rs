//! Functions that change height and width of maps: pooling, padding, cropping, resizing.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{Padding, Pair, Size};

use crate::Refusal;
use crate::arguments::{At, Window, wrapped};
use crate::cosine::Computed;
use crate::operation::{Tensor, What};
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::{Word, number};

impl Reader<'_> {
    pub(crate) fn max_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let around = match self.computed(input) {
            Some(Computed::Surrounded(of, sides)) => Some((*of, *sides)),
            _ => None,
        };
        let x = match around {
            Some((of, _)) => of,
            None => self.pooled(at)?,
        };
        let mut window = self.window(at, x)?;
        if let Some((_, Padding(sides))) = around {
            let (_, _, Padding(own)) = &mut window;
            own.iter_mut().zip(sides).for_each(|(own, side)| *own += side);
        }
        let dilation = at.pair(4, "dilation", Some([1, 1]))?;
        at.only("dilation", dilation, [1, 1])?;
        let ceil_mode = at.flag(5, "ceil_mode", false)?;
        let (kernel, stride, pad) = self.inside_map(x, window, ceil_mode);
        let gives_indices = at.flag(6, "return_indices", false)?;
        at.only("return_indices", gives_indices, false)?;
        self.layer(at, Layer::MaxPool(zoo::MaxPool { kernel, stride, pad, ceil_mode }), x, None)
    }

    pub(crate) fn avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.pooled(at)?;
        let window = self.window(at, x)?;
        let ceil_mode = at.flag(4, "ceil_mode", false)?;
        let (kernel, stride, pad) = self.inside_map(x, window, ceil_mode);
        let count_include_pad = at.flag(5, "count_include_pad", true)?;
        if at.argument(6, &["divisor_override"]).is_some() {
            return Err(at.refuse(
                "it divides by a given number",
                "`avg_pool` divides by the number of pixels; `scale` multiplies",
            ));
        }
        // Whether zeros count only matters if there is padding.
        let count_include_pad = count_include_pad || pad == Padding::default();
        let layer = zoo::AvgPool { kernel, stride, pad, ceil_mode, count_include_pad };
        self.layer(at, Layer::AvgPool(layer), x, None)
    }

    /// The window of a pool; that of `[n, c, length]` is one of maps of height 1.
    fn window(&self, at: &mut At<'_>, x: Tensor) -> Result<Window, Refusal> {
        let (Pair([height, width]), stride, Padding([top, bottom, left, right])) = at.window()?;
        match self.shape_of(x).len() {
            3 => {
                let stride = stride.map(|Pair([_, across])| Pair([1, across]));
                Ok((Pair([1, width]), stride, Padding([0, 0, left, right])))
            }
            _ => Ok((Pair([height, width]), stride, Padding([top, bottom, left, right]))),
        }
    }

    /// With `ceil_mode`, a window may be larger than the map, of which it sees all: the same as a window of its size.
    fn inside_map(&self, x: Tensor, window: Window, ceil_mode: bool) -> Window {
        let (Pair(kernel), stride, pad) = window;
        let [height, width] = self.map_of(x);
        let own: Vec<usize> = kernel.iter().zip(&[height, width]).map(|(size, extent)| *size.min(extent)).collect();
        match (own[..] == kernel, &own[..]) {
            (false, [height, width]) if ceil_mode && pad == Padding::default() => {
                (Pair([*height, *width]), stride.or(Some(Pair(kernel))), pad)
            }
            _ => (Pair(kernel), stride, pad),
        }
    }

    pub(crate) fn adaptive_avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.pooled(at)?;
        let [h, w] = map_of(&at.made()?.shape);
        at.told_by_the_result();
        let layer = match [h, w] {
            [1, 1] => Layer::GlobalAvgPool(zoo::GlobalAvgPool {}),
            out => Layer::AdaptiveAvgPool(zoo::AdaptiveAvgPool { out: Pair(out) }),
        };
        self.layer(at, layer, x, None)
    }

    /// A pool whose windows are equal parts of the map.
    pub(crate) fn adaptive_max_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.pooled(at)?;
        at.argument(1, &["output_size"]);
        let gives_indices = at.flag(2, "return_indices", false)?;
        at.only("return_indices", gives_indices, false)?;
        let (map, out) = (self.map_of(x), map_of(&at.made()?.shape));
        let parts: Vec<usize> = map
            .iter()
            .zip(out)
            .filter(|(extent, parts)| extent.is_multiple_of(*parts))
            .map(|(extent, parts)| extent / parts)
            .collect();
        let [height, width] = parts[..] else {
            return Err(at.refuse(
                format!("it divides a map of {map:?} into {out:?} parts of unequal sizes"),
                "`max_pool` has windows of one size",
            ));
        };
        let layer =
            zoo::MaxPool { kernel: Pair([height, width]), stride: None, pad: Padding::default(), ceil_mode: false };
        self.layer(at, Layer::MaxPool(layer), x, None)
    }

    /// The largest elements along an axis: a pool, whose gradient goes to one of them.
    pub(crate) fn maximum(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (input, made) = (at.input(), at.made()?);
        if !matches!(at.argument(1, &["dim", "axis", "other"]), None | Some(Argument::Int(_))) {
            return self.larger(at);
        }
        let Some(shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        if self.scores(input).is_some() {
            return self.larger(at);
        }
        let rank = shape.len();
        if at.argument(1, &["dim", "axis"]).is_none() {
            return Err(
                at.refuse("it takes the largest element of all samples", "`max_pool` takes those of each sample")
            );
        }
        let axis = at.axis(1, &["dim", "axis"], rank)?;
        at.flag(2, "keepdim", false)?;
        if axis == 0 {
            return Err(at.refuse("it combines samples: axis 0", "layers work on each sample separately"));
        }
        for indices in at.call.outputs.values().skip(1) {
            self.is(indices.value, Seen::Unsaid("it uses the places of the largest elements"));
        }
        // The axis is that of the width of one map, of which the others are channels and height.
        let order: Vec<usize> = (0..rank).filter(|other| *other != axis).chain([axis]).collect();
        let rest: Vec<usize> = order[1..rank - 1].iter().map(|axis| shape[*axis]).collect();
        let rows: usize = rest.iter().product();
        let together = vec![shape[0], rows, shape[axis]];
        let x = self.operand_viewed(at, input, &[View::Permute(order), View::Reshape(together)])?;
        let kernel = Pair([1, shape[axis]]);
        let layer = zoo::MaxPool { kernel, stride: None, pad: Padding::default(), ceil_mode: false };
        let what = What::Layer(Word::of(&Layer::MaxPool(layer)));
        self.gives_viewed(at, what, vec![x], None, vec![shape[0], rows, 1], vec![View::Reshape(made.shape.clone())])
    }

    /// Height and width of a map; a signal has the height 1.
    fn map_of(&self, x: Tensor) -> [usize; 2] {
        map_of(self.shape_of(x))
    }

    pub(crate) fn mean(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let Some(shape) = input.and_then(|input| self.shape(input.value()?)) else {
            return Err(at.unknown_form("input"));
        };
        let axes = match at.argument(1, &["dim", "axis"]) {
            Some(Argument::List(axes)) => axes.iter().map(Argument::int).collect(),
            Some(axis) => axis.int().map(|axis| vec![axis]),
            None => Some((0..).zip(&shape).map(|(axis, _)| axis).collect()),
        };
        let axes: Option<Vec<usize>> =
            axes.and_then(|axes| axes.into_iter().map(|axis| wrapped(axis, shape.len())).collect());
        let Some(mut axes) = axes else { return Err(at.unknown_form("dim")) };
        axes.sort_unstable();
        let keeps_axes = at.flag(2, "keepdim", false)?;
        // `global_avg_pool` reads maps, [n, c, h, w]; tokens become maps of width 1.
        let (n, c, views) = match (&shape[..], &axes[..]) {
            ([n, c, _, _], [2, 3]) => (n, c, Vec::new()),
            ([n, _, _, c], [1, 2]) => (n, c, vec![View::Permute(vec![0, 3, 1, 2])]),
            ([n, t, c], [1]) => (n, c, vec![View::Permute(vec![0, 2, 1]), View::Reshape(vec![*n, *c, *t, 1])]),
            _ => return self.folded(at, "row_mean(x)"),
        };
        let x = self.operand_viewed(at, input, &views)?;
        let what = What::Layer(Word::of(&Layer::GlobalAvgPool(zoo::GlobalAvgPool {})));
        let views = match (keeps_axes, shape.len(), axes[0]) {
            (true, 4, 2) => Vec::new(),
            (true, 4, _) => vec![View::Permute(vec![0, 2, 3, 1])],
            (true, ..) => vec![View::Reshape(vec![*n, 1, *c])],
            (false, ..) => vec![View::Reshape(vec![*n, *c])],
        };
        self.gives_viewed(at, what, vec![x], None, vec![*n, *c, 1, 1], views)
    }

    pub(crate) fn pad(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let mode = match at.argument(2, &["mode"]) {
            None => Some(zoo::PadMode::Zeros),
            Some(Argument::Text(mode)) if mode == "constant" => Some(zoo::PadMode::Zeros),
            Some(Argument::Text(mode)) if mode == "reflect" => Some(zoo::PadMode::Reflect),
            Some(_) => None,
        };
        let value = at.argument(3, &["value"]);
        let is_least = matches!(value, Some(Argument::Other(text)) if text == "-inf");
        let value = if is_least { f64::NEG_INFINITY } else { value.and_then(Argument::number).unwrap_or(0.0) };
        let Some(mode) = mode.filter(|mode| value == 0.0 || *mode == zoo::PadMode::Zeros) else {
            return Err(at.refuse("it pads in another way", "`pad` adds zeros or a number, or mirrors the map"));
        };
        let sides = at.numbers(1, "pad")?;
        let made = at.made()?;
        // To a size that the map has; as a module, it is one of the network's.
        let is_function = self.trace.modules.get(at.module).is_none_or(|module| module.source.is_some());
        if is_function && sides.iter().all(|side| *side == 0) {
            return self.viewed(at, made, Vec::new());
        }
        // Channels last, with zeros below and on the right: part of what cuts a map into windows.
        if mode == zoo::PadMode::Zeros
            && value == 0.0
            && let ([0, 0, 0, right, 0, bottom], [_, _, _, _]) = (&sides[..], &made.shape[..])
            && let (Ok(right), Ok(bottom)) = (usize::try_from(*right), usize::try_from(*bottom))
        {
            return self.viewed(at, made, vec![View::Fill(vec![0, bottom, right, 0])]);
        }
        let mut x = self.maps(at)?;
        let [left, right, top, bottom] = match sides[..] {
            [left, right] => [left, right, 0, 0],
            [left, right, top, bottom] => [left, right, top, bottom],
            _ => return Err(at.refuse("it pads axes other than height and width", "`pad` works on height and width")),
        };
        let size = |side: i64| usize::try_from(side).unwrap_or(0);
        let sides = [top, bottom, left, right];
        let (cut, sides) = (sides.map(|side| size(side.saturating_neg())), sides.map(size));
        if cut != [0; 4] {
            // Margins with a negative width are taken away first.
            let &[_, _, height, width] = self.shape_of(x) else { return Err(at.unknown_form("input")) };
            let [Some(rows), Some(columns)] =
                [height.checked_sub(cut[0].saturating_add(cut[1])), width.checked_sub(cut[2].saturating_add(cut[3]))]
            else {
                return Err(at.unknown_form("pad"));
            };
            x = self.view(at, x, vec![View::Slice(2, cut[0], rows), View::Slice(3, cut[2], columns)])?;
        }
        if is_least {
            return self.is_computed(at, Computed::Surrounded(x, Padding(sides)));
        }
        let layer = Layer::Pad(zoo::Pad { size: Padding(sides), mode });
        if value == 0.0 {
            return self.layer(at, layer, x, None);
        }
        // Zeros around what is that much less.
        let (shape, sum) = (self.shape_of(x).to_vec(), |by: f64| match by < 0.0 {
            true => What::Layer(Word::formula(format!("x - {}", number(-by)))),
            false => What::Layer(Word::formula(format!("x + {}", number(by)))),
        });
        let less = self.inner(at, sum(-value), vec![x], shape);
        let padded = self.inner(at, What::Layer(Word::of(&layer)), vec![less], made.shape.clone());
        self.gives(at, sum(value), vec![padded], None)
    }

    pub(crate) fn pixel_shuffle(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let by = at.size(1, "upscale_factor", None)?;
        let &[n, c, h, w] = self.shape_of(x) else { return Err(at.unknown_form("input")) };
        let square = by.checked_mul(by).filter(|square| *square > 0 && c.is_multiple_of(*square));
        let Some(square) = square else { return Err(at.unknown_form("upscale_factor")) };
        let what = What::Layer(Word::of(&Layer::PixelShuffle(zoo::PixelShuffle { by: Size(by) })));
        let [h, w] = [h, w].map(|extent| extent.saturating_mul(by));
        self.gives_viewed(at, what, vec![x], None, vec![n, c / square, h, w], Vec::new())
    }

    pub(crate) fn channel_shuffle(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let groups = Size(at.size(1, "groups", None)?);
        self.layer(at, Layer::ChannelShuffle(zoo::ChannelShuffle { groups }), x, None)
    }

    pub(crate) fn interpolate(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let mode = match at.argument(3, &["mode"]) {
            None => zoo::UpsampleMode::Nearest,
            Some(Argument::Text(mode)) if mode == "nearest" => zoo::UpsampleMode::Nearest,
            Some(Argument::Text(mode)) if mode == "bilinear" => zoo::UpsampleMode::Bilinear,
            Some(_) => return Err(at.refuse("this mode of interpolation", "`upsample` has nearest and bilinear")),
        };
        let align_corners = at.flag(4, "align_corners", false)?;
        if at.flag(6, "antialias", false)? {
            return Err(at.refuse("it applies a filter before sampling (`antialias`)", "`upsample` has no filter"));
        }
        let ([_, _, h, w], [_, _, from_h, from_w]) = (&at.made()?.shape[..], self.shape_of(x)) else {
            return Err(at.unknown_form("size"));
        };
        let (size, from) = ([*h, *w], [*from_h, *from_w]);
        // The result determines the size.
        at.argument(1, &["size"]);
        let recomputes = at.flag(5, "recompute_scale_factor", false)?;
        if let Some(scale) = at.argument(2, &["scale_factor"])
            && !recomputes
            && !align_corners
        {
            // PyTorch uses the given scale for pixel positions, but `upsample` uses the quotient of the sizes.
            let scales = match scale {
                Argument::List(scales) => scales.iter().map(Argument::number).collect(),
                one => vec![one.number(); 2],
            };
            let is_quotient = |((by, from), to): ((&Option<f64>, &usize), &usize)| {
                by.is_some_and(|by| *from as f64 * by == *to as f64)
            };
            if scales.len() != 2 || !scales.iter().zip(&from).zip(&size).all(is_quotient) {
                return Err(at.refuse(
                    format!("its scale is not the quotient of the sizes {size:?} and {from:?}"),
                    "`upsample` takes the quotient, as `recompute_scale_factor=True` does",
                ));
            }
        }
        let layer = resized(zoo::Upsample { scale: None, like: None, size: None, mode, align_corners }, from, size);
        self.layer(at, Layer::Upsample(layer), x, None)
    }
}

/// Height and width of a map; a signal has the height 1.
fn map_of(shape: &[usize]) -> [usize; 2] {
    match *shape {
        [_, _, height, width] => [height, width],
        [.., length] => [1, length],
        [] => [1, 1],
    }
}

/// A layer that resizes maps of one height and width to another: by a factor, where that is a whole number.
pub(crate) fn resized(layer: zoo::Upsample, from: [usize; 2], to: [usize; 2]) -> zoo::Upsample {
    let is_multiple = (0..2).all(|axis| from[axis] > 0 && to[axis].is_multiple_of(from[axis]));
    let factor = is_multiple.then(|| Pair([to[0] / from[0], to[1] / from[1]]));
    zoo::Upsample { scale: factor, like: None, size: factor.is_none().then_some(Pair(to)), ..layer }
}
