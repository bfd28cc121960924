//! Transforms of images, as those of torchvision.

use super::program::Program;
use super::real;
use crate::diagnostic::Diagnostic;
use crate::python::Code;
use crate::schema::{ChannelOrder, Filter, ImageSize, Levels, PadMode, Step};

/// The steps at a path of the recipe as transforms, and how likely the images of the first epoch are mirrored, if each
/// epoch mirrors those that the one before did not.
pub(super) fn transforms(
    program: &mut Program<'_>,
    path: &str,
    steps: &[Step],
) -> Result<(Vec<Code>, Option<f64>), Diagnostic> {
    let mut codes = Vec::new();
    let mut alternate = None;
    for (n, step) in steps.iter().enumerate() {
        if let Step::HorizontalFlip(flip) = step
            && flip.alternate
        {
            if steps[n + 1..].iter().any(|later| !matches!(later, Step::Normalize(_) | Step::RandomErasing(_))) {
                let message = "in PyTorch, images are mirrored alternately after all other changes of their pixels";
                return Err(program.refuse(&format!("{path}[{n}]"), message));
            }
            alternate = Some(flip.p);
            continue;
        }
        codes.extend(transform(program, step));
    }
    if !steps.iter().any(|step| matches!(step, Step::Normalize(_))) {
        codes.extend([Code::text("v2.ToImage()"), Code::text("v2.ToDtype(torch.float32)")]);
    }
    Ok((codes, alternate))
}

fn numbers(values: &[f64]) -> Code {
    Code::list(values.iter().map(|value| Code::text(real(*value))).collect())
}

fn pair(values: [f64; 2]) -> Code {
    Code::text(format!("({}, {})", real(values[0]), real(values[1])))
}

fn filter(filter: Filter) -> Option<Code> {
    match filter {
        Filter::Bilinear => None,
        Filter::Bicubic => Some(Code::named("interpolation", Code::text("v2.InterpolationMode.BICUBIC"))),
    }
}

fn size(size: ImageSize) -> Code {
    match size {
        ImageSize::Square(side) => Code::text(format!("({side}, {side})")),
        ImageSize::Rectangle([height, width]) => Code::text(format!("({height}, {width})")),
    }
}

/// One step.
fn transform(program: &mut Program<'_>, step: &Step) -> Vec<Code> {
    let call = |name: &str, arguments: Vec<Code>| Code::call(format!("v2.{name}"), arguments);
    let one = |code: Code| vec![code];
    match step {
        Step::Resize(step) => {
            one(call("Resize", std::iter::once(Code::count(step.shorter)).chain(filter(step.filter)).collect()))
        }
        Step::ResizeTo(step) => {
            one(call("Resize", std::iter::once(size(step.size)).chain(filter(step.filter)).collect()))
        }
        Step::CenterCrop(step) => one(call("CenterCrop", vec![size(step.size)])),
        Step::RandomResizedCrop(step) => {
            let mut arguments = vec![Code::count(step.size)];
            arguments.extend((step.scale != [0.08, 1.0]).then(|| Code::named("scale", pair(step.scale))));
            arguments.extend((step.ratio != [3.0 / 4.0, 4.0 / 3.0]).then(|| Code::named("ratio", pair(step.ratio))));
            arguments.extend(filter(step.filter));
            one(call("RandomResizedCrop", arguments))
        }
        Step::RandomCoveringCrop(step) => {
            program.add(COVERING);
            let arguments = vec![Code::text(real(step.min_covered)), pair(step.area), pair(step.ratio)];
            one(Code::call("CoveringCrop", arguments))
        }
        Step::RandomCrop(step) => {
            let mut arguments = vec![Code::count(step.size)];
            arguments.extend((step.pad > 0).then(|| Code::named("padding", Code::count(step.pad))));
            arguments.extend(match step.mode {
                PadMode::Zeros => None,
                PadMode::Reflect => Some(Code::named("padding_mode", Code::text("\"reflect\""))),
            });
            one(call("RandomCrop", arguments))
        }
        Step::HorizontalFlip(step) => {
            one(call("RandomHorizontalFlip", (step.p != 0.5).then(|| Code::text(real(step.p))).into_iter().collect()))
        }
        Step::ColorJitter(step) => {
            let strengths = [step.brightness, step.contrast, step.saturation, step.hue];
            one(call("ColorJitter", strengths.map(|value| Code::text(real(value))).into()))
        }
        Step::RandAugment(step) => {
            let arguments = [step.operations, step.magnitude, step.bins].map(Code::count).into();
            one(call("RandAugment", arguments))
        }
        Step::TrivialAugment(step) => {
            let bins = (step.bins != 31).then(|| Code::count(step.bins));
            one(call("TrivialAugmentWide", bins.into_iter().collect()))
        }
        Step::RandomErasing(step) => {
            let mut arguments = vec![Code::text(real(step.p)), pair(step.scale), pair(step.ratio)];
            arguments.extend((step.value != 0.0).then(|| Code::text(real(step.value))));
            one(call("RandomErasing", arguments))
        }
        Step::Normalize(step) => {
            let scale = match step.scale {
                Levels::Unit => Some(Code::named("scale", Code::switch(true))),
                Levels::Byte => None,
            };
            let grey = program.recipe.model.inputs.values().next().and_then(|input| input.image());
            let channels = grey.map_or(3, |[channels, ..]| channels.min(3));
            let mut codes = Vec::new();
            codes.extend((channels == 1).then(|| call("Grayscale", Vec::new())));
            codes.push(call("ToImage", Vec::new()));
            let dtype = std::iter::once(Code::text("torch.float32")).chain(scale).collect();
            codes.push(call("ToDtype", dtype));
            codes.extend(match step.channels {
                ChannelOrder::Rgb => None,
                ChannelOrder::Bgr => {
                    program.add(BGR);
                    Some(call("Lambda", vec![Code::text("bgr")]))
                }
            });
            codes.push(call("Normalize", vec![numbers(&step.mean[..channels]), numbers(&step.std[..channels])]));
            codes
        }
    }
}

const BGR: &str = r#"
def bgr(image: Tensor) -> Tensor:
    """Channels in the order of OpenCV."""
    return image.flip(0)
"#;

const COVERING: &str = r#"
class CoveringCrop(nn.Module):
    """A crop of random height and shape (TensorFlow's sample_distorted_bounding_box of the whole image)."""

    def __init__(self, least: float, area: tuple[float, float], ratio: tuple[float, float]) -> None:
        super().__init__()
        self.least, self.area, self.ratio = least, area, ratio

    def forward(self, image: Image.Image) -> Image.Image:
        for _ in range(100):
            crop = self.attempt(image.width, image.height)
            if crop:
                return image.crop(crop)
        return image

    def attempt(self, width: int, height: int) -> tuple[int, int, int, int] | None:
        shape = self.ratio[0] + (self.ratio[1] - self.ratio[0]) * torch.rand(()).item()
        smallest, largest = (share * width * height for share in self.area)
        highest = round(math.sqrt(largest / shape))
        if round(highest * shape) > width:
            highest = int((width + 0.5 - 1e-7) / shape)
            highest -= round(highest * shape) > width
        highest = min(highest, height)
        lowest = min(round(math.sqrt(smallest / shape)), highest)
        rows = lowest + int(torch.randint(highest - lowest + 1, ()))
        rows += round(rows * shape) * rows < smallest
        rows -= round(rows * shape) * rows > largest
        columns = round(rows * shape)
        fits = smallest <= rows * columns <= largest and rows * columns >= self.least * width * height
        if not fits or not columns or columns > width or rows > height:
            return None
        x, y = int(torch.randint(max(width - columns, 1), ())), int(torch.randint(max(height - rows, 1), ()))
        return x, y, x + columns, y + rows
"#;
