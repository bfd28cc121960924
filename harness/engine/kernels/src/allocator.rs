//! How the C library's allocator and the system give memory.

/// Keeps the memory that this process frees, in one arena for all threads, until [`release_memory`]; whether it does
/// now. To be called first of all: it does nothing once there are other threads.
///
/// glibc returns large pieces to the system as soon as they are freed, and the system clears every page that it gives
/// again: 5 to 20 % of the time of golden checks, whose steps in f64 allocate each value. It also gives each thread an
/// arena of its own, mallopt(3), and what a thread of the pool has freed stays there, out of reach of the others: 200
/// MiB in a check of ResNet-50, which no plan knows of. Steps take no longer with one arena (docs/reliability.md,
/// "Memory"). Other C libraries have none of this.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_memory() -> bool {
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    let settings = [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_MAX, 0), (libc::M_TRIM_THRESHOLD, i32::MAX)];
    // SAFETY: mallopt takes two integers. It is not to be called while another thread allocates, and there is none:
    // only this thread could start one.
    alone && settings.into_iter().all(|(key, value)| unsafe { libc::mallopt(key, value) == 1 })
}

/// Elsewhere memory stays as the allocator has it.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_memory() -> bool {
    false
}

/// Returns to the system what [`keep_memory`] has kept: before work of another size.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn release_memory() {
    // SAFETY: malloc_trim takes an integer, and may be called by any thread at any time, malloc_trim(3).
    unsafe { libc::malloc_trim(0) };
}

/// Elsewhere nothing is kept.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn release_memory() {}

/// Asks the system for pages of 2 MiB under a large buffer, madvise(2). A processor remembers the places of a few
/// thousand pages: with pages of 4 KiB, ResNet-50's step takes 2 % longer.
#[cfg(target_os = "linux")]
pub(crate) fn advise_large_pages(buffer: &mut [f32]) {
    const LARGE_PAGE: usize = 2 << 20;
    let bytes = size_of_val(buffer);
    if bytes < 2 * LARGE_PAGE {
        return;
    }
    let to_next = buffer.as_ptr().cast::<u8>().align_offset(LARGE_PAGE);
    let len = bytes.saturating_sub(to_next) / LARGE_PAGE * LARGE_PAGE;
    let first = buffer.as_mut_ptr().cast::<u8>().wrapping_add(to_next);
    // SAFETY: the pages from `first` on lie in the buffer, which is borrowed mutably. The advice changes neither their
    // content nor who owns them; a system that cannot follow it returns an error, which changes nothing.
    unsafe { libc::madvise(first.cast(), len, libc::MADV_HUGEPAGE) };
}

/// Elsewhere the system chooses.
#[cfg(not(target_os = "linux"))]
pub(crate) fn advise_large_pages(_buffer: &mut [f32]) {}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_changed_under_other_threads() {
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!super::keep_memory()));
        });
    }

    #[test]
    fn large_pages_keep_what_a_buffer_holds() {
        let mut buffer: Vec<f32> = (0..2 << 20).map(|i| i as f32).collect();
        super::advise_large_pages(&mut buffer[1..]);
        super::release_memory();
        assert!(buffer.iter().enumerate().all(|(i, value)| *value == i as f32));
    }
}
