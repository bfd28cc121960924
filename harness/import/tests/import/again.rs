//! Modules and parameters that a network uses several times.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, compare, import};
use zoo_recipe::{Library, LoadOptions};

const BATCH: usize = 61;
const MAPS: &[usize] = &[BATCH, 8, 6, 6];

fn function(name: &str, args: Value, value: usize, shape: &[usize]) -> Value {
    json!({"function": name, "at": "nets.py:9", "args": args, "kwargs": {},
           "outputs": {"": {"value": value, "shape": shape, "dtype": "float32"}}})
}

fn module(path: &str, call: usize, from: usize, to: usize, body: Vec<Value>) -> Value {
    json!({"module": path, "call": call, "at": "nets.py:8", "args": [{"value": from}], "kwargs": {}, "body": body,
           "outputs": {"": {"value": to}}})
}

/// The convolution `block.conv` of 8 channels, and a ReLU, in the module `block`.
fn block(call: usize, from: usize) -> Value {
    let to = from + 1;
    let conv = function("torch.conv2d", json!([{"value": from}, {"parameter": "block.conv.weight"}]), to, MAPS);
    let relu = function("torch.relu", json!([{"value": to}]), to + 1, MAPS);
    let inside =
        vec![module("block.conv", call, from, to, vec![conv]), module("block.act", call, to, to + 1, vec![relu])];
    module("block", call, from, to + 1, inside)
}

/// A network on images of 8 channels.
fn network(body: Vec<Value>) -> Value {
    let last = match body.last().unwrap()["outputs"][""]["value"].clone() {
        value @ Value::Number(_) => json!({"value": value}),
        other => panic!("{other}"),
    };
    json!({
        "format": 1, "model": "nets:net", "classes": 8, "batch": BATCH,
        "inputs": {"image": {"value": 0, "shape": MAPS, "dtype": "float32"}},
        "outputs": {"": last},
        "parameters": {"block.conv.weight": {"shape": [8, 8, 1, 1]}},
        "modules": {"": {"class": "nets.Net"}, "block": {"class": "nets.Block"},
                    "block.conv": {"class": "torch.nn.modules.conv.Conv2d"},
                    "block.act": {"class": "torch.nn.modules.activation.ReLU"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                 "body": body, "outputs": {"": last}},
    })
}

fn imported(trace: &Value) -> Result<String, ImportError> {
    import(&Trace::read(&serde_json::to_vec(trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

/// x + block(x), again and again.
#[test]
fn a_block_that_refines_is_called_again() {
    let add = |x: usize, y: usize, to: usize| function("torch.add", json!([{"value": x}, {"value": y}]), to, MAPS);
    let text = imported(&network(vec![block(0, 0), add(0, 2, 3), block(1, 3), add(3, 5, 6)])).unwrap();
    assert_eq!(text.matches("- again: block").count(), 1, "{text}");
    assert_eq!(text.matches("- conv:").count(), 1, "{text}");
    assert_eq!(text.matches("- residual:").count(), 2, "{text}");
}

/// The second operand of a difference is written first, so the calls have to stand in their order beside it.
#[test]
fn calls_are_written_in_their_order() {
    let take = |n: usize, to: usize| {
        let key = json!([{"value": 0}, [{"ellipsis": null}, {"slice": [n, n + 3, null]}]]);
        function("torch.Tensor.__getitem__", key, to, &[BATCH, 8, 6, 3])
    };
    let half = |call: usize, from: usize, to: usize| {
        let shape = [BATCH, 8, 6, 3];
        let conv = function("torch.conv2d", json!([{"value": from}, {"parameter": "block.conv.weight"}]), to, &shape);
        module("block.conv", call, from, to, vec![conv])
    };
    let subtract = function("torch.sub", json!([{"value": 3}, {"value": 4}]), 5, &[BATCH, 8, 6, 3]);
    let trace = network(vec![take(0, 1), take(3, 2), half(0, 1, 3), half(1, 2, 4), subtract]);
    let text = imported(&trace).unwrap();
    assert!(text.find("- conv:") < text.find("- again: block.conv"), "{text}");
}

#[test]
fn a_call_that_does_something_else_is_refused() {
    let mut other = block(1, 2);
    other["body"][1]["body"][0]["function"] = json!("torch.tanh");
    let Err(ImportError::Refused(refusal)) = imported(&network(vec![block(0, 0), other])) else { panic!() };
    assert!(refusal.what.contains("computes something else"), "{refusal}");
    let mut other = block(1, 2);
    other["body"][0]["body"][0]["args"] = json!([{"value": 2}, {"parameter": "block.conv.weight"}, null, 1, 0, 1, 1]);
    assert!(imported(&network(vec![block(0, 0), other])).is_ok(), "written out, and the same");
    let mut other = block(1, 2);
    other["body"][0]["body"][0]["args"] = json!([{"value": 2}, {"parameter": "block.conv.weight"}, null, 1, 1, 1, 1]);
    let Err(ImportError::Refused(refusal)) = imported(&network(vec![block(0, 0), other])) else { panic!() };
    assert!(refusal.what.contains("used again, and in another way"), "{refusal}");
}

/// A module with parameters of its own and other operations is called once, as timm's normalisations with an
/// activation.
#[test]
fn the_layer_of_a_module_is_not_its_module() {
    let conv = function("torch.conv2d", json!([{"value": 0}, {"parameter": "block.weight"}]), 1, MAPS);
    let relu = function("torch.relu", json!([{"value": 1}]), 2, MAPS);
    let mut trace = network(vec![module("block", 0, 0, 2, vec![conv, relu])]);
    trace["parameters"] = json!({"block.weight": {"shape": [8, 8, 1, 1]}});
    let text = imported(&trace).unwrap();
    assert!(!text.contains("again") && text.contains("name: ."), "{text}");
}

/// A network inside that gives all its maps, of which the module around it takes the last: both images see it so.
#[test]
fn what_is_called_again_may_have_modules_that_give_several_tensors() {
    let pair = |call: usize, from: usize| {
        let mut inside = block(call, from);
        inside["outputs"] = json!({"0": {"value": from + 1}, "1": {"value": from + 2}});
        module("pair", call, from, from + 2, vec![inside])
    };
    let text = network(vec![pair(0, 0), pair(1, 2)]).to_string().replace("\"block", "\"pair.block");
    let mut trace: Value = serde_json::from_str(&text).unwrap();
    trace["modules"]["pair"] = json!({"class": "nets.Pair"});
    let text = imported(&trace).unwrap();
    assert!(text.contains("- again: pair\n"), "{text}");
    let mut trace = network(vec![pair(0, 0), pair(1, 2)]);
    trace["root"]["body"] = [pair(0, 0), pair(1, 2)].iter().map(|pair| pair["body"][0].clone()).collect();
    let Err(ImportError::Refused(refusal)) = imported(&trace) else { panic!() };
    assert!(refusal.what.contains("gives several tensors"), "{refusal}");
    // A recipe can say so all the same, and is compared.
    assert!(equals(&trace, "relu"));
    assert!(!equals(&trace, "tanh"));
}

/// Whether the trace is the network that calls `block` twice, with this activation.
fn equals(trace: &Value, activation: &str) -> bool {
    let text = format!(
        "name: net\nmodel:\n  inputs: {{image: [8, 6, 6]}}\n  classes: 8\n  blocks:\n    pair: {{body: [conv: {{name: \
         conv, out: 8, kernel: 1, bias: false}}, tap: p0, {activation}: {{name: act}}, tap: p1]}}\n  body: [block: \
         {{name: block, use: pair, returns: {{\"0\": p0, \"1\": p1}}}}, again: block]\ndata: {{source: {{characters: \
         {{}}}}}}\nloss: {{softmax_cross_entropy: {{}}}}\noptimizer: sgd\nschedule: {{constant: {{base_lr: \
         0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("net.yaml"), text).unwrap();
    let recipe = Library::new([folder.path()]).load("net", &LoadOptions::default());
    let recipe = recipe.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    let trace = Trace::read(&serde_json::to_vec(trace).unwrap()).unwrap();
    match compare(&trace, &recipe) {
        Ok(proof) => proof.operations == 4,
        Err(ImportError::Differs(_)) => false,
        Err(error) => panic!("{error}"),
    }
}
