//! Bounds of convolutions and their gradients by Winograd's algorithm, as `zoo_kernels::conv` computes them.
//!
//! An output is a sum over places of a square, each a sum of products `M = sum of U V` of transformed filters and maps.
//! Four kinds of rounding add up, as variances: the partial sums of `M`; the sums that transform the maps, whose error
//! `e` adds `sum of U e` to `M`; the rounding of a filter, likewise; and the sums that transform `M`. For the second and
//! the third kind, the Cauchy-Schwarz inequality `sum of U^2 e^2 <= sqrt(sum of U^4) sqrt(sum of e^4)` separates the
//! factors. Both kinds are small beside the first.

use super::{
    Farthest, LAMBDA, Machine, UNIT,
    feature_map::FeatureMap,
    product::{COLUMNS, Chain, runs},
};
use rayon::prelude::*;
use std::{array::from_fn, ops::Range};
use zoo_kernels::partial_sums::{ROWS, Totals, add_run};

/// Products of a square along an axis.
const SIDE: usize = 4;
/// Outputs of a square along an axis.
const OUTPUTS: usize = 2;
/// Kernel elements along an axis.
const KERNEL: usize = 3;
/// Products of a square.
const PLACES: usize = SIDE * SIDE;

/// `G` and `A` of F(2 x 2, 3 x 3): Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", section 4.1.
const G: [[f64; KERNEL]; SIDE] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
const A: [[f64; OUTPUTS]; SIDE] = [[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [0.0, -1.0]];

/// Largest number of channels that are summed in registers, and of shorter sums instead.
const CHANNELS: (usize, usize) = (512, 2);

/// Number of squares that a filter gradient sums at a time, if a row has not more.
const SQUARES: usize = 256;

/// A number, and the variance of its rounding in units of [`UNIT`] squared.
type Rounded = (f64, f64);

/// `a + sign b`, rounded.
#[inline(always)]
fn add((a, of_a): Rounded, (b, of_b): Rounded, sign: f64) -> Rounded {
    let sum = a + sign * b;
    (sum, of_a + of_b + sum * sum)
}

/// `B^T d` along an axis.
#[inline(always)]
fn of_source(d: [Rounded; SIDE]) -> [Rounded; SIDE] {
    [add(d[0], d[2], -1.0), add(d[1], d[2], 1.0), add(d[2], d[1], -1.0), add(d[1], d[3], -1.0)]
}

/// `A dy` along an axis.
#[inline(always)]
fn of_gradient(dy: [Rounded; OUTPUTS]) -> [Rounded; SIDE] {
    [dy[0], add(dy[0], dy[1], 1.0), add(dy[0], dy[1], -1.0), (-dy[1].0, dy[1].1)]
}

/// `A^T m` along an axis, in the order of the kernel.
#[inline(always)]
fn of_products(m: [Rounded; SIDE]) -> [Rounded; OUTPUTS] {
    [add(m[0], add(m[1], m[2], 1.0), 1.0), add(add(m[1], m[2], -1.0), m[3], -1.0)]
}

/// `G g` along an axis. The kernel rounds only once.
#[inline(always)]
fn of_filter(g: [Rounded; KERNEL]) -> [Rounded; SIDE] {
    G.map(|row| (row[0] * g[0].0 + row[1] * g[1].0 + row[2] * g[2].0, 0.0))
}

/// A transformation along both axes.
#[inline(always)]
fn transform<const N: usize, const K: usize>(
    along: impl Fn([Rounded; K]) -> [Rounded; N],
    x: [[Rounded; K]; K],
) -> [[Rounded; N]; N] {
    let columns: [[Rounded; N]; K] = from_fn(|column| along(from_fn(|row| x[row][column])));
    from_fn(|row| along(from_fn(|column| columns[column][row])))
}

/// Squares of outputs that cover maps.
#[derive(Clone, Copy)]
struct Squares {
    images: usize,
    rows: usize,
    columns: usize,
}

impl Squares {
    fn of([n, _, h, w]: [usize; 4]) -> Self {
        Self { images: n, rows: h.div_ceil(OUTPUTS), columns: w.div_ceil(OUTPUTS) }
    }

    fn count(&self) -> usize {
        self.images * self.rows * self.columns
    }

    /// Image, and its first row and column of outputs.
    fn place(&self, square: usize) -> [usize; 3] {
        let (row, column) = (square / self.columns % self.rows, square % self.columns);
        [square / (self.rows * self.columns), OUTPUTS * row, OUTPUTS * column]
    }
}

/// `N x N` pixels of a channel from a row and column on, which may lie before the map. Pixels outside are zero.
fn pixels<const N: usize>(
    map: &FeatureMap<'_>,
    [image, channel]: [usize; 2],
    [row, column]: [isize; 2],
) -> [[Rounded; N]; N] {
    let [_, _, h, w] = map.dims;
    let plane = &map.values[map.plane(image, channel)..][..h * w];
    let at = |start: isize, step: usize, size: usize| {
        start.checked_add_unsigned(step).map(|at| at as usize).filter(|at| *at < size)
    };
    from_fn(|i| {
        let row = at(row, i, h);
        from_fn(|j| {
            row.zip(at(column, j, w)).map_or((0.0, 0.0), |(row, column)| (f64::from(plane[row * w + column]), 0.0))
        })
    })
}

/// The transformed source pixels of a square.
fn source(
    map: &FeatureMap<'_>,
    pad: [usize; 2],
    channel: usize,
    [image, row, column]: [usize; 3],
) -> [[Rounded; SIDE]; SIDE] {
    let first = [row as isize - pad[0] as isize, column as isize - pad[1] as isize];
    transform(of_source, pixels(map, [image, channel], first))
}

/// The bound for a variance in units of [`UNIT`] squared.
fn bound(variance: f64) -> f64 {
    LAMBDA * UNIT * variance.sqrt()
}

/// A convolution or an input gradient: each destination channel is a sum over source channels.
pub(super) struct Correlation<'a, W, L> {
    pub machine: Machine,
    pub source: FeatureMap<'a>,
    /// Zeros above and to the left of the source.
    pub pad: [usize; 2],
    pub dest: FeatureMap<'a>,
    /// The result of the kernel.
    pub found: &'a [f32],
    /// The weight for a destination channel, a source channel, and a row and column of the kernel.
    pub weight: W,
    /// The exact value of an element of a destination channel and its bound, from its sum and the sum's bound.
    pub of: L,
}

impl<W, L> Correlation<'_, W, L>
where
    W: Fn(usize, usize, [usize; 2]) -> f64 + Sync,
    L: Fn(usize, f64, f64) -> (f64, f64) + Sync,
{
    pub fn farthest(&self) -> Farthest {
        let [sources, dests] = [self.source.dims[1], self.dest.dims[1]];
        let squares = Squares::of(self.dest.dims);
        let (terms, shorter) = CHANNELS;
        let chain = Chain { terms, shorter, fused: self.machine.fused };
        // Of each place, tiles of rows; and of each row the root of the sum of fourth powers.
        let tiles = dests.div_ceil(ROWS);
        let mut filters = vec![vec![[0.0; ROWS]; tiles * sources]; PLACES];
        let mut fourth = vec![[0.0; PLACES]; dests];
        for (dest, fourth) in fourth.iter_mut().enumerate() {
            for source in 0..sources {
                let transformed = self.filter(dest, source);
                for (place, (value, _)) in transformed.as_flattened().iter().enumerate() {
                    filters[place][dest / ROWS * sources + source][dest % ROWS] = *value;
                    fourth[place] += value.powi(4);
                }
            }
            fourth.iter_mut().for_each(|sum| *sum = sum.sqrt());
        }
        let panel = |panel: usize| {
            let wanted = COLUMNS.min(squares.count() - panel * COLUMNS);
            let places: Vec<[usize; 3]> = (0..wanted).map(|lane| squares.place(panel * COLUMNS + lane)).collect();
            let mut maps = vec![vec![[0.0; COLUMNS]; sources]; PLACES];
            let mut errors = [[0.0; PLACES]; COLUMNS];
            for (lane, (square, errors)) in places.iter().zip(&mut errors).enumerate() {
                for channel in 0..sources {
                    let transformed = source(&self.source, self.pad, channel, *square);
                    let places = transformed.as_flattened().iter().zip(&mut maps);
                    for (place, ((value, variance), map)) in places.enumerate() {
                        map[channel][lane] = *value;
                        // The rounding of the filter has the effect of one more of the map.
                        errors[place] += (variance + value * value).powi(2);
                    }
                }
                errors.iter_mut().for_each(|sum| *sum = sum.sqrt());
            }
            let totals = |(maps, filters): (&Vec<[f64; COLUMNS]>, &Vec<[f64; ROWS]>)| {
                let mut totals: Vec<Totals> = vec![[[0.0; COLUMNS]; 2]; tiles * ROWS];
                for run in runs(sources, chain.terms) {
                    let of_tiles = filters.chunks_exact(sources).zip(totals.chunks_exact_mut(ROWS));
                    for (filters, totals) in of_tiles {
                        let later = chain.later(run.start);
                        add_run(self.machine.isa, &filters[run.clone()], &maps[run.clone()], 1, later, totals);
                    }
                }
                totals
            };
            let totals: Vec<Vec<Totals>> = maps.iter().zip(&filters).map(totals).collect();
            let mut farthest = Farthest::NONE;
            for dest in 0..dests {
                for (lane, square) in places.iter().enumerate() {
                    let of_place = |place: usize| {
                        let [values, squares] = totals[place][dest];
                        (values[lane], chain.variance(squares[lane]) + fourth[dest][place] * errors[lane][place])
                    };
                    let products = from_fn(|row| from_fn(|column| of_place(row * SIDE + column)));
                    farthest = self.square(farthest, dest, *square, &transform(of_products, products), &chain);
                }
            }
            farthest
        };
        let panels = (0..squares.count().div_ceil(COLUMNS)).into_par_iter();
        panels.map(panel).reduce(|| Farthest::NONE, Farthest::or)
    }

    /// A transformed filter.
    fn filter(&self, dest: usize, source: usize) -> [[Rounded; SIDE]; SIDE] {
        transform(of_filter, from_fn(|a| from_fn(|b| ((self.weight)(dest, source, [a, b]), 0.0))))
    }

    /// The worst element so far, compared with those of a square.
    fn square(
        &self,
        farthest: Farthest,
        dest: usize,
        [image, row, column]: [usize; 3],
        sums: &[[Rounded; OUTPUTS]; OUTPUTS],
        chain: &Chain,
    ) -> Farthest {
        let [_, _, h, w] = self.dest.dims;
        let mut farthest = farthest;
        for (i, sums) in sums.iter().enumerate().take(h - row) {
            for (j, (sum, variance)) in sums.iter().enumerate().take(w - column) {
                let element = self.dest.plane(image, dest) + (row + i) * w + column + j;
                let (exact, mut limit) = (self.of)(dest, *sum, bound(*variance));
                let found = self.found[element];
                if (f64::from(found) - exact).abs() > limit && farthest.ratio <= 1.0 {
                    limit += self.drift(dest, [image, row, column], [i, j], chain);
                }
                farthest = farthest.or_of(0, element, found, exact, limit);
            }
        }
        farthest
    }

    /// As [`Chain::drift`], of all places that an output of a square is a sum of.
    fn drift(&self, dest: usize, square: [usize; 3], output: [usize; 2], chain: &Chain) -> f64 {
        let channels = self.source.dims[1];
        let factors: Vec<[[[f64; 2]; SIDE]; SIDE]> = (0..channels)
            .map(|channel| {
                let filter = self.filter(dest, channel);
                let map = source(&self.source, self.pad, channel, square);
                from_fn(|row| from_fn(|column| [filter[row][column].0, map[row][column].0]))
            })
            .collect();
        let of_place = |place: usize| {
            let (row, column) = (place / SIDE, place % SIDE);
            let share = (A[row][output[0]] * A[column][output[1]]).abs();
            share * chain.drift(channels, &|run| factors[run].iter().map(|all| all[row][column]).collect())
        };
        (0..PLACES).map(of_place).sum()
    }
}

/// A filter gradient.
pub(super) struct FilterGradient<'a> {
    pub machine: Machine,
    pub x: FeatureMap<'a>,
    pub pad: [usize; 2],
    pub dy: FeatureMap<'a>,
    /// The result of the kernel.
    pub found: &'a [f32],
}

/// Sums over squares in one place, and the roots of the sums that bound the effect of transformations.
struct OfPlace {
    /// By panel of source channels: of all destination channels.
    totals: Vec<Vec<Totals>>,
    /// Of each source channel: of squared values and of their variances, squared.
    maps: Vec<[f64; 2]>,
    /// Of each destination channel, likewise.
    gradients: Vec<[f64; 2]>,
}

/// The transformed values of up to `N` channels for a run of squares, by place and square.
type Channels<const N: usize> = Vec<[Rounded; N]>;

impl FilterGradient<'_> {
    pub fn farthest(&self) -> Farthest {
        let [sources, dests] = [self.x.dims[1], self.dy.dims[1]];
        let squares = Squares::of(self.dy.dims);
        let chain = Chain {
            terms: SQUARES.max(squares.columns),
            shorter: SQUARES.div_ceil(squares.columns).max(2),
            fused: self.machine.fused,
        };
        let tiles = dests.div_ceil(ROWS);
        let empty = || OfPlace {
            totals: vec![vec![[[0.0; COLUMNS]; 2]; tiles * ROWS]; sources.div_ceil(COLUMNS)],
            maps: vec![[0.0; 2]; sources],
            gradients: vec![[0.0; 2]; dests],
        };
        let mut places: Vec<OfPlace> = (0..PLACES).map(|_| empty()).collect();
        for run in runs(squares.count(), chain.terms) {
            let later = chain.later(run.start);
            let run: Vec<[usize; 3]> = run.map(|square| squares.place(square)).collect();
            let maps = lay_out::<COLUMNS>(&run, sources, |channel, square| self.map(channel, square));
            let gradients = lay_out::<ROWS>(&run, dests, |channel, square| self.gradient(channel, square));
            places.par_iter_mut().enumerate().for_each(|(place, sums)| {
                let at = place * run.len()..(place + 1) * run.len();
                let values =
                    |gradients: &Channels<ROWS>| gradients[at.clone()].iter().map(|all| all.map(|v| v.0)).collect();
                let left: Vec<Vec<[f64; ROWS]>> = gradients.iter().map(values).collect();
                count(&mut sums.maps, &maps, &at);
                count(&mut sums.gradients, &gradients, &at);
                for (maps, totals) in maps.iter().zip(&mut sums.totals) {
                    let right: Vec<[f64; COLUMNS]> = maps[at.clone()].iter().map(|all| all.map(|v| v.0)).collect();
                    for (left, totals) in left.iter().zip(totals.chunks_exact_mut(ROWS)) {
                        add_run(self.machine.isa, left, &right, 1, later, totals);
                    }
                }
            });
        }
        for sums in &mut places {
            sums.maps.iter_mut().chain(&mut sums.gradients).flatten().for_each(|sum| *sum = sum.sqrt());
        }
        let of_dest = |dest: usize| {
            let mut farthest = Farthest::NONE;
            for source in 0..sources {
                let of_place = |place: &OfPlace| {
                    let [values, squares] = place.totals[source / COLUMNS][dest];
                    let (lane, [v, e], [w, d]) = (source % COLUMNS, place.maps[source], place.gradients[dest]);
                    (values[lane], chain.variance(squares[lane]) + v * d + e * w)
                };
                let sums: Vec<Rounded> = places.iter().map(of_place).collect();
                for (i, j) in (0..KERNEL * KERNEL).map(|tap| (tap / KERNEL, tap % KERNEL)) {
                    let add = |(sum, variance): Rounded, (place, of): (usize, &Rounded)| {
                        let share = G[place / SIDE][i] * G[place % SIDE][j];
                        (sum + share * of.0, variance + share * share * of.1)
                    };
                    let (exact, variance) = sums.iter().enumerate().fold((0.0, 0.0), add);
                    let element = (dest * sources + source) * KERNEL * KERNEL + i * KERNEL + j;
                    let (found, mut limit) = (self.found[element], bound(variance) + UNIT * exact.abs());
                    if (f64::from(found) - exact).abs() > limit && farthest.ratio <= 1.0 {
                        limit += self.drift([dest, source], [i, j], &chain);
                    }
                    farthest = farthest.or_of(0, element, found, exact, limit);
                }
            }
            farthest
        };
        (0..dests).into_par_iter().map(of_dest).reduce(|| Farthest::NONE, Farthest::or)
    }

    /// The transformed pixels of a channel in a square.
    fn map(&self, channel: usize, square: [usize; 3]) -> [[Rounded; SIDE]; SIDE] {
        source(&self.x, self.pad, channel, square)
    }

    /// The transformed gradients of a channel in a square.
    fn gradient(&self, channel: usize, [image, row, column]: [usize; 3]) -> [[Rounded; SIDE]; SIDE] {
        transform(of_gradient, pixels(&self.dy, [image, channel], [row as isize, column as isize]))
    }

    /// As [`Chain::drift`], of all places that an element is a sum of.
    fn drift(&self, [dest, source]: [usize; 2], [i, j]: [usize; 2], chain: &Chain) -> f64 {
        let squares = Squares::of(self.dy.dims);
        let factors: Vec<_> = (0..squares.count())
            .map(|square| squares.place(square))
            .map(|square| [self.gradient(dest, square), self.map(source, square)])
            .collect();
        let of_place = |place: usize| {
            let (row, column) = (place / SIDE, place % SIDE);
            let share = (G[row][i] * G[column][j]).abs();
            let of_square = |[dy, x]: &[[[Rounded; SIDE]; SIDE]; 2]| [dy[row][column].0, x[row][column].0];
            share * chain.drift(factors.len(), &|run| factors[run].iter().map(of_square).collect())
        };
        (0..PLACES).map(of_place).sum()
    }
}

/// The transformed values of all channels, `N` at a time, for a run of squares.
fn lay_out<const N: usize>(
    run: &[[usize; 3]],
    channels: usize,
    of: impl Fn(usize, [usize; 3]) -> [[Rounded; SIDE]; SIDE] + Sync,
) -> Vec<Channels<N>> {
    let some = |first: usize| {
        let mut out = vec![[(0.0, 0.0); N]; PLACES * run.len()];
        for channel in first..channels.min(first + N) {
            for (at, square) in run.iter().enumerate() {
                for (place, value) in of(channel, *square).as_flattened().iter().enumerate() {
                    out[place * run.len() + at][channel - first] = *value;
                }
            }
        }
        out
    };
    (0..channels.div_ceil(N)).into_par_iter().map(|index| some(index * N)).collect()
}

/// Adds the squares of squared values and of variances in one place.
fn count<const N: usize>(sums: &mut [[f64; 2]], values: &[Channels<N>], at: &Range<usize>) {
    for (sums, values) in sums.chunks_mut(N).zip(values) {
        for values in &values[at.clone()] {
            for (sums, (value, variance)) in sums.iter_mut().zip(values) {
                sums[0] += value.powi(4);
                sums[1] += variance * variance;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_kernels::{C0, Isa};

    const X: [usize; 4] = [2, 5, 7, 6];
    const DESTS: usize = 8;
    const PAD: [usize; 2] = [1, 2];
    /// One row of padding below, two columns to the right.
    const Y: [usize; 4] = [2, DESTS, 7, 8];

    fn filled(len: usize, salt: usize) -> Vec<f32> {
        (0..len).map(|i| (((i + 1) * 7919 + salt * 104_729) % 1009) as f32 / 504.5 - 1.0).collect()
    }

    fn machine(isa: Isa) -> Machine {
        Machine { isa, fast: Some(isa), fused: true }
    }

    fn map(dims: [usize; 4], values: &[f32]) -> FeatureMap<'_> {
        FeatureMap { values, dims }
    }

    /// Sums by definition: `term(dy or y, x, w, element of w)`.
    fn each_term(mut term: impl FnMut(usize, usize, usize)) {
        let [n, c, h, w] = X;
        for y in 0..Y.iter().product() {
            let (image, dest, row, column) =
                (y / (Y[3] * Y[2] * DESTS), y / (Y[3] * Y[2]) % DESTS, y / Y[3] % Y[2], y % Y[3]);
            for k in 0..c * 9 {
                let at = [row + k / 3 % 3, column + k % 3];
                if let (Some(i), Some(j)) = (at[0].checked_sub(PAD[0]), at[1].checked_sub(PAD[1]))
                    && i < h
                    && j < w
                {
                    assert!(image < n);
                    term(y, ((image * c + k / 9) * h + i) * w + j, dest * c * 9 + k);
                }
            }
        }
    }

    /// A sound result is within its bound, and an error in one element of any place is not.
    fn expect(exact: &[f64], farthest: impl Fn(&[f32]) -> Farthest) {
        let found: Vec<f32> = exact.iter().map(|x| *x as f32).collect();
        let sound = farthest(&found);
        assert!(sound.ratio < 0.2, "{sound:?}");
        for element in (0..found.len()).step_by(7) {
            let mut found = found.clone();
            found[element] += 1e-4;
            let Farthest { ratio, element: worst, exact: of_worst, .. } = farthest(&found);
            assert!(ratio > 1.0 && worst == element, "{element}: {ratio} at {worst}");
            assert!((of_worst - exact[element]).abs() < 1e-12);
        }
    }

    #[test]
    fn exact_values_are_those_of_the_definition_and_small_errors_are_found() {
        let [x, w, dy] = [(X.iter().product(), 1), (DESTS * X[1] * 9, 2), (Y.iter().product(), 3)]
            .map(|(len, salt)| filled(len, salt));
        let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
        each_term(|at, of_x, of_w| {
            y[at] += f64::from(x[of_x]) * f64::from(w[of_w]);
            dx[of_x] += f64::from(dy[at]) * f64::from(w[of_w]);
            dw[of_w] += f64::from(dy[at]) * f64::from(x[of_x]);
        });
        for isa in Isa::available() {
            let machine = machine(isa);
            let of = |_: usize, sum: f64, bound: f64| (sum, bound);
            expect(&y, |found| {
                let weight = |dest: usize, source: usize, [a, b]: [usize; 2]| {
                    f64::from(w[(dest * X[1] + source) * 9 + a * 3 + b])
                };
                let (source, dest) = (map(X, &x), map(Y, found));
                Correlation { machine, source, pad: PAD, dest, found, weight, of }.farthest()
            });
            expect(&dx, |found| {
                let weight = |dest: usize, source: usize, [a, b]: [usize; 2]| {
                    f64::from(w[(source * X[1] + dest) * 9 + (2 - a) * 3 + 2 - b])
                };
                let (source, dest) = (map(Y, &dy), map(X, found));
                Correlation { machine, source, pad: PAD.map(|pad| 2 - pad), dest, found, weight, of }.farthest()
            });
            expect(&dw, |found| FilterGradient { machine, x: map(X, &x), pad: PAD, dy: map(Y, &dy), found }.farthest());
        }
        assert!(X[1] < C0, "a panel of channels that is not full");
    }
}
