//! Parameters, products and axes in places where torch allows them.

use serde_json::{Map, Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;

/// A call: the function, its arguments, and the shape of its result. Value 0 is the image, 1 the stem's maps
/// `[8, 6, 6]`, 2 the result of the first call.
type Call = (&'static str, Value, &'static [usize]);

/// A network of a stem and these calls, with these parameters beside the stem's; it gives the last result.
fn network(parameters: &[(&str, &[usize])], calls: &[Call]) -> Value {
    let made = |value: usize, shape: &[usize]| {
        let shape = [&[BATCH], shape].concat();
        json!({"": {"value": value, "shape": shape, "dtype": "float32"}})
    };
    let conv = json!({
        "function": "torch.conv2d", "at": "nets.py:4", "kwargs": {},
        "args": [{"value": 0}, {"parameter": "stem.weight"}], "outputs": made(1, &[8, 6, 6]),
    });
    let stem = json!({
        "module": "stem", "call": 0, "at": "nets.py:8", "args": [{"value": 0}], "kwargs": {}, "body": [conv],
        "outputs": {"": {"value": 1}},
    });
    let mut body = vec![stem];
    for (index, (function, args, shape)) in calls.iter().enumerate() {
        body.push(json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": {}, "outputs": made(index + 2, shape),
        }));
    }
    let mut all: Map<String, Value> = Map::from_iter([("stem.weight".to_owned(), json!({"shape": [8, 3, 1, 1]}))]);
    all.extend(parameters.iter().map(|(name, shape)| ((*name).to_owned(), json!({"shape": shape}))));
    let last = calls.len() + 1;
    json!({
        "format": 1, "model": "nets:net", "classes": 8, "batch": BATCH,
        "inputs": {"image": {"value": 0, "shape": [BATCH, 3, 6, 6], "dtype": "float32"}},
        "outputs": {"": {"value": last}}, "parameters": all,
        "modules": {"": {"class": "nets.Net"}, "stem": {"class": "torch.nn.modules.conv.Conv2d"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {}, "body": body,
                 "outputs": {"": {"value": last}}},
    })
}

fn imported(trace: &Value) -> Result<String, ImportError> {
    import(&Trace::read(&serde_json::to_vec(trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

/// The layers behind the stem.
fn layers(trace: &Value) -> String {
    let text = imported(trace).unwrap_or_else(|error| panic!("{error:?}"));
    let body = text.split_once("bias: false}\n").unwrap().1;
    body.split("\n\n").next().unwrap().lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

const TOKENS: [Call; 2] =
    [("torch.Tensor.flatten", json!(null), &[8, 36]), ("torch.Tensor.transpose", json!(null), &[36, 8])];

/// Tokens `[36, 8]` as value 3, and further calls.
fn tokens(parameters: &[(&str, &[usize])], calls: &[Call]) -> Value {
    let [mut flat, mut turned] = TOKENS;
    flat.1 = json!([{"value": 1}, 2]);
    turned.1 = json!([{"value": 2}, 1, 2]);
    network(parameters, &[&[flat, turned], calls].concat())
}

fn value(number: usize) -> Value {
    json!({"value": number})
}

#[test]
fn learned_tokens_stand_before_others_or_anywhere() {
    let expand = |name: &str| json!([{"parameter": name}, {"batch": "61"}, -1, -1]);
    let two = tokens(
        &[("cls", &[1, 1, 8]), ("dist", &[1, 1, 8])],
        &[
            ("torch.Tensor.expand", expand("cls"), &[1, 8]),
            ("torch.Tensor.expand", expand("dist"), &[1, 8]),
            ("torch.cat", json!([[value(4), value(5), value(3)], 1]), &[38, 8]),
        ],
    );
    assert_eq!(layers(&two), "- tokens\n- prepend: {name: dist}\n- prepend: {name: cls}");
    let behind = tokens(
        &[("registers", &[1, 4, 8])],
        &[
            ("torch.Tensor.expand", expand("registers"), &[4, 8]),
            ("torch.cat", json!([[value(3), value(4)], 1]), &[40, 8]),
        ],
    );
    let text = layers(&behind);
    assert!(text.contains("parameter: {name: registers, shape: [1, 4, 8]}"), "{text}");
}

#[test]
fn parameters_are_factors_and_shifts_of_any_shape() {
    for (function, shape, layer) in [
        ("torch.mul", &[1][..], "gate"),
        ("torch.add", &[1], "residual"),
        ("torch.add", &[8, 1, 1], "residual"),
        ("torch.add", &[1, 8, 1, 6], "residual"),
    ] {
        let text =
            layers(&network(&[("scale", shape)], &[(function, json!([value(1), {"parameter": "scale"}]), &[8, 6, 6])]));
        assert!(text.contains(layer) && text.contains("parameter: {name: scale, shape: "), "{text}");
    }
    let text =
        layers(&network(&[("all", &[8, 6, 6])], &[("torch.sub", json!([{"parameter": "all"}, value(1)]), &[8, 6, 6])]));
    assert!(text.contains("subtract"), "{text}");
    // A parameter has no samples.
    let wrong =
        network(&[("all", &[BATCH, 8, 6, 6])], &[("torch.sub", json!([value(1), {"parameter": "all"}]), &[8, 6, 6])]);
    assert!(matches!(imported(&wrong), Err(ImportError::Refused(_))));
}

#[test]
fn products_that_are_no_attention_are_layers() {
    let product = |function, args, shape| layers(&tokens(&[], &[(function, args, shape)]));
    let gram = product("torch.einsum", json!(["b t c, b s c -> b t s", value(3), value(3)]), &[36, 36]);
    assert_eq!(gram, "- tokens\n- tap: x\n- matmul: {with: x, axes: \"tc,sc->ts\"}");
    let channels = product("torch.einsum", json!(["btc,btd->bcd", value(3), value(3)]), &[8, 8]);
    assert!(channels.contains("matmul: {with: x, axes: \"tc,td->cd\"}"), "{channels}");
    let lost = tokens(&[], &[("torch.einsum", json!(["btc,bsd->bcd", value(3), value(3)]), &[8, 8])]);
    assert!(matches!(imported(&lost), Err(ImportError::Refused(_))));
    let by =
        layers(&tokens(&[("w", &[8, 5])], &[("torch.Tensor.matmul", json!([value(3), {"parameter": "w"}]), &[36, 5])]));
    assert!(by.contains("parameter: {name: w, shape: [8, 5]}") && by.contains("axes: \"id,dj->ij\""), "{by}");
}

/// A network of these calls with constants, each of a shape and its values.
fn with_constants(constants: &[(&[usize], &[f64])], calls: &[Call]) -> Value {
    let written = constants.iter().map(|(shape, values)| {
        let values: Vec<String> = values.iter().map(f64::to_string).collect();
        json!({"shape": shape, "dtype": "float32", "values": values.join(" ")})
    });
    let mut trace = network(&[], calls);
    trace["constants"] = written.collect();
    trace
}

#[test]
fn constants_are_values() {
    let [mean, std] = [[0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]];
    let shape: &[usize] = &[8, 1, 1];
    let text = layers(&with_constants(
        &[(shape, &mean), (shape, &std)],
        &[
            ("torch.Tensor.sub", json!([value(1), {"constant": 0}]), &[8, 6, 6]),
            ("torch.Tensor.div", json!([value(2), {"constant": 1}]), &[8, 6, 6]),
        ],
    ));
    assert!(text.contains("constant: {shape: [8, 1, 1], values: [0.5, 0.4, 0.3, 0.2, 0.1, 0, 1, 2]}"), "{text}");
    assert!(text.contains("values: [1, 2, 3, 4, 5, 6, 7, 8]}"), "{text}");
    assert!(text.contains("1 / x"), "{text}");
    // The same for each row and each column of the maps.
    let grid: Vec<f64> = (0..8 * 36).map(|n| f64::from(n / 36 % 8) + 0.5 * f64::from(n % 36)).collect();
    let text = layers(&with_constants(
        &[(&[1, 8, 6, 6], &grid)],
        &[("torch.Tensor.mul", json!([value(1), {"constant": 0}]), &[8, 6, 6])],
    ));
    assert!(text.starts_with("- gate:\nbody:\n- constant: {shape: [8, 6, 6], formula:"), "{text}");
    let noise: Vec<f64> = (0..8 * 36).map(|n| (f64::from(n) * 12.9898).sin() * 43758.5453 % 1.0).collect();
    let unknown = with_constants(
        &[(&[1, 8, 6, 6], &noise)],
        &[("torch.Tensor.add", json!([value(1), {"constant": 0}]), &[8, 6, 6])],
    );
    let refused = imported(&unknown).unwrap_err().to_string();
    assert!(refused.contains("no formula is known"), "{refused}");
}

#[test]
fn a_layer_is_called_in_the_order_of_the_network() {
    let mut trace = network(
        &[],
        &[
            ("torch.relu", json!([value(1)]), &[8, 6, 6]),
            ("torch.tanh", json!([value(1)]), &[8, 6, 6]),
            ("torch.tanh", json!([value(3)]), &[8, 6, 6]),
            ("torch.relu", json!([value(4)]), &[8, 6, 6]),
            ("torch.add", json!([value(2), value(5)]), &[8, 6, 6]),
        ],
    );
    trace["modules"]["act"] = json!({"class": "torch.nn.modules.activation.ReLU"});
    for (call, place, [from, to]) in [(0, 1usize, [1, 2]), (1, 4, [4, 5])] {
        let body = json!([trace["root"]["body"][place]]);
        trace["root"]["body"][place] = json!({
            "module": "act", "call": call, "at": "nets.py:9", "args": [value(from)], "kwargs": {}, "body": body,
            "outputs": {"": value(to)},
        });
    }
    // The longer branch, which comes second, would be the first of a sum.
    let text = layers(&trace);
    assert!(text.starts_with("- tap: ") && text.contains("- relu: {name: act}\n- tap: "), "{text}");
}

#[test]
fn repeated_tensors_are_sums_with_zeros() {
    let text = layers(&network(
        &[],
        &[
            ("torch.Tensor.mean", json!([value(1), [2, 3], true]), &[8, 1, 1]),
            ("torch.Tensor.expand", json!([value(2), {"batch": "61"}, 8, 6, 6]), &[8, 6, 6]),
            ("torch.relu", json!([value(3)]), &[8, 6, 6]),
        ],
    ));
    assert!(text.contains("constant: {shape: [1, 1, 1], values: [0], to: [8, 6, 6], each: true}"), "{text}");
}

#[test]
fn stacked_tensors_are_added() {
    let mut trace = network(
        &[],
        &[
            ("torch.relu", json!([value(1)]), &[8, 6, 6]),
            ("torch.stack", json!([[value(1), value(2)]]), &[8, 6, 6]),
            ("torch.sum", json!([value(3), 0]), &[8, 6, 6]),
        ],
    );
    trace["root"]["body"][2]["outputs"][""]["shape"] = json!([2, BATCH, 8, 6, 6]);
    assert_eq!(layers(&trace), "- residual:\nmain:\n- relu");
}

#[test]
fn lengths_along_any_axes_are_formulas() {
    let text = layers(&network(&[], &[("torch.Tensor.norm", json!([value(1), 2, [2, 3], true]), &[8, 1, 1])]));
    assert!(text.contains("sqrt(row_sum(x^2))"), "{text}");
    let text = layers(&network(&[], &[("torch.nn.functional.normalize", json!([value(1), 2, 1]), &[8, 6, 6])]));
    assert!(text.contains("x / max(sqrt(row_sum(x^2)), 1e-12)"), "{text}");
}
