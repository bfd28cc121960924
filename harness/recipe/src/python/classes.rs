//! From uses to classes: uses that differ in numbers only become one class with arguments.

use std::collections::{BTreeSet, HashMap, HashSet};

use indexmap::IndexMap;

use super::code::{Binding, Code, Piece};
use super::names::legal;
use super::number::{Kind, Number};
use super::repeat::fold;
use super::usage::{ROOT, Usage};
use crate::values::Scalar;

/// A class of the program.
pub(crate) struct Class {
    /// Its name.
    pub name: String,
    /// Arguments of its constructor.
    pub arguments: Vec<Argument>,
    /// Its content, in terms of the arguments.
    pub content: Usage,
}

/// An argument of a constructor.
#[derive(Clone)]
pub(crate) struct Argument {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Its default.
    pub default: Option<Scalar>,
}

/// How a class is made in one use.
#[derive(Clone)]
struct Maker {
    class: usize,
    values: IndexMap<String, Number>,
}

/// Arguments that come from the shape of the present value and not from the recipe.
const SHAPES: [&str; 4] = ["in_channels", "dim", "in_features", "skip_channels"];

/// The classes, each after those it contains; the last is the network, called `name`. `defined` are the names of other
/// classes and functions of the program.
pub(crate) fn classes(uses: Vec<Usage>, name: &str, defined: &HashSet<String>) -> Vec<Class> {
    let keys = keys(&uses);
    let mut groups: IndexMap<String, Vec<usize>> = IndexMap::new();
    for (index, key) in keys.iter().enumerate() {
        groups.entry(key.clone()).or_default().push(index);
    }
    let mut builder =
        Builder { makers: vec![None; uses.len()], uses, keys, classes: Vec::new(), names: HashSet::new() };
    let imported = ["Callable", "OrderedDict", "Parameter", "StochasticDepth", "Tensor", "None", "True", "False"];
    builder.names.extend(imported.map(str::to_owned).into_iter().chain([camel(name)]).chain(defined.iter().cloned()));
    let mut done = HashSet::new();
    for key in groups.keys() {
        builder.visit(key, &groups, &mut done, name);
    }
    builder.classes
}

/// Blocks that differ in a number behind their name may be one class.
fn stem(key: &str) -> &str {
    key.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_')
}

/// By use, the key of those that may be one class: the stem of their name, unless one of them contains another.
fn keys(uses: &[Usage]) -> Vec<String> {
    let mut inside: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for usage in uses {
        let inner = usage.inside().into_iter().map(|index| stem(&uses[index].key));
        inside.entry(stem(&usage.key)).or_default().extend(inner);
    }
    let nested = |stem: &str| {
        let (mut all, mut next) = (BTreeSet::new(), vec![stem]);
        while let Some(outer) = next.pop() {
            next.extend(inside.get(outer).into_iter().flatten().copied().filter(|inner| all.insert(*inner)));
        }
        all.contains(stem)
    };
    let key = |usage: &Usage| {
        let stem = stem(&usage.key);
        if nested(stem) { usage.key.clone() } else { stem.to_owned() }
    };
    uses.iter().map(key).collect()
}

struct Builder {
    uses: Vec<Usage>,
    /// By use, the group of those that may be one class.
    keys: Vec<String>,
    makers: Vec<Option<Maker>>,
    classes: Vec<Class>,
    names: HashSet<String>,
}

impl Builder {
    /// Makes the classes of a key, after those inside.
    fn visit(&mut self, key: &str, groups: &IndexMap<String, Vec<usize>>, done: &mut HashSet<String>, model: &str) {
        if !done.insert(key.to_owned()) {
            return;
        }
        let members = &groups[key];
        let inside = members.iter().flat_map(|index| self.uses[*index].inside());
        let inside: Vec<String> = inside.map(|index| self.keys[index].clone()).collect();
        inside.iter().for_each(|key| self.visit(key, groups, done, model));
        for index in members {
            self.make(*index);
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for index in members {
            let usage = &self.uses[*index];
            match parts.iter_mut().find(|part| alike(&self.uses[part[0]], usage)) {
                Some(part) => part.push(*index),
                None => parts.push(vec![*index]),
            }
        }
        for part in parts {
            self.class(&part, if key == ROOT { model } else { "" });
        }
    }

    /// Replaces new instances by calls of constructors.
    fn make(&mut self, index: usize) {
        let mut usage = self.uses[index].clone();
        for child in &mut usage.children {
            if let Some(code) = &mut child.code {
                *code = code.filled(&|piece| match piece {
                    Piece::New(used) => Some(self.constructor(*used)),
                    Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
                    Piece::Child(_) | Piece::Row(..) => None,
                });
            }
        }
        if !usage.own {
            let switches = usage.children.iter().filter_map(|child| child.when.clone());
            let numbers = usage.numbers();
            let used: BTreeSet<String> =
                numbers.iter().flat_map(Number::names).map(str::to_owned).chain(switches).collect();
            for (name, number) in usage.names.iter().filter(|(name, _)| used.contains(*name)) {
                usage.arguments.insert(name.clone(), (number.clone(), None));
            }
        }
        fold(&mut usage);
        usage.renumber();
        self.uses[index] = usage;
    }

    fn constructor(&self, used: usize) -> Code {
        let Some(maker) = &self.makers[used] else { return Code::text("None") };
        let class = &self.classes[maker.class];
        let mut positional = true;
        let mut arguments = Vec::new();
        for (n, argument) in class.arguments.iter().enumerate() {
            let Some(number) = maker.values.get(&argument.name) else { continue };
            let usual = argument.default.map(Number::scalar);
            if usual.is_some_and(|usual| number.is_literal() && usual.value == number.value) {
                positional = false;
                continue;
            }
            let value = Code::number(number.clone());
            positional &= n < 3 && argument.default.is_none();
            arguments.push(if positional { value } else { Code::named(&legal(&argument.name), value) });
        }
        Code::call(class.name.clone(), arguments)
    }

    /// One class of uses that are alike.
    fn class(&mut self, part: &[usize], model: &str) {
        let mut members: Vec<Usage> = part.iter().map(|index| self.uses[*index].clone()).collect();
        settle_switches(&mut members);
        promote(&mut members);
        settle_shapes(&mut members);
        let mut content = members[0].clone();
        if members.iter().any(|member| member.key != content.key) {
            content.label = stem(&content.label).to_owned();
        }
        for (index, (tap, _)) in content.inputs.iter_mut().enumerate().skip(1) {
            let local = |tap: &str| tap.rsplit('.').next().unwrap_or(tap).to_owned();
            if members.iter().any(|member| local(&member.inputs[index].0) != local(tap)) {
                *tap = "skip".to_owned();
            }
        }
        let numbers = content.numbers();
        let switches = content.children.iter().filter_map(|child| child.when.as_deref());
        let used: BTreeSet<&str> = numbers.iter().flat_map(Number::names).chain(switches).collect();
        let kept = content.arguments.iter().filter(|(name, _)| used.contains(name.as_str()));
        let mut arguments: Vec<Argument> = kept
            .map(|(name, (number, default))| Argument { name: name.clone(), kind: number.kind, default: *default })
            .collect();
        arguments.sort_by_key(|argument| (argument.default.is_some(), !SHAPES.contains(&argument.name.as_str())));
        let name = if model.is_empty() { self.unique(&camel(&content.label)) } else { camel(model) };
        let class = self.classes.len();
        for (index, member) in part.iter().zip(&members) {
            let values = arguments.iter().filter_map(|argument| {
                let (number, _) = member.arguments.get(&argument.name)?;
                Some((argument.name.clone(), number.clone()))
            });
            self.makers[*index] = Some(Maker { class, values: values.collect() });
        }
        self.classes.push(Class { name, arguments, content });
    }

    fn unique(&mut self, name: &str) -> String {
        let numbered = (2..).map(|n| format!("{name}{n}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let free = names.find(|name| !self.names.contains(name)).unwrap_or_default();
        self.names.insert(free.clone());
        free
    }
}

/// `encoder_block` as `EncoderBlock`.
pub(crate) fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut start = true;
    for c in name.chars() {
        match c.is_ascii_alphanumeric() {
            true if start => out.push(c.to_ascii_uppercase()),
            true => out.push(c),
            false => {}
        }
        start = !c.is_ascii_alphanumeric();
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) { format!("Net{out}") } else { out }
}

/// Whether two uses differ in numbers only, and in modules that are switched off.
fn alike(a: &Usage, b: &Usage) -> bool {
    let equal = |a: &Code, b: &Code| a.has_form_of(b);
    a.children.len() == b.children.len()
        && a.statements.len() == b.statements.len()
        && a.outputs.iter().map(|(_, var)| var).eq(b.outputs.iter().map(|(_, var)| var))
        && a.inputs.len() == b.inputs.len()
        && a.children.iter().zip(&b.children).all(|(a, b)| {
            let codes = a.code.as_ref().zip(b.code.as_ref());
            let repeats = a.repeat.as_ref().map(|repeat| repeat.start) == b.repeat.as_ref().map(|repeat| repeat.start);
            a.path == b.path && a.when == b.when && repeats && codes.is_none_or(|(a, b)| equal(a, b))
        })
        && a.statements.iter().zip(&b.statements).all(|(a, b)| a.targets == b.targets && equal(&a.code, &b.code))
}

/// Modules that no use has are dropped; those that all have need no switch; the others are copied to all uses.
fn settle_switches(members: &mut [Usage]) {
    let mut index = 0;
    while let Some(child) = members[0].children.get(index).cloned() {
        let known: Vec<Code> = members.iter().filter_map(|usage| usage.children[index].code.clone()).collect();
        let alone = members[0].children.iter().filter(|other| other.path == child.path).count() == 1;
        let all = known.len() == members.len() && alone;
        let Some(first) = known.first() else {
            for usage in members.iter_mut() {
                usage.children.remove(index);
                if alone {
                    drop_call(usage, &child.path);
                }
            }
            continue;
        };
        for usage in members.iter_mut() {
            let child = &mut usage.children[index];
            child.code.get_or_insert_with(|| first.clone());
            child.when = child.when.take().filter(|_| !all);
        }
        index += 1;
    }
}

/// Removes a module that is never there, and its call.
fn drop_call(usage: &mut Usage, path: &str) {
    let called = |code: &Code| matches!(code.pieces.first(), Some(Piece::Child(child)) if child == path);
    while let Some(place) = usage.statements.iter().position(|statement| called(&statement.code)) {
        let statement = usage.statements.remove(place);
        let (Some(from), Some(to)) = (statement.targets.first().copied(), statement.code.values().first().copied())
        else {
            return;
        };
        for later in &mut usage.statements {
            later.code.visit_mut(&mut |piece| {
                if let Piece::Value(var, _) = piece
                    && *var == from
                {
                    *var = to;
                }
            });
        }
        for (_, var) in usage.outputs.iter_mut().filter(|(_, var)| *var == from) {
            *var = to;
        }
    }
}

/// Numbers that differ between uses become arguments.
fn promote(members: &mut [Usage]) {
    let numbers: Vec<Vec<Number>> = members.iter().map(Usage::numbers).collect();
    let count = numbers[0].len();
    if numbers.iter().any(|theirs| theirs.len() != count) {
        return;
    }
    let mut replaced: HashMap<usize, (String, Kind)> = HashMap::new();
    for place in 0..count {
        let texts: HashSet<String> = numbers.iter().map(|theirs| theirs[place].to_string()).collect();
        if texts.len() == 1 {
            continue;
        }
        let values: Vec<f64> = numbers.iter().map(|theirs| theirs[place].value).collect();
        let fits =
            |name: &&String| members.iter().zip(&values).all(|(usage, value)| usage.value_of(name) == Some(*value));
        let known = members[0].arguments.keys().find(fits).cloned();
        let name = known.unwrap_or_else(|| {
            let taken = |name: &String| members[0].arguments.contains_key(name);
            let hint = if numbers[0][place].hint.is_empty() { "size" } else { numbers[0][place].hint };
            let mut name = (0..).map(|n| if n == 0 { hint.to_owned() } else { format!("{hint}{n}") });
            let name = name.find(|name| !taken(name)).unwrap_or_default();
            for (usage, theirs) in members.iter_mut().zip(&numbers) {
                usage.arguments.insert(name.clone(), (theirs[place].literal(), None));
            }
            name
        });
        replaced.insert(place, (name, numbers[0][place].kind));
    }
    for usage in members.iter_mut() {
        let mut place = 0;
        usage.numbers_mut(&mut |number| {
            if let Some((name, kind)) = replaced.get(&place) {
                *number = Number::argument(name, number.value, *kind);
            }
            place += 1;
        });
    }
}

/// Arguments from shapes that equal another argument, or the same number in every use, are not needed.
fn settle_shapes(members: &mut [Usage]) {
    for shape in SHAPES {
        let Some(values) = members.iter().map(|usage| usage.value_of(shape)).collect::<Option<Vec<f64>>>() else {
            continue;
        };
        let fits = |name: &&String| {
            !SHAPES.contains(&name.as_str())
                && members.iter().zip(&values).all(|(usage, value)| usage.value_of(name) == Some(*value))
                && members[0].arguments.get(*name).is_some_and(|(number, _)| number.kind == Kind::Whole)
        };
        let other = members[0].arguments.keys().find(fits).cloned();
        let constant = values.iter().all(|value| *value == values[0]);
        if other.is_none() && !constant {
            continue;
        }
        for usage in members.iter_mut() {
            let instead = |name: &str| match (&other, name == shape) {
                (Some(other), true) => Some(Number::argument(other, values[0], Kind::Whole)),
                (None, true) => Some(Number::count(values[0] as usize)),
                (_, false) => Some(Number::argument(name, 1.0, Kind::Whole)),
            };
            usage.numbers_mut(&mut |number| {
                if number.names().any(|name| name == shape) {
                    *number = number.replaced(&instead).unwrap_or_else(|| number.literal());
                }
            });
        }
    }
}

/// An expression that is a call or a name.
pub(super) fn tight(pieces: Vec<Piece>) -> Code {
    Code { pieces, binding: Binding::Tight }
}
