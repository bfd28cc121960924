//! What a training ran on, for its report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// Versions and machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Version of this project.
    pub zoo: String,
    /// Operating system and architecture.
    pub platform: String,
    /// Model of the processor, if the system tells.
    pub cpu: Option<String>,
    /// Vector instructions of the processor that matter here.
    pub cpu_features: Vec<String>,
    /// Threads that compute.
    pub threads: usize,
    /// Kernels that compute: `fast` or `reference`.
    pub kernels: String,
    /// Revision of the sources in the working directory, as `git describe --always --dirty` tells; null outside of a
    /// checkout.
    #[serde(default)]
    pub revision: Option<String>,
}

impl Environment {
    /// This machine, with what the run chose.
    pub fn detect(threads: usize, kernels: &str) -> Self {
        Self {
            zoo: env!("CARGO_PKG_VERSION").to_owned(),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: cpu_model(),
            cpu_features: cpu_features().into_iter().map(str::to_owned).collect(),
            threads,
            kernels: kernels.to_owned(),
            revision: revision(),
        }
    }
}

/// What git calls the sources here, if it is there and they are its own.
fn revision() -> Option<String> {
    let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output().ok()?;
    let text = String::from_utf8(git.stdout).ok().filter(|_| git.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The processor's model as Linux tells it.
fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    let known = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ];
    known.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}
