//! The files of the repository: schemas are what the types say; devices, studies and throughput files load.

use std::path::{Path, PathBuf};
use zoo_npu::{Device, DeviceLibrary, Throughput, study, study::PublishedFigure};
use zoo_recipe::Document;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

/// `UPDATE_SCHEMA=1 cargo test -p zoo-npu` writes the files anew.
#[test]
fn the_schema_files_are_fresh() {
    let schemas = [
        ("device", zoo_npu::device_schema()),
        ("host", zoo_npu::host_schema()),
        ("study", zoo_npu::study_schema()),
        ("throughput", zoo_npu::throughput_schema()),
    ];
    for (name, schema) in schemas {
        let path = folder().join(format!("schema/{name}.json"));
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
        }
        let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(file == schema, "{} is stale: UPDATE_SCHEMA=1 cargo test -p zoo-npu", path.display());
    }
}

#[test]
fn every_device_loads_and_every_number_has_a_source() {
    let library = DeviceLibrary::new([folder()]);
    let names: Vec<String> = library.list().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a100", "ascend310", "ascend910", "ascend910b", "gaudi", "gaudi2", "v100"]);
    for name in names {
        let device = library.load(&name).unwrap_or_else(|error| panic!("{error}"));
        let figures = device.figures();
        assert!(figures.len() > 35, "{name} has {} figures", figures.len());
        assert!(figures.iter().all(|(_, figure)| !figure.source.is_empty()));
    }
}

#[test]
fn peaks_are_those_of_the_data_sheets() {
    // TFLOP/s in half precision: Huawei 256, 8 and 313, NVIDIA 125 and 312, Habana 432.
    for (name, published) in [
        ("ascend910", 256.0),
        ("ascend310", 8.0),
        ("v100", 125.0),
        ("gaudi2", 432.0),
        ("a100", 312.0),
        ("ascend910b", 313.0),
    ] {
        let device = DeviceLibrary::new([folder()]).load(name).unwrap_or_else(|error| panic!("{error}"));
        let peak = device.peak_flops() / 1e12;
        assert!((peak / published - 1.0).abs() < 0.01, "{name}: {peak}");
    }
}

#[test]
fn every_study_and_throughput_file_loads() {
    let studies = study::list([folder()]);
    let names: Vec<&str> = studies.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "alexnet-options",
            "alexnet-precision",
            "db-underflow",
            "gaudi-guide",
            "resnet50-allreduce",
            "resnet50-cann",
            "siammask-step-time"
        ]
    );
    for (_, path) in &studies {
        study::read(path).unwrap_or_else(|errors| panic!("{errors}"));
    }
    for (_, path) in zoo_npu::score::list([folder()]) {
        let file: Document<Throughput> = Document::read(&path).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(file.value.rows.iter().all(|row| row.published().is_some()));
    }
}

fn broken(change: impl Fn(String) -> String) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("devices")).unwrap();
    let text = std::fs::read_to_string(folder().join("devices/v100.yaml")).unwrap();
    std::fs::write(dir.path().join("devices/v100.yaml"), change(text)).unwrap();
    std::fs::create_dir(dir.path().join("hosts")).unwrap();
    std::fs::copy(folder().join("hosts/dgx1.yaml"), dir.path().join("hosts/dgx1.yaml")).unwrap();
    let loaded: Result<Device, _> = DeviceLibrary::new([dir.path()]).load("v100");
    loaded.unwrap_err().to_string()
}

#[test]
fn a_wrong_device_file_is_refused_with_its_lines() {
    let misspelt = broken(|text| text.replace("gb_per_s: {value: 900", "gb_per_sec: {value: 900"));
    assert!(misspelt.contains("did you mean `gb_per_s`?") && misspelt.contains("v100.yaml:"), "{misspelt}");
    let without = broken(|text| text.replace("value: 900, source: \"data sheet\"", "value: 900"));
    assert!(without.contains("`source` is missing"), "{without}");
    let share = broken(|text| text.replace("efficiency: {value: 0.694", "efficiency: {value: 1.694"));
    assert!(share.contains("a share is at most 1, found 1.694"), "{share}");
    let zero = broken(|text| text.replace("gib: {value: 32", "gib: {value: 0"));
    assert!(zero.contains("must be more than 0"), "{zero}");
    let operator = broken(|text| text.replace("L2Loss", "L2Lost"));
    assert!(
        operator.contains("no operator has the name `L2Lost`") && operator.contains("did you mean `L2Loss`?"),
        "{operator}"
    );
    assert!(operator.contains("v100.yaml:"), "{operator}");
    let host = broken(|text| text.replace("host: dgx1", "host: dgx2"));
    assert!(host.contains("there is no host `dgx2`, did you mean `dgx1`?") && host.contains("v100.yaml:"), "{host}");
    let tile = broken(|text| text.replace("tile: [8, 8, 8]", "tile: [4294967296, 1, 4294967296]"));
    assert!(tile.contains("a tile has 1 to 1024 rows, columns and steps"), "{tile}");
    let masks = broken(|text| text.replace("control:\n", "control:\n  mask_elements_per_us: {value: 0, source: x}\n"));
    assert!(masks.contains("must be more than 0"), "{masks}");
    let name = broken(|text| text.replace("name: v100", "name: v200"));
    assert!(name.contains("a device is named as its file"), "{name}");
}

#[test]
fn published_figures_are_positive_and_in_order() {
    let read = |text: &str| serde_json::from_str::<PublishedFigure>(text).map_err(|error| error.to_string());
    assert_eq!(read("31.5"), Ok(PublishedFigure::One(31.5)));
    assert_eq!(read("[100, 900]"), Ok(PublishedFigure::Range([100.0, 900.0])));
    for wrong in ["0", "-5", "[900, 100]", "[0, 100]"] {
        assert!(read(wrong).is_err_and(|error| error.contains("a number above 0")), "{wrong}");
    }
}

#[test]
fn a_study_names_operators_that_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gaudi-guide.yaml");
    let text = std::fs::read_to_string(folder().join("studies/gaudi-guide.yaml")).unwrap();
    assert!(text.contains("[MaxPool, MaxPoolGrad]"));
    std::fs::write(&path, text.replace("[MaxPool, MaxPoolGrad]", "[MaxPool, MaxPoolGard]")).unwrap();
    let wrong = study::read(&path).unwrap_err().to_string();
    assert!(wrong.contains("did you mean `MaxPoolGrad`?") && wrong.contains("gaudi-guide.yaml:33"), "{wrong}");
}
