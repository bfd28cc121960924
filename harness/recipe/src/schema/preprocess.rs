//! From decoded images to the input of the network, and from its outputs to what is evaluated.

use zoo_settings::settings;

use super::{
    BoxDetection, BoxPreparation, LabelMapPreparation, Masking, PairPreparation, Step, TextDetection, TextPreparation,
    Tracking,
};

settings! {
    /// From a decoded image (u8, RGB) to the input of the network.
    pub struct Preprocess {
        /// Steps for training, in order.
        pub train: Vec<Step> = Vec::new(),
        /// Steps for evaluation, in order.
        pub eval: Vec<Step> = Vec::new(),
        /// How the images of a training batch are mixed, after all steps.
        pub mix?: Mix,
        /// How images are varied in evaluation, to average what the network makes of them.
        pub tta?: TestTimeAugmentation,
        /// How images with text become samples; `train` and `eval` can then only normalise.
        pub text?: TextPreparation,
        /// How images with label maps become samples; `train` and `eval` can then only normalise.
        pub label_maps?: LabelMapPreparation,
        /// How images with boxes become samples; `train` and `eval` can then only normalise.
        pub boxes?: BoxPreparation,
        /// How tokens of texts are hidden from the network, which predicts them; by default it predicts the next token.
        pub masking?: Masking,
        /// How videos become samples; `train` and `eval` can then only normalise.
        pub pairs?: PairPreparation,
    }
}

settings! {
    /// Postprocessing of the outputs of the network before evaluation. Not needed for classification and language
    /// modelling.
    pub struct Postprocess {
        /// Outlines of text.
        pub text?: TextDetection,
        /// Boxes of objects.
        pub boxes?: BoxDetection,
        /// Position of a target.
        pub track?: Tracking,
    }
}

impl Postprocess {
    /// Whether everything is as it is without the section.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

settings! {
    /// Mixes each image of a training batch with the one before it, the first with the last, all with the same share,
    /// and the loss with it: share * loss(own class) + (1 - share) * loss(other class). As torchvision's MixUp and
    /// CutMix. The loss is `softmax_cross_entropy` of the class of each image.
    pub struct Mix {
        /// Images are added, weighted by a share drawn from Beta(`mixup`, `mixup`) (arXiv 1710.09412). 0: no mixup;
        /// otherwise at least 0.01.
        #[schemars(range(min = 0, max = 4))]
        pub mixup: f64 = 0.0,
        /// A rectangle of the other image is pasted, whose share is drawn from Beta(`cutmix`, `cutmix`) (arXiv
        /// 1905.04899). 0: no CutMix; otherwise at least 0.01. With both, each batch gets one of them with equal
        /// probability.
        #[schemars(range(min = 0, max = 4))]
        pub cutmix: f64 = 0.0,
        /// Probability that a batch is mixed.
        #[schemars(range(min = 0, max = 1))]
        pub p: f64 = 1.0,
    }
}

settings! {
    /// Test-time augmentation: evaluation averages the outputs of the network over variants of each image, after all
    /// steps. In training, images are not affected. The samples are images of one class.
    #[derive(Copy)]
    pub struct TestTimeAugmentation {
        /// Whether each variant and its mirror image count half each.
        pub mirror: bool = true,
        /// Pixels by which the image is moved, to the lower right and to the upper left, with reflected borders; each
        /// counts a quarter, and the unmoved image a half. 0: it is not moved.
        #[schemars(range(max = 4096))]
        pub shift: usize = 0,
    }
}
