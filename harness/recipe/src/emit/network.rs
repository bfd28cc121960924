//! The walk through a resolved network that writes its modules and calls as Python.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use zoo_graph::Shape;

use super::code::{Binding, Code, Piece, Var};
use super::number::{Kind, Number};
use super::usage::{Child, Statement, Usage, Value};
use crate::diagnostic::Diagnostic;
use crate::layers::Body;
use crate::resolve::{ResolvedLayer, ResolvedModel};
use crate::schema::{Expression, Model, Scalar};

/// Class key, by which uses of one class are known, and the name of a tap inside it.
pub(super) type Exports = BTreeSet<(String, String)>;

/// The network as uses of classes; the last is the whole.
pub(super) struct Written {
    /// Classes in use, those inside before those around them.
    pub uses: Vec<Usage>,
    /// Functions that the program defines.
    pub helpers: BTreeSet<&'static str>,
    /// Parameters whose name stands for that of another: `lm_head.weight`, `transformer.wte.weight`.
    pub ties: Vec<(String, String)>,
    /// Classes of modules by full name; constructors of parameters.
    pub modules: BTreeMap<String, String>,
}

/// Writes the network. `shapes` are those of the input and the output of each layer, in the order of their calls.
pub(super) fn write(model: &Model, resolved: &ResolvedModel, shapes: &[[Shape; 2]]) -> Result<Written, Diagnostic> {
    let mut exports = Exports::new();
    loop {
        let mut emitter = Emitter::new(model, shapes, &exports);
        emitter.root(resolved)?;
        let more = std::mem::take(&mut emitter.wanted);
        if more.is_subset(&exports) {
            let Emitter { uses, helpers, ties, modules, .. } = emitter;
            return Ok(Written { uses, helpers, ties, modules });
        }
        exports.extend(more);
    }
}

/// Where the value of a tap is.
#[derive(Clone)]
struct Home {
    /// Keys and prefixes of the classes around the value.
    frames: Vec<(String, String)>,
    var: Var,
}

/// The program that is being written.
pub(crate) struct Emitter<'a> {
    model: &'a Model,
    shapes: &'a [[Shape; 2]],
    /// The next of `shapes`.
    next: usize,
    exports: &'a Exports,
    wanted: Exports,
    frames: Vec<Usage>,
    uses: Vec<Usage>,
    taps: HashMap<String, Home>,
    helpers: BTreeSet<&'static str>,
    ties: Vec<(String, String)>,
    /// Classes of modules by full name; constructors of parameters.
    modules: BTreeMap<String, String>,
    /// Rows of tables, by the full name of the parameter, with the prefix of the class that has them.
    tables: HashMap<String, (String, Number)>,
}

impl<'a> Emitter<'a> {
    fn new(model: &'a Model, shapes: &'a [[Shape; 2]], exports: &'a Exports) -> Self {
        Self {
            model,
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

    fn root(&mut self, resolved: &ResolvedModel) -> Result<(), Diagnostic> {
        let mut root = Usage::new("model", "", "");
        let classes = Scalar::Int(self.model.classes as i64);
        let number = Number::count(self.model.classes);
        root.arguments.insert("num_classes".into(), (number, Some(classes)));
        self.frames.push(root);
        for (name, input) in &resolved.inputs {
            let batch = std::iter::once(Number::count(1));
            let dims = batch.chain(input.extents().iter().map(|extent| Number::count(extent.0))).collect();
            let var = self.frame().value(Value { dims, hint: Some(name.clone()) });
            self.frame().inputs.push((name.clone(), var));
            self.keep(name, var);
        }
        let y = resolved.body.iter().try_fold(Var(0), |x, layer| self.layer(layer, x))?;
        if resolved.outputs.is_empty() {
            self.frame().outputs = vec![("logits".into(), y)];
        }
        for (name, tap) in &resolved.outputs {
            let var = self.tapped(tap);
            self.frame().values[var.0].hint.get_or_insert_with(|| name.clone());
            self.frame().outputs.push((name.clone(), var));
        }
        let root = self.frames.pop();
        self.uses.extend(root);
        Ok(())
    }

    fn frame(&mut self) -> &mut Usage {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn around(&self) -> Vec<(String, String)> {
        self.frames.iter().map(|frame| (frame.key.clone(), frame.prefix.clone())).collect()
    }

    pub fn row(&mut self, body: &Body, mut x: Var) -> Result<Var, Diagnostic> {
        for (index, layer) in body.layers.iter().enumerate() {
            x = self.off(body, index, x);
            x = self.layer(layer, x)?;
        }
        Ok(self.off(body, body.layers.len(), x))
    }

    /// Modules that are switched off here and on in other uses of the class.
    fn off(&mut self, body: &Body, before: usize, mut x: Var) -> Var {
        for off in body.off.iter().filter(|off| off.before == before) {
            let symbols = self.frame().symbols();
            let when = switch(&off.when, &symbols);
            let path = off.name.strip_prefix(self.frame().prefix.as_str()).map(str::to_owned);
            if let (Some(when), Some(path)) = (when, path) {
                if self.is_variant(&path, Some(&when)) {
                    self.register(&path, None, Some(when));
                    continue;
                }
                let dims = self.frame().values[x.0].dims.clone();
                let target = self.frame().value(Value { dims, hint: None });
                self.register(&path, None, Some(when));
                let pieces = vec![Piece::Child(path), Piece::List("(", vec![Code::value(x)], ")")];
                let code = Code { pieces, binding: Binding::Tight };
                self.frame().statements.push(Statement { targets: vec![target], code, repeat: None });
                x = target;
            }
        }
        x
    }

    fn layer(&mut self, layer: &ResolvedLayer, x: Var) -> Result<Var, Diagnostic> {
        let [input, output] = self.shape();
        let known = self.frame().values.len();
        let mut at = At { emitter: self, layer, x, input, output: output.clone(), out: None };
        let y = layer.kind.emit(&mut at)?;
        let out = at.out.take();
        if y.0 >= known && self.frame().values[y.0].dims.is_empty() {
            let dims = self.dims(x, &output, out);
            self.frame().values[y.0].dims = dims;
        }
        Ok(y)
    }

    /// Whether another module has this path, in place of which this one may be switched on.
    fn is_variant(&mut self, path: &str, when: Option<&String>) -> bool {
        let other = |child: &Child| child.path == path && child.when.as_ref() != when;
        when.is_some() && self.frame().children.iter().any(other)
    }

    /// The shapes of the next layer.
    fn shape(&mut self) -> [Shape; 2] {
        self.next += 1;
        self.shapes.get(self.next - 1).cloned().unwrap_or_else(|| [[].into(), [].into()])
    }

    /// The extents of a result: those of the operand where they stay, and what the layer says of its channels.
    fn dims(&mut self, x: Var, output: &Shape, out: Option<Number>) -> Vec<Number> {
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

    fn keep(&mut self, tap: &str, var: Var) {
        let value = &mut self.frame().values[var.0];
        if value.hint.is_none() {
            value.hint = tap.rsplit('.').next().map(str::to_owned);
        }
        let home = Home { frames: self.around(), var };
        self.taps.insert(tap.to_owned(), home);
    }

    /// The value of a tap in the present class; it is passed in from classes around it, and out of others.
    fn tapped(&mut self, tap: &str) -> Var {
        let depth = self.frames.len();
        self.tapped_at(tap, depth)
    }

    fn tapped_at(&mut self, tap: &str, depth: usize) -> Var {
        let Some(home) = self.taps.get(tap).cloned() else { return Var(0) };
        let around = self.around();
        let shared = home.frames.iter().zip(&around).take_while(|(a, b)| a == b).count();
        for (key, prefix) in &home.frames[shared..] {
            // It must leave the classes that are not around this place; the next walk knows it.
            let inner = tap.strip_prefix(prefix.as_str()).unwrap_or(tap);
            self.wanted.insert((key.clone(), inner.to_owned()));
        }
        if home.frames.len() > shared {
            return self.frames[depth - 1].value(Value { dims: vec![Number::count(1); 4], hint: None });
        }
        if home.frames.len() == depth {
            return home.var;
        }
        if let Some((_, var)) = self.frames[depth - 1].inputs.iter().skip(1).find(|(name, _)| name == tap) {
            return *var;
        }
        let outer = self.tapped_at(tap, depth - 1);
        let outer = self.frames[depth - 2].values[outer.0].dims.clone();
        let rank = outer.len();
        let frame = &mut self.frames[depth - 1];
        let mut dims = Vec::new();
        for (axis, number) in outer.into_iter().enumerate() {
            dims.push(match (frame.own, axis, rank) {
                (true, 1, 4) if !frame.arguments.contains_key("skip_channels") => {
                    frame.arguments.insert("skip_channels".to_owned(), (number.clone(), None));
                    Number::argument("skip_channels", number.value, Kind::Whole)
                }
                (true, ..) => number.literal(),
                (false, ..) => number,
            });
        }
        let hint = tap.rsplit('.').next().map(str::to_owned);
        let var = self.frames[depth - 1].value(Value { dims, hint });
        self.frames[depth - 1].inputs.push((tap.to_owned(), var));
        var
    }

    /// Enters a class.
    fn enter(&mut self, usage: Usage, x: Var) -> Var {
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

    /// Leaves a class after its last value: registers it under `path` in the class around it, and calls it. `returns` are
    /// taps inside that it returns before anything else.
    fn leave(&mut self, path: &str, x: Var, y: Var, when: Option<String>, returns: &[String]) -> Option<Var> {
        let mut inner = self.frames.pop()?;
        let kept: Vec<(String, Home)> = self
            .taps
            .iter()
            .filter(|(_, home)| home.frames.len() == self.frames.len() + 1)
            .filter(|(tap, _)| {
                let local = tap.strip_prefix(inner.prefix.as_str()).unwrap_or(tap);
                returns.contains(tap) || self.exports.contains(&(inner.key.clone(), local.to_owned()))
            })
            .filter(|(_, home)| home.frames.last().is_some_and(|(_, prefix)| *prefix == inner.prefix))
            .map(|(tap, home)| (tap.clone(), home.clone()))
            .collect();
        let mut kept = kept;
        kept.sort_by_key(|(_, home)| home.var);
        let place = |tap: &String| returns.iter().position(|other| other == tap).unwrap_or(returns.len());
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
        inner.outputs = outputs.into_iter().map(|(_, name, var)| (name, var)).collect();
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
        let code = match inner.as_row() {
            Some(row) => row,
            None if self.frame().children.iter().any(|child| child.path == path) => Code::text(""),
            None => {
                self.uses.push(inner);
                Code { pieces: vec![Piece::New(self.uses.len() - 1)], binding: Binding::Tight }
            }
        };
        self.call(path, code, operands, targets, when);
        Some(y)
    }

    /// Registers a module, unless it is known, and calls it.
    fn call(&mut self, path: &str, code: Code, operands: Vec<Code>, targets: Vec<Var>, when: Option<String>) {
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
        let target = self.frame().value(Value { dims: Vec::new(), hint: None });
        self.frame().statements.push(Statement { targets: vec![target], code, repeat: None });
        target
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

    fn register(&mut self, path: &str, code: Option<Code>, when: Option<String>) {
        if self.frame().children.iter().all(|child| child.path != path || child.when != when) {
            let full = format!("{}{path}", self.frame().prefix);
            if let Some(Piece::Text(class)) = code.as_ref().and_then(|code| code.pieces.first()) {
                let whole = if class == "nn.Parameter" { code.as_ref().map(Code::flat) } else { None };
                self.modules.insert(full, whole.unwrap_or_else(|| class.clone()));
            }
            self.frame().children.push(Child { path: path.to_owned(), code, when, parameter: false, repeat: None });
        }
    }
}

/// In Python.
const APPLY: &str = r#"
class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)
"#;

/// Arguments of a use of a block, each with the key of the layer that gives it (`args`, `first`).
pub(crate) type Given = IndexMap<String, (Scalar, String)>;

/// The place of one layer in the program.
pub(crate) struct At<'e, 'a> {
    emitter: &'e mut Emitter<'a>,
    layer: &'e ResolvedLayer,
    x: Var,
    input: Shape,
    output: Shape,
    out: Option<Number>,
}

impl At<'_, '_> {
    /// The present value.
    pub fn x(&self) -> Var {
        self.x
    }

    /// Extents of the present value, batch included.
    pub fn input(&self) -> &[usize] {
        &self.input
    }

    /// Extents of the result, batch included.
    pub fn output(&self) -> &[usize] {
        &self.output
    }

    /// Why the layer cannot be written.
    pub fn refuse(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.layer.span.clone(), self.layer.path.clone(), message)
    }

    /// The extent of the present value along an axis, batch included.
    pub fn extent(&mut self, axis: usize) -> Number {
        let x = self.x.0;
        let known = self.emitter.frame().values[x].dims.get(axis).cloned();
        known
            .filter(|known| self.input.get(axis).is_some_and(|extent| *extent as f64 == known.value))
            .unwrap_or_else(|| Number::count(self.input.get(axis).copied().unwrap_or(1)))
    }

    /// The extent of the last axis of the present value.
    pub fn last(&mut self) -> Number {
        self.extent(self.input.len().saturating_sub(1))
    }

    /// A whole number of the layer, with the expression that was written for it.
    pub fn size(&mut self, key: &str, value: usize) -> Number {
        self.setting(key, value as f64, Kind::Whole)
    }

    /// A number of the layer, with the expression that was written for it.
    pub fn real(&mut self, key: &str, value: f64) -> Number {
        self.setting(key, value, Kind::Real)
    }

    fn setting(&mut self, key: &str, value: f64, kind: Kind) -> Number {
        let literal = Number::of(value, kind);
        let Some(expression) = self.layer.expressions.get(key) else { return literal };
        let expression = expression.clone();
        if kind == Kind::Real {
            for name in expression.arguments() {
                if let Some((number, _)) = self.emitter.frame().arguments.get_mut(name) {
                    number.kind = Kind::Real;
                }
            }
        }
        self.expression(&expression, value, kind).unwrap_or(literal)
    }

    fn expression(&mut self, expression: &Expression, value: f64, kind: Kind) -> Option<Number> {
        let arguments = &self.emitter.frame().symbols();
        Number::written(expression, value, kind, |name| arguments.get(name).cloned())
    }

    /// The channels of the result.
    pub fn gives(&mut self, channels: Number) {
        self.out = Some(channels);
    }

    /// Notes a function that the program defines.
    pub fn helper(&mut self, text: &'static str) {
        self.emitter.helpers.insert(text);
    }

    /// The path of the layer's module within the class.
    pub fn path(&mut self) -> Option<String> {
        let full = self.layer.name.clone()?;
        full.strip_prefix(self.emitter.frame().prefix.as_str()).map(str::to_owned)
    }

    fn own_path(&mut self) -> Result<String, Diagnostic> {
        if !self.layer.is_module {
            return Err(self.refuse("a layer named `.` has no form in PyTorch yet"));
        }
        match self.path() {
            Some(path) => Ok(path),
            None => Err(self.refuse("a module of another class cannot be called here")),
        }
    }

    /// A module of the class, called on the present value.
    pub fn module(&mut self, constructor: Code) -> Result<Var, Diagnostic> {
        let path = self.own_path()?;
        let when = self.when();
        if self.emitter.is_variant(&path, when.as_ref()) {
            // The call is there: of the module that is off.
            let off = self.emitter.frame().children.iter().all(|child| child.path != path || child.code.is_none());
            self.emitter.register(&path, Some(constructor), when);
            return if off { Ok(self.x) } else { Err(self.refuse("two modules of one name are switched on")) };
        }
        let target = self.fresh();
        self.emitter.call(&path, constructor, vec![Code::value(self.x)], vec![target], when);
        Ok(target)
    }

    /// As [`Self::module`], called on another value.
    pub fn module_on(&mut self, x: Var, constructor: Code) -> Result<Var, Diagnostic> {
        let before = std::mem::replace(&mut self.x, x);
        let y = self.module(constructor);
        self.x = before;
        y
    }

    /// A module with these arguments if the layer has a name, otherwise a function of `x` with the same.
    pub fn either_on(&mut self, x: Var, class: &str, function: &str, arguments: Vec<Code>) -> Result<Var, Diagnostic> {
        match self.layer.name {
            Some(_) => self.module_on(x, Code::call(class, arguments)),
            None => Ok(self.function(Code::applied(function, x, arguments))),
        }
    }

    /// Whether a setting was written as an expression.
    pub fn is_written(&self, key: &str) -> bool {
        self.layer.expressions.contains_key(key)
    }

    /// A module of the class, to be called in a special way.
    pub fn registered(&mut self, constructor: Code) -> Result<Code, Diagnostic> {
        let path = self.own_path()?;
        self.emitter.register(&path, Some(constructor), None);
        Ok(Code { pieces: vec![Piece::Child(path)], binding: Binding::Tight })
    }

    /// A module of the class if the layer has a name, otherwise an expression of the present value.
    pub fn either(&mut self, constructor: Code, function: Code) -> Result<Var, Diagnostic> {
        if self.layer.name.is_some() { self.module(constructor) } else { Ok(self.function(function)) }
    }

    /// An expression. If the layer has a name, its place in the numbering of modules is kept.
    pub fn function(&mut self, code: Code) -> Var {
        self.emitter.function(code)
    }

    /// An expression of the present value alone; a module if the layer has a name.
    pub fn pure(&mut self, code: Code) -> Result<Var, Diagnostic> {
        if self.layer.name.is_none() || code.values().iter().any(|var| *var != self.x) {
            return Ok(self.function(code));
        }
        self.helper(APPLY);
        let inner = code.filled(&|piece| match piece {
            Piece::Value(..) => Some(Code::text("x")),
            Piece::Text(_) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
            Piece::Child(_) | Piece::New(_) | Piece::Row(_) => None,
        });
        self.module(Code::call("Apply", vec![inner.around("lambda x: ", "", Binding::Loose)]))
    }

    /// Expressions with several results.
    pub fn functions(&mut self, code: Code, results: usize) -> Vec<Var> {
        let targets: Vec<Var> = (0..results).map(|_| self.fresh()).collect();
        self.emitter.frame().statements.push(Statement { targets: targets.clone(), code, repeat: None });
        targets
    }

    /// A parameter of the class, under the name of the layer.
    pub fn parameter(&mut self, start: Code) -> Result<Code, Diagnostic> {
        let path = self.own_path()?;
        self.parameter_called(&path, start)
    }

    /// A parameter of the class.
    pub fn parameter_called(&mut self, path: &str, start: Code) -> Result<Code, Diagnostic> {
        let code = Code::call("nn.Parameter", vec![start]);
        self.emitter.register(path, Some(code), None);
        if let Some(child) = self.emitter.frame().children.iter_mut().find(|child| child.path == path) {
            child.parameter = true;
        }
        Ok(Code { pieces: vec![Piece::Child(path.to_owned())], binding: Binding::Tight })
    }

    /// A parameter of the class, by its full name.
    pub fn parameter_beside(&mut self, full: &str, start: Code) -> Result<Code, Diagnostic> {
        let prefix = self.emitter.frame().prefix.clone();
        match full.strip_prefix(prefix.as_str()) {
            Some(path) => self.parameter_called(path, start),
            None => Err(self.refuse(format!("`{full}` belongs to another class"))),
        }
    }

    /// A parameter with this full name, which may belong to a class around this one.
    pub fn parameter_named(&mut self, full: &str) -> Result<Code, Diagnostic> {
        let owner = self.emitter.frames.iter().rposition(|frame| full.starts_with(&frame.prefix));
        let Some(owner) = owner else { return Err(self.refuse(format!("`{full}` belongs to another class"))) };
        let innermost = owner + 1 == self.emitter.frames.len();
        let frame = &mut self.emitter.frames[owner];
        let pieces = vec![Piece::Child(full[frame.prefix.len()..].to_owned())];
        let code = Code { pieces, binding: Binding::Tight };
        if innermost {
            return Ok(code);
        }
        let dims = vec![Number::count(1); 2];
        let var = frame.value(Value { dims, hint: Some("weight".to_owned()) });
        frame.statements.push(Statement { targets: vec![var], code, repeat: None });
        let frames = self.emitter.around()[..=owner].to_vec();
        self.emitter.taps.insert(full.to_owned(), Home { frames, var });
        Ok(Code::value(self.emitter.tapped(full)))
    }

    /// Number of rows of a table, by the full name of the parameter.
    pub fn rows_of(&mut self, parameter: &str) -> Option<Number> {
        let (prefix, number) = self.emitter.tables.get(parameter).cloned()?;
        (number.is_literal() || prefix == self.emitter.frame().prefix).then_some(number)
    }

    /// Notes the number of rows of the layer's table.
    pub fn table(&mut self, rows: Number) {
        let prefix = self.emitter.frame().prefix.clone();
        if let Some(name) = &self.layer.name {
            self.emitter.tables.insert(format!("{name}.weight"), (prefix, rows));
        }
    }

    /// Declares that a parameter is another one under a second name.
    pub fn tie(&mut self, name: String, other: String) {
        self.emitter.ties.push((name, other));
    }

    /// The value of a tap.
    pub fn tap(&mut self, tap: &str) -> Var {
        self.emitter.tapped(tap)
    }

    /// Extents of a value that is not the present one.
    pub fn dims(&mut self, var: Var) -> Vec<usize> {
        self.emitter.frame().values[var.0].dims.iter().map(|dim| dim.value as usize).collect()
    }

    /// Keeps a value under the name of a tap.
    pub fn keep(&mut self, tap: &str, var: Var) {
        self.emitter.keep(tap, var);
    }

    /// Suggests a name for a value.
    pub fn named(&mut self, var: Var, name: &str) {
        self.emitter.frame().values[var.0].hint = Some(name.to_owned());
    }

    /// Declares the extents of a value that is not the result.
    pub fn shaped(&mut self, var: Var, dims: &[usize]) {
        self.emitter.frame().values[var.0].dims = dims.iter().map(|dim| Number::count(*dim)).collect();
    }

    fn fresh(&mut self) -> Var {
        self.emitter.frame().value(Value { dims: Vec::new(), hint: None })
    }

    /// Full name of the layer.
    pub fn name(&self) -> Option<&str> {
        self.layer.name.as_deref()
    }

    /// The argument that switches the layer on.
    fn when(&mut self) -> Option<String> {
        switch(self.layer.expressions.get("enabled")?, &self.emitter.frame().symbols())
    }

    /// The layers of a list, from a value.
    pub fn body(&mut self, body: &Body, x: Var) -> Result<Var, Diagnostic> {
        self.emitter.row(body, x)
    }

    /// Layers whose modules exist and are never called.
    pub fn unused(&mut self, body: &Body) -> Result<(), Diagnostic> {
        let x = self.x;
        let before = self.emitter.frame().statements.len();
        self.emitter.row(body, x)?;
        self.emitter.frame().statements.truncate(before);
        Ok(())
    }

    /// What is inside a module, if the layer has a name: a class of its own, unless it is modules in a row.
    pub fn inside(
        &mut self,
        write: impl FnOnce(&mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let x = self.x;
        if self.layer.name.is_none() {
            return write(self.emitter, x);
        }
        let path = self.own_path()?;
        let when = self.when();
        let mut usage =
            Usage::new(self.layer.path.as_str(), label(&path), &format!("{}{path}.", self.emitter.frame().prefix));
        usage.own = false;
        usage.around = self.emitter.frame().symbols();
        usage.names = self.emitter.frame().own_names();
        let inner = self.emitter.enter(usage, x);
        let y = write(self.emitter, inner)?;
        let returns: Vec<String> = self.layer.returns.values().cloned().collect();
        let left = self.emitter.leave(&path, x, y, when, &returns);
        left.ok_or_else(|| self.refuse("a module without a place"))
    }

    /// A use of a block, with these values of its arguments.
    pub fn block(&mut self, block: &str, given: &Given, body: &Body) -> Result<Var, Diagnostic> {
        let arguments = self.arguments(block, given);
        let (x, path, when) = (self.x, self.path(), self.when());
        let Some(path) = path.filter(|_| self.layer.name.is_some()) else {
            // Its modules are those of the class around it.
            let before = self.emitter.frame().blocks(arguments);
            let y = self.emitter.row(body, x)?;
            self.emitter.frame().inlined = before;
            return Ok(y);
        };
        self.use_block(block, &path, arguments, body, when)
    }

    fn use_block(
        &mut self,
        block: &str,
        path: &str,
        arguments: BTreeMap<String, Number>,
        body: &Body,
        when: Option<String>,
    ) -> Result<Var, Diagnostic> {
        let x = self.x;
        let usage = self.usage(block, path, arguments);
        let inner = self.emitter.enter(usage, x);
        let y = self.emitter.row(body, inner)?;
        let returns: Vec<String> = self.layer.returns.values().cloned().collect();
        let left = self.emitter.leave(path, x, y, when, &returns);
        left.ok_or_else(|| self.refuse("a module without a place"))
    }

    fn usage(&mut self, block: &str, path: &str, arguments: BTreeMap<String, Number>) -> Usage {
        let prefix = format!("{}{path}.", self.emitter.frame().prefix);
        let mut usage = Usage::new(block, block, &prefix);
        for (name, default) in self.emitter.model.blocks.get(block).into_iter().flat_map(|block| &block.args) {
            if let Some(number) = arguments.get(name) {
                usage.arguments.insert(name.clone(), (number.clone(), *default));
            }
        }
        if let Some(classes) = arguments.get("classes") {
            usage.arguments.insert("num_classes".into(), (classes.clone(), None));
        }
        usage
    }

    /// Arguments of a block as numbers of the class around it.
    fn arguments(&mut self, block: &str, given: &Given) -> BTreeMap<String, Number> {
        let mut arguments = BTreeMap::new();
        let declared = self.emitter.model.blocks.get(block);
        for (name, default) in declared.into_iter().flat_map(|block| block.args.clone()) {
            let Some(value) = given.get(&name).map(|(value, _)| *value).or(default) else { continue };
            let number = Number::scalar(value);
            let written = given.get(&name).and_then(|(_, key)| self.layer.expressions.get(&format!("{key}.{name}")));
            let written = written.cloned().and_then(|text| self.expression(&text, number.value, number.kind));
            arguments.insert(name, written.unwrap_or(number));
        }
        if let Some(classes) = self.emitter.frame().symbols().get("classes") {
            arguments.insert("classes".into(), classes.clone());
        }
        arguments
    }

    /// A block several times in a row; each item comes with its arguments.
    pub fn stack(&mut self, block: &str, items: &[(&ResolvedLayer, Given, &Body)]) -> Result<Var, Diagnostic> {
        let names: Vec<String> =
            items.iter().filter_map(|(item, ..)| item.name.clone()?.rsplit('.').next().map(str::to_owned)).collect();
        let first = items.first().and_then(|(item, ..)| item.name.clone()).unwrap_or_default();
        let full = first.rsplit_once('.').map_or("", |(before, _)| before).to_owned();
        let prefix = self.emitter.frame().prefix.clone();
        let Some(path) =
            format!("{full}.").strip_prefix(prefix.as_str()).map(|path| path.trim_end_matches('.').to_owned())
        else {
            return Err(self.refuse("a stack of another class"));
        };
        let x = self.x;
        let before = (self.emitter.frame().children.len(), self.emitter.frame().statements.len());
        let mut y = x;
        for ((item, given, body), name) in items.iter().zip(&names) {
            let [input, output] = self.emitter.shape();
            let arguments = self.arguments(block, given);
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let mut at = At { emitter: &mut *self.emitter, layer: item, x: y, input, output, out: None };
            y = at.use_block(block, &path, arguments, body, None)?;
        }
        self.emitter.frame().join_row(&path, before, x, y);
        Ok(y)
    }
}

/// The argument of the class that an expression is, if it is one.
fn switch(expression: &Expression, symbols: &BTreeMap<String, Number>) -> Option<String> {
    let number = symbols.get(expression.arguments().next()?)?;
    let name = number.names().next()?.to_owned();
    (number.to_string() == name).then_some(name)
}

/// The name of a class after the last part of a path.
fn label(path: &str) -> &str {
    path.rsplit('.').find(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or("part")
}
