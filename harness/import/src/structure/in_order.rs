//! Modules whose layers are no tree of branches: a list in order of execution, with taps.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::{Body, attending, joined, taps};
use crate::Refusal;
use crate::item::Item;
use crate::operation::{Operation, Tensor, Unit, What};

impl Body<'_> {
    /// The layers in order of execution, with a tap for each tensor that is not used immediately.
    pub(super) fn in_order(&mut self) -> Result<(Vec<Item>, IndexMap<String, String>), Refusal> {
        let is_beside = |unit: &&Unit| unit.results().iter().any(|result| self.beside.contains_key(result));
        if let Some(unit) = self.module.body.iter().find(is_beside) {
            return Err(self.entangled(unit.at()));
        }
        let mut names: HashMap<Tensor, String> = self.further.clone();
        let proposed = taps::names(self.module, self.input);
        let mut used = self.taken.clone();
        let mut name = |names: &mut HashMap<Tensor, String>, tensor: Tensor| {
            let mut new = || {
                let plain = proposed.get(&tensor).map_or("y", String::as_str);
                let numbered = (2..).map(|number| format!("{plain}{number}"));
                std::iter::once(plain.to_owned()).chain(numbered).find(|name| used.insert(name.clone()))
            };
            names.entry(tensor).or_insert_with(|| new().unwrap_or_default()).clone()
        };
        // Results of modules with several results are already taps.
        let mut given: HashSet<Tensor> = HashSet::new();
        let mut items: Vec<(Tensor, Vec<Item>)> = vec![(self.input, Vec::new())];
        let mut present = self.input;
        for unit in &self.module.body {
            let mut own = Vec::new();
            let operands = unit.operands();
            let commutes = matches!(unit, Unit::Operation(operation) if operation.what.commutes());
            let first = match commutes && operands.contains(&present) {
                true => present,
                false => operands.first().copied().unwrap_or(present),
            };
            if let Unit::Operation(Operation { what: What::Concat(axis), .. }) = unit {
                let branch = |operand: &Tensor| match *operand == present {
                    true => Vec::new(),
                    false => vec![Item::From(name(&mut names, *operand))],
                };
                own.push(Item::Concat { branches: operands.iter().map(branch).collect(), axis: *axis });
            } else {
                if first != present {
                    own.push(Item::From(name(&mut names, first)));
                }
                let mut others = operands.to_vec();
                if let Some(place) = others.iter().position(|operand| *operand == first) {
                    others.remove(place);
                }
                let others: Vec<(String, Tensor)> =
                    others.into_iter().map(|other| (name(&mut names, other), other)).collect();
                match (unit, &others[..]) {
                    _ if let Some(item) = self.called_again(unit) => own.push(item),
                    (Unit::Module(module), _) => {
                        let (item, returns) = self.module(module, &others)?;
                        own.push(item);
                        let inside = module.path.strip_prefix(&self.module.path).unwrap_or(&module.path);
                        let inside = inside.trim_start_matches('.');
                        for ((_, tensor), tap) in module.returns.iter().zip(returns.values()) {
                            if !names.contains_key(tensor) && *tensor != self.input && !module.inputs.contains(tensor) {
                                names.insert(*tensor, format!("{inside}.{tap}"));
                                given.insert(*tensor);
                            }
                        }
                    }
                    (Unit::Operation(operation), [(other, _)]) => own.push(joined(operation, other.clone())),
                    (Unit::Operation(Operation { what: What::Layer(word), name, .. }), [(key, _), (value, _)]) => {
                        let word = attending(word, vec![("key", key.clone()), ("value", value.clone())]);
                        own.push(Item::Layer { word, name: name.clone() });
                    }
                    (Unit::Operation(_), _) => own.push(self.item(unit)?),
                }
            }
            present = unit.result();
            items.push((present, own));
        }
        if present != self.module.output {
            let tap = name(&mut names, self.module.output);
            items.push((self.module.output, vec![Item::From(tap)]));
        }
        if self.module.body.is_empty() {
            // Selecting one of several tensors has no layer, but a body must not be empty.
            name(&mut names, self.input);
        }
        let returns = self.module.returns.iter();
        let returns = returns.map(|(key, tensor)| (key.clone(), name(&mut names, *tensor))).collect();
        let mut written = Vec::new();
        for (tensor, own) in items {
            let is_end = matches!(own[..], [Item::From(_)]);
            written.extend(own);
            // Only once, because a module can return its argument.
            if let (Some(tap), false) = (names.get(&tensor), is_end || !given.insert(tensor)) {
                written.push(Item::Tap(tap.clone()));
            }
        }
        Ok((written, returns))
    }
}
