//! Tables with a kernel in each row.

use super::{adds_up, read};
use zoo_measured::{Format, GapKind, Part, Unit};

/// Two steps; the collective runs beside a kernel, and the second step begins 100 us after the first.
pub const TABLE: &str = "\u{feff}Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Dim,Input Shapes\n\
    1,MatMul3,MatMul,AI_CORE,1000.5\t,100,24,\"\"\"4,8;8,2\"\"\"\n\
    1,hcom_allReduce__1_0,hcom_allReduce_,HCCL,1050,100,0,N/A\n\
    1,Add4,Add,AI_VECTOR_CORE,1160.5,10,8,\"\"\"4,2\"\"\"\n\
    2,Cast1,Cast,AI_CPU,1270.5,30,1,N/A\n";

#[test]
fn each_instant_has_one_kernel() {
    let recording = read("kernel_details.csv", TABLE).unwrap();
    adds_up(&recording);
    assert_eq!(recording.format, Format::KernelDetails);
    let labels: Vec<(&str, i64)> = recording.steps.iter().map(|s| (s.label.as_str(), s.end - s.start)).collect();
    assert_eq!(labels, [("1", 170_000), ("2", 130_000)]);
    let kernels: Vec<(&str, Unit, i64)> =
        recording.kernels.iter().map(|k| (recording.text(Some(k.operator)), k.unit, k.own)).collect();
    let expected = [
        ("MatMul", Unit::Cube, 100_000),
        ("hcom_allReduce_", Unit::Link, 49_500),
        ("Add", Unit::Vector, 10_000),
        ("Cast", Unit::AiCpu, 30_000),
    ];
    assert_eq!(kernels, expected);
    assert_eq!(recording.text(recording.kernels[0].inputs), "4,8;8,2");
    assert_eq!(recording.kernels[0].cores, Some(24));
    let gaps: Vec<(u32, GapKind, i64)> = recording.gaps.iter().map(|g| (g.step, g.kind, g.duration)).collect();
    assert_eq!(gaps, [(0, GapKind::Launch, 10_500), (1, GapKind::Idle, 100_000)]);
}

#[test]
fn missing_columns_are_said() {
    let text = "Op Name,OP Type,Task Start Time(us),Task Duration(us)\nMatMul3,MatMul,1,2\n";
    let recording = read("op_summary_0.csv", text).unwrap();
    assert_eq!(recording.format, Format::OpSummary);
    assert_eq!(recording.kernels[0].unit, Unit::Device);
    for column in ["Step Id", "Task Type", "Block Num", "Input Shapes"] {
        assert!(recording.absent.contains(&format!("no column `{column}`")), "{column}");
    }
    let missing = read("kernel_details.csv", "Name,Accelerator Core,Duration(us)\n").unwrap_err();
    assert_eq!(missing, "FOLDER/kernel_details.csv has no column `Type`: kernel_details.csv has one");
}

#[test]
fn broken_rows_are_named() {
    let error = |from: &str, to: &str| read("kernel_details.csv", &TABLE.replace(from, to)).unwrap_err();
    assert_eq!(
        error("1160.5", "soon"),
        "FOLDER/kernel_details.csv:4: `Start Time(us)` is `soon`, not a time in microseconds"
    );
    assert!(error(",10,", ",-10,").contains(":4: `Duration(us)` is `-10`"));
    assert!(error(",30,1,N/A\n", ",30").contains(":5: 6 fields, but the header has 8; is the file cut off?"));
    assert!(error("MatMul3,MatMul", ",").contains(":2: `Name` is ``, not a name"));
    let empty = read("kernel_details.csv", TABLE.lines().next().unwrap()).unwrap_err();
    assert!(empty.ends_with("has no kernels: no operator was recorded in a step"), "{empty}");
}

/// In MindSpore's graph mode, the names of kernels are the paths of their cells.
#[test]
fn names_of_mindspore_have_modules() {
    let cell = "Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d";
    let text = format!(
        "Step ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n\
         1,{cell}/Conv2D-op12,Conv2D,AI_CORE,10,5\n\
         1,Gradients/{cell}/gradConv2D/Conv2DBackpropFilter-op34,Conv2DBackpropFilter,AI_CORE,20,5\n\
         1,Default/optimizer-Momentum/ApplyMomentum-op25,ApplyMomentum,AI_VECTOR_CORE,30,5\n"
    );
    let recording = read("kernel_details_0.csv", &text).unwrap();
    let kernels =
        recording.kernels.iter().map(|k| (recording.text(Some(k.operator)), k.part, recording.text(k.module)));
    let expected = [
        ("Conv2D", Some(Part::Forward), "conv1"),
        ("Conv2DBackpropFilter", Some(Part::Backward), "conv1"),
        ("ApplyMomentum", Some(Part::Update), "@update"),
    ];
    assert_eq!(kernels.collect::<Vec<_>>(), expected);
    assert!(
        recording.absent.iter().any(|sentence| sentence.starts_with("reasons of gaps: ")),
        "{:?}",
        recording.absent
    );
}
