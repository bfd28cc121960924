//! Draws recipes that are valid and small, with every word of the language.

mod containers;
mod losses;
mod maps;
mod sequences;
mod training;
mod values;

use crate::tape::Tape;
use serde_json::{Map, Value, json};

/// Most elements of a value per sample.
const MOST: usize = 3000;

/// Deepest nesting of layers.
const DEEPEST: usize = 3;

/// A value that layers can refer to, with its shape without the batch.
#[derive(Clone)]
struct Tapped {
    name: String,
    shape: Vec<usize>,
}

/// A module that can be called again: what goes in, what comes out.
#[derive(Clone)]
struct Callable {
    name: String,
    shapes: [Vec<usize>; 2],
}

/// Layers that were drawn, and the shape of their result without the batch.
type Layers = (Vec<Value>, Vec<usize>);

/// Draws a layer, with what it needs before it; nothing if it does not fit a value of this shape.
type Draw = fn(&mut Drawing<'_>, &[usize]) -> Option<Layers>;

/// A recipe that is being drawn.
struct Drawing<'t> {
    tape: Tape<'t>,
    /// Names given so far.
    named: usize,
    taps: Vec<Tapped>,
    /// Names, rows and widths of embeddings.
    embeddings: Vec<(String, [usize; 2])>,
    callable: Vec<Callable>,
    /// Modules with parameters that `train.parts` can name.
    modules: Vec<String>,
    blocks: Map<String, Value>,
    /// Arguments of the block that is being drawn.
    arguments: Vec<(String, usize)>,
    /// Whether layers without a name are named by their index.
    indexed: bool,
    depth: usize,
    /// Outputs beside the main one: taps whose batch differs.
    beside: Vec<String>,
    /// Number of tokens of the input that masks them, if there is one.
    masked: Option<usize>,
    /// Number of experts of each mixture of them.
    experts: Vec<usize>,
    batch: usize,
}

/// Makes an empty map of settings.
fn settings<const N: usize>(given: [(&str, Value); N]) -> Map<String, Value> {
    given.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// All layers; the simplest is the first.
fn table() -> Vec<(&'static str, Draw)> {
    [values::LAYERS, maps::LAYERS, sequences::LAYERS, containers::LAYERS].concat()
}

/// The layers with parameters, which need a name.
const PARAMETERS: &[&str] = &[
    "conv",
    "bn",
    "linear",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "conv1d",
    "conv_transpose",
    "embedding",
    "positions",
    "prepend",
    "add_parameter",
    "parameter",
    "layer_scale",
    "affine",
    "attention",
    "relative_position_bias",
    "continuous_position_bias",
    "distance_bias",
    "logit_scale",
    "experts",
    "prelu",
    "scope",
    "stack",
    "block",
];

impl Drawing<'_> {
    fn name(&mut self, stem: &str) -> String {
        self.named += 1;
        format!("{stem}{}", self.named)
    }

    /// Layers that are accepted by the shape of their result.
    fn layer(&mut self, x: &[usize], accept: &dyn Fn(&[usize]) -> bool) -> Layers {
        let table = table();
        let first = self.tape.below(table.len());
        for n in 0..table.len() {
            let (_, draw) = table[(first + table.len() - n) % table.len()];
            let before = (self.taps.len(), self.embeddings.len(), self.callable.len(), self.modules.len());
            let (blocks, beside, experts) = (self.blocks.clone(), self.beside.len(), self.experts.len());
            if let Some((mut layers, y)) = draw(self, x)
                && y.iter().product::<usize>() <= MOST
                && accept(&y)
            {
                self.switched_off(&mut layers);
                return (layers, y);
            }
            self.taps.truncate(before.0);
            self.embeddings.truncate(before.1);
            self.callable.truncate(before.2);
            self.modules.truncate(before.3);
            self.blocks = blocks;
            self.beside.truncate(beside);
            self.experts.truncate(experts);
        }
        (vec![json!("relu")], x.to_vec())
    }

    /// Sometimes adds one of the layers again, switched off: nothing of it matters, neither its name nor its shapes.
    fn switched_off(&mut self, layers: &mut Vec<Value>) {
        const NEVER: [&str; 10] =
            ["constant", "tap", "from", "map", "add", "subtract", "mul", "again", "unused", "scope"];
        if !self.tape.rarely(5) {
            return;
        }
        let parts = |layer: &Value| match layer {
            Value::String(tag) => Some((tag.clone(), json!({}))),
            _ => layer.as_object()?.clone().into_iter().next(),
        };
        let mut modules: Vec<(String, Value)> = layers.iter().filter_map(parts).collect();
        modules.retain(|(tag, _)| !NEVER.contains(&tag.as_str()));
        if !modules.is_empty() {
            let (tag, mut settings) = self.tape.of(&modules);
            settings["enabled"] = json!(false);
            layers.push(json!({ tag: settings }));
        }
    }

    /// Up to `most` layers in a row, of which each is accepted.
    fn body(&mut self, x: &[usize], most: usize, accept: &dyn Fn(&[usize]) -> bool) -> Layers {
        let mut shape = x.to_vec();
        let mut body = Vec::new();
        for _ in 0..self.tape.between(1, most) {
            let (layers, y) = self.layer(&shape, accept);
            body.extend(layers);
            shape = y;
        }
        (body, shape)
    }

    /// A layer with a name, if it needs one, and sometimes `enabled`.
    fn word(&mut self, tag: &str, mut settings: Map<String, Value>) -> Value {
        let parameters = PARAMETERS.contains(&tag);
        // Without a name, layers in a second list would be called as those in the first.
        let named = parameters || tag == "sequential";
        if (named && !self.indexed) || self.tape.rarely(3) {
            let name = self.name("m");
            if parameters
                && self.depth == 0
                && !settings.contains_key("table")
                && !matches!(tag, "scope" | "stack" | "block")
            {
                self.modules.push(name.clone());
            }
            settings.insert("name".to_owned(), json!(name));
        }
        if self.tape.rarely(9) && tag != "scope" {
            settings.insert("enabled".to_owned(), json!(true));
        }
        match settings.is_empty() {
            true => json!(tag),
            false => json!({ tag: settings }),
        }
    }

    /// The same as a list of one.
    fn only(&mut self, tag: &str, settings: Map<String, Value>, y: Vec<usize>) -> Option<Layers> {
        Some((vec![self.word(tag, settings)], y))
    }

    /// A number of elements: as it is, or by an argument of the block around.
    fn size(&mut self, n: usize) -> Value {
        let fits = |(name, value): &(String, usize)| match (n, *value) {
            (n, value) if n == value => Some(format!("${name}")),
            (n, value) if n.is_multiple_of(value) => Some(format!("${name}*{}", n / value)),
            (n, value) if value.is_multiple_of(n) => Some(format!("${name}/{}", value / n)),
            _ => None,
        };
        let expression = self.arguments.iter().find_map(fits);
        match expression {
            Some(expression) if self.tape.flag() => json!(expression),
            _ => json!(n),
        }
    }

    /// Two extents: as a list, or as one number if they are equal.
    fn pair(&mut self, [h, w]: [usize; 2]) -> Value {
        match h == w && !self.tape.rarely(4) {
            true => self.size(h),
            false => json!([h, w]),
        }
    }

    /// Padding below `limits`, as a number, a pair or four sides; and the four sides.
    fn padding(&mut self, limits: [usize; 2]) -> (Value, [usize; 4]) {
        let most = limits.map(|limit| limit.saturating_sub(1).min(2));
        match self.tape.below(4) {
            0 => {
                let all = self.tape.between(0, most[0].min(most[1]));
                (json!(all), [all; 4])
            }
            1 => {
                let [h, w] = most.map(|most| self.tape.between(0, most));
                (json!([h, w]), [h, h, w, w])
            }
            _ => {
                let sides = [most[0], most[0], most[1], most[1]].map(|most| self.tape.between(0, most));
                (json!(sides), sides)
            }
        }
    }

    /// A new tap for the present value.
    fn tap(&mut self, shape: &[usize]) -> (Value, String) {
        let name = self.name("t");
        self.taps.push(Tapped { name: name.clone(), shape: shape.to_vec() });
        (json!({ "tap": name.clone() }), name)
    }

    /// A tap or an input that `fits`, if there is one.
    fn tapped(&mut self, fits: impl Fn(&[usize]) -> bool) -> Option<Tapped> {
        let fitting: Vec<Tapped> = self.taps.iter().filter(|tap| fits(&tap.shape)).cloned().collect();
        (!fitting.is_empty()).then(|| self.tape.of(&fitting))
    }
}

/// What the inputs of the network are.
struct Inputs {
    described: Map<String, Value>,
    first: Vec<usize>,
    indices: bool,
}

/// Classes of the labels.
const CLASSES: usize = 5;

/// Draws the inputs of a network.
fn inputs(drawing: &mut Drawing<'_>) -> Inputs {
    let tape = &mut drawing.tape;
    if tape.rarely(3) {
        let tokens = tape.between(4, 9);
        let mut described = settings([("tokens", json!({ "indices": [tokens] }))]);
        if tape.flag() {
            described.insert("unseen".to_owned(), json!({ "numbers": [tokens] }));
            drawing.masked = Some(tokens);
        }
        return Inputs { described, first: vec![tokens], indices: true };
    }
    let shape = vec![tape.of(&[3, 1, 4, 17]), tape.between(5, 13), tape.between(5, 13)];
    if tape.rarely(6) {
        let described = settings([("image", json!({ "numbers": shape }))]);
        return Inputs { described, first: shape, indices: false };
    }
    Inputs { described: settings([("image", json!(shape))]), first: shape, indices: false }
}

/// Draws a recipe: `trunk` has a tape for every layer, `frame` one for all the rest.
pub fn recipe(trunk: &[Vec<u32>], frame: &[u32]) -> Value {
    let mut drawing = Drawing {
        tape: Tape::new(frame),
        named: 0,
        taps: Vec::new(),
        embeddings: Vec::new(),
        callable: Vec::new(),
        modules: Vec::new(),
        blocks: Map::new(),
        arguments: Vec::new(),
        indexed: false,
        depth: 0,
        beside: Vec::new(),
        masked: None,
        experts: Vec::new(),
        batch: 2,
    };
    drawing.batch = drawing.tape.between(2, 5);
    let inputs = inputs(&mut drawing);
    let mut body = Vec::new();
    let mut shape = inputs.first.clone();
    if inputs.indices {
        let (layers, y) = sequences::embedding(&mut drawing, &shape);
        body.extend(layers);
        shape = y;
    } else {
        drawing.taps.push(Tapped { name: "image".to_owned(), shape: shape.clone() });
    }
    let rest = drawing.tape.clone();
    for layer in trunk {
        drawing.tape = Tape::new(layer);
        let (layers, y) = drawing.layer(&shape, &|_| true);
        body.extend(layers);
        shape = y;
    }
    drawing.tape = rest;
    let (head, outputs, loss) = losses::draw(&mut drawing, &shape);
    body.extend(head);
    let mut model = settings([
        ("inputs", Value::Object(inputs.described)),
        ("classes", json!(CLASSES)),
        ("body", Value::Array(body)),
    ]);
    if !drawing.blocks.is_empty() {
        model.insert("blocks".to_owned(), Value::Object(std::mem::take(&mut drawing.blocks)));
    }
    if !outputs.is_empty() {
        model.insert("outputs".to_owned(), Value::Object(outputs));
    }
    if drawing.tape.rarely(3) {
        let init = values::defaults(&mut drawing.tape);
        model.insert("init".to_owned(), init);
    }
    let source = match inputs.indices {
        true => json!({ "sentences": { "train": 40, "val": 5 } }),
        false => json!({ "characters": { "classes": CLASSES, "train": 20, "val": 10, "size": 16 } }),
    };
    let mut recipe = settings([
        ("name", json!("drawn")),
        ("model", Value::Object(model)),
        ("data", json!({ "source": source })),
        ("loss", Value::Object(loss)),
    ]);
    if !inputs.indices {
        let three = |n: u32| json!([n, n, n]);
        let normal = json!([{ "normalize": { "mean": three(128), "std": three(64), "scale": "byte" } }]);
        recipe.insert("preprocess".to_owned(), json!({ "train": normal, "eval": normal }));
    }
    training::draw(&mut drawing, &mut recipe);
    Value::Object(recipe)
}

/// The recipe as a file, with a line for every layer.
pub fn text(recipe: &Value) -> String {
    let mut text = String::new();
    let line = |indent: usize, text: &str| format!("{}{text}\n", " ".repeat(indent));
    for (key, value) in recipe.as_object().into_iter().flatten() {
        if key != "model" {
            text += &line(0, &format!("{key}: {value}"));
            continue;
        }
        text += &line(0, "model:");
        for (key, value) in value.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("body", Value::Array(layers)) => {
                    text += &line(2, "body:");
                    layers.iter().for_each(|layer| text += &line(4, &format!("- {layer}")));
                }
                _ => text += &line(2, &format!("{key}: {value}")),
            }
        }
    }
    text
}
