#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zoo_fuzz::files::measured(data));
