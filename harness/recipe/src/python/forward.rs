//! The body of `forward`: which values get names, and which are written where they are used.

use std::collections::{HashMap, HashSet};

use super::code::{Code, Piece, Var};
use super::names::{identifier, is_taken};
use super::usage::{Repeat, Statement, Usage};

/// Longest expression into which others are written.
const INLINE: usize = 92;

/// Most calls inside each other.
const NESTED: usize = 3;

/// Removes what no result needs, but for calls of modules: they have statistics, losses read what they keep, and each
/// has its number.
pub(super) fn prune(usage: &mut Usage) {
    let mut needed: HashSet<Var> = usage.outputs.iter().map(|(_, var)| *var).collect();
    let mut kept = Vec::new();
    for statement in usage.statements.drain(..).rev() {
        let calls = matches!(statement.code.pieces[..], [Piece::Child(_), .., Piece::List("(", ..)]);
        if calls || statement.targets.iter().any(|target| needed.contains(target)) {
            needed.extend(statement.code.values());
            kept.push(statement);
        }
    }
    kept.reverse();
    usage.statements = kept;
}

/// The arguments and the lines of `forward`. `child` gives the reference to a module, `outputs` what is returned;
/// `defined` are the functions of the program.
pub(super) fn forward(
    usage: &Usage,
    child: &dyn Fn(&str) -> String,
    outputs: Code,
    root: bool,
    defined: &HashSet<String>,
) -> Forward {
    let counts = uses(&usage.statements, &outputs);
    let mut statements: Vec<Statement> = Vec::new();
    let mut pending: Vec<Pending> = Vec::new();
    let last = Statement { targets: Vec::new(), code: outputs, repeat: None };
    for statement in usage.statements.iter().chain([&last]) {
        let code = statement.code.filled(&|piece| match piece {
            Piece::Child(path) => Some(Code::text(child(path))),
            Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
            Piece::New(_) | Piece::Row(..) => None,
        });
        let repeat = statement.repeat.clone();
        if repeat.is_some() {
            let all = pending.len();
            flush(&pending, all, &mut statements);
            pending.clear();
        }
        let (code, depth) = inlined(code, &mut pending, &mut statements);
        match statement.targets[..] {
            [target] if counts.get(&target) == Some(&1) && repeat.is_none() => {
                pending.push(Pending { target, code, depth });
            }
            _ => statements.push(Statement { targets: statement.targets.clone(), code, repeat }),
        }
    }
    let mut names = Names::new(usage, &statements, root, defined);
    let line = |(index, statement): (usize, &Statement)| {
        let (start, code) = names.line(index, statement);
        (start, code, statement.repeat.clone())
    };
    let lines = statements.iter().enumerate().map(line).collect();
    Forward { arguments: names.arguments, statements: lines }
}

/// A function, ready to be laid out.
pub(super) struct Forward {
    /// Names of the arguments.
    pub arguments: Vec<String>,
    /// What stands before each expression (`x = `, `return `), and the expression; in a loop if it stands for several.
    pub statements: Vec<(String, Code, Option<Repeat>)>,
}

/// A value that is used once, and has not been needed yet.
struct Pending {
    target: Var,
    code: Code,
    depth: usize,
}

fn uses(statements: &[Statement], outputs: &Code) -> HashMap<Var, usize> {
    let mut counts = HashMap::new();
    for code in statements.iter().map(|statement| &statement.code).chain([outputs]) {
        code.values().into_iter().for_each(|var| *counts.entry(var).or_default() += 1);
    }
    counts
}

/// Writes pending values into the expression that uses them, as far as they fit and the order of evaluation stays; the
/// others become statements.
fn inlined(code: Code, pending: &mut Vec<Pending>, statements: &mut Vec<Statement>) -> (Code, usize) {
    let operands = code.values();
    let mut from = pending.len();
    let mut limit = operands.len();
    while from > 0 {
        let Some(place) = operands[..limit].iter().position(|var| *var == pending[from - 1].target) else { break };
        limit = place;
        from -= 1;
    }
    let calls = code.pieces.iter().any(|piece| matches!(piece, Piece::List("(", _, _)));
    while from < pending.len() {
        let chosen = &pending[from..];
        let filled = code.filled(&|piece| match piece {
            Piece::Value(var, _) => chosen.iter().find(|one| one.target == *var).map(|one| one.code.clone()),
            Piece::Text(_) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => None,
        });
        let depth = chosen.iter().map(|one| one.depth).max().unwrap_or(0) + usize::from(calls);
        // A value without a name yet counts like a short one.
        if filled.flat().chars().count() + 4 * filled.values().len() <= INLINE && depth <= NESTED {
            flush(pending, from, statements);
            pending.clear();
            return (filled, depth);
        }
        from += 1;
    }
    let all = pending.len();
    flush(pending, all, statements);
    pending.clear();
    (code, usize::from(calls))
}

fn flush(pending: &[Pending], until: usize, statements: &mut Vec<Statement>) {
    let early = pending[..until].iter();
    statements.extend(early.map(|one| Statement { targets: vec![one.target], code: one.code.clone(), repeat: None }));
}

/// Names of values.
struct Names<'u> {
    usage: &'u Usage,
    /// Functions of the program, which a variable would hide.
    defined: &'u HashSet<String>,
    /// The last statement that uses each value.
    last: HashMap<Var, usize>,
    names: HashMap<Var, String>,
    arguments: Vec<String>,
}

impl<'u> Names<'u> {
    fn new(usage: &'u Usage, statements: &[Statement], root: bool, defined: &'u HashSet<String>) -> Self {
        let mut last = HashMap::new();
        for (index, statement) in statements.iter().enumerate() {
            statement.code.values().into_iter().for_each(|var| _ = last.insert(var, index));
        }
        let mut names = Self { usage, defined, last, names: HashMap::new(), arguments: Vec::new() };
        let single = !root || usage.inputs.len() == 1;
        for (index, (tap, var)) in usage.inputs.iter().enumerate() {
            let present = index == 0 && (tap.is_empty() || root && single);
            let own = if present { "x" } else { tap.rsplit('.').next().unwrap_or("x") };
            let name = names.free(own, 0);
            names.arguments.push(name.clone());
            names.names.insert(*var, name);
            names.last.entry(*var).or_insert(0);
        }
        names
    }

    /// Whether a value with this name is still needed after a statement.
    fn live(&self, name: &str, after: usize) -> bool {
        self.names.iter().any(|(var, known)| known == name && self.last.get(var).is_some_and(|last| *last > after))
    }

    fn free(&self, wish: &str, after: usize) -> String {
        let mut wish = identifier(wish);
        if is_taken(&wish) || self.defined.contains(&wish) {
            wish.push('_');
        }
        let argument = |name: &String| after == 0 && self.arguments.contains(name);
        let numbered = (2..).map(|n| format!("{wish}{n}"));
        let mut names = std::iter::once(wish.clone()).chain(numbered);
        names.find(|name| !self.live(name, after) && !argument(name)).unwrap_or_default()
    }

    fn line(&mut self, index: usize, statement: &Statement) -> (String, Code) {
        let operands = statement.code.values();
        let code = statement.code.filled(&|piece| match piece {
            Piece::Value(var, _) => Some(Code::text(self.names.get(var).cloned().unwrap_or_else(|| "x".to_owned()))),
            Piece::Text(_) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => None,
        });
        if statement.targets.is_empty() {
            return ("return ".to_owned(), code);
        }
        let mut targets = Vec::new();
        for target in &statement.targets {
            let name = match (&statement.repeat, operands.first().and_then(|var| self.names.get(var))) {
                (Some(_), Some(name)) => name.clone(),
                _ => self.choose(*target, index, &operands, statement),
            };
            self.names.insert(*target, name.clone());
            targets.push(name);
        }
        (format!("{} = ", targets.join(", ")), code)
    }

    fn choose(&self, target: Var, index: usize, operands: &[Var], statement: &Statement) -> String {
        let Some(last) = self.last.get(&target) else { return "_".to_owned() };
        let hint = self.usage.values.get(target.0).and_then(|value| value.hint.as_deref());
        if let Some(hint) = hint.filter(|_| *last > index + 1 || statement.targets.len() > 1) {
            return self.free(hint, index);
        }
        if !self.live("x", index) {
            return "x".to_owned();
        }
        let dying = |var: &&Var| self.last.get(var).is_some_and(|last| *last <= index);
        let continued = operands.iter().find(dying).and_then(|var| self.names.get(var));
        if let Some(name) = continued.filter(|name| !self.live(name, index)) {
            return name.clone();
        }
        let called = statement.code.pieces.first().and_then(|piece| match piece {
            Piece::Text(text) => text.strip_prefix("self.").map(str::to_owned),
            Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => None,
        });
        match hint.map(str::to_owned).or_else(|| called.filter(|_| self.live("out", index))) {
            Some(wish) => self.free(&wish, index),
            None => self.free("out", index),
        }
    }
}
