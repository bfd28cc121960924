//! Variants of a golden whose losses alone are recorded: what a recipe does without a part of its rules.

use crate::manifest::Golden;
use zoo_recipe::{Recipe, schema::Clip};

/// The recipe of each such variant that the golden has. `bound` is the recipe under the golden's conditions.
pub(crate) fn recipes(recipe: &Recipe, bound: &Recipe, golden: &Golden) -> Vec<(&'static str, Recipe)> {
    let variants = [("no_clip", without_clipping(bound)), ("official_start", with_own_parts(bound, recipe))];
    variants.into_iter().filter(|(name, _)| golden.manifest.variants.contains_key(*name)).collect()
}

/// The norm of the gradients is measured and has no bound.
fn without_clipping(bound: &Recipe) -> Recipe {
    let mut recipe = bound.clone();
    for clip in &mut recipe.gradients.clip {
        match clip {
            Clip::Norm(bound) | Clip::Value(bound) => *bound = f64::INFINITY,
        }
    }
    recipe
}

/// What the recipe itself freezes in its first epoch stays frozen.
fn with_own_parts(bound: &Recipe, recipe: &Recipe) -> Recipe {
    let mut bound = bound.clone();
    bound.train.parts.clone_from(&recipe.train.parts);
    bound
}
