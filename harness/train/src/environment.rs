//! The environment of a training, for its report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Versions and machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Version of this project.
    pub zoo: String,
    /// Operating system and architecture.
    pub platform: String,
    /// Model of the processor, if known.
    pub cpu: Option<String>,
    /// Relevant vector instructions of the processor.
    pub cpu_features: Vec<String>,
    /// Number of compute threads.
    pub threads: usize,
    /// The kernels: `fast` or `reference`.
    pub kernels: String,
    /// Commit of the checkout that contains the working directory; null outside of a checkout.
    #[serde(default)]
    pub revision: Option<String>,
}

impl Environment {
    /// This machine, with the settings of the run.
    pub fn detect(threads: usize, kernels: &str) -> Self {
        Self {
            zoo: env!("CARGO_PKG_VERSION").to_owned(),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu: cpu_model(),
            cpu_features: cpu_features().into_iter().map(str::to_owned).collect(),
            threads,
            kernels: kernels.to_owned(),
            revision: std::env::current_dir().ok().and_then(|here| revision(&here)),
        }
    }
}

/// The commit of the checkout that contains a folder, from git's files (gitrepository-layout(5)), without running
/// git, which need not be installed.
fn revision(folder: &Path) -> Option<String> {
    const DIGITS: usize = 12;
    let read = |path: &Path| fs::read_to_string(path).ok();
    let mut git = folder.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())?;
    if git.is_file() {
        // A worktree or a submodule refers to its Git folder.
        git = git.parent()?.join(read(&git)?.strip_prefix("gitdir:")?.trim());
    }
    let head = read(&git.join("HEAD"))?;
    let commit = match head.strip_prefix("ref:").map(str::trim) {
        None => head,
        Some(branch) => {
            let common = read(&git.join("commondir")).map_or(git.clone(), |dir| git.join(dir.trim()));
            let packed = || {
                let packed = read(&common.join("packed-refs"))?;
                packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' ').map(str::to_owned))
            };
            read(&git.join(branch)).or_else(|| read(&common.join(branch))).or_else(packed)?
        }
    };
    let commit = commit.trim().get(..DIGITS)?;
    commit.chars().all(|digit| digit.is_ascii_hexdigit()).then(|| commit.to_owned())
}

/// The model of the processor, as reported by Linux.
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

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// Files below a folder.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_commit_is_found_wherever_git_keeps_it() {
        let line = format!("{COMMIT}\n");
        let packed = format!("# pack-refs with: peeled\n{COMMIT} refs/heads/main\n");
        let loose = [(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/main", line.as_str())];
        let packed = [(".git/HEAD", "ref: refs/heads/main\n"), (".git/packed-refs", packed.as_str())];
        let detached = [(".git/HEAD", line.as_str())];
        let worktree = [
            (".git", "gitdir: main/worktrees/x\n"),
            ("main/worktrees/x/HEAD", "ref: refs/heads/x\n"),
            ("main/worktrees/x/commondir", "../..\n"),
            ("main/refs/heads/x", line.as_str()),
        ];
        for files in [&loose[..], &packed, &detached, &worktree] {
            let dir = folder(files);
            fs::create_dir_all(dir.path().join("a/b")).unwrap();
            assert_eq!(revision(&dir.path().join("a/b")).as_deref(), Some("0123456789ab"), "{files:?}");
        }
        let broken = folder(&[(".git/HEAD", "ref: refs/heads/gone\n")]);
        assert_eq!(revision(broken.path()), None);
    }
}
