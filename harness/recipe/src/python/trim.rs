//! What nothing needs is left out: calls, results and inputs of classes.

use std::collections::{HashMap, HashSet};

use super::code::{Code, Piece, Var};
use super::forward::prune;
use super::usage::{ROOT, Usage, Value};

/// Results of classes that something needs, by the key of the class.
type Needed = HashMap<String, HashSet<usize>>;

/// Removes what nothing needs: calls, and results of classes.
pub(crate) fn trim(uses: &mut Vec<Usage>) {
    let mut needed = Needed::new();
    needed.insert(ROOT.to_owned(), (0..uses.last().map_or(0, |root| root.outputs.len())).collect());
    loop {
        let known = needed.clone();
        let mut trimmed = uses.clone();
        for index in (0..uses.len()).rev() {
            trim_one(&mut trimmed, index, &mut needed);
        }
        if needed == known {
            *uses = trimmed;
            break;
        }
    }
}

/// Classes that do not need the present value do not get it.
pub(crate) fn drop_inputs(uses: &mut [Usage]) {
    loop {
        let needs = |usage: &Usage| {
            let x = usage.inputs[0].1;
            let computed = usage.statements.iter().any(|statement| statement.code.values().contains(&x));
            computed || usage.inputs.len() == 1 || usage.outputs.iter().any(|(_, var)| *var == x)
        };
        let needing: HashSet<String> =
            uses.iter().filter(|usage| needs(usage)).map(|usage| usage.key.clone()).collect();
        let mut dropped = vec![false; uses.len()];
        for (usage, dropped) in uses.iter_mut().zip(&mut dropped) {
            if !needing.contains(&usage.key) {
                usage.inputs.remove(0);
                *dropped = true;
            }
        }
        if !dropped.contains(&true) {
            return;
        }
        for usage in uses.iter_mut() {
            let children = usage.children.iter();
            let paths: HashSet<String> = children
                .filter(|child| {
                    let code = child.code.as_ref();
                    code.is_some_and(|code| matches!(code.pieces[..], [Piece::New(inner)] if dropped[inner]))
                })
                .map(|child| child.path.clone())
                .collect();
            for statement in &mut usage.statements {
                if let [Piece::Child(path), Piece::List(_, operands, _)] = &mut statement.code.pieces[..]
                    && paths.contains(path)
                {
                    operands.remove(0);
                }
            }
            prune(usage);
        }
    }
}

fn trim_one(uses: &mut [Usage], index: usize, needed: &mut Needed) {
    let mut wanted = needed.get(&uses[index].key).cloned().unwrap_or_default();
    wanted.extend(0..uses[index].returns);
    let mut place = 0;
    uses[index].outputs.retain(|_| {
        place += 1;
        wanted.contains(&(place - 1))
    });
    prune(&mut uses[index]);
    let mut usage = uses[index].clone();
    let outputs = usage.outputs.iter().map(|(_, var)| *var);
    let used: HashSet<Var> =
        usage.statements.iter().flat_map(|statement| statement.code.values()).chain(outputs).collect();
    for child in &usage.children {
        let Some(code) = &child.code else { continue };
        let whole = match code.pieces[..] {
            [Piece::New(inner)] => Some(uses[inner].key.clone()),
            _ => None,
        };
        let mut inside = Vec::new();
        code.visit(&mut |piece| {
            if let Piece::New(inner) = piece {
                inside.push(uses[*inner].key.clone());
            }
        });
        for key in inside.into_iter().filter(|key| Some(key) != whole.as_ref()) {
            needed.entry(key).or_default().insert(0);
        }
        let Some(key) = whole else { continue };
        let inner =
            code.pieces.first().and_then(|piece| if let Piece::New(inner) = piece { Some(*inner) } else { None });
        let returns = inner.map_or(0, |inner| uses[inner].returns);
        let results = needed.entry(key).or_default();
        results.extend(0..returns);
        let called = |code: &Code| matches!(code.pieces.first(), Some(Piece::Child(path)) if *path == child.path);
        let calls = usage.statements.iter_mut().filter(|statement| called(&statement.code));
        for call in calls {
            let live = call.targets.iter().enumerate().filter(|(_, target)| used.contains(target));
            results.extend(live.map(|(place, _)| place));
            let mut place = 0;
            call.targets.retain(|_| {
                place += 1;
                results.contains(&(place - 1))
            });
            if call.targets.is_empty() {
                usage.values.push(Value { dims: Vec::new(), hint: None });
                call.targets.push(Var(usage.values.len() - 1));
            }
        }
    }
    uses[index] = usage;
}
