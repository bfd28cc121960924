//! Sums of gradients over devices, and the best way to bundle them.
//!
//! Inside a server a sum is a ring or mesh over the server's own links: a fixed time and a bandwidth, both measured with
//! all devices of a server; fewer devices have less to pass on, `(n - 1) / n` of the bytes. Between servers each device
//! passes on its share of the sum around a ring of servers (reduce-scatter inside, ring outside, all-gather inside).

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

/// Bundles gradients and sends the buckets one after the other, each as soon as its last gradient is there and the links
/// are free; with `overlap` off, no earlier than all gradients are there.
pub fn schedule(gradients: &[Gradient], split: &Split, overlap: bool, cost: &dyn Fn(u64) -> Seconds) -> Vec<Bucket> {
    let mut sorted = gradients.to_vec();
    sorted.sort_by(|a, b| a.ready.0.total_cmp(&b.ready.0).then(b.parameter.cmp(&a.parameter)));
    let all_ready = sorted.last().map_or(Seconds::ZERO, |g| g.ready);
    let groups: Vec<Vec<Gradient>> = match split {
        Split::Word(SplitWord::One) => vec![sorted],
        Split::Word(SplitWord::Auto) => best(&sorted, cost),
        Split::At(indices) => at(gradients, indices),
    };
    let mut free = Seconds::ZERO;
    let bucket = |group: Vec<Gradient>| {
        let ready = group.iter().fold(Seconds::ZERO, |latest, g| latest.max(g.ready));
        let bytes = group.iter().map(|g| g.bytes).sum();
        let start = free.max(if overlap { ready } else { all_ready });
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

/// Ends that differ by less than this are the same.
const SAME: f64 = 1e-12;

/// The split of gradients, sorted by the time they are there, whose last bucket ends first; of those the one with the
/// fewest buckets. By dynamic programming over the number of buckets and the place where the last one begins.
fn best(sorted: &[Gradient], cost: &dyn Fn(u64) -> Seconds) -> Vec<Vec<Gradient>> {
    let n = sorted.len();
    let mut sums = vec![0u64; n + 1];
    for (i, gradient) in sorted.iter().enumerate() {
        sums[i + 1] = sums[i] + gradient.bytes;
    }
    // End of the first `i` gradients if a last bucket begins at `from`, those before it ending at `before`.
    let end = |before: Seconds, from: usize, i: usize| before.max(sorted[i - 1].ready) + cost(sums[i] - sums[from]);
    let mut any = vec![Seconds::ZERO; n + 1];
    for i in 1..=n {
        any[i] = (0..i).map(|from| end(any[from], from, i)).fold(Seconds(f64::INFINITY), Seconds::min);
    }
    // With exactly so many buckets: the ends, and where the last bucket begins.
    let mut levels: Vec<Vec<(Seconds, usize)>> = Vec::new();
    while levels.last().is_none_or(|ends| ends[n].0.0 > any[n].0 + SAME) && levels.len() < n {
        let level = (0..=n).map(|i| {
            let candidates = match levels.last() {
                None if i > 0 => vec![(end(Seconds::ZERO, 0, i), 0)],
                None => Vec::new(),
                Some(before) => (1..i).map(|from| (end(before[from].0, from, i), from)).collect(),
            };
            let worst = (Seconds(f64::INFINITY), 0);
            candidates.into_iter().fold(worst, |best, next| if next.0 < best.0 { next } else { best })
        });
        levels.push(level.collect());
    }
    let mut cuts = vec![n];
    for level in levels.iter().rev() {
        cuts.extend(cuts.last().map(|last| level[*last].1));
    }
    cuts.reverse();
    cuts.windows(2).map(|cut| sorted[cut[0]..cut[1]].to_vec()).collect()
}
