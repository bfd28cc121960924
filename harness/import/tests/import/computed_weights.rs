//! Weights that are computed of parameters, and parts of parameters.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;

/// A network of rows of five numbers: calls of functions with their results, of which the last is given.
fn imported(parameters: Value, calls: &[(&str, Value, Value, &[usize])]) -> Result<String, ImportError> {
    let body = calls.iter().enumerate().map(|(place, (function, args, kwargs, shape))| {
        json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": kwargs,
            "outputs": {"": {"value": place + 1, "shape": shape, "dtype": "float32"}},
        })
    });
    let trace = json!({
        "format": 1, "model": "nets:net", "classes": 8, "batch": BATCH,
        "inputs": {"x": {"value": 0, "shape": [BATCH, 5], "dtype": "float32"}},
        "outputs": {"": {"value": calls.len()}}, "parameters": parameters,
        "modules": {"": {"class": "nets.Net"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                 "body": body.collect::<Vec<_>>(), "outputs": {"": {"value": calls.len()}}},
    });
    import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

fn value(number: usize) -> Value {
    json!({"value": number})
}

fn parameter(name: &str) -> Value {
    json!({"parameter": name})
}

#[test]
fn a_product_of_two_parameters_is_added_to_a_layer() {
    // x @ A.T @ B.T, as LoRA has it.
    let parameters = json!({"a": {"shape": [3, 5]}, "b": {"shape": [4, 3]}});
    let calls: [(&str, Value, Value, &[usize]); 4] = [
        ("torch.Tensor.T", json!([parameter("a")]), json!({}), &[5, 3]),
        ("torch.Tensor.matmul", json!([value(0), value(1)]), json!({}), &[BATCH, 3]),
        ("torch.Tensor.T", json!([parameter("b")]), json!({}), &[3, 4]),
        ("torch.Tensor.matmul", json!([value(2), value(3)]), json!({}), &[BATCH, 4]),
    ];
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("parameter: {name: a, shape: [3, 5]}"), "{text}");
    assert_eq!(text.matches("matmul").count(), 2, "{text}");
}

#[test]
fn rows_of_a_weight_are_of_length_one() {
    // F.linear(x, F.normalize(weight)): an axis of a parameter is one more of a value.
    let parameters = json!({"weight": {"shape": [8, 5]}});
    let calls: [(&str, Value, Value, &[usize]); 2] = [
        ("torch.nn.functional.normalize", json!([parameter("weight")]), json!({}), &[8, 5]),
        ("torch.nn.functional.linear", json!([value(0), value(1)]), json!({}), &[BATCH, 8]),
    ];
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("row_sum(x^2)"), "{text}");
    assert!(text.contains("matmul"), "{text}");
}

#[test]
fn numbers_are_divided_by_a_parameter_of_one() {
    let parameters = json!({"temperature": {"shape": []}});
    let calls: [(&str, Value, Value, &[usize]); 1] =
        [("torch.Tensor.div", json!([value(0), parameter("temperature")]), json!({}), &[BATCH, 5])];
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("parameter: {name: temperature, shape: []}"), "{text}");
    assert!(text.contains("1 / x"), "{text}");
}

#[test]
fn functions_of_parameters_are_factors() {
    let parameters = json!({"gate": {"shape": [5]}});
    let calls: [(&str, Value, Value, &[usize]); 2] = [
        ("torch.sigmoid", json!([parameter("gate")]), json!({}), &[5]),
        ("torch.Tensor.mul", json!([value(0), value(1)]), json!({}), &[BATCH, 5]),
    ];
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("- sigmoid"), "{text}");
    assert!(text.contains("gate:"), "{text}");
}

#[test]
fn a_slice_of_all_of_a_parameter_is_the_parameter() {
    let all = json!({"slice": [null, 5, null]});
    let parameters = json!({"shift": {"shape": [1, 5]}});
    let calls: [(&str, Value, Value, &[usize]); 2] = [
        (
            "torch.Tensor.__getitem__",
            json!([parameter("shift"), [{"slice": [null, null, null]}, all]]),
            json!({}),
            &[1, 5],
        ),
        ("torch.add", json!([value(0), value(1)]), json!({}), &[BATCH, 5]),
    ];
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("add_parameter: {name: shift}"), "{text}");
    // A part of it is a value.
    let parameters = json!({"shift": {"shape": [1, 9]}});
    let text = imported(parameters, &calls).unwrap();
    assert!(text.contains("parameter: {name: shift, shape: [1, 9]"), "{text}");
    assert!(text.contains("slice"), "{text}");
}

#[test]
fn what_is_computed_of_parameters_alone_is_no_result() {
    let parameters = json!({"gate": {"shape": [5]}});
    let calls: [(&str, Value, Value, &[usize]); 1] = [("torch.sigmoid", json!([parameter("gate")]), json!({}), &[5])];
    let refusal = imported(parameters, &calls).unwrap_err().to_string();
    assert!(refusal.contains("it uses what is computed of parameters alone"), "{refusal}");
}
