//! `validate` on what people and accidents write.

use crate::workbench::{Said, command, root, said, zoo};
use std::fs;
use tempfile::TempDir;

/// A recipe in a folder of its own.
struct Draft(TempDir);

impl Draft {
    fn new(content: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("draft.yaml"), content).unwrap();
        Self(dir)
    }

    /// resnet50 with some text replaced.
    fn of_resnet50(from: &str, to: &str) -> Self {
        let text = fs::read_to_string(root().join("recipes/resnet50.yaml")).unwrap();
        assert!(text.contains(from), "{from}");
        Self::new(text.replacen(from, to, 1))
    }

    fn validate(&self) -> Said {
        said(command().arg("validate").arg(self.0.path().join("draft.yaml")))
    }

    /// The errors, as JSON.
    fn errors(&self) -> Vec<serde_json::Value> {
        let said = said(command().args(["validate", "--format", "json"]).arg(self.0.path().join("draft.yaml")));
        said.expect(2).json()["errors"].as_array().unwrap().clone()
    }
}

#[test]
fn the_recipes_of_the_tree_are_valid() {
    let all = zoo("validate").expect(0);
    assert!(all.out.contains("resnet50: ok"), "{}", all.out);
    let json = zoo("validate resnet50 alexnet --format json").expect(0).json();
    assert_eq!((&json["schema_version"], json["errors"].as_array().unwrap().len()), (&1.into(), 0));
}

#[test]
fn an_unknown_key_gets_line_column_and_proposal() {
    let draft = Draft::of_resnet50("momentum: 0.875", "momentun: 0.875");
    let errors = draft.errors();
    let line = fs::read_to_string(root().join("recipes/resnet50.yaml"))
        .unwrap()
        .lines()
        .position(|line| line.starts_with("optimizer"))
        .unwrap();
    assert_eq!(errors[0]["line"], line + 1);
    assert_eq!(errors[0]["column"], 19);
    assert_eq!(errors[0]["path"], "optimizer.sgd.momentun");
    assert_eq!(errors[0]["hint"], "did you mean `momentum`?");
    let text = draft.validate().expect(2).out;
    assert!(text.contains("^") && text.contains("momentun: 0.875"), "{text}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = fs::read_to_string(root().join("recipes/resnet50.yaml")).unwrap();
    let text = text
        .replace("train: {batch: 256, epochs: 90}", "train: {batch: many, epochs: 0}")
        .replace("classes: 1000", "classes: -1");
    let errors = Draft::new(text).errors();
    let paths: Vec<_> = errors.iter().map(|error| error["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["model.classes", "train.batch", "train.epochs"]);
}

#[test]
fn an_impossible_shape_names_the_line_of_its_layer() {
    let draft = Draft::of_resnet50("kernel: 7, stride: 2, pad: 3", "kernel: 700, stride: 2, pad: 3");
    let said = draft.validate().expect(2);
    let text = fs::read_to_string(root().join("recipes/resnet50.yaml")).unwrap();
    let line = text.lines().position(|line| line.contains("kernel: 7,")).unwrap() + 1;
    assert!(said.out.contains(&format!("draft.yaml:{line}:")), "{}", said.out);
    assert_eq!(draft.errors()[0]["path"], "model.body[0]");
}

#[test]
fn recipes_that_extend_each_other_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), "extends: b\n").unwrap();
    fs::write(dir.path().join("b.yaml"), "extends: a\n").unwrap();
    let said = said(command().arg("validate").arg(dir.path().join("a.yaml"))).expect(2);
    assert!(said.out.contains("cycle"), "{}", said.out);
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", [before.as_str(); 10].join(", "));
    }
    refused_with_a_message(&Draft::new(bomb));
}

#[test]
fn deep_nesting_is_refused() {
    refused_with_a_message(&Draft::new(format!("model: {}{}", "[".repeat(50_000), "]".repeat(50_000))));
}

#[test]
fn what_is_no_recipe_is_refused() {
    refused_with_a_message(&Draft::new(vec![b'#'; 10 << 20]));
    refused_with_a_message(&Draft::new((0..=255u8).cycle().take(4096).collect::<Vec<_>>()));
    refused_with_a_message(&Draft::new(""));
    refused_with_a_message(&Draft::new("[1, 2"));
    let folder = said(command().args(["validate", "recipes/"])).expect(2);
    assert!(folder.out.starts_with("error: "), "{}", folder.out);
    let absent = zoo("validate no/such.yaml").expect(2);
    assert!(absent.out.contains("no/such.yaml"), "{}", absent.out);
}

/// Exit 2, a short message that names the file, nothing of a panic.
fn refused_with_a_message(draft: &Draft) {
    let said = draft.validate().expect(2);
    assert!(said.out.starts_with("error: ") && said.out.contains("draft.yaml:"), "{}", said.out);
    assert!(said.out.len() < 4096 && said.err.is_empty(), "{}", said.err);
}

#[test]
fn files_of_any_size_need_a_resize() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(crate::workbench::root().join("tests/fixtures/recipes/digits.yaml")).unwrap();
    let text = text.replace(
        "    characters: {classes: 10, train: 1600, val: 400, size: 24, strokes: 0, noise: [0, 2], blur: [0, 0.3], \
         contrast: [90, 100]}",
        "    image_folder: {root: pictures}",
    );
    let file = dir.path().join("folder.yaml");
    std::fs::write(&file, &text).unwrap();
    let refused = zoo(&format!("validate {}", file.display())).expect(2);
    assert!(refused.out.contains("put `resize_to: {size: 24}` before `normalize`"), "{}", refused.out);
    std::fs::write(&file, text.replace("[normalize", "[resize_to: {size: 24}, normalize")).unwrap();
    zoo(&format!("validate {}", file.display())).expect(0);
}

#[test]
fn the_classes_of_the_data_are_those_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = crate::workbench::root().join("tests/fixtures/recipes/digits.yaml");
    let text = std::fs::read_to_string(&recipe).unwrap();
    let file = dir.path().join("more.yaml");
    std::fs::write(&file, text.replace("characters: {classes: 10", "characters: {classes: 36")).unwrap();
    let refused = zoo(&format!("validate {}", file.display())).expect(2);
    assert!(refused.out.contains("(data.source.characters.classes)"), "{}", refused.out);
    assert!(refused.out.contains("the data have 36 classes, the model has 10"), "{}", refused.out);
    // Other data replace those of the recipe.
    crate::data::pictures(dir.path());
    let sets = "--set model.classes=2 --set train.epochs=1 --set train.batch=2 --set target=~";
    let (recipe, dir, out) = (recipe.display(), dir.path().display(), dir.path().join("run"));
    zoo(&format!("run {recipe} --no-check --data {dir} --out {} {sets}", out.display())).expect(0);
}

#[test]
fn augmentation_has_its_order_and_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(crate::workbench::root().join("tests/fixtures/recipes/digits.yaml")).unwrap();
    let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
    let (source, eval) = (line("characters:"), line("eval: [normalize"));
    let file = dir.path().join("varied.yaml");
    let validate = |steps: &str, code: i32| {
        let text = text.replacen(source, "    image_folder: {root: pictures}", 1);
        let text = text.replacen(line("train: [normalize"), &format!("  train: [resize_to: {{size: 24}}, {steps}]"), 1);
        let text = text.replacen(eval, &eval.replace("[normalize", "[resize_to: {size: 24}, normalize"), 1);
        std::fs::write(&file, text).unwrap();
        zoo(&format!("validate {}", file.display())).expect(code).out
    };
    let normalize = "normalize: {mean: [128, 128, 128], std: [64, 64, 64], scale: byte}";
    let jitter = "color_jitter: {brightness: 0.4, hue: 0.1}";
    validate(&format!("{jitter}, rand_augment, {normalize}, random_erasing: {{p: 0.1}}"), 0);
    for (steps, message) in [
        (format!("random_erasing, {normalize}"), "`random_erasing` follows `normalize`"),
        (format!("{normalize}, {jitter}"), "nothing but `random_erasing` may follow `normalize`"),
        (format!("{normalize}, random_erasing, random_erasing"), "nothing may follow `random_erasing`"),
        (format!("color_jitter: {{hue: 0.6}}, {normalize}"), "must be at most 0.5, found 0.6"),
        (format!("rand_augment: {{magnitude: 31}}, {normalize}"), "a magnitude of 31 is not below 31 bins"),
    ] {
        let refused = validate(&steps, 2);
        assert!(refused.contains(message), "{steps}: {refused}");
    }
}

#[test]
fn fewer_logits_than_classes_are_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(crate::workbench::root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    let file = dir.path().join("narrow.yaml");
    std::fs::write(&file, text.replace("out: $classes", "out: 7")).unwrap();
    let refused = zoo(&format!("validate {}", file.display())).expect(2);
    assert!(refused.out.contains("7 logits for 10 classes"), "{}", refused.out);
}

/// A folder of recipes with one recipe, and what is said about it.
fn validated(name: &str, text: &str, code: i32) -> serde_json::Value {
    let recipes = tempfile::tempdir().unwrap();
    fs::write(recipes.path().join(format!("{name}.yaml")), text).unwrap();
    let folder = recipes.path().display();
    zoo(&format!("validate {name} --recipes {folder} --format json")).expect(code).json()
}

#[test]
fn a_name_that_is_inherited_or_not_that_of_the_file_is_warned_of() {
    let inherited = validated("mine", "extends: lenet\n", 0);
    let warning = &inherited["warnings"][0];
    assert_eq!(warning["message"], "this recipe has no name of its own: it is called `lenet`");
    assert_eq!((&warning["path"], &warning["line"]), (&"name".into(), &1.into()));
    let differs = validated("mine", "# why\nname: yours\nextends: lenet\n", 0);
    let warning = &differs["warnings"][0];
    assert_eq!(warning["message"], "the name differs from that of the file: the recipe is found as `mine`");
    assert_eq!((&warning["line"], &warning["hint"].as_str().unwrap().contains("`name: mine`")), (&2.into(), &true));
    assert_eq!(validated("mine", "name: mine\nextends: lenet\n", 0)["warnings"], serde_json::json!([]));
    // A file that is only found by its path can have any name.
    let draft = Draft::new("name: mine\nextends: lenet\n");
    assert!(!draft.validate().expect(0).out.contains("warning"));
}

#[test]
fn a_device_and_a_golden_that_do_not_exist_are_found() {
    let device = validated("mine", "name: mine\nextends: lenet\nnpu: {device: ascend990}\n", 2);
    let error = &device["errors"][0];
    assert!(error["message"].as_str().unwrap().contains("there is no device `ascend990`"), "{error}");
    assert_eq!((&error["path"], &error["line"]), (&"npu.device".into(), &3.into()));
    let golden = validated("mine", "name: mine\nextends: lenet\ngolden: {manifest: no/such.json}\n", 0);
    let warning = &golden["warnings"][0];
    assert!(warning["message"].as_str().unwrap().contains("names the golden no/such.json"), "{warning}");
    assert_eq!((&warning["path"], &warning["line"]), (&"golden.manifest".into(), &3.into()));
}
