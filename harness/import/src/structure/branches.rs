//! Modules whose layers are a tree of branches, which start from one tensor and are joined again.

use super::{BIAS, Body, MOST_AROUND, MOST_BRANCHES, attending, gives_one, joined, taps};
use crate::Refusal;
use crate::item::{Item, size};
use crate::operation::{Operation, Tensor, Unit, What, Windows};
use crate::word::{Kind, SEGMENTS, Word};

impl Body<'_> {
    /// The layers of a branch, from one tensor to another; `None` if branches are entangled, or nested too deeply.
    fn branch(&mut self, from: Tensor, to: Tensor) -> Result<Option<Vec<Item>>, Refusal> {
        if self.branches >= MOST_BRANCHES || self.around + self.branches >= MOST_AROUND {
            return Ok(None);
        }
        self.branches += 1;
        let items = self.run(from, to);
        self.branches -= 1;
        items
    }

    /// The layers from one tensor to another; `None` if branches are entangled.
    pub(super) fn run(&mut self, from: Tensor, to: Tensor) -> Result<Option<Vec<Item>>, Refusal> {
        let mut reversed = Vec::new();
        let mut at = to;
        while at != from {
            if let Some(tap) = self.further.get(&at) {
                reversed.push(vec![Item::From(tap.clone())]);
                break;
            }
            let Some(index) = self.producers.get(&at).copied() else { return Ok(None) };
            if !self.done.insert(index) {
                return Ok(None);
            }
            let unit = &self.module.body[index];
            if matches!(unit, Unit::Module(module) if !gives_one(module)) {
                return Ok(None);
            }
            let (besides, operands): (Vec<Tensor>, Vec<Tensor>) =
                unit.operands().iter().partition(|operand| self.is_beside(operand));
            match (unit, &operands[..]) {
                (_, [one]) if let Some(item) = self.called_again(unit) => {
                    reversed.push(vec![item]);
                    at = *one;
                }
                (_, []) if !besides.is_empty() => return Ok(None),
                // A parameter takes nothing from before.
                (_, []) => {
                    reversed.push(vec![self.item(unit)?]);
                    at = from;
                }
                (Unit::Operation(Operation { what: What::Join(windows), .. }), [one]) => {
                    let Some((item, from)) = self.windows(windows, *one)? else { return Ok(None) };
                    reversed.push(vec![item]);
                    at = from;
                }
                (Unit::Operation(Operation { what: What::Layer(word), name, .. }), [one]) if !besides.is_empty() => {
                    let (mut items, taps) = self.made_beside(&besides);
                    items.push(Item::Layer { word: attending(word, taps), name: name.clone() });
                    reversed.push(items);
                    at = *one;
                }
                (_, [one]) => {
                    reversed.push(vec![self.item(unit)?]);
                    at = *one;
                }
                (_, operands) => {
                    let fork = self.dominators.get(&at).copied().unwrap_or(self.input);
                    let Unit::Operation(operation) = unit else { return Ok(None) };
                    if let Some((item, from)) = self.with_further(operation, operands) {
                        reversed.push(vec![item]);
                        at = from;
                        continue;
                    }
                    let Some(items) = self.join(operation, operands, &besides, fork)? else { return Ok(None) };
                    reversed.push(items);
                    at = fork;
                }
            }
        }
        reversed.reverse();
        Ok(Some(reversed.concat()))
    }

    /// The layer that works on windows, of which `joined` become a map again; and the map that they are of.
    fn windows(&mut self, windows: &Windows, joined: Tensor) -> Result<Option<(Item, Tensor)>, Refusal> {
        let mut cut = joined;
        let map = loop {
            let Some(index) = self.producers.get(&cut).copied() else { return Ok(None) };
            match &self.module.body[index] {
                Unit::Operation(Operation { what: What::Cut(other), operands, .. }) if other == windows => {
                    self.done.insert(index);
                    break operands.first().copied().unwrap_or(self.input);
                }
                _ => cut = self.dominators.get(&cut).copied().unwrap_or(self.input),
            }
        };
        let Some(body) = self.branch(cut, joined)? else { return Ok(None) };
        let word = Word::windows(windows.size, windows.one_shift().unwrap_or(0), reads_segments(&body));
        Ok(Some((Item::Around { word, body }, map)))
    }

    /// The layers that make what an attention takes beside tensors, and their taps by the keys of the attention.
    fn made_beside(&mut self, besides: &[Tensor]) -> (Vec<Item>, Vec<(&'static str, String)>) {
        let (mut items, mut taps) = (Vec::new(), Vec::new());
        for tensor in besides {
            let shared = self.known.shared.get(tensor);
            let Some(index) = self.beside.get(tensor).copied() else {
                // Another module makes it.
                taps.extend(shared.map(|tap| (BIAS, tap.clone())));
                continue;
            };
            self.done.insert(index);
            match &self.module.body[index] {
                Unit::Operation(Operation { what: What::Layer(word), name, .. })
                    if let Kind::Beside(key) = word.kind =>
                {
                    let tap = match shared {
                        Some(_) => BIAS.to_owned(),
                        None => self.tap(key),
                    };
                    let word = attending(word, vec![("tap", tap.clone())]);
                    items.push(Item::Layer { word, name: name.clone() });
                    // Where its parameter is one of a module that is not called, the tap is named within that.
                    let path = name.as_deref().and_then(|name| name.strip_prefix(&self.module.path));
                    let scope = path.and_then(|path| path.trim_start_matches('.').rsplit_once('.'));
                    taps.push((key, scope.map_or(tap.clone(), |(scope, _)| format!("{scope}.{tap}"))));
                }
                Unit::Operation(_) | Unit::Module(_) => taps.push((SEGMENTS, SEGMENTS.to_owned())),
            }
        }
        (items, taps)
    }

    /// An operation of a tensor and a further input, and that tensor.
    fn with_further(&self, operation: &Operation, operands: &[Tensor]) -> Option<(Item, Tensor)> {
        let &[first, second] = operands else { return None };
        let tap = |tensor| self.further.get(&tensor).cloned();
        match (&operation.what, tap(first), tap(second)) {
            (What::Concat(_), ..) => None,
            (_, None, Some(other)) => Some((joined(operation, other), first)),
            (what, Some(other), None) if what.commutes() => Some((joined(operation, other), second)),
            _ => None,
        }
    }

    /// An operation of several tensors, with its branches from `fork` on.
    fn join(
        &mut self,
        operation: &Operation,
        operands: &[Tensor],
        besides: &[Tensor],
        fork: Tensor,
    ) -> Result<Option<Vec<Item>>, Refusal> {
        if let (What::Layer(word), &[query, key, value]) = (&operation.what, operands) {
            return self.attention(operation, word, [query, key, value], besides, fork);
        }
        let mut branches = Vec::new();
        for operand in operands {
            let Some(items) = self.branch(fork, *operand)? else { return Ok(None) };
            branches.push(items);
        }
        let starts_elsewhere = |items: &Vec<Item>| matches!(items.first(), Some(Item::From(_)));
        if branches.iter().any(starts_elsewhere) && !matches!(operation.what, What::Concat(_)) {
            return Ok(None);
        }
        Ok(Some(match (&operation.what, &mut branches[..]) {
            (What::Add, [first, second]) => {
                let (first, second) = (std::mem::take(first), std::mem::take(second));
                // The branch with more layers is the main branch.
                let swap = size(&second) > size(&first);
                let (main, shortcut) = if swap { (second, first) } else { (first, second) };
                if main.is_empty() {
                    return Ok(None);
                }
                vec![Item::Residual { main, shortcut }]
            }
            (What::Mul, [first, second]) if first.is_empty() != second.is_empty() => {
                let body = if first.is_empty() { second } else { first };
                vec![Item::Around { word: Word::gate(), body: std::mem::take(body) }]
            }
            (What::Mul | What::Subtract | What::Layer(_), [first, second]) => {
                let start = self.tap("x");
                let mut items = vec![Item::Tap(start.clone())];
                if second.is_empty() {
                    items.append(first);
                    items.push(joined(operation, start));
                    return Ok(Some(items));
                }
                let other = self.tap(taps::second(&operation.what));
                items.append(second);
                items.extend([Item::Tap(other.clone()), Item::From(start)]);
                items.append(first);
                items.push(joined(operation, other));
                items
            }
            (What::Concat(axis), _) => vec![Item::Concat { branches, axis: *axis }],
            (What::Add | What::Mul | What::Subtract | What::Layer(_), _)
            | (What::Cut(_) | What::Join(_) | What::Segments(_), _) => return Ok(None),
        }))
    }

    /// An attention, with the branches of its operands from `fork` on. What keys and values have in common comes first.
    fn attention(
        &mut self,
        operation: &Operation,
        word: &Word,
        [query, key, value]: [Tensor; 3],
        besides: &[Tensor],
        fork: Tensor,
    ) -> Result<Option<Vec<Item>>, Refusal> {
        let common = self.common(key, value);
        let mut items = Vec::new();
        let [x, key_tap, value_tap] = ["x", "key", "value"].map(|role| self.tap(role));
        items.push(Item::Tap(x.clone()));
        let Some(first) = self.branch(fork, common)? else { return Ok(None) };
        let made = self.producers.get(&common).filter(|_| !first.is_empty());
        let made = made.map(|index| taps::made_by(&self.module.body[*index], self.module));
        let shared = made.map(|name| self.tap(&name));
        items.extend(first);
        items.extend(shared.clone().map(Item::Tap));
        let Some(to_key) = self.branch(common, key)? else { return Ok(None) };
        items.extend(to_key);
        items.extend([Item::Tap(key_tap.clone()), Item::From(shared.unwrap_or_else(|| x.clone()))]);
        let Some(to_value) = self.branch(common, value)? else { return Ok(None) };
        items.extend(to_value);
        items.extend([Item::Tap(value_tap.clone()), Item::From(x)]);
        let Some(to_query) = self.branch(fork, query)? else { return Ok(None) };
        items.extend(to_query);
        let (made, taps) = self.made_beside(besides);
        items.extend(made);
        let taps = [("key", key_tap), ("value", value_tap)].into_iter().chain(taps).collect();
        items.push(Item::Layer { word: attending(word, taps), name: operation.name.clone() });
        Ok(Some(items))
    }
}

/// Whether a layer in a list, or in a module there, reads the numbers of parts of windows.
fn reads_segments(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Layer { word, .. } => word.settings.contains_key(SEGMENTS),
        other => other.lists().into_iter().any(|list| reads_segments(list)),
    })
}
