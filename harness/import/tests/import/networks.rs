//! Traces of networks that are made here, call by call.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;

/// A trace that is being made.
struct Tracing {
    next: usize,
    parameters: serde_json::Map<String, Value>,
    modules: serde_json::Map<String, Value>,
}

impl Tracing {
    fn new() -> Self {
        let modules = json!({"": {"class": "nets.Net", "source": "nets.py:1"}});
        Self { next: 1, parameters: serde_json::Map::new(), modules: modules.as_object().unwrap().clone() }
    }

    fn made(&mut self, shape: &[usize]) -> (usize, Value) {
        self.next += 1;
        (self.next - 1, json!({"value": self.next - 1, "shape": shape, "dtype": "float32"}))
    }

    fn function(&mut self, name: &str, args: Value, shape: &[usize]) -> (usize, Value) {
        let (value, made) = self.made(shape);
        (value, json!({"function": name, "at": "nets.py:9", "args": args, "kwargs": {}, "outputs": {"": made}}))
    }

    /// A module that is one function.
    fn module(&mut self, path: &str, class: &str, x: usize, value: usize, body: Value) -> Value {
        self.modules.insert(path.to_owned(), json!({"class": class}));
        json!({"module": path, "call": 0, "at": "nets.py:8", "args": [{"value": x}], "kwargs": {}, "body": body,
               "outputs": {"": {"value": value}}})
    }

    /// A 3x3 convolution.
    fn conv(&mut self, path: &str, x: usize, [from, to]: [usize; 2], side: usize) -> (usize, Value) {
        let weight = format!("{path}.weight");
        self.parameters.insert(weight.clone(), json!({"shape": [to, from, 3, 3]}));
        let args = json!([{"value": x}, {"parameter": weight}, null, [1, 1], [1, 1], [1, 1], 1]);
        let (value, call) = self.function("torch.conv2d", args, &[BATCH, to, side, side]);
        let module = self.module(path, "torch.nn.modules.conv.Conv2d", x, value, json!([call]));
        (value, module)
    }

    fn finish(self, width: usize, side: usize, body: Vec<Value>, output: usize) -> Vec<u8> {
        let root = json!({"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {}, "body": body,
                          "outputs": {"": {"value": output}}});
        let whole = json!({
            "format": 1, "model": "nets:net", "classes": width, "batch": BATCH,
            "inputs": {"image": {"value": 0, "shape": [BATCH, 3, side, side], "dtype": "float32"}},
            "outputs": {"": {"value": output}},
            "parameters": self.parameters, "modules": self.modules, "root": root,
        });
        serde_json::to_vec(&whole).unwrap()
    }
}

/// Stages of residual blocks: widths, and how many blocks each has.
fn network(stages: &[(usize, usize)], side: usize) -> Vec<u8> {
    let mut tracing = Tracing::new();
    let (mut x, mut width, mut body) = (0, 3, Vec::new());
    for (stage, (wide, blocks)) in stages.iter().enumerate() {
        let (y, stem) = tracing.conv(&format!("stem{stage}"), x, [width, *wide], side);
        body.push(stem);
        (x, width) = (y, *wide);
        let name = format!("stage{stage}");
        let (start, mut inside) = (x, Vec::new());
        for block in 0..*blocks {
            let path = format!("{name}.{block}");
            let (y, conv) = tracing.conv(&format!("{path}.conv"), x, [width, width], side);
            let shape = [BATCH, width, side, side];
            let (sum, add) = tracing.function("torch.Tensor.add", json!([{"value": y}, {"value": x}]), &shape);
            let (z, relu) = tracing.function("torch.relu", json!([{"value": sum}]), &shape);
            inside.push(tracing.module(&path, "nets.Block", x, z, json!([conv, add, relu])));
            x = z;
        }
        body.push(tracing.module(&name, "torch.nn.modules.container.Sequential", start, x, json!(inside)));
    }
    tracing.finish(width, side, body, x)
}

fn text(bytes: &[u8]) -> String {
    import(&Trace::read(bytes).unwrap(), "net").unwrap().text
}

#[test]
fn equal_modules_are_a_stack_of_one_block_and_widths_are_arguments() {
    let text = text(&network(&[(8, 2), (16, 3)], 8));
    let mut expected = String::new();
    writeln!(expected, "    block:\n      args: {{out: ~}}\n      body:\n        - residual:\n            main:")
        .unwrap();
    writeln!(expected, "              - conv: {{name: conv, out: $out, kernel: 3, pad: 1, bias: false}}").unwrap();
    writeln!(expected, "        - relu\n  body:").unwrap();
    writeln!(expected, "    - conv: {{name: stem0, out: 8, kernel: 3, pad: 1, bias: false}}").unwrap();
    writeln!(expected, "    - stack: {{name: stage0, block: block, repeat: 2, args: {{out: 8}}}}").unwrap();
    writeln!(expected, "    - conv: {{name: stem1, out: 16, kernel: 3, pad: 1, bias: false}}").unwrap();
    writeln!(expected, "    - stack: {{name: stage1, block: block, repeat: 3, args: {{out: 16}}}}").unwrap();
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn modules_that_take_and_give_several_tensors_have_taps() {
    let mut tracing = Tracing::new();
    let shape = [BATCH, 8, 6, 6];
    let (stem, first) = tracing.conv("stem", 0, [3, 8], 6);
    let (one, conv) = tracing.conv("split.conv", stem, [8, 8], 6);
    let (other, relu) = tracing.function("torch.relu", json!([{"value": one}]), &shape);
    let mut split = tracing.module("split", "nets.Split", stem, one, json!([conv, relu]));
    split["outputs"] = json!({"0": {"value": one}, "1.0": {"value": other}});
    let (wide, conv) = tracing.conv("join.conv", one, [8, 8], 6);
    let (sum, add) = tracing.function("torch.Tensor.add", json!([{"value": wide}, {"value": other}]), &shape);
    let mut join = tracing.module("join", "nets.Join", one, sum, json!([conv, add]));
    join["args"] = json!([[{"value": one}, {"value": other}]]);
    let text = text(&tracing.finish(8, 6, vec![first, split, join], sum));
    let expected = [
        "    split:",
        "      body:",
        "        - conv: {name: conv, out: 8, kernel: 3, pad: 1, bias: false}",
        "        - tap: conv",
        "        - relu",
        "        - tap: relu",
        "        - from: conv",
        "  body:",
        "    - conv: {name: stem, out: 8, kernel: 3, pad: 1, bias: false}",
        "    - block: {name: split, use: split, returns: {\"0\": conv, \"1.0\": relu}}",
        "    - sequential:",
        "        name: join",
        "        body:",
        "          - conv: {name: conv, out: $classes, kernel: 3, pad: 1, bias: false}",
        "          - add: split.relu",
    ];
    assert!(text.contains(&expected.join("\n")), "{text}");
}

#[test]
fn modules_of_a_class_that_lack_a_layer_or_read_another_tap_are_one_block() {
    let mut tracing = Tracing::new();
    let (early, first) = tracing.conv("early", 0, [3, 8], 6);
    let (late, second) = tracing.conv("late", early, [8, 8], 6);
    let (last, third) = tracing.conv("last", late, [8, 8], 6);
    let (mut x, mut body) = (last, vec![first, second, third]);
    for (name, skip, is_refined) in [("up1", late, true), ("up2", early, false), ("up3", early, true)] {
        let start = x;
        let mut inside = Vec::new();
        let parts: &[&str] = if is_refined { &["one", "refine", "two"] } else { &["one", "two"] };
        for part in parts {
            let (y, conv) = tracing.conv(&format!("{name}.{part}"), x, [8, 8], 6);
            inside.push(conv);
            x = y;
        }
        let (sum, add) =
            tracing.function("torch.Tensor.add", json!([{"value": x}, {"value": skip}]), &[BATCH, 8, 6, 6]);
        inside.push(add);
        let mut module = tracing.module(name, "nets.Up", start, sum, json!(inside));
        module["args"] = json!([{"value": start}, {"value": skip}]);
        body.push(module);
        x = sum;
    }
    let (scores, head) = tracing.conv("head", x, [8, 5], 6);
    body.push(head);
    let text = text(&tracing.finish(5, 6, body, scores));
    let expected = "    up:
      args: {refine: true}
      body:
        - conv: {name: one, out: 8, kernel: 3, pad: 1, bias: false}
        - conv: {name: refine, enabled: $refine, out: 8, kernel: 3, pad: 1, bias: false}
        - conv: {name: two, out: 8, kernel: 3, pad: 1, bias: false}
        - add: skip
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("- block: {name: up1, use: up, inputs: {skip: late}}\n"), "{text}");
    assert!(text.contains("- block: {name: up2, use: up, inputs: {skip: early}, args: {refine: false}}\n"), "{text}");
}

#[test]
fn a_table_that_is_given_fixed_rows_alone_takes_them() {
    let mut tracing = Tracing::new();
    tracing.parameters.insert("words.weight".to_owned(), json!({"shape": [9, 8]}));
    tracing.parameters.insert("place.weight".to_owned(), json!({"shape": [16, 8]}));
    let shape = [BATCH, 4, 8];
    let mut table = |path: &str, argument: Value| {
        let args = json!([argument, {"parameter": format!("{path}.weight")}]);
        let (value, call) = tracing.function("torch.nn.functional.embedding", args, &shape);
        let mut module = tracing.module(path, "torch.nn.modules.sparse.Embedding", 0, value, json!([call]));
        module["args"] = json!([argument]);
        (value, module)
    };
    let (word, words) = table("words", json!({"value": 0}));
    let (place, places) = table("place", json!({"constant": 0}));
    let (sum, add) = tracing.function("torch.Tensor.add", json!([{"value": word}, {"value": place}]), &shape);
    let bytes = tracing.finish(9, 4, vec![words, places, add], sum);
    let mut trace: Value = serde_json::from_slice(&bytes).unwrap();
    trace["inputs"]["image"] = json!({"value": 0, "shape": [BATCH, 4], "dtype": "int64"});
    trace["constants"] = json!([{"shape": [BATCH, 4], "dtype": "int64", "values": "0*244"}]);
    let text = text(&serde_json::to_vec(&trace).unwrap());
    assert!(text.contains("- positions: {name: place, rows: 16, step: 0}\n"), "{text}");
}

#[test]
fn a_parameter_that_nothing_uses_is_unused() {
    let mut trace: Value = serde_json::from_slice(&network(&[(8, 1)], 8)).unwrap();
    trace["parameters"]["head.weight"] = json!({"shape": [8, 8]});
    let trace = Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap();
    let text = import(&trace, "net").unwrap().text;
    assert!(text.contains("- unused: {parameters: {head.weight: [8, 8]}}"), "{text}");
}

#[test]
fn a_tensor_that_another_module_keeps_is_refused() {
    let mut trace: Value = serde_json::from_slice(&network(&[(8, 2)], 8)).unwrap();
    // The second block adds what the stem gave, which it is not given.
    trace["root"]["body"][1]["body"][1]["body"][1]["args"][1] = json!({"value": 1});
    let trace = Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap();
    match import(&trace, "net") {
        Err(ImportError::Refused(refusal)) => assert_eq!(refusal.module, "stage0.1"),
        other => panic!("{other:?}"),
    }
}

/// A convolution and a module that calls functions one after another on its result, the tensor 1. `step` says each call
/// by its number, and by what the call before it gave.
fn chain(calls: usize, step: impl Fn(usize, usize) -> (&'static str, Value)) -> Vec<u8> {
    let mut tracing = Tracing::new();
    let (first, stem) = tracing.conv("stem", 0, [3, 3], 6);
    let (mut x, mut inside) = (first, Vec::new());
    for number in 0..calls {
        let (function, operands) = step(number, x);
        let (value, call) = tracing.function(function, operands, &[BATCH, 3, 6, 6]);
        inside.push(call);
        x = value;
    }
    let module = tracing.module("chain", "nets.Chain", first, x, json!(inside));
    tracing.finish(3, 6, vec![stem, module], x)
}

#[test]
fn branches_in_branches_are_taps_if_they_are_too_deep() {
    // y = relu(y) + x, so many times.
    let sums = |count: usize| {
        chain(2 * count, |number, y| match number % 2 {
            0 => ("torch.relu", json!([{"value": y}])),
            _ => ("torch.Tensor.add", json!([{"value": y}, {"value": 1}])),
        })
    };
    for (count, nested) in [(1, true), (10, true), (30, false), (4000, false)] {
        let text = text(&sums(count));
        assert_eq!(text.contains("- residual:"), nested, "{count}");
        assert_eq!(text.matches("- relu").count(), count);
    }
}

/// y = y * y as a text is twice as long as y.
#[test]
fn formulas_that_are_too_long_are_layers() {
    let squares = |count| text(&chain(count, |_, y| ("torch.mul", json!([{"value": y}, {"value": y}]))));
    assert!(squares(2).contains("- map: \"x * x * (x * x)\""));
    for count in [9, 24] {
        assert_eq!(squares(count).matches("- mul: ").count(), count);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the widths and depths: the recipe is the network, which `import` has proven, and has one line for a
    /// stage.
    #[test]
    fn networks_of_any_width_and_depth_are_imported(
        stages in prop::collection::vec((1usize..40, 2usize..6), 1..4),
        side in 1usize..12,
    ) {
        let bytes = network(&stages, side);
        let imported = import(&Trace::read(&bytes).unwrap(), "net").unwrap();
        let operations: usize = stages.iter().map(|(_, blocks)| 1 + 3 * blocks).sum();
        prop_assert_eq!(imported.proof.operations, operations);
        prop_assert_eq!(imported.text.matches("- stack:").count(), stages.len());
    }

    /// A trace with other numbers is a recipe, or refused; never a panic.
    #[test]
    fn traces_with_other_numbers_are_read_or_refused(
        stages in prop::collection::vec((1usize..9, 1usize..4), 1..3),
        places in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![0i64, -1, 1, 2, 7, 61, 4_000_000_000, i64::MAX])), 1..4),
    ) {
        let mut trace: Value = serde_json::from_slice(&network(&stages, 6)).unwrap();
        for (place, number) in places {
            let mut numbers = Vec::new();
            find_numbers(&mut trace, &mut numbers);
            let count = numbers.len();
            *numbers[place.index(count)] = json!(number);
        }
        if let Ok(trace) = Trace::read(&serde_json::to_vec(&trace).unwrap()) {
            let _ = import(&trace, "net");
        }
    }
}

/// Whatever modules are called: names that recipes can have are names in the recipe, others are refused.
#[test]
fn modules_have_any_name_that_recipes_allow() {
    let named = |name: &str| {
        let mut tracing = Tracing::new();
        let (x, stem) = tracing.conv(name, 0, [3, 4], 6);
        let (y, relu) = tracing.function("torch.relu", json!([{"value": x}]), &[BATCH, 4, 6, 6]);
        let (z, conv) = tracing.conv(&format!("{name}_.{name}"), y, [4, 4], 6);
        let body = tracing.module(&format!("{name}_"), "nets.\u{43c}", x, z, json!([relu, conv]));
        import(&Trace::read(&tracing.finish(4, 6, vec![stem, body], z)).unwrap(), "net")
    };
    for name in ["true", "NULL", "no", "y", "1e5", "12", "0x1", "-", "-a", "_", "on", "inf", "x", "1_0"] {
        let imported = named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(imported.proof.parameters, 2);
    }
    for name in ["a: b", "#c", " a", "a ", "ä", "~", "\"", "a\nb", "{", "$x", "*", "a,b", "", ".."] {
        match named(name) {
            Err(ImportError::Refused(refusal)) => assert!(refusal.what.contains("is called"), "{name}: {refusal}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// `self.body = nn.Sequential(self.stem, ..)`: PyTorch gives the module its first name, which is outside of the second.
#[test]
fn a_module_under_another_name_is_refused() {
    let mut tracing = Tracing::new();
    let (x, stem) = tracing.conv("stem", 0, [3, 4], 6);
    let (y, relu) = tracing.function("torch.relu", json!([{"value": x}]), &[BATCH, 4, 6, 6]);
    let body = tracing.module("body", "nets.Body", 0, y, json!([stem, relu]));
    match import(&Trace::read(&tracing.finish(4, 6, vec![body], y)).unwrap(), "net") {
        Err(ImportError::Refused(refusal)) => {
            assert_eq!((refusal.module.as_str(), refusal.at.as_str()), ("stem", "nets.py:8"));
            assert!(refusal.what.contains("called by `body`, of which it is no part"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
}

/// Any part of a small trace is taken away, repeated or replaced.
fn changed(value: &mut Value, place: &mut usize, change: &Value) -> bool {
    if *place == 0 {
        *value = match (change, &*value) {
            (Value::String(kind), Value::Array(items)) if kind == "twice" => [&items[..], items].concat().into(),
            (Value::String(kind), Value::Array(items)) if kind == "less" => items[..items.len() / 2].to_vec().into(),
            (Value::String(kind), Value::Object(entries)) if kind == "less" => {
                entries.iter().skip(1).map(|(key, value)| (key.clone(), value.clone())).collect::<Value>()
            }
            _ => change.clone(),
        };
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| changed(item, place, change)),
        Value::Object(entries) => entries.values_mut().any(|entry| changed(entry, place, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn fixture(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(format!("../../tests/fixtures/traces/{name}.json")).unwrap()).unwrap()
}

#[test]
fn fixtures_with_any_part_changed_are_read_or_refused() {
    let changes = [
        json!(null),
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(61),
        json!(1e30),
        json!(true),
        json!("less"),
        json!("twice"),
        json!([]),
        json!({}),
        json!([61, 4]),
        json!({"value": 1}),
        json!({"batch": "61"}),
        json!({"constant": 0}),
        json!("float16"),
        json!("torch.Tensor.add"),
        json!("torch.Tensor.view"),
        json!("torch.matmul"),
        json!("torch.Tensor.mean"),
        json!("torch.cat"),
    ];
    let mut seed = 7u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for name in ["vit", "gpt2", "bert", "swin", "resnet18"] {
        let whole = fixture(name);
        let parts = count(&whole);
        for _ in 0..60 {
            let mut trace = whole.clone();
            changed(&mut trace, &mut next(parts), &changes[next(changes.len())]);
            if let Ok(trace) = Trace::read(&serde_json::to_vec(&trace).unwrap()) {
                let _ = import(&trace, "net");
            }
        }
    }
}

fn find_numbers<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| find_numbers(item, found)),
        Value::Object(entries) => entries.values_mut().for_each(|entry| find_numbers(entry, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
