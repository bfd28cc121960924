//! Data sets that zoo does not read, and what to do with them.

use std::path::{Path, PathBuf};

use super::parts::name;
use crate::{DataError, files};

const CIFAR10: &str = "the Python version of CIFAR-10, whose files are pickles; zoo reads the binary version: \
                       https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
const CIFAR100: &str = "CIFAR-100; zoo reads the binary version of CIFAR-10, or images as files";
const EMNIST: &str = "IDX files with other names; zoo reads train-images-idx3-ubyte, train-labels-idx1-ubyte, \
                      t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte: rename them";

/// Ends of names in lower case, and what such files are.
const ENDS: [(&[&str], &str); 10] = [
    (&[".zip", ".tar", ".tar.gz", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar", ".zst"], "archives (unpack them)"),
    (&[".tfrecord", ".tfrecords"], "TFRecord files"),
    (&[".parquet", ".arrow", ".feather"], "tables with images inside (Parquet, Arrow)"),
    (&[".npz", ".npy"], "NumPy arrays"),
    (&[".h5", ".hdf5"], "HDF5 files"),
    (&[".mat"], "MATLAB files"),
    (&[".mdb"], "an LMDB database"),
    (&[".rec"], "RecordIO files of MXNet"),
    (&[".pkl", ".pickle", ".pt", ".pth"], "Python pickles"),
    (&[".csv", ".tsv", ".jsonl"], "tables"),
];

/// Describes the files of a folder, or of the only folder in it, if they are those of a known format that zoo does not
/// read.
pub(super) fn foreign(folder: &Path) -> Result<Option<String>, DataError> {
    let paths = files::entries(folder)?;
    let (folders, paths): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| path.is_dir());
    if let ([only], []) = (folders.as_slice(), paths.as_slice()) {
        return foreign(only);
    }
    let names: Vec<String> = paths.iter().map(|path| name(path).to_lowercase()).collect();
    let all = |wanted: &[&str]| wanted.iter().all(|wanted| names.iter().any(|name| name == wanted));
    let known = [
        (all(&["data_batch_1", "test_batch"]), CIFAR10),
        (all(&["train", "test", "meta"]) || all(&["train.bin", "test.bin"]), CIFAR100),
        (names.iter().any(|name| name.contains("train-images-idx3-ubyte")), EMNIST),
    ];
    let of_files = |what: &str| Some(format!("{}: {what}", folder.display()));
    if let Some((_, what)) = known.iter().find(|(fits, _)| *fits) {
        return Ok(of_files(what));
    }
    // Sharded files: `train.tfrecord-00000-of-00010`.
    let kind = |name: &String| {
        let fits = |end: &&str| name.ends_with(*end) || (end.len() > 8 && name.contains(*end));
        ENDS.iter().find(|(ends, _)| ends.iter().any(|end| fits(&end)))
    };
    let found = names.iter().find_map(kind);
    Ok(found.and_then(|(_, what)| {
        of_files(&format!(
            "{what}, which zoo does not read; write the images as files (.png, .jpg) into train/CLASS/ and val/CLASS/"
        ))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn formats_are_named() {
        for (files, expected) in [
            (&["data_batch_1", "test_batch", "batches.meta"][..], "the binary version: https://"),
            (&["train", "test", "meta", "file.txt~"], "CIFAR-100"),
            (&["train.bin", "test.bin", "fine_label_names.txt"], "CIFAR-100"),
            (&["emnist-letters-train-images-idx3-ubyte"], "rename them"),
            (&["mnist.npz"], "NumPy arrays"),
            (&["a.tfrecord-00000-of-00010"], "TFRecord"),
            (&["train-00000-of-00001.parquet", "README.md"], "Parquet"),
            (&["shard-000000.tar", "shard-000001.tar"], "archives (unpack them)"),
            (&["data.mdb", "lock.mdb"], "LMDB"),
            (&["train_32x32.mat"], "MATLAB"),
            (&["X.H5"], "HDF5"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for inner in ["", "data/inner"] {
                let folder = dir.path().join(inner);
                fs::create_dir_all(&folder).unwrap();
                files.iter().for_each(|file| fs::write(folder.join(file), "").unwrap());
                let found = foreign(dir.path()).unwrap().expect("a known format");
                assert!(found.contains(expected), "{files:?}: {found}");
                files.iter().for_each(|file| fs::remove_file(folder.join(file)).unwrap());
            }
            assert_eq!(foreign(dir.path()).unwrap(), None);
        }
    }
}
