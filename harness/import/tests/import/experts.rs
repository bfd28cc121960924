//! Mixtures of experts, in the ways in which they are written.

use serde_json::{Value, json};
use zoo_import::{ImportError, Trace, import};

const BATCH: usize = 61;
const TOKENS: usize = 6;
const WIDTH: usize = 8;
const EXPERTS: usize = 4;
const TOP: usize = 2;
const HIDDEN: usize = 3;
const ROWS: usize = BATCH * TOKENS;
const CHOICES: usize = ROWS * TOP;

/// A trace under construction: tokens through a table, then a mixture of experts `moe`.
struct Network {
    body: Vec<Value>,
    made: usize,
}

impl Network {
    fn new() -> Self {
        Self { body: Vec::new(), made: 0 }
    }

    /// A call with these results, each with its shape and type.
    fn calls(&mut self, function: &str, args: Value, results: &[(&[usize], &str)]) -> Vec<Value> {
        self.called(function, args, json!({}), results)
    }

    fn called(&mut self, function: &str, args: Value, kwargs: Value, results: &[(&[usize], &str)]) -> Vec<Value> {
        let mut outputs = serde_json::Map::new();
        let mut values = Vec::new();
        for (n, (shape, dtype)) in results.iter().enumerate() {
            self.made += 1;
            let key = if results.len() == 1 { String::new() } else { n.to_string() };
            outputs.insert(key, json!({"value": self.made, "shape": shape, "dtype": dtype}));
            values.push(json!({"value": self.made}));
        }
        self.body.push(json!({
            "function": function, "at": "nets.py:9", "args": args, "kwargs": kwargs, "outputs": outputs,
        }));
        values
    }

    fn call(&mut self, function: &str, args: Value, shape: &[usize]) -> Value {
        self.calls(function, args, &[(shape, "float32")]).remove(0)
    }

    fn calls_with(&mut self, function: &str, args: Value, kwargs: Value, shape: &[usize]) -> Value {
        self.called(function, args, kwargs, &[(shape, "float32")]).remove(0)
    }

    fn whole(&mut self, function: &str, args: Value, shape: &[usize]) -> Value {
        self.calls(function, args, &[(shape, "int64")]).remove(0)
    }

    fn imported(self, y: &Value) -> Result<String, ImportError> {
        let parameters = json!({
            "words.weight": {"shape": [9, WIDTH]},
            "gate.weight": {"shape": [EXPERTS, WIDTH]},
            "moe.gate_up_proj": {"shape": [EXPERTS, 2 * HIDDEN, WIDTH]},
            "moe.down_proj": {"shape": [EXPERTS, WIDTH, HIDDEN]},
        });
        let trace = json!({
            "format": 1, "model": "nets:net", "classes": WIDTH, "batch": BATCH,
            "inputs": {"tokens": {"value": 0, "shape": [BATCH, TOKENS], "dtype": "int64"}},
            "outputs": {"": y}, "parameters": parameters, "constants": [],
            "modules": {"": {"class": "nets.Net"}},
            "root": {"module": "", "call": 0, "at": "nets.py:2", "args": [{"value": 0}], "kwargs": {},
                     "body": self.body, "outputs": {"": y}},
        });
        import(&Trace::read(&serde_json::to_vec(&trace).unwrap()).unwrap(), "net").map(|imported| imported.text)
    }
}

/// What a network does in its own way.
#[derive(Clone, Copy)]
struct Form {
    /// Scores become weights before the choice, or the chosen ones after it.
    softmax_first: bool,
    normalize: bool,
    /// What the order of choices is divided by to have their tokens.
    divisor: usize,
    activation: &'static str,
}

const USUAL: Form = Form { softmax_first: true, normalize: true, divisor: TOP, activation: "silu" };

fn mixture(form: Form) -> Result<String, ImportError> {
    let mut net = Network::new();
    let x = net.call("torch.nn.functional.embedding", json!([{"value": 0}, {"parameter": "words.weight"}]), &TOKENS_OF);
    let rows = net.call("torch.Tensor.view", json!([x, -1, WIDTH]), &[ROWS, WIDTH]);
    let gate = json!([rows, {"parameter": "gate.weight"}]);
    let mut weights = net.call("torch.nn.functional.linear", gate, &[ROWS, EXPERTS]);
    if form.softmax_first {
        weights = net.call("torch.Tensor.softmax", json!([weights, -1]), &[ROWS, EXPERTS]);
    }
    let (chosen, all) = ([ROWS, TOP], [CHOICES]);
    let results: [(&[usize], &str); 2] = [(&chosen, "float32"), (&chosen, "int64")];
    let [mut weights, numbers] = net.calls("torch.topk", json!([weights, TOP]), &results).try_into().unwrap();
    if !form.softmax_first {
        weights = net.call("torch.Tensor.softmax", json!([weights, -1]), &chosen);
    } else if form.normalize {
        let sums = net.calls_with("torch.Tensor.sum", json!([weights, -1]), json!({"keepdim": true}), &[ROWS, 1]);
        weights = net.call("torch.Tensor.div", json!([weights, sums]), &chosen);
    }
    let numbers = net.whole("torch.Tensor.flatten", json!([numbers]), &all);
    let results: [(&[usize], &str); 2] = [(&all, "int64"), (&all, "int64")];
    let [sorted, order] = net.calls("torch.sort", json!([numbers]), &results).try_into().unwrap();
    let weights = net.call("torch.Tensor.reshape", json!([weights, -1]), &all);
    let weights = net.call("torch.Tensor.__getitem__", json!([weights, order]), &all);
    let weights = net.call("torch.Tensor.unsqueeze", json!([weights, -1]), &[CHOICES, 1]);
    let counts = net.whole("torch.bincount", json!([sorted, null, EXPERTS]), &[EXPERTS]);
    let ends = net.whole("torch.cumsum", json!([counts, 0]), &[EXPERTS]);
    let tokens = net.whole("torch.Tensor.__floordiv__", json!([order, form.divisor]), &all);
    let given = net.call("torch.Tensor.__getitem__", json!([rows, tokens]), &[CHOICES, WIDTH]);
    let grouped = |net: &mut Network, x: &Value, name: &str, [k, n]: [usize; 2]| {
        let matrices = net.call("torch.Tensor.mT", json!([{"parameter": name}]), &[EXPERTS, k, n]);
        net.calls_with("_grouped_mm", json!([x, matrices]), json!({"offs": ends}), &[CHOICES, n])
    };
    let both = grouped(&mut net, &given, "moe.gate_up_proj", [WIDTH, 2 * HIDDEN]);
    let halves: [(&[usize], &str); 2] = [(&[CHOICES, HIDDEN], "float32"); 2];
    let [gate, up] = net.calls("torch.Tensor.chunk", json!([both, 2, -1]), &halves).try_into().unwrap();
    let active = net.call(&format!("torch.nn.functional.{}", form.activation), json!([gate]), &[CHOICES, HIDDEN]);
    let hidden = net.call("torch.Tensor.mul", json!([active, up]), &[CHOICES, HIDDEN]);
    let results = grouped(&mut net, &hidden, "moe.down_proj", [HIDDEN, WIDTH]);
    let weighted = net.call("torch.Tensor.mul", json!([results, weights]), &[CHOICES, WIDTH]);
    let back = net.whole("torch.argsort", json!([order]), &all);
    let y = net.call("torch.Tensor.__getitem__", json!([weighted, back]), &[CHOICES, WIDTH]);
    let y = net.call("torch.Tensor.view", json!([y, ROWS, TOP, WIDTH]), &[ROWS, TOP, WIDTH]);
    let y = net.call("torch.Tensor.sum", json!([y, 1]), &[ROWS, WIDTH]);
    let y = net.call("torch.Tensor.view", json!([y, BATCH, TOKENS, WIDTH]), &TOKENS_OF);
    net.imported(&y)
}

const TOKENS_OF: [usize; 3] = [BATCH, TOKENS, WIDTH];

#[test]
fn the_steps_are_one_layer() {
    let recipe = mixture(USUAL).unwrap();
    assert!(recipe.contains("- experts: {name: moe, scores: scores, top: 2, hidden: 3}"), "{recipe}");
    let recipe = mixture(Form { normalize: false, activation: "gelu", ..USUAL }).unwrap();
    assert!(recipe.contains("top: 2, hidden: 3, normalize: false, activation: gelu}"), "{recipe}");
}

#[test]
fn the_softmax_of_chosen_scores_is_normalised() {
    assert_eq!(mixture(Form { softmax_first: false, ..USUAL }).unwrap(), mixture(USUAL).unwrap());
}

#[test]
fn other_steps_are_refused() {
    let error = |form: Form| mixture(form).unwrap_err().to_string();
    let found = error(Form { divisor: TOP + 1, ..USUAL });
    assert!(found.contains("`__floordiv__` of the choices of experts, in a form that is not known"), "{found}");
    let found = error(Form { activation: "tanh", ..USUAL });
    assert!(found.contains("`tanh` of the choices of experts"), "{found}");
}
