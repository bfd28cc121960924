//! Transforms of images by NumPy and Pillow.

use crate::diagnostic::Diagnostic;
use crate::emit::train::program::Program;
use crate::python::real;
use crate::schema::{ChannelOrder, Filter, ImageSize, Levels, PadMode, Step};

fn filter(filter: Filter) -> &'static str {
    match filter {
        Filter::Bilinear => "Image.Resampling.BILINEAR",
        Filter::Bicubic => "Image.Resampling.BICUBIC",
    }
}

fn size(size: ImageSize) -> String {
    match size {
        ImageSize::Square(side) => format!("{side}, {side}"),
        ImageSize::Rectangle([height, width]) => format!("{width}, {height}"),
    }
}

/// The steps at a path of the recipe as lines.
pub(super) fn transformed(program: &mut Program<'_>, path: &str, steps: &[Step]) -> Result<String, Diagnostic> {
    let mut lines = String::new();
    let pair = |values: [f64; 2]| format!("({}, {})", real(values[0]), real(values[1]));
    let mut normalized = false;
    for (n, step) in steps.iter().enumerate() {
        let refuse = |program: &Program<'_>| {
            Err(program.refuse(&format!("{path}[{n}]"), "this step is not written for NumPy and Pillow yet"))
        };
        let line = match step {
            Step::Resize(step) => {
                program.add(RESIZED);
                format!("image = resized(image, {}, {})", step.shorter, filter(step.filter))
            }
            Step::ResizeTo(step) => format!("image = image.resize(({}), {})", size(step.size), filter(step.filter)),
            Step::CenterCrop(step) => {
                program.add(CENTRED);
                format!("image = centred(image, {})", size(step.size))
            }
            Step::RandomResizedCrop(step) => {
                program.add(CROPPED);
                let (scale, ratio) = (pair(step.scale), pair(step.ratio));
                format!("image = cropped(image, {}, {scale}, {ratio}, {}, random)", step.size, filter(step.filter))
            }
            Step::RandomCoveringCrop(step) => {
                program.add(COVERING);
                let (area, ratio) = (pair(step.area), pair(step.ratio));
                format!("image = covering(image, {}, {area}, {ratio}, random)", real(step.min_covered))
            }
            Step::RandomCrop(step) => {
                let mode = match step.mode {
                    PadMode::Zeros => "constant",
                    PadMode::Reflect => "reflect",
                };
                program.add(MOVED);
                format!("image = moved(image, {}, {}, \"{mode}\", random)", step.size, step.pad)
            }
            Step::HorizontalFlip(step) if !step.alternate => {
                program.add(MIRRORED);
                format!("image = mirrored(image, {}, random)", real(step.p))
            }
            Step::Normalize(step) => {
                normalized = true;
                let grey = program.recipe.model.inputs.values().next().and_then(|input| input.image());
                let channels = grey.map_or(3, |[channels, ..]| channels.min(3));
                let numbers = |values: &[f64]| {
                    let values: Vec<String> = values[..channels].iter().map(|value| real(*value)).collect();
                    format!("[{}]", values.join(", "))
                };
                let largest = match step.scale {
                    Levels::Unit => "255.0",
                    Levels::Byte => "1.0",
                };
                if step.channels == ChannelOrder::Bgr || n + 1 != steps.len() {
                    return refuse(program);
                }
                program.add(NORMALIZED);
                let grey = if channels == 1 { "image.convert(\"L\")" } else { "image.convert(\"RGB\")" };
                format!("return normalized({grey}, {}, {}, {largest})", numbers(&step.mean), numbers(&step.std))
            }
            Step::RandAugment(step) => {
                program.add(AUGMENTED);
                format!("image = augmented(image, {}, {}, {}, random)", step.operations, step.magnitude, step.bins)
            }
            Step::HorizontalFlip(_) | Step::ColorJitter(_) => return refuse(program),
            Step::TrivialAugment(_) | Step::RandomErasing(_) => return refuse(program),
        };
        lines += &format!("    {line}\n");
    }
    if !normalized {
        return Err(program.refuse(path, "images that are not normalized are not written for NumPy and Pillow yet"));
    }
    Ok(lines)
}

const RESIZED: &str = r#"
def resized(image: Image.Image, shorter: int, method: Image.Resampling) -> Image.Image:
    """An image whose shorter side has this size."""
    width, height = image.size
    if width <= height:
        return image.resize((shorter, int(shorter * height / width)), method)
    return image.resize((int(shorter * width / height), shorter), method)
"#;

const CENTRED: &str = r#"
def centred(image: Image.Image, width: int, height: int) -> Image.Image:
    """The centre of an image."""
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
"#;

const CROPPED: &str = r#"
def cropped(
    image: Image.Image,
    size: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    method: Image.Resampling,
    random: np.random.Generator,
) -> Image.Image:
    """A crop of random area and shape."""
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(*scale)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        across, down = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < across <= width and 0 < down <= height:
            break
    else:
        across, down = min(width, round(height * ratio[1])), min(height, round(width / ratio[0]))
        left, top = (width - across) // 2, (height - down) // 2
        return image.resize((size, size), method, (left, top, left + across, top + down))
    left, top = int(random.integers(width - across + 1)), int(random.integers(height - down + 1))
    return image.resize((size, size), method, (left, top, left + across, top + down))
"#;

const COVERING: &str = r#"
def covering(
    image: Image.Image,
    least: float,
    area: tuple[float, float],
    ratio: tuple[float, float],
    random: np.random.Generator,
) -> Image.Image:
    """A crop of random height and shape (TensorFlow's sample_distorted_bounding_box of the whole image)."""
    width, height = image.size
    smallest, largest = (share * width * height for share in area)
    for _ in range(100):
        shape = random.uniform(*ratio)
        highest = round(math.sqrt(largest / shape))
        if round(highest * shape) > width:
            highest = int((width + 0.5 - 1e-7) / shape)
            highest -= round(highest * shape) > width
        highest = min(highest, height)
        lowest = min(round(math.sqrt(smallest / shape)), highest)
        rows = lowest + int(random.integers(highest - lowest + 1))
        rows += round(rows * shape) * rows < smallest
        rows -= round(rows * shape) * rows > largest
        columns = round(rows * shape)
        fits = smallest <= rows * columns <= largest and rows * columns >= least * width * height
        if fits and 0 < columns <= width and rows <= height:
            left, top = int(random.integers(max(width - columns, 1))), int(random.integers(max(height - rows, 1)))
            return image.crop((left, top, left + columns, top + rows))
    return image
"#;

const MOVED: &str = r#"
def moved(image: Image.Image, size: int, pad: int, mode: str, random: np.random.Generator) -> Image.Image:
    """A crop from a random place of an image with a border."""
    pixels = np.asarray(image)
    border = ((pad, pad), (pad, pad), *[(0, 0)] * (pixels.ndim - 2))
    pixels = np.pad(pixels, border, mode=mode)
    top, left = (int(random.integers(side - size + 1)) for side in pixels.shape[:2])
    return Image.fromarray(pixels[top : top + size, left : left + size])
"#;

const MIRRORED: &str = r#"
def mirrored(image: Image.Image, share: float, random: np.random.Generator) -> Image.Image:
    """An image, or its mirror image."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < share else image
"#;

const AUGMENTED: &str = r#"
def augmented(
    image: Image.Image, operations: int, magnitude: int, bins: int, random: np.random.Generator
) -> Image.Image:
    """Random changes of one strength (RandAugment, arXiv 1909.13719)."""
    for _ in range(operations):
        kind, sign = int(random.integers(14)), 1 if random.random() < 0.5 else -1
        image = change(image, kind, magnitude / (bins - 1), sign)
    return image


def change(image: Image.Image, kind: int, level: float, sign: int) -> Image.Image:
    """One of fourteen changes, of a strength from 0 to 1."""
    slope, light = sign * 0.3 * level, 1 + sign * 0.9 * level
    across, down = (int(sign * level * 150 / 331 * side) for side in image.size)
    affine = Image.Transform.AFFINE
    changes = (
        lambda: image,
        lambda: image.transform(image.size, affine, (1, slope, 0, 0, 1, 0)),
        lambda: image.transform(image.size, affine, (1, 0, 0, slope, 1, 0)),
        lambda: image.transform(image.size, affine, (1, 0, across, 0, 1, 0)),
        lambda: image.transform(image.size, affine, (1, 0, 0, 0, 1, down)),
        lambda: image.rotate(sign * 30 * level),
        lambda: ImageEnhance.Brightness(image).enhance(light),
        lambda: ImageEnhance.Color(image).enhance(light),
        lambda: ImageEnhance.Contrast(image).enhance(light),
        lambda: ImageEnhance.Sharpness(image).enhance(light),
        lambda: ImageOps.posterize(image, 8 - round(4 * level)),
        lambda: ImageOps.solarize(image, 255 * (1 - level)),
        lambda: ImageOps.autocontrast(image),
        lambda: ImageOps.equalize(image),
    )
    return changes[kind]()
"#;

const NORMALIZED: &str = r#"
def normalized(image: Image.Image, mean: list[float], std: list[float], largest: float) -> np.ndarray:
    """Pixels with mean 0 and deviation 1, channels first."""
    pixels = np.atleast_3d(np.asarray(image, np.float32)).transpose(2, 0, 1) / np.float32(largest)
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (mean, std))
    return (pixels - mean) / std
"#;
