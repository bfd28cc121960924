//! Checks of the preprocessing: contradictions, and likely mistakes.

use super::Check;
use crate::builder::LABEL;
use crate::losses::FormulaTerm;
use crate::schema::{Levels, Mix, Normalize, SampleKind, Step};
use zoo_graph::formula::names;

impl Check<'_> {
    pub(super) fn preprocess(&mut self) {
        let recipe = self.recipe;
        if let Some(text) = &recipe.preprocess.text {
            self.range("preprocess.text.rotation", text.rotation, [-180.0, 180.0]);
            self.range("preprocess.text.scale", text.scale, [0.01, 100.0]);
            self.range("preprocess.text.threshold", text.threshold, [0.0, 1.0]);
        }
        if let Some(pairs) = &recipe.preprocess.pairs {
            let shapes = pairs.anchors.ratios.iter().chain(&pairs.anchors.scales);
            let empty = pairs.anchors.ratios.is_empty() || pairs.anchors.scales.is_empty();
            if empty || shapes.into_iter().any(|value| value.is_nan() || *value <= 0.0) {
                let hint = "for example ratios [0.33, 0.5, 1, 2, 3] and scales [8]";
                self.error("preprocess.pairs.anchors", "anchors need ratios and scales above 0", hint);
            }
        }
        if let Some(mix) = &recipe.preprocess.mix {
            self.mix(mix);
        }
        if recipe.preprocess.masking.is_some() {
            self.masking();
        }
        let kind = recipe.data.source.kind();
        if recipe.preprocess.tta.is_some() && kind != SampleKind::Image {
            let message = format!("the outputs for {} cannot be averaged", kind.describe());
            self.error("preprocess.tta", message, "only those for images with one class can");
        }
        self.steps("train", &recipe.preprocess.train);
        self.steps("eval", &recipe.preprocess.eval);
        self.same_levels();
    }

    fn mix(&mut self, mix: &Mix) {
        let (recipe, path) = (self.recipe, "preprocess.mix");
        if mix.mixup == 0.0 && mix.cutmix == 0.0 {
            self.error(path, "neither mixup nor cutmix", "torchvision trains with {mixup: 0.2, cutmix: 1.0}");
        }
        for (key, alpha) in [("mixup", mix.mixup), ("cutmix", mix.cutmix)] {
            if alpha > 0.0 && alpha < 0.01 {
                let hint = "write 0 for none, or at least 0.01";
                self.error(&format!("{path}.{key}"), format!("{alpha} is too small to draw from"), hint);
            }
        }
        let kind = recipe.data.source.kind();
        if kind != SampleKind::Image {
            let message = format!("{} cannot be mixed", kind.describe());
            self.error(path, message, "only images with one class can");
        }
        let of_label = |formula: &FormulaTerm| names(&formula.formula).iter().any(|name| name == LABEL);
        if let Some((name, _)) = recipe.loss.formulas.iter().find(|(_, formula)| of_label(formula)) {
            let message = "the formula reads `label`, but the images of a batch are mixed";
            let hint = "use `softmax_cross_entropy`, which weighs both classes, or remove `preprocess.mix`";
            self.error(&format!("loss.formulas.{name}"), message, hint);
        }
        if recipe.loss.softmax_cross_entropy.is_none() {
            let message = "images are mixed, but no term of the loss weighs their two classes";
            self.error(path, message, "`loss.softmax_cross_entropy` does");
        }
    }

    fn masking(&mut self) {
        let (recipe, path) = (self.recipe, "preprocess.masking");
        let kind = recipe.data.source.kind();
        if kind != SampleKind::Language {
            let message = format!("{} have no tokens that could be hidden", kind.describe());
            return self.error(path, message, "only text has tokens");
        }
        let Some(entropy) = &recipe.loss.softmax_cross_entropy else {
            let message = "tokens are hidden, but no term of the loss predicts them";
            return self.error(path, message, "`loss.softmax_cross_entropy` does");
        };
        let hint = "write a number that is no token, for example `ignore: 65535`, or larger for a larger vocabulary";
        match entropy.ignore {
            None => {
                let message = "the loss is over hidden tokens only, so it must ignore the label of all others";
                self.error("loss.softmax_cross_entropy", message, hint);
            }
            Some(ignored) if (ignored as usize) < recipe.model.classes => {
                let message = format!("the ignored label {ignored} is one of the {} tokens", recipe.model.classes);
                self.error("loss.softmax_cross_entropy.ignore", message, hint);
            }
            Some(_) => {}
        }
    }

    fn steps(&mut self, split: &str, steps: &[Step]) {
        // Smallest height and width of images at this step, if an earlier step determines them.
        let mut least: Option<[usize; 2]> = None;
        for (index, step) in steps.iter().enumerate() {
            let path = |rest: &str| format!("preprocess.{split}[{index}].{rest}");
            if split == "eval"
                && let Some((name, what, hint)) = at_random(step)
            {
                let message = format!("evaluation {what} at random, so results are not reproducible");
                self.warn(&path(name), message, hint);
            }
            match step {
                Step::Normalize(normalize) => self.levels(&path("normalize"), normalize),
                Step::RandomResizedCrop(crop) => {
                    self.range(&path("random_resized_crop.scale"), crop.scale, [f64::MIN_POSITIVE, 1.0]);
                    self.range(&path("random_resized_crop.ratio"), crop.ratio, [0.01, 100.0]);
                    least = Some([crop.size, crop.size]);
                }
                Step::RandomCoveringCrop(crop) => {
                    self.range(&path("random_covering_crop.area"), crop.area, [f64::MIN_POSITIVE, 1.0]);
                    self.range(&path("random_covering_crop.ratio"), crop.ratio, [0.01, 100.0]);
                    least = None;
                }
                Step::Resize(resize) => least = Some([resize.shorter, resize.shorter]),
                Step::ResizeTo(resize) => least = Some(resize.size.extent()),
                Step::CenterCrop(crop) => {
                    let size = crop.size.extent();
                    self.within(&path("center_crop.size"), size, least);
                    least = Some(size);
                }
                Step::RandomCrop(crop) => {
                    let padded = least.map(|[height, width]| [height + 2 * crop.pad, width + 2 * crop.pad]);
                    self.within(&path("random_crop.size"), [crop.size, crop.size], padded);
                    least = Some([crop.size, crop.size]);
                }
                Step::RandAugment(augment) => {
                    if augment.magnitude >= augment.bins {
                        let message =
                            format!("a magnitude of {} is not below {} bins", augment.magnitude, augment.bins);
                        self.error(&path("rand_augment.magnitude"), message, "torchvision has 9 of 31");
                    }
                }
                Step::RandomErasing(erasing) => {
                    self.range(&path("random_erasing.scale"), erasing.scale, [f64::MIN_POSITIVE, 1.0]);
                    self.range(&path("random_erasing.ratio"), erasing.ratio, [0.01, 100.0]);
                }
                Step::HorizontalFlip(_) | Step::ColorJitter(_) | Step::TrivialAugment(_) => {}
            }
        }
    }

    /// A crop of images that can be smaller: their border is then black, which torchvision's CenterCrop does silently
    /// (torchvision.transforms.functional.center_crop: "image is padded with 0 and then cropped").
    fn within(&mut self, path: &str, [height, width]: [usize; 2], least: Option<[usize; 2]>) {
        let Some([there_height, there_width]) = least else { return };
        if height > there_height || width > there_width {
            let message = format!(
                "a crop of {height}x{width} from images that can be {there_height}x{there_width} leaves black borders"
            );
            self.warn(
                path,
                message,
                "resize to a larger size than the crop: 256 before 224 (arXiv 1512.03385, \
                                      section 3.4)",
            );
        }
    }

    /// Mean and deviation of other levels than the pixels have.
    fn levels(&mut self, path: &str, normalize: &Normalize) {
        if normalize.std.iter().any(|std| *std <= 0.0) {
            self.error(&format!("{path}.std"), "a standard deviation must be more than 0", "one per channel");
        }
        let byte_mean = normalize.mean.iter().any(|mean| *mean > 2.0);
        if byte_mean && normalize.scale == Levels::Unit {
            let message = "a mean above 2 is for pixels from 0 to 255, but pixels are divided by 255 first";
            self.error(&format!("{path}.mean"), message, "add `scale: byte`");
        }
        // ImageNet's mean and deviation are 0.45 and 0.225 of pixels between 0 and 1, 115 and 57 of pixels to 255
        // (torchvision's references/classification/presets.py). Deviation 1 leaves the levels as they are.
        let unit_std = normalize.std.iter().all(|std| *std > 0.0 && *std < 1.0);
        if unit_std && normalize.scale == Levels::Byte {
            let message = "a deviation below 1 is for pixels from 0 to 1, but pixels stay between 0 and 255";
            let hint = "remove `scale: byte` (torchvision: mean 0.485, std 0.229 of pixels divided by 255)";
            self.warn(&format!("{path}.std"), message, hint);
        }
        if !byte_mean && normalize.scale == Levels::Unit && normalize.std.iter().any(|std| *std > 2.0) {
            let message = "a deviation above 2 is for pixels from 0 to 255, but pixels are divided by 255 first";
            self.warn(&format!("{path}.std"), message, "add `scale: byte`, or divide by 255 (torchvision: std 0.229)");
        }
    }

    /// A network judged on other levels than it was trained on. "Fixing the train-test resolution discrepancy" (arXiv
    /// 1906.06423) shows what already another apparent size costs.
    fn same_levels(&mut self) {
        let recipe = self.recipe;
        let last = |steps: &[Step]| {
            steps.iter().enumerate().rev().find_map(|(index, step)| match step {
                Step::Normalize(normalize) => Some((index, normalize.clone())),
                _ => None,
            })
        };
        let (train, eval) = (last(&recipe.preprocess.train), last(&recipe.preprocess.eval));
        let (Some((_, train)), Some((index, eval))) = (train, eval) else { return };
        if train != eval {
            let message = "evaluation normalises differently from training";
            let hint = "use the same mean, std, scale and channels as in training";
            self.warn(&format!("preprocess.eval[{index}].normalize"), message, hint);
        }
    }
}

/// The name of a random step, what it does, and a hint; `None` for other steps.
fn at_random(step: &Step) -> Option<(&'static str, &'static str, &'static str)> {
    const UNCHANGED: &str = "evaluation uses the images without random changes";
    const CENTRE: &str = "`resize` and `center_crop` are usual (arXiv 1512.03385, section 3.4)";
    match step {
        Step::HorizontalFlip(_) => Some(("horizontal_flip", "mirrors", UNCHANGED)),
        Step::ColorJitter(_) => Some(("color_jitter", "changes colours", UNCHANGED)),
        Step::RandAugment(_) => Some(("rand_augment", "changes images", UNCHANGED)),
        Step::TrivialAugment(_) => Some(("trivial_augment", "changes images", UNCHANGED)),
        Step::RandomErasing(_) => Some(("random_erasing", "erases", UNCHANGED)),
        Step::RandomCrop(_) => Some(("random_crop", "crops", CENTRE)),
        Step::RandomResizedCrop(_) => Some(("random_resized_crop", "crops", CENTRE)),
        Step::RandomCoveringCrop(_) => Some(("random_covering_crop", "crops", CENTRE)),
        Step::Resize(_) | Step::ResizeTo(_) | Step::CenterCrop(_) | Step::Normalize(_) => None,
    }
}
