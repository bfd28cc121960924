//! Bounds of convolutions and their gradients, with sums in the order of the fast kernels.
//!
//! `zoo_kernels::conv` sums the products of blocks of 16 channels, tap by tap, in registers, over as many blocks as the
//! cache has room for their weights. Filter gradients sum over about two hundred pixels at a time. Those that use
//! Winograd's algorithm have bounds of their own ([`winograd`]).

use super::{
    Farthest, Machine, Ran, UNIT,
    feature_map::FeatureMap,
    norm,
    product::{COLUMNS, Chain, Results, Sum, arity, sums},
    winograd,
};
use crate::{KernelError, elements::Elements};
use rayon::prelude::*;
use std::ops::Range;
use zoo_graph::ops::Conv2D;
use zoo_kernels::{
    C0, Loops,
    conv::{ConvParams, ConvShape, uses_winograd},
};

/// Largest number of products that are summed in registers. Half as many if the weights of two output channel blocks
/// share the first-level cache.
const TERMS: usize = 512;

/// Number of pixels that a filter gradient sums at a time.
const PIXELS: usize = 200;

/// Outputs at `origin + step * (row, column)` of the destination, and the taps that read the source for them around
/// `pace * (row, column)`.
struct Grid {
    outputs: [usize; 2],
    origin: [usize; 2],
    step: [usize; 2],
    pace: [usize; 2],
    taps: Vec<Tap>,
}

/// A kernel element, and the offset of its source pixel from that of the output.
#[derive(Clone, Copy)]
struct Tap {
    place: usize,
    offset: [isize; 2],
}

impl Grid {
    fn columns(&self, images: usize) -> usize {
        images * self.outputs[0] * self.outputs[1]
    }

    /// Image, row and column of an output.
    fn output(&self, column: usize) -> [usize; 3] {
        let [rows, columns] = self.outputs;
        [column / (rows * columns), column / columns % rows, column % columns]
    }

    /// Index that a tap reads in a source map of this size, relative to the first channel of the group; `None` in the
    /// padding.
    fn source(&self, source: &FeatureMap<'_>, tap: Tap, [image, row, column]: [usize; 3]) -> Option<usize> {
        let [_, _, h, w] = source.dims;
        Some(source.plane(image, 0) + self.reach(0, row, tap, h)? * w + self.reach(1, column, tap, w)?)
    }

    /// Pixel that a tap reads along an axis with `size` pixels; `None` in the padding.
    fn reach(&self, axis: usize, place: usize, tap: Tap, size: usize) -> Option<usize> {
        (place * self.pace[axis]).checked_add_signed(tap.offset[axis]).filter(|at| *at < size)
    }

    /// The part of consecutive places along an axis with `size` pixels for which a tap does not read the padding.
    fn inside(&self, axis: usize, places: Range<usize>, tap: Tap, size: usize) -> Range<usize> {
        let pace = self.pace[axis] as isize;
        // The first place for which the tap reads `pixel` or a later one.
        let first = |pixel: usize| (pixel as isize - tap.offset[axis] + pace - 1).div_euclid(pace).max(0) as usize;
        let start = first(0).clamp(places.start, places.end);
        start..first(size).clamp(start, places.end)
    }

    /// Divides consecutive outputs into parts of rows: their positions in the run, and the first output of each.
    fn rows_of(&self, run: Range<usize>) -> Vec<(Range<usize>, [usize; 3])> {
        let (start, mut next, mut rows) = (run.start, run.start, Vec::new());
        while next < run.end {
            let place = self.output(next);
            let end = run.end.min(next + self.outputs[1] - place[2]);
            rows.push((next - start..end - start, place));
            next = end;
        }
        rows
    }
}

/// What a tap reads for the columns of a tile.
struct Lanes {
    /// Indices, or [`PADDING`].
    places: [usize; COLUMNS],
    /// The first index, if all are consecutive.
    run: Option<usize>,
}

/// An index outside of any map.
const PADDING: usize = usize::MAX;

impl Lanes {
    fn of(places: [Option<usize>; COLUMNS]) -> Self {
        let neighbours = |first: &usize| (*first..).zip(&places).all(|(next, place)| *place == Some(next));
        Self { run: places[0].filter(neighbours), places: places.map(|place| place.unwrap_or(PADDING)) }
    }
}

/// Lays out the factors of a tile's columns, term by term.
struct LayOut<'a> {
    /// Channel and tap of each term.
    terms: &'a [(usize, usize)],
    /// By tap.
    lanes: &'a [Lanes],
    /// From the first channel of the group.
    values: &'a [f32],
    /// Number of pixels per channel.
    plane: usize,
    out: &'a mut [[f64; COLUMNS]],
}

impl Loops for LayOut<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((channel, tap), out) in self.terms.iter().zip(self.out) {
            let Lanes { places, run } = &self.lanes[*tap];
            let values = &self.values[channel * self.plane..];
            if let Some(values) = run.and_then(|first| values[first..].first_chunk::<COLUMNS>()) {
                for (out, value) in out.iter_mut().zip(values) {
                    *out = f64::from(*value);
                }
            } else {
                for (out, place) in out.iter_mut().zip(places) {
                    *out = values.get(*place).map_or(0.0, |value| f64::from(*value));
                }
            }
        }
    }
}

/// Taps of a convolution, from the top left of a window.
fn taps(op: &Conv2D) -> Vec<Tap> {
    let ([kh, kw], [top, _, left, _], [dh, dw]) = (op.window.kernel, op.window.pad, op.window.dilation);
    let tap = |place: usize| Tap {
        place,
        offset: [(place / kw * dh) as isize - top as isize, (place % kw * dw) as isize - left as isize],
    };
    (0..kh * kw).map(tap).collect()
}

/// For each phase of the stride along an axis of the input: its number of pixels, and the kernel elements that
/// contribute to them with the offset of their output.
fn phases(op: &Conv2D, axis: usize, size: usize) -> Vec<(usize, Vec<(usize, isize)>)> {
    let (stride, pad, dilation) = (op.window.stride[axis], op.window.pad[2 * axis], op.window.dilation[axis]);
    let reach = |phase: usize, element: usize| {
        let distance = (phase + pad) as isize - (element * dilation) as isize;
        (distance % stride as isize == 0).then_some((element, distance / stride as isize))
    };
    let phase = |phase: usize| {
        ((size - phase).div_ceil(stride), (0..op.window.kernel[axis]).filter_map(|e| reach(phase, e)).collect())
    };
    (0..stride.min(size)).map(phase).collect()
}

/// The grids of an input gradient.
fn phase_grids(op: &Conv2D, [h, w]: [usize; 2]) -> Vec<Grid> {
    let (rows, columns) = (phases(op, 0, h), phases(op, 1, w));
    let mut grids = Vec::new();
    for (row, (height, row_taps)) in rows.iter().enumerate() {
        for (column, (width, column_taps)) in columns.iter().enumerate() {
            let tap = |(a, dy): &(usize, isize), (b, dx): &(usize, isize)| Tap {
                place: a * op.window.kernel[1] + b,
                offset: [*dy, *dx],
            };
            let taps = row_taps.iter().flat_map(|row| column_taps.iter().map(move |column| tap(row, column))).collect();
            grids.push(Grid {
                outputs: [*height, *width],
                origin: [row, column],
                step: op.window.stride,
                pace: [1, 1],
                taps,
            });
        }
    }
    grids
}

/// The common part of convolutions and input gradients: each destination channel of a group is a sum over source
/// channels and taps.
struct Correlation<'a, W, L> {
    machine: Machine,
    groups: usize,
    source: FeatureMap<'a>,
    dest: FeatureMap<'a>,
    /// The result of the kernel.
    found: &'a [f32],
    /// The weight for a group, a destination channel and a source channel of the group, and a tap.
    weight: W,
    /// The exact value of an element of a destination channel, from its sum, and its bound.
    of: L,
}

impl<W, L> Correlation<'_, W, L>
where
    W: Fn(usize, [usize; 2], usize) -> f64 + Sync,
    L: Fn(usize, Sum, Chain) -> (f64, f64) + Sync,
{
    fn farthest(&self, grids: &[Grid]) -> Farthest {
        let of_group = |group: usize| {
            let each = grids.iter().map(|grid| self.group(group, grid));
            each.fold(Farthest::NONE, Farthest::or)
        };
        (0..self.groups).into_par_iter().map(of_group).reduce(|| Farthest::NONE, Farthest::or)
    }

    fn group(&self, group: usize, grid: &Grid) -> Farthest {
        let [n, c, h, w] = self.source.dims;
        let [_, d, _, width] = self.dest.dims;
        let (sources, dests) = (c / self.groups, d / self.groups);
        let block = sources.min(C0);
        let blocks = (0..sources).step_by(block).map(|first| first..sources.min(first + block));
        let terms: Vec<(usize, usize)> = blocks
            .flat_map(|block| {
                let channels = move |tap| block.clone().map(move |channel| (channel, tap));
                (0..grid.taps.len()).flat_map(channels)
            })
            .collect();
        let chain = Chain { terms: TERMS.max(block * grid.taps.len()), shorter: 4, fused: self.machine.fused };
        let right = |first: usize, run: Range<usize>, out: &mut [[f64; COLUMNS]]| {
            let columns = COLUMNS.min(grid.columns(n) - first);
            let outputs: [_; COLUMNS] =
                std::array::from_fn(|column| (column < columns).then(|| grid.output(first + column)));
            let of_tap = |tap: &Tap| Lanes::of(outputs.map(|output| grid.source(&self.source, *tap, output?)));
            let lanes: Vec<Lanes> = grid.taps.iter().map(of_tap).collect();
            let values = &self.source.values[group * sources * h * w..];
            self.machine.isa.run(LayOut { terms: &terms[run], lanes: &lanes, values, plane: h * w, out });
        };
        let left = |row: usize, term: usize| {
            let (channel, tap) = terms[term];
            (self.weight)(group, [row, channel], grid.taps[tap].place)
        };
        let column = |column: usize| {
            let [image, i, j] = grid.output(column);
            let (i, j) = (grid.origin[0] + i * grid.step[0], grid.origin[1] + j * grid.step[1]);
            self.dest.plane(image, 0) + i * width + j
        };
        let row = |row: usize| self.dest.plane(0, group * dests + row);
        let results = Results { found: self.found, row, column };
        let of = |row: usize, _: usize, sum: Sum| (self.of)(group * dests + row, sum, chain);
        sums(self.machine.isa, [dests, grid.columns(n), terms.len()], chain, left, right, &results, of)
    }
}

/// Whether the kernel uses Winograd's algorithm for a convolution of this input, or for a gradient of it.
fn is_winograd(machine: Machine, op: &Conv2D, ran: &Ran<'_>, [n, c_in, h, w]: [usize; 4], c_out: usize) -> bool {
    let ([kh, kw], window) = (op.window.kernel, op.window);
    let [stride, dilation] = [window.stride, window.dilation];
    let params = ConvParams { n, c_in, h, w, c_out, kh, kw, stride, pad: window.pad, dilation, groups: op.groups };
    let shape = ConvShape::new(params).ok().filter(|_| !ran.half);
    machine.fast.zip(shape).is_some_and(|(isa, shape)| uses_winograd(isa, &shape, None))
}

/// `conv(x, w) + bias`, with fused operators.
pub(super) fn forward(machine: Machine, op: &Conv2D, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let ([x, w], [y, ..]) = (ran.operands.first_chunk().ok_or(arity(ran))?, found) else { return Err(arity(ran)) };
    let dims = ran.results[0].dims();
    let (opened, filters) = (Elements::of(x)?, Elements::of(w)?);
    let (source, filters) = (FeatureMap::new(x.dims(), opened.slice()?)?, filters.slice::<f32>()?);
    let dest = FeatureMap::new(dims, y)?;
    let bias = ran.operands.get(2).map(Elements::of).transpose()?;
    let bias = bias.as_ref().map(Elements::slice::<f32>).transpose()?;
    let (sources, dests, all) = (source.dims[1] / op.groups, dest.dims[1] / op.groups, op.window.taps());
    // The exact value of an element from its sum, and its bound from that of the sum.
    let finished = |channel: usize, sum: f64, bound: f64| {
        let exact = sum + bias.map_or(0.0, |bias| f64::from(bias[channel]));
        (if op.relu && exact < 0.0 { 0.0 } else { exact }, bound + UNIT * exact.abs())
    };
    let farthest = if is_winograd(machine, op, ran, source.dims, dest.dims[1]) {
        let weight = |row: usize, channel: usize, [a, b]: [usize; 2]| {
            f64::from(filters[(row * sources + channel) * all + a * op.window.kernel[1] + b])
        };
        let pad = [op.window.pad[0], op.window.pad[2]];
        winograd::Correlation { machine, source, pad, dest, found: y, weight, of: finished }.farthest()
    } else {
        let weight = |group: usize, [row, channel]: [usize; 2], tap: usize| {
            f64::from(filters[((group * dests + row) * sources + channel) * all + tap])
        };
        let of = |channel: usize, sum: Sum, chain: Chain| finished(channel, sum.value, chain.bound(sum.squares));
        let pace = op.window.stride;
        let grid = Grid { outputs: [dims[2], dims[3]], origin: [0, 0], step: [1, 1], pace, taps: taps(op) };
        Correlation { machine, groups: op.groups, source, dest, found: y, weight, of }.farthest(&[grid])
    };
    Ok(match found {
        [y, mean, variance] => farthest.or(norm::statistics_in_tiles(machine.isa, dims, y, [mean, variance])),
        _ => farthest,
    })
}

/// Input gradient, or a transposed convolution.
pub(super) fn input_gradient(
    machine: Machine,
    conv: &Conv2D,
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, KernelError> {
    let ([dy, w], [dx]) = (ran.operands.first_chunk().ok_or(arity(ran))?, found) else { return Err(arity(ran)) };
    let (opened, filters) = (Elements::of(dy)?, Elements::of(w)?);
    let (source, filters) = (FeatureMap::new(dy.dims(), opened.slice()?)?, filters.slice::<f32>()?);
    let dest = FeatureMap::new(ran.results.first().ok_or(arity(ran))?.dims(), dx)?;
    let (sources, dests, all) = (source.dims[1] / conv.groups, dest.dims[1] / conv.groups, conv.window.taps());
    if is_winograd(machine, conv, ran, dest.dims, source.dims[1]) {
        let [kh, kw] = conv.window.kernel;
        // The kernel is turned around, and so is its padding.
        let weight = |row: usize, channel: usize, [a, b]: [usize; 2]| {
            f64::from(filters[(channel * dests + row) * all + (kh - 1 - a) * kw + kw - 1 - b])
        };
        let pad = [kh - 1 - conv.window.pad[0], kw - 1 - conv.window.pad[2]];
        let of = |_: usize, sum: f64, bound: f64| (sum, bound);
        return Ok(winograd::Correlation { machine, source, pad, dest, found: dx, weight, of }.farthest());
    }
    let correlation = Correlation {
        machine,
        groups: conv.groups,
        source,
        dest,
        found: dx,
        weight: |group: usize, [row, channel]: [usize; 2], tap: usize| {
            f64::from(filters[((group * sources + channel) * dests + row) * all + tap])
        },
        of: |_: usize, sum: Sum, chain: Chain| (sum.value, chain.bound(sum.squares)),
    };
    Ok(correlation.farthest(&phase_grids(conv, [dest.dims[2], dest.dims[3]])))
}

/// Filter gradient.
pub(super) fn filter_gradient(
    machine: Machine,
    conv: &Conv2D,
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, KernelError> {
    let ([x, dy], [dw]) = (ran.operands.first_chunk().ok_or(arity(ran))?, found) else { return Err(arity(ran)) };
    let (opened, gradient) = (Elements::of(x)?, Elements::of(dy)?);
    let x = FeatureMap::new(x.dims(), opened.slice()?)?;
    let dy = FeatureMap::new(dy.dims(), gradient.slice()?)?;
    let [n, o, rows, columns] = dy.dims;
    if is_winograd(machine, conv, ran, x.dims, o) {
        let pad = [conv.window.pad[0], conv.window.pad[2]];
        return Ok(winograd::FilterGradient { machine, x, pad, dy, found: dw }.farthest());
    }
    let (sources, dests) = (x.dims[1] / conv.groups, o / conv.groups);
    let [_, _, h, w] = x.dims;
    let grid =
        Grid { outputs: [rows, columns], origin: [0, 0], step: [1, 1], pace: conv.window.stride, taps: taps(conv) };
    let all = grid.taps.len();
    // A run through the maps may end after any row.
    let chain = Chain { terms: PIXELS, shorter: PIXELS.div_ceil(columns.max(1)), fused: machine.fused };
    // Index of each term in the first channel.
    let places: Vec<usize> =
        (0..n).flat_map(|image| (0..rows * columns).map(move |p| dy.plane(image, 0) + p)).collect();
    let group = |group: usize| {
        let left =
            |row: usize, term: usize| f64::from(dy.values[places[term] + (group * dests + row) * rows * columns]);
        let right = |first: usize, run: Range<usize>, out: &mut [[f64; COLUMNS]]| {
            let wanted = COLUMNS.min(sources * all - first);
            let rows = grid.rows_of(run);
            out.fill([0.0; COLUMNS]);
            for lane in 0..wanted {
                let (channel, tap) = ((first + lane) / all, grid.taps[(first + lane) % all]);
                let plane = (group * sources + channel) * h * w;
                for (terms, [image, row, column]) in &rows {
                    let Some(row) = grid.reach(0, *row, tap, h) else { continue };
                    let source = &x.values[x.plane(*image, 0) + plane + row * w..][..w];
                    let inside = grid.inside(1, *column..column + terms.len(), tap, w);
                    let Some(first) = grid.reach(1, inside.start, tap, w) else { continue };
                    let out = &mut out[terms.clone()][inside.start - column..inside.end - column];
                    let read = source[first..].iter().step_by(grid.pace[1]);
                    out.iter_mut().zip(read).for_each(|(out, x)| out[lane] = f64::from(*x));
                }
            }
        };
        let row = |row: usize| (group * dests + row) * sources * all;
        let results = Results { found: dw, row, column: |column| column };
        let of = |_: usize, _: usize, sum: Sum| (sum.value, chain.bound(sum.squares));
        sums(machine.isa, [dests, sources * all, n * rows * columns], chain, left, right, &results, of)
    };
    Ok((0..conv.groups).into_par_iter().map(group).reduce(|| Farthest::NONE, Farthest::or))
}
