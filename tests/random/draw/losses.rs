//! The last layers of a network, and its loss.

use super::{CLASSES, Drawing, settings};
use serde_json::{Map, Value, json};

/// Layers, outputs and loss.
type Ending = (Vec<Value>, Map<String, Value>, Map<String, Value>);

pub(super) fn draw(d: &mut Drawing<'_>, x: &[usize]) -> Ending {
    let mut ending = if d.beside.is_empty() && !d.tape.flag() { single(d, x) } else { several(d, x) };
    for name in std::mem::take(&mut d.beside) {
        ending.1.insert(name.clone(), json!(name));
        let formula = json!({ "formula": format!("{name} * {name}"), "weight": 0.1 });
        insert(&mut ending.2, "formulas", &format!("of_{name}"), formula);
    }
    if let Some((first, others)) = d.experts.clone().split_first() {
        let mut set = Map::new();
        weighted(d, &mut set);
        let differ = others.iter().any(|count| count != first);
        if differ || d.tape.flag() {
            set.insert("by_layer".to_owned(), json!(differ || d.tape.flag()));
        }
        if d.tape.flag() {
            set.insert("name".to_owned(), json!("even"));
        }
        ending.2.insert("expert_balance".to_owned(), json!(set));
        let mut set = settings([("name", json!("scores"))]);
        weighted(d, &mut set);
        ending.2.insert("expert_z".to_owned(), json!(set));
    }
    if d.tape.rarely(4) {
        let mut set = settings([("weight", json!(d.tape.number(0.0, 0.01)))]);
        if d.tape.flag() {
            set.insert("over".to_owned(), json!(d.tape.of(&["all", "weights"])));
        }
        ending.2.insert("l2".to_owned(), json!(set));
    }
    ending
}

/// Adds an entry to a map of terms.
fn insert(loss: &mut Map<String, Value>, terms: &str, name: &str, term: Value) {
    let entry = loss.entry(terms).or_insert_with(|| json!({}));
    entry[name] = term;
}

/// Sometimes the factor of a term.
fn weighted(d: &mut Drawing<'_>, set: &mut Map<String, Value>) {
    if d.tape.flag() {
        set.insert("weight".to_owned(), json!(d.tape.number(0.1, 3.0)));
    }
}

/// The settings of a cross entropy.
fn cross_entropy(d: &mut Drawing<'_>, ignores: bool) -> Map<String, Value> {
    let mut set = Map::new();
    if d.tape.flag() {
        set.insert("label_smoothing".to_owned(), json!(d.tape.number(0.0, 0.3)));
        if d.tape.flag() {
            set.insert("smoothing_over".to_owned(), json!(d.tape.of(&["all_classes", "other_classes"])));
        }
    }
    if ignores && d.tape.flag() {
        set.insert("ignore".to_owned(), json!(255));
    }
    weighted(d, &mut set);
    set
}

/// A network with one output, `logits`.
fn single(d: &mut Drawing<'_>, x: &[usize]) -> Ending {
    let classes = json!("$classes");
    let mut layers = Vec::new();
    let linear = |d: &mut Drawing<'_>| d.word("linear", settings([("out", json!("$classes"))]));
    let mut loss = Map::new();
    let mut rows = 0;
    match (x.len(), d.tape.below(3)) {
        (3, 1) => {
            layers.push(d.word("conv", settings([("out", classes), ("kernel", json!(1))])));
            rows = 2;
        }
        (2, 1) => {
            layers.push(linear(d));
            rows = 1;
        }
        (3, 2) => {
            layers.extend([json!("global_avg_pool"), json!("flatten")]);
            layers.push(linear(d));
        }
        (1, _) => layers.push(linear(d)),
        _ => {
            layers.push(json!("flatten"));
            layers.push(linear(d));
        }
    }
    if rows < 2 && d.tape.rarely(5) {
        layers.push(json!({ "map": "log_softmax(x)" }));
        let mut set = Map::new();
        weighted(d, &mut set);
        if d.tape.flag() {
            set.insert("name".to_owned(), json!("likelihood"));
        }
        loss.insert("nll".to_owned(), json!(set));
    } else {
        loss.insert("softmax_cross_entropy".to_owned(), json!(cross_entropy(d, rows > 0)));
    }
    if rows == 2 && d.tape.flag() {
        let mut set = settings([("name", json!("overlap"))]);
        if d.tape.flag() {
            set.insert("eps".to_owned(), json!(d.tape.of(&[1e-3, 0.5])));
        }
        weighted(d, &mut set);
        if d.tape.flag() {
            // Both terms read the same labels.
            let ignored = json!(d.tape.of(&[255, 0]));
            set.insert("ignore".to_owned(), ignored.clone());
            loss["softmax_cross_entropy"]["ignore"] = ignored;
        } else if let Some(entropy) = loss["softmax_cross_entropy"].as_object_mut() {
            entropy.remove("ignore");
        }
        loss.insert("softmax_dice".to_owned(), json!(set));
    }
    if d.tape.rarely(3) {
        let term = formula(d, "logits", rows < 2);
        insert(&mut loss, "formulas", "written", term);
    }
    (layers, Map::new(), loss)
}

/// A term over an output.
fn formula(d: &mut Drawing<'_>, output: &str, labelled: bool) -> Value {
    let mut choices = vec![
        format!("{output} * {output}"),
        format!("abs({output} - wanted)"),
        format!("softplus({output}) * wanted"),
        format!("row_log_sum_exp({output})"),
    ];
    if labelled && output == "logits" {
        choices.push(format!("-row_sum(select(row_index == label, log_softmax({output}), 0))"));
    }
    let mut set = settings([("formula", json!(d.tape.of(&choices)))]);
    if d.tape.flag() {
        set.insert("reduction".to_owned(), json!(d.tape.of(&["mean", "batch_mean", "sum"])));
    }
    set.insert("weight".to_owned(), json!(d.tape.number(0.01, 0.3)));
    if d.tape.rarely(4) {
        set.remove("weight");
    }
    json!(set)
}

/// Draws the layers from the trunk to a prediction, and adds its loss term.
type Head = fn(&mut Heads<'_, '_>);

/// Terms over named outputs.
const HEADS: [Head; 15] = [
    further_entropy,
    written,
    dice,
    masked_l1,
    balanced_bce,
    sigmoid_focal,
    smooth_l1,
    giou,
    select_cross_entropy,
    weighted_l1,
    mask_soft_margin,
    main_entropy,
    likelihood,
    of_numbers,
    triplet,
];

/// Heads over one trunk.
struct Heads<'h, 't> {
    d: &'h mut Drawing<'t>,
    trunk: String,
    shape: Vec<usize>,
    layers: Vec<Value>,
    outputs: Map<String, Value>,
    loss: Map<String, Value>,
}

fn several(d: &mut Drawing<'_>, x: &[usize]) -> Ending {
    let (tap, trunk) = d.tap(x);
    let mut heads = Heads { d, trunk, shape: x.to_vec(), layers: vec![tap], outputs: Map::new(), loss: Map::new() };
    for _ in 0..heads.d.tape.between(1, 3) {
        let head = heads.d.tape.of(&HEADS);
        head(&mut heads);
    }
    (heads.layers, heads.outputs, heads.loss)
}

impl Heads<'_, '_> {
    fn linear(&mut self, out: usize) {
        let word = self.d.word("linear", settings([("out", json!(out))]));
        self.layers.push(word);
    }

    /// A map of so many channels from the trunk.
    fn map(&mut self, channels: usize) -> [usize; 2] {
        self.layers.push(json!({ "from": self.trunk }));
        match self.shape[..] {
            [_, h, w] => {
                let word = self.d.word("conv", settings([("out", json!(channels)), ("kernel", json!(1))]));
                self.layers.push(word);
                [h, w]
            }
            [t, _] => {
                self.linear(channels);
                self.layers.push(json!({ "permute": { "order": [1, 0] } }));
                self.layers.push(json!({ "reshape": { "to": [channels, t, 1] } }));
                [t, 1]
            }
            _ => {
                self.linear(channels * 6);
                self.layers.push(json!({ "reshape": { "to": [channels, 2, 3] } }));
                [2, 3]
            }
        }
    }

    /// Rows of so many numbers from the trunk.
    fn rows(&mut self, width: usize) {
        self.layers.push(json!({ "from": self.trunk }));
        match self.shape.len() {
            3 => {
                let per_pixel = self.d.tape.between(1, 2);
                let out = json!(width * per_pixel);
                let word = self.d.word("conv", settings([("out", out), ("kernel", json!(1))]));
                self.layers.push(word);
                self.layers.push(json!({ "tokens": { "size": width } }));
            }
            2 => self.linear(width),
            _ => {
                self.linear(width * 4);
                self.layers.push(json!({ "reshape": { "to": [4, width] } }));
            }
        }
    }

    /// A prediction for every sample.
    fn row(&mut self, width: usize) {
        self.layers.push(json!({ "from": self.trunk }));
        if self.shape.len() > 1 {
            self.layers.push(json!("flatten"));
        }
        self.linear(width);
    }

    /// Names the present value as an output.
    fn output(&mut self) -> String {
        let name = self.d.name("out");
        self.layers.push(json!({ "tap": name }));
        self.outputs.insert(name.clone(), json!(name));
        name
    }

    fn term<const N: usize>(&mut self, tag: &str, given: [(&str, Value); N]) -> Map<String, Value> {
        let mut set = settings(given);
        // The defaults of two terms are the same.
        if tag == "giou" || self.d.tape.rarely(3) {
            set.insert("name".to_owned(), json!(format!("own_{tag}")));
        }
        weighted(self.d, &mut set);
        set
    }

    fn eps(&mut self, set: &mut Map<String, Value>) {
        if self.d.tape.flag() {
            set.insert("eps".to_owned(), json!(self.d.tape.of(&[1e-3, 0.1])));
        }
    }

    /// Whether there is such a term already.
    fn has(&self, tag: &str) -> bool {
        self.loss.contains_key(tag)
    }

    fn input(&mut self) -> String {
        self.d.name("in")
    }
}

fn further_entropy(h: &mut Heads<'_, '_>) {
    let width = h.d.tape.between(2, 6);
    h.row(width);
    let (output, label) = (h.output(), h.input());
    let mut set = cross_entropy(h.d, false);
    set.extend([("prediction".to_owned(), json!(output)), ("label".to_owned(), json!(label))]);
    insert(&mut h.loss, "cross_entropies", &format!("of_{output}"), json!(set));
}

/// Logarithms of probabilities of classes.
fn likelihood(h: &mut Heads<'_, '_>) {
    // Labels of another shape have the same name.
    if h.has("nll") || h.has("softmax_cross_entropy") {
        return written(h);
    }
    h.row(CLASSES);
    h.layers.push(json!({ "map": "log_softmax(x)" }));
    let output = h.output();
    h.loss.insert("nll".to_owned(), json!({ "prediction": output }));
}

fn main_entropy(h: &mut Heads<'_, '_>) {
    if h.has("softmax_cross_entropy") || h.has("nll") {
        return further_entropy(h);
    }
    h.map(CLASSES);
    let output = h.output();
    let mut set = cross_entropy(h.d, false);
    set.insert("prediction".to_owned(), json!(output));
    h.loss.insert("softmax_cross_entropy".to_owned(), json!(set));
    if h.d.tape.flag() {
        let mut dice = settings([("prediction", json!(output))]);
        weighted(h.d, &mut dice);
        h.loss.insert("softmax_dice".to_owned(), json!(dice));
    }
}

fn written(h: &mut Heads<'_, '_>) {
    h.rows(5);
    let output = h.output();
    let term = formula(h.d, &output, false);
    // The inputs of a formula have the shape of its output.
    let term = term.to_string().replace("wanted", &h.input());
    let term = serde_json::from_str(&term).unwrap_or_default();
    insert(&mut h.loss, "formulas", &format!("of_{output}"), term);
}

/// Numbers that are compared with others.
fn of_numbers(h: &mut Heads<'_, '_>) {
    let tag = h.d.tape.of(&["mse", "mae", "bce"]);
    let further = h.has(tag) || h.d.tape.flag();
    h.rows(5);
    let mut given = vec![];
    if tag == "bce" && h.d.tape.flag() {
        h.layers.push(json!("sigmoid"));
        given.push(("of", json!("probabilities")));
    } else if tag == "bce" && h.d.tape.flag() {
        given.push(("of", json!("logits")));
    }
    let [output, target] = [h.output(), h.input()];
    let mut set = h.term(tag, [("prediction", json!(output)), ("target", json!(target))]);
    set.extend(given.into_iter().map(|(key, value)| (key.to_owned(), value)));
    if further {
        return insert(&mut h.loss, "comparisons", &format!("of_{output}"), json!({ tag: set }));
    }
    h.loss.insert(tag.to_owned(), json!(set));
}

fn triplet(h: &mut Heads<'_, '_>) {
    if h.has("triplet") {
        return written(h);
    }
    let outputs = ["anchor", "positive", "negative"].map(|role| {
        h.row(4);
        (role, json!(h.output()))
    });
    let mut set = h.term("triplet", outputs);
    if h.d.tape.flag() {
        set.insert("margin".to_owned(), json!(h.d.tape.number(0.0, 2.0)));
    }
    h.loss.insert("triplet".to_owned(), json!(set));
}

/// A map of probabilities, and names of inputs.
fn probabilities(h: &mut Heads<'_, '_>) -> [String; 3] {
    h.map(1);
    h.layers.push(json!("sigmoid"));
    [h.output(), h.input(), h.input()]
}

fn dice(h: &mut Heads<'_, '_>) {
    if h.has("dice") {
        return written(h);
    }
    let [output, target, mask] = probabilities(h);
    let given = [("prediction", json!(output)), ("target", json!(target)), ("mask", json!(mask))];
    let mut set = h.term("dice", given);
    h.eps(&mut set);
    h.loss.insert("dice".to_owned(), json!(set));
}

fn masked_l1(h: &mut Heads<'_, '_>) {
    if h.has("masked_l1") {
        return written(h);
    }
    let [output, target, mask] = probabilities(h);
    let given = [("prediction", json!(output)), ("target", json!(target)), ("mask", json!(mask))];
    let set = h.term("masked_l1", given);
    h.loss.insert("masked_l1".to_owned(), json!(set));
}

fn balanced_bce(h: &mut Heads<'_, '_>) {
    if h.has("balanced_bce") {
        return written(h);
    }
    let [output, target, mask] = probabilities(h);
    let given = [("prediction", json!(output)), ("target", json!(target)), ("mask", json!(mask))];
    let mut set = h.term("balanced_bce", given);
    h.eps(&mut set);
    let tape = &mut h.d.tape;
    if tape.flag() {
        set.insert("negative_ratio".to_owned(), json!(tape.number(0.5, 4.0)));
    }
    if tape.flag() {
        set.insert("mine_over".to_owned(), json!(tape.of(&["batch", "image"])));
    }
    if tape.flag() {
        set.insert("top_k".to_owned(), json!(tape.of(&["dynamic", "static"])));
    }
    h.loss.insert("balanced_bce".to_owned(), json!(set));
}

fn sigmoid_focal(h: &mut Heads<'_, '_>) {
    if h.has("sigmoid_focal") {
        return written(h);
    }
    h.rows(CLASSES);
    let (output, label) = (h.output(), h.input());
    let mut set = h.term("sigmoid_focal", [("prediction", json!(output)), ("label", json!(label))]);
    let tape = &mut h.d.tape;
    if tape.flag() {
        set.insert("alpha".to_owned(), json!(tape.number(0.0, 1.0)));
    }
    if tape.flag() {
        set.insert("gamma".to_owned(), json!(tape.number(0.0, 3.0)));
    }
    h.loss.insert("sigmoid_focal".to_owned(), json!(set));
}

fn smooth_l1(h: &mut Heads<'_, '_>) {
    if h.has("smooth_l1") {
        return written(h);
    }
    let width = h.d.tape.between(1, 5);
    h.rows(width);
    let [output, target, label] = [h.output(), h.input(), h.input()];
    let given = [("prediction", json!(output)), ("target", json!(target)), ("label", json!(label))];
    let mut set = h.term("smooth_l1", given);
    if h.d.tape.flag() {
        set.insert("beta".to_owned(), json!(h.d.tape.number(0.0, 2.0)));
    }
    h.loss.insert("smooth_l1".to_owned(), json!(set));
}

fn giou(h: &mut Heads<'_, '_>) {
    if h.has("giou") {
        return written(h);
    }
    h.rows(4);
    let [output, target, label] = [h.output(), h.input(), h.input()];
    let given = [("prediction", json!(output)), ("target", json!(target)), ("label", json!(label))];
    let mut set = h.term("giou", given);
    // Boxes of any corners: their areas can be negative, and only a large eps keeps denominators away from zero.
    set.insert("eps".to_owned(), json!(h.d.tape.number(20.0, 40.0)));
    h.loss.insert("giou".to_owned(), json!(set));
}

fn select_cross_entropy(h: &mut Heads<'_, '_>) {
    if h.has("select_cross_entropy") {
        return written(h);
    }
    let anchors = h.d.tape.between(1, 3);
    h.map(2 * anchors);
    h.layers.push(json!("pair_log_softmax"));
    let (output, label) = (h.output(), h.input());
    let set = h.term("select_cross_entropy", [("prediction", json!(output)), ("label", json!(label))]);
    h.loss.insert("select_cross_entropy".to_owned(), json!(set));
}

fn weighted_l1(h: &mut Heads<'_, '_>) {
    if h.has("weighted_l1") {
        return written(h);
    }
    let anchors = h.d.tape.between(1, 3);
    h.map(4 * anchors);
    let [output, target, weights] = [h.output(), h.input(), h.input()];
    let given = [("prediction", json!(output)), ("target", json!(target)), ("weights", json!(weights))];
    let set = h.term("weighted_l1", given);
    h.loss.insert("weighted_l1".to_owned(), json!(set));
}

fn mask_soft_margin(h: &mut Heads<'_, '_>) {
    if h.has("mask_soft_margin") {
        return written(h);
    }
    let side = h.d.tape.between(2, 3);
    h.map(side * side);
    let [output, target, select] = [h.output(), h.input(), h.input()];
    let size = side + h.d.tape.below(4);
    let stride = h.d.tape.between(1, 3);
    let mut given = settings([("size", json!(size)), ("stride", json!(stride))]);
    if h.d.tape.flag() {
        given.insert("pad".to_owned(), json!(h.d.tape.below(size.div_ceil(2))));
    }
    if h.d.tape.flag() {
        given.insert("align_corners".to_owned(), json!(h.d.tape.flag()));
    }
    let names = [("prediction", json!(output)), ("target", json!(target)), ("select", json!(select))];
    let mut set = h.term("mask_soft_margin", names);
    set.extend(given);
    h.loss.insert("mask_soft_margin".to_owned(), json!(set));
}
