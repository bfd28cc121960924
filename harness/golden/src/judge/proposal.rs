//! Other names: which modules of a recording may be which of the recipe, by kind, shape and order. Only proposed, as a
//! names.yaml: the judgement does not use it.

use super::{matched::Matched, start::Start, targets::Targets};
use crate::{
    GoldenError,
    foreign::{Entry, Quantity},
    golden::Golden,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A proposed names.yaml.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Proposal {
    /// The recipe's modules, by module of the recording.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, String>,
    /// Golden keys, by name in the recording.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// Modules of the recording for which there is another number of the same kind and shape in the recipe.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

/// Kind, rest of the name after the module, and shape, of everything that a module has.
type Signature = BTreeSet<(String, String, Vec<usize>)>;

/// A module with what it has.
struct Module<'a> {
    path: String,
    signature: Signature,
    start: Option<&'a Entry>,
}

impl Proposal {
    /// Whether it proposes nothing.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty() && self.names.is_empty() && self.ambiguous.is_empty()
    }

    /// For the names of a recording that have no meaning, and the quantities that it lacks.
    ///
    /// # Errors
    /// A tensor of the recording that cannot be read.
    pub(super) fn of(
        matched: &Matched<'_>,
        targets: &Targets,
        golden: &Golden,
        start: &Start,
    ) -> Result<Self, GoldenError> {
        let mut proposal = Self::default();
        if matched.strangers.is_empty() {
            return Ok(proposal);
        }
        let theirs = recorded(matched)?;
        let kinds: BTreeSet<&String> = theirs.iter().flat_map(|m| m.signature.iter().map(|(kind, ..)| kind)).collect();
        let ours = missing(matched, targets, &kinds);
        let mut groups: BTreeMap<&Signature, Vec<&Module<'_>>> = BTreeMap::new();
        theirs.iter().for_each(|module| groups.entry(&module.signature).or_default().push(module));
        let mut rest: Vec<&str> = Vec::new();
        for (signature, group) in groups {
            let alike: Vec<&Module<'_>> = ours.iter().filter(|module| module.signature == *signature).collect();
            let values = group.iter().map(|module| by_value(module, &alike, golden, start));
            let mut found = values.collect::<Result<Vec<Option<&Module<'_>>>, _>>()?;
            // Order decides only if values do not.
            if found.iter().all(Option::is_none) && alike.len() == group.len() {
                found = alike.iter().copied().map(Some).collect();
            }
            for (module, own) in group.iter().zip(found) {
                match own {
                    Some(own) => drop(proposal.modules.insert(module.path.clone(), own.path.clone())),
                    None if alike.is_empty() => rest.push(&module.path),
                    None => proposal.ambiguous.push(module.path.clone()),
                }
            }
        }
        proposal.outputs(&rest, matched, targets)?;
        Ok(proposal)
    }

    /// Calls of modules that the recipe has under one name and the recording under several, or the other way round.
    fn outputs(&mut self, rest: &[&str], matched: &Matched<'_>, targets: &Targets) -> Result<(), GoldenError> {
        let mut groups: BTreeMap<Vec<usize>, Vec<&Entry>> = BTreeMap::new();
        let of_rest = matched.strangers.iter().filter(|entry| rest.contains(&module_of(&entry.quantity).0.as_str()));
        for entry in of_rest.filter(|entry| matches!(entry.quantity, Quantity::Output(_))) {
            groups.entry(shape(entry)?).or_default().push(entry);
        }
        let taken: BTreeSet<&String> = self.modules.values().collect();
        let mut proposed = Vec::new();
        for (shape, group) in groups {
            let alike = targets.list.iter().enumerate().filter(|(place, target)| {
                matches!(target.quantity, Quantity::Output(_))
                    && target.shape == shape
                    && !target.optional
                    && !matched.entries.contains_key(place)
                    && !taken.contains(&module_of(&target.quantity).0)
            });
            let alike: Vec<String> = alike.map(|(_, target)| target.quantity.key()).collect();
            if alike.len() == group.len() {
                proposed.extend(group.iter().map(|entry| entry.name.clone()).zip(alike));
            } else if !alike.is_empty() {
                self.ambiguous.extend(group.iter().map(|entry| entry.name.clone()));
            }
        }
        self.names.extend(proposed);
        Ok(())
    }
}

/// The modules whose names have no meaning, in the order of the recording.
fn recorded<'a>(matched: &'a Matched<'_>) -> Result<Vec<Module<'a>>, GoldenError> {
    let mut modules: Vec<Module<'_>> = Vec::new();
    for &entry in &matched.strangers {
        let (path, rest) = module_of(&entry.quantity);
        let part = (kind(&entry.quantity), rest, shape(entry)?);
        let start = matches!(entry.quantity, Quantity::Start(_)).then_some(entry);
        match modules.iter_mut().find(|module| module.path == path) {
            Some(module) => {
                module.signature.insert(part);
                module.start = module.start.or(start);
            }
            None => modules.push(Module { path, signature: BTreeSet::from([part]), start }),
        }
    }
    Ok(modules)
}

/// The modules of the recipe that the recording lacks, in the order of the graph, with what it has of other modules.
fn missing<'a>(matched: &Matched<'_>, targets: &Targets, kinds: &BTreeSet<&String>) -> Vec<Module<'a>> {
    let known: BTreeSet<usize> = matched.entries.keys().map(|place| targets.list[*place].value.0).collect();
    let mut modules: Vec<Module<'_>> = Vec::new();
    for target in &targets.list {
        let (path, rest) = module_of(&target.quantity);
        let part = (kind(&target.quantity), rest, target.shape.clone());
        if known.contains(&target.value.0) || !kinds.contains(&part.0) {
            continue;
        }
        match modules.iter_mut().find(|module| module.path == path) {
            Some(module) => drop(module.signature.insert(part)),
            None => modules.push(Module { path, signature: BTreeSet::from([part]), start: None }),
        }
    }
    modules
}

/// The module of the recipe that starts from the recorded values.
fn by_value<'m, 'a>(
    module: &Module<'_>,
    alike: &[&'m Module<'a>],
    golden: &Golden,
    start: &Start,
) -> Result<Option<&'m Module<'a>>, GoldenError> {
    let Some((entry, array)) = module.start.map(|entry| Ok::<_, GoldenError>((entry, entry.array()?))).transpose()?
    else {
        return Ok(None);
    };
    let Some(array) = array.filter(|array| array.values.iter().any(|x| *x != array.values[0])) else { return Ok(None) };
    let is_one = |own: &&&Module<'_>| {
        let quantity = entry.quantity.at(&format!("{}.{}", own.path, module_of(&entry.quantity).1));
        let quantity = quantity.in_pytorch().unwrap_or(quantity);
        start.values(golden, quantity.path(), array.values.len()).is_some_and(|values| values == array.values)
    };
    Ok(alike.iter().find(is_one).copied())
}

/// The path of the module of a quantity, and the rest of the name.
fn module_of(quantity: &Quantity) -> (String, String) {
    let path = quantity.path();
    match quantity {
        Quantity::Output(tap) | Quantity::Into { module: tap, .. } => (path.to_owned(), tap[path.len()..].to_owned()),
        Quantity::Start(_) | Quantity::Gradient(_) | Quantity::After { .. } => {
            let spelt = quantity.in_pytorch();
            let (module, last) = spelt.as_ref().unwrap_or(quantity).path().rsplit_once('.').unwrap_or(("", path));
            (module.to_owned(), last.to_owned())
        }
        Quantity::Input(_) | Quantity::Loss(_) => (String::new(), path.to_owned()),
    }
}

/// The kind of a quantity: what its key begins with.
fn kind(quantity: &Quantity) -> String {
    quantity.key().split('/').next().unwrap_or_default().to_owned()
}

/// The shape of a recorded tensor.
fn shape(entry: &Entry) -> Result<Vec<usize>, GoldenError> {
    if let Some(shape) = &entry.claim.shape {
        return Ok(shape.clone());
    }
    if let Some((_, shape)) = entry.content.statistics() {
        return Ok(shape.to_vec());
    }
    Ok(entry.array()?.map(|array| array.shape).unwrap_or_default())
}
