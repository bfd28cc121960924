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
    /// The number that scores get where the mask is not 0, instead of the sum.
    filled: Option<Value>,
    /// Along which axis softmax is.
    softmax: i64,
    /// Rows of the table of positions that each token gets.
    positions: &'static str,
    /// The gradient-less row of the table.
    padding: Value,
}

const CAUSAL: &str = "0 -inf*3 0*2 -inf*2 0*3 -inf 0*4";

impl Default for Attention {
    fn default() -> Self {
        let root = (3.0f64).sqrt();
        Self { divided_by: root, mask: CAUSAL, filled: None, softmax: -1, positions: "0 1 2 3", padding: Value::Null }
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
        let words = call(
            "torch.nn.functional.embedding",
            json!([{"value": 0}, {"parameter": "words.weight"}, self.padding]),
            &rows,
        );
        let places = json!([{"constant": 0}, {"parameter": "places.weight"}]);
        let places = call("torch.nn.functional.embedding", places, &[1, TOKENS, WIDTH]);
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
        let s = match &self.filled {
            None => call("torch.Tensor.add", json!([s, {"constant": 1}]), &scores),
            Some(value) => call("torch.Tensor.masked_fill", json!([s, {"constant": 1}, value]), &scores),
        };
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
    let text = Attention { padding: json!(-1), ..Attention::default() }.imported().unwrap();
    assert!(text.contains("- embedding: {name: words, rows: 9, size: 6, padding: 8}"), "{text}");
    let text = Attention { mask: "0*16", ..Attention::default() }.imported().unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, key: key, value: value}"), "{text}");
}

#[test]
fn another_scale_and_another_first_position_are_said() {
    let text = Attention { divided_by: 3.0, positions: "1 2 3 4", ..Attention::default() }.imported().unwrap();
    assert!(text.contains("causal: true, scale: 0.3333333333333333, key"), "{text}");
    assert!(text.contains("- positions: {name: places, rows: 5, from: 1}"), "{text}");
}

/// Of what is so small that no weight is left, the number does not matter; of anything else, it is in the recipe.
#[test]
fn what_hides_nothing_for_certain_is_added() {
    for (number, said) in [
        ("-inf", "causal: true, key"),
        ("-3.4028234663852886e+38", "causal: true, key"),
        ("-65504.0", "causal: true, key"),
        ("-10000.0", "causal: true, key"),
        ("-9999.0", "causal: true, masked: -9999, key"),
        ("-100.0", "causal: true, masked: -100, key"),
        ("-0.5", "causal: true, masked: -0.5, key"),
    ] {
        let mask: String = CAUSAL.replace("-inf", number);
        let text = Attention { mask: mask.leak(), ..Attention::default() }.imported().unwrap();
        assert!(text.contains(said), "{number}: {text}");
    }
}

#[test]
fn masked_scores_may_be_replaced() {
    let filled =
        |value: Value| Attention { mask: "0 1*3 0*2 1*2 0*3 1 0*4", filled: Some(value), ..Attention::default() };
    for value in [json!({"other": "-inf"}), json!(-1e9), json!(-10000)] {
        let text = filled(value).imported().unwrap();
        assert!(text.contains("- dot_product_attention: {heads: 2, causal: true, key: key, value: value}"), "{text}");
    }
    for value in [json!(-100.0), json!(0)] {
        assert!(filled(value).refused().contains("which leaves them a weight"));
    }
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
        (Attention { softmax: -2, ..usual() }, "softmax of scores is not along the keys"),
        (Attention { mask: "0*15 -100.0", ..usual() }, "its mask is neither causal"),
        // No mask: several numbers, or such as make scores larger.
        (Attention { mask: "0 -9.0*2 -8.0 0*2 -9.0*2 0*3 -9.0 0*4", ..usual() }, "nor the same negative number"),
        (Attention { mask: "0 -100.0*2 -inf 0*2 -inf*2 0*3 -inf 0*4", ..usual() }, "nor the same negative number"),
        (Attention { mask: "0 9.0*3 0*2 9.0*2 0*3 9.0 0*4", ..usual() }, "nor the same negative number"),
        (Attention { mask: "0 nan*3 0*2 nan*2 0*3 nan 0*4", ..usual() }, "nor the same negative number"),
        (Attention { positions: "0 1 2 2", ..usual() }, "that do not follow each other"),
        (Attention { positions: "2 4 6 8", ..usual() }, "that do not follow each other"),
    ] {
        let said = attention.refused();
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

/// Where rows are divided by their lengths.
#[derive(Clone, Copy, Debug)]
enum Divided {
    /// For each head.
    Heads,
    /// Before they are cut into heads.
    Rows,
    /// For each head and feature, over the tokens.
    Tokens,
}

/// Calls of functions, and the values that they give.
#[derive(Default)]
struct Calls {
    body: Vec<Value>,
}

impl Calls {
    fn call(&mut self, function: &str, args: Value, shape: &[usize]) -> Value {
        let value = self.body.len() + 1;
        self.body.push(json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": {},
            "outputs": {"": {"value": value, "shape": shape, "dtype": "float32"}},
        }));
        json!({"value": value})
    }

    /// Queries, or keys.
    fn heads(&mut self, x: &Value, name: &str, divided: Divided, tokens: usize) -> Value {
        let (rows, width) = ([BATCH, tokens, WIDTH], WIDTH / HEADS);
        let (apart, turned) = ([BATCH, HEADS, tokens, width], [BATCH, HEADS, width, tokens]);
        let normalize = "torch.nn.functional.normalize";
        let last = |y: &Value| json!([y, 2.0, -1, 1e-12]);
        let weight = json!({"parameter": format!("{name}.weight")});
        let mut y = self.call("torch.nn.functional.linear", json!([x, weight]), &rows);
        if let Divided::Rows = divided {
            y = self.call(normalize, last(&y), &rows);
        }
        let y = self.call("torch.Tensor.view", json!([y, rows]), &[BATCH, tokens, HEADS, width]);
        let y = self.call("torch.Tensor.transpose", json!([y, 1, 2]), &apart);
        match divided {
            Divided::Rows => y,
            Divided::Heads => self.call(normalize, last(&y), &apart),
            Divided::Tokens => {
                let y = self.call("torch.Tensor.transpose", json!([y, -2, -1]), &turned);
                let y = self.call(normalize, last(&y), &turned);
                self.call("torch.Tensor.transpose", json!([y, -2, -1]), &apart)
            }
        }
    }

    /// A bias of so many tokens, computed from a table of another window.
    fn bias(&mut self, tokens: usize) -> Value {
        let linear = "torch.nn.functional.linear";
        let [first, second] = ["0", "2"].map(|name| json!({"parameter": format!("cpb.{name}.weight")}));
        let offsets = json!([{"constant": 1}, first, {"parameter": "cpb.0.bias"}]);
        let y = self.call(linear, offsets, &[1, 3, 3, 8]);
        let y = self.call("torch.relu", json!([y]), &[1, 3, 3, 8]);
        let y = self.call(linear, json!([y, second]), &[1, 3, 3, HEADS]);
        let y = self.call("torch.Tensor.view", json!([y, -1, HEADS]), &[9, HEADS]);
        let y = self.call("torch.Tensor.__getitem__", json!([y, {"constant": 2}]), &[tokens * tokens, HEADS]);
        let y = self.call("torch.Tensor.view", json!([y, tokens, tokens, -1]), &[tokens, tokens, HEADS]);
        let y = self.call("torch.Tensor.permute", json!([y, 2, 0, 1]), &[HEADS, tokens, tokens]);
        let y = self.call("torch.sigmoid", json!([y]), &[HEADS, tokens, tokens]);
        self.call("torch.mul", json!([y, 16]), &[HEADS, tokens, tokens])
    }
}

/// Cosine attention of so many tokens, with these steps between its products.
fn cosine([queries, keys]: [Divided; 2], steps: &[&str], tokens: usize) -> Result<String, ImportError> {
    let mut calls = Calls::default();
    let (rows, width) = ([BATCH, tokens, WIDTH], WIDTH / HEADS);
    let (apart, scores) = ([BATCH, HEADS, tokens, width], [BATCH, HEADS, tokens, tokens]);
    let embedding = "torch.nn.functional.embedding";
    let x = calls.call(embedding, json!([{"value": 0}, {"parameter": "words.weight"}]), &rows);
    let q = calls.heads(&x, "q", queries, tokens);
    let k = calls.heads(&x, "k", keys, tokens);
    let k = calls.call("torch.Tensor.transpose", json!([k, -2, -1]), &[BATCH, HEADS, width, tokens]);
    let v = calls.call("torch.nn.functional.linear", json!([x, {"parameter": "v.weight"}]), &rows);
    let v = calls.call("torch.Tensor.view", json!([v, rows]), &[BATCH, tokens, HEADS, width]);
    let v = calls.call("torch.Tensor.transpose", json!([v, 1, 2]), &apart);
    let mut s = calls.call("torch.matmul", json!([q, k]), &scores);
    for step in steps {
        s = match *step {
            "factor" | "turned factor" => {
                let shape = [HEADS, 1, 1];
                let bound = json!([{"parameter": "scale"}, null, 100f64.ln()]);
                let mut bound = calls.call("torch.clamp", bound, &shape);
                if *step == "turned factor" {
                    bound = calls.call("torch.Tensor.transpose", json!([bound, 0, 1]), &[1, HEADS, 1]);
                }
                let factor = calls.call("torch.Tensor.exp", json!([bound]), &shape);
                calls.call("torch.mul", json!([s, factor]), &scores)
            }
            "mask" => calls.call("torch.Tensor.add", json!([s, {"constant": 0}]), &scores),
            "bias" => {
                let bias = calls.bias(tokens);
                calls.call("torch.Tensor.add", json!([s, bias]), &scores)
            }
            "whole" => {
                s = calls.call("torch.Tensor.to", json!([s, {"dtype": "int64"}]), &scores);
                calls.body.last_mut().unwrap()["outputs"][""]["dtype"] = "int64".into();
                s
            }
            softmax => calls.call(softmax, json!([s, -1]), &scores),
        };
    }
    let y = calls.call("torch.matmul", json!([s, v]), &apart);
    let y = calls.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, tokens, HEADS, width]);
    let y = calls.call("torch.Tensor.reshape", json!([y, rows]), &rows);
    let matrix = json!({"shape": [WIDTH, WIDTH]});
    let mut trace = json!({
        "format": 1, "model": "nets:net", "classes": WIDTH, "batch": BATCH,
        "inputs": {"tokens": {"value": 0, "shape": [BATCH, tokens], "dtype": "int64"}},
        "outputs": {"": y},
        "parameters": {
            "words.weight": {"shape": [9, WIDTH]}, "scale": {"shape": [HEADS, 1, 1]},
            "q.weight": matrix, "k.weight": matrix, "v.weight": matrix,
        },
        "constants": [
            {"shape": [TOKENS, TOKENS], "dtype": "float32", "values": CAUSAL},
            {"shape": [1, 3, 3, 2], "dtype": "float32", "values": "0*18"},
            {"shape": [1], "dtype": "int64", "values": "0"},
        ],
        "modules": {"": {"class": "nets.Net"}},
        "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                 "body": calls.body, "outputs": {"": y}},
    });
    if steps.contains(&"bias") {
        for (name, shape) in
            [("cpb.0.weight", json!([8, 2])), ("cpb.0.bias", json!([8])), ("cpb.2.weight", json!([HEADS, 8]))]
        {
            trace["parameters"][name] = json!({"shape": shape});
        }
    }
    import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
}

const SOFTMAX: &str = "torch.Tensor.softmax";
const PER_HEAD: [Divided; 2] = [Divided::Heads; 2];

#[test]
fn cosines_are_those_of_queries_and_keys_of_each_head() {
    let text = cosine(PER_HEAD, &["factor", "mask", SOFTMAX], TOKENS).unwrap();
    assert!(text.contains("causal: true, key: key, value: value, cosine: cosine}"), "{text}");
    for divided in [
        [Divided::Rows; 2],
        [Divided::Tokens; 2],
        [Divided::Heads, Divided::Rows],
        [Divided::Rows, Divided::Heads],
        [Divided::Heads, Divided::Tokens],
        [Divided::Tokens, Divided::Heads],
    ] {
        match cosine(divided, &["factor", SOFTMAX], TOKENS) {
            Err(ImportError::Refused(refusal)) => {
                // Rows of length one are no cosines elsewhere, and no scores are multiplied by a parameter then.
                let reasons = ["lengths", "the parameter `scale`", "it multiplies matrices"];
                assert!(reasons.iter().any(|reason| refusal.what.contains(reason)), "{divided:?}: {refusal}");
            }
            other => panic!("{divided:?}: {other:?}"),
        }
    }
}

#[test]
fn steps_of_an_attention_in_another_order_are_refused() {
    for (steps, reason) in [
        (&["factor", SOFTMAX, "mask"][..], "after softmax"),
        (&["mask", "factor", SOFTMAX], "are multiplied by the parameter `scale`"),
        (&["turned factor", SOFTMAX], "it bounds the parameter `scale`"),
        (&["factor", "whole", SOFTMAX], "it makes int64 of float32"),
    ] {
        match cosine(PER_HEAD, steps, TOKENS) {
            Err(ImportError::Refused(refusal)) => assert!(refusal.what.contains(reason), "{steps:?}: {refusal}"),
            other => panic!("{steps:?}: {other:?}"),
        }
    }
}

/// A table of offsets has four times as many rows as a window has pixels, whatever the trace has.
#[test]
fn no_table_is_made_for_more_tokens_than_a_window_has() {
    for (tokens, reason) in
        [(4, "its table is another one"), (16, "its table is another one"), (71 * 71, "window is not known")]
    {
        match cosine(PER_HEAD, &["factor", "bias", SOFTMAX], tokens) {
            Err(ImportError::Refused(refusal)) => assert!(refusal.what.contains(reason), "{tokens}: {refusal}"),
            other => panic!("{tokens}: {other:?}"),
        }
    }
}
