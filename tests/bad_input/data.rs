//! Folders of data: bombs, pipes, devices, loops, names that are no text, paths out of the folder.
#![cfg(unix)]

use crate::expect;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use zoo_datasets::{Crop511, Image, OnError, Size, image::write_png, tracking::VideoDataset};

/// A named pipe that nobody writes to.
pub fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Two classes of sound images.
fn classes() -> TempDir {
    let folder = TempDir::new().unwrap();
    for class in ["x", "y"] {
        fs::create_dir_all(folder.path().join("data").join(class)).unwrap();
        for number in 0..12 {
            let path = folder.path().join(format!("data/{class}/{number}.png"));
            write_png(&Image::filled(Size::square(4), [number; 3]), &path).unwrap();
        }
    }
    folder
}

fn inspect(folder: &TempDir, recipe: &str, code: i32, file: &str, reason: &str) {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/recipes/{recipe}.yaml"));
    expect(folder.path(), &["data", "inspect", recipe.to_str().unwrap(), "--data", "data"], code, file, reason);
}

/// A PNG file of this size whose pixels are these compressed bytes; checksums are right.
fn png(width: u32, height: u32, compressed: &[u8]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
        })
    };
    let chunk = |kind: &[u8], data: &[u8]| {
        let body = [kind, data].concat();
        [&(data.len() as u32).to_be_bytes()[..], &body, &crc(&body).to_be_bytes()].concat()
    };
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", compressed), chunk(b"IEND", b"")].concat()
}

/// The photograph of the tests with another size in its frame header (ITU T.81, B.2.2).
fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/tests/images");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let file = files.iter().find(|path| path.extension().is_some_and(|extension| extension == "jpg")).unwrap();
    let mut bytes = fs::read(file).unwrap();
    let frame = bytes.windows(2).position(|marker| matches!(marker, [0xff, 0xc0..=0xc2])).unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[test]
fn images_that_claim_more_than_there_can_be_are_named() {
    for (name, bytes, reason) in [
        ("a.png", png(100_000, 100_000, b""), "100000x100000 pixels exceed the limits"),
        ("a.png", png(0x7fff_ffff, 0x7fff_ffff, b""), "a.png"),
        ("a.png", png(20_000, 3_300, b"\x78\x9c"), "a.png"),
        ("a.png", png(0, 5, b""), "a.png"),
        ("a.jpg", jpeg(65_500, 65_500), "65500x65500 pixels exceed the limits"),
        ("a.jpg", jpeg(20_000, 3_300), "a.jpg"),
        ("a.png", b"".to_vec(), "an empty file, but only PNG and JPEG files are read"),
    ] {
        let folder = classes();
        fs::write(folder.path().join("data/x").join(name), bytes).unwrap();
        inspect(&folder, "tiny", 3, name, reason);
    }
}

#[test]
fn loops_pipes_devices_and_names_that_are_no_text_are_named() {
    type Plant = fn(&Path);
    let cases: [(Plant, &str, &str); 6] = [
        (|x| symlink("..", x.join("up")).unwrap(), "up", "loop"),
        (|x| symlink("me", x.join("me")).unwrap(), "me", "symbolic links"),
        (|x| symlink("nowhere", x.join("gone.png")).unwrap(), "gone.png", "No such file"),
        (|x| symlink("/dev/zero", x.join("zero.png")).unwrap(), "zero.png", "not an image"),
        (|x| pipe(&x.join("pipe.png")), "pipe.png", "not an image"),
        (|x| fs::write(x.join(OsStr::from_bytes(b"\xff.png")), b"").unwrap(), "data/x", "the name is not UTF-8"),
    ];
    for (plant, file, reason) in cases {
        let folder = classes();
        plant(&folder.path().join("data/x"));
        inspect(&folder, "tiny", 3, file, reason);
    }
}

#[test]
fn pipes_and_devices_among_texts_and_frames_are_refused() {
    for device in [false, true] {
        let folder = TempDir::new().unwrap();
        for part in ["images", "gts"] {
            fs::create_dir_all(folder.path().join("data").join(part)).unwrap();
        }
        let image = folder.path().join("data/images/a.png");
        if device {
            symlink("/dev/zero", &image).unwrap()
        } else {
            pipe(&image)
        }
        fs::write(folder.path().join("data/gts/a.txt"), "").unwrap();
        inspect(&folder, "tiny_text", 3, "a.png", "a pipe or device, not a file");

        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let frame = folder.path().join("data/00000001.png");
        if device {
            symlink("/dev/zero", &frame).unwrap()
        } else {
            pipe(&frame)
        }
        inspect(&folder, "tiny_track", 3, "00000001.png", "a pipe or device, not a file");
    }
}

#[test]
fn texts_that_cannot_be_used_are_named() {
    let long = [b'a', b'b'].repeat(500);
    for (content, file, reason) in [
        (Vec::new(), "data", "data: the file is empty"),
        ([&long[..], b"\n\xff"].concat(), "data", "data:2: invalid UTF-8 at byte 1001"),
        (b"abab".repeat(10), "what is held out", "4 tokens are too few: a window and the token after it take 17"),
    ] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("data"), content).unwrap();
        inspect(&folder, "tiny_language", 3, file, reason);
    }
    let folder = TempDir::new().unwrap();
    pipe(&folder.path().join("data"));
    inspect(&folder, "tiny_language", 3, "data", "a pipe or device, not a file");
    fs::remove_file(folder.path().join("data")).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    inspect(&folder, "tiny_language", 3, "data", "no files *.txt found in this folder");
}

#[test]
fn an_index_names_files_below_its_folder_only() {
    let folder = TempDir::new().unwrap();
    let index = folder.path().join("index.json");
    for name in ["../../../etc", "/etc", "a/../../b", "..", ""] {
        fs::write(&index, format!("{{\"{name}\": {{\"passwd\": {{\"000001\": [1, 2, 3, 4]}}}}}}")).unwrap();
        let error = Crop511::open(folder.path(), &index, false, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("index.json") && error.contains("plain folder"), "{name}: {error}");
    }
    fs::write(&index, r#"{"v": {"0": {"000001": [1, 2, 3, 4]}}}"#).unwrap();
    fs::create_dir(folder.path().join("v")).unwrap();
    pipe(&folder.path().join("v/000001.0.x.jpg"));
    let set = Crop511::open(folder.path(), &index, false, OnError::Fail).unwrap();
    assert!(set.frame(0, 0).unwrap_err().to_string().contains("a pipe or device"));
}
