//! Writes the text of a recipe.

use std::fmt::Write;

use serde_yaml::with::singleton_map_recursive;
use serde_yaml::{Mapping, Value};
use zoo_recipe::schema::Optimizer;

use crate::fold::fold;
use crate::gradients::modules_of;
use crate::item::{Item, each_list};
use crate::layout::lay_out;
use crate::loss::loss;
use crate::operation::Network;
use crate::scalar::scalar;
use crate::trace::{Made, Trace, Training};
use crate::word::{Kind, Setting, Word, number};
use crate::{ImportError, structure, write};

/// Supported numbers of classes, and side lengths in pixels, of generated characters.
const MOST_CHARACTERS: std::ops::RangeInclusive<usize> = 2..=36;
const SIDES: std::ops::RangeInclusive<usize> = 16..=512;

/// The recipe of a traced network with this training, under this name.
///
/// # Errors
/// The first unsupported operation.
pub fn text(trace: &Trace, training: &Training, network: &Network, name: &str) -> Result<String, ImportError> {
    let (mut items, mut outputs) = structure::layers(network)?;
    items.extend(network.output.clone().map(Item::Tap));
    outputs.extend(network.output.iter().map(|output| (output.clone(), output.clone())));
    let unused = trace.unused();
    items.extend((!unused.is_empty()).then(|| Item::Layer { word: without_layer(trace, &unused), name: None }));
    let mut body = lay_out(items, "");
    name_classes(&mut body, trace.classes);
    name_vocabulary(&mut body, trace);
    let classes = trace.modules.iter();
    let classes = classes.map(|(path, module)| (path.as_str(), module.class.rsplit('.').next().unwrap_or_default()));
    let model = write::model(&fold(body, &classes.collect()));
    let outputs = match outputs.is_empty() {
        true => String::new(),
        false => format!("  outputs: {}\n", write::taps(&outputs)),
    };
    let output = network.output.as_ref();
    let mut text = head(trace, name);
    let _ = write!(
        text,
        "model:\n{}{model}{outputs}\n{}",
        inputs(trace),
        rest(trace, training, output, &modules_of(trace, &network.untrained, &unused))
    );
    Ok(text)
}

/// The first lines.
fn head(trace: &Trace, name: &str) -> String {
    let class = trace.modules.get("").map_or("", |module| module.class.as_str());
    let source = trace.modules.get("").and_then(|module| module.source.as_deref());
    let source = source.map(|source| format!(", {source}")).unwrap_or_default();
    let versions: Vec<String> = trace.made_with.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let with = if versions.is_empty() { String::new() } else { format!(", traced with {}", versions.join(" and ")) };
    let model = printable(&trace.model);
    format!(
        "# yaml-language-server: $schema=schema/recipe.json\n\
         # zoo check {name}\n\
         name: {name}\n\
         description: \"{model}, as PyTorch computes it\"\n\
         reference: {{code: \"{model}: {}{}{}\"}}\n\n",
        printable(class),
        printable(&source),
        printable(&with),
    )
}

/// Escapes text for quotes.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !['"', '\\'].contains(c)).collect()
}

/// Whether an input are images, `[n, c, h, w]` in colours or grey.
fn is_image(made: &Made) -> bool {
    made.is_real() && matches!(made.shape[..], [_, 1 | 3, _, _])
}

fn inputs(trace: &Trace) -> String {
    let one = |(name, made): (&String, &crate::trace::Made)| {
        let extents: Vec<String> = made.shape.iter().skip(1).map(ToString::to_string).collect();
        let extents = format!("[{}]", extents.join(", "));
        let shape = match made.is_real() {
            true if is_image(made) => extents,
            true => format!("{{numbers: {extents}}}"),
            false => format!("{{indices: {extents}}}"),
        };
        format!("{}: {shape}", scalar(name))
    };
    let inputs: Vec<String> = trace.inputs.iter().map(one).collect();
    format!("  inputs: {{{}}}\n  classes: {}\n", inputs.join(", "), trace.classes)
}

/// Replaces the width of the last layer by `$classes` if it is equal.
fn name_classes(items: &mut [Item], classes: usize) -> bool {
    for item in items.iter_mut().rev() {
        let found = match item {
            Item::Layer { word, .. } => {
                let is_width = word.int("out") == i64::try_from(classes).ok();
                if let (Kind::Wide, true, Some(out)) = (word.kind, is_width, word.settings.get_mut("out")) {
                    out.value = Setting::Text("$classes".to_owned());
                }
                word.kind == Kind::Wide
            }
            Item::Module { body, .. } | Item::Scope { body, .. } | Item::Around { body, .. } => {
                name_classes(body, classes)
            }
            Item::Residual { .. } | Item::Concat { .. } => true,
            Item::Tap(_) | Item::From(_) | Item::Join(..) | Item::Again { .. } => false,
            Item::Use { .. } | Item::Stack { .. } => false,
        };
        if found {
            return true;
        }
    }
    false
}

/// Replaces the rows of the first table by `$classes` if inputs are indices of the classes: tokens.
fn name_vocabulary(items: &mut Vec<Item>, trace: &Trace) {
    let mut is_named = trace.inputs.values().next().is_none_or(Made::is_real);
    each_list(items, &mut |list| {
        for item in list {
            if let Item::Layer { word, .. } = item
                && word.tag == "embedding"
                && word.int("rows") == i64::try_from(trace.classes).ok()
                && let Some(rows) = word.settings.get_mut("rows")
                && !is_named
            {
                rows.value = Setting::Text("$classes".to_owned());
                is_named = true;
            }
        }
    });
}

/// Parameters that nothing uses.
fn without_layer(trace: &Trace, unused: &[String]) -> Word {
    let extents = |name: &String| {
        let extents = trace.shape(name).iter().map(|extent| Setting::Int(i64::try_from(*extent).unwrap_or(i64::MAX)));
        Setting::List(extents.collect())
    };
    let shapes = unused.iter().map(|name| (name.clone(), extents(name))).collect();
    Word::with("unused", "parameters", Setting::Group(shapes))
}

/// Data, training and golden. `untrained`: modules and parameters without a gradient.
fn rest(trace: &Trace, training: &Training, output: Option<&String>, untrained: &[String]) -> String {
    let mut text = String::new();
    text += &data(trace);
    text += &loss(training, output);
    if let Some(bound) = training.clip_grad_norm {
        let _ = writeln!(text, "gradients: {{clip: [norm: {}]}}", number(bound));
    }
    let _ = writeln!(text, "optimizer: {}", optimizer(&training.optimizer));
    let _ = writeln!(text, "schedule: {{cosine: {{base_lr: {}}}}}", number(training.lr));
    let untrained: Vec<String> = untrained.iter().map(|name| scalar(name)).collect();
    let parts = match &untrained[..] {
        [] => String::new(),
        names => format!(", parts: [{{modules: [{}], trained: false}}]", names.join(", ")),
    };
    let _ = writeln!(text, "train: {{batch: 32, epochs: 4{parts}}}");
    if let Some(golden) = &training.golden {
        let _ = writeln!(text, "\ngolden: {{manifest: {}}}", scalar(golden));
    }
    text
}

/// Generated characters, if their number of classes and size suit the network; otherwise a folder of images.
fn data(trace: &Trace) -> String {
    let shape = trace.inputs.values().next().map(|made| made.shape.clone()).unwrap_or_default();
    let (classes, side) = (trace.classes, shape.last().copied().unwrap_or_default());
    if !trace.inputs.values().next().is_none_or(Made::is_real) {
        return "# A text file or a folder of text files, and the tokenizer of the network.\n\
                data:\n  source: {text_file: {path: data/text.txt, tokenizer: data/tokenizer.json, windows: 12000}}\n\n"
            .to_owned();
    }
    if !trace.inputs.values().next().is_some_and(is_image) {
        return "# No data have such inputs: `zoo check` proves the network, and `zoo run` cannot train it.\n\
                data: {source: {image_folder: {root: data}}}\n\n"
            .to_owned();
    }
    let usual = "mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]";
    if MOST_CHARACTERS.contains(&classes) && SIDES.contains(&side) && shape.get(1..) == Some(&[3, side, side]) {
        return format!(
            "# Generated images; `zoo run --data DIR` takes images of your own.\n\
             data:\n  source: {{characters: {{classes: {classes}, train: 4000, val: 1000, size: {side}}}}}\n\n\
             preprocess:\n  \
             train: [normalize: {{mean: [128, 128, 128], std: [64, 64, 64], scale: byte}}]\n  \
             eval: [normalize: {{mean: [128, 128, 128], std: [64, 64, 64], scale: byte}}]\n\n"
        );
    }
    if let [.., height, width] = shape[..]
        && height != width
    {
        let steps = format!("[resize_to: {{size: [{height}, {width}]}}, normalize: {{{usual}}}]");
        return format!(
            "data:\n  source: {{image_folder: {{root: data}}}} # data/train/CLASS/*, data/val/CLASS/*; or zoo run --data DIR\n\n\
             preprocess:\n  train: {steps}\n  eval: {steps}\n\n"
        );
    }
    let side = side.clamp(1, 65536);
    format!(
        "data:\n  source: {{image_folder: {{root: data}}}} # data/train/CLASS/*, data/val/CLASS/*; or zoo run --data DIR\n\n\
         preprocess:\n  train:\n    - random_resized_crop: {{size: {side}}}\n    - horizontal_flip\n    \
         - normalize: {{{usual}}}\n  eval:\n    - resize: {{shorter: {}}}\n    - center_crop: {{size: {side}}}\n    \
         - normalize: {{{usual}}}\n\n",
        side + side / 7
    )
}

/// `{sgd: {momentum: 0.9}}`: settings that differ from the defaults.
fn optimizer(optimizer: &Optimizer) -> String {
    let written = |optimizer: &Optimizer| -> Mapping {
        let whole = singleton_map_recursive::serialize(optimizer, serde_yaml::value::Serializer).unwrap_or_default();
        whole.get(optimizer.tag()).and_then(Value::as_mapping).cloned().unwrap_or_default()
    };
    let empty = Value::Mapping(Mapping::from_iter([(Value::from(optimizer.tag()), Value::Mapping(Mapping::new()))]));
    let usual: Option<Optimizer> = singleton_map_recursive::deserialize(empty).ok();
    let usual = usual.as_ref().map(written).unwrap_or_default();
    let own = written(optimizer);
    let said = own.iter().filter(|(key, value)| usual.get(*key) != Some(value));
    let said = said.map(|(key, value)| (key.clone(), value.clone())).collect();
    format!("{{{}: {}}}", optimizer.tag(), setting(&Value::Mapping(said)).unwrap_or_default())
}

fn setting(value: &Value) -> Option<String> {
    match value {
        Value::Sequence(items) => {
            Some(format!("[{}]", items.iter().filter_map(setting).collect::<Vec<_>>().join(", ")))
        }
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(value) => value.as_f64().map(number),
        Value::String(text) => Some(scalar(text)),
        Value::Mapping(pairs) => {
            let pairs = pairs.iter().filter_map(|(key, value)| Some(format!("{}: {}", key.as_str()?, setting(value)?)));
            Some(format!("{{{}}}", pairs.collect::<Vec<_>>().join(", ")))
        }
        Value::Null | Value::Tagged(_) => None,
    }
}
