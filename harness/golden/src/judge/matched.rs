//! Assigns the tensors of a recording to quantities of the step.

use super::{found::Given, given, targets::Targets};
use crate::{
    GoldenError,
    foreign::{Entry, Quantity, Recording, prefixes, unwrapped},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use zoo_graph::ValueId;
use zoo_recipe::ROOT;
use zoo_tensors::Array;

/// The entries of a recording by the quantities of the step.
pub(crate) struct Matched<'r> {
    /// By place in `targets`.
    pub entries: BTreeMap<usize, &'r Entry>,
    /// Entries without a meaning in the step.
    pub strangers: Vec<&'r Entry>,
    /// Names without a meaning in any step.
    pub unknown: Vec<String>,
    /// Number of other contents, by kind.
    pub not_compared: BTreeMap<String, usize>,
    /// Number of names that were recognised without what a wrapper adds, by that.
    pub wrappers: BTreeMap<String, usize>,
    /// Outputs of layers without a name in the recipe, with their values.
    pub nameless: Vec<(ValueId, &'r Entry)>,
    recording: &'r Recording,
}

impl<'r> Matched<'r> {
    /// # Errors
    /// Two entries are the same quantity, such as a parameter with its names in PyTorch and in MindSpore.
    pub fn of(recording: &'r Recording, targets: &Targets) -> Result<Self, GoldenError> {
        let not_compared = recording.not_compared.iter().map(|(kind, count)| ((*kind).to_owned(), *count));
        let mut matched = Self {
            entries: BTreeMap::new(),
            strangers: Vec::new(),
            unknown: recording.unknown.clone(),
            not_compared: not_compared.collect(),
            wrappers: BTreeMap::new(),
            nameless: Vec::new(),
            recording,
        };
        let mut strangers = Vec::new();
        for entry in &recording.entries {
            match targets.find(&entry.quantity) {
                Some(place) => matched.take(place, entry, targets, None)?,
                None => strangers.push(entry),
            }
        }
        let strangers = matched.unwrap(strangers, targets)?;
        let strangers = matched.without_network(strangers, targets)?;
        let mut known = None;
        for entry in strangers {
            if matches!(entry.quantity, Quantity::Into { .. }) {
                matched.count("inputs of modules");
            } else if is_counter(entry)? {
                matched.count("counters of batches");
            } else if matched.repeats(entry, &mut known)? {
                matched.count("outputs that repeat another one");
            } else {
                matched.strangers.push(entry);
            }
        }
        Ok(matched)
    }

    /// Names without a meaning in the step.
    pub fn unmatched(&self) -> Vec<String> {
        self.unknown.iter().cloned().chain(self.strangers.iter().map(|entry| entry.name.clone())).collect()
    }

    fn count(&mut self, kind: &str) {
        *self.not_compared.entry(kind.to_owned()).or_default() += 1;
    }

    /// The recorded outputs that have no meaning.
    pub(super) fn outputs_of_strangers(&self) -> Result<Vec<Given>, GoldenError> {
        self.strangers.iter().filter(|entry| is_output(entry)).map(|entry| given(entry, 1.0)).collect()
    }

    /// Removes outputs that are those of layers without a name in the recipe: `values` has, for each recorded output
    /// without a meaning, the value of the step that it is.
    pub fn are_nameless(&mut self, values: &[Option<ValueId>]) {
        let (outputs, mut strangers): (Vec<&Entry>, Vec<&Entry>) =
            std::mem::take(&mut self.strangers).into_iter().partition(|entry| is_output(entry));
        for (entry, value) in outputs.into_iter().zip(values) {
            match value {
                Some(value) => {
                    self.count("outputs of layers without a name, which agree");
                    self.nameless.push((*value, entry));
                }
                None => strangers.push(entry),
            }
        }
        self.strangers = strangers;
    }

    /// Takes an entry as the quantity at a place; `removed` is what its name has in addition.
    fn take(
        &mut self,
        place: usize,
        entry: &'r Entry,
        targets: &Targets,
        removed: Option<&str>,
    ) -> Result<(), GoldenError> {
        let other = match self.entries.get(&place) {
            None => {
                self.entries.insert(place, entry);
                None
            }
            // The input of the step may be recorded as itself and as an operand of the first modules.
            Some(_) if matches!(entry.quantity, Quantity::Into { .. }) => None,
            Some(other) if matches!(other.quantity, Quantity::Into { .. }) => {
                self.entries.insert(place, entry);
                None
            }
            Some(other) => Some(*other),
        };
        if let Some(other) = other {
            // A wrapper returns what its network returns.
            if removed.is_none() || !is_same(other, entry)? {
                let (a, b, quantity) = (&other.name, &entry.name, &targets.list[place].quantity);
                let without = removed.map(|removed| format!(" (without `{removed}`)")).unwrap_or_default();
                let message = format!("`{a}` and `{b}`{without} are both {quantity}: names.yaml can say what they are");
                return Err(crate::error::malformed(&self.recording.path, message));
            }
            self.count("outputs that repeat another one");
        }
        if let Some(removed) = removed {
            *self.wrappers.entry(removed.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// Takes the entries that have a meaning without the names of wrappers, and returns the others.
    fn unwrap(&mut self, strangers: Vec<&'r Entry>, targets: &Targets) -> Result<Vec<&'r Entry>, GoldenError> {
        let mut left = Vec::new();
        for entry in strangers {
            match find_unwrapped(&entry.quantity, targets) {
                Some((place, removed)) => self.take(place, entry, targets, Some(&removed))?,
                None => left.push(entry),
            }
        }
        Ok(left)
    }

    /// Takes the entries that have a meaning without the name of the network, which begins most of the others: a
    /// prefix without which at least two of them, and at least half of those that have it, are quantities that are not
    /// recorded otherwise.
    fn without_network(
        &mut self,
        mut strangers: Vec<&'r Entry>,
        targets: &Targets,
    ) -> Result<Vec<&'r Entry>, GoldenError> {
        loop {
            let mut places: BTreeMap<&str, (BTreeSet<usize>, usize)> = BTreeMap::new();
            for entry in &strangers {
                for (prefix, rest) in prefixes(entry.quantity.path()) {
                    let (found, borne) = places.entry(prefix).or_default();
                    *borne += 1;
                    // That a module takes and returns something says nothing about its name.
                    if rest == ROOT || matches!(entry.quantity, Quantity::Into { .. }) {
                        continue;
                    }
                    let place = place_without(&entry.quantity, &rest, targets).map(|(place, _)| place);
                    found.extend(place.filter(|place| !self.entries.contains_key(place)));
                }
            }
            let worth = places.iter().filter(|(_, (found, borne))| found.len() >= 2 && 2 * found.len() >= *borne);
            let best = worth.max_by_key(|(prefix, (found, _))| (found.len(), std::cmp::Reverse(prefix.len())));
            let Some(prefix) = best.map(|(prefix, _)| (*prefix).to_owned()) else { return Ok(strangers) };
            let mut left = Vec::new();
            for entry in strangers {
                let rest = prefixes(entry.quantity.path()).find(|(own, _)| *own == prefix).map(|(_, rest)| rest);
                let place = rest.and_then(|rest| place_without(&entry.quantity, &rest, targets));
                match place {
                    Some((place, removed)) if self.may_be(place, entry)? => {
                        self.take(place, entry, targets, Some(&format!("{prefix}.{removed}")))?;
                    }
                    Some(_) | None => left.push(entry),
                }
            }
            strangers = left;
        }
    }

    /// Whether an entry may be the quantity at a place, beside what is there.
    fn may_be(&self, place: usize, entry: &Entry) -> Result<bool, GoldenError> {
        let is_operand = |entry: &Entry| matches!(entry.quantity, Quantity::Into { .. });
        match self.entries.get(&place) {
            Some(other) if !is_operand(other) && !is_operand(entry) => is_same(other, entry),
            Some(_) | None => Ok(true),
        }
    }

    /// Whether an output that the step does not name has the elements of one that it does, perhaps in another shape or
    /// with zeros around them: the output of a container, an identity, a flattening, a dropout that is off, a padding.
    fn repeats(&self, entry: &Entry, known: &mut Option<Known>) -> Result<bool, GoldenError> {
        if !matches!(entry.quantity, Quantity::Output(_)) {
            return Ok(false);
        }
        if let Some((statistics, shape)) = entry.content.statistics() {
            let numel = shape.iter().product::<usize>();
            let same = |other: &&Entry| {
                let theirs = other.content.statistics();
                theirs.is_some_and(|(other, shape)| other == statistics && shape.iter().product::<usize>() == numel)
            };
            return Ok(self.outputs().any(|(_, entry)| same(&entry)));
        }
        let known = match known {
            Some(known) => known,
            None => {
                let mut by_size: Known = HashMap::new();
                for (place, entry) in self.outputs() {
                    if let Some(array) = entry.array()? {
                        by_size.entry(size(&array)).or_default().push(place);
                    }
                }
                known.insert(by_size)
            }
        };
        let Some(array) = entry.array()? else { return Ok(false) };
        for place in known.get(&size(&array)).into_iter().flatten() {
            if let Some(other) = self.entries[place].array()?
                && moves_only(&other, &array)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What modules return or receive.
    fn outputs(&self) -> impl Iterator<Item = (usize, &'r Entry)> {
        let is_one =
            |quantity: &Quantity| matches!(quantity, Quantity::Output(_) | Quantity::Input(_) | Quantity::Into { .. });
        self.entries.iter().filter(move |(_, entry)| is_one(&entry.quantity)).map(|(place, entry)| (*place, *entry))
    }
}

fn is_output(entry: &Entry) -> bool {
    matches!(entry.quantity, Quantity::Output(_))
}

/// Places by the size of their tensors.
type Known = HashMap<u64, Vec<usize>>;

/// The sum of squares, which zeros between the elements do not change.
fn size(array: &Array) -> u64 {
    array.values.iter().map(|x| x * x).sum::<f64>().to_bits()
}

/// Whether two tensors have the same elements in the same order, apart from zeros.
fn moves_only(a: &Array, b: &Array) -> bool {
    let [a, b] = [a, b].map(|array| array.values.iter().filter(|x| **x != 0.0));
    a.eq(b)
}

/// Whether an entry is a counter, such as PyTorch's `num_batches_tracked`.
fn is_counter(entry: &Entry) -> Result<bool, GoldenError> {
    let is_state = matches!(entry.quantity, Quantity::Start(_) | Quantity::After { .. });
    let array = if is_state { entry.array()? } else { None };
    Ok(array.is_some_and(|array| array.values.len() == 1 && !array.dtype.is_float()))
}

fn is_same(a: &Entry, b: &Entry) -> Result<bool, GoldenError> {
    Ok(match (a.array()?, b.array()?) {
        (Some(a), Some(b)) => a.shape == b.shape && a.values == b.values,
        (None, None) => a.content.statistics() == b.content.statistics(),
        (Some(_), None) | (None, Some(_)) => false,
    })
}

/// The place of a quantity whose path has this rest, which may be wrapped too, and what wrappers add to the rest.
fn place_without(quantity: &Quantity, rest: &str, targets: &Targets) -> Option<(usize, String)> {
    let quantity = quantity.at(rest);
    let place = targets.find(&quantity).map(|place| (place, String::new()));
    place.or_else(|| find_unwrapped(&quantity, targets))
}

/// The place of a quantity without the fewest wrappers, and what they add; none if that is ambiguous.
fn find_unwrapped(quantity: &Quantity, targets: &Targets) -> Option<(usize, String)> {
    let mut found: Option<(usize, String)> = None;
    for candidate in unwrapped(quantity.path()) {
        let Some(place) = targets.find(&quantity.at(&candidate.path)) else { continue };
        match &found {
            None => found = Some((place, candidate.removed)),
            Some((_, removed)) if removed.matches('.').count() < candidate.removed.matches('.').count() => break,
            Some((other, _)) if *other == place => {}
            Some(_) => return None,
        }
    }
    found
}
