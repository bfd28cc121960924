//! Variants of a golden for which only losses are recorded: the recipe without some of its rules.

use crate::golden::Golden;
use zoo_recipe::{Recipe, schema::Clip};

/// The recipe of each such variant in the golden. `bound` is the recipe under the golden's conditions.
pub(crate) fn recipes(recipe: &Recipe, bound: &Recipe, golden: &Golden) -> Vec<(&'static str, Recipe)> {
    let variants = [("no_clip", without_clipping(bound)), ("official_start", with_own_parts(bound, recipe))];
    variants.into_iter().filter(|(name, _)| golden.manifest.variants.contains_key(*name)).collect()
}

/// Without clipping: the norm of the gradients is computed but not limited.
fn without_clipping(bound: &Recipe) -> Recipe {
    let mut recipe = bound.clone();
    for clip in &mut recipe.gradients.clip {
        match clip {
            Clip::Norm(bound) | Clip::Value(bound) => *bound = f64::INFINITY,
        }
    }
    recipe
}

/// With the recipe's own freezing in its first epoch.
fn with_own_parts(bound: &Recipe, recipe: &Recipe) -> Recipe {
    let mut bound = bound.clone();
    bound.train.parts.clone_from(&recipe.train.parts);
    bound
}
