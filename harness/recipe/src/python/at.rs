//! What a layer says of itself when it is written: modules, expressions, parameters, values.

use indexmap::IndexMap;
use zoo_graph::Shape;

use super::code::{Binding, Code, Piece, Var};
use super::emitter::Emitter;
use super::number::{Kind, Number};
use super::usage::{Home, Statement, Value};
use crate::diagnostic::Diagnostic;
use crate::site::Site;
use crate::values::{Expression, Scalar};

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
    pub(super) emitter: &'e mut Emitter<'a>,
    pub(super) layer: Site<'e>,
    pub(super) x: Var,
    pub(super) input: Shape,
    pub(super) output: Shape,
    pub(super) out: Option<Number>,
}

impl<'a> At<'_, 'a> {
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

    /// The extent of the last axis of a value.
    pub fn last_of(&mut self, var: Var) -> Number {
        let dims = &self.emitter.frame().values[var.0].dims;
        dims.last().cloned().unwrap_or_else(|| Number::count(1))
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

    pub(super) fn expression(&mut self, expression: &Expression, value: f64, kind: Kind) -> Option<Number> {
        let arguments = &self.emitter.frame().symbols();
        Number::written(expression, value, kind, |name| arguments.get(name).cloned())
    }

    /// The channels of the result.
    pub fn gives(&mut self, channels: Number) {
        self.out = Some(channels);
    }

    /// Notes a function that the program defines.
    pub fn helper(&mut self, text: &'static str) {
        self.emitter.helper(text);
    }

    /// The path of the layer's module within the class.
    pub fn path(&mut self) -> Option<String> {
        let full = self.layer.name?;
        full.strip_prefix(self.emitter.frame().prefix.as_str()).map(str::to_owned)
    }

    pub(super) fn own_path(&mut self) -> Result<String, Diagnostic> {
        if !self.layer.is_module {
            return Err(self.refuse("a layer named `.` has no form as a module yet"));
        }
        match self.path() {
            Some(path) if path.split('.').any(|name| self.emitter.dialect.is_attribute(name)) => {
                let framework = self.emitter.dialect.name();
                let message = "has an attribute of a name in";
                Err(self.refuse(format!("every module of {framework} {message} `{path}`: choose another name")))
            }
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
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => None,
        });
        self.module(Code::call("Apply", vec![inner.around("lambda x: ", "", Binding::Loose)]))
    }

    /// Expressions with several results.
    pub fn functions(&mut self, code: Code, results: usize) -> Vec<Var> {
        let code = self.emitter.worded(code);
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
        let spelt = self.emitter.spelt(full);
        let frame = &mut self.emitter.frames[owner];
        let pieces = vec![Piece::Child(spelt[frame.prefix.len()..].to_owned())];
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

    /// A module that is not called here, by its full name, unless it is there.
    pub fn module_beside(&mut self, full: &str, constructor: Code) -> Result<(), Diagnostic> {
        if self.emitter.modules.contains_key(full) {
            return Ok(());
        }
        let Some(owner) = self.emitter.frames.iter().rposition(|frame| full.starts_with(&frame.prefix)) else {
            return Err(self.refuse(format!("`{full}` belongs to another class")));
        };
        let inner = self.emitter.frames.split_off(owner + 1);
        let path = full[self.emitter.frame().prefix.len()..].to_owned();
        self.emitter.register(&path, Some(constructor), None);
        self.emitter.frames.extend(inner);
        Ok(())
    }

    /// Number of rows of a table, by the full name of the parameter.
    pub fn rows_of(&mut self, parameter: &str) -> Option<Number> {
        let (prefix, number) = self.emitter.tables.get(parameter).cloned()?;
        (number.is_literal() || prefix == self.emitter.frame().prefix).then_some(number)
    }

    /// Notes the number of rows of the layer's table.
    pub fn table(&mut self, rows: Number) {
        let prefix = self.emitter.frame().prefix.clone();
        if let Some(name) = self.layer.name {
            self.emitter.tables.insert(format!("{name}.weight"), (prefix, rows));
        }
    }

    /// Declares that a parameter is another one under a second name.
    pub fn tie(&mut self, name: String, other: String) {
        let other = self.emitter.spelt(&other);
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

    pub(super) fn fresh(&mut self) -> Var {
        self.emitter.frame().value(Value { dims: Vec::new(), hint: None })
    }

    /// Full name of the layer.
    pub fn name(&self) -> Option<&str> {
        self.layer.name
    }

    /// The argument that switches the layer on.
    pub(super) fn when(&mut self) -> Option<String> {
        self.emitter.frame().switch(self.layer.expressions.get("enabled")?)
    }

    /// The program that is being written.
    pub fn emitter(&mut self) -> &mut Emitter<'a> {
        self.emitter
    }

    /// Layers whose modules exist and are never called.
    pub fn unused(
        &mut self,
        write: impl FnOnce(&mut Emitter<'_>, Var) -> Result<Var, Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let before = self.emitter.frame().statements.len();
        write(self.emitter, self.x)?;
        self.emitter.frame().statements.truncate(before);
        Ok(())
    }
}

impl Emitter<'_> {
    /// A layer from a value: `write` writes it at its place.
    pub fn layer(
        &mut self,
        layer: Site<'_>,
        x: Var,
        write: impl FnOnce(&mut At<'_, '_>) -> Result<Var, Diagnostic>,
    ) -> Result<Var, Diagnostic> {
        let [input, output] = self.shape();
        let known = self.frame().values.len();
        let mut at = At { emitter: self, layer, x, input, output: output.clone(), out: None };
        let y = write(&mut at)?;
        let out = at.out.take();
        if let Some(reason) = at.emitter.refused.take() {
            return Err(at.refuse(reason));
        }
        if y.0 >= known && self.frame().values[y.0].dims.is_empty() {
            let dims = self.dims(x, &output, out);
            self.frame().values[y.0].dims = dims;
        }
        Ok(y)
    }
}
