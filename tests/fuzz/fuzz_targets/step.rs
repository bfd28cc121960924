#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    zoo_fuzz::yaml::mutate(data, size, max_size, seed)
});
libfuzzer_sys::fuzz_target!(|data: &[u8]| zoo_fuzz::files::step(data));
