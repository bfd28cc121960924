//! Names inside wrappers: `module.conv1` of DistributedDataParallel is `conv1` of the network.

use zoo_recipe::ROOT;

/// Parts of a path that wrappers of networks add.
const WRAPPERS: [&str; 7] = [
    "module",                     // DataParallel, DistributedDataParallel, FSDP, DeepSpeed
    "_orig_mod",                  // torch.compile
    "_fsdp_wrapped_module",       // FullyShardedDataParallel
    "_checkpoint_wrapped_module", // checkpoint_wrapper
    "_backbone",                  // MindSpore's WithLossCell
    "network",                    // MindSpore's TrainOneStepCell, cells of MindCV
    "_layers",                    // PaddlePaddle's DataParallel
];
/// Most such parts of one path.
const MOST: usize = 6;

/// A path without some of its wrappers.
pub(crate) struct Unwrapped {
    pub path: String,
    /// What was removed, as `module._orig_mod.`.
    pub removed: String,
}

/// A path without each choice of its wrappers, those with the fewest removed first.
pub(crate) fn unwrapped(path: &str) -> Vec<Unwrapped> {
    let parts: Vec<&str> = path.split('.').collect();
    let wrappers: Vec<usize> = (0..parts.len()).filter(|n| WRAPPERS.contains(&parts[*n])).take(MOST).collect();
    let choices = 1u32..1 << wrappers.len();
    let mut all: Vec<(u32, Unwrapped)> = choices
        .map(|choice| {
            let is_removed = |n: &usize| wrappers.iter().position(|w| w == n).is_some_and(|bit| choice >> bit & 1 == 1);
            let (removed, kept): (Vec<usize>, Vec<usize>) = (0..parts.len()).partition(is_removed);
            let removed = removed.iter().map(|n| format!("{}.", parts[*n])).collect();
            let kept: Vec<&str> = kept.iter().map(|n| parts[*n]).collect();
            (choice.count_ones(), Unwrapped { path: inner(&kept.join(".")), removed })
        })
        .collect();
    all.sort_by_key(|(count, _)| *count);
    all.into_iter().map(|(_, unwrapped)| unwrapped).collect()
}

/// The first one, two, ... parts of a path, each with the rest.
pub(crate) fn prefixes(path: &str) -> impl Iterator<Item = (&str, String)> {
    let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
    ends.take(MOST).map(|end| (&path[..end], inner(path[end..].trim_start_matches('.'))))
}

/// A wrapper around nothing is around the network.
fn inner(path: &str) -> String {
    if path.is_empty() { ROOT.to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_removed_anywhere_and_one_at_a_time_first() {
        let of = |path| -> Vec<(String, String)> { unwrapped(path).into_iter().map(|u| (u.path, u.removed)).collect() };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("conv1.weight"), []);
        assert_eq!(of("module"), [pair("@root", "module.")]);
        assert_eq!(of("layer1._checkpoint_wrapped_module.0"), [pair("layer1.0", "_checkpoint_wrapped_module.")]);
        let both = of("module._orig_mod.fc");
        assert_eq!(both[2], pair("fc", "module._orig_mod."));
        assert_eq!(both[0].0, "_orig_mod.fc");
        assert_eq!(of("modules.fc"), []);
    }

    #[test]
    fn prefixes_come_with_their_rest() {
        let of: Vec<(&str, String)> = prefixes("resnet.layer1.0").collect();
        assert_eq!(
            of,
            [("resnet", "layer1.0".into()), ("resnet.layer1", "0".into()), ("resnet.layer1.0", "@root".into())]
        );
    }
}
