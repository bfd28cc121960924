//! `check --parallel`: a step that several ranks share.

use crate::workbench::zoo;

/// Llama with two blocks, and few tokens.
const SMALL: &str = "--set model.inputs.tokens.indices=[8] --set model.classes=96 \
                     --set model.body[0].scope.body[1].scope.body[0].stack.repeat=2";

#[test]
fn a_split_is_proven_without_a_golden() {
    let report =
        zoo(&format!("check llama --parallel data=2,tensor=2,sequence {SMALL} --format json")).expect(0).json();
    assert_eq!((&report["verdict"], &report["ranks"], &report["batch"]), (&"pass".into(), &4.into(), &4.into()));
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["divided"][0]["placement"], "tensor: split along axis 0");
    let said = zoo(&format!("check llama --parallel data=2 --batch 2 --dtype f64 {SMALL}")).expect(0);
    let text = &said.out;
    assert!(text.starts_with("llama data=2  2 ranks in f64, batch 2, against one device in f64"), "{text}");
    assert!(text.ends_with("llama data=2: pass, 5 stages\n"), "{text}");
}

#[test]
fn planted_faults_are_all_judged_right() {
    let report =
        zoo(&format!("check llama --parallel pipeline=2,data=2 --mutants {SMALL} --format json")).expect(0).json();
    assert_eq!(report["planted"], report["right"]);
    let faults = report["faults"].as_array().unwrap();
    let missing = |fault: &&serde_json::Value| {
        fault["operator"] == "M1" && fault["found"]["explanation"].as_str().unwrap().contains("sum over the data group")
    };
    assert!(faults.iter().any(|fault| missing(&fault)), "{faults:#?}");
}

#[test]
fn what_does_not_fit_is_refused() {
    for (split, message) in [
        ("tensor=16", "no multiple of 16"),
        ("tenser=2", "did you mean `tensor`?"),
        ("data=2 --batch 3", "data=2 divides a batch of 3"),
        ("pipeline=99", "write ranks"),
        ("sequence", "add `tensor=2`"),
    ] {
        let said = zoo(&format!("check llama --parallel {split} {SMALL}")).expect(2);
        assert!(said.err.contains(message), "{}", said.err);
    }
    let said = zoo("check gpt2 --parallel data=2 --memory-limit 1GiB").expect(2);
    assert!(said.err.contains("smaller --batch"), "{}", said.err);
    assert!(zoo("check llama --batch 3").expect(2).err.contains("--parallel"));
}
