//! Published throughput: what is held out is met, and little enough is fitted.

use std::path::{Path, PathBuf};
use zoo_npu::{
    DeviceLibrary, Scored, Throughput,
    score::{self, Summary},
};
use zoo_recipe::{Document, Library};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn scored() -> Vec<Scored> {
    let (recipes, devices) = (Library::new([folder()]), DeviceLibrary::new([folder()]));
    let files = score::list([folder()]).into_iter().map(|(_, path)| path).chain(std::env::var_os("ROWS").map(PathBuf::from));
    let files = files.map(|path| Document::<Throughput>::read(&path).unwrap_or_else(|errors| panic!("{errors}")));
    let rows = files.flat_map(|file| file.value.rows);
    rows.map(|row| score::score(&row, &recipes, &devices).unwrap_or_else(|error| panic!("{}: {error}", row.id))).collect()
}

#[test]
fn show() {
    let rows = scored();
    for row in &rows {
        match row {
            Scored::Simulated(r) => println!("{:24} {:10.1} {:10.1} {:4} {:+7.1} % {:?} {} {}", r.id, r.published, r.simulated, r.unit, 100.0*r.error, r.limit, if r.fitted {"fitted"} else {""}, if r.doubtful {"doubtful"} else {""}),
            Scored::Skipped { id, skipped } => println!("{id:24} skipped {}", &skipped[..skipped.len().min(80)]),
        }
    }
    let summary: Summary = score::summary(&rows);
    println!("held out {:?}\nfitted {:?}\ndoubtful {:?} waits {}", summary.held_out, summary.fitted, summary.doubtful, summary.waits_for_input);
    for g in summary.families.iter().chain(&summary.devices) { println!("{:20} {:?} fitted {} doubtful {}", g.name, g.held_out.map(|e| (e.rows, (e.mean*1e3).round()/10.0, (e.median*1e3).round()/10.0, (e.worst*1e3).round()/10.0)), g.fitted, g.doubtful); }
}
