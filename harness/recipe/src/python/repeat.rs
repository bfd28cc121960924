//! Modules that differ in their number become loops.

use super::code::{Binding, Code, Piece, Var};
use super::number::Number;
use super::usage::{Child, Repeat, Statement, Usage};

/// Fewest modules of a loop.
const FEWEST: usize = 3;

/// How many of these expressions are one with a counter `i`, and that expression: numbers are equal, or grow by the same
/// step. Two equal ones are enough; otherwise it takes three.
pub(super) fn progression(codes: &[&Code]) -> (usize, Code) {
    let first = codes[0];
    let equal = codes.iter().take_while(|code| **code == first).count();
    if equal > 1 || codes.len() < FEWEST || !first.has_form_of(codes[1]) {
        return (equal, first.clone());
    }
    let numbers: Vec<Vec<Number>> = codes.iter().map(|code| numbers(code)).collect();
    let steps: Option<Vec<f64>> = numbers[0].iter().zip(&numbers[1]).map(|(a, b)| a.step_to(b)).collect();
    let Some(steps) = steps else { return (1, first.clone()) };
    let fits = |pair: &[usize]| {
        let (a, b) = (&numbers[pair[0]], &numbers[pair[1]]);
        codes[pair[0]].has_form_of(codes[pair[1]])
            && a.iter().zip(b).zip(&steps).all(|((a, b), step)| a.step_to(b).is_some_and(|own| own == *step))
    };
    let places: Vec<usize> = (0..codes.len()).collect();
    let run = 1 + places.windows(2).take_while(|pair| fits(pair)).count();
    if run < FEWEST { (1, first.clone()) } else { (run, counted(first, &steps)) }
}

fn numbers(code: &Code) -> Vec<Number> {
    let mut numbers = Vec::new();
    code.visit(&mut |piece| {
        if let Piece::Number(number) | Piece::Factor(number) = piece {
            numbers.push(number.clone());
        }
    });
    numbers
}

/// With `+ step * i` behind each number that grows.
fn counted(code: &Code, steps: &[f64]) -> Code {
    let place = std::cell::Cell::new(0);
    code.filled(&|piece| {
        let (Piece::Number(number) | Piece::Factor(number)) = piece else { return None };
        let step = steps[place.replace(place.get() + 1)];
        if step == 0.0 {
            return None;
        }
        let mut pieces = Vec::new();
        if !(number.is_literal() && number.value == 0.0) {
            pieces.extend([Piece::Number(number.clone()), Piece::Text(" + ".to_owned())]);
        }
        if step != 1.0 {
            pieces.extend([Piece::Number(Number::of(step, number.kind)), Piece::Text(" * ".to_owned())]);
        }
        pieces.push(Piece::Text("i".to_owned()));
        Some(Code { pieces, binding: Binding::Sum })
    })
}

/// Makes loops of numbered modules that are called one after another.
pub(super) fn fold(usage: &mut Usage) {
    let mut from = 0;
    while from + FEWEST <= usage.children.len() {
        from += fold_at(usage, from).map_or(1, |()| 1);
    }
}

/// Makes a loop of the modules from this one on, if they are one.
fn fold_at(usage: &mut Usage, from: usize) -> Option<()> {
    let (stem, start) = numbered(&usage.children[from])?;
    let fits = |(index, child): (usize, &Child)| numbered(child) == Some((stem.clone(), start + index));
    let named = usage.children[from..].iter().enumerate().take_while(|entry| fits(*entry)).count();
    let codes: Vec<&Code> = usage.children[from..from + named].iter().filter_map(|child| child.code.as_ref()).collect();
    if codes.len() < FEWEST {
        return None;
    }
    let (count, code) = progression(&codes);
    if count < FEWEST {
        return None;
    }
    let path = |index: usize| format!("{stem}{}", start + index);
    let first = usage.statements.iter().position(|statement| calls(statement, &path(0)))?;
    let second = usage.statements.iter().position(|statement| calls(statement, &path(1)))?;
    let length = second.checked_sub(first)?;
    let all = usage.statements.get(first..first + count * length)?;
    let run = all.chunks(length).map(|turn| joined(turn, usage)).collect::<Option<Vec<Statement>>>()?;
    let before = *run[0].code.values().first()?;
    let general = |statement: &Statement, index: usize, value: Var| {
        let mut code = statement.code.clone();
        code.visit_mut(&mut |piece| match piece {
            Piece::Value(var, _) if *var == value => *var = before,
            Piece::Child(child) if *child == path(index) => *child = stem.clone(),
            Piece::Value(..) | Piece::Child(_) | Piece::Text(_) | Piece::Number(_) | Piece::Factor(_) => {}
            Piece::List(..) | Piece::New(_) | Piece::Row(..) => {}
        });
        code
    };
    let model = general(&run[0], 0, before);
    let mut value = before;
    for (index, statement) in run.iter().enumerate() {
        if statement.targets.len() != 1 || general(statement, index, value) != model {
            return None;
        }
        value = statement.targets[0];
    }
    let inside: Vec<Var> = run[..count - 1].iter().map(|statement| statement.targets[0]).chain([before]).collect();
    let end = first + count * length;
    let after = usage.statements[end..].iter().flat_map(|statement| statement.code.values());
    let outputs = usage.outputs.iter().map(|(_, var)| *var);
    if after.chain(outputs).any(|var| inside.contains(&var)) {
        return None;
    }
    let mut number = Number::count(count);
    number.hint = "layers";
    let repeat = Some(Repeat { start, count: number });
    let looped = Statement { targets: vec![value], code: model, repeat: repeat.clone() };
    usage.statements.splice(first..end, [looped]);
    let child = Child { path: stem, code: Some(code), when: None, parameter: false, repeat };
    usage.children.splice(from..from + count, [child]);
    Some(())
}

/// The statements of one turn as one, if each but the last is used once and there.
fn joined(turn: &[Statement], usage: &Usage) -> Option<Statement> {
    let (last, before) = turn.split_last()?;
    let mut code = last.code.clone();
    for statement in before.iter().rev() {
        let [target] = statement.targets[..] else { return None };
        let uses = |code: &Code| code.values().iter().filter(|var| **var == target).count();
        let all: usize = usage.statements.iter().map(|statement| uses(&statement.code)).sum();
        if uses(&code) != 1 || all != 1 || usage.outputs.iter().any(|(_, var)| *var == target) {
            return None;
        }
        code = code.filled(&|piece| match piece {
            Piece::Value(var, _) if *var == target => Some(statement.code.clone()),
            Piece::Value(..) | Piece::Text(_) | Piece::Number(_) | Piece::Factor(_) => None,
            Piece::List(..) | Piece::Child(_) | Piece::New(_) | Piece::Row(..) => None,
        });
    }
    Some(Statement { code, ..last.clone() })
}

/// The name of a module without the number behind it, and the number.
fn numbered(child: &Child) -> Option<(String, usize)> {
    if child.when.is_some() || child.parameter || child.repeat.is_some() || child.path.contains('.') {
        return None;
    }
    let stem = child.path.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = child.path[stem.len()..].parse().ok()?;
    stem.starts_with(|c: char| c.is_ascii_alphabetic()).then(|| (stem.to_owned(), number))
}

fn calls(statement: &Statement, path: &str) -> bool {
    let mut found = false;
    statement.code.visit(&mut |piece| found |= matches!(piece, Piece::Child(child) if child == path));
    found
}
