//! Recipes: absurd sizes, circles, bombs, other files in their place.

use crate::expect;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn tiny() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recipes/tiny.yaml")).unwrap()
}

/// Validates a file of this content.
fn refused(content: &[u8], reason: &str) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("bad.yaml"), content).unwrap();
    expect(folder.path(), &["validate", "bad.yaml"], 2, "bad.yaml", reason);
}

#[test]
fn absurd_sizes_are_refused_with_line_and_range() {
    for (old, new, reason) in [
        ("batch: 16", "batch: 1099511627776", "at most 65536, found 1099511627776"),
        ("batch: 16", "batch: 0", "at least 1, found 0"),
        ("batch: 16", "batch: -4", "at least 1, found -4"),
        ("batch: 16", "batch: 99999999999999999999999999999999999999999", "expected a whole number"),
        ("epochs: 2", "epochs: 1000000000000", "at most 100000"),
        ("pad: 1, bias", "pad: 1000000000000, bias", "at most 65536"),
        ("kernel: 3, pad: 1, bias", "kernel: 0, pad: 1, bias", "at least 1, found 0"),
        ("stride: 2", "stride: 0", "at least 1, found 0"),
        ("stride: 2", "stride: -2", "at least 1, found -2"),
        ("stride: 2", "dilation: 0", "at least 1, found 0"),
        ("out: 16", "out: 1000000000000", "at most 16777216"),
        ("stride: 2", "groups: 5", "5 groups do not divide 16 input and 24 output channels"),
        ("[3, 16, 16]", "[3, 0, 16]", "at least 1, found 0"),
        ("[3, 16, 16]", "[3, 1, 1]", "does not fit into 1x1"),
        ("[3, 16, 16]", "[3, 100000, 100000]", "at most 65536, found 100000"),
        ("classes: 10\n", "classes: 1000000000000\n", "at most 1000000"),
        ("size: 16}}}", "size: 100000}}}", "at most 512"),
        ("base_lr: 0.05", "base_lr: 1e99999", "expected a number"),
        ("std: [64, 64, 64]", "std: [0, 64, 64]", "must be more than 0"),
        ("batch: 16", "batch: 8, batch: 16", "duplicate key"),
        ("name: tiny\n", "name: ../../x\n", "is not a valid recipe name"),
    ] {
        let changed = tiny().replacen(old, new, 1);
        assert_ne!(changed, tiny(), "{old}");
        refused(changed.as_bytes(), reason);
    }
    let forever =
        "model:\n  blocks: {b: {body: [relu]}}\n  body:\n    - stack: {name: s, block: b, repeat: 1000000000}\n";
    refused(forever.as_bytes(), "at most 1024");
}

#[test]
fn bombs_and_bytes_that_are_no_text_are_refused() {
    let laughs: String = ('b'..='m')
        .scan('a', |last, name| {
            let of = std::mem::replace(last, name);
            Some(format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 9].join(", ")))
        })
        .collect();
    refused(format!("a: &a [x, x]\n{laughs}").as_bytes(), "with aliases");
    refused(b"a: &a [*a]\n", "a value that contains it");
    refused("[".repeat(100_000).as_bytes(), "recursion limit");
    refused("{a: ".repeat(50_000).as_bytes(), "recursion limit");
    refused("x".repeat(300_000).as_bytes(), "at most 256 KiB");
    refused(b"", "found nothing");
    refused(b"\xff\xfen\x00a\x00m\x00e\x00", "not UTF-8");
    refused(format!("{}\0", tiny()).as_bytes(), "control character");
    let keys: Vec<String> = (0..20_000).map(|key| format!("k{key}: 1")).collect();
    refused(format!("{{{}}}", keys.join(", ")).as_bytes(), "more than 500 mistakes");
}

#[test]
fn marks_and_ends_of_lines_of_windows_are_harmless() {
    let folder = TempDir::new().unwrap();
    let text = format!("\u{feff}{}", tiny().replace('\n', "\r\n").replace("name: tiny", "name: bom"));
    fs::write(folder.path().join("bom.yaml"), text).unwrap();
    expect(folder.path(), &["validate", "bom.yaml"], 0, "bom.yaml", "ok");
}

#[test]
fn recipes_that_extend_in_circles_without_end_or_other_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for step in 0..600 {
        write(&format!("r{step}.yaml"), &format!("extends: r{}\n", step + 1));
    }
    write("r600.yaml", &tiny());
    write("a.yaml", "extends: b\n");
    write("b.yaml", "extends: a\n");
    write("outside.yaml", "extends: ../../../../../../../../etc/passwd\n");
    write("absolute.yaml", "extends: /etc/passwd\n");
    for (file, reason) in
        [("a.yaml", "in a cycle"), ("outside.yaml", "there is no recipe"), ("absolute.yaml", "there is no recipe")]
    {
        expect(folder.path(), &["validate", file], 2, file, reason);
    }
    expect(folder.path(), &["validate", "r0.yaml"], 2, "r16.yaml", "more than 16 recipes that extend each other");
    let (_, said) = crate::bounded(folder.path(), &["validate", "outside.yaml"]);
    assert!(!said.contains("root:"), "{said}");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("folder.yaml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("zero.yaml")).unwrap();
    std::os::unix::fs::symlink("loop.yaml", path("loop.yaml")).unwrap();
    crate::data::pipe(&path("pipe.yaml"));
    for name in ["folder.yaml", "zero.yaml", "pipe.yaml"] {
        expect(folder.path(), &["validate", name], 2, name, "not a file");
    }
    expect(folder.path(), &["validate", "loop.yaml"], 2, "loop.yaml", "there is no recipe");
}
