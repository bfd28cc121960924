//! Decodes the files whose paths come on stdin, one per line, for golden/export/images.py.
//!
//!     cargo run --release -p zoo-datasets --example decode -- pixels|labels < LIST
//!
//! Prints a line for each: width, height, and the 64-bit Fowler-Noll-Vo hash (1a) of its pixels or labels; or the error.

use std::io::BufRead;

use zoo_datasets::hash::fnv1a64;
use zoo_datasets::image::{self, Size};

fn main() {
    let labels = std::env::args().nth(1).is_some_and(|argument| argument == "labels");
    for path in std::io::stdin().lock().lines().map_while(Result::ok) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let decoded: Result<(Size, u64), image::DecodeError> = if labels {
            image::decode_labels(&bytes).map(|labels| (labels.size(), fnv1a64(labels.values())))
        } else {
            image::decode(&bytes).map(|image| (image.size(), fnv1a64(image.pixels())))
        };
        match decoded {
            Ok((size, hash)) => println!("{} {} {hash:016x}", size.width, size.height),
            Err(error) => println!("error: {}", error.to_string().replace('\n', " ")),
        }
    }
}
