//! Quantities of a step: the keys of the golden (golden/README.md), and three more for the start of a step.

use std::fmt;

/// A quantity of the first step, with the names of the recipe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// `start/NAME`: a parameter or running statistic before the step.
    Start(String),
    /// `input/NAME`: an input of the step.
    Input(String),
    /// `in/MODULE#CALL.OPERAND`: an operand of a module.
    Into {
        /// The module and its call.
        module: String,
        /// Index of the operand.
        operand: usize,
    },
    /// `out/MODULE#CALL`: what a module returns.
    Output(String),
    /// `loss/NAME`, or `loss` for the total.
    Loss(String),
    /// `grad/NAME`: the gradient of a parameter, before clipping and decay.
    Gradient(String),
    /// `param1/NAME`, `buffer1/NAME`, `SLOT1/NAME`: a parameter, a running statistic, or a slot of the optimizer,
    /// after the step.
    After {
        /// `param`, `buffer`, or the slot.
        kind: String,
        /// The parameter or statistic.
        name: String,
    },
}

impl Quantity {
    /// Reads a key.
    pub fn parse(key: &str) -> Option<Self> {
        if key == "loss" {
            return Some(Self::Loss("loss".to_owned()));
        }
        let (kind, name) = key.split_once('/').filter(|(_, name)| !name.is_empty())?;
        let name = name.to_owned();
        Some(match kind {
            "start" => Self::Start(name),
            "input" => Self::Input(name),
            "out" if name.contains('#') => Self::Output(name),
            "out" => Self::Output(format!("{name}#0")),
            "in" => {
                let (module, operand) = name.rsplit_once('.')?;
                Self::Into { module: module.to_owned(), operand: operand.parse().ok()? }
            }
            "loss" => Self::Loss(name),
            "grad" => Self::Gradient(name),
            _ => Self::After { kind: kind.strip_suffix('1').filter(|kind| !kind.is_empty())?.to_owned(), name },
        })
    }

    /// The key.
    pub fn key(&self) -> String {
        match self {
            Self::Start(name) => format!("start/{name}"),
            Self::Input(name) => format!("input/{name}"),
            Self::Into { module, operand } => format!("in/{module}.{operand}"),
            Self::Output(name) => format!("out/{name}"),
            Self::Loss(name) => format!("loss/{name}"),
            Self::Gradient(name) => format!("grad/{name}"),
            Self::After { kind, name } => format!("{kind}1/{name}"),
        }
    }

    /// The path of its module or parameter, or the name of the input or loss.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Start(name) | Self::Gradient(name) | Self::After { name, .. } => name,
            Self::Input(name) | Self::Loss(name) => name,
            Self::Into { module: name, .. } | Self::Output(name) => name.split('#').next().unwrap_or(name),
        }
    }

    /// The same quantity of another path.
    pub(crate) fn at(&self, path: &str) -> Self {
        match self {
            Self::Input(_) => Self::Input(path.to_owned()),
            Self::Loss(_) => Self::Loss(path.to_owned()),
            Self::Start(_) | Self::Gradient(_) | Self::After { .. } | Self::Into { .. } | Self::Output(_) => {
                self.clone().renamed(|_| path.to_owned())
            }
        }
    }

    /// The same quantity, with its module renamed.
    pub(super) fn renamed(self, module: impl Fn(&str) -> String) -> Self {
        let called = |name: &str| match name.split_once('#') {
            Some((path, call)) => format!("{}#{call}", module(path)),
            None => module(name),
        };
        match self {
            Self::Start(name) => Self::Start(module(&name)),
            Self::Into { module: name, operand } => Self::Into { module: called(&name), operand },
            Self::Output(name) => Self::Output(called(&name)),
            Self::Gradient(name) => Self::Gradient(module(&name)),
            Self::After { kind, name } => Self::After { kind, name: module(&name) },
            Self::Input(_) | Self::Loss(_) => self,
        }
    }

    /// The same quantity with the PyTorch name of the parameter, if it has the MindSpore name.
    pub(crate) fn in_pytorch(&self) -> Option<Self> {
        let spelt = |name: &str| {
            let (module, last) = name.rsplit_once('.')?;
            let ours = SPELLINGS.iter().find(|(_, theirs)| *theirs == last)?.0;
            Some(format!("{module}.{ours}"))
        };
        match self {
            Self::Start(name) => Some(Self::Start(spelt(name)?)),
            Self::Gradient(name) => Some(Self::Gradient(spelt(name)?)),
            Self::After { kind, name } => Some(Self::After { kind: kind.clone(), name: spelt(name)? }),
            Self::Input(_) | Self::Into { .. } | Self::Output(_) | Self::Loss(_) => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

/// Last parts of parameters' names in PyTorch and in MindSpore (`nn.BatchNorm2d`, `nn.LayerNorm`, `nn.Embedding`).
pub(crate) const SPELLINGS: [(&str, &str); 5] = [
    ("weight", "gamma"),
    ("bias", "beta"),
    ("running_mean", "moving_mean"),
    ("running_var", "moving_variance"),
    ("weight", "embedding_table"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_written() {
        for key in [
            "start/bn.weight",
            "input/image",
            "in/conv1#0.0",
            "out/relu#1",
            "out/@root#0.logits",
            "loss/box",
            "grad/fc.bias",
        ] {
            assert_eq!(Quantity::parse(key).unwrap().key(), key);
        }
        assert_eq!(Quantity::parse("exp_avg_sq1/fc.bias").unwrap().key(), "exp_avg_sq1/fc.bias");
        assert_eq!(Quantity::parse("loss").unwrap().key(), "loss/loss");
        assert_eq!(Quantity::parse("out/fc").unwrap().key(), "out/fc#0");
        for none in ["", "fc.weight", "param3/fc.weight", "grad/", "1/x"] {
            assert_eq!(Quantity::parse(none), None, "{none}");
        }
    }

    #[test]
    fn modules_are_renamed_and_parameters_spelt() {
        let inside = |path: &str| format!("backbone.{path}");
        assert_eq!(Quantity::parse("out/bn#0").unwrap().renamed(inside).key(), "out/backbone.bn#0");
        assert_eq!(Quantity::parse("grad/bn.gamma").unwrap().in_pytorch().unwrap().key(), "grad/bn.weight");
        assert_eq!(Quantity::parse("grad/bn.weight").unwrap().in_pytorch(), None);
    }
}
