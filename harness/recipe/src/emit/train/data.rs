//! The data: samples as batches of named tensors.

use super::program::Program;
use super::real;
use super::transforms::transforms;
use crate::diagnostic::Diagnostic;
use crate::python::Code;
use crate::schema::{ImageFolder, Mix, Source, TextFile};

/// Adds the data sets: `Varied` for training, `HeldOut`, and `samples` that opens both; or `Prepared`.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    if program.prepared {
        program.add(PREPARED);
        return Ok(());
    }
    match &program.recipe.data.source {
        Source::ImageFolder(folder) => {
            let text = folders(folder);
            images(program, &[&text])
        }
        Source::Cifar10(_) => images(program, &[CIFAR10, CIFAR10_OR_FOLDERS]),
        Source::Idx(_) => images(program, &[IDX, IDX_IMAGES]),
        Source::TextFile(text) => self::text(program, text),
        other => Err(program.refuse("data.source", format!("{} are prepared by zoo", other.kind().describe()))),
    }
}

const PREPARED: &str = r#"
class Prepared(Dataset):
    """Samples that `zoo data make` wrote, one array per input. An item is a batch: the share of one process."""

    def __init__(self, folder: Path, batch: int, rank: int, ranks: int) -> None:
        self.arrays = {path.stem: numpy.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
        self.batch, self.rank, self.ranks = batch, rank, ranks
        if not self.arrays:
            raise SystemExit(f"{folder} has no samples: `zoo data make` writes them")

    def __len__(self) -> int:
        """The number of batches."""
        return -(-len(next(iter(self.arrays.values()))) // self.batch)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        rows = slice(index * self.batch + self.rank, (index + 1) * self.batch, self.ranks)
        return {name: torch.from_numpy(array[rows].copy()) for name, array in self.arrays.items()}
"#;

/// Images with a class.
fn images(program: &mut Program<'_>, opens: &[&str]) -> Result<(), Diagnostic> {
    let recipe = program.recipe;
    let [image] = program.inputs()[..] else {
        return Err(program.refuse("model.inputs", "images with a class have one input"));
    };
    let (eval, _) = transforms(program, "preprocess.eval", &recipe.preprocess.eval)?;
    let (train, alternate) = transforms(program, "preprocess.train", &recipe.preprocess.train)?;
    opens.iter().for_each(|text| program.add(text));
    program.add(&with_transform(HELD_OUT, &eval).replace("IMAGE", image));
    let varied = match alternate {
        Some(p) => VARIED.replace("        # mirrored\n", &MIRRORED.replace("SHARE", &real(p))),
        None => VARIED.replace("        # mirrored\n", ""),
    };
    program.add(&with_transform(&varied, &train).replace("IMAGE", image));
    if let Some(mix) = &recipe.preprocess.mix {
        program.add(&mixing(mix, &MIXES).replace("IMAGE", image));
    }
    program.add(SAMPLES_OF_IMAGES);
    Ok(())
}

/// A class with its transforms.
fn with_transform(class: &str, steps: &[Code]) -> String {
    let mut lines = Vec::new();
    Code::call("v2.Compose", vec![Code::list(steps.to_vec())]).lines(8, "self.transform = ", "", &mut lines);
    class.replace("        # transform", &lines.join("\n"))
}

const HELD_OUT: &str = r#"
class HeldOut(Dataset):
    """Images with their classes, prepared for evaluation."""

    def __init__(self, images: Dataset) -> None:
        self.images = images
        # transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        image, label = self.images[index]
        return {"IMAGE": self.transform(image), "label": label}
"#;

const VARIED: &str = r#"
class Varied(Dataset):
    """Images with their classes; seed, epoch and index of an image decide how it is varied."""

    def __init__(self, images: Dataset, seed: int) -> None:
        self.images, self.seed = images, seed
        # transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: tuple[int, int]) -> dict:
        epoch, index = place
        image, label = self.images[index]
        torch.manual_seed(hash((self.seed, epoch, index)))
        image = self.transform(image)
        # mirrored
        return {"IMAGE": image, "label": label}
"#;

/// Each epoch mirrors those that the one before did not.
const MIRRORED: &str = r#"        torch.manual_seed(hash((self.seed, index)))
        if (torch.rand(()).item() < SHARE) != (epoch % 2 == 1):
            image = image.flip(-1)
"#;

const SAMPLES_OF_IMAGES: &str = r#"
def samples(data: Path, seed: int) -> tuple[Dataset, Dataset]:
    """The samples that train, and those that are held out."""
    return Varied(images(data, train=True), seed), HeldOut(images(data, train=False))
"#;

fn folders(folder: &ImageFolder) -> String {
    let ImageFolder { train, val, classes_from, .. } = folder;
    let (base, order) = match classes_from {
        None => ("ImageFolder", String::new()),
        Some(file) => ("Ordered", ORDERED.replace("FILE", &file.to_string_lossy())),
    };
    let text = FOLDERS.replace("ImageFolder", base);
    let text = text.replace("TRAIN", &train.to_string_lossy()).replace("VAL", &val.to_string_lossy());
    format!("{}\n\n\n{}", order.trim(), text.trim()).trim().to_owned()
}

const FOLDERS: &str = r#"
def images(data: Path, train: bool) -> Dataset:
    """One folder of images per class."""
    return ImageFolder(data / ("TRAIN" if train else "VAL"))
"#;

const ORDERED: &str = r#"
class Ordered(ImageFolder):
    """One folder of images per class, in the order of a file."""

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        classes = (Path(directory).parent / "FILE").read_text().split()
        return classes, {name: index for index, name in enumerate(classes)}
"#;

const CIFAR10: &str = r#"
class Cifar10(Dataset):
    """CIFAR-10 in its binary version."""

    def __init__(self, data: Path, train: bool) -> None:
        names = [f"data_batch_{n}.bin" for n in range(1, 6)] if train else ["test_batch.bin"]
        files = [torch.frombuffer(bytearray((data / name).read_bytes()), dtype=torch.uint8) for name in names]
        self.rows = torch.cat(files).view(-1, 1 + 3 * 32 * 32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        row = self.rows[index]
        return v2.functional.to_pil_image(row[1:].view(3, 32, 32)), int(row[0])
"#;

const CIFAR10_OR_FOLDERS: &str = r#"
def images(data: Path, train: bool) -> Dataset:
    """CIFAR-10 in its binary version, or as one folder of images per class."""
    if (data / "train").is_dir():
        return ImageFolder(data / ("train" if train else "val"))
    return Cifar10(data, train)
"#;

const IDX: &str = r#"
class Idx(Dataset):
    """Grey images with classes in IDX files."""

    def __init__(self, data: Path, part: str) -> None:
        pixels = bytearray((data / f"{part}-images-idx3-ubyte").read_bytes())
        labels = bytearray((data / f"{part}-labels-idx1-ubyte").read_bytes())
        count, height, width = struct.unpack(">3i", pixels[4:16])
        self.pixels = torch.frombuffer(pixels, dtype=torch.uint8, offset=16).view(count, 1, height, width)
        self.labels = torch.frombuffer(labels, dtype=torch.uint8, offset=8)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return v2.functional.to_pil_image(self.pixels[index]), int(self.labels[index])
"#;

const IDX_IMAGES: &str = r#"
def images(data: Path, train: bool) -> Dataset:
    """The images that train, or those that are held out."""
    return Idx(data, "train" if train else "t10k")
"#;

/// How images are mixed.
pub(in crate::emit) struct Mixes {
    /// The function, with a place for what it does.
    pub frame: &'static str,
    /// Mixup.
    pub blend: &'static str,
    /// CutMix.
    pub paste: &'static str,
    /// A random number from 0 to 1.
    pub chance: &'static str,
}

const MIXES: Mixes = Mixes { frame: MIX, blend: BLEND, paste: PASTE, chance: "torch.rand(()).item()" };

/// The function that mixes the images of a batch.
pub(in crate::emit) fn mixing(mix: &Mix, mixes: &Mixes) -> String {
    let Mix { mixup, cutmix, p } = *mix;
    let blend = mixes.blend.replace("ALPHA", &real(mixup));
    let paste = mixes.paste.replace("ALPHA", &real(cutmix));
    let chance = mixes.chance;
    let indented = |text: &str, depth: usize| -> String {
        text.trim_matches('\n').lines().map(|line| format!("{}{line}\n", " ".repeat(depth))).collect()
    };
    let test = if p < 1.0 { format!("{chance} < {}", real(p)) } else { String::new() };
    let depth = if test.is_empty() { 4 } else { 8 };
    let body = match (mixup > 0.0, cutmix > 0.0) {
        (true, true) => {
            let head = " ".repeat(depth);
            format!(
                "{head}if {chance} < 0.5:\n{}{head}else:\n{}",
                indented(&paste, depth + 4),
                indented(&blend, depth + 4)
            )
        }
        (true, false) => indented(&blend, depth),
        (false, _) => indented(&paste, depth),
    };
    let body = if test.is_empty() { body } else { format!("    if {test}:\n{body}") };
    mixes.frame.replace("    # mix\n", &body)
}

const MIX: &str = r#"
def mix(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mixes each image of a batch with the one before it, all with the same share."""
    image, label, share = batch["IMAGE"], batch["label"], 1.0
    other = image.roll(1, 0)
    # mix
    shares = torch.full(label.shape, share, device=label.device)
    return {**batch, "IMAGE": image, "mixed_label": label.roll(1, 0), "label_share": shares}
"#;

const BLEND: &str = r#"
share = torch.distributions.Beta(ALPHA, ALPHA).sample().item()  # mixup, arXiv 1710.09412
image = share * image + (1 - share) * other
"#;

const PASTE: &str = r#"
share = torch.distributions.Beta(ALPHA, ALPHA).sample().item()  # CutMix, arXiv 1905.04899
height, width = image.shape[-2:]
x, y = int(torch.randint(width, ())), int(torch.randint(height, ()))
across, down = (int(0.5 * math.sqrt(1 - share) * side) for side in (width, height))
left, right = max(x - across, 0), min(x + across, width)
top, bottom = max(y - down, 0), min(y + down, height)
image = image.clone()
image[..., top:bottom, left:right] = other[..., top:bottom, left:right]
share = 1 - (right - left) * (bottom - top) / (width * height)
"#;

/// Windows of a text.
fn text(program: &mut Program<'_>, text: &TextFile) -> Result<(), Diagnostic> {
    let [tokens] = program.inputs()[..] else {
        return Err(program.refuse("model.inputs", "windows of a text are one input"));
    };
    let input = program.graph.inputs.iter().find(|input| input.name == tokens);
    let length = input.and_then(|input| program.graph.ty(input.value).shape.last().copied()).unwrap_or(1);
    let encode = match (&text.tokenizer, &text.vocabulary) {
        (Some(path), _) => TOKENIZER.replace("PATH", &path.to_string_lossy()),
        (None, vocabulary) => {
            let known = match vocabulary {
                Some(characters) => serde_yaml::to_string(characters).unwrap_or_default().trim().to_owned(),
                None => "sorted(set(text))".to_owned(),
            };
            CHARACTERS.replace("KNOWN", &known).replace("CLASSES", &program.recipe.model.classes.to_string())
        }
    };
    program.add(&format!("LENGTH = {length}\n\"\"\"Tokens per window.\"\"\""));
    program.add(&encode);
    program.add(&WINDOWS.replace("TOKENS", tokens));
    let count = text.windows.map_or_else(|| "(len(tokens) - 1) // LENGTH".to_owned(), |count| count.to_string());
    program.add(&SAMPLES_OF_TEXT.replace("COUNT", &count).replace("SHARE", &real(text.validation)));
    Ok(())
}

const CHARACTERS: &str = r#"
def encoder(text: str) -> Callable[[str], Tensor]:
    """What makes tokens of a text: each character is one."""
    known = {character: token for token, character in enumerate(KNOWN)}
    if len(known) > CLASSES:
        raise SystemExit(f"the text has {len(known)} characters, the network CLASSES")
    return lambda part: torch.tensor([known[character] for character in part])
"#;

const TOKENIZER: &str = r#"
def encoder(text: str) -> Callable[[str], Tensor]:
    """What makes tokens of a text: a tokenizer."""
    tokenizer = Tokenizer.from_file("PATH")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda part: torch.tensor(tokenizer.encode(part, add_special_tokens=False).ids)
"#;

const WINDOWS: &str = r#"
class Varied(Dataset):
    """Windows from random places of a text, which seed, epoch and index decide."""

    def __init__(self, tokens: Tensor, count: int, seed: int) -> None:
        self.tokens, self.count, self.seed = tokens, count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: tuple[int, int]) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(hash((self.seed, *place)))
        start = int(torch.randint(len(self.tokens) - LENGTH, (), generator=generator))
        window = self.tokens[start : start + LENGTH + 1]
        return {"TOKENS": window[:-1], "label": window[1:]}


class HeldOut(Dataset):
    """Windows of a text side by side."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // LENGTH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        window = self.tokens[index * LENGTH : (index + 1) * LENGTH + 1]
        return {"TOKENS": window[:-1], "label": window[1:]}
"#;

const SAMPLES_OF_TEXT: &str = r#"
def samples(data: Path, seed: int) -> tuple[Dataset, Dataset]:
    """Windows of the first part of a text, and of its rest, which is held out."""
    files = sorted(data.rglob("*.txt")) if data.is_dir() else [data]
    text = "".join(file.read_text(encoding="utf-8-sig") for file in files)
    encode = encoder(text)
    split = int((1 - SHARE) * len(text))
    tokens, held_out = encode(text[:split]), encode(text[split:])
    return Varied(tokens, COUNT, seed), HeldOut(held_out)
"#;
