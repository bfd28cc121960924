//! Folders as profilers write them, and files that are compressed.

use super::{adds_up, folder, tables::TABLE, traces::ASCEND};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use zoo_measured::{Format, Part, open};

const OUTPUT: &str = "vm_1_ascend_pt/ASCEND_PROFILER_OUTPUT";

#[test]
fn the_trace_explains_the_table() {
    let table = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes\n\
        3,aclnnMatmul_MatMulV3Common_MatMulV3,MatMulV3,AI_CORE,130.000,40,\"2,3;3,4\"\n\
        3,Other,Cast,AI_CPU,190.000,5,N/A\n";
    let times = "Step,Computing,Communication(Not Overlapped),Free\n3,45,0,50\n";
    let collectives = r#"{"step3": {"p2p": {}, "collective": {}}}"#;
    let files = ["kernel_details.csv", "trace_view.json", "step_trace_time.csv", "communication.json"];
    let files = files.map(|name| format!("{OUTPUT}/{name}"));
    let texts = [table, ASCEND, times, collectives];
    let files: Vec<(&str, &str)> = files.iter().map(String::as_str).zip(texts).collect();
    let folder = folder(&files);
    let recording = open(folder.path()).unwrap();
    adds_up(&recording);
    assert_eq!(recording.format, Format::KernelDetails);
    let kernel = recording.kernels[0];
    assert_eq!((recording.text(kernel.module), kernel.part), ("fc", Some(Part::Forward)));
    assert_eq!(recording.text(kernel.inputs), "2,3;3,4");
    assert_eq!(recording.steps[0].end - recording.steps[0].start, 95_000);
    assert_eq!(recording.step_times[0].computing_ms, 0.045);
}

#[test]
fn several_recordings_are_not_mixed() {
    let files = [("a/kernel_details.csv", TABLE), ("b/kernel_details.csv", TABLE)];
    let folder = folder(&files);
    let message = open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("has 2 recordings, of several ranks or runs; name one: "), "{message}");
    std::fs::remove_dir_all(folder.path().join("a")).unwrap();
    assert!(open(folder.path()).is_ok());
    std::fs::remove_dir_all(folder.path().join("b")).unwrap();
    assert!(open(folder.path()).unwrap_err().to_string().ends_with("has no file of a profiler"));
}

#[test]
fn compressed_files_are_told_by_their_first_bytes() {
    let folder = folder(&[("plain.csv", TABLE)]);
    let path = folder.path().join("compressed.csv");
    let mut file = GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::fast());
    file.write_all(TABLE.as_bytes()).unwrap();
    file.finish().unwrap();
    let [plain, compressed] = ["plain.csv", "compressed.csv"].map(|name| open(&folder.path().join(name)).unwrap());
    assert_eq!(plain.kernels.len(), compressed.kernels.len());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 12]).unwrap();
    assert!(open(&path).unwrap_err().to_string().starts_with("cannot read"));
}
