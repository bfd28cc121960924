//! Warnings about valid recipes that are known not to train.

use zoo_recipe::layers::Description;
use zoo_recipe::{Diagnostic, Layer, Recipe, ResolvedLayer, ResolvedModel, Severity};

/// A warning if the logits pass through a ReLU, as in the Ascend zoo's AlexNet.
///
/// For negative logits, the ReLU passes no gradient, and the softmax of zeros is uniform: in trainings from scratch,
/// the loss stayed at ln(classes) with every learning rate.
pub(super) fn relu_on_logits(recipe: &Recipe, model: &ResolvedModel) -> Option<Diagnostic> {
    let layer = last(&model.body)?;
    if !matches!(layer.kind, Layer::Relu(_)) {
        return None;
    }
    let message = "there is a ReLU on the logits: trained from scratch, this network does not learn";
    let mut warning = recipe.error_at(&layer.path, message).with_hint(
        "logits that the ReLU sets to zero have a uniform softmax and get no gradient; remove the ReLU with `enabled: \
         false`, as the profile `mini` of the recipe alexnet does, or start from trained weights",
    );
    warning.severity = Severity::Warning;
    Some(warning)
}

/// The layer that computes the output of the network; random layers are the identity in evaluation.
fn last(layers: &[ResolvedLayer]) -> Option<&ResolvedLayer> {
    let computes =
        |layer: &&ResolvedLayer| layer.kind.chance().is_none() && !matches!(layer.kind.describe(), Description::Tap(_));
    let layer = layers.iter().rev().find(computes)?;
    match layer.kind.describe() {
        Description::Row(body) => last(body),
        _ => Some(layer),
    }
}
