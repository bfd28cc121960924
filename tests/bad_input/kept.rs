//! What is kept of runs and references: weights, checkpoints, goldens, dumps, logs.
#![cfg(unix)]

use crate::data::pipe;
use crate::expect;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn import(content: &[u8], reason: &str) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("weights"), content).unwrap();
    let recipe = project().join("tests/fixtures/recipes/tiny.yaml");
    expect(folder.path(), &["weights", "import", recipe.to_str().unwrap(), "weights"], 3, "weights", reason);
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn weights_that_claim_more_than_there_is_are_refused() {
    import(b"", "an empty file");
    import(&[&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "header too large");
    import(&[&90_000_000_u64.to_le_bytes()[..], b"{}"].concat(), "invalid header length");
    let huge = r#"{"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,4]}}"#;
    import(&safetensors(huge, &[0; 4]), "overflow");
    import(&safetensors(&"[".repeat(100_000), b""), "not a readable safetensors file");
    // An archive whose description is what it says, but packed: a few bytes that become many.
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("archive/data.pkl", SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored))
        .unwrap();
    zip.write_all(b"\x80\x02}.").unwrap();
    let mut archive = zip.finish().unwrap().into_inner();
    for place in 0..archive.len() - 4 {
        // The method of compression: 8 bytes into a local header, 10 into the directory's.
        match &archive[place..place + 4] {
            b"PK\x03\x04" => archive[place + 8] = 8,
            b"PK\x01\x02" => archive[place + 10] = 8,
            _ => {}
        }
    }
    import(&archive, "data.pkl");
}

#[test]
fn pipes_and_devices_in_place_of_files_are_refused() {
    let recipe = project().join("tests/fixtures/recipes/tiny.yaml");
    let recipe = recipe.to_str().unwrap();
    let seeds = project().join("tests/fuzz/seeds");
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, device) in [("pipe", false), ("zero", true)] {
        fs::create_dir(path(name)).unwrap();
        let make = |file: &str| {
            let file = path(&format!("{name}/{file}"));
            if device { symlink("/dev/zero", file).unwrap() } else { pipe(&file) }
        };
        make("weights");
        make("golden.json");
        fs::copy(seeds.join("tiny.json"), path(&format!("{name}/tiny.json"))).unwrap();
        make("tiny.safetensors");
        make("dump.json");
        make("events.jsonl");
        let at = |file: &str| format!("{name}/{file}");
        let reason = "a pipe or device, not a file";
        expect(folder.path(), &["weights", "import", recipe, &at("weights")], 3, "weights", reason);
        expect(folder.path(), &["check", recipe, "--golden", &at("golden.json")], 3, "golden.json", reason);
        expect(folder.path(), &["check", recipe, "--golden", &at("tiny.json")], 3, "tiny.safetensors", reason);
        expect(folder.path(), &["golden", "diff", name, name], 3, "dump.json", reason);
        expect(folder.path(), &["report", name], 3, "events.jsonl", reason);
    }
}

#[test]
fn a_golden_with_other_numbers_than_a_step_has_is_never_passed() {
    let recipe = project().join("tests/fixtures/recipes/tiny.yaml");
    let recipe = recipe.to_str().unwrap();
    let seeds = project().join("tests/fuzz/seeds");
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (manifest, tensors) =
        (fs::read_to_string(seeds.join("tiny.json")).unwrap(), fs::read(seeds.join("tiny.safetensors")).unwrap());
    let check = |manifest: &str, tensors: &[u8], code: i32, file: &str, reason: &str| {
        fs::write(path("golden.json"), manifest).unwrap();
        fs::write(path("golden.safetensors"), tensors).unwrap();
        expect(folder.path(), &["check", recipe, "--golden", "golden.json"], code, file, reason);
    };
    check(&manifest, &tensors, 0, "tiny", "pass");
    // NaN in every number of the first tensor of 64 bits.
    let length = u64::from_le_bytes(tensors[..8].try_into().unwrap()) as usize;
    let mut nan = tensors.clone();
    nan[8 + length..8 + length + 64].copy_from_slice(&f64::NAN.to_le_bytes().repeat(8));
    check(&manifest, &nan, 1, "tiny", "fail");
    // The last tensor is the labels': none that names a class.
    let mut labels = tensors.clone();
    let end = labels.len();
    labels[end - 8..].fill(0x7f);
    check(&manifest, &labels, 3, "label", "the number of classes");
    let mut shape: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    shape["tensors"]["buffer1/bn1.running_mean"]["shape"] = serde_json::json!([1_u64 << 40, 1_u64 << 40]);
    check(&shape.to_string(), &tensors, 3, "golden.json", "more than 2147483648 elements");
}
