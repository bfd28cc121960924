//! What `zoo --version` prints; `zoo -V` prints its first line alone.

use std::sync::LazyLock;
use zoo_engine::{Isa, Level};

/// The version, the commit of the source, if it is known (zoo/build.rs), and the instructions that the kernels use on
/// this processor.
pub fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("ZOO_COMMIT").unwrap_or("unknown");
        let instructions = match Isa::best().level() {
            Level::Portable => "those of every processor",
            Level::Avx2 => "AVX2, FMA",
            Level::Avx512 => "AVX-512",
            Level::Amx => "AVX-512, AMX",
        };
        format!("{version}\ncommit: {commit}\ninstructions: {instructions}")
    });
    &LONG
}
