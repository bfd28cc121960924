//! Parts of a network that are trained differently.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

zoo_settings::settings! {
    /// Modules that are frozen, join or leave the training later, or have another learning rate.
    pub struct Part {
        /// Full names of modules, including everything inside them, or of parameters. For each parameter, the innermost
        /// listed name applies.
        #[schemars(length(min = 1))]
        pub modules: Vec<String>,
        /// Whether they are trained.
        pub trained: bool = true,
        /// First epoch (from 0) in which they are trained. The optimizer is reset at this point, including its
        /// momentum.
        #[serde(skip_serializing_if = "is_zero")]
        #[schemars(range(max = 100000))]
        pub from_epoch: usize = 0,
        /// First epoch in which they are no longer trained.
        #[schemars(range(min = 1, max = 100000))]
        pub until_epoch?: usize,
        /// Factor on the learning rate.
        #[schemars(range(min = 0))]
        pub lr: f64 = 1.0,
        /// Which statistics their normalisations use in training.
        pub statistics: Statistics = Statistics::default(),
        /// Whether their gradients are computed, summed over the steps and included in the norm for clipping, although
        /// they are not updated (as in the refinement stage of the SiamMask code).
        #[serde(skip_serializing_if = "is_false")]
        pub leaks: bool = false,
    }
}

impl Part {
    /// Whether they are trained in an epoch (from 0).
    pub fn trains(&self, epoch: usize) -> bool {
        self.trained && epoch >= self.from_epoch && self.until_epoch.is_none_or(|until| epoch < until)
    }
}

zoo_settings::settings! {
    /// Weights and running statistics from which a training starts.
    pub struct InitFrom {
        /// A run folder, a checkpoint, a safetensors file, or a PyTorch state_dict (`.pth`, `.pt`).
        pub checkpoint: PathBuf,
        /// Module in the file: `<from>.conv1.weight` in the file becomes `conv1.weight`. By default the whole file is
        /// used.
        pub from?: String,
        /// Module of the network: `conv1.weight` in the file becomes `<into>.conv1.weight`. By default names are
        /// unchanged.
        pub into?: String,
    }
}

fn is_zero(epoch: &usize) -> bool {
    *epoch == 0
}

fn is_false(leaks: &bool) -> bool {
    !leaks
}

/// Which statistics a normalisation uses in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// Statistics of the batch; running statistics are updated.
    #[default]
    Batch,
    /// Running statistics, as in evaluation; they are not updated.
    Stored,
}

/// How a parameter or normalisation is trained in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Whether it is updated.
    pub trained: bool,
    /// Factor on the learning rate.
    pub lr: f64,
    /// Which statistics a normalisation uses.
    pub statistics: Statistics,
    /// Whether its gradient is computed and counted though it is not updated.
    pub leaks: bool,
}

impl Training {
    /// How the parameter or module `name` is trained in an epoch (from 0).
    pub fn of(parts: &[Part], name: &str, epoch: usize) -> Self {
        let inside =
            |module: &str| name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let matches = parts.iter().flat_map(|part| part.modules.iter().map(move |module| (module.len(), part)));
        let innermost = matches.filter(|(len, part)| part.modules.iter().any(|m| m.len() == *len && inside(m)));
        match innermost.max_by_key(|(len, _)| *len).map(|(_, part)| part) {
            Some(part) => {
                let trained = part.trains(epoch);
                Self { trained, lr: part.lr, statistics: part.statistics, leaks: part.leaks && !trained }
            }
            None => Self { trained: true, lr: 1.0, statistics: Statistics::Batch, leaks: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_module_counts_and_names_match_whole() {
        let part = |modules: &[&str], lr, from_epoch| Part {
            modules: modules.iter().map(|m| m.to_string()).collect(),
            trained: true,
            from_epoch,
            until_epoch: (from_epoch > 0).then_some(from_epoch + 1),
            lr,
            statistics: Statistics::Stored,
            leaks: false,
        };
        let parts = [part(&["net", "head"], 0.1, 0), part(&["net.layer1"], 0.5, 3)];
        let lr = |name| Training::of(&parts, name, 3).lr;
        assert_eq!([lr("net.conv.weight"), lr("net.layer1.0.weight"), lr("net.layer10.weight")], [0.1, 0.5, 0.1]);
        assert_eq!([lr("network.weight"), lr("head")], [1.0, 0.1]);
        assert!(!Training::of(&parts, "net.layer1.0.weight", 2).trained);
        assert!(Training::of(&parts, "net.layer1.0.weight", 3).trained);
        assert!(!Training::of(&parts, "net.layer1.0.weight", 4).trained);
    }
}
