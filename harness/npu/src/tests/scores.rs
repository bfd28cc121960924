//! Published throughput: what is held out is met, and little enough is fitted.

use crate::{
    Comparison, DeviceLibrary, Scored, Throughput,
    score::{self, Errors},
};
use std::path::{Path, PathBuf};
use zoo_recipe::{Document, Library};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

/// The rows of all files that can be simulated.
fn simulated() -> Vec<Comparison> {
    let (recipes, devices) = (Library::new([folder()]), DeviceLibrary::new([folder()]));
    let files = score::list([folder()]).into_iter().map(|(_, path)| path);
    let files = files.map(|path| Document::<Throughput>::read(&path).unwrap_or_else(|errors| panic!("{errors}")));
    let score = |row| match score::score(&row, &recipes, &devices).unwrap_or_else(|error| panic!("{}: {error}", row.id))
    {
        Scored::Simulated(row) => Some(row),
        Scored::Skipped { id, skipped } => {
            assert_eq!(skipped, "no recipe", "{id}");
            None
        }
    };
    files.flat_map(|file| file.value.rows).filter_map(score).collect()
}

#[test]
fn rows_that_nothing_was_fitted_to_are_met() {
    let rows = simulated();
    let held_out = || rows.iter().filter(|row| !row.fitted && !row.doubtful);
    let errors = Errors::of(held_out()).unwrap();
    assert!(errors.rows > 30 && errors.mean <= 0.12 && errors.median <= 0.06, "{errors:?}");
    for row in held_out() {
        assert!(row.error.abs() <= 0.35, "{row:?}");
    }
    // MobileNetV3's step on the 910, batch by batch.
    let sweep: Vec<_> = rows.iter().filter(|row| row.id.starts_with("mbv3-l-tf")).collect();
    assert!(sweep.len() == 3 && sweep.iter().all(|row| row.error.abs() <= 0.15), "{sweep:?}");
}

#[test]
fn at_most_a_third_of_a_family_is_fitted() {
    let rows = simulated();
    for group in score::summary(&rows.iter().cloned().map(Scored::Simulated).collect::<Vec<_>>()).families {
        let all = rows.iter().filter(|row| row.family == group.name).count();
        assert!(3 * group.fitted <= all.max(3), "{}: {} of {all}", group.name, group.fitted);
    }
}
