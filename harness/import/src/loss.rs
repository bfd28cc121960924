//! The loss of a recipe.

use crate::scalar::scalar;
use crate::trace::{LossKind, LossTerm, Training};
use crate::word::number;
use crate::write::WIDTH;

/// The section `loss`; `softmax_cross_entropy: {}` if no term is given.
pub fn loss(training: &Training, output: Option<&String>) -> String {
    let usual = || {
        let outputs = vec![output.cloned().unwrap_or_default()];
        LossTerm { kind: LossKind::CrossEntropy, outputs, target: None, name: None }
    };
    let usual = training.losses.is_empty().then(usual);
    let (mut terms, mut entropies, mut comparisons) = (Vec::new(), Vec::new(), Vec::new());
    for term in training.losses.iter().chain(&usual) {
        let (tag, said) = settings(term, training);
        let written = format!("{{{}}}", said.into_iter().flatten().collect::<Vec<_>>().join(", "));
        match (&term.name, term.kind) {
            (None, _) => terms.push(format!("{tag}: {written}")),
            (Some(name), LossKind::CrossEntropy) => entropies.push(format!("{}: {written}", scalar(name))),
            (Some(name), _) => comparisons.push(format!("{}: {{{tag}: {written}}}", scalar(name))),
        }
    }
    let mut groups = vec![("cross_entropies", entropies), ("comparisons", comparisons)];
    groups.retain(|(_, inside)| !inside.is_empty());
    let flow: Vec<String> = groups.iter().map(|(key, inside)| format!("{key}: {{{}}}", inside.join(", "))).collect();
    let line = format!("loss: {{{}}}\n", [&terms[..], &flow].concat().join(", "));
    if line.len() <= WIDTH {
        return line;
    }
    let mut text = "loss:\n".to_owned();
    terms.iter().for_each(|term| text += &format!("  {term}\n"));
    for (key, inside) in groups {
        text += &format!("  {key}:\n");
        inside.iter().for_each(|term| text += &format!("    {term}\n"));
    }
    text
}

/// The key of a term, and what it says.
fn settings(
    LossTerm { kind, outputs, target, .. }: &LossTerm,
    training: &Training,
) -> (&'static str, Vec<Option<String>>) {
    let key = |key: &str, value: Option<String>| value.map(|value| format!("{key}: {value}"));
    let named = |place: usize, key: &str, usual: &[&str]| {
        let name = outputs.get(place).filter(|name| !usual.contains(&name.as_str()));
        key_of(key, name)
    };
    let compared = |key: &str| key_of(key, target.as_ref().filter(|target| *target != key));
    let share = Some(training.label_smoothing).filter(|share| *share != 0.0).map(number);
    let prediction = named(0, "prediction", &["", "logits"]);
    match kind {
        LossKind::CrossEntropy => (
            "softmax_cross_entropy",
            vec![
                prediction,
                compared("label"),
                key("label_smoothing", share),
                key("ignore", training.ignore.map(|label| label.to_string())),
            ],
        ),
        LossKind::Nll => ("nll", vec![prediction]),
        LossKind::Mse => ("mse", vec![prediction, compared("target")]),
        LossKind::Mae => ("mae", vec![prediction, compared("target")]),
        LossKind::Bce => ("bce", vec![prediction, compared("target")]),
        LossKind::BceProbabilities => {
            ("bce", vec![prediction, compared("target"), key("of", Some("probabilities".to_owned()))])
        }
        LossKind::Triplet => {
            let roles = ["anchor", "positive", "negative"].into_iter().enumerate();
            ("triplet", roles.map(|(place, role)| named(place, role, &[])).collect())
        }
    }
}

/// `key: name`.
fn key_of(key: &str, name: Option<&String>) -> Option<String> {
    name.map(|name| format!("{key}: {}", scalar(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(kind: LossKind, output: &str, target: &str, name: Option<&str>) -> LossTerm {
        let (outputs, target) = (vec![output.to_owned()], Some(target.to_owned()));
        LossTerm { kind, outputs, target, name: name.map(str::to_owned) }
    }

    #[test]
    fn the_first_of_a_kind_has_its_key_and_others_have_names() {
        let losses = vec![
            term(LossKind::CrossEntropy, "out", "label", None),
            term(LossKind::CrossEntropy, "aux", "aux_label", Some("aux_cross_entropy")),
            term(LossKind::Mse, "boxes", "boxes_target", None),
        ];
        let mut training = Training { losses, ..Training::default() };
        let wanted = "loss:\n  softmax_cross_entropy: {prediction: out}\n  mse: {prediction: boxes, target: boxes_target}\n  \
                      cross_entropies:\n    aux_cross_entropy: {prediction: aux, label: aux_label}\n";
        assert_eq!(loss(&training, None), wanted);
        training.losses =
            vec![term(LossKind::Mse, "0", "target", None), term(LossKind::Mse, "1", "target", Some("1_mse"))];
        let wanted = "loss: {mse: {prediction: \"0\"}, comparisons: {\"1_mse\": {mse: {prediction: \"1\"}}}}\n";
        assert_eq!(loss(&training, None), wanted);
        assert_eq!(loss(&Training::default(), None), "loss: {softmax_cross_entropy: {}}\n");
    }
}
