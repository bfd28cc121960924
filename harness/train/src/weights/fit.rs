//! Matches the tensors of a file with the variables of a network.

use candle_core::Tensor;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};
use zoo_graph::Graph;
use zoo_recipe::schema;

use super::Weights;

/// PyTorch's batch counter of running statistics, which is only used by normalisations without momentum.
pub(super) const COUNTER: &str = "num_batches_tracked";

/// Maps names of the file to names of the network: `strip` + rest becomes `add` + rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// A prefix that only names in the file have, such as `module.`.
    pub strip: String,
    /// A prefix that only names in the network have; variables without it are not loaded from the file.
    pub add: String,
}

impl Naming {
    /// The file's name for a variable; `None` if it is not loaded from the file.
    pub(crate) fn theirs(&self, variable: &str) -> Option<String> {
        Some(format!("{}{}", self.strip, variable.strip_prefix(&self.add)?))
    }
}

impl From<&schema::InitFrom> for Naming {
    fn from(source: &schema::InitFrom) -> Self {
        let prefix = |module: &Option<String>| module.as_ref().map(|module| format!("{module}.")).unwrap_or_default();
        Self { strip: prefix(&source.from), add: prefix(&source.into) }
    }
}

/// A single tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shaped {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A variable with another shape in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// Its name in the network.
    pub name: String,
    /// Its shape in the file.
    pub file: Vec<usize>,
    /// Its shape in the network.
    pub network: Vec<usize>,
}

/// The match between the tensors of a file and the parameters and running statistics of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The file.
    pub file: PathBuf,
    /// The entry of the file that was compared, if not the file itself.
    pub entry: Option<String>,
    /// Variables that have a tensor in the file, with the names of the network.
    pub taken: Vec<String>,
    /// Variables that are not in the file.
    pub missing: Vec<Shaped>,
    /// Variables with another shape in the file.
    pub unlike: Vec<Unlike>,
    /// Tensors in the file that the network does not have.
    pub surplus: Vec<Shaped>,
    /// A suggestion.
    pub hint: Option<String>,
}

impl Fit {
    /// Compares tensors with variables. PyTorch's `num_batches_tracked` and optimizer state are ignored.
    pub fn new(graph: &Graph, weights: &Weights, naming: &Naming) -> Self {
        let kept = graph.variables.iter().filter(|v| v.role.kept_beside().is_none());
        let wanted = kept.map(|v| (v.name.as_str(), graph.ty(v.value).shape.to_vec()));
        Self::between(wanted, weights, naming)
    }

    fn between<'a>(wanted: impl Iterator<Item = (&'a str, Vec<usize>)>, weights: &Weights, naming: &Naming) -> Self {
        // Optimizer state of a parameter is named `PARAMETER/SLOT`.
        let is_weight = |name: &&String| !name.contains('/') && name.rsplit('.').next() != Some(COUNTER);
        let mut rest: BTreeMap<&String, &Tensor> = weights.tensors.iter().filter(|(name, _)| is_weight(name)).collect();
        let mut fit = Self {
            file: weights.file.clone(),
            entry: weights.entry.clone(),
            taken: Vec::new(),
            missing: Vec::new(),
            unlike: Vec::new(),
            surplus: Vec::new(),
            hint: None,
        };
        for (name, shape) in wanted {
            let Some(theirs) = naming.theirs(name) else { continue };
            let name = name.to_owned();
            match rest.remove(&theirs).map(|tensor| tensor.dims().to_vec()) {
                Some(file) if file == shape => fit.taken.push(name),
                Some(file) => fit.unlike.push(Unlike { name, file, network: shape }),
                None => fit.missing.push(Shaped { name, shape }),
            }
        }
        let shaped = |(name, tensor): (&String, &Tensor)| Shaped { name: name.clone(), shape: tensor.dims().to_vec() };
        fit.surplus = rest.into_iter().map(shaped).collect();
        fit.hint = fit.prefix().or_else(|| fit.origin(weights));
        fit
    }

    /// Whether the file contains everything that the network needs.
    pub fn is_enough(&self) -> bool {
        self.missing.is_empty() && self.unlike.is_empty()
    }

    /// Whether file and network have the same tensors.
    pub fn is_exact(&self) -> bool {
        self.is_enough() && self.surplus.is_empty()
    }

    /// A prefix with which most missing tensors would fit.
    fn prefix(&self) -> Option<String> {
        let missing: BTreeSet<&str> = self.missing.iter().map(|shaped| shaped.name.as_str()).collect();
        let surplus: BTreeSet<&str> = self.surplus.iter().map(|shaped| shaped.name.as_str()).collect();
        let (strip, stripped) = commonest(&surplus, &missing);
        let (add, added) = commonest(&missing, &surplus);
        // A single fitting name may be chance.
        let most = stripped.max(added);
        if most < 2 || 2 * most < missing.len().min(surplus.len()) {
            return None;
        }
        Some(match stripped >= added {
            true => format!("{stripped} names fit without the prefix `{strip}`: use --strip {strip}"),
            false => format!("{added} names fit with the prefix `{add}`: use --add {add}"),
        })
    }

    /// Files of zoo store their recipe.
    fn origin(&self, weights: &Weights) -> Option<String> {
        let origin = weights.origin.as_ref().filter(|_| !self.is_exact())?;
        Some(match origin.data.classes {
            0 => format!("the checkpoint is from the recipe `{}`", origin.recipe),
            classes => format!("the checkpoint is from the recipe `{}` with {classes} classes", origin.recipe),
        })
    }
}

/// The most frequent prefix (ending in a dot) of `others` among `names`, and its count.
fn commonest(names: &BTreeSet<&str>, others: &BTreeSet<&str>) -> (String, usize) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        for (dot, _) in name.match_indices('.') {
            if others.contains(&name[dot + 1..]) {
                *counts.entry(&name[..=dot]).or_default() += 1;
            }
        }
    }
    // The shortest of equally frequent ones.
    let best = counts.into_iter().max_by_key(|(prefix, count)| (*count, std::cmp::Reverse(prefix.len())));
    best.map_or((String::new(), 0), |(prefix, count)| (prefix.to_owned(), count))
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.taken.len() + self.missing.len() + self.unlike.len();
        write!(f, "{} of {wanted} tensors fit, from {}", self.taken.len(), self.file.display())?;
        if let Some(entry) = &self.entry {
            write!(f, ", entry {entry}")?;
        }
        let names = |list: &[Shaped]| list.iter().map(|shaped| shaped.name.clone()).collect::<Vec<_>>();
        let unlike = self.unlike.iter().map(|u| format!("{} ({:?} in the file, {:?} here)", u.name, u.file, u.network));
        let rests = [
            ("not in the file", names(&self.missing)),
            ("of another shape", unlike.collect()),
            ("in the file, not in the network", names(&self.surplus)),
        ];
        for (what, names) in rests.into_iter().filter(|(_, names)| !names.is_empty()) {
            const NAMED: usize = 4;
            let some = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if names.len() > NAMED { ", ..." } else { "" };
            write!(f, "\n  {} {what}: {some}{more}", names.len())?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    fn weights(names: &[(&str, &[usize])]) -> Weights {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let tensors = names.iter().map(|(name, shape)| ((*name).to_owned(), zeros(shape))).collect();
        Weights { file: "f.pth".into(), entry: None, origin: None, tensors }
    }

    fn fit(network: &[(&str, &[usize])], file: &[(&str, &[usize])], naming: &Naming) -> Fit {
        Fit::between(network.iter().map(|(name, shape)| (*name, shape.to_vec())), &weights(file), naming)
    }

    const NETWORK: [(&str, &[usize]); 3] =
        [("conv.weight", &[4, 3, 3, 3]), ("bn.running_mean", &[4]), ("fc.bias", &[10])];

    #[test]
    fn counters_and_slots_are_no_weights() {
        let file: [(&str, &[usize]); 5] =
            [NETWORK[0], NETWORK[1], NETWORK[2], ("bn.num_batches_tracked", &[]), ("fc.bias/momentum_buffer", &[10])];
        assert!(fit(&NETWORK, &file, &Naming::default()).is_exact());
    }

    #[test]
    fn what_does_not_fit_is_named_with_both_shapes() {
        let file: [(&str, &[usize]); 3] = [("conv.weight", &[4, 3, 3, 3]), ("fc.bias", &[1000]), ("aux.bias", &[7])];
        let fit = fit(&NETWORK, &file, &Naming::default());
        assert_eq!(fit.taken, ["conv.weight"]);
        assert_eq!(fit.missing, [Shaped { name: "bn.running_mean".into(), shape: vec![4] }]);
        assert_eq!(fit.unlike, [Unlike { name: "fc.bias".into(), file: vec![1000], network: vec![10] }]);
        assert_eq!(fit.surplus, [Shaped { name: "aux.bias".into(), shape: vec![7] }]);
        assert_eq!((fit.is_enough(), fit.is_exact(), fit.hint.as_deref()), (false, false, None));
        let said = fit.to_string();
        assert!(said.contains("1 of another shape: fc.bias ([1000] in the file, [10] here)"), "{said}");
    }

    #[test]
    fn a_prefix_is_proposed_and_helps() {
        let file: [(&str, &[usize]); 3] =
            [("module.conv.weight", &[4, 3, 3, 3]), ("module.bn.running_mean", &[4]), ("module.fc.bias", &[10])];
        let refused = fit(&NETWORK, &file, &Naming::default());
        assert_eq!(refused.hint.as_deref(), Some("3 names fit without the prefix `module.`: use --strip module."));
        let strip = Naming { strip: "module.".into(), add: String::new() };
        assert!(fit(&NETWORK, &file, &strip).is_exact());
        // The reverse: the file contains a part of the network.
        let refused = fit(&file, &NETWORK, &Naming::default());
        assert_eq!(refused.hint.as_deref(), Some("3 names fit with the prefix `module.`: use --add module."));
        let add = Naming { strip: String::new(), add: "module.".into() };
        assert!(fit(&file, &NETWORK, &add).is_exact());
    }
}
