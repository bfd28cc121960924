//! Networks whose tokens are the first axis and whose samples are the second, as PyTorch's attention has them.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;
const TOKENS: usize = 4;
const WIDTH: usize = 6;

/// Tokens first: an embedding, an attention of the tokens to a second embedding of them, a dense layer; samples first
/// again at the end. `mask`: values of a mask; `memory`: whether keys and values are those of the second embedding.
fn imported(mask: Option<&str>, memory: bool) -> Result<String, ImportError> {
    let (rows, back) = ([TOKENS, BATCH, WIDTH], [BATCH, TOKENS, WIDTH]);
    let mut next = 1;
    let mut body: Vec<Value> = Vec::new();
    let mut call = |function: &str, args: Value, kwargs: Value, shape: &[usize], dtype: &str| {
        body.push(json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": kwargs,
            "outputs": {"0": {"value": next, "shape": shape, "dtype": dtype}},
        }));
        next += 1;
        json!({"value": next - 1})
    };
    let tokens = call("torch.Tensor.transpose", json!([{"value": 0}, 0, 1]), json!({}), &[TOKENS, BATCH], "int64");
    let embed = |name: &str| json!([tokens, {"parameter": format!("{name}.weight")}]);
    let x = call("torch.nn.functional.embedding", embed("words"), json!({}), &rows, "float32");
    let other = call("torch.nn.functional.embedding", embed("others"), json!({}), &rows, "float32");
    let other = if memory { &other } else { &x };
    let own = |leaf: &str| json!({"parameter": format!("attn.{leaf}")});
    let attend = json!({
        "query": x, "key": other, "value": other, "num_heads": 2, "in_proj_weight": own("in_proj_weight"),
        "in_proj_bias": own("in_proj_bias"), "dropout_p": 0.0, "out_proj_weight": own("out_proj.weight"),
        "out_proj_bias": own("out_proj.bias"), "attn_mask": mask.map(|_| json!({"constant": 0})),
    });
    let x = call("torch.nn.functional.multi_head_attention_forward", json!([]), attend, &rows, "float32");
    let dense = json!([x, {"parameter": "head.weight"}]);
    let x = call("torch.nn.functional.linear", dense, json!({}), &rows, "float32");
    let x = call("torch.Tensor.transpose", json!([x, 0, 1]), json!({}), &back, "float32");
    let shape = |shape: &[usize]| json!({"shape": shape});
    let trace = json!({
        "format": 1, "model": "nets:net", "classes": WIDTH, "batch": BATCH,
        "inputs": {"tokens": {"value": 0, "shape": [BATCH, TOKENS], "dtype": "int64"}},
        "outputs": {"": x},
        "parameters": {
            "words.weight": shape(&[WIDTH, WIDTH]), "others.weight": shape(&[WIDTH, WIDTH]),
            "attn.in_proj_weight": shape(&[3 * WIDTH, WIDTH]), "attn.in_proj_bias": shape(&[3 * WIDTH]),
            "attn.out_proj.weight": shape(&[WIDTH, WIDTH]), "attn.out_proj.bias": shape(&[WIDTH]),
            "head.weight": shape(&[WIDTH, WIDTH]),
        },
        "modules": {"": {"class": "nets.Net"}},
        "constants": mask.map(|values| json!({"shape": [TOKENS, TOKENS], "dtype": "float32", "values": values}))
            .into_iter().collect::<Vec<_>>(),
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {}, "body": body,
                 "outputs": {"": x}},
    });
    import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

#[test]
fn samples_may_be_the_second_axis() {
    let text = imported(None, true).unwrap();
    assert!(text.contains("- attention: {name: attn, heads: 2, key: "), "{text}");
    assert!(!text.contains("permute"), "{text}");
}

#[test]
fn a_constant_mask_of_later_tokens_is_causal() {
    let causal = "0 -inf*3 0*2 -inf*2 0*3 -inf 0*4";
    assert!(imported(Some(causal), true).unwrap().contains("causal: true"));
    assert!(!imported(Some("0*16"), true).unwrap().contains("causal"));
    let refusal = imported(Some("0 -inf*3 0*2 -inf*2 0*2 -inf*2 0*4"), true).unwrap_err().to_string();
    assert!(refusal.contains("its mask is not a constant that hides all later tokens"), "{refusal}");
}

#[test]
fn attention_to_the_tokens_themselves_has_no_taps() {
    let text = imported(None, false).unwrap();
    assert!(text.contains("- attention: {name: attn, heads: 2}"), "{text}");
}

#[test]
fn a_column_of_indices_has_a_table_of_its_own() {
    let call = |function: &str, args: Value, value: usize, shape: &[usize], dtype: &str| {
        json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": {},
            "outputs": {"": {"value": value, "shape": shape, "dtype": dtype}},
        })
    };
    let column = |place: usize, value: usize| {
        let parts = json!([{"value": 0}, [{"slice": [null, null, null]}, place]]);
        call("torch.Tensor.__getitem__", parts, value, &[BATCH], "int64")
    };
    let embed = |name: &str, of: usize, value: usize| {
        let args = json!([{"value": of}, {"parameter": format!("{name}.weight")}]);
        call("torch.nn.functional.embedding", args, value, &[BATCH, WIDTH], "float32")
    };
    let joined = call("torch.cat", json!([[{"value": 2}, {"value": 4}], 1]), 5, &[BATCH, 2 * WIDTH], "float32");
    let trace = json!({
        "format": 1, "model": "nets:net", "classes": WIDTH, "batch": BATCH,
        "inputs": {"tokens": {"value": 0, "shape": [BATCH, 3], "dtype": "int64"}},
        "outputs": {"": {"value": 5}}, "modules": {"": {"class": "nets.Net"}},
        "parameters": {"words.weight": {"shape": [9, WIDTH]}, "others.weight": {"shape": [4, WIDTH]}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                 "body": [column(0, 1), embed("words", 1, 2), column(2, 3), embed("others", 3, 4), joined],
                 "outputs": {"": {"value": 5}}},
    });
    let trace = Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap();
    let text = import(&trace, "net").unwrap().text;
    assert!(text.contains("embedding: {name: words, rows: 9, size: 6, column: 0}"), "{text}");
    assert!(text.contains("embedding: {name: others, rows: 4, size: 6, column: 2}"), "{text}");
}
