//! Splits a map into windows of tokens.

use zoo_graph::{GraphError, TensorType, ValueId, formula::Formula, ops};

use super::resolve::Place;
use super::roll::rolled;
use super::{Body, Description, Module, Word, window};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Count, Pair};

zoo_settings::settings! {
    /// Applies layers to each window of a map. The input `[H, W, C]` is cut into windows, the layers inside process
    /// `[windows, T, C]` with the pixels of a window as T tokens, and their output is turned back into a map (shifted
    /// windows, arXiv 2103.14030; torchvision's shifted_window_attention). If the size of the map is not a multiple of
    /// the window, it is padded with zeros at the bottom and on the right, which are removed afterwards.
    pub struct Windows {
        /// Height and width of a window.
        pub size: Pair,
        /// Shift of the windows in rows and columns; pixels at the top and left edge wrap around to windows at the
        /// bottom and right edge. Along an axis with a single window there is no shift.
        pub shift: Count = Count::default(),
        /// Name of a tap for the layers inside, with the number of the region of each token, for `segments` of
        /// attention. Tokens that share a window only because of the shift have different numbers.
        pub segments?: String,
        /// The layers.
        #[schemars(length(min = 1))]
        pub body: Body,
    }
}

/// A map as its windows are cut.
struct Grid {
    /// Height and width of the map, filled up.
    map: [usize; 2],
    window: [usize; 2],
    /// By how much the first window begins later.
    shift: [usize; 2],
}

impl Grid {
    /// `[n, H, W, c]` as `[n, windows, T, c]`.
    fn cut(&self, at: &mut Builder<'_, '_>, part: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let (n, c) = (at.shape(x)[0], at.shape(x)[3]);
        let ([h, w], [rows, columns]) = (self.window, self.count());
        let apart = ops::Reshape { shape: [n, rows, h, columns, w, c].into() };
        let apart = at.add_part(&format!("{part}_rows_and_columns"), apart, &[x])?;
        let windows = at.transposed(&format!("{part}_windows"), &[0, 1, 3, 2, 4, 5], apart)?;
        at.add_part(part, ops::Reshape { shape: [n, rows * columns, h * w, c].into() }, &[windows])
    }

    /// The reverse of [`Self::cut`].
    fn joined(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let ([h, w], [rows, columns]) = (self.window, self.count());
        let shape = at.shape(x).to_vec();
        let [n, windows, tokens, c] = shape[..] else {
            return Err(
                at.refuse(format!("the layers inside windows must give [windows, T, C], not {} axes", shape.len() - 1))
            );
        };
        if [windows, tokens] != [rows * columns, h * w] {
            let message =
                format!("{} windows of {} tokens went in, {windows} of {tokens} came out", rows * columns, h * w);
            return Err(at.refuse(message));
        }
        let apart =
            at.add_part("rows_and_columns", ops::Reshape { shape: [n, rows, columns, h, w, c].into() }, &[x])?;
        let together = at.transposed("together", &[0, 1, 3, 2, 4, 5], apart)?;
        let [height, width] = self.map;
        at.add_part("map", ops::Reshape { shape: [n, height, width, c].into() }, &[together])
    }

    /// Windows per column and per row.
    fn count(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.map[axis] / self.window[axis])
    }

    /// By token of each window, the number of its part of the map, `[1, windows, T]`.
    fn segments(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let dtype = at.graph().ty(x).dtype;
        let [rows, columns] = self.count();
        let tokens = [1, rows * columns, self.window.iter().product()];
        if self.shift == [0, 0] {
            return at.add_part("segments", ops::Fill { value: 0.0, ty: TensorType::plain(tokens, dtype) }, &[]);
        }
        let [height, width] = self.map;
        let map = ops::Fill { value: 0.0, ty: TensorType::plain([1, height, width, 1], dtype) };
        let map = at.add_part("parts_zeros", map, &[])?;
        // In the moved map, the last window of an axis has rows of the end and, behind them, of the beginning.
        let wrapped = |axis: usize| (self.shift[axis] > 0).then(|| (self.map[axis] - self.shift[axis]) as f64);
        let (down, across) = (wrapped(0), wrapped(1));
        let parts = Formula::define(0, |[zero]| {
            let behind = |axis, first: Option<f64>| first.map_or(zero, |first| zero.coordinate(axis).at_least(first));
            [zero + behind(1, down) * 2.0 + behind(2, across)]
        });
        let parts = at.unnamed_part("parts", parts, &[map])?;
        let cut = self.cut(at, "segments_of_windows", parts)?;
        at.add_part("segments", ops::Reshape { shape: tokens.into() }, &[cut])
    }
}

/// In Python.
const WINDOWS: &str = r#"
def window_shifts(shape: torch.Size, size: tuple[int, int], shift: int) -> list[int]:
    """The shift of each axis: none along an axis with a single window."""
    return [shift % window if extent > window else 0 for extent, window in zip(shape[1:3], size, strict=True)]


def cut_windows(x: Tensor, size: tuple[int, int], shift: int) -> Tensor:
    """`[N, H, W, C]` as windows of tokens, `[N, windows, T, C]`, shifted and filled up with zeros."""
    shifts = window_shifts(x.shape, size, shift)
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % size[1], 0, -x.shape[1] % size[0]))
    x = torch.roll(x, [-by for by in shifts], (1, 2))
    x = x.unflatten(2, (-1, size[1])).unflatten(1, (-1, size[0]))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def join_windows(windows: Tensor, shape: torch.Size, size: tuple[int, int], shift: int) -> Tensor:
    """The reverse of `cut_windows`, for a map of this shape."""
    rows, columns = (-(-extent // window) for extent, window in zip(shape[1:3], size, strict=True))
    x = windows.unflatten(2, size).unflatten(1, (rows, columns)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    x = torch.roll(x, window_shifts(shape, size, shift), (1, 2))
    return x[:, : shape[1], : shape[2]]


def window_segments(x: Tensor, size: tuple[int, int], shift: int) -> Tensor:
    """By token of each window, the number of its part of the map: a shift brings parts together."""
    shifts = window_shifts(x.shape, size, shift)
    extents = [-(-extent // window) * window for extent, window in zip(x.shape[1:3], size, strict=True)]
    wrapped = [torch.arange(extent) >= extent - by for extent, by in zip(extents, shifts, strict=True)]
    parts = wrapped[0][:, None] * 2 + wrapped[1][None, :] * 1
    parts = parts.to(x.device).unflatten(1, (-1, size[1])).unflatten(0, (-1, size[0]))
    return parts.transpose(1, 2).flatten(2, 3).flatten(0, 1).unsqueeze(0)
"#;

impl Word for Windows {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if let Some(tap) = &mut self.segments {
            *tap = at.new_tap(tap)?;
        }
        at.layers("body", &mut self.body);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let Some([n, height, width, _]) = at.shape(x).nchw() else {
            return Err(at.refuse(format!("expected [H, W, C] to cut windows; this value has {} axes", at.rank(x))));
        };
        let (extents, window) = ([height, width], self.size.0);
        let map = [0, 1].map(|axis| extents[axis].div_ceil(window[axis]) * window[axis]);
        let shift = [0, 1].map(|axis| if map[axis] > window[axis] { self.shift.0 % window[axis] } else { 0 });
        let grid = Grid { map, window, shift };
        let mut y = x;
        if map != extents {
            let after = vec![0, map[0] - height, map[1] - width, 0];
            y = at.add_part("fill_up", ops::Pad { before: vec![0; 4], after }, &[y])?;
        }
        for axis in [0, 1].into_iter().filter(|axis| shift[*axis] > 0) {
            y = rolled(at, &format!("shift_{axis}"), axis + 1, map[axis] - shift[axis], y)?;
        }
        if let Some(tap) = &self.segments {
            let segments = grid.segments(at, x)?;
            at.keep(tap, segments);
        }
        let windows = grid.cut(at, "windows", y)?;
        let windows = self.body.lower(at, windows)?;
        let mut y = grid.joined(at, windows)?;
        for axis in [0, 1].into_iter().filter(|axis| shift[*axis] > 0) {
            y = rolled(at, &format!("shift_back_{axis}"), axis + 1, shift[axis], y)?;
        }
        if map != extents {
            let size = vec![n, height, width, at.shape(y)[3]];
            y = at.add_part("cut_off", ops::Slice { start: vec![0; 4], size }, &[y])?;
        }
        Ok(y)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let size = window::pair(at, "size", self.size);
        let size = if self.size.0[0] == self.size.0[1] { Code::tuple(vec![size.clone(), size]) } else { size };
        let shift = Code::number(at.size("shift", self.shift.0));
        at.helper(WINDOWS);
        let (x, extents) = (at.x(), at.input().to_vec());
        let [_, height, width, channels] = extents[..] else { return Ok(x) };
        let windows = at.function(Code::applied("cut_windows", x, vec![size.clone(), shift.clone()]));
        let Pair([h, w]) = self.size;
        let count = height.div_ceil(h) * width.div_ceil(w);
        at.shaped(windows, &[1, count, h * w, channels]);
        if let Some(tap) = &self.segments {
            let segments = at.function(Code::applied("window_segments", x, vec![size.clone(), shift.clone()]));
            at.shaped(segments, &[1, count, h * w]);
            at.keep(tap, segments);
        }
        let y = self.body.emit(at.emitter(), windows)?;
        let shape = Code::of(x, ".shape");
        Ok(at.function(Code::applied("join_windows", y, vec![shape, size, shift])))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Row(&self.body.layers)
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.body]
    }
}
