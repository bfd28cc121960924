//! The dictionary of a file that holds the network.

use super::naming::{Matched, Naming, Shapes, Wanted};

/// The usual names of a network's state_dict, the likeliest first.
const USUAL: [&str; 10] = [
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
    "model_state",
    "generator",
];
/// What occurs in the names of averages; they come after the weights themselves.
const AVERAGES: [&str; 4] = ["ema", "average", "avg", "swa"];
/// What occurs in the names of the state of optimizers, which may have the shapes of the network.
const OPTIMIZERS: [&str; 5] = ["optim", "exp_avg", "moment", "grad", "shampoo"];

/// A dictionary of tensors in a file.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Its keys, joined by dots; empty for the file itself.
    pub name: String,
    /// Its tensors.
    pub shapes: Shapes,
}

/// The dictionary that was chosen.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Its place among the candidates.
    pub place: usize,
    /// Its keys; `None` for the file itself.
    pub entry: Option<String>,
    /// Others that fit as well.
    pub also: Vec<String>,
    /// Its tensors.
    pub shapes: Shapes,
    /// Its names as names of the network.
    pub matched: Matched,
}

/// Chooses the entry with this name, or the one that fills most variables; of several, by [`rank`].
pub(super) fn choose(
    candidates: &[Candidate],
    entry: Option<&str>,
    wanted: &Wanted,
    naming: &Naming,
) -> Result<Chosen, String> {
    let taken = |place: usize, matched: Matched, also: Vec<String>| {
        let Candidate { name, shapes } = &candidates[place];
        let entry = Some(name.clone()).filter(|name| !name.is_empty());
        Chosen { place, entry, also, shapes: shapes.clone(), matched }
    };
    if let Some(entry) = entry {
        let place = candidates.iter().position(|candidate| candidate.name == entry);
        let place = place.ok_or_else(|| without(entry, candidates))?;
        return Ok(taken(place, Matched::new(wanted, &candidates[place].shapes, naming), Vec::new()));
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(candidates[*place].shapes.len()));
    let mut fitting: Vec<(usize, Matched)> = Vec::new();
    let mut most = 0;
    for place in order {
        // The rest have fewer tensors than the best one fills.
        if candidates[place].shapes.len() < most.max(1) && !fitting.is_empty() {
            break;
        }
        let matched = Matched::new(wanted, &candidates[place].shapes, naming);
        most = most.max(matched.fitting);
        fitting.push((place, matched));
    }
    // Where nothing fits, the largest is the one to report on.
    fitting.retain(|(_, matched)| matched.fitting == most);
    if most > 0 {
        fitting.sort_by_key(|(place, _)| (rank(&candidates[*place].name), *place));
    }
    let mut fitting = fitting.into_iter();
    let (place, matched) = fitting.next().ok_or("it contains no tensors")?;
    let also = fitting.filter(|_| most > 0).map(|(place, _)| candidates[place].name.clone());
    Ok(taken(place, matched, also.collect()))
}

/// The order of entries that fit equally well: the file itself, usual names, other names, averages, state of optimizers.
fn rank(name: &str) -> usize {
    let keys: Vec<String> = name.split('.').map(str::to_lowercase).collect();
    let any = |words: &[&str]| keys.iter().any(|key| words.iter().any(|word| key.contains(word)));
    let usual = keys.iter().filter_map(|key| USUAL.iter().position(|usual| usual == key)).min();
    match () {
        () if name.is_empty() => 0,
        () if any(&OPTIMIZERS) => USUAL.len() + 3,
        () if any(&AVERAGES) => USUAL.len() + 2,
        () => 1 + usual.unwrap_or(USUAL.len()),
    }
}

fn without(entry: &str, candidates: &[Candidate]) -> String {
    const NAMED: usize = 12;
    let names: Vec<String> = candidates
        .iter()
        .filter(|candidate| !candidate.name.is_empty())
        .map(|candidate| format!("`{}`", candidate.name))
        .collect();
    match names.len() {
        0 => format!("it has no entries, so there is no `{entry}`"),
        many => {
            let more = if many > NAMED { ", ..." } else { "" };
            let names = names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
            format!("it has no entry `{entry}` with tensors; those with tensors: {names}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn candidate(name: &str, tensors: &[&str]) -> Candidate {
        let shapes = tensors.iter().map(|tensor| ((*tensor).to_owned(), Some(vec![2]))).collect();
        Candidate { name: name.to_owned(), shapes }
    }

    fn chosen(candidates: &[Candidate]) -> (Option<String>, Vec<String>) {
        let variables = BTreeMap::from([("a.weight".to_owned(), vec![2]), ("a.bias".to_owned(), vec![2])]);
        let wanted = Wanted { order: variables.keys().cloned().collect(), variables, aliases: BTreeMap::new() };
        let chosen = choose(candidates, None, &wanted, &Naming::default()).unwrap();
        (chosen.entry, chosen.also)
    }

    const NETWORK: [&str; 2] = ["a.weight", "a.bias"];

    #[test]
    fn the_entry_that_fits_is_taken_whatever_its_name_and_whatever_stands_beside_it() {
        let beside = [candidate("", &["best_acc1", "loss", "c"]), candidate("optimizer.state.0", &["exp_avg", "step"])];
        for name in ["state_dict", "model", "my.own.name", "ema", "0"] {
            let all =
                [&beside[..], &[candidate(name, &NETWORK), candidate("discriminator", &["x", "y", "z"])]].concat();
            assert_eq!(chosen(&all), (Some(name.to_owned()), vec![]));
        }
        let wrapped = candidate("model", &["module.a.weight", "module.a.bias"]);
        assert_eq!(chosen(&[candidate("", &["loss"]), wrapped]).0.as_deref(), Some("model"));
    }

    #[test]
    fn of_several_that_fit_the_weights_come_before_averages_and_state() {
        let named = |names: &[&str]| chosen(&names.iter().map(|name| candidate(name, &NETWORK)).collect::<Vec<_>>());
        assert_eq!(named(&["optimizer.exp_avg", "model_ema", "model"]).0.as_deref(), Some("model"));
        assert_eq!(named(&["optimizer.exp_avg", "model_ema"]).0.as_deref(), Some("model_ema"));
        let (entry, also) = named(&["state_dict_ema", "teacher", "student"]);
        assert_eq!(
            (entry.as_deref(), also),
            (Some("teacher"), vec!["student".to_owned(), "state_dict_ema".to_owned()])
        );
        assert_eq!(named(&["model", ""]).0, None);
    }
}
