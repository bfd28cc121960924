//! Labelled images.

use std::sync::Arc;

use zoo_datasets::{
    Alphabet, Cached, Characters, CharactersConfig, Cifar10, Dataset, ImageFolder, Normalize, OnError, Pipeline, Size,
    transforms,
};
use zoo_recipe::{
    Recipe,
    schema::{self, ImageSize, Levels},
};

use crate::{DataSets, InputError, Samples, Split};

pub(crate) fn folder(folder: &schema::ImageFolder, on_error: OnError) -> Result<DataSets, InputError> {
    let train = ImageFolder::open(&folder.root.join(&folder.train), on_error)?;
    let val = ImageFolder::open(&folder.root.join(&folder.val), on_error)?;
    let skipped = train.skipped() + val.skipped();
    let description = format!("image folder {}", folder.root.display());
    Ok(DataSets { skipped, ..images(train, val, description) })
}

pub(crate) fn cifar10(section: &schema::Cifar10) -> Result<DataSets, InputError> {
    let description = format!("CIFAR-10 in {}", section.root.display());
    Ok(images(Cifar10::train(&section.root)?, Cifar10::test(&section.root)?, description))
}

fn images(train: impl Dataset + 'static, val: impl Dataset + 'static, description: String) -> DataSets {
    let samples = Samples::Images { train: Arc::new(train), val: Arc::new(val) };
    DataSets { samples, description, skipped: 0 }
}

pub(crate) fn characters(recipe: &Recipe, section: &schema::Characters) -> Result<DataSets, InputError> {
    let alphabet = match section.classes {
        10 => Alphabet::Digits,
        36 => Alphabet::Alphanumeric,
        n => {
            let span = recipe.span("data.source.characters.classes");
            let message = format!("there are characters for 10 classes (digits) or 36 (digits and letters), not {n}");
            return Err(InputError::Recipe { span, message });
        }
    };
    let pair = |[low, high]: [f64; 2]| (low, high);
    let config = CharactersConfig {
        alphabet,
        side: section.size,
        font_size: pair(section.font.map(|share| share * CharactersConfig::UNIT_SIDE)),
        shift: section.shift * CharactersConfig::UNIT_SIDE,
        rotation: section.rotation,
        shear: section.shear,
        x_scale: pair(section.stretch),
        luminance_gap: pair(section.contrast),
        strokes: section.strokes,
        blur: pair(section.blur),
        noise: pair(section.noise),
        ..CharactersConfig::default()
    };
    let train = Characters::new(config, section.seed, 0, section.train)?;
    let val = Characters::new(config, section.seed, Characters::HELD_OUT, section.val)?;
    let description =
        format!("generated characters, {} classes, {} + {} images", section.classes, section.train, section.val);
    let kept = |set| Cached::new(set, KEPT_IMAGES);
    Ok(images(kept(train), kept(val), description))
}

/// Bytes of generated images that are kept: drawing one takes longer than training on it may leave time for.
pub(crate) const KEPT_IMAGES: usize = 512 << 20;

/// Builds the preprocessing of a recipe, and checks that it delivers what the model takes: `image` is
/// `[channels, height, width]`, `from` the size of all images of the data set if they share one.
///
/// # Errors
/// Steps after the normalisation, impossible steps, or images of another size than the model's input.
pub fn pipeline(recipe: &Recipe, split: Split, from: Option<Size>, image: [usize; 3]) -> Result<Pipeline, InputError> {
    let (steps, path) = match split {
        Split::Train => (&recipe.preprocess.train, "preprocess.train"),
        Split::Eval => (&recipe.preprocess.eval, "preprocess.eval"),
    };
    let refuse = |at: &str, message: String| InputError::Recipe { span: recipe.span(at), message };
    let (mut geometric, mut normalize) = (Vec::new(), None);
    for (i, step) in steps.iter().enumerate() {
        if normalize.is_some() {
            return Err(refuse(&format!("{path}[{i}]"), "nothing may follow `normalize`".into()));
        }
        match step {
            schema::Step::Normalize(n) => normalize = Some(normalisation(n)),
            other => geometric.extend(geometry(other)),
        }
    }
    let pipeline =
        Pipeline::new(geometric, normalize.unwrap_or(Normalize::UNCHANGED)).map_err(|e| refuse(path, e.to_string()))?;
    let [c, h, w] = image;
    match pipeline.output(from) {
        Some(size) if [3, size.height, size.width] == image => Ok(pipeline),
        Some(size) => {
            let made = format!("3x{}x{}", size.height, size.width);
            Err(refuse(path, format!("images come out as {made}, the model takes {c}x{h}x{w}")))
        }
        None => Err(refuse(path, "images come out in different sizes: end with a crop or a resize".into())),
    }
}

/// The normalisation that a recipe asks for.
pub(crate) fn normalisation(n: &schema::Normalize) -> Normalize {
    let scale = match n.scale {
        Levels::Unit => transforms::PixelScale::Unit,
        Levels::Byte => transforms::PixelScale::Byte,
    };
    let channels = match n.channels {
        schema::ChannelOrder::Rgb => transforms::ChannelOrder::Rgb,
        schema::ChannelOrder::Bgr => transforms::ChannelOrder::Bgr,
    };
    Normalize { mean: n.mean.map(|m| m as f32), std: n.std.map(|s| s as f32), scale, channels }
}

fn filter(filter: schema::Filter) -> transforms::Filter {
    match filter {
        schema::Filter::Bilinear => transforms::Filter::Bilinear,
        schema::Filter::Bicubic => transforms::Filter::Bicubic,
    }
}

/// Height and width.
pub(crate) fn size(size: ImageSize) -> Size {
    let [height, width] = size.extent();
    Size { width, height }
}

/// The transforms that a step of the recipe stands for.
fn geometry(step: &schema::Step) -> Vec<transforms::Step> {
    use transforms::Step;
    let shorter = |size, f| Step::ShorterSide(transforms::ShorterSide { size, filter: filter(f) });
    let random_crop = |size: usize, padding| {
        Step::RandomCrop(transforms::RandomCrop { size: Size::square(size), padding, fill: [0; 3] })
    };
    match step {
        schema::Step::Resize(s) => vec![shorter(s.shorter, s.filter)],
        schema::Step::ResizeTo(s) => {
            vec![Step::Resize(transforms::Resize { size: size(s.size), filter: filter(s.filter) })]
        }
        schema::Step::CenterCrop(s) => vec![Step::CenterCrop(transforms::CenterCrop { size: size(s.size) })],
        schema::Step::RandomResizedCrop(s) => vec![Step::RandomResizedCrop(transforms::RandomResizedCrop {
            size: Size::square(s.size),
            scale: (s.scale[0], s.scale[1]),
            ratio: (s.ratio[0], s.ratio[1]),
            filter: filter(s.filter),
        })],
        schema::Step::RandomCoveringCrop(s) => vec![Step::RandomCoveringCrop(transforms::RandomCoveringCrop {
            min_covered: s.min_covered,
            area: (s.area[0], s.area[1]),
            ratio: (s.ratio[0], s.ratio[1]),
            ..transforms::RandomCoveringCrop::default()
        })],
        schema::Step::RandomCrop(s) => vec![random_crop(s.size, s.pad)],
        schema::Step::HorizontalFlip(s) => {
            vec![Step::HorizontalFlip(transforms::HorizontalFlip { probability: s.p })]
        }
        schema::Step::Normalize(_) => Vec::new(),
    }
}
