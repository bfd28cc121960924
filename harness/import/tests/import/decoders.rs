//! What decoders compute, in the ways in which they are written: rotary positions, shared heads, masks, normalisations.

use serde_json::{Value, json};
use zoo_graph::Init;
use zoo_import::{ImportError, Trace, import};
use zoo_recipe::layers::{DistanceBias, Llama3Scaling, Pairs, Rotary, RotaryScaling};
use zoo_recipe::schema::Size;

const BATCH: usize = 61;
const TOKENS: usize = 6;
const HEADS: usize = 2;
const WIDTH: usize = 8;

/// A trace under construction: tokens through a table of 16 numbers each.
struct Network {
    body: Vec<Value>,
    constants: Vec<Value>,
    parameters: serde_json::Map<String, Value>,
    x: Value,
}

impl Network {
    fn new() -> Self {
        let parameters = json!({"words.weight": {"shape": [9, HEADS * WIDTH]}}).as_object().unwrap().clone();
        let mut own = Self { body: Vec::new(), constants: Vec::new(), parameters, x: Value::Null };
        let table = json!([{"value": 0}, {"parameter": "words.weight"}]);
        own.x = own.call("torch.nn.functional.embedding", table, &[BATCH, TOKENS, HEADS * WIDTH]);
        own
    }

    fn call(&mut self, function: &str, args: Value, shape: &[usize]) -> Value {
        let value = self.body.len() + 1;
        self.body.push(json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": {},
            "outputs": {"": {"value": value, "shape": shape, "dtype": "float32"}},
        }));
        json!({"value": value})
    }

    fn constant(&mut self, shape: &[usize], values: impl Iterator<Item = f64>) -> Value {
        let values: Vec<String> = values.map(|value| format!("{value:?}")).collect();
        self.constants.push(json!({"shape": shape, "dtype": "float32", "values": values.join(" ")}));
        json!({"constant": self.constants.len() - 1})
    }

    fn parameter(&mut self, name: &str, shape: &[usize]) -> Value {
        self.parameters.insert(name.to_owned(), json!({"shape": shape}));
        json!({"parameter": name})
    }

    /// Heads `[n, heads, t, d]` of a dense layer.
    fn heads(&mut self, name: &str, heads: usize) -> Value {
        let weight = self.parameter(&format!("{name}.weight"), &[heads * WIDTH, HEADS * WIDTH]);
        let x = self.x.clone();
        let y = self.call("torch.nn.functional.linear", json!([x, weight]), &[BATCH, TOKENS, heads * WIDTH]);
        let apart = [BATCH, TOKENS, heads, WIDTH];
        let y = self.call("torch.Tensor.view", json!([y, apart]), &apart);
        self.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, heads, TOKENS, WIDTH])
    }

    /// PyTorch's attention and its result as tokens.
    fn attend(mut self, args: Value) -> Result<String, ImportError> {
        let apart = [BATCH, HEADS, TOKENS, WIDTH];
        let y = self.call("torch.nn.functional.scaled_dot_product_attention", args, &apart);
        let y = self.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, TOKENS, HEADS, WIDTH]);
        let together = [BATCH, TOKENS, HEADS * WIDTH];
        let y = self.call("torch.Tensor.reshape", json!([y, together]), &together);
        self.imported(&y)
    }

    fn imported(self, y: &Value) -> Result<String, ImportError> {
        let trace = json!({
            "format": 1, "model": "nets:net", "classes": HEADS * WIDTH, "batch": BATCH,
            "inputs": {"tokens": {"value": 0, "shape": [BATCH, TOKENS], "dtype": "int64"}},
            "outputs": {"": y}, "parameters": self.parameters, "constants": self.constants,
            "modules": {"": {"class": "nets.Net"}},
            "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                     "body": self.body, "outputs": {"": y}},
        });
        import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
    }
}

/// How queries and keys are turned.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// x * cos + cat(-second half, first half) * sin
    Halves,
    /// cat(first * cos - second * sin, second * cos + first * sin)
    ByParts,
    /// The same of even and odd channels, stacked.
    Adjacent,
}

/// Angles by position and pair.
fn angles(rotary: &Rotary, pairs: usize) -> Vec<Vec<f64>> {
    let rates = rotary.rates(pairs);
    (0..TOKENS).map(|position| rates.iter().map(|rate| position as f64 * rate).collect()).collect()
}

fn turned(network: &mut Network, x: &Value, heads: usize, form: Form, angles: &[Vec<f64>]) -> Value {
    let pairs = angles[0].len();
    let (whole, half) = ([BATCH, heads, TOKENS, 2 * pairs], [BATCH, heads, TOKENS, pairs]);
    let part = |network: &mut Network, slice: Value| {
        network.call("torch.Tensor.__getitem__", json!([x, [{"ellipsis": null}, {"slice": slice}]]), &half)
    };
    let (first, second) = match form {
        Form::Adjacent => (json!([0, null, 2]), json!([1, null, 2])),
        Form::Halves | Form::ByParts => (json!([null, pairs, null]), json!([pairs, null, null])),
    };
    let (first, second) = (part(network, first), part(network, second));
    match form {
        Form::Halves => {
            let table = |of: fn(f64) -> f64| {
                angles.iter().flat_map(move |row| row.iter().chain(row).map(move |angle| of(*angle)))
            };
            let cos = network.constant(&[1, 1, TOKENS, 2 * pairs], table(f64::cos));
            let sin = network.constant(&[1, 1, TOKENS, 2 * pairs], table(f64::sin));
            let own = network.call("torch.Tensor.mul", json!([x, cos]), &whole);
            let minus = network.call("torch.Tensor.neg", json!([second]), &half);
            let partners = network.call("torch.cat", json!([[minus, first], -1]), &whole);
            let other = network.call("torch.Tensor.mul", json!([partners, sin]), &whole);
            network.call("torch.Tensor.add", json!([own, other]), &whole)
        }
        Form::ByParts | Form::Adjacent => {
            let table = |of: fn(f64) -> f64| angles.iter().flatten().map(move |angle| of(*angle));
            let cos = network.constant(&[TOKENS, pairs], table(f64::cos));
            let sin = network.constant(&[TOKENS, pairs], table(f64::sin));
            let product =
                |network: &mut Network, a: &Value, b: &Value| network.call("torch.Tensor.mul", json!([a, b]), &half);
            let [a, b] = [product(network, &first, &cos), product(network, &second, &sin)];
            let [c, d] = [product(network, &second, &cos), product(network, &first, &sin)];
            let one = network.call("torch.Tensor.sub", json!([a, b]), &half);
            let other = network.call("torch.Tensor.add", json!([c, d]), &half);
            if let Form::ByParts = form {
                return network.call("torch.cat", json!([[one, other], -1]), &whole);
            }
            let stacked = [BATCH, heads, TOKENS, pairs, 2];
            let y = network.call("torch.stack", json!([[one, other], -1]), &stacked);
            network.call("torch.Tensor.flatten", json!([y, -2]), &whole)
        }
    }
}

fn with_rotary(form: Form, rotary: &Rotary, broken: impl Fn(&mut Vec<Vec<f64>>)) -> Result<String, ImportError> {
    let mut network = Network::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| network.heads(name, HEADS));
    let mut table = angles(rotary, WIDTH / 2);
    broken(&mut table);
    let [q, k] = [q, k].map(|x| turned(&mut network, &x, HEADS, form, &table));
    network.attend(json!([q, k, v, null, 0.0, true]))
}

#[test]
fn rotary_positions_are_found_in_every_form() {
    let of_base = |base| Rotary { base, ..Rotary::default() };
    let scaled = |scaling| Rotary { scaling: Some(scaling), ..of_base(500_000.0) };
    for (form, rotary, said) in [
        (Form::Halves, of_base(10000.0), "rotary: {},"),
        (Form::ByParts, of_base(1e6), "rotary: {base: 1e6},"),
        (Form::Adjacent, Rotary { pairs: Pairs::Adjacent, ..of_base(10000.0) }, "rotary: {pairs: adjacent},"),
        (Form::Halves, scaled(RotaryScaling::Linear(4.0)), "rotary: {base: 5e5, scaling: {linear: 4}},"),
        (
            Form::Halves,
            scaled(RotaryScaling::Llama3(Llama3Scaling::default())),
            "rotary: {base: 5e5, scaling: {llama3: {}}},",
        ),
    ] {
        let text = with_rotary(form, &rotary, |_| {}).unwrap();
        assert!(text.contains(said), "{form:?} {rotary:?}: {text}");
    }
}

#[test]
fn other_angles_are_products_with_constants() {
    for form in [Form::Halves, Form::ByParts, Form::Adjacent] {
        let plain = |broken: &dyn Fn(&mut Vec<Vec<f64>>)| {
            let text = with_rotary(form, &Rotary::default(), broken).unwrap();
            assert!(!text.contains("rotary") && text.contains("constant:"), "{form:?}: {text}");
        };
        plain(&|table| table[3][1] += 1e-4);
        plain(&|table| table.iter_mut().for_each(|row| row[2] *= 1.01));
        plain(&|table| table.iter_mut().flatten().for_each(|angle| *angle += 0.1));
    }
}

#[test]
fn a_part_of_a_head_may_be_turned() {
    let mut network = Network::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| network.heads(name, HEADS));
    let table = angles(&Rotary::default(), 2);
    let [q, k] = [q, k].map(|x| {
        let part = |network: &mut Network, slice: Value| {
            let shape = [BATCH, HEADS, TOKENS, 4];
            network.call("torch.Tensor.__getitem__", json!([x, [{"ellipsis": null}, {"slice": slice}]]), &shape)
        };
        let (first, rest) = (part(&mut network, json!([null, 4, null])), part(&mut network, json!([4, null, null])));
        let first = turned(&mut network, &first, HEADS, Form::Halves, &table);
        network.call("torch.cat", json!([[first, rest], -1]), &[BATCH, HEADS, TOKENS, WIDTH])
    });
    let text = network.attend(json!([q, k, v, null, 0.0, true])).unwrap();
    assert!(text.contains("rotary: {width: 4},"), "{text}");
}

#[test]
fn heads_may_share_keys() {
    let mut network = Network::new();
    let q = network.heads("q", HEADS);
    let [k, v] = ["k", "v"].map(|name| {
        let x = network.heads(name, 1);
        let key = json!([x, [{"slice": [null, null, null]}, {"slice": [null, null, null]}, null, {"ellipsis": null}]]);
        let x = network.call("torch.Tensor.__getitem__", key, &[BATCH, 1, 1, TOKENS, WIDTH]);
        let each = [BATCH, 1, HEADS, TOKENS, WIDTH];
        let x = network.call("torch.Tensor.expand", json!([x, each]), &each);
        let together = [BATCH, HEADS, TOKENS, WIDTH];
        network.call("torch.Tensor.reshape", json!([x, together]), &together)
    });
    let text = network.attend(json!([q, k, v])).unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, kv_heads: 1, key: key, value: value}"), "{text}");
}

#[test]
fn values_may_have_another_width() {
    let mut network = Network::new();
    let [q, k] = ["q", "k"].map(|name| network.heads(name, HEADS));
    let half = [BATCH, HEADS, TOKENS, WIDTH / 2];
    let v = network.heads("v", HEADS);
    let part = json!([v, [{"ellipsis": null}, {"slice": [null, WIDTH / 2, null]}]]);
    let v = network.call("torch.Tensor.__getitem__", part, &half);
    let y = network.call("torch.nn.functional.scaled_dot_product_attention", json!([q, k, v]), &half);
    let y = network.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, TOKENS, HEADS, WIDTH / 2]);
    let together = [BATCH, TOKENS, HEADS * WIDTH / 2];
    let y = network.call("torch.Tensor.reshape", json!([y, together]), &together);
    let weight = network.parameter("out.weight", &[HEADS * WIDTH, HEADS * WIDTH / 2]);
    let y = network.call("torch.nn.functional.linear", json!([y, weight]), &[BATCH, TOKENS, HEADS * WIDTH]);
    let text = network.imported(&y).unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, key: key, value: value}"), "{text}");
}

/// Two calls of the same line: 0.5 is the usual scale of heads of 4 numbers, and not of those of 8.
#[test]
fn a_scale_that_is_the_usual_one_by_chance_is_said() {
    for (second, said) in [("nets.py:9", "heads: 4, scale: 0.5, key"), ("nets.py:8", "heads: 4, key")] {
        let mut network = Network::new();
        for heads in [HEADS, 2 * HEADS] {
            let width = HEADS * WIDTH / heads;
            let [q, k, v] = ["q", "k", "v"].map(|name| {
                let weight = network.parameter(&format!("{name}{heads}.weight"), &[HEADS * WIDTH, HEADS * WIDTH]);
                let x = network.x.clone();
                let y = network.call("torch.nn.functional.linear", json!([x, weight]), &[BATCH, TOKENS, HEADS * WIDTH]);
                let y = network.call(
                    "torch.Tensor.view",
                    json!([y, [BATCH, TOKENS, heads, width]]),
                    &[BATCH, TOKENS, heads, width],
                );
                network.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, heads, TOKENS, width])
            });
            let args = json!([q, k, v, null, 0.0, false, 0.5]);
            let y =
                network.call("torch.nn.functional.scaled_dot_product_attention", args, &[BATCH, heads, TOKENS, width]);
            if heads > HEADS {
                network.body.last_mut().unwrap()["at"] = second.into();
            }
            let y = network.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, TOKENS, heads, width]);
            let together = [BATCH, TOKENS, HEADS * WIDTH];
            network.x = network.call("torch.Tensor.reshape", json!([y, together]), &together);
        }
        let last = network.x.clone();
        let text = network.imported(&last).unwrap();
        assert!(text.contains("heads: 2, scale: 0.5, key") && text.contains(said), "{text}");
    }
}

#[test]
fn masks_are_said_by_their_form() {
    let mask = |seen: &dyn Fn(usize, usize) -> bool| {
        let mut network = Network::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| network.heads(name, HEADS));
        let hidden = (0..TOKENS * TOKENS).map(|n| if seen(n / TOKENS, n % TOKENS) { 0.0 } else { -1e30 });
        let mask = network.constant(&[1, 1, TOKENS, TOKENS], hidden);
        network.attend(json!([q, k, v, mask]))
    };
    for (text, said) in [
        (mask(&|query, key| key <= query), "{heads: 2, causal: true, key"),
        (mask(&|query, key| key <= query && query - key < 3), "{heads: 2, causal: true, window: 3, key"),
        (mask(&|query, key| query.abs_diff(key) < 2), "{heads: 2, window: 2, key"),
        (mask(&|_, _| true), "{heads: 2, key"),
    ] {
        assert!(text.as_ref().is_ok_and(|text| text.contains(said)), "{said}: {text:?}");
    }
    assert!(mask(&|query, key| key != query).is_err());
}

/// x * rsqrt(mean(x^2) + eps) in this spelling, times a weight, perhaps with a number added.
fn norm(offset: Option<f64>, steps: &dyn Fn(&mut Network, &Value) -> Value) -> String {
    let mut network = Network::new();
    let x = network.x.clone();
    let y = steps(&mut network, &x);
    let mut weight = network.parameter("norm.weight", &[HEADS * WIDTH]);
    if let Some(by) = offset {
        weight = network.call("torch.Tensor.add", json!([weight, by]), &[HEADS * WIDTH]);
    }
    let y = network.call("torch.Tensor.mul", json!([y, weight]), &[BATCH, TOKENS, HEADS * WIDTH]);
    network.imported(&y).unwrap()
}

#[test]
fn normalisations_are_found_step_by_step() {
    let (whole, rows) = ([BATCH, TOKENS, HEADS * WIDTH], [BATCH, TOKENS, 1]);
    let mean = |network: &mut Network, x: &Value| {
        let y = network.call("torch.Tensor.mean", json!([x, -1, true]), &rows);
        network.call("torch.Tensor.add", json!([y, 1e-5]), &rows)
    };
    let by_power = |network: &mut Network, x: &Value| {
        let y = network.call("torch.Tensor.pow", json!([x, 2]), &whole);
        let y = mean(network, &y);
        let y = network.call("torch.rsqrt", json!([y]), &rows);
        network.call("torch.Tensor.mul", json!([x, y]), &whole)
    };
    let by_root = |network: &mut Network, x: &Value| {
        let y = network.call("torch.Tensor.mul", json!([x, x]), &whole);
        let y = mean(network, &y);
        let y = network.call("torch.sqrt", json!([y]), &rows);
        network.call("torch.Tensor.div", json!([x, y]), &whole)
    };
    for text in [norm(None, &by_power), norm(None, &by_root)] {
        assert!(text.contains("- rms_norm: {name: norm, eps: 1e-5}"), "{text}");
    }
    assert!(norm(Some(1.0), &by_power).contains("- rms_norm: {name: norm, eps: 1e-5, offset: 1}"));
    let by_variance = |network: &mut Network, x: &Value| {
        let m = network.call("torch.Tensor.mean", json!([x, -1, true]), &rows);
        let d = network.call("torch.Tensor.sub", json!([x, m]), &whole);
        let y = network.call("torch.Tensor.pow", json!([d, 2]), &whole);
        let y = mean(network, &y);
        let y = network.call("torch.sqrt", json!([y]), &rows);
        network.call("torch.Tensor.div", json!([d, y]), &whole)
    };
    let text = norm(None, &by_variance);
    assert!(text.contains("- layer_norm: {name: norm, bias: false}"), "{text}");
}

#[test]
fn numbers_of_rows_are_tensors_too() {
    let (rows, narrow) = ([BATCH, TOKENS, 1], [BATCH, TOKENS]);
    let mut network = Network::new();
    let x = network.x.clone();
    let y = network.call("torch.Tensor.mean", json!([x, -1, true]), &rows);
    let y = network.call("torch.Tensor.squeeze", json!([y, -1]), &narrow);
    let text = network.imported(&y).unwrap();
    assert!(text.contains("- map: \"row_mean(x)\"\n    - slice: {axis: 1, size: 1}"), "{text}");
    // Along another axis, and without one.
    let mut network = Network::new();
    let x = network.x.clone();
    let y = network.call("torch.Tensor.sum", json!([x, 1]), &[BATCH, HEADS * WIDTH]);
    let text = network.imported(&y).unwrap();
    assert!(text.contains("- map: \"row_sum(x)\""), "{text}");
}

#[test]
fn long_formulas_are_refused_and_long_chains_end() {
    let rows = [BATCH, TOKENS, 1];
    let mut network = Network::new();
    let x = network.x.clone();
    // Each sum doubles the formula.
    let mut y = network.call("torch.Tensor.mean", json!([x, -1, true]), &rows);
    for _ in 0..40 {
        y = network.call("torch.Tensor.add", json!([y, y]), &rows);
    }
    assert!(matches!(network.imported(&y), Err(ImportError::Refused(refusal)) if refusal.what.contains("too long")));
    let mut network = Network::new();
    let mut y = network.x.clone();
    for _ in 0..5_000 {
        y = network.call("torch.Tensor.add", json!([y, 1.0]), &[BATCH, TOKENS, HEADS * WIDTH]);
    }
    let y = network.call("torch.Tensor.mean", json!([y, -1, true]), &rows);
    let y = network.call("torch.Tensor.squeeze", json!([y, -1]), &[BATCH, TOKENS]);
    assert!(network.imported(&y).is_ok());
}

/// Attention of heads that are one axis with samples, with steps between the products.
fn folded(steps: &dyn Fn(&mut Network, [&Value; 2]) -> Value) -> Result<String, ImportError> {
    let mut network = Network::new();
    let folded = [BATCH * HEADS, TOKENS, WIDTH];
    let [q, k, v] = ["q", "k", "v"].map(|name| {
        let x = network.heads(name, HEADS);
        network.call("torch.Tensor.reshape", json!([x, folded]), &folded)
    });
    let k = network.call("torch.Tensor.transpose", json!([k, 1, 2]), &[BATCH * HEADS, WIDTH, TOKENS]);
    let scores = steps(&mut network, [&q, &k]);
    let square = [BATCH * HEADS, TOKENS, TOKENS];
    let weights = network.call("torch.Tensor.softmax", json!([scores, -1]), &square);
    let y = network.call("torch.bmm", json!([weights, v]), &folded);
    let apart = [BATCH, HEADS, TOKENS, WIDTH];
    let y = network.call("torch.Tensor.view", json!([y, apart]), &apart);
    let y = network.call("torch.Tensor.transpose", json!([y, 1, 2]), &[BATCH, TOKENS, HEADS, WIDTH]);
    let together = [BATCH, TOKENS, HEADS * WIDTH];
    let y = network.call("torch.Tensor.reshape", json!([y, together]), &together);
    network.imported(&y)
}

/// 1 for keys that are not after the query.
fn seen() -> impl Iterator<Item = f64> {
    (0..TOKENS * TOKENS).map(|n| f64::from(u8::from(n % TOKENS <= n / TOKENS)))
}

#[test]
fn scores_may_fall_with_the_distance_of_a_key() {
    let square = [BATCH * HEADS, TOKENS, TOKENS];
    let slope = |head: usize| 2f64.powi(-4 * (head as i32 + 1));
    // BLOOM: scores rise with the number of a key, which softmax cannot tell apart.
    let by_key = |factor: f64, is_causal: bool| {
        folded(&|network, [q, k]| {
            let bias = (0..BATCH * HEADS * TOKENS).map(|n| factor * slope(n / TOKENS % HEADS) * (n % TOKENS) as f64);
            let bias = network.constant(&[BATCH * HEADS, 1, TOKENS], bias);
            let scores = network.call("torch.Tensor.baddbmm", json!([bias, q, k]), &square);
            let hidden = seen().map(|seen| if is_causal { (1.0 - seen) * -1e30 } else { 0.0 });
            let mask = network.constant(&[TOKENS, TOKENS], hidden);
            network.call("torch.Tensor.add", json!([scores, mask]), &square)
        })
    };
    let said = "- dot_product_attention: {heads: 2, causal: true, alibi: 8, scale: 1, key: key, value: value}";
    let text = by_key(1.0, true).unwrap();
    assert!(text.contains(said), "{text}");
    let refused = |result| match result {
        Err(ImportError::Refused(refusal)) => refusal.what,
        other => panic!("{other:?}"),
    };
    assert!(refused(by_key(1.0, false)).contains("later keys are not hidden"));
    assert!(refused(by_key(1.1, true)).contains("it adds a constant to scores"));
    // By the distance itself, and with the mask in one constant.
    let by_distance = |hides: bool| {
        folded(&|network, [q, k]| {
            let scores = network.call("torch.bmm", json!([q, k]), &square);
            let apart = [BATCH, HEADS, TOKENS, TOKENS];
            let scores = network.call("torch.Tensor.view", json!([scores, apart]), &apart);
            let bias = (0..HEADS * TOKENS * TOKENS).map(|n| {
                let (query, key) = (n / TOKENS % TOKENS, n % TOKENS);
                if hides && key > query { -1e30 } else { -slope(n / TOKENS / TOKENS) * query.abs_diff(key) as f64 }
            });
            let bias = network.constant(&[1, HEADS, TOKENS, TOKENS], bias);
            let scores = network.call("torch.Tensor.add", json!([bias, scores]), &apart);
            network.call("torch.Tensor.view", json!([scores, square]), &square)
        })
        .unwrap()
    };
    assert!(by_distance(true).contains(said));
    assert!(by_distance(false).contains("{heads: 2, alibi: 8, scale: 1, key: key, value: value}"));
}

/// w * b - 1e4 * (1 - b), as OpenAI's GPT hides later tokens.
#[test]
fn scores_may_be_dropped_before_they_are_hidden() {
    let hidden = |by: f64| {
        folded(&|network, [q, k]| {
            let square = [BATCH * HEADS, TOKENS, TOKENS];
            let scores = network.call("torch.bmm", json!([q, k]), &square);
            let kept = network.constant(&[TOKENS, TOKENS], seen());
            let scores = network.call("torch.Tensor.mul", json!([scores, kept]), &square);
            let mask = network.constant(&[TOKENS, TOKENS], seen().map(|seen| (1.0 - seen) * by));
            network.call("torch.Tensor.add", json!([scores, mask]), &square)
        })
    };
    let text = hidden(-1e4).unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, causal: true, scale: 1, key: key, value: value}"));
    assert!(hidden(-9.0).is_err());
}

/// Queries and keys of one dense layer, turned before heads come before tokens (GPT-J, CodeGen).
#[test]
fn heads_may_be_turned_before_they_move() {
    let mut network = Network::new();
    let (all, apart) = (HEADS * WIDTH, [BATCH, TOKENS, HEADS, WIDTH]);
    let weight = network.parameter("qkv.weight", &[3 * all, all]);
    let x = network.x.clone();
    let packed = network.call("torch.nn.functional.linear", json!([x, weight]), &[BATCH, TOKENS, 3 * all]);
    let angles = angles(&Rotary::default(), WIDTH / 2);
    let heads = [0, 1, 2].map(|part| {
        let slice = json!([packed, [{"ellipsis": null}, {"slice": [part * all, (part + 1) * all, null]}]]);
        let x = network.call("torch.Tensor.__getitem__", slice, &[BATCH, TOKENS, all]);
        let mut x = network.call("torch.Tensor.reshape", json!([x, apart]), &apart);
        if part < 2 {
            let table =
                |of: fn(f64) -> f64| angles.iter().flat_map(move |row| row.iter().chain(row).map(move |a| of(*a)));
            let cos = network.constant(&[TOKENS, 1, WIDTH], table(f64::cos));
            let sin = network.constant(&[TOKENS, 1, WIDTH], table(f64::sin));
            let half = [BATCH, TOKENS, HEADS, WIDTH / 2];
            let [first, second] = [[0, WIDTH / 2], [WIDTH / 2, WIDTH]].map(|[from, to]| {
                let slice = json!([x, [{"ellipsis": null}, {"slice": [from, to, null]}]]);
                network.call("torch.Tensor.__getitem__", slice, &half)
            });
            let own = network.call("torch.Tensor.mul", json!([x, cos]), &apart);
            let minus = network.call("torch.Tensor.neg", json!([second]), &half);
            let partners = network.call("torch.cat", json!([[minus, first], -1]), &apart);
            let other = network.call("torch.Tensor.mul", json!([partners, sin]), &apart);
            x = network.call("torch.Tensor.add", json!([own, other]), &apart);
        }
        network.call("torch.Tensor.transpose", json!([x, 1, 2]), &[BATCH, HEADS, TOKENS, WIDTH])
    });
    let text = network.attend(json!(heads)).unwrap();
    assert!(text.contains("- dot_product_attention: {heads: 2, rotary: {}"), "{text}");
}

/// Rows of a table for each query and key, as T5 adds them to scores.
fn with_distances(rows: &[u32]) -> Result<String, ImportError> {
    let mut network = Network::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| network.heads(name, HEADS));
    let table = network.parameter("places.weight", &[8, HEADS]);
    let rows = network.constant(&[TOKENS, TOKENS], rows.iter().map(|row| f64::from(*row)));
    let bias = network.call("torch.nn.functional.embedding", json!([rows, table]), &[TOKENS, TOKENS, HEADS]);
    let bias = network.call("torch.Tensor.permute", json!([bias, [2, 0, 1]]), &[HEADS, TOKENS, TOKENS]);
    let bias = network.call("torch.Tensor.unsqueeze", json!([bias, 0]), &[1, HEADS, TOKENS, TOKENS]);
    network.attend(json!([q, k, v, bias]))
}

#[test]
fn rows_of_distances_are_a_bias() {
    let (heads, buckets, most, init) = (Size(HEADS), Size(8), Size(128), Init::Constant(0.0));
    for (ahead, said) in [(true, ""), (false, ", ahead: false")] {
        let (tap, init) = (String::new(), init.clone());
        let mut rows = DistanceBias { heads, buckets, most, ahead, tap, init }.rows(TOKENS);
        let text = with_distances(&rows).unwrap();
        let said = format!("- distance_bias: {{name: places, heads: 2, buckets: 8{said}, tap: bias}}");
        assert!(text.contains(&said), "{said} {text}");
        rows[TOKENS] = 7;
        assert!(with_distances(&rows).is_err());
    }
}

/// Columns of a table of categories: layers compute with numbers alone.
#[test]
fn parts_of_indices_are_refused() {
    let mut network = Network::new();
    network.body.clear();
    let column = network.call(
        "torch.Tensor.__getitem__",
        json!([{"value": 0}, [{"slice": [null, null, null]}, {"slice": [0, 2, null]}]]),
        &[BATCH, 2],
    );
    network.body[0]["outputs"][""]["dtype"] = "int64".into();
    let y =
        network.call("torch.nn.functional.embedding", json!([column, {"parameter": "words.weight"}]), &[BATCH, 2, 16]);
    match network.imported(&y) {
        Err(ImportError::Refused(refusal)) => {
            assert!(refusal.what.contains("parts of an input of indices"), "{refusal}")
        }
        other => panic!("{other:?}"),
    }
}
