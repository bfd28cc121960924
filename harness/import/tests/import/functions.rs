//! Functions of torch as layers: what PyTorch's signatures say, function by function.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;

/// A network that calls one function on maps of 8 channels and 6 x 6 pixels, and gives its first result.
fn network(function: &str, args: Value, kwargs: Value, shape: &[usize]) -> Value {
    let mut all = vec![json!({"value": 1})];
    all.extend(args.as_array().unwrap().iter().cloned());
    let conv = json!({
        "function": "torch.conv2d", "at": "nets.py:4", "kwargs": {},
        "args": [{"value": 0}, {"parameter": "stem.weight"}],
        "outputs": {"": {"value": 1, "shape": [BATCH, 8, 6, 6], "dtype": "float32"}},
    });
    let stem = json!({
        "module": "stem", "call": 0, "at": "nets.py:8", "args": [{"value": 0}], "kwargs": {}, "body": [conv],
        "outputs": {"": {"value": 1}},
    });
    let call = json!({
        "function": function, "at": "nets.py:9", "args": all, "kwargs": kwargs,
        "outputs": {"": {"value": 2, "shape": shape, "dtype": "float32"}},
    });
    json!({
        "format": 1, "model": "nets:net", "classes": 8, "batch": BATCH,
        "inputs": {"image": {"value": 0, "shape": [BATCH, 3, 6, 6], "dtype": "float32"}},
        "outputs": {"": {"value": 2}},
        "parameters": {"stem.weight": {"shape": [8, 3, 1, 1]}},
        "modules": {"": {"class": "nets.Net"}, "stem": {"class": "torch.nn.modules.conv.Conv2d"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                 "body": [stem, call], "outputs": {"": {"value": 2}}},
    })
}

fn imported(trace: &Value) -> Result<String, ImportError> {
    import(&Trace::read(&serde_json::to_vec(trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

const SAME: &[usize] = &[BATCH, 8, 6, 6];

#[test]
fn arguments_say_what_the_layer_does() {
    for (function, args, kwargs, shape, layer) in [
        ("torch.nn.functional.relu6", json!([]), json!({"inplace": true}), SAME, "- relu6"),
        ("torch.nn.functional.hardtanh", json!([0.0, 6.0]), json!({}), SAME, "- relu6"),
        ("torch.nn.functional.hardtanh", json!([]), json!({}), SAME, "- map: \"min(max(x, -1), 1)\""),
        ("torch.clamp", json!([]), json!({"min": 0.0, "max": 6.0}), SAME, "- map: \"min(6, max(0, x))\""),
        ("torch.clamp", json!([]), json!({"min": 0}), SAME, "- map: \"max(0, x)\""),
        ("torch.clamp", json!([null, 2.5]), json!({}), SAME, "- map: \"min(2.5, x)\""),
        ("torch.nn.functional.softplus", json!([1, 20]), json!({}), SAME, "- map: \"softplus(x)\""),
        ("torch.expm1", json!([]), json!({}), SAME, "- map: \"expm1(x)\""),
        ("torch.nn.functional.gelu", json!([]), json!({"approximate": "tanh"}), SAME, "approximate: tanh"),
        ("torch.nn.functional.elu", json!([0.5]), json!({}), SAME, "- elu: {alpha: 0.5}"),
        ("torch.nn.functional.leaky_relu", json!([]), json!({"negative_slope": 0.2}), SAME, "slope: 0.2"),
        ("torch.nn.functional.dropout", json!([]), json!({"p": 0.3, "training": false}), SAME, "rate: 0"),
        ("zoo.drop_path", json!([]), json!({"p": 0.25, "mode": "row"}), SAME, "- drop_path: {rate: 0.25}"),
        ("torch.Tensor.softmax", json!([]), json!({"dim": -1}), SAME, "- softmax"),
        ("torch.nn.functional.pad", json!([[1, 2, 3, 4]]), json!({}), &[BATCH, 8, 13, 9], "[3, 4, 1, 2]"),
        (
            "torch.nn.functional.pad",
            json!([[1, -1, 0, 0]]),
            json!({}),
            SAME,
            "- slice: {axis: 2, size: 5}\n    - pad: {size: [0, 0, 1, 0]}",
        ),
        (
            "torch.nn.functional.pad",
            json!([[1, 1, 1, 1], "reflect"]),
            json!({}),
            &[BATCH, 8, 8, 8],
            "- pad: {size: 1, mode: reflect}",
        ),
        ("torch.max_pool2d", json!([2]), json!({"stride": []}), &[BATCH, 8, 3, 3], "- max_pool: {kernel: 2}"),
        ("torch.Tensor.mean", json!([[-1, 2]]), json!({}), &[BATCH, 8], "- global_avg_pool"),
        ("torch.Tensor.permute", json!([0, 2, 3, 1]), json!({}), &[BATCH, 6, 6, 8], "- permute: {order: [1, 2, 0]}"),
        ("torch.Tensor.__getitem__", json!([[{"ellipsis": null}, -1]]), json!({}), &[BATCH, 8, 6], "index: 5"),
        (
            "torch.Tensor.__getitem__",
            json!([[{"slice": [null, null, null]}, {"slice": [2, -1, null]}]]),
            json!({}),
            &[BATCH, 5, 6, 6],
            "- slice: {from: 2, size: 5}",
        ),
        (
            "torch.Tensor.__getitem__",
            json!([[{"ellipsis": null}, {"slice": [1, null, 2]}]]),
            json!({}),
            &[BATCH, 8, 6, 3],
            "- reshape: {to: [8, 6, 3, 2]}\n    - take: {axis: 3, index: 1}",
        ),
        ("torch.Tensor.split", json!([[5, 3]]), json!({"dim": 1}), &[BATCH, 5, 6, 6], "- slice: {size: 5}"),
        ("torch.nn.functional.dropout2d", json!([0.5]), json!({}), SAME, "- dropout: {rate: 0.5, channels: true}"),
        ("torch.matmul", json!([{"value": 1}]), json!({}), SAME, "axes: \"hid,hdj->hij\"}"),
        (
            "torch.nn.functional.pad",
            json!([[1, 2, 3, 4]]),
            json!({"value": 2.5}),
            &[BATCH, 8, 13, 9],
            "- map: \"x - 2.5\"\n    - pad: {size: [3, 4, 1, 2]}\n    - map: \"x + 2.5\"",
        ),
        ("torch.Tensor.softmax", json!([1]), json!({}), SAME, "- permute: {order: [2, 1, 0]}"),
        ("torch.Tensor.log_softmax", json!([-1]), json!({}), SAME, "- map: \"log_softmax(x)\""),
        ("torch.nn.functional.glu", json!([1]), json!({}), &[BATCH, 4, 6, 6], "- slice: {from: 4, size: 4}"),
        (
            "torch.nn.functional.adaptive_max_pool2d",
            json!([3]),
            json!({}),
            &[BATCH, 8, 3, 3],
            "- max_pool: {kernel: 2}",
        ),
        ("torch.max", json!([-1]), json!({}), &[BATCH, 8, 6], "- max_pool: {kernel: [1, 6]}"),
        (
            "torch.nn.functional.normalize",
            json!([]),
            json!({"dim": 1}),
            SAME,
            "- map: \"x / max(sqrt(row_sum(x^2)), 1e-12)\"",
        ),
        ("torch.Tensor.detach", json!([]), json!({}), SAME, "- map: \"detach(x)\""),
        ("torch.Tensor.sum", json!([1]), json!({}), &[BATCH, 6, 6], "- map: \"row_sum(x)\""),
        ("torch.Tensor.add", json!([2]), json!({"alpha": 1}), SAME, "- map: \"x + 2\""),
        // 36 elements, and 35 of 36; 8 of 8, 6 of 6 and 5 of 6.
        (
            "torch.Tensor.var",
            json!([[2, 3]]),
            json!({"unbiased": false}),
            &[BATCH, 8],
            "- map: \"row_mean((x - row_mean(x))^2)\"",
        ),
        (
            "torch.Tensor.std",
            json!([[2, 3]]),
            json!({}),
            &[BATCH, 8],
            "- map: \"sqrt(row_sum((x - row_mean(x))^2) / 35)\"",
        ),
        (
            "torch.var",
            json!([1, false, true]),
            json!({}),
            &[BATCH, 1, 6, 6],
            "- map: \"row_mean((x - row_mean(x))^2)\"",
        ),
        (
            "torch.var",
            json!([-1]),
            json!({"correction": 1, "keepdim": true}),
            &[BATCH, 8, 6, 1],
            "- map: \"row_sum((x - row_mean(x))^2) / 5\"",
        ),
        // Each element twice, or the whole twice: an axis of two behind it, or before it.
        (
            "torch.repeat_interleave",
            json!([2]),
            json!({"dim": 2}),
            &[BATCH, 8, 12, 6],
            "- reshape: {to: [8, 6, 1, 6]}\n    - residual:\n        main:\n          - constant: {shape: [1, 1, 1, 1], values: [0], to: [8, 6, 2, 6], each: true}\n    - reshape: {to: [8, 12, 6]}",
        ),
        (
            "torch.Tensor.repeat",
            json!([1, 1, 2, 1]),
            json!({}),
            &[BATCH, 8, 12, 6],
            "- reshape: {to: [8, 1, 6, 6]}\n    - residual:\n        main:\n          - constant: {shape: [1, 1, 1, 1], values: [0], to: [8, 2, 6, 6], each: true}\n    - reshape: {to: [8, 12, 6]}",
        ),
        // What is before a part, the part, and what is behind it.
        (
            "torch.Tensor.__setitem__",
            json!([[{"ellipsis": null}, {"slice": [1, 3, null]}], 2.0]),
            json!({}),
            SAME,
            "axis: width",
        ),
        ("torch.Tensor.__setitem__", json!([{"ellipsis": null}, 0]), json!({}), SAME, "values: [0], to: [8, 6, 6]"),
        // Windows side by side are parts of the map.
        (
            "torch.nn.functional.unfold",
            json!([3, 1, 0, 3]),
            json!({}),
            &[BATCH, 72, 4],
            "- reshape: {to: [8, 2, 3, 2, 3]}\n    - permute: {order: [1, 3, 0, 2, 4]}\n    - reshape: {to: [4, 72]}\n    - permute",
        ),
        ("torch.pow", json!([3.0]), json!({}), SAME, "- map: \"x^3\""),
        ("torch.Tensor.__rsub__", json!([1]), json!({}), SAME, "- map: \"1 - x\""),
        ("torch.rsub", json!([]), json!({"other": 2.5}), SAME, "- map: \"2.5 - x\""),
        ("torch.Tensor.__rdiv__", json!([1]), json!({}), SAME, "- map: \"1 / x\""),
        ("torch.Tensor.reciprocal", json!([]), json!({}), SAME, "- map: \"1 / x\""),
        ("torch.Tensor.sub", json!([-2]), json!({}), SAME, "- map: \"x - -2\""),
        ("torch.Tensor.mean", json!([[2, 3]]), json!({"dtype": {"dtype": "float32"}}), &[BATCH, 8], "avg_pool"),
        ("torch.softmax", json!([-1, {"dtype": "float32"}]), json!({}), SAME, "- softmax"),
        ("torch.Tensor.float", json!([]), json!({}), SAME, "stem"),
        ("torch.Tensor.detach", json!([]), json!({}), SAME, "- map: \"detach(x)\""),
        ("torch.Tensor.type_as", json!([{"value": 1}]), json!({}), SAME, "stem"),
        // Lists are written as they are, whatever they repeat; sides of maps are not.
        ("torch.Tensor.view", json!([{"batch": "61"}, 8, 36]), json!({}), &[BATCH, 8, 36], "- reshape: {to: [8, 36]}"),
        ("torch.Tensor.view", json!([-1, 16, 18]), json!({}), &[BATCH, 16, 18], "- reshape: {to: [16, 18]}"),
        ("torch.Tensor.view", json!([-1, 2, 2, 72]), json!({}), &[BATCH, 2, 2, 72], "- reshape: {to: [2, 2, 72]}"),
        ("torch.Tensor.view", json!([-1, 2, 2, 8, 9]), json!({}), &[BATCH, 2, 2, 8, 9], "{to: [2, 2, 8, 9]}"),
        ("torch.roll", json!([[1, 1, 1], [1, 2, 3]]), json!({}), SAME, "- roll: {by: [1, 1, 1]}"),
        ("torch.max_pool2d", json!([[2, 2], [2, 2]]), json!({}), &[BATCH, 8, 3, 3], "- max_pool: {kernel: 2}"),
        // A window that is larger than the map sees all of it.
        (
            "torch.max_pool2d",
            json!([9, 9, 0, 1, true]),
            json!({}),
            &[BATCH, 8, 1, 1],
            "- max_pool: {kernel: 6, stride: 9, ceil_mode: true}",
        ),
        ("torch.nn.functional.avg_pool2d", json!([7]), json!({"ceil_mode": true}), &[BATCH, 8, 1, 1], "kernel: 6"),
        // New axes.
        (
            "torch.Tensor.__getitem__",
            json!([[{"slice": [null, null, null]}, 3, null, {"ellipsis": null}]]),
            json!({}),
            &[BATCH, 1, 6, 6],
            "- slice: {from: 3, size: 1}",
        ),
        (
            "torch.Tensor.__getitem__",
            json!([[{"ellipsis": null}, null, {"slice": [0, 2, null]}]]),
            json!({}),
            &[BATCH, 8, 6, 1, 2],
            "- reshape: {to: [8, 6, 1, 2]}",
        ),
        ("torch.roll", json!([[1, -2], [2, -1]]), json!({}), SAME, "- roll: {by: [0, 1, -2]}"),
        ("torch.cumsum", json!([]), json!({"dim": -1}), SAME, "- cumsum: {axis: 2}"),
        ("torch.Tensor.cumsum", json!([1]), json!({}), SAME, "- cumsum"),
        ("torch.pixel_shuffle", json!([2]), json!({}), &[BATCH, 2, 12, 12], "- pixel_shuffle: {by: 2}"),
        ("torch.channel_shuffle", json!([4]), json!({}), SAME, "- channel_shuffle: {groups: 4}"),
        (
            "torch.nn.functional.pad",
            json!([[0, 0, 0, 1, 0, 2]]),
            json!({}),
            &[BATCH, 10, 7, 6],
            "- pad: {size: [0, 2, 0, 1]}",
        ),
        ("torch.Tensor.to", json!([{"dtype": "float32"}]), json!({"copy": true}), SAME, "stem"),
        (
            "torch.nn.functional.interpolate",
            json!([]),
            json!({"scale_factor": 2.0, "mode": "bilinear", "align_corners": false}),
            &[BATCH, 8, 12, 12],
            "- upsample: {scale: 2, mode: bilinear}",
        ),
        (
            "torch.nn.functional.interpolate",
            json!([]),
            json!({"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": true}),
            &[BATCH, 8, 7, 7],
            "- upsample: {size: 7, mode: bilinear}",
        ),
    ] {
        let text =
            imported(&network(function, args, kwargs, shape)).unwrap_or_else(|error| panic!("{function}: {error}"));
        assert!(text.contains(layer), "{function}: {layer}\n{text}");
    }
}

#[test]
fn what_a_layer_does_not_have_is_refused() {
    for (function, args, kwargs, shape, reason) in [
        ("torch.nn.functional.softplus", json!([2]), json!({}), SAME, "its beta is 2"),
        ("torch.nn.functional.softplus", json!([1, 5]), json!({}), SAME, "its threshold is 5"),
        ("torch.nn.functional.gelu", json!([true]), json!({}), SAME, "`approximate` has a form"),
        ("torch.nn.functional.elu", json!([1.0, 1.05]), json!({}), SAME, "argument number 3"),
        ("torch.nn.functional.relu", json!([]), json!({"out": 1}), SAME, "argument `out`"),
        ("torch.clamp", json!([]), json!({}), SAME, "`min` has a form"),
        ("torch.clamp", json!([]), json!({"min": {"value": 1}}), SAME, "`min` has a form"),
        ("torch.nn.functional.softmax", json!([]), json!({"dim": 3, "dtype": {"dtype": "float64"}}), SAME, "`dtype`"),
        ("torch.Tensor.mean", json!([[2, 9]]), json!({}), &[BATCH, 8], "`dim` has a form"),
        ("torch.Tensor.mean", json!([[2, 3]]), json!({"dtype": {"dtype": "float64"}}), &[BATCH, 8], "`dtype`"),
        ("torch.Tensor.mean", json!([]), json!({}), &[], "it combines samples: axes [0, 1, 2, 3]"),
        ("torch.std", json!([]), json!({}), &[], "it combines samples: axes [0, 1, 2, 3]"),
        ("torch.var", json!([false]), json!({}), &[], "it combines samples: axes [0, 1, 2, 3]"),
        ("torch.var", json!([3]), json!({"correction": 6}), &[BATCH, 8, 6], "the variance of 6 numbers"),
        ("torch.Tensor.repeat", json!([2, 1, 1, 1]), json!({}), &[2 * BATCH, 8, 6, 6], "it repeats a tensor"),
        ("torch.nn.functional.unfold", json!([3]), json!({}), &[BATCH, 72, 16], "it moves the batch axis, or combines"),
        ("torch.Tensor.permute", json!([0, 1, 9, 2, 3]), json!({}), SAME, "`dims` has a form"),
        ("torch.Tensor.T", json!([]), json!({}), &[6, 6, 8, BATCH], "it moves the batch"),
        ("torch.nn.functional.pad", json!([[1, 1, 1, 1], "replicate"]), json!({}), SAME, "it pads in another way"),
        ("torch.nn.functional.pad", json!([[-7, 0, 0, 0]]), json!({}), SAME, "`pad` has a form"),
        ("torch.nn.functional.pad", json!([[0, 0, 1, 1, 0, 2]]), json!({}), SAME, "it pads axes other"),
        ("torch.nn.functional.pad", json!([[0, 0, 0, 1, 0, 2]]), json!({"value": 1}), SAME, "it pads axes other"),
        ("torch.pow", json!([0.7]), json!({}), SAME, "its exponent"),
        ("torch.roll", json!([3]), json!({}), SAME, "`dims` has a form"),
        ("torch.cumsum", json!([0]), json!({}), SAME, "it sums along the batch"),
        ("torch.pixel_shuffle", json!([3]), json!({}), SAME, "`upscale_factor` has a form"),
        ("torch.pixel_shuffle", json!([2]), json!({}), SAME, "it gives [61, 8, 6, 6]"),
        ("torch.pixel_unshuffle", json!([2]), json!({}), &[BATCH, 32, 3, 3], "`pixel_unshuffle` is not supported"),
        ("torch.matmul", json!([{"parameter": "stem.weight"}]), json!({}), SAME, "it multiplies matrices"),
        (
            "torch.Tensor.__getitem__",
            json!([[{"ellipsis": null}, {"slice": [0, null, 4]}]]),
            json!({}),
            &[BATCH, 8, 6, 2],
            "it takes every second index",
        ),
        ("torch.max_pool2d", json!([[2, -2]]), json!({}), SAME, "`kernel_size` has a form"),
        ("torch.max_pool2d", json!([2]), json!({"return_indices": true}), SAME, "its return_indices is true"),
        ("torch.nn.functional.boolean_dispatch", json!([2]), json!({}), SAME, "is not supported"),
        ("torch.Tensor.div", json!([2]), json!({"rounding_mode": "floor"}), SAME, "`rounding_mode`"),
        ("torch.Tensor.sub", json!([2]), json!({"alpha": 3}), SAME, "has a factor"),
        ("torch.Tensor.add", json!([2]), json!({"alpha": 2}), SAME, "has a factor"),
        ("torch.Tensor.view", json!([BATCH, 8, 6]), json!({}), &[BATCH, 8, 6], "`shape` has a form"),
        // A list takes several places of one axis; a tuple would take one place of each.
        ("torch.Tensor.__getitem__", json!([[0, 1]]), json!({}), &[2, 8, 6, 6], "it gives [2, 8, 6, 6]"),
        ("zoo.drop_path", json!([]), json!({"mode": "row"}), SAME, "`p` has a form"),
        ("zoo.drop_path", json!([]), json!({"p": 0.1, "mode": "row", "scale_by_keep": false}), SAME, "does not scale"),
        (
            "torch.nn.functional.interpolate",
            json!([]),
            json!({"scale_factor": 1.3, "mode": "bilinear"}),
            &[BATCH, 8, 7, 7],
            "its scale is not the quotient",
        ),
        ("torch.Tensor.div", json!([{"batch": "61"}]), json!({}), SAME, "its argument is 61 for the traced batch"),
        ("torch.Tensor.mul", json!([]), json!({"other": {"batch": "0.128"}}), SAME, "depends on the number of samples"),
        ("torch.Tensor.__getitem__", json!([{"batch": "0:61"}]), json!({}), SAME, "its argument is 0:61"),
        ("torch.Tensor.add", json!([{"batch": "a constant tensor"}]), json!({}), SAME, "its argument is a constant"),
        ("torch.Tensor.__getitem__", json!([null]), json!({}), &[1, BATCH, 8, 6, 6], "it moves the batch axis"),
        ("torch.Tensor.__getitem__", json!([{"value": 1}]), json!({}), SAME, "its indices are a tensor"),
        ("torch.Tensor.__setitem__", json!([{"value": 1}, 0]), json!({}), SAME, "are no ranges"),
        ("torch.Tensor.__setitem__", json!([3, 0]), json!({}), SAME, "a part of a tensor is overwritten"),
        (
            "torch.Tensor.__setitem__",
            json!([[{"slice": [null, null, null]}, {"slice": [5, null, null]}], {"value": 1}]),
            json!({}),
            SAME,
            "[61, 8, 6, 6] is written to a part [61, 3, 6, 6]",
        ),
        ("torch.Tensor.flatten", json!([]), json!({}), &[BATCH * 8 * 36], "it takes away the last axis"),
        ("torch.Tensor.requires_grad_", json!([false]), json!({}), SAME, "is not supported"),
    ] {
        match imported(&network(function, args.clone(), kwargs.clone(), shape)) {
            Err(ImportError::Refused(refusal)) => assert!(refusal.what.contains(reason), "{reason}: {refusal}"),
            other => panic!("{function} {args} {kwargs}: {other:?}"),
        }
    }
}

/// As [`network`], with something else about the call.
fn changed(change: impl Fn(&mut Value)) -> Result<String, ImportError> {
    let mut trace = network("torch.Tensor.to", json!([{"dtype": "float64"}]), json!({}), SAME);
    change(&mut trace);
    imported(&trace)
}

#[test]
fn types_that_change_are_refused_and_parameters_without_a_gradient_are_frozen() {
    for (place, value, reason) in [
        ("/root/body/1/outputs//dtype", json!("float64"), "it computes in float64, and other parts in float32"),
        ("/root/body/1/outputs//dtype", json!("int64"), "it makes int64 of float32"),
        ("/root/body/1/outputs//dtype", json!("float16"), "it computes in float16, and other parts in float32"),
    ] {
        let (parent, key) = place.rsplit_once('/').unwrap();
        let refused = changed(|trace| trace.pointer_mut(parent).unwrap()[key] = value.clone());
        match refused {
            Err(ImportError::Refused(refusal)) => {
                assert!(refusal.what.contains(reason) && !refusal.at.is_empty(), "{reason}: {refusal}");
            }
            other => panic!("{place}: {other:?}"),
        }
    }
    assert!(!changed(|_| ()).unwrap().contains("trained: false"));
    let frozen = changed(|trace| trace["parameters"]["stem.weight"]["frozen"] = json!(true)).unwrap();
    assert!(frozen.contains("trained: false"), "{frozen}");
}

/// A call of a function that gives one tensor.
fn call(function: &str, args: Value, value: usize, shape: &[usize]) -> Value {
    json!({"function": function, "at": "nets.py:9", "args": args, "kwargs": {},
           "outputs": {"": {"value": value, "shape": shape, "dtype": "float32"}}})
}

/// As [`network`], with these calls after the first convolution; the network gives what the last one gives.
fn network_of(calls: Vec<Value>) -> Value {
    let mut trace = network("torch.relu", json!([]), json!({}), SAME);
    let last = json!({"value": calls.last().unwrap()["outputs"][""]["value"]});
    let body = trace["root"]["body"].as_array_mut().unwrap();
    body.truncate(1);
    body.extend(calls);
    trace["outputs"][""] = last.clone();
    trace["root"]["outputs"][""] = last;
    trace
}

/// Means over the width, repeated along it, then changed by a call, times the map if they still have its shape.
fn times_repeated(function: &str, args: Value, made: Value) -> Result<String, ImportError> {
    let args = [&[json!({"value": 3})][..], args.as_array().unwrap()].concat();
    let mut change = call(function, args.into(), 4, SAME);
    change["outputs"][""].as_object_mut().unwrap().extend(made.as_object().unwrap().clone());
    let shape: Vec<usize> = serde_json::from_value(change["outputs"][""]["shape"].clone()).unwrap();
    let last = match shape == SAME {
        true => call("torch.mul", json!([{"value": 1}, {"value": 4}]), 5, SAME),
        false => call("torch.relu", json!([{"value": 4}]), 5, &shape),
    };
    imported(&network_of(vec![
        call("torch.avg_pool2d", json!([{"value": 1}, [1, 6]]), 2, &[BATCH, 8, 6, 1]),
        call("torch.Tensor.expand", json!([{"value": 2}, -1, -1, 6, 6]), 3, SAME),
        change,
        last,
    ]))
}

#[test]
fn a_repeated_tensor_is_used_as_a_whole_or_written_out() {
    let whole = json!([[{"slice": [null, null, null]}, {"slice": [0, 8, null]}]]);
    for (function, args) in [
        ("torch.Tensor.contiguous", json!([])),
        ("torch.Tensor.view", json!([BATCH, 8, 6, 6])),
        ("torch.Tensor.permute", json!([0, 1, 2, 3])),
        ("torch.Tensor.__getitem__", whole),
    ] {
        times_repeated(function, args, json!({})).unwrap_or_else(|error| panic!("{function}: {error}"));
    }
    let flipped = json!({"value": 4, "shape": [BATCH, 8, 6, 6]});
    let half = json!({"shape": [BATCH, 8, 3, 6]});
    for (function, args, made) in [
        ("torch.Tensor.transpose", json!([2, 3]), flipped.clone()),
        ("torch.Tensor.permute", json!([0, 1, 3, 2]), flipped.clone()),
        ("torch.roll", json!([[1], [2]]), flipped),
        ("torch.Tensor.chunk", json!([2, 2]), half.clone()),
        (
            "torch.Tensor.__getitem__",
            json!([[{"ellipsis": null}, {"slice": [0, 3, null]}, {"slice": [null, null, null]}]]),
            half,
        ),
    ] {
        let text = times_repeated(function, args, made).unwrap_or_else(|error| panic!("{function}: {error}"));
        assert!(text.contains("values: [0], to: [8, 6, 6], each: true}"), "{function}: {text}");
    }
    let integers = times_repeated("torch.Tensor.to", json!([{"dtype": "int64"}]), json!({"dtype": "int64"}));
    assert!(matches!(integers, Err(ImportError::Refused(_))), "{integers:?}");
}

/// Whatever the number of results: the file has them in order, and `10` comes before `2` in the order of texts.
#[test]
fn results_keep_their_order() {
    let piece = |place: usize| json!({"value": 3 + place, "shape": [BATCH, 2, 12], "dtype": "float32"});
    let pieces: Vec<String> = (0..12).map(|place| format!("\"{place}\": {}", piece(place))).collect();
    for place in [2, 10] {
        let mut chunk = call("torch.Tensor.chunk", json!([{"value": 2}, 12, 1]), 3, &[]);
        chunk["outputs"] = json!("the pieces");
        let trace = network_of(vec![
            call("torch.Tensor.reshape", json!([{"value": 1}, BATCH, 24, 12]), 2, &[BATCH, 24, 12]),
            chunk,
            call("torch.relu", json!([{"value": 3 + place}]), 15, &[BATCH, 2, 12]),
        ]);
        let text = trace.to_string().replace("\"the pieces\"", &format!("{{{}}}", pieces.join(", ")));
        let text = import(&Trace::read(text.as_bytes()).unwrap(), "net").unwrap().text;
        assert!(text.contains(&format!("- take: {{index: {place}}}")), "{text}");
    }
}

/// The gate of ECA-Net: a convolution over the means of the channels, repeated over the map.
#[test]
fn a_convolution_along_the_channels_gates_a_map() {
    let mut trace = network("torch.mul", json!([{"value": 6}]), json!({}), SAME);
    let conv = json!([{"value": 3}, {"parameter": "conv.weight"}, null, [1], [1], [1], 1]);
    let conv = json!({
        "module": "conv", "call": 0, "at": "nets.py:7", "args": [{"value": 3}], "kwargs": {},
        "body": [call("torch.conv1d", conv, 4, &[BATCH, 1, 8])], "outputs": {"": {"value": 4}},
    });
    let mut body = trace["root"]["body"].as_array().unwrap().clone();
    let mut last = body.pop().unwrap();
    last["outputs"][""]["value"] = 7.into();
    body.extend([
        call("torch.Tensor.mean", json!([{"value": 1}, [2, 3]]), 2, &[BATCH, 8]),
        call("torch.Tensor.view", json!([{"value": 2}, BATCH, 1, 8]), 3, &[BATCH, 1, 8]),
        conv,
        call("torch.Tensor.view", json!([{"value": 4}, BATCH, 8, 1, 1]), 5, &[BATCH, 8, 1, 1]),
        call("torch.Tensor.expand_as", json!([{"value": 5}, {"value": 1}]), 6, SAME),
        last,
    ]);
    trace["root"]["body"] = body.into();
    trace["outputs"][""]["value"] = 7.into();
    trace["root"]["outputs"][""]["value"] = 7.into();
    trace["parameters"]["conv.weight"] = json!({"shape": [1, 1, 3]});
    trace["modules"]["conv"] = json!({"class": "torch.nn.modules.conv.Conv1d"});
    let text = imported(&trace).unwrap();
    assert!(text.contains("- conv1d: {name: conv, out: 1, kernel: 3, pad: 1, bias: false}"), "{text}");
    assert!(text.contains("- gate:") || text.contains("- mul:"), "{text}");
}

#[test]
fn a_factor_and_an_addend_of_the_module_are_an_affine_layer() {
    let affine = |alpha: &[usize]| {
        let mut trace = network("torch.Tensor.reshape", json!([BATCH, 8, 36]), json!({}), &[BATCH, 8, 36]);
        let args = json!([{"parameter": "norm.beta"}, {"parameter": "norm.alpha"}, {"value": 2}]);
        let call = json!({"function": "torch.addcmul", "at": "nets.py:12", "args": args, "kwargs": {},
                          "outputs": {"": {"value": 3, "shape": [BATCH, 8, 36], "dtype": "float32"}}});
        let module = json!({"module": "norm", "call": 0, "at": "nets.py:7", "args": [{"value": 2}], "kwargs": {},
                            "body": [call], "outputs": {"": {"value": 3}}});
        trace["root"]["body"].as_array_mut().unwrap().push(module);
        trace["outputs"][""]["value"] = 3.into();
        trace["root"]["outputs"][""]["value"] = 3.into();
        trace["parameters"]["norm.alpha"] = json!({"shape": alpha});
        trace["parameters"]["norm.beta"] = json!({"shape": [1, 1, 36]});
        trace["modules"]["norm"] = json!({"class": "nets.Affine"});
        imported(&trace)
    };
    let text = affine(&[1, 1, 36]).unwrap();
    assert!(text.contains("- affine: {name: norm}"), "{text}");
    let text = affine(&[1, 8, 1]).unwrap();
    assert!(text.contains("parameter: {name: alpha, shape: [1, 8, 1]}"), "{text}");
}

#[test]
fn a_convolution_with_binomial_filters_is_a_blur_pool() {
    let filtered = |values: &str, args: Value| {
        let mut trace = network("torch.conv2d", args, json!({}), &[BATCH, 8, 2, 2]);
        trace["constants"] = json!([{"shape": [8, 1, 3, 3], "dtype": "float32", "values": values}]);
        trace["buffers"] = json!({"blur.filt": 0});
        imported(&trace)
    };
    let args = |bias: Value, pad: usize, groups: usize| json!([{"buffer": "blur.filt"}, bias, [2], [pad], [1], groups]);
    let filter = "0.0625 0.125 0.0625 0.125 0.25 0.125 0.0625 0.125 0.0625 ";
    let text = filtered(&filter.repeat(8), args(Value::Null, 0, 8)).unwrap();
    assert!(text.contains("- blur_pool\n"), "{text}");
    for (values, args) in [
        ("1*72".to_owned(), args(Value::Null, 0, 8)),
        (filter.repeat(8), args(Value::Null, 1, 8)),
        (filter.repeat(8), args(Value::Null, 0, 1)),
        (filter.repeat(8), args(json!({"value": 1}), 0, 8)),
    ] {
        let error = filtered(&values, args).unwrap_err().to_string();
        assert!(error.contains("its weights are not parameters"), "{error}");
    }
}

/// The trace in format 2, in which a change of the call in evaluation mode makes another network.
fn in_evaluation(call: (&str, Value, Value), change: impl Fn(&mut Value)) -> Result<String, ImportError> {
    let (function, args, kwargs) = call;
    let mut trace = network(function, args, kwargs, SAME);
    let mut own = serde_json::Map::new();
    for key in ["inputs", "outputs", "root"] {
        own.insert(key.to_owned(), trace[key].clone());
    }
    let mut own = Value::Object(own);
    change(&mut own);
    trace["format"] = json!(2);
    trace["evaluation"] = own;
    imported(&trace)
}

#[test]
fn dropout_is_all_that_evaluation_may_lack() {
    let dropout = || ("torch.nn.functional.dropout", json!([0.5, true]), json!({}));
    let text = in_evaluation(dropout(), |own| own["root"]["body"][1]["args"][2] = json!(false)).unwrap();
    assert!(text.contains("- dropout: {rate: 0.5}"), "{text}");
    // `if self.training: x = F.dropout(x, p)`.
    let text = in_evaluation(dropout(), |own| {
        own["root"]["body"].as_array_mut().unwrap().pop();
        own["root"]["outputs"][""] = json!({"value": 1});
        own["outputs"][""] = json!({"value": 1});
    });
    assert!(text.unwrap().contains("- dropout: {rate: 0.5}"));
    let drop_path = ("zoo.drop_path", json!([]), json!({"p": 0.25, "mode": "row"}));
    in_evaluation(drop_path, |own| own["root"]["body"][1]["kwargs"]["p"] = json!(0.0)).unwrap();
}

#[test]
fn what_else_depends_on_the_mode_is_refused_with_its_place() {
    let relu = || ("torch.relu", json!([]), json!({}));
    let other = |function: &'static str| move |own: &mut Value| own["root"]["body"][1]["function"] = json!(function);
    let shorter = |own: &mut Value| {
        own["root"]["body"].as_array_mut().unwrap().pop();
        own["root"]["outputs"][""] = json!({"value": 1});
        own["outputs"][""] = json!({"value": 1});
    };
    let twice = |own: &mut Value| {
        own["root"]["body"][1]["function"] = json!("torch.mul");
        own["root"]["body"][1]["args"] = json!([{"value": 1}, 2]);
    };
    let two = |own: &mut Value| {
        own["root"]["outputs"] = json!({"0": {"value": 2}, "1": {"value": 1}});
        own["outputs"] = json!({"0": {"value": 2}, "1": {"value": 1}});
    };
    let dropout = ("torch.nn.functional.dropout", json!([0.5, true]), json!({}));
    for (refused, reason, at) in [
        (in_evaluation(relu(), other("torch.sigmoid")), "in evaluation mode, and not in training mode", "nets.py:9"),
        (in_evaluation(relu(), twice), "in evaluation mode, and not in training mode", "nets.py:9"),
        (in_evaluation(relu(), shorter), "in training mode, and not in evaluation mode", "nets.py:9"),
        (in_evaluation(relu(), two), "it gives other tensors in evaluation mode", "nets.py:2"),
        (in_evaluation(relu(), other("torch.floor_divide")), "in evaluation mode, `floor_divide` is not", "nets.py:9"),
        (in_evaluation(dropout, |_| ()), "in evaluation mode, it drops a share of 0.5", "nets.py:9"),
    ] {
        match refused {
            Err(ImportError::Refused(refusal)) => {
                assert!(refusal.what.contains(reason) && refusal.at == at, "{reason}: {refusal}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
    in_evaluation(relu(), |_| ()).unwrap();
}

#[test]
fn a_trace_without_evaluation_is_of_format_1() {
    let mut trace = network("torch.relu", json!([]), json!({}), SAME);
    let read = |trace: &Value| Trace::read(&serde_json::to_vec(trace).unwrap());
    assert!(!import(&read(&trace).unwrap(), "net").unwrap().proof.evaluation);
    trace["format"] = json!(2);
    assert!(read(&trace).unwrap_err().to_string().contains("lacks the call in evaluation mode"));
    trace["format"] = json!(3);
    assert!(read(&trace).unwrap_err().to_string().contains("reads formats 1 to 2"));
}
