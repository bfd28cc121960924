//! Samples by NumPy and Pillow, as batches of named arrays.

use super::transforms::transformed;
use crate::diagnostic::Diagnostic;
use crate::emit::train::data::{Mixes, mixing};
use crate::emit::train::program::Program;
use crate::python::real;
use crate::schema::{ImageFolder, Source, TextFile};

/// Adds `Varied` for training, `HeldOut`, `samples` that opens both, and `batches`.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let hint = "`--no-data` writes loss, optimizer and learning rates, for a loop with other data";
    opened(program).map_err(|refused| if refused.hint.is_none() { refused.with_hint(hint) } else { refused })?;
    program.add(BATCHES);
    Ok(())
}

fn opened(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let not_read = |program: &Program<'_>, source: &str| {
        let message =
            "this data is not read in MindSpore yet: images in folders, in IDX or CIFAR-10 files, and texts are";
        Err(program.refuse(&format!("data.source.{source}"), message))
    };
    match &program.recipe.data.source {
        Source::ImageFolder(folder) => {
            if folder.classes_from.is_some() {
                return Err(program.refuse("data.source.image_folder.classes_from", "it is not read in MindSpore yet"));
            }
            let text = folders(folder);
            images(program, &text)
        }
        Source::Cifar10(_) => images(program, CIFAR10),
        Source::Idx(_) => images(program, IDX),
        Source::TextFile(text) => self::text(program, text),
        Source::Characters(_) => not_read(program, "characters"),
        Source::TextScenes(_) => not_read(program, "text_scenes"),
        Source::Shapes(_) => not_read(program, "shapes"),
        Source::BoxedShapes(_) => not_read(program, "boxed_shapes"),
        Source::Videos(_) => not_read(program, "videos"),
        Source::Sentences(_) => not_read(program, "sentences"),
        Source::ClassFolders(_) => not_read(program, "class_folders"),
        Source::TextFolder(_) => not_read(program, "text_folder"),
        Source::LabelMaps(_) => not_read(program, "label_maps"),
        Source::Boxes(_) => not_read(program, "boxes"),
        Source::Crop511(_) => not_read(program, "crop511"),
        Source::FrameFolder(_) => not_read(program, "frame_folder"),
    }
}

/// Images with a class.
fn images(program: &mut Program<'_>, open: &str) -> Result<(), Diagnostic> {
    let recipe = program.recipe;
    let [image] = program.inputs()[..] else {
        return Err(program.refuse("model.inputs", "images with a class have one input"));
    };
    let eval = transformed(program, "preprocess.eval", &recipe.preprocess.eval)?;
    let train = transformed(program, "preprocess.train", &recipe.preprocess.train)?;
    program.add(open);
    program.add(&PREPARED.replace("    # train\n", &train).replace("    # eval\n", &eval));
    program.add(&SAMPLES_OF_IMAGES.replace("IMAGE", image));
    if let Some(mix) = &recipe.preprocess.mix {
        program.add(&mixing(mix, &MIXES).replace("IMAGE", image));
    }
    Ok(())
}

const PREPARED: &str = r#"
def varied(image: Image.Image, random: np.random.Generator) -> np.ndarray:
    """An image of the training."""
    # train


def prepared(image: Image.Image) -> np.ndarray:
    """A held-out image."""
    # eval
"#;

const SAMPLES_OF_IMAGES: &str = r#"
class Varied:
    """Images with their classes; seed, epoch and index of an image decide how it is varied."""

    def __init__(self, images: Images, seed: int) -> None:
        self.images, self.seed = images, seed

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: tuple[int, int]) -> dict[str, np.ndarray]:
        image, label = self.images[place[1]]
        return {"IMAGE": varied(image, np.random.default_rng((self.seed, *place))), "label": np.int32(label)}


class HeldOut:
    """Images with their classes, prepared for evaluation."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: tuple[int, int]) -> dict[str, np.ndarray]:
        image, label = self.images[place[1]]
        return {"IMAGE": prepared(image), "label": np.int32(label)}


def samples(data: Path, seed: int) -> tuple[Varied, HeldOut]:
    """The samples that train, and those that are held out."""
    return Varied(Images(data, train=True), seed), HeldOut(Images(data, train=False))
"#;

/// How images are mixed, by NumPy.
const MIXES: Mixes = Mixes { frame: MIX, blend: BLEND, paste: PASTE, chance: "random.random()" };

const MIX: &str = r#"
def mix(batch: dict[str, np.ndarray], random: np.random.Generator) -> dict[str, np.ndarray]:
    """Mixes each image of a batch with the one before it, all with the same share."""
    image, label, share = batch["IMAGE"], batch["label"], 1.0
    other = np.roll(image, 1, 0)
    # mix
    shares = np.full(label.shape, share, np.float32)
    return {**batch, "IMAGE": image, "mixed_label": np.roll(label, 1, 0), "label_share": shares}
"#;

const BLEND: &str = r#"
share = random.beta(ALPHA, ALPHA)  # mixup, arXiv 1710.09412
image = np.float32(share) * image + np.float32(1 - share) * other
"#;

const PASTE: &str = r#"
share = random.beta(ALPHA, ALPHA)  # CutMix, arXiv 1905.04899
height, width = image.shape[-2:]
x, y = int(random.integers(width)), int(random.integers(height))
across, down = (int(0.5 * math.sqrt(1 - share) * side) for side in (width, height))
left, right = max(x - across, 0), min(x + across, width)
top, bottom = max(y - down, 0), min(y + down, height)
image = image.copy()
image[..., top:bottom, left:right] = other[..., top:bottom, left:right]
share = 1 - (right - left) * (bottom - top) / (width * height)
"#;

fn folders(folder: &ImageFolder) -> String {
    let ImageFolder { train, val, .. } = folder;
    FOLDERS.replace("TRAIN", &train.to_string_lossy()).replace("VAL", &val.to_string_lossy())
}

const FOLDERS: &str = r#"
KINDS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class Images:
    """One folder of images per class."""

    def __init__(self, data: Path, train: bool) -> None:
        folders = sorted(path for path in (data / ("TRAIN" if train else "VAL")).iterdir() if path.is_dir())
        files = ((label, sorted(folder.rglob("*"))) for label, folder in enumerate(folders))
        self.files = [(path, label) for label, paths in files for path in paths if path.suffix.lower() in KINDS]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.files[index]
        with Image.open(path) as image:
            return image.convert("RGB"), label
"#;

const CIFAR10: &str = r#"
class Images:
    """CIFAR-10 in its binary version."""

    def __init__(self, data: Path, train: bool) -> None:
        names = [f"data_batch_{n}.bin" for n in range(1, 6)] if train else ["test_batch.bin"]
        files = [np.fromfile(data / name, np.uint8) for name in names]
        self.rows = np.concatenate(files).reshape(-1, 1 + 3 * 32 * 32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        row = self.rows[index]
        return Image.fromarray(row[1:].reshape(3, 32, 32).transpose(1, 2, 0).copy()), int(row[0])
"#;

const IDX: &str = r#"
class Images:
    """Grey images with classes in IDX files."""

    def __init__(self, data: Path, train: bool) -> None:
        part = "train" if train else "t10k"
        pixels = np.fromfile(data / f"{part}-images-idx3-ubyte", np.uint8)
        count, height, width = pixels[4:16].view(">i4")
        self.pixels = pixels[16:].reshape(count, height, width)
        self.labels = np.fromfile(data / f"{part}-labels-idx1-ubyte", np.uint8)[8:]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.pixels[index]), int(self.labels[index])
"#;

/// Windows of a text.
fn text(program: &mut Program<'_>, text: &TextFile) -> Result<(), Diagnostic> {
    if program.recipe.preprocess.masking.is_some() {
        return Err(program.refuse("preprocess.masking", "texts with hidden tokens are not written in MindSpore yet"));
    }
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
def encoder(text: str) -> Callable[[str], np.ndarray]:
    """What makes tokens of a text: each character is one."""
    known = {character: token for token, character in enumerate(KNOWN)}
    if len(known) > CLASSES:
        raise SystemExit(f"the text has {len(known)} characters, the network CLASSES")
    return lambda part: np.array([known[character] for character in part], np.int32)
"#;

const TOKENIZER: &str = r#"
def encoder(text: str) -> Callable[[str], np.ndarray]:
    """What makes tokens of a text: a tokenizer."""
    tokenizer = Tokenizer.from_file("PATH")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda part: np.array(tokenizer.encode(part, add_special_tokens=False).ids, np.int32)
"#;

const WINDOWS: &str = r#"
class Varied:
    """Windows from random places of a text, which seed, epoch and index decide."""

    def __init__(self, tokens: np.ndarray, count: int, seed: int) -> None:
        self.tokens, self.count, self.seed = tokens, count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: tuple[int, int]) -> dict[str, np.ndarray]:
        random = np.random.default_rng((self.seed, *place))
        start = int(random.integers(len(self.tokens) - LENGTH))
        window = self.tokens[start : start + LENGTH + 1]
        return {"TOKENS": window[:-1], "label": window[1:]}


class HeldOut:
    """Windows of a text side by side."""

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // LENGTH

    def __getitem__(self, place: tuple[int, int]) -> dict[str, np.ndarray]:
        window = self.tokens[place[1] * LENGTH : (place[1] + 1) * LENGTH + 1]
        return {"TOKENS": window[:-1], "label": window[1:]}
"#;

const SAMPLES_OF_TEXT: &str = r#"
def samples(data: Path, seed: int) -> tuple[Varied, HeldOut]:
    """Windows of the first part of a text, and of its rest, which is held out."""
    files = sorted(data.rglob("*.txt")) if data.is_dir() else [data]
    text = "".join(file.read_text(encoding="utf-8-sig") for file in files)
    encode = encoder(text)
    split = int((1 - SHARE) * len(text))
    tokens, held_out = encode(text[:split]), encode(text[split:])
    return Varied(tokens, COUNT, seed), HeldOut(held_out)
"#;

const BATCHES: &str = r#"
def order(samples: int, seed: int, steps: range) -> Iterator[list[tuple[int, int]]]:
    """Batches of (epoch, index): the samples of each epoch in random order, without the rest that is no batch."""
    places = None
    for step in steps:
        epoch, place = divmod(step, samples // BATCH)
        if places is None or place == 0:
            places = np.random.default_rng((seed, epoch)).permutation(samples)
        yield [(epoch, int(index)) for index in places[place * BATCH : (place + 1) * BATCH]]


def batches(
    samples: Varied | HeldOut, places: Iterable[list[tuple[int, int]]], workers: int
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of samples, which threads prepare some steps ahead."""
    with ThreadPoolExecutor(max(workers, 1)) as threads:
        ahead: deque[list[Future]] = deque()
        for chosen in places:
            ahead.append([threads.submit(samples.__getitem__, place) for place in chosen])
            if len(ahead) > 3:
                yield joined(ahead.popleft())
        while ahead:
            yield joined(ahead.popleft())


def joined(futures: list[Future]) -> dict[str, np.ndarray]:
    """Samples as one batch."""
    rows = [future.result() for future in futures]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def tensors(batch: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """A batch on the device."""
    return {name: Tensor(array) for name, array in batch.items()}
"#;
