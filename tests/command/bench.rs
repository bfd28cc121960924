//! `bench`: what a measurement shows. Its times are those of the machine, and no test depends on them.

use crate::workbench::zoo;

const BENCH: &str = "bench tiny --recipes tests/fixtures/recipes --batch 2 --steps 1";

#[test]
fn nodes_are_listed_in_descending_order_of_time() {
    let report = zoo(&format!("{BENCH} --nodes --format json")).expect(0).json();
    let nodes = report["nodes"].as_array().unwrap();
    let ms: Vec<f64> = nodes.iter().map(|node| node["ms"].as_f64().unwrap()).collect();
    assert!(ms.is_sorted_by(|a, b| a >= b), "{ms:?}");
    let of_operators: u64 = report["ops"].as_array().unwrap().iter().map(|op| op["count"].as_u64().unwrap()).sum();
    assert_eq!(nodes.len() as u64, of_operators, "each node once");
    let conv = nodes.iter().find(|node| node["name"] == "conv1").unwrap();
    assert!(conv["phase"] == "forward" && conv["inputs"][0].as_str().unwrap().starts_with("f32 2x"), "{conv}");

    let text = zoo(&format!("{BENCH} --nodes")).expect(0).out;
    assert!(text.contains("\nnode ") && text.contains("operands"), "{text}");
    let without = zoo(BENCH).expect(0).out;
    assert!(!without.contains("\nnode ") && without.contains("\noperator "), "{without}");
}
