//! One use of a class: its modules and what `forward` does.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use super::code::{Binding, Code, Holder, Piece, Var};
use super::number::Number;
use crate::values::{Expression, Scalar};

/// The key of the network's class, which no block has.
pub(super) const ROOT: &str = "";

/// A use of a class, with the values of this use.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// The same for all uses of one class: the name of the block, or the place of the layer in the recipe.
    pub key: String,
    /// What the class is named after.
    pub label: String,
    /// Full name of the module with a dot behind it, or nothing.
    pub prefix: String,
    /// Whether it has arguments of its own, as a block; otherwise it uses those of the class around it.
    pub own: bool,
    /// Arguments: their values in terms of the class around, and their defaults.
    pub arguments: IndexMap<String, (Number, Option<Scalar>)>,
    /// What `$name` means inside, if it is not an own argument.
    pub around: BTreeMap<String, Number>,
    /// Arguments of the class around, if this has none of its own.
    pub names: BTreeMap<String, Number>,
    /// What `$name` means inside a block that is no module.
    pub inlined: Option<BTreeMap<String, Number>>,
    /// Modules and parameters.
    pub children: Vec<Child>,
    /// What `forward` computes.
    pub statements: Vec<Statement>,
    /// Arguments of `forward`: the present value, then taps by name.
    pub inputs: Vec<(String, Var)>,
    /// Results of `forward`, by name.
    pub outputs: Vec<(String, Var)>,
    /// How many results stay even if nothing needs them.
    pub returns: usize,
    /// Whether the results are a dict, by their names.
    pub named: bool,
    /// By number, what is known of each value.
    pub values: Vec<Value>,
}

/// A module or a parameter of a class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Child {
    /// Its name within the class, with dots if it is inside others.
    pub path: String,
    /// What makes it; `None` if it is switched off in this use.
    pub code: Option<Code>,
    /// The argument that switches it on.
    pub when: Option<String>,
    /// Whether it is a parameter.
    pub parameter: bool,
    /// Whether it stands for several, numbered behind their path; `i` counts them in `code`.
    pub repeat: Option<Repeat>,
}

/// Modules, or calls, that differ in their number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repeat {
    /// The first number.
    pub start: usize,
    /// How many there are.
    pub count: Number,
}

/// `targets = code`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// What is computed.
    pub targets: Vec<Var>,
    /// How.
    pub code: Code,
    /// Whether it stands for several, of which each works on the result of the one before.
    pub repeat: Option<Repeat>,
}

/// A value of `forward`.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    /// Its extents, batch included.
    pub dims: Vec<Number>,
    /// A name for it.
    pub hint: Option<String>,
}

impl Usage {
    /// A use without content.
    pub fn new(key: &str, label: &str, prefix: &str) -> Self {
        Self {
            key: key.to_owned(),
            label: label.to_owned(),
            prefix: prefix.to_owned(),
            own: true,
            arguments: IndexMap::new(),
            around: BTreeMap::new(),
            names: BTreeMap::new(),
            inlined: None,
            children: Vec::new(),
            statements: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            returns: 0,
            named: false,
            values: Vec::new(),
        }
    }

    /// A new value.
    pub fn value(&mut self, value: Value) -> Var {
        self.values.push(value);
        Var(self.values.len() - 1)
    }

    /// A new value that an expression gives.
    pub fn assigned(&mut self, code: Code) -> Var {
        let target = self.value(Value { dims: Vec::new(), hint: None });
        self.statements.push(Statement { targets: vec![target], code, repeat: None });
        target
    }

    /// The value of an argument in this use.
    pub fn value_of(&self, argument: &str) -> Option<f64> {
        self.arguments.get(argument).map(|(number, _)| number.value)
    }

    /// The arguments of the class that constructs what is inside.
    pub fn own_names(&self) -> BTreeMap<String, Number> {
        if !self.own {
            return self.names.clone();
        }
        let named = |(name, (number, _)): (&String, &(Number, _))| {
            (name.clone(), Number::argument(name, number.value, number.kind))
        };
        self.arguments.iter().map(named).collect()
    }

    /// What `$name` means here.
    pub fn symbols(&self) -> BTreeMap<String, Number> {
        if let Some(inlined) = &self.inlined {
            return inlined.clone();
        }
        if !self.own {
            return self.around.clone();
        }
        let mut symbols = self.own_names();
        if let Some(classes) = symbols.get("num_classes").cloned() {
            symbols.insert("classes".into(), classes);
        }
        symbols
    }

    /// The argument of the class that an expression is, if it is one.
    pub fn switch(&self, expression: &Expression) -> Option<String> {
        let number = self.symbols().remove(expression.arguments().next()?)?;
        let name = number.names().next()?.to_owned();
        (number.to_string() == name).then_some(name)
    }

    /// Inside a block that is no module; returns what was before.
    pub fn blocks(&mut self, arguments: BTreeMap<String, Number>) -> Option<BTreeMap<String, Number>> {
        self.inlined.replace(arguments)
    }

    /// A number of this class in terms of the class around it.
    pub fn outside(&self, number: &Number) -> Number {
        if !self.own {
            return number.clone();
        }
        let argument = |name: &str| self.arguments.get(name).map(|(outer, _)| outer.clone());
        number.replaced(&argument).unwrap_or_else(|| number.literal())
    }

    /// Its modules in a row, if it is nothing else.
    pub fn as_row(&self) -> Option<Code> {
        let ([(_, x)], [(_, y)]) = (&self.inputs[..], &self.outputs[..]) else { return None };
        if self.own || self.named || self.children.is_empty() {
            return None;
        }
        let items = row(&self.children, &self.statements, "", *x, *y)?;
        Some(Code { pieces: vec![Piece::Row(Holder::Sequential, items)], binding: Binding::Tight })
    }

    /// Its numbered modules in a row, if it is nothing else.
    pub fn as_sequential(&self) -> Option<Vec<(String, Code)>> {
        let ([(_, x)], [(_, y)]) = (&self.inputs[..], &self.outputs[..]) else { return None };
        if self.named {
            return None;
        }
        let mut children: Vec<Child> = Vec::new();
        for child in &self.children {
            let code = child.code.clone()?;
            let same = children.last_mut().filter(|last| last.path == child.path);
            let other = same.as_ref().and_then(|last| last.code.clone()).unwrap_or_else(|| Code::text("nn.Identity()"));
            let code = match &child.when {
                Some(when) => either(code, when, other),
                None => code,
            };
            match same {
                Some(last) => last.code = Some(code),
                None => children.push(Child { code: Some(code), when: None, ..child.clone() }),
            }
        }
        let items = row(&children, &self.statements, "", *x, *y)?;
        items.iter().enumerate().all(|(index, (name, _))| *name == index.to_string()).then_some(items)
    }

    /// Makes one holder of the modules that were added since, if they are called in a row from `x` to `y`.
    pub fn join_row(&mut self, path: &str, holder: Holder, (children, statements): (usize, usize), x: Var, y: Var) {
        let inside = format!("{path}.");
        if path.is_empty() || self.children[..children].iter().any(|child| child.path.starts_with(&inside)) {
            return;
        }
        let Some(items) = row(&self.children[children..], &self.statements[statements..], &inside, x, y) else {
            return;
        };
        let numbered = items.iter().enumerate().all(|(index, (name, _))| *name == index.to_string());
        if holder == Holder::List && !numbered {
            return;
        }
        self.children.truncate(children);
        self.statements.truncate(statements);
        let repeat = (holder == Holder::List).then(|| Repeat { start: 0, count: Number::count(items.len()) });
        let row = Code { pieces: vec![Piece::Row(holder, items)], binding: Binding::Tight };
        let child = Child { path: path.to_owned(), code: Some(row), when: None, parameter: false, repeat: None };
        self.children.push(child);
        let mut pieces = vec![Piece::Child(path.to_owned())];
        pieces.extend(repeat.is_some().then(|| Piece::Text("[i]".to_owned())));
        pieces.push(Piece::List("(", vec![Code::value(x)], ")"));
        let code = Code { pieces, binding: Binding::Tight };
        self.statements.push(Statement { targets: vec![y], code, repeat });
    }

    /// The classes whose instances it makes, by the numbers of their uses.
    pub fn inside(&self) -> BTreeSet<usize> {
        let mut inside = BTreeSet::new();
        for code in self.children.iter().filter_map(|child| child.code.as_ref()) {
            code.visit(&mut |piece| {
                if let Piece::New(used) = piece {
                    inside.insert(*used);
                }
            });
        }
        inside
    }

    /// Numbers the values in the order in which they come, so that uses of one class agree.
    pub fn renumber(&mut self) {
        let targets = self.statements.iter().flat_map(|statement| statement.targets.iter().copied());
        let order: Vec<Var> = self.inputs.iter().map(|(_, var)| *var).chain(targets).collect();
        let place = |var: &mut Var| {
            if let Some(place) = order.iter().position(|known| known == var) {
                *var = Var(place);
            }
        };
        for statement in &mut self.statements {
            statement.targets.iter_mut().for_each(place);
            statement.code.visit_mut(&mut |piece| {
                if let Piece::Value(var, _) = piece {
                    place(var);
                }
            });
        }
        self.inputs.iter_mut().chain(&mut self.outputs).for_each(|(_, var)| place(var));
        self.values = order.iter().map(|var| self.values[var.0].clone()).collect();
    }

    /// Calls `each` with every number.
    pub fn numbers_mut(&mut self, each: &mut impl FnMut(&mut Number)) {
        let repeats = self.children.iter_mut().filter_map(|child| child.repeat.as_mut());
        repeats.for_each(|repeat| each(&mut repeat.count));
        let repeats = self.statements.iter_mut().filter_map(|statement| statement.repeat.as_mut());
        repeats.for_each(|repeat| each(&mut repeat.count));
        let codes = self.children.iter_mut().filter_map(|child| child.code.as_mut());
        for code in codes.chain(self.statements.iter_mut().map(|statement| &mut statement.code)) {
            code.visit_mut(&mut |piece| {
                if let Piece::Number(number) | Piece::Factor(number) = piece {
                    each(number);
                }
            });
        }
    }

    /// The numbers, in order.
    pub fn numbers(&self) -> Vec<Number> {
        let mut numbers = Vec::new();
        self.clone().numbers_mut(&mut |number| numbers.push(number.clone()));
        numbers
    }
}

/// `code if when else other`
fn either(code: Code, when: &str, other: Code) -> Code {
    let mut pieces = code.pieces;
    pieces.push(Piece::Text(format!(" if {} else ", super::names::legal(when))));
    pieces.extend(other.pieces);
    Code { pieces, binding: Binding::Loose }
}

/// Names and makers of modules, each called once on the result of the one before.
fn row(children: &[Child], statements: &[Statement], inside: &str, x: Var, y: Var) -> Option<Vec<(String, Code)>> {
    if children.len() != statements.len() || children.is_empty() {
        return None;
    }
    let mut before = x;
    let mut items = Vec::new();
    for (child, statement) in children.iter().zip(statements) {
        let name = child.path.strip_prefix(inside).filter(|name| !name.contains('.'))?;
        let call = vec![Piece::Child(child.path.clone()), Piece::List("(", vec![Code::value(before)], ")")];
        if statement.code.pieces != call || statement.targets.len() != 1 || child.when.is_some() || child.parameter {
            return None;
        }
        before = statement.targets[0];
        items.push((name.to_owned(), child.code.clone()?));
    }
    (before == y).then_some(items)
}

/// Where the value of a tap is.
#[derive(Clone)]
pub(super) struct Home {
    /// Keys and prefixes of the classes around the value.
    pub frames: Vec<(String, String)>,
    /// The value in the innermost.
    pub var: Var,
}
