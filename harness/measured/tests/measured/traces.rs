//! Chrome traces of PyTorch and of Ascend's profiler.

use super::{adds_up, read};
use zoo_measured::{Gap, GapKind, Name, Part, Recording, Unit};

/// An event of the host.
fn host(cat: &str, name: &str, ts: f64, dur: f64, more: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur},"args":{{"Ev Idx":0{more}}}}}"#
    )
}

fn op(name: &str, ts: f64, dur: f64, more: &str) -> String {
    host("cpu_op", name, ts, dur, more)
}

fn range(name: &str, ts: f64, dur: f64) -> String {
    host("user_annotation", name, ts, dur, "")
}

fn trace(events: &[String]) -> String {
    format!("{{\"schemaVersion\": 1, \"traceEvents\": [{}]}}", events.join(",\n"))
}

/// One step: 10 us of input, a module of 30 us with an operator of 20, its gradient, an update.
fn step() -> Vec<String> {
    vec![
        range("ProfilerStep#2", 100.0, 200.0),
        range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100.0, 10.0),
        op("aten::lift_fresh", 101.0, 1.0, ""),
        range("forward", 120.0, 40.0),
        range("forward/layer.0", 125.0, 30.0),
        op("aten::conv2d", 130.0, 20.0, r#","Sequence number":7,"Input Dims":[[2,3],[4]],"Input type":["float",""]"#),
        op("aten::convolution", 131.0, 18.0, r#","Sequence number":7"#),
        range("backward", 180.0, 60.0),
        op("autograd::engine::evaluate_function: ConvolutionBackward0", 190.0, 40.0, r#","Sequence number":7"#),
        op("ConvolutionBackward0", 191.0, 30.0, r#","Sequence number":7"#),
        range("Optimizer.step#SGD.step", 250.0, 30.0),
        op("aten::add_", 260.0, 15.0, ""),
    ]
}

type Row<'r> = (&'r str, Option<Part>, &'r str, i64);

fn rows(recording: &Recording) -> Vec<Row<'_>> {
    let kernels = recording.kernels.iter();
    kernels.map(|k| (recording.text(Some(k.operator)), k.part, recording.text(k.module), k.own)).collect()
}

#[test]
fn operators_have_modules_and_parts() {
    let recording = read("a.pt.trace.json", &trace(&step())).unwrap();
    adds_up(&recording);
    let expected = [
        ("aten::conv2d", Some(Part::Forward), "layer.0", 20_000),
        ("ConvolutionBackward0", Some(Part::Backward), "layer.0", 40_000),
        ("aten::add_", Some(Part::Update), "@update", 15_000),
    ];
    assert_eq!(rows(&recording), expected);
    assert_eq!(recording.text(recording.kernels[0].inputs), "2,3;4");
    assert_eq!(recording.text(recording.kernels[0].types), "float;");
    let of = |kind: GapKind| recording.gaps.iter().filter(|g| g.kind == kind).map(|g| g.duration).sum::<i64>();
    assert_eq!((of(GapKind::Input), of(GapKind::Host)), (10_000, 115_000));
}

#[test]
fn order_in_the_file_does_not_matter() {
    let mut events = step();
    events.reverse();
    let (first, second) = (read("a.json", &trace(&step())).unwrap(), read("a.json", &trace(&events)).unwrap());
    assert_eq!(rows(&first), rows(&second));
}

#[test]
fn a_gradient_that_computes_a_module_again_is_not_its_operators() {
    let mut events = step();
    events.extend([range("forward/layer.0", 195.0, 20.0), op("aten::relu", 200.0, 10.0, "")]);
    let recording = read("a.json", &trace(&events)).unwrap();
    adds_up(&recording);
    assert!(rows(&recording).contains(&("aten::relu", Some(Part::Backward), "layer.0", 10_000)));
    assert!(rows(&recording).contains(&("ConvolutionBackward0", Some(Part::Backward), "layer.0", 20_000)));
}

/// The same step on a GPU, whose kernels run later; a wait for the device in between leaves it idle.
#[test]
fn kernels_of_a_device_belong_to_the_operators_that_launched_them() {
    let kernel = |name: &str, ts: f64, dur: f64, correlation: u32| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"correlation":{correlation}}}}}"#
        )
    };
    let mut events = step();
    events.extend([
        host("cuda_runtime", "cudaLaunchKernel", 140.0, 2.0, r#","correlation":11"#),
        host("cuda_runtime", "cudaLaunchKernel", 200.0, 2.0, r#","correlation":12"#),
        host("cuda_runtime", "cudaDeviceSynchronize", 150.5, 25.0, r#","correlation":13"#),
        kernel("conv", 145.0, 30.0, 11),
        kernel("grad", 205.0, 95.0, 12),
        kernel("copied", 300.0, 1.0, 99),
    ]);
    let recording = read("a.json", &trace(&events)).unwrap();
    adds_up(&recording);
    let names: Vec<(&str, &str, i64)> =
        recording.kernels.iter().map(|k| (recording.text(Some(k.name)), recording.text(k.module), k.own)).collect();
    assert_eq!(names, [("conv", "layer.0", 30_000), ("grad", "layer.0", 95_000)]);
    let gaps: Vec<(GapKind, i64)> = recording.gaps.iter().map(|gap| (gap.kind, gap.duration)).collect();
    let expected = [(GapKind::Input, 10_000), (GapKind::Host, 35_000), (GapKind::Synchronisation, 30_000)];
    assert_eq!(gaps, expected);
}

/// The events that an NPU's profiler writes for a product and its operator.
pub const ASCEND: &str = r#"[
  {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"Python"}},
  {"ph":"M","name":"process_name","pid":2,"tid":0,"args":{"name":"CANN"}},
  {"ph":"M","name":"process_name","pid":3,"tid":0,"args":{"name":"Ascend Hardware"}},
  {"ph":"X","name":"ProfilerStep#3","pid":1,"tid":5,"ts":"100.000","dur":100},
  {"ph":"X","name":"forward/fc","pid":1,"tid":5,"ts":"110.000","dur":50},
  {"ph":"X","name":"aten::linear","pid":1,"tid":5,"ts":"115.000","dur":20,"args":{"Sequence number":1}},
  {"ph":"s","cat":"async_npu","name":"async_npu","id":"4","pid":1,"tid":5,"ts":"116.500"},
  {"ph":"f","cat":"async_npu","name":"async_npu","id":"4","pid":3,"tid":2,"ts":"130.000","bp":"e"},
  {"ph":"X","name":"aclnnMatmul_MatMulV3Common_MatMulV3","pid":3,"tid":2,"ts":"130.000","dur":40,"args":{"Task Type":"AI_CORE"}},
  {"ph":"X","name":"AscendCL@aclrtSynchronizeStream","pid":2,"tid":5,"ts":"160.000","dur":15},
  {"ph":"X","name":"Other","pid":3,"tid":2,"ts":"190.000","dur":5,"args":{"Task Type":"AI_CPU"}}
]"#;

#[test]
fn flows_lead_from_an_npu_to_its_operators() {
    let recording = read("trace_view.json", ASCEND).unwrap();
    adds_up(&recording);
    let kernels: Vec<(&str, &str, Option<Part>, Unit)> = recording
        .kernels
        .iter()
        .map(|k| (recording.text(Some(k.name)), recording.text(k.module), k.part, k.unit))
        .collect();
    let expected = [
        ("aclnnMatmul_MatMulV3Common_MatMulV3", "fc", Some(Part::Forward), Unit::Cube),
        ("Other", "", None, Unit::AiCpu),
    ];
    assert_eq!(kernels, expected);
    let last: Option<(GapKind, i64, Option<Name>)> =
        recording.gaps.last().map(|Gap { kind, duration, module, .. }| (*kind, *duration, *module));
    assert_eq!(last, Some((GapKind::Synchronisation, 20_000, None)));
}

/// A compilation of 12 us in a module is a gap before the operator that waits for it, with the operators that it tries.
#[test]
fn compilations_are_gaps() {
    let mut events: Vec<String> = step().into_iter().filter(|event| !event.contains("aten::conv")).collect();
    events.extend([
        op("entire_frame_compile", 126.0, 12.0, ""),
        op("_compile.compile_inner (dynamo_timed)", 127.0, 10.0, ""),
        op("aten::mm", 130.0, 2.0, ""),
        op("aten::conv2d", 140.0, 10.0, ""),
    ]);
    let recording = read("a.json", &trace(&events)).unwrap();
    adds_up(&recording);
    assert!(!rows(&recording).iter().any(|row| row.0 == "aten::mm"));
    let found: Vec<Gap> = recording.gaps.iter().filter(|gap| gap.kind == GapKind::Compile).copied().collect();
    let next = found[0].next.map(|next| recording.text(Some(recording.kernels[next as usize].operator)));
    assert_eq!((found.len(), found[0].duration, next), (1, 12_000, Some("aten::conv2d")));
}

/// A gap of 100 us after a synchronisation: a call that compiles for 90 us explains it, one that is as short as a
/// launch does not.
#[test]
fn an_npu_waits_for_operators_that_are_compiled() {
    let last = |text: &str| read("trace_view.json", text).unwrap().gaps.last().map(|gap| (gap.kind, gap.duration));
    let later = ASCEND.replace("190.000", "270.000").replace("\"dur\":100}", "\"dur\":200}");
    let call = |us: u32| {
        let name = "AscendCL@aclopCompileAndExecuteV2";
        let call = format!(r#"{{"ph":"X","name":"{name}","pid":2,"tid":5,"ts":"175.000","dur":{us}}},"#);
        later.replacen("{\"ph\":\"X\",\"name\":\"Other\"", &format!("{call}\n{{\"ph\":\"X\",\"name\":\"Other\""), 1)
    };
    assert_eq!(last(&later), Some((GapKind::Synchronisation, 100_000)));
    assert_eq!(last(&call(90)), Some((GapKind::Compile, 100_000)));
    assert_eq!(last(&call(15)), Some((GapKind::Synchronisation, 100_000)));
}

#[test]
fn a_trace_without_steps_or_marks_says_so() {
    let recording = read("a.json", &trace(&[op("aten::relu", 1.0, 2.0, "")])).unwrap();
    adds_up(&recording);
    assert_eq!(recording.absent.len(), 3, "{:?}", recording.absent);
    assert!(recording.absent.iter().any(|sentence| sentence.starts_with("steps: ")));
    assert!(read("a.json", "{\"traceEvents\": []}").unwrap_err().contains("has no kernels"));
}
