//! Memory limits of commands.

use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use zoo_graph::Bytes;
use zoo_train::memory::{OVERHEAD, resident};

/// Options of the commands that compute.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct MemoryArgs {
    /// Refuse to start if the command needs more memory than this, for example 4GiB or 800M; by default the memory of
    /// the machine
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_limit: Option<Bytes>,
}

/// A memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: Bytes,
    /// The source of the limit.
    pub by: &'static str,
}

/// The current memory of this process, its fixed overhead, and `more`.
pub fn beyond_now(more: Bytes) -> Bytes {
    resident().unwrap_or_default() + OVERHEAD + more
}

impl MemoryArgs {
    /// The smallest of the limits of user, control group and machine; `None` if there is none.
    pub fn limit(&self) -> Option<Limit> {
        let given = self.memory_limit.map(|bytes| Limit { bytes, by: "--memory-limit" });
        let group = control_group().map(|bytes| Limit { bytes, by: "the control group's memory.max" });
        let machine = available().map(|bytes| Limit { bytes, by: "the free memory of this machine" });
        [given, group, machine].into_iter().flatten().min_by_key(|limit| limit.bytes)
    }

    /// Refuses a command that exceeds the limit.
    ///
    /// # Errors
    /// [`Failure::Memory`]; `instead` describes what fits.
    pub fn expect(&self, what: &str, needed: Bytes, instead: impl FnOnce(Bytes) -> String) -> Result<(), Failure> {
        match self.limit().filter(|limit| needed > limit.bytes) {
            None => Ok(()),
            Some(limit) => {
                let (what, instead) = (what.to_owned(), instead(limit.bytes));
                Err(Failure::Memory { what, needed, limit: (limit.bytes, limit.by), instead })
            }
        }
    }
}

/// Parses a number of bytes with a unit: `800M`, `4GiB` (powers of 1024), `4GB` (of 1000).
fn size(text: &str) -> Result<Bytes, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        other => return Err(format!("`{other}` is not a unit of memory: write, for example, 800M or 4GiB")),
    };
    let number: f64 = number.parse().map_err(|_| "a size starts with a number: 800M, 4GiB".to_owned())?;
    let bytes = number * factor;
    if bytes < 1.0 {
        return Err("a limit must be at least one byte".to_owned());
    }
    Ok(Bytes(bytes as u64))
}

/// The memory available without swapping, plus the memory of this process.
fn available() -> Option<Bytes> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(free * 1024) + resident().unwrap_or_default())
}

/// The smallest `memory.max` of this process's control group (version 2) and its parents.
fn control_group() -> Option<Bytes> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let mut folder: PathBuf = root.join(own);
    let mut least = None;
    loop {
        let max = fs::read_to_string(folder.join("memory.max")).ok();
        let max = max.and_then(|text| text.trim().parse().ok()).map(Bytes);
        least = [least, max].into_iter().flatten().min();
        if folder == root || !folder.pop() || !folder.starts_with(root) {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let bytes = |text: &str| size(text).map(|bytes| bytes.0);
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert_eq!(bytes("1.5g"), Ok(3 << 29));
        assert_eq!(bytes("800M"), Ok(800 << 20));
        assert_eq!(bytes("2 GB"), Ok(2_000_000_000));
        assert_eq!(bytes("4096"), Ok(4096));
        for wrong in ["", "GiB", "4 parsecs", "0", "-1M", "1.2.3M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_least_limit_counts() {
        let args = MemoryArgs { memory_limit: Some(Bytes(1 << 20)) };
        assert_eq!(args.limit(), Some(Limit { bytes: Bytes(1 << 20), by: "--memory-limit" }));
        let refused = args.expect("it", Bytes((1 << 20) + 1), |_| "less".to_owned()).unwrap_err();
        assert_eq!(refused.exit(), crate::Exit::Invalid);
        assert!(args.expect("it", Bytes(1 << 20), |_| String::new()).is_ok());
    }
}
