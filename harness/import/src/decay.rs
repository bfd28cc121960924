//! Which parameters have no weight decay, in the words of a recipe.

use std::collections::BTreeMap;

use zoo_graph::VariableRole;
use zoo_recipe::schema::{DecayGroup, Optimizer, ParameterGroup, Patterns};

/// Roles of the parameters of a recipe, by name.
pub(crate) type Roles = BTreeMap<String, VariableRole>;

/// Excludes these parameters from the decay: by `no_decay` where a whole group is among them, and the others by name.
/// All parameters of one local name, such as tables of positions, have one pattern.
pub(crate) fn spare(optimizer: &mut Optimizer, undecayed: &[String], roles: &Roles) {
    let is_spared = |name: &str| undecayed.iter().any(|other| other == name);
    let (_, no_decay, groups) = optimizer.decay_mut();
    for group in [DecayGroup::Bn, DecayGroup::Bias] {
        let mut members = roles.iter().filter(|(_, role)| group.has(role)).peekable();
        if members.peek().is_some() && members.all(|(name, _)| is_spared(name)) {
            no_decay.push(group);
        }
    }
    let mut patterns: Vec<String> = Vec::new();
    for name in undecayed {
        let role = roles.get(name);
        if role.is_some_and(|role| no_decay.iter().any(|group| group.has(role))) {
            continue;
        }
        let pattern = name.rsplit_once('.').map(|(_, local)| format!("*.{local}"));
        let whole =
            |pattern: &String| roles.keys().filter(|name| name.ends_with(&pattern[1..])).all(|name| is_spared(name));
        let pattern = pattern.filter(whole).unwrap_or_else(|| name.clone());
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    if !patterns.is_empty() {
        groups.push(ParameterGroup { patterns: Patterns::Any(patterns), weight_decay: Some(0.0), lr: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spared(undecayed: &[&str]) -> String {
        let roles = [
            ("bn.weight", VariableRole::NormWeight),
            ("bn.bias", VariableRole::NormBias),
            ("conv.weight", VariableRole::Weight),
            ("conv.bias", VariableRole::Bias),
            ("a.table", VariableRole::Weight),
            ("b.table", VariableRole::Weight),
        ];
        let roles = roles.map(|(name, role)| (name.to_owned(), role)).into();
        let mut optimizer = Optimizer::Sgd(Default::default());
        let undecayed: Vec<String> = undecayed.iter().map(|name| (*name).to_owned()).collect();
        spare(&mut optimizer, &undecayed, &roles);
        let (_, no_decay, groups) = optimizer.decay();
        let patterns: Vec<&[String]> = groups.iter().map(|group| group.patterns.all()).collect();
        format!("{no_decay:?} {patterns:?}")
    }

    #[test]
    fn whole_groups_have_words_and_others_names() {
        assert_eq!(spared(&["bn.weight", "bn.bias", "conv.bias"]), "[Bn, Bias] []");
        assert_eq!(spared(&["bn.bias", "conv.bias"]), "[Bias] [[\"*.bias\"]]");
        assert_eq!(spared(&["a.table", "b.table"]), "[] [[\"*.table\"]]");
        assert_eq!(spared(&["a.table", "conv.weight"]), "[] [[\"a.table\", \"conv.weight\"]]");
    }
}
