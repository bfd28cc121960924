//! Files that are cut off, mixed or made to harm.

use super::{adds_up, read, tables::TABLE, traces::ASCEND};
use proptest::prelude::*;

fn whatever(name: &str, text: &str) {
    if let Ok(recording) = read(name, text) {
        adds_up(&recording);
    }
}

#[test]
fn other_files_are_named() {
    for text in ["", "hello", "a,b\n1,2\n", "\u{0}\u{1}"] {
        assert!(read("file", text).unwrap_err().contains("FOLDER/file is no file of a profiler"), "{text}");
    }
    assert_eq!(
        read("t.json", "[1]").unwrap_err(),
        "FOLDER/t.json: invalid type: integer `1`, expected struct Event at line 1 column 3"
    );
    assert!(super::open("/nowhere/trace.json".as_ref()).unwrap_err().to_string().starts_with("cannot read /nowhere"));
}

#[test]
fn times_at_the_ends_of_numbers() {
    for time in ["4000000000000000", "-4000000000000000", "0"] {
        let event = |name: &str, dur: &str| {
            format!(r#"{{"ph":"X","cat":"cpu_op","name":"{name}","ts":"{time}","dur":"{dur}"}}"#)
        };
        whatever("t.json", &format!("[{},{}]", event("a", "4000000000000000"), event("b", "-1")));
        whatever("trace_view.json", &ASCEND.replace("130.000", time));
    }
    let table = TABLE.replace("1000.5", "4000000000000000").replace(",100,", ",4000000000000000,");
    whatever("kernel_details.csv", &table);
}

proptest! {
    #[test]
    fn what_is_cut_off_ends_in_an_error_or_adds_up(length in 0usize..2000) {
        for (name, text) in [("kernel_details.csv", TABLE), ("trace_view.json", ASCEND)] {
            whatever(name, text.get(..length).unwrap_or(text));
        }
    }

    #[test]
    fn changed_bytes_end_in_an_error_or_add_up(changes in proptest::collection::vec((any::<usize>(), 32u8..127), 1..8)) {
        for (name, text) in [("kernel_details.csv", TABLE), ("trace_view.json", ASCEND)] {
            let mut bytes = text.as_bytes().to_vec();
            for (place, byte) in &changes {
                let place = place % bytes.len();
                bytes[place] = *byte;
            }
            whatever(name, &String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn events_in_any_order_add_up(
        events in proptest::collection::vec((0u32..3, 0u32..3, 0u32..100, 0u32..50, 0usize..7), 1..40),
    ) {
        const NAMES: [(&str, &str); 7] = [
            ("user_annotation", "ProfilerStep#1"),
            ("user_annotation", "forward/a"),
            ("cpu_op", "aten::add"),
            ("cpu_op", "autograd::engine::evaluate_function: AddBackward0"),
            ("cuda_runtime", "cudaStreamSynchronize"),
            ("kernel", "add"),
            ("user_annotation", "enumerate(DataLoader)#x"),
        ];
        let events: Vec<String> = events.iter().map(|(pid, tid, ts, dur, kind)| {
            let (cat, name) = NAMES[*kind];
            format!(
                r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},
                    "args":{{"External id":{ts},"Sequence number":{dur}}}}}"#
            )
        }).collect();
        whatever("t.json", &format!("[{}]", events.join(",")));
    }
}
