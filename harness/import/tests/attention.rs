//! Attention that is computed step by step.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;
const TOKENS: usize = 4;
const HEADS: usize = 2;
const WIDTH: usize = 6;

/// What of an attention is other than usual.
struct Attention {
    /// What scores are divided by: the root of three, the width of a head.
    divided_by: f64,
    /// What is added to scores.
    mask: &'static str,
    /// Along which axis softmax is.
    softmax: i64,
    /// Rows of the table of positions that each token gets.
    positions: &'static str,
    /// The gradient-less row of the table.
    padding: Value,
}

const CAUSAL: &str = "0 -100.0*3 0*2 -100.0*2 0*3 -100.0 0*4";

impl Default for Attention {
    fn default() -> Self {
        let root = (3.0f64).sqrt();
        Self { divided_by: root, mask: CAUSAL, softmax: -1, positions: "0 1 2 3", padding: Value::Null }
    }
}

impl Attention {
    /// Tokens, a table, positions, queries, keys and values, and the attention.
    fn imported(&self) -> Result<String, ImportError> {
        let mut next = 1;
        let mut body: Vec<Value> = Vec::new();
        let mut call = |function: &str, args: Value, shape: &[usize]| {
            body.push(json!({
                "function": function, "at": "nets.py:9", "args": args, "kwargs": {},
                "outputs": {"": {"value": next, "shape": shape, "dtype": "float32"}},
            }));
            next += 1;
            json!({"value": next - 1})
        };
        let rows = [BATCH, TOKENS, WIDTH];
        let words = call("torch.embedding", json!([{"value": 0}, {"parameter": "words.weight"}, self.padding]), &rows);
        let places = json!([{"constant": 0}, {"parameter": "places.weight"}]);
        let places = call("torch.embedding", places, &[1, TOKENS, WIDTH]);
        let x = call("torch.add", json!([words, places]), &rows);
        let apart = [BATCH, HEADS, TOKENS, WIDTH / HEADS];
        let [q, k, v] = ["q", "k", "v"].map(|name| {
            let y = call("torch.nn.functional.linear", json!([x, {"parameter": format!("{name}.weight")}]), &rows);
            let heads = [BATCH, TOKENS, HEADS, WIDTH / HEADS];
            let y = call("torch.Tensor.view", json!([y, heads]), &heads);
            call("torch.Tensor.transpose", json!([y, 1, 2]), &apart)
        });
        let k = call("torch.Tensor.transpose", json!([k, -2, -1]), &[BATCH, HEADS, WIDTH / HEADS, TOKENS]);
        let scores = [BATCH, HEADS, TOKENS, TOKENS];
        let s = call("torch.matmul", json!([q, k]), &scores);
        let s = call("torch.Tensor.div", json!([s, self.divided_by]), &scores);
        let s = call("torch.Tensor.add", json!([s, {"constant": 1}]), &scores);
        let s = call("torch.Tensor.softmax", json!([s, self.softmax]), &scores);
        let y = call("torch.matmul", json!([s, v]), &apart);
        let y = call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, TOKENS, HEADS, WIDTH / HEADS]);
        let y = call("torch.Tensor.reshape", json!([y, rows]), &rows);
        let matrix = json!({"shape": [WIDTH, WIDTH]});
        let trace = json!({
            "format": 1, "model": "nets:net", "classes": WIDTH, "batch": BATCH,
            "inputs": {"tokens": {"value": 0, "shape": [BATCH, TOKENS], "dtype": "int64"}},
            "outputs": {"": y},
            "parameters": {
                "words.weight": {"shape": [9, WIDTH]}, "places.weight": {"shape": [5, WIDTH]},
                "q.weight": matrix, "k.weight": matrix, "v.weight": matrix,
            },
            "constants": [
                {"shape": [1, TOKENS], "dtype": "int64", "values": self.positions},
                {"shape": [1, 1, TOKENS, TOKENS], "dtype": "float32", "values": self.mask},
            ],
            "modules": {"": {"class": "nets.Net"}},
            "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                     "body": body, "outputs": {"": y}},
        });
        import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
    }

    fn refused(&self) -> String {
        match self.imported() {
            Err(ImportError::Refused(refusal)) => refusal.what,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn its_steps_are_one_layer() {
    let text = Attention { padding: json!(2), ..Attention::default() }.imported().unwrap();
    let expected =
        ["    - embedding: {name: words, rows: 9, size: 6, padding: 2}", "    - positions: {name: places, rows: 5}"];
    assert!(text.contains(&expected.join("\n")), "{text}");
    assert!(text.contains("- dot_product_attention: {heads: 2, causal: true, key: key, value: value}"), "{text}");
    let text = Attention { mask: "0*16", ..Attention::default() }.imported().unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, key: key, value: value}"), "{text}");
}

/// A small Swin Transformer of version 2, with one text of its trace replaced wherever it is.
fn changed(from: &str, to: &str) -> Result<String, ImportError> {
    let text = std::fs::read_to_string("../../tests/fixtures/traces/swin_v2.json").unwrap();
    assert!(text.contains(from), "{from}");
    import(&Trace::read(text.replace(from, to).as_bytes()).unwrap(), "net").map(|imported| imported.text)
}

#[test]
fn cosine_attention_is_read_to_the_last_number() {
    for (from, to, reason) in [
        // The offset of the farthest pixels, the bias of neighbours, the factor of the bias.
        ("1.0566416", "1.0566417", "its table is another one"),
        (r#""values":"24 23"#, r#""values":"24 24"#, "its rows are not those"),
        (
            r#""function":"torch.Tensor.mul","#,
            r#""function":"torch.Tensor.div","#,
            "with constants and parameters alone",
        ),
        ("torch.sigmoid", "torch.tanh", "with constants and parameters alone"),
        (r#"{"value":13},16]"#, r#"{"value":13},8]"#, "its factor is not 16"),
        (r#""function":"torch.Tensor.exp""#, r#""function":"torch.Tensor.sqrt""#, "it bounds the parameter"),
        (r#""slice":[8,16,null]"#, r#""slice":[8,15,null]"#, "that are no part"),
        (r#""dim":-1,"eps":1e-12"#, r#""dim":-1,"eps":1e-6"#, "its eps is 1e-6"),
        (r#""p":2.0"#, r#""p":1.0"#, "its p is 1.0"),
    ] {
        match changed(from, to) {
            Err(ImportError::Refused(refusal)) => assert!(refusal.what.contains(reason), "{from}: {}", refusal.what),
            other => panic!("{from}: {other:?}"),
        }
    }
    let bounded = changed("4.605170185988092", "3.912023005428146").unwrap();
    assert!(bounded.contains("- logit_scale: {name: logit_scale, heads: $heads, most: 50, tap: cosine}"), "{bounded}");
}

#[test]
fn what_the_layer_does_not_do_is_refused() {
    let usual = Attention::default;
    for (attention, reason) in [
        (Attention { divided_by: 3.0, ..usual() }, "have the scale 0.333"),
        (Attention { softmax: -2, ..usual() }, "softmax of scores is not along the keys"),
        (Attention { mask: "0*15 -100.0", ..usual() }, "its mask is neither causal"),
        // Weights that are small, but not 0.
        (Attention { mask: "0 -9.0*3 0*2 -9.0*2 0*3 -9.0 0*4", ..usual() }, "it adds a constant"),
        (Attention { positions: "0 1 2 2", ..usual() }, "that are not those of positions"),
        (Attention { positions: "1 2 3 4", ..usual() }, "that are not those of positions"),
    ] {
        let said = attention.refused();
        assert!(said.contains(reason), "{reason}: {said}");
    }
}
