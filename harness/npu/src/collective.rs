//! Sums of gradients over devices, and the best way to bundle them.
//!
//! Inside a server a sum is a ring or mesh over the server's own links: a fixed time and a bandwidth, both measured
//! with all devices of a server; fewer devices have less to pass on, `(n - 1) / n` of the bytes. Between servers each
//! device passes on its share of the sum around a ring of servers (reduce-scatter inside, ring outside, all-gather
//! inside).

use crate::{device::Device, units::Seconds};
use serde::Serialize;
use zoo_recipe::schema::{Split, SplitWord};

/// Most devices that are modelled.
pub const MOST_DEVICES: usize = 65_536;

/// Time of one sum over `devices` of `bytes` that each of them holds.
pub fn all_reduce(device: &Device, devices: usize, bytes: u64) -> Seconds {
    let links = &device.links;
    if devices < 2 {
        return Seconds::ZERO;
    }
    let server = (links.devices_per_server.value as usize).max(1);
    let inside = devices.min(server) as f64;
    let passed_on = |n: f64| (n - 1.0) / n;
    let bytes = bytes as f64;
    let mut time = Seconds::ZERO;
    if inside > 1.0 {
        let whole = passed_on(server as f64).max(f64::MIN_POSITIVE);
        time += Seconds(links.latency_ms.value * 1e-3);
        time += Seconds(bytes * passed_on(inside) / whole / (links.gb_per_s.value * 1e9));
    }
    let servers = devices.div_ceil(server) as f64;
    if servers > 1.0 {
        time += Seconds(links.server_latency_ms.value * 1e-3 * servers.log2());
        time += Seconds(2.0 * passed_on(servers) * bytes / inside / (links.server_gb_per_s.value * 1e9));
    }
    time
}

/// A gradient that has to be summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Index of its parameter among all, in the order of their declaration.
    pub parameter: usize,
    /// When it is there.
    pub ready: Seconds,
    /// Its size.
    pub bytes: u64,
    /// What the update of its parameter takes, once it is summed.
    pub update: Seconds,
}

/// Gradients that travel together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Indices of the parameters.
    #[serde(skip)]
    pub parameters: Vec<usize>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// When the transfer begins.
    pub start: Seconds,
    /// When it ends.
    pub end: Seconds,
}

/// Bundles gradients and sends the buckets one after the other, each as soon as its last gradient is there and the
/// links are free; with `overlap` off, no earlier than all gradients are there.
///
/// Updates begin when the device has `computed` all else, and each waits for the bucket of its gradient.
pub fn schedule(
    gradients: &[Gradient],
    computed: Seconds,
    split: &Split,
    overlap: bool,
    cost: &dyn Fn(u64) -> Seconds,
) -> Vec<Bucket> {
    let mut sorted = gradients.to_vec();
    sorted.sort_by(|a, b| a.ready.0.total_cmp(&b.ready.0).then(b.parameter.cmp(&a.parameter)));
    let all_ready = sorted.last().map_or(Seconds::ZERO, |g| g.ready);
    if !overlap {
        sorted.iter_mut().for_each(|gradient| gradient.ready = all_ready);
    }
    let groups: Vec<Vec<Gradient>> = match split {
        Split::Word(SplitWord::One) => vec![sorted],
        Split::Word(SplitWord::Auto) => Search::new(&sorted, computed, cost).best(),
        Split::At(indices) => at(&sorted, indices),
    };
    let mut free = Seconds::ZERO;
    let bucket = |group: Vec<Gradient>| {
        let ready = group.iter().fold(Seconds::ZERO, |latest, g| latest.max(g.ready));
        let bytes = group.iter().map(|g| g.bytes).sum();
        let start = free.max(ready);
        let end = start + cost(bytes);
        free = end;
        Bucket { parameters: group.iter().map(|g| g.parameter).collect(), bytes, start, end }
    };
    groups.into_iter().filter(|group| !group.is_empty()).map(bucket).collect()
}

/// Buckets that begin at these parameters; those whose gradients are there first go first.
fn at(gradients: &[Gradient], indices: &[u32]) -> Vec<Vec<Gradient>> {
    let mut groups: Vec<Vec<Gradient>> = vec![Vec::new(); indices.len() + 1];
    for gradient in gradients {
        groups[indices.iter().filter(|index| gradient.parameter >= **index as usize).count()].push(*gradient);
    }
    let ready = |group: &[Gradient]| group.iter().fold(0.0f64, |latest, g| latest.max(g.ready.0));
    groups.sort_by(|a, b| ready(a).total_cmp(&ready(b)));
    groups
}

/// Ends that differ by less than this share of them are the same.
const SAME: f64 = 1e-12;

/// The search for the split after which the last update ends first. With a split given, updates run bucket by bucket:
/// the step ends when all updates have run after `computed`, or when some bucket has come and all updates from there on
/// have run. That is the end which is searched, and not that of the last bucket: sending much at the end may let
/// updates wait.
struct Search<'g> {
    sorted: &'g [Gradient],
    /// Bytes of the first so many gradients.
    bytes: Vec<u64>,
    /// Time of the updates from so many gradients on.
    updates: Vec<Seconds>,
    computed: Seconds,
    cost: &'g dyn Fn(u64) -> Seconds,
}

/// No bucket ends in time.
const NEVER: Seconds = Seconds(f64::INFINITY);

impl<'g> Search<'g> {
    /// `sorted` by the time they are there.
    fn new(sorted: &'g [Gradient], computed: Seconds, cost: &'g dyn Fn(u64) -> Seconds) -> Self {
        let n = sorted.len();
        let (mut bytes, mut updates) = (vec![0; n + 1], vec![Seconds::ZERO; n + 1]);
        for (i, gradient) in sorted.iter().enumerate() {
            bytes[i + 1] = bytes[i] + gradient.bytes;
        }
        for (i, gradient) in sorted.iter().enumerate().rev() {
            updates[i] = updates[i + 1] + gradient.update;
        }
        Self { sorted, bytes, updates, computed, cost }
    }

    /// End of a bucket of the gradients `from..to`, if those before it have gone by `before`; [`NEVER`] if the updates
    /// from there on would not be done by `limit`.
    fn end(&self, before: Seconds, from: usize, to: usize, limit: Seconds) -> Seconds {
        let end = before.max(self.sorted[to - 1].ready) + (self.cost)(self.bytes[to] - self.bytes[from]);
        if end + self.updates[from] <= limit { end } else { NEVER }
    }

    /// The end of the step if each bucket goes as soon as it can, the cuts being the places where buckets begin, and
    /// `n`.
    fn step_end(&self, cuts: &[usize]) -> Seconds {
        let mut sent = Seconds::ZERO;
        let buckets = cuts.windows(2).map(|cut| {
            sent = self.end(sent, cut[0], cut[1], NEVER);
            sent + self.updates[cut[0]]
        });
        buckets.fold(self.computed + self.updates[0], Seconds::max)
    }

    /// The split with the fewest buckets that ends the step by `limit`, if there is one. By dynamic programming: with
    /// so many buckets, the earliest end of the first so many gradients is the best for those that follow.
    fn fewest(&self, limit: Seconds) -> Option<Vec<usize>> {
        let n = self.sorted.len();
        let first = (0..=n).map(|to| if to == 0 { (NEVER, 0) } else { (self.end(Seconds::ZERO, 0, to, limit), 0) });
        let mut levels: Vec<Vec<(Seconds, usize)>> = vec![first.collect()];
        while levels.last().is_some_and(|ends| ends[n].0 == NEVER) && levels.len() < n {
            let before = &levels[levels.len() - 1];
            let earliest = |to: usize| {
                let ends = (1..to).map(|from| (self.end(before[from].0, from, to, limit), from));
                ends.fold((NEVER, 0), |best, next| if next.0 < best.0 { next } else { best })
            };
            levels.push((0..=n).map(earliest).collect());
        }
        if levels.last().is_none_or(|ends| ends[n].0 == NEVER) {
            return None;
        }
        let mut cuts = vec![n];
        for level in levels.iter().rev() {
            cuts.extend(cuts.last().map(|last| level[*last].1));
        }
        cuts.reverse();
        Some(cuts)
    }

    /// Whether any split ends the step by `limit`; the one found.
    fn any(&self, limit: Seconds) -> Option<Vec<usize>> {
        let n = self.sorted.len();
        let mut ends = vec![(Seconds::ZERO, 0); n + 1];
        for to in 1..=n {
            let candidates = (0..to).map(|from| (self.end(ends[from].0, from, to, limit), from));
            ends[to] = candidates.fold((NEVER, 0), |best, next| if next.0 < best.0 { next } else { best });
        }
        if ends[n].0 == NEVER {
            return None;
        }
        let mut cuts = vec![n];
        while let Some(last) = cuts.last().copied().filter(|last| *last > 0) {
            cuts.push(ends[last].1);
        }
        cuts.reverse();
        Some(cuts)
    }

    /// The split after which the step ends first, of those the one with the fewest buckets. The end is found by halving
    /// the interval between what no split can undercut and what one has reached.
    fn best(&self) -> Vec<Vec<Gradient>> {
        let n = self.sorted.len();
        if n == 0 {
            return Vec::new();
        }
        let (mut low, mut high) = (self.computed + self.updates[0], self.step_end(&[0, n]));
        while (high - low).0 > SAME * high.0 {
            let middle = Seconds(low.0 + (high - low).0 / 2.0);
            match self.any(middle) {
                Some(cuts) => high = self.step_end(&cuts).max(low),
                None => low = middle,
            }
        }
        let cuts = self.fewest(Seconds(high.0 * (1.0 + SAME))).unwrap_or_else(|| vec![0, n]);
        cuts.windows(2).map(|cut| self.sorted[cut[0]..cut[1]].to_vec()).collect()
    }
}
