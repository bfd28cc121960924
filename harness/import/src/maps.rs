//! Functions that change height and width of maps: pooling, padding, cropping, resizing.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{Padding, Pair, Size};

use crate::Refusal;
use crate::arguments::{At, Window, wrapped};
use crate::operation::{Tensor, What};
use crate::reader::Reader;
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    pub(crate) fn max_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let window = at.window()?;
        let dilation = at.pair(4, "dilation", Some([1, 1]))?;
        at.only("dilation", dilation, [1, 1])?;
        let ceil_mode = at.flag(5, "ceil_mode", false)?;
        let (kernel, stride, pad) = self.inside_map(x, window, ceil_mode);
        let gives_indices = at.flag(6, "return_indices", false)?;
        at.only("return_indices", gives_indices, false)?;
        self.layer(at, Layer::MaxPool(zoo::MaxPool { kernel, stride, pad, ceil_mode }), x, None)
    }

    pub(crate) fn avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let window = at.window()?;
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

    /// With `ceil_mode`, a window may be larger than the map, of which it sees all: the same as a window of its size.
    fn inside_map(&self, x: Tensor, window: Window, ceil_mode: bool) -> Window {
        let (Pair(kernel), stride, pad) = window;
        let map = self.shape_of(x).get(2..).unwrap_or_default();
        let own: Vec<usize> = kernel.iter().zip(map).map(|(size, extent)| *size.min(extent)).collect();
        match (own[..] == kernel, &own[..]) {
            (false, [height, width]) if ceil_mode && pad == Padding::default() => {
                (Pair([*height, *width]), stride.or(Some(Pair(kernel))), pad)
            }
            _ => (Pair(kernel), stride, pad),
        }
    }

    pub(crate) fn adaptive_avg_pool(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let x = self.maps(at)?;
        let [_, _, h, w] = at.made()?.shape[..] else { return Err(at.unknown_form("output_size")) };
        at.told_by_the_result();
        let layer = match [h, w] {
            [1, 1] => Layer::GlobalAvgPool(zoo::GlobalAvgPool {}),
            out => Layer::AdaptiveAvgPool(zoo::AdaptiveAvgPool { out: Pair(out) }),
        };
        self.layer(at, layer, x, None)
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
            _ => return self.folded(at, "row_mean"),
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
        let value = at.float(3, "value", 0.0)?;
        let Some(mode) = mode.filter(|_| value == 0.0) else {
            return Err(at.refuse("it pads with other values", "`pad` adds zeros, or mirrors the map"));
        };
        let sides = at.numbers(1, "pad")?;
        let made = at.made()?;
        // Channels last, with zeros below and on the right: part of what cuts a map into windows.
        if mode == zoo::PadMode::Zeros
            && let ([0, 0, 0, right, 0, bottom], [_, _, _, _]) = (&sides[..], &made.shape[..])
            && let (Ok(right), Ok(bottom)) = (usize::try_from(*right), usize::try_from(*bottom))
        {
            return self.viewed(at, made, vec![View::Fill(vec![0, bottom, right, 0])]);
        }
        let x = self.maps(at)?;
        let [left, right, top, bottom] = match sides[..] {
            [left, right] => [left, right, 0, 0],
            [left, right, top, bottom] => [left, right, top, bottom],
            _ => return Err(at.refuse("it pads axes other than height and width", "`pad` works on height and width")),
        };
        let sides: Result<Vec<usize>, _> = [top, bottom, left, right].into_iter().map(usize::try_from).collect();
        let Some(sides) = sides.ok().and_then(|sides| sides.try_into().ok()) else {
            return Err(at.refuse("it crops margins", "`crop` cuts the same margin from all sides"));
        };
        self.layer(at, Layer::Pad(zoo::Pad { size: Padding(sides), mode }), x, None)
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
        let layer = zoo::Upsample { scale: None, like: None, size: Some(Pair(size)), mode, align_corners };
        self.layer(at, Layer::Upsample(layer), x, None)
    }
}
