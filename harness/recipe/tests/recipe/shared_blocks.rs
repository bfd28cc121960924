//! Blocks that are taken from other recipes and from files of blocks.

use crate::diagnostics::without_folder;
use std::fs;

use tempfile::TempDir;
use zoo_recipe::{Diagnostics, Library, LoadOptions, Loaded, Recipe};

/// A recipe with blocks, one of which uses another.
const THEIRS: &str = "\
name: theirs
model:
  inputs: {image: [3, 32, 32]}
  classes: 10
  blocks:
    conv_bn: # a comment
      args: {width: ~, kernel: 3}
      body:
        - conv: {name: conv, out: $width, kernel: $kernel, pad: 1, bias: false}
        - bn: {name: bn}
    unit:
      args: {width: 8}
      body: [residual: {main: [block: {use: conv_bn, args: {width: $width}}]}, relu]
    other: {body: [relu]}
  body:
    - stack: {name: layer1, block: unit, repeat: 2, args: {width: 3}}
    - block: {name: layer2, use: other}
    - global_avg_pool
    - flatten
    - linear: {name: fc, out: $classes}
data: {source: {characters: {size: 32}}}
loss: {softmax_cross_entropy: {}}
optimizer: {sgd: {momentum: 0.9, weight_decay: 1e-4}}
schedule: {cosine: {base_lr: 0.1}}
train: {batch: 32, epochs: 2}
";

/// A recipe with these blocks, whose body is one stack of `unit`.
fn own(blocks: &str) -> String {
    let start = THEIRS.find("    conv_bn:").unwrap();
    let end = THEIRS.find("  body:\n    - stack").unwrap();
    let blocks: String = blocks.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!("{}{blocks}{}", &THEIRS[..start], &THEIRS[end..]);
    text.replace("name: theirs", "name: own").replace("    - block: {name: layer2, use: other}\n", "")
}

fn load(files: &[(&str, &str)], profile: Option<&str>) -> Result<Loaded, Diagnostics> {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("blocks")).unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let options = LoadOptions { profile: profile.map(str::to_owned), sets: Vec::new() };
    Library::new([dir.path()]).load(files[0].0.trim_end_matches(".yaml"), &options)
}

fn recipe(files: &[(&str, &str)], profile: Option<&str>) -> Recipe {
    load(files, profile).unwrap_or_else(|diagnostics| panic!("{diagnostics}")).recipe
}

fn report(files: &[(&str, &str)]) -> String {
    let text = load(files, None).map_or_else(|diagnostics| diagnostics.to_string(), |_| String::new());
    without_folder(&text)
}

#[test]
fn a_block_comes_with_the_blocks_that_it_uses() {
    let theirs = ("theirs.yaml", THEIRS);
    let own = recipe(&[("own.yaml", &own("unit: {from: theirs}")), theirs], None);
    assert_eq!(own.model.blocks.keys().collect::<Vec<_>>(), ["unit", "conv_bn"]);
    let theirs = recipe(&[theirs], None);
    assert_eq!(own.model.blocks["unit"], theirs.model.blocks["unit"]);
    assert_eq!(own.model.blocks["conv_bn"], theirs.model.blocks["conv_bn"]);
    let names = |recipe: &Recipe| recipe.resolve().unwrap().body[0].clone();
    assert_eq!(names(&own).name, names(&theirs).name);
}

#[test]
fn what_stands_beside_from_changes_the_block() {
    let own = own("unit: {from: theirs, args: {width: 16}}");
    let own = recipe(&[("own.yaml", &own), ("theirs.yaml", THEIRS)], None);
    assert_eq!(own.model.blocks["unit"].args["width"].unwrap().to_string(), "16");
}

#[test]
fn layers_are_where_they_were_written() {
    let files = [("own.yaml", &*own("unit: {from: theirs, args: {width: 16}}")), ("theirs.yaml", THEIRS)];
    let own = recipe(&files, None);
    let layer = own.span("model.blocks.conv_bn.body[0]");
    assert!(layer.file.ends_with("theirs.yaml") && (layer.line, layer.column) == (9, 11), "{layer}");
    let changed = own.span("model.blocks.unit.args.width");
    assert!(changed.file.ends_with("own.yaml") && changed.line == 6, "{changed}");
    let wrong = THEIRS.replace("bn: {name: bn}", "bn: {nam: bn}");
    insta::assert_snapshot!(report(&[files[0], ("theirs.yaml", &wrong)]));
}

#[test]
fn files_of_blocks_are_shared_and_are_no_recipes() {
    let blocks = "description: parts\nblocks:\n  unit: {body: [block: {use: act}]}\n  act: {body: [relu]}\n";
    let files = [
        ("own.yaml", &*own("unit: {from: blocks/parts, args: {width: 8}}").replace("args: {width: 3}", "args: {}")),
        ("blocks/parts.yaml", blocks),
    ];
    let said = report(&files);
    assert!(said.contains("no layer of `unit` uses the argument `width`"), "{said}");
    let files = [("own.yaml", &*files[0].1.replace(", args: {width: 8}", "")), files[1]];
    assert_eq!(recipe(&files, None).model.blocks.keys().collect::<Vec<_>>(), ["unit", "act"]);
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("blocks")).unwrap();
    fs::write(dir.path().join("blocks/parts.yaml"), blocks).unwrap();
    assert!(Library::new([dir.path()]).list().is_empty());
}

/// A file of blocks takes from another file of blocks and from a recipe, both of the folder above it.
#[test]
fn files_of_blocks_take_blocks() {
    let files = [
        ("own.yaml", &*own("unit: {from: blocks/a}")),
        ("blocks/a.yaml", "blocks: {unit: {from: blocks/b}}"),
        ("blocks/b.yaml", "blocks: {unit: {from: theirs}}"),
        ("theirs.yaml", THEIRS),
    ];
    assert_eq!(recipe(&files, None).model.blocks.len(), 2);
}

#[test]
fn what_is_taken_replaces_what_is_inherited_and_can_be_changed_by_path() {
    let child = "name: child\nextends: theirs\nmodel: {blocks: {other: {from: parts.yaml}}}\n\
                 set: {model.blocks.other.act.enabled: false}\n\
                 profiles: {mini: {model: {blocks: {other: {from: theirs}}}}}\n";
    let parts = own(
        "other: {args: {width: 1}, body: [relu: {name: act}, conv: {name: conv, out: $width, kernel: 1}]}\nunit: {from: theirs}",
    );
    let files = [("child.yaml", child), ("parts.yaml", &parts), ("theirs.yaml", THEIRS)];
    let written = recipe(&files, None);
    assert_eq!(written.model.blocks["other"].body.len(), 2);
    assert_eq!(written.span("model.blocks.other.body[0].relu.enabled").line, 4);
    let mini = recipe(&files, Some("mini"));
    assert_eq!((mini.model.blocks["other"].body.len(), mini.model.blocks["other"].args.len()), (1, 0));
}

#[test]
fn blocks_that_cannot_be_taken() {
    let theirs = ("theirs.yaml", THEIRS);
    let of = |blocks: &str, more: (&str, &str)| report(&[("own.yaml", &own(blocks)), more]);
    insta::assert_snapshot!(of("unit: {from: thiers}", theirs));
    insta::assert_snapshot!(of("unt: {from: theirs}", theirs));
    insta::assert_snapshot!(of("unit: {from: [theirs]}", theirs));
    insta::assert_snapshot!(of("unit: {from: theirs, body: [relu]}", theirs));
    insta::assert_snapshot!(of("unit: {from: theirs}\nconv_bn: {body: [relu]}", theirs));
    insta::assert_snapshot!(of("unit: {from: own}", theirs));
    insta::assert_snapshot!(of("unit: {from: third}", ("third.yaml", &own("unit: {from: own}"))));
    insta::assert_snapshot!(of("unit: {from: blocks/party}", ("blocks/parts.yaml", "blocks: {unit: {body: [relu]}}")));
    insta::assert_snapshot!(of("unit: {from: blocks/parts}", ("blocks/parts.yaml", "blocks: {unit: {boddy: [relu]}}")));
    insta::assert_snapshot!(of("unit: {from: blocks/../own}", theirs));
}

/// Each of twenty files takes from the next, and reads it once, however many blocks it takes.
#[test]
fn too_many_in_a_row() {
    let take = |next: usize| own(&["a", "b", "unit"].map(|name| format!("{name}: {{from: r{next}}}")).join("\n"));
    let files: Vec<(String, String)> = (0..20).map(|step| (format!("r{step}.yaml"), take(step + 1))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(report(&files).contains("a chain of more than 16 recipes that take blocks from each other"));
    let last = own(
        "a: {body: [relu]}\nb: {body: [relu]}\nunit: {args: {width: 1}, body: [conv: {name: conv, out: $width, kernel: 1}]}",
    );
    let files: Vec<_> = files[..14].iter().copied().chain([("r14.yaml", &*last)]).collect();
    assert_eq!(recipe(&files, None).model.blocks.len(), 3);
}
