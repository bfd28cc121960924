//! Forms of functions that programs of `zoo emit` have, and authors too.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;

/// A network of functions, numbered from 1, on maps of 8 channels and 6 x 6 pixels, the number 0.
fn of_functions(calls: &[(&str, Value, &[usize])]) -> Result<String, ImportError> {
    let call = |(place, (function, args, shape)): (usize, &(&str, Value, &[usize]))| {
        json!({"function": function, "at": "nets.py:9", "args": args, "kwargs": {},
               "outputs": {"": {"value": place + 1, "shape": shape, "dtype": "float32"}}})
    };
    let body: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let last = json!({"": {"value": calls.len()}});
    let trace = json!({
        "format": 1, "model": "nets:net", "classes": 8, "batch": BATCH,
        "inputs": {"image": {"value": 0, "shape": [BATCH, 8, 6, 6], "dtype": "float32"}},
        "outputs": last, "parameters": {}, "modules": {"": {"class": "nets.Net"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {}, "body": body, "outputs": last},
    });
    import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

fn x(value: usize, rest: Value) -> Value {
    [&[json!({"value": value})][..], rest.as_array().unwrap()].concat().into()
}

/// One group for each channel of each sample: SiamMask's, as its authors wrote it.
#[test]
fn a_convolution_with_computed_filters_is_a_correlation() {
    let maps = BATCH * 8;
    let correlated = |settings: Value| {
        let settings = [&[json!({"value": 3})][..], settings.as_array().unwrap()].concat();
        of_functions(&[
            ("torch.avg_pool2d", x(0, json!([2])), &[BATCH, 8, 3, 3]),
            ("torch.Tensor.reshape", x(0, json!([1, maps, 6, 6])), &[1, maps, 6, 6]),
            ("torch.Tensor.view", x(1, json!([maps, 1, 3, 3])), &[maps, 1, 3, 3]),
            ("torch.conv2d", x(2, settings.into()), &[1, maps, 4, 4]),
            ("torch.Tensor.view", x(4, json!([BATCH, 8, 4, 4])), &[BATCH, 8, 4, 4]),
        ])
    };
    let groups = json!({"batch": maps.to_string()});
    let text = correlated(json!([null, [1], [0], [1], groups])).unwrap();
    assert!(text.contains("- xcorr: {kernel: kernel}"), "{text}");
    for settings in
        [json!([null, [1], [0], [1], 8]), json!([null, [2], [0], [1], groups]), json!([null, [1], [1], [1], groups])]
    {
        let error = correlated(settings).unwrap_err().to_string();
        assert!(error.contains("its filters are computed"), "{error}");
    }
}

#[test]
fn a_logarithm_of_softmax_over_pairs_is_a_layer() {
    let pairs = |axis: i64| {
        of_functions(&[
            ("torch.Tensor.view", x(0, json!([BATCH, 2, 4, 6, 6])), &[BATCH, 2, 4, 6, 6]),
            ("torch.Tensor.permute", x(1, json!([0, 2, 3, 4, 1])), &[BATCH, 4, 6, 6, 2]),
            ("torch.nn.functional.log_softmax", x(2, json!([axis])), &[BATCH, 4, 6, 6, 2]),
        ])
    };
    assert!(pairs(-1).unwrap().contains("- pair_log_softmax\n"));
    assert!(pairs(1).unwrap().contains("- map: \"log_softmax(x)\"\n"), "along another axis");
}

/// SiamMask's refinement: windows become samples.
#[test]
fn unfolded_windows_are_maps() {
    let text = of_functions(&[
        ("torch.nn.functional.unfold", x(0, json!([[3, 3], 1, 0, 1])), &[BATCH, 72, 16]),
        ("torch.Tensor.transpose", x(1, json!([1, 2])), &[BATCH, 16, 72]),
        ("torch.Tensor.reshape", x(2, json!([-1, 8, 3, 3])), &[BATCH * 16, 8, 3, 3]),
        ("torch.avg_pool2d", x(3, json!([3])), &[BATCH * 16, 8, 1, 1]),
        ("torch.Tensor.flatten", x(4, json!([1])), &[BATCH * 16, 8]),
    ])
    .unwrap();
    assert!(text.contains("- patches: {kernel: 3}"), "{text}");
}

/// Channels moved in time, into zeros and into a tensor of which all numbers are set later.
#[test]
fn parts_that_are_written_are_joined() {
    let part = |from: usize, to: usize| json!([{"slice": [null, null, null]}, {"slice": [from, to, null]}]);
    let parts = |first: (&'static str, Value, &'static [usize])| {
        of_functions(&[
            first,
            ("torch.Tensor.__getitem__", x(0, json!([part(4, 8)])), &[BATCH, 4, 6, 6]),
            ("torch.Tensor.__setitem__", x(1, json!([part(0, 4), {"value": 2}])), &[BATCH, 8, 6, 6]),
            ("torch.Tensor.__getitem__", x(0, json!([part(0, 4)])), &[BATCH, 4, 6, 6]),
            ("torch.Tensor.__setitem__", x(3, json!([part(4, 8), {"value": 4}])), &[BATCH, 8, 6, 6]),
            ("torch.relu", x(5, json!([])), &[BATCH, 8, 6, 6]),
        ])
    };
    let text = parts(("torch.empty_like", x(0, json!([])), &[BATCH, 8, 6, 6])).unwrap();
    let joined = "- concat: {branches: [[slice: {from: 4, size: 4}], [slice: {size: 4}]]}\n    - relu\n";
    assert!(text.contains(joined), "{text}");
    let text = parts(("torch.Tensor.mul", x(0, json!([2.0])), &[BATCH, 8, 6, 6])).unwrap();
    assert!(text.contains("- scale: {by: 2}") && text.matches("concat").count() == 2, "{text}");
    // A part that is never set.
    let text = of_functions(&[
        ("torch.empty_like", x(0, json!([])), &[BATCH, 8, 6, 6]),
        ("torch.Tensor.__setitem__", x(1, json!([part(0, 4), 1.5])), &[BATCH, 8, 6, 6]),
        ("torch.relu", x(2, json!([])), &[BATCH, 8, 6, 6]),
    ]);
    assert!(text.is_err_and(|error| error.to_string().contains("never set")));
}

#[test]
fn neighbouring_pixels_are_merged() {
    let text = of_functions(&[
        ("torch.Tensor.permute", x(0, json!([0, 2, 3, 1])), &[BATCH, 6, 6, 8]),
        ("torch.Tensor.unflatten", x(1, json!([2, [-1, 3]])), &[BATCH, 6, 2, 3, 8]),
        ("torch.Tensor.unflatten", x(2, json!([1, [-1, 2]])), &[BATCH, 3, 2, 2, 3, 8]),
        ("torch.Tensor.permute", x(3, json!([0, 1, 3, 4, 2, 5])), &[BATCH, 3, 2, 3, 2, 8]),
        ("torch.Tensor.flatten", x(4, json!([3])), &[BATCH, 3, 2, 48]),
        ("torch.relu", x(5, json!([])), &[BATCH, 3, 2, 48]),
    ])
    .unwrap();
    assert!(text.contains("- merge_patches: {size: [2, 3]}"), "{text}");
}
