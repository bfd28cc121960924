//! The program of a network while it is written: the classes around the present value, and what they have so far.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use zoo_graph::Shape;

use super::code::{Binding, Code, Piece, Var};
use super::dialect::Dialect;
use super::mindspore;
use super::number::{Kind, Number};
use super::usage::{Child, Home, ROOT, Statement, Usage, Value};
use crate::values::{Expression, Scalar};

/// Class key, by which uses of one class are known, and the name of a tap inside it.
pub(crate) type Exports = BTreeSet<(String, String)>;

/// The program that is being written.
pub(crate) struct Emitter<'a> {
    pub(super) dialect: Dialect,
    /// Why the layer under way has no form in the dialect.
    pub(super) refused: Option<String>,
    /// The arguments that blocks declare, with their defaults.
    pub(super) blocks: HashMap<&'a str, &'a IndexMap<String, Option<Scalar>>>,
    shapes: &'a [[Shape; 2]],
    /// The next of `shapes`.
    next: usize,
    /// What classes hand out.
    pub(crate) exports: Exports,
    /// What they would have to hand out.
    pub(crate) wanted: Exports,
    pub(super) frames: Vec<Usage>,
    /// Classes in use, those inside before those around them; the last is the whole.
    pub(crate) uses: Vec<Usage>,
    pub(super) taps: HashMap<String, Home>,
    /// Functions that the program defines.
    pub(crate) helpers: BTreeSet<&'static str>,
    /// Parameters whose name stands for that of another: `lm_head.weight`, `transformer.wte.weight`.
    pub(crate) ties: Vec<(String, String)>,
    /// Classes of modules by full name; constructors of parameters.
    pub(crate) modules: BTreeMap<String, String>,
    /// Rows of tables, by the full name of the parameter, with the prefix of the class that has them.
    pub(super) tables: HashMap<String, (String, Number)>,
}

impl<'a> Emitter<'a> {
    /// A program without content. `shapes` are those of the input and the output of each layer, in the order of their
    /// calls; `exports` are what classes hand out.
    pub(crate) fn new(
        dialect: Dialect,
        blocks: impl Iterator<Item = (&'a str, &'a IndexMap<String, Option<Scalar>>)>,
        shapes: &'a [[Shape; 2]],
        exports: Exports,
    ) -> Self {
        Self {
            dialect,
            refused: None,
            blocks: blocks.collect(),
            shapes,
            next: 0,
            exports,
            wanted: Exports::new(),
            frames: Vec::new(),
            uses: Vec::new(),
            taps: HashMap::new(),
            helpers: BTreeSet::new(),
            ties: Vec::new(),
            modules: BTreeMap::new(),
            tables: HashMap::new(),
        }
    }

    /// Enters the network.
    pub(crate) fn start<'i>(&mut self, classes: usize, inputs: impl Iterator<Item = (&'i str, Vec<usize>)>) {
        let mut root = Usage::new(ROOT, "", "");
        let default = Scalar::Int(classes as i64);
        root.arguments.insert("num_classes".into(), (Number::count(classes), Some(default)));
        self.frames.push(root);
        for (name, extents) in inputs {
            let dims = std::iter::once(1).chain(extents).map(Number::count).collect();
            let var = self.frame().value(Value { dims, hint: Some(name.to_owned()) });
            self.frame().inputs.push((name.to_owned(), var));
            self.keep(name, var);
        }
    }

    /// Leaves the network, whose last value is `y`, with taps under other names as results, if there are some.
    pub(crate) fn finish(&mut self, y: Var, outputs: &IndexMap<String, String>) {
        if outputs.is_empty() {
            self.frame().outputs = vec![("logits".into(), y)];
        }
        for (name, tap) in outputs {
            let var = self.tapped(tap);
            self.frame().values[var.0].hint.get_or_insert_with(|| name.clone());
            self.frame().outputs.push((name.clone(), var));
        }
        let root = self.frames.pop();
        self.uses.extend(root);
    }

    pub(super) fn frame(&mut self) -> &mut Usage {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub(super) fn around(&self) -> Vec<(String, String)> {
        self.frames.iter().map(|frame| (frame.key.clone(), frame.prefix.clone())).collect()
    }

    /// A module that is switched off here and on in other uses of the class.
    pub fn off(&mut self, name: &str, when: &Expression, x: Var) -> Var {
        let path = name.strip_prefix(self.frame().prefix.as_str()).map(str::to_owned);
        let (Some(when), Some(path)) = (self.frame().switch(when), path) else { return x };
        let variant = self.is_variant(&path, Some(&when));
        self.register(&path, None, Some(when));
        if variant {
            return x;
        }
        let dims = self.frame().values[x.0].dims.clone();
        let target = self.frame().value(Value { dims, hint: None });
        let pieces = vec![Piece::Child(path), Piece::List("(", vec![Code::value(x)], ")")];
        let code = Code { pieces, binding: Binding::Tight };
        self.frame().statements.push(Statement { targets: vec![target], code, repeat: None });
        target
    }

    /// Whether another module has this path, in place of which this one may be switched on.
    pub(super) fn is_variant(&mut self, path: &str, when: Option<&String>) -> bool {
        let other = |child: &Child| child.path == path && child.when.as_ref() != when;
        when.is_some() && self.frame().children.iter().any(other)
    }

    /// The shapes of the next layer.
    pub(super) fn shape(&mut self) -> [Shape; 2] {
        self.next += 1;
        self.shapes.get(self.next - 1).cloned().unwrap_or_else(|| [[].into(), [].into()])
    }

    /// The extents of a result: those of the operand where they stay, and what the layer says of its channels.
    pub(super) fn dims(&mut self, x: Var, output: &Shape, out: Option<Number>) -> Vec<Number> {
        let before = self.frame().values[x.0].dims.clone();
        let same = |axis: usize, extent: usize| {
            let equal = |number: &&Number| number.value == extent as f64 && !number.is_literal();
            out.iter()
                .find(|out| out.value == extent as f64)
                .or_else(|| before.get(axis).filter(equal).or_else(|| before.iter().skip(1).find(equal)))
        };
        let extents = output.iter().copied().enumerate();
        extents.map(|(axis, extent)| same(axis, extent).cloned().unwrap_or_else(|| Number::count(extent))).collect()
    }

    /// Enters a class.
    pub(super) fn enter(&mut self, usage: Usage, x: Var) -> Var {
        let outer = self.frame().values[x.0].dims.clone();
        let own = usage.own;
        self.frames.push(usage);
        let rank = outer.len();
        let mut dims = Vec::new();
        for (axis, number) in outer.into_iter().enumerate() {
            // Maps have their channels first, tokens last.
            let name = match axis {
                1 if rank == 4 => "in_channels",
                _ if axis + 1 == rank && axis > 0 => {
                    if rank == 2 {
                        "in_features"
                    } else {
                        "dim"
                    }
                }
                _ => "",
            };
            dims.push(match own && !name.is_empty() {
                true => {
                    let inner = Number::argument(name, number.value, Kind::Whole);
                    self.frame().arguments.insert(name.to_owned(), (number, None));
                    inner
                }
                false if own => number.literal(),
                false => number,
            });
        }
        let var = self.frame().value(Value { dims, hint: None });
        self.frame().inputs.push((String::new(), var));
        var
    }

    /// Leaves a class after its last value: registers it under `path` in the class around it, and calls it. `returns`
    /// are taps inside that it returns before anything else.
    pub(super) fn leave(
        &mut self,
        path: &str,
        x: Var,
        y: Var,
        when: Option<String>,
        returns: &IndexMap<String, String>,
    ) -> Option<Var> {
        let mut inner = self.frames.pop()?;
        let kept: Vec<(String, Home)> = self
            .taps
            .iter()
            .filter(|(_, home)| home.frames.len() == self.frames.len() + 1)
            .filter(|(tap, _)| {
                let local = tap.strip_prefix(inner.prefix.as_str()).unwrap_or(tap);
                returns.values().any(|other| other.as_str() == tap.as_str())
                    || self.exports.contains(&(inner.key.clone(), local.to_owned()))
            })
            .filter(|(_, home)| home.frames.last().is_some_and(|(_, prefix)| *prefix == inner.prefix))
            .map(|(tap, home)| (tap.clone(), home.clone()))
            .collect();
        let mut kept = kept;
        kept.sort_by_key(|(_, home)| home.var);
        let place = |tap: &String| returns.values().position(|other| other == tap).unwrap_or(returns.len());
        let mut outputs: Vec<(usize, String, Var)> = vec![(returns.len(), String::new(), y)];
        for (tap, home) in &kept {
            let local = tap.rsplit('.').next().unwrap_or(tap).to_owned();
            match outputs.iter_mut().find(|(_, _, var)| *var == home.var) {
                Some(same) => same.0 = same.0.min(place(tap)),
                None => outputs.push((place(tap), local, home.var)),
            }
        }
        outputs.sort_by_key(|(place, ..)| *place);
        inner.returns = outputs.iter().filter(|(place, ..)| *place < returns.len()).count();
        let main = outputs.iter().position(|(.., var)| *var == y)?;
        let is_name =
            |key: &String| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && key.parse::<usize>().is_err();
        // Results under names of their own are a dict.
        inner.named = inner.returns == outputs.len() && inner.returns == returns.len() && returns.keys().all(is_name);
        let key = |place: usize, name: String| match returns.get_index(place).filter(|_| inner.named) {
            Some((key, _)) => key.clone(),
            None => name,
        };
        inner.outputs = outputs.into_iter().map(|(place, name, var)| (key(place, name), var)).collect();
        let extra: Vec<String> = inner.inputs.iter().skip(1).map(|(tap, _)| tap.clone()).collect();
        let mut operands = vec![Code::value(x)];
        operands.extend(extra.iter().map(|tap| Code::value(self.tapped(tap))));
        let targets: Vec<Var> = inner
            .outputs
            .iter()
            .map(|(hint, var)| {
                let dims = inner.values[var.0].dims.iter().map(|dim| inner.outside(dim)).collect();
                let hint = (!hint.is_empty()).then(|| hint.clone());
                self.frame().value(Value { dims, hint })
            })
            .collect();
        for (tap, home) in &kept {
            let place = inner.outputs.iter().position(|(_, var)| *var == home.var)?;
            self.keep(tap, targets[place]);
        }
        let y = targets[main];
        let keys: Option<Vec<String>> = inner.named.then(|| inner.outputs.iter().map(|(key, _)| key.clone()).collect());
        let is_known = self.frame().children.iter().any(|child| child.path == path && child.when == when);
        let code = match inner.as_row() {
            // It is called again.
            _ if is_known => Code::text(""),
            Some(row) => row,
            None => {
                self.uses.push(inner);
                Code { pieces: vec![Piece::New(self.uses.len() - 1)], binding: Binding::Tight }
            }
        };
        let Some(keys) = keys else {
            self.call(path, code, operands, targets, when);
            return Some(y);
        };
        let all = self.frame().value(Value { dims: Vec::new(), hint: Some("outputs".to_owned()) });
        self.call(path, code, operands, vec![all], when);
        for (key, target) in keys.iter().zip(targets) {
            let code = Code::of(all, format!("[\"{key}\"]"));
            self.frame().statements.push(Statement { targets: vec![target], code, repeat: None });
        }
        Some(y)
    }

    /// Registers a module, unless it is known, and calls it.
    pub(super) fn call(
        &mut self,
        path: &str,
        code: Code,
        operands: Vec<Code>,
        targets: Vec<Var>,
        when: Option<String>,
    ) {
        self.register(path, Some(code), when);
        let pieces = vec![Piece::Child(path.to_owned()), Piece::List("(", operands, ")")];
        self.frame().statements.push(Statement {
            targets,
            code: Code { pieces, binding: Binding::Tight },
            repeat: None,
        });
    }

    /// An expression.
    pub fn function(&mut self, code: Code) -> Var {
        let code = self.worded(code);
        self.frame().assigned(code)
    }

    /// An expression in the words of the dialect.
    pub(super) fn worded(&mut self, code: Code) -> Code {
        match self.dialect {
            Dialect::PyTorch => code,
            Dialect::MindSpore => match mindspore::code(&code) {
                Ok((code, helpers)) => {
                    self.helpers.extend(helpers);
                    code
                }
                Err(reason) => {
                    self.refused.get_or_insert(reason);
                    code
                }
            },
        }
    }

    /// The name of a parameter in the dialect.
    pub(super) fn spelt(&self, parameter: &str) -> String {
        match self.dialect {
            Dialect::PyTorch => parameter.to_owned(),
            Dialect::MindSpore => mindspore::parameter(parameter, &self.modules),
        }
    }

    /// Notes a function that the program defines.
    pub(super) fn helper(&mut self, text: &'static str) {
        match self.dialect {
            Dialect::PyTorch => _ = self.helpers.insert(text),
            Dialect::MindSpore => match mindspore::helper(text) {
                Ok(text) => _ = self.helpers.insert(text),
                Err(reason) => _ = self.refused.get_or_insert(reason),
            },
        }
    }

    /// As [`Self::function`], for a result with the extents of another value.
    pub fn function_like(&mut self, code: Code, like: Var) -> Var {
        let y = self.function(code);
        self.frame().values[y.0].dims = self.frame().values[like.0].dims.clone();
        y
    }

    /// Values one after another along an axis.
    pub fn concatenated(&mut self, parts: &[Var], axis: usize) -> Var {
        let dims = |emitter: &mut Self, var: &Var| emitter.frame().values[var.0].dims.clone();
        let mut joined = dims(self, &parts[0]);
        for part in &parts[1..] {
            if let (Some(sum), Some(more)) = (joined.get_mut(axis), dims(self, part).get(axis)) {
                *sum = sum.plus(more);
            }
        }
        let list = Code::list(parts.iter().copied().map(Code::value).collect());
        let y = self.function(Code::call("torch.cat", vec![list, Code::text(format!("dim={axis}"))]));
        self.frame().values[y.0].dims = joined;
        y
    }

    pub(super) fn register(&mut self, path: &str, code: Option<Code>, when: Option<String>) {
        if self.frame().children.iter().all(|child| child.path != path || child.when != when) {
            let full = format!("{}{path}", self.frame().prefix);
            let code = code.map(|code| self.worded(code));
            if let Some(Piece::Text(class)) = code.as_ref().and_then(|code| code.pieces.first()) {
                let is_parameter = class == self.dialect.style().parameter;
                let whole = if is_parameter { code.as_ref().map(Code::flat) } else { None };
                self.modules.insert(full, whole.unwrap_or_else(|| class.clone()));
            }
            self.frame().children.push(Child { path: path.to_owned(), code, when, parameter: false, repeat: None });
        }
    }
}
