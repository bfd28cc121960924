//! Programs in PyTorch of what recipes seldom have; random recipes found what each of these was once.

use zoo_recipe::emit::{self, Dialect};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn recipe(model: &str, rest: &str) -> Recipe {
    let text = format!(
        "name: r\nmodel: {{{model}}}\ndata: {{source: {{characters: {{}}}}}}\noptimizer: sgd\nschedule: {{constant: \
         {{base_lr: 0.1}}}}\n{rest}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let loaded = Library::new([folder.path()]).load("r", &LoadOptions::default());
    loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe
}

const USUAL: &str = "loss: {softmax_cross_entropy: {}}\ntrain: {batch: 32, epochs: 1}";

/// `model.py` of a body on maps of 3 x 8 x 8, which ends with five classes.
fn model(blocks: &str, body: &str) -> String {
    let end = "global_avg_pool, flatten, linear: {name: fc, out: 5}";
    let model = format!("inputs: {{image: [3, 8, 8]}}, classes: 5, blocks: {{{blocks}}}, body: [{body}, {end}]");
    written(&recipe(&model, USUAL))
}

fn written(recipe: &Recipe) -> String {
    emit::model(Dialect::PyTorch, recipe, &recipe.resolve().unwrap()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn expect(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// Blocks whose names differ in a number are one class, unless one of them is inside another.
#[test]
fn a_block_may_have_one_of_its_stem_inside() {
    let blocks = "block1: {body: [conv: {name: c, out: 4, kernel: 1}]}, \
                  block2: {body: [block: {name: b, use: block1}, sigmoid]}, \
                  model: {body: [block: {name: m, use: block2}]}";
    let text = model(blocks, "block: {name: a, use: block2}, block: {name: d, use: model}");
    expect(
        &text,
        &["class Block1(", "class Block2(", "class Model(", "self.b = Block1(in_channels)", "self.m = Block2("],
    );
    assert!(!text.contains("None,") && !text.contains("(None"), "{text}");
}

/// A module is called even if nothing needs its result: it has statistics, and later calls have their numbers.
#[test]
fn calls_without_a_use_stay() {
    let body = "tap: x, bn: {name: b}, from: x, again: b, sequential: {name: s, body: [bn: {name: own}, tap: t, from: t]}, \
                tap: y, from: x, sequential: {name: dead, body: [tap: here, bn: {name: own}, tap: end, from: here]}, from: y";
    let text = model("", body);
    expect(&text, &["_ = self.b(x)", "y = self.s(self.b(x))", "_ = self.dead(x)"]);
    assert!(!text.contains("tuple[]") && !text.contains("return \n"), "{text}");
}

/// The table is that of a module which nothing calls.
#[test]
fn embeddings_share_a_table() {
    let model = "inputs: {tokens: {indices: [6]}}, classes: 5, body: [embedding: {name: m, rows: 9, size: 4, table: \
                 shared, padding: 1}, flatten, linear: {name: fc, out: 5}]";
    let text = written(&recipe(model, USUAL));
    let lines = ["self.shared = nn.Embedding(9, 4)", "self.m = nn.Embedding(9, 4, padding_idx=1)"];
    expect(&text, &lines);
    expect(&text, &["self.m.weight = self.shared.weight", "self.m(x)"]);
}

/// It reads a column as others do, and may be in a list of layers.
#[test]
fn a_shared_table_has_columns_and_numbered_modules() {
    let embedding = "embedding: {rows: 9, size: 4, table: shared, column: 2}";
    let model = format!(
        "inputs: {{tokens: {{indices: [6]}}}}, classes: 5, body: [sequential: {{name: s, body: [{embedding}]}}, linear: \
         {{name: fc, out: 5}}]"
    );
    let text = written(&recipe(&model, USUAL));
    expect(&text, &["x.select(1, 2)", "self.s.get_submodule(\"0\").weight = self.shared.weight"]);
}

#[test]
fn parameters_without_a_layer_are_there() {
    let text = model("", "unused: {parameters: {old: [5], head.weight: [2, 3]}}, conv: {name: c, out: 4, kernel: 1}");
    expect(&text, &["self.old = nn.Parameter(torch.zeros(5))", "self.head.weight = nn.Parameter(torch.zeros(2, 3))"]);
}

/// A parameter in a list of layers has a number as its name, and is no module.
#[test]
fn parameters_may_be_numbered() {
    let parameter = "parameter: {shape: [1, 3, 8, 8], to: [3, 8, 8]}";
    let text = model("", &format!("sequential: {{name: s, body: [{parameter}, relu]}}"));
    expect(&text, &["self.register_parameter(\"0\", nn.Parameter(", "getattr(self, \"0\")"]);
}

#[test]
fn a_bias_by_distance_is_an_embedding() {
    let body = "tokens, distance_bias: {name: d, heads: 1, buckets: 8, most: 16, tap: bias}, linear: {name: qkv, out: \
                6}, dot_product_attention: {heads: 1, bias: bias}, permute: {order: [1, 0]}, reshape: {to: [2, 8, 8]}";
    let text = model("", body);
    let lines = ["self.d = nn.Embedding(8, 1)", "self.d(distance_rows(x, 8, 16, True)).permute(2, 0, 1)"];
    expect(&text, &lines);
}

/// Only a call of the module makes a normed weight.
#[test]
fn a_normed_weight_may_have_a_bias_of_parts() {
    let linear = "linear: {name: m, out: 4, weight_norm: hooked, bias_of: [true, false]}";
    let text = model("", &format!("tokens, {linear}, permute: {{order: [1, 0]}}, reshape: {{to: [4, 8, 8]}}"));
    expect(&text, &["class PartlyBiased(", "self.m = nn.utils.weight_norm(PartlyBiased(3, 4, [True, False]))"]);
    expect(&text, &["if hasattr(module, \"weight_g\"):"]);
}

/// Programs are proven in f64.
#[test]
fn constants_have_the_type_of_the_value_beside() {
    let constants = "constant: {shape: [3, 1, 1], values: [0.1, 0.2, 0.3], to: [3, 8, 8]}, tap: a, from: x, \
                     constant: {shape: [1, 1, 8], formula: sin(k), to: [3, 8, 8]}, tap: b";
    let text = model("", &format!("tap: x, {constants}, from: x, add: a, add: b"));
    let lines = ["def type_beside(x: Tensor)", "torch.tensor([0.1, 0.2, 0.3], dtype=type_beside(x), device=x.device)"];
    expect(&text, &lines);
    expect(&text, &["torch.arange(8, dtype=type_beside(x), device=x.device)"]);
}

/// Python takes no comma behind a generator.
#[test]
fn generators_have_no_comma() {
    let model = "inputs: {image: [3, 8, 8]}, classes: 5, body: [conv: {name: c, out: 4, kernel: 1}, bn: {name: b}, \
                 global_avg_pool, flatten, linear: {name: fc, out: 5}]";
    let rest = "loss: {softmax_cross_entropy: {}, l2: {weight: 0.5, over: weights}}\n\
                train: {batch: 32, epochs: 1, parts: [{modules: [c], trained: false}]}";
    let recipe = recipe(model, rest);
    let rules = emit::rules_of_step(&recipe, &recipe.resolve().unwrap()).unwrap();
    let start = rules.find("    terms = {").unwrap();
    let terms = "    terms = {
        \"cross_entropy\": functional.cross_entropy(outputs, batch[\"label\"]),
        \"l2\": 0.5 * sum(
            parameter.square().sum() / 2
            for parameter in network.parameters()
            if parameter.requires_grad and parameter.ndim > 1
        ),
    }
";
    assert_eq!(&rules[start..rules.find("    return {\"loss\"").unwrap()], terms);
}

/// A name that would end the text in which it stands.
#[test]
fn names_that_end_a_text_are_refused_with_their_line() {
    let body = "inputs: {image: [3, 8, 8]}, classes: 5, outputs: {OUT: a}, body: [global_avg_pool, flatten, linear: \
                {name: fc, out: 5}, tap: a]";
    let loss = "loss: {l2: {weight: 0.1}, cross_entropies: {NAME: {prediction: OUT, label: INPUT}}}\ntrain: {batch: 32, epochs: 1}";
    let refused = |[out, name, input]: [&str; 3]| {
        let [body, loss] =
            [body, loss].map(|text| text.replace("OUT", out).replace("NAME", name).replace("INPUT", input));
        let recipe = recipe(&body, &loss);
        let resolved = recipe.resolve().unwrap();
        let model = emit::model(Dialect::PyTorch, &recipe, &resolved).map(|_| ());
        model.and_then(|()| emit::rules_of_step(&recipe, &resolved).map(|_| ())).map_err(|errors| errors.to_string())
    };
    assert_eq!(refused(["a", "b", "c"]), Ok(()));
    for (names, line) in [(["'a\"b'", "b", "c"], 2), (["a", "'b\\'", "c"], 6), (["a", "b", "\"c\\n\""], 6)] {
        let error = refused(names).unwrap_err();
        assert!(error.contains(&format!("r.yaml:{line}:")) && error.contains("cannot stand in a program"), "{error}");
    }
}

/// zoo cannot draw such values either.
#[test]
fn initialisers_that_need_two_axes_are_refused_for_one() {
    let parameter = "parameter: {name: p, shape: [192], to: [3, 8, 8], init: {kaiming_uniform: {}}}";
    let body = format!(
        "inputs: {{image: [3, 8, 8]}}, classes: 5, body: [{parameter}, global_avg_pool, flatten, linear: {{name: fc, out: 5}}]"
    );
    let recipe = recipe(&body, USUAL);
    let error = emit::model(Dialect::PyTorch, &recipe, &recipe.resolve().unwrap()).unwrap_err().to_string();
    assert!(error.contains("r.yaml:2:") && error.contains("`p` needs a parameter with at least two axes"), "{error}");
}
