//! Preparation and detection of images with boxes.

settings! {
    /// From an image with boxes to a training sample (torchvision's `references/detection` and `RetinaNet`). The inputs
    /// of the step are the image, `label` (the class of each anchor, -1 for background, -2 for ignored ones) and `box`
    /// (four offsets of each anchor to its object). Images are normalised and scaled into the upper left corner of the
    /// input of the network, without changing their proportions; the rest is 0.
    pub struct BoxPreparation {
        /// Lengths of the shorter side, in pixels; training draws one of them for each image, evaluation takes the
        /// largest. It becomes less if the image would not fit into the network. By default images are as large as the
        /// network allows.
        pub shorter?: Vec<usize>,
        /// Probability of a horizontal flip in training.
        #[schemars(range(min = 0, max = 1))]
        pub flip: f64 = 0.5,
        /// Anchor boxes.
        pub anchors: BoxAnchors = BoxAnchors::default(),
        /// Anchors that overlap an object (IoU) by at least this much are positive, as well as the closest anchors of
        /// each object.
        #[schemars(range(min = 0, max = 1))]
        pub positive_iou: f64 = 0.5,
        /// Anchors that overlap all objects by less are background; those between the limits are ignored.
        #[schemars(range(min = 0, max = 1))]
        pub negative_iou: f64 = 0.4,
    }
}

settings! {
    // Defaults: torchvision's RetinaNet.
    /// Anchor boxes at every position of every level of a feature pyramid (torchvision's `AnchorGenerator`). Anchors
    /// are sorted by level, row, column, ratio and size.
    pub struct BoxAnchors {
        /// Distance between adjacent positions of each level, in pixels. A level has as many positions as are needed to
        /// cover the input of the network.
        pub strides: Vec<usize> = vec![8, 16, 32, 64, 128],
        /// Smallest size of each level, in pixels: an anchor of ratio 1 has sides of this length.
        pub sizes: Vec<f64> = vec![32.0, 64.0, 128.0, 256.0, 512.0],
        /// Number of sizes per level: the smallest one times 2^(i/n) for i from 0 to n - 1, cut to whole pixels.
        #[schemars(range(min = 1, max = 100))]
        pub per_octave: usize = 3,
        /// Height divided by width.
        pub ratios: Vec<f64> = vec![0.5, 1.0, 2.0],
    }
}

settings! {
    // Defaults: torchvision's RetinaNet.
    /// How objects are detected in the outputs of the network, with the anchors of `preprocess.boxes` (torchvision's
    /// `RetinaNet`). Boxes end at the border of the image.
    pub struct BoxDetection {
        /// Output of the model: logits `[T, K]` of K classes for each of T anchors.
        pub class: String = "cls_logits".into(),
        /// Output of the model: offsets `[T, 4]`.
        pub boxes: String = "bbox_regression".into(),
        /// Scores must be above this.
        #[schemars(range(min = 0, max = 1))]
        pub min_score: f64 = 0.05,
        /// Largest number of predictions of a level that are considered.
        #[schemars(range(min = 1, max = 100000))]
        pub candidates: usize = 1000,
        /// Of two detections of a class that overlap (IoU) by more than this, only the one with the higher score
        /// remains.
        #[schemars(range(min = 0, max = 1))]
        pub nms_iou: f64 = 0.5,
        /// Largest number of detections of an image.
        #[schemars(range(min = 1, max = 100000))]
        pub detections: usize = 300,
    }
}
