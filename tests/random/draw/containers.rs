//! Layers that hold layers, and blocks.

use super::{Callable, DEEPEST, Draw, Drawing, Layers, settings};
use serde_json::{Map, Value, json};

pub(super) const LAYERS: &[(&str, Draw)] = &[
    ("residual", residual),
    ("concat", concat),
    ("sequential", sequential),
    ("stack", stack),
    ("block", block),
    ("scope", scope),
    ("gate", gate),
    ("unused", unused),
    ("again", again),
];

impl Drawing<'_> {
    /// Draws what is inside a layer, whose taps are not seen outside.
    pub(super) fn inside<T>(&mut self, indexed: bool, draw: impl FnOnce(&mut Self) -> T) -> T {
        let (taps, outer) = (self.taps.len(), std::mem::replace(&mut self.indexed, indexed));
        self.depth += 1;
        let drawn = draw(self);
        self.depth -= 1;
        self.indexed = outer;
        self.taps.truncate(taps);
        drawn
    }

    fn is_deep(&self) -> Option<()> {
        (self.depth < DEEPEST).then_some(())
    }
}

fn residual(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    let (main, y) = d.inside(false, |d| d.body(x, 3, &|y| y == x));
    let mut set = settings([("main", json!(main))]);
    if d.tape.flag() {
        let (shortcut, _) = d.inside(false, |d| d.body(x, 2, &|y| y == x));
        set.insert("shortcut".to_owned(), json!(shortcut));
    }
    d.only("residual", set, y)
}

fn concat(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    (x.len() > 1).then_some(())?;
    let axis = d.tape.below(x.len());
    let word = match (x.len(), axis) {
        (2, 0) => d.tape.of(&["token", "channel"]),
        (2, _) => return None,
        (_, axis) => ["channel", "height", "width"][axis],
    };
    let alike = |y: &[usize]| y.len() == x.len() && (0..x.len()).all(|n| n == axis || y[n] == x[n]);
    let mut y = x.to_vec();
    y[axis] = 0;
    let mut branches = Vec::new();
    for _ in 0..d.tape.between(2, 3) {
        let (layers, shape) = match d.tape.rarely(5) {
            true => (Vec::new(), x.to_vec()),
            false => d.inside(false, |d| d.body(x, 2, &alike)),
        };
        y[axis] += shape[axis];
        branches.push(layers);
    }
    let mut set = settings([("branches", json!(branches))]);
    if word != "channel" || d.tape.flag() {
        set.insert("axis".to_owned(), json!(word));
    }
    d.only("concat", set, y)
}

/// Layers with two taps, and the return values that name them.
fn returning(d: &mut Drawing<'_>, x: &[usize], indexed: bool, most: usize) -> (Vec<Value>, Vec<usize>, Value) {
    d.inside(indexed, |d| {
        let (mut layers, middle) = d.body(x, most, &|_| true);
        let first = d.tap(&middle);
        layers.push(first.0);
        let (more, y) = d.layer(&middle, &|_| true);
        layers.extend(more);
        let last = d.tap(&y);
        layers.push(last.0);
        (layers, y, json!({ "0": first.1, "features": last.1 }))
    })
}

fn sequential(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    if d.tape.rarely(3) {
        let (body, y, returns) = returning(d, x, true, 2);
        return d.only("sequential", settings([("body", json!(body)), ("returns", returns)]), y);
    }
    let (body, y) = d.inside(true, |d| d.body(x, 3, &|_| true));
    d.only("sequential", settings([("body", json!(body))]), y)
}

/// A module that is called twice: the second call is on a value like the first.
fn again(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    let fitting: Vec<Callable> = d.callable.iter().filter(|module| module.shapes[0] == x).cloned().collect();
    if !fitting.is_empty() {
        let module = d.tape.of(&fitting);
        return Some((vec![json!({ "again": module.name })], module.shapes[1].clone()));
    }
    (d.depth == 0).then_some(())?;
    let (body, y) = d.inside(true, |d| d.body(x, 3, &|_| true));
    let name = d.name("m");
    let first = json!({ "sequential": { "name": name, "body": body } });
    d.callable.push(Callable { name: name.clone(), shapes: [x.to_vec(), y.clone()] });
    let (before, start) = d.tap(x);
    let between = json!({ "map": format!("0.5 * {start} + 0.1") });
    let layers = vec![before, first, json!({ "from": start }), between, json!({ "again": name })];
    Some((layers, y))
}

/// A new block with a width, and what is given for it.
fn new_block(d: &mut Drawing<'_>, x: &[usize], same: bool) -> (String, Map<String, Value>, Vec<Value>, Vec<usize>) {
    let name = d.name("block");
    let width = *d.tape.of(&[x.first(), x.last()]).unwrap_or(&1);
    let outer = std::mem::replace(&mut d.arguments, vec![("width".to_owned(), width)]);
    let (body, y) = d.inside(false, |d| d.body(x, 3, &|y| !same || y == x));
    d.arguments = outer;
    let mut args = Map::new();
    if body.iter().any(|layer| layer.to_string().contains("$width")) {
        args.insert("width".to_owned(), json!(width));
    }
    (name, args, body, y)
}

/// Declares a block: arguments without a default have to be given, the others can be.
fn declare(d: &mut Drawing<'_>, name: &str, args: &mut Map<String, Value>, body: &[Value]) {
    let mut declared = Map::new();
    for (key, value) in args.clone() {
        let required = d.tape.flag();
        declared.insert(key.clone(), if required { Value::Null } else { value });
        if !required && d.tape.flag() {
            args.remove(&key);
        }
    }
    let mut block = settings([("body", json!(body))]);
    if !declared.is_empty() {
        block.insert("args".to_owned(), json!(declared));
    }
    if d.tape.rarely(3) {
        block.insert("init".to_owned(), super::values::defaults(&mut d.tape));
    }
    d.blocks.insert(name.to_owned(), json!(block));
}

fn block(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    if d.tape.rarely(4) {
        let name = d.name("block");
        let outer = std::mem::take(&mut d.arguments);
        let (body, y, returns) = returning(d, x, false, 2);
        d.arguments = outer;
        declare(d, &name, &mut Map::new(), &body);
        return d.only("block", settings([("use", json!(name)), ("returns", returns)]), y);
    }
    if d.tape.rarely(4) {
        let (tapped, tap) = d.tap(x);
        let (name, mut args, mut body, y) = new_block(d, x, true);
        body.push(json!({ "add": "skip" }));
        declare(d, &name, &mut args, &body);
        let mut set = settings([("use", json!(name)), ("inputs", json!({ "skip": tap }))]);
        if !args.is_empty() {
            set.insert("args".to_owned(), json!(args));
        }
        let (mut layers, y) = d.only("block", set, y)?;
        layers.insert(0, tapped);
        return Some((layers, y));
    }
    let (name, mut args, body, y) = new_block(d, x, false);
    declare(d, &name, &mut args, &body);
    let mut set = settings([("use", json!(name))]);
    if !args.is_empty() {
        set.insert("args".to_owned(), json!(args));
    }
    d.only("block", set, y)
}

fn stack(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    let (name, mut args, mut body, y) = new_block(d, x, true);
    declare(d, &name, &mut args, &body);
    let mut set = settings([("block", json!(name)), ("repeat", json!(d.tape.between(1, 3)))]);
    // Arguments of single repetitions: a switch that takes turns, a first one, a count.
    let mut declared = d.blocks[&name].get("args").cloned().unwrap_or_else(|| json!({}));
    if d.tape.rarely(3) {
        body.push(json!({ "tanh": { "enabled": "$on" } }));
        declared["on"] = json!(false);
        let [first, second] = [d.tape.flag(), d.tape.flag()];
        set.insert("turns".to_owned(), json!([{ "on": first }, { "on": second }]));
    }
    if d.tape.rarely(3) {
        body.push(json!({ "scale": { "by": "$factor" } }));
        declared["factor"] = json!(0.5);
        set.insert("first".to_owned(), json!({ "factor": d.tape.number(0.2, 1.5) }));
    }
    if d.tape.rarely(3) {
        body.push(json!({ "scale": { "by": "$turn/4" } }));
        declared["turn"] = Value::Null;
        set.insert("count".to_owned(), json!({ "turn": d.tape.between(1, 5) }));
    }
    if declared.as_object().is_some_and(|declared| !declared.is_empty()) {
        d.blocks[&name]["args"] = declared;
    }
    d.blocks[&name]["body"] = json!(body);
    if d.tape.rarely(3) {
        set.insert("item".to_owned(), json!("item_"));
    }
    if !args.is_empty() {
        set.insert("args".to_owned(), json!(args));
    }
    d.only("stack", set, y)
}

fn scope(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    let (body, y) = d.inside(false, |d| d.body(x, 2, &|_| true));
    let name = d.name("m");
    Some((vec![json!({ "scope": { "name": name, "body": body } })], y))
}

fn gate(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    let (body, y) = d.inside(false, |d| match x {
        [c, _, _] if d.tape.flag() => {
            let conv = settings([("out", d.size(*c)), ("kernel", json!(1))]);
            let body = vec![d.word("global_avg_pool", Map::new()), d.word("conv", conv), json!("sigmoid")];
            (body, x.to_vec())
        }
        _ => d.body(x, 2, &|y| y == x),
    });
    d.only("gate", settings([("body", json!(body))]), y)
}

fn unused(d: &mut Drawing<'_>, x: &[usize]) -> Option<Layers> {
    d.is_deep()?;
    let (body, _) = d.inside(false, |d| d.body(x, 2, &|_| true));
    let mut set = settings([("body", json!(body))]);
    if d.tape.rarely(3) {
        let (name, extent) = (d.name("p"), d.tape.between(1, 4));
        set.insert("parameters".to_owned(), json!({ name: [extent, 2] }));
    }
    Some((vec![json!({ "unused": set })], x.to_vec()))
}
