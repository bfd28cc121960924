//! Properties of transforms on images of all shapes.

use proptest::prelude::*;
use zoo_datasets::{Image, Normalize, Pipeline, Rect, Rng, Size, hash};
use zoo_settings::{
    CenterCrop, ColorJitter, Filter, HorizontalFlip, ImageSize, PadMode, RandAugment, RandomCoveringCrop, RandomCrop,
    RandomResizedCrop, Resize, ResizeTo, Step, TrivialAugment,
};

/// An image of hashed pixels.
fn noise(size: Size) -> Image {
    let name = hash::NameHash::new("noise");
    let pixels = (0..3 * size.area() as u64).map(|i| name.h(i) as u8).collect();
    Image::new(size, pixels).unwrap()
}

/// Sides from a single pixel to long strips.
fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        (1..40_usize, 1..40_usize).prop_map(|(w, h)| Size::new(w, h)),
        (1..3_usize, 1..900_usize).prop_map(|(w, h)| Size::new(w, h)),
        (1..900_usize, 1..3_usize).prop_map(|(w, h)| Size::new(w, h)),
    ]
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Bilinear), Just(Filter::Bicubic)]
}

fn borders() -> impl Strategy<Value = PadMode> {
    prop_oneof![Just(PadMode::Zeros), Just(PadMode::Reflect)]
}

fn resized_crop(size: usize) -> RandomResizedCrop {
    RandomResizedCrop { size, scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0], filter: Filter::Bilinear }
}

fn steps() -> impl Strategy<Value = Step> {
    let small = || (1..30_usize, 1..30_usize).prop_map(|(w, h)| ImageSize::Rectangle([h, w]));
    prop_oneof![
        (1..30_usize, filters()).prop_map(|(shorter, filter)| Step::Resize(Resize { shorter, filter })),
        (small(), filters()).prop_map(|(size, filter)| Step::ResizeTo(ResizeTo { size, filter })),
        small().prop_map(|size| Step::CenterCrop(CenterCrop { size })),
        (1..30_usize, 0..20_usize, borders()).prop_map(|(size, pad, mode)| Step::RandomCrop(RandomCrop {
            size,
            pad,
            mode
        })),
        (1..30_usize).prop_map(|size| Step::RandomResizedCrop(resized_crop(size))),
        Just(Step::RandomCoveringCrop(RandomCoveringCrop::default())),
        (0.0..=1.0, any::<bool>()).prop_map(|(p, alternate)| Step::HorizontalFlip(HorizontalFlip { p, alternate })),
        (0.0..2.0, 0.0..=0.5).prop_map(|(within, hue)| {
            Step::ColorJitter(ColorJitter { brightness: within, contrast: within, saturation: within, hue })
        }),
        (0..4_usize, 0..31_usize).prop_map(|(operations, magnitude)| Step::RandAugment(RandAugment {
            operations,
            magnitude,
            bins: 31
        })),
        (2..40_usize).prop_map(|bins| Step::TrivialAugment(TrivialAugment { bins })),
    ]
}

proptest! {
    /// A pipeline works on the part of an image that it asks for, and gives what its steps give one after the other.
    #[test]
    fn a_pipeline_equals_its_steps_in_turn(
        size in sizes(),
        steps in proptest::collection::vec(steps(), 0..4),
        seed in any::<u64>(),
    ) {
        let image = noise(size);
        let pipeline = Pipeline::new(steps.clone(), Normalize::IMAGENET).unwrap();
        let found = pipeline.apply(&image, &mut Rng::new(seed, 0, 0));
        let mut rng = Rng::new(seed, 0, 0);
        let expected = steps.iter().fold(image, |image, step| {
            Pipeline::new(vec![step.clone()], Normalize::IMAGENET).unwrap().apply(&image, &mut rng)
        });
        prop_assert_eq!(&found, &expected);
        if let Some(promised) = pipeline.output(Some(size)) {
            prop_assert_eq!(found.size(), promised);
        }
        let plan = pipeline.plan(size, &mut Rng::new(seed, 0, 0));
        let Rect { x, y, width, height } = plan.region();
        prop_assert!(width > 0 && height > 0 && x + width <= size.width && y + height <= size.height);
        prop_assert_eq!(plan.output(), found.size());
    }

    /// Weights are normalised: a flat image stays flat, whatever the scale.
    #[test]
    fn resizing_keeps_flat_images(from in sizes(), to in sizes(), filter in filters(), grey in any::<u8>()) {
        let resized = zoo_datasets::transforms::resize(&Image::filled(from, [grey; 3]), to, filter);
        prop_assert_eq!(resized, Image::filled(to, [grey; 3]));
    }
}

#[test]
fn a_certain_flip_is_undone_by_another() {
    let image = noise(Size::new(5, 3));
    let flip =
        Pipeline::new(vec![Step::HorizontalFlip(HorizontalFlip { p: 1.0, alternate: false })], Normalize::IMAGENET)
            .unwrap();
    let once = flip.apply(&image, &mut Rng::new(0, 0, 0));
    assert_eq!(once.row(1)[..3], image.row(1)[12..]);
    assert_eq!(flip.apply(&once, &mut Rng::new(0, 0, 0)), image);
}

#[test]
fn impossible_steps_are_refused() {
    let zero = ImageSize::Rectangle([4, 0]);
    for step in [
        Step::ResizeTo(ResizeTo { size: zero, filter: Filter::Bilinear }),
        Step::CenterCrop(CenterCrop { size: ImageSize::Square(10_000) }),
        Step::RandomResizedCrop(RandomResizedCrop { scale: [0.5, 0.1], ..resized_crop(4) }),
        Step::RandomResizedCrop(RandomResizedCrop { ratio: [f64::NAN, 1.0], ..resized_crop(4) }),
        Step::RandomCoveringCrop(RandomCoveringCrop { area: [-1.0, 1.0], ..Default::default() }),
        Step::HorizontalFlip(HorizontalFlip { p: 1.5, alternate: false }),
    ] {
        assert!(Pipeline::new(vec![step.clone()], Normalize::IMAGENET).is_err(), "{step:?}");
    }
    let flat = Normalize { std: [0.2, 0.0, 0.2], ..Normalize::IMAGENET };
    assert!(Pipeline::new(vec![], flat).is_err());
}
