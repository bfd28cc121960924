//! Sums of gradients over devices, and the best way to group them into buckets.
//!
//! Inside a server, a sum is a ring or mesh over the links of the server, with a fixed time and a bandwidth. Both are
//! measured with all devices of a server. Fewer devices transfer less: `(n - 1) / n` of the bytes. Between servers,
//! each device sends its share of the sum around a ring of servers (reduce-scatter inside, ring outside, all-gather
//! inside).

use crate::{device::Device, units::Seconds};
use serde::Serialize;
use zoo_recipe::schema::{Split, SplitWord};

/// Largest number of devices that is modelled.
pub const MOST_DEVICES: usize = 65_536;

/// Time of one sum of `bytes` per device over `devices`.
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

/// A gradient to be summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient {
    /// Index of its parameter, in the order of declaration.
    pub parameter: usize,
    /// Time at which it is computed.
    pub ready: Seconds,
    /// Its size.
    pub bytes: u64,
    /// Duration of the update of its parameter, after the sum.
    pub update: Seconds,
}

/// Gradients that are sent together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Indices of the parameters.
    #[serde(skip)]
    pub parameters: Vec<usize>,
    /// Total size.
    pub bytes: u64,
    /// Start of the transfer.
    pub start: Seconds,
    /// End of the transfer.
    pub end: Seconds,
}

/// Sorts gradients by the time at which they are computed.
pub fn sort(gradients: &mut [Gradient]) {
    gradients.sort_by(|a, b| a.ready.0.total_cmp(&b.ready.0).then(b.parameter.cmp(&a.parameter)));
}

/// Groups gradients into buckets and sends the buckets one after the other. A bucket is sent as soon as its last
/// gradient is computed and the links are free; without `overlap`, not before all gradients are computed.
///
/// Updates start when the device has `computed` everything else, and each waits for the bucket of its gradient.
pub fn schedule(
    mut sorted: Vec<Gradient>,
    computed: Seconds,
    split: &Split,
    overlap: bool,
    cost: &dyn Fn(u64) -> Seconds,
) -> Vec<Bucket> {
    sort(&mut sorted);
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

/// Buckets that start at these parameters, in the order in which their gradients are complete.
fn at(gradients: &[Gradient], indices: &[u32]) -> Vec<Vec<Gradient>> {
    let mut groups: Vec<Vec<Gradient>> = vec![Vec::new(); indices.len() + 1];
    for gradient in gradients {
        groups[indices.iter().filter(|index| gradient.parameter >= **index as usize).count()].push(*gradient);
    }
    let ready = |group: &[Gradient]| group.iter().fold(0.0f64, |latest, g| latest.max(g.ready.0));
    groups.sort_by(|a, b| ready(a).total_cmp(&ready(b)));
    groups
}

/// Ends with a smaller relative difference count as equal.
const SAME: f64 = 1e-12;

/// Searches for the split with which the last update ends first. With a given split, updates run bucket by bucket.
/// The step ends when all updates have run after `computed`, or when a bucket has arrived and the updates from there
/// on have run. The search minimises this time and not the end of the last bucket, because updates may wait if much
/// is sent at the end.
struct Search<'g> {
    sorted: &'g [Gradient],
    /// Cumulative bytes of the gradients, by their number.
    bytes: Vec<u64>,
    /// Time of the updates from each gradient on.
    updates: Vec<Seconds>,
    computed: Seconds,
    cost: &'g dyn Fn(u64) -> Seconds,
}

/// A bucket that does not end in time.
const NEVER: Seconds = Seconds(f64::INFINITY);

impl<'g> Search<'g> {
    /// `sorted` is in the order of completion.
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

    /// End of a bucket with the gradients `from..to`, if the gradients before it are sent by `before`. [`NEVER`] if
    /// the updates from `from` on would not end by `limit`.
    fn end(&self, before: Seconds, from: usize, to: usize, limit: Seconds) -> Seconds {
        let end = before.max(self.sorted[to - 1].ready) + (self.cost)(self.bytes[to] - self.bytes[from]);
        if end + self.updates[from] <= limit { end } else { NEVER }
    }

    /// End of the step if each bucket is sent as early as possible. `cuts` are the starts of the buckets, and `n`.
    fn step_end(&self, cuts: &[usize]) -> Seconds {
        let mut sent = Seconds::ZERO;
        let buckets = cuts.windows(2).map(|cut| {
            sent = self.end(sent, cut[0], cut[1], NEVER);
            sent + self.updates[cut[0]]
        });
        buckets.fold(self.computed + self.updates[0], Seconds::max)
    }

    /// The split with the fewest buckets with which the step ends by `limit`, if there is one. Dynamic programming:
    /// for each number of buckets, the earliest end of the first gradients is the best start for the remaining ones.
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

    /// A split with which the step ends by `limit`, if there is one.
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

    /// The split with which the step ends first, with as few buckets as possible. The end is found by bisection
    /// between a lower bound for all splits and the end of a known split.
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
