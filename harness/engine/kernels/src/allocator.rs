//! Where the C library's allocator takes memory from.

/// Lets all threads of this process allocate from one arena; whether they do now. To be called first of all: it does
/// nothing once there are other threads.
///
/// glibc gives each thread an arena of its own, mallopt(3), and what a thread of the pool has freed stays in its arena,
/// out of reach of the others. A golden check of ResNet-50 held 200 MiB that way, which no plan knows of. Steps take no
/// longer with one arena (docs/reliability.md, "Memory"). Other C libraries have none.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn share_one_arena() -> bool {
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    // SAFETY: mallopt takes two integers. It is not to be called while another thread allocates, and there is none:
    // only this thread could start one.
    alone && unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) == 1 }
}

/// Elsewhere there are no arenas to share.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn share_one_arena() -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_changed_under_other_threads() {
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!super::share_one_arena()));
        });
    }
}
