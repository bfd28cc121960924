//! `zoo new`: recipes to start from.

use crate::workbench::{Said, command, said, zoo};

#[test]
fn a_new_recipe_validates_and_is_never_overwritten() {
    let (here, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let zoo = |line: &str| {
        let mut zoo = command();
        zoo.current_dir(here.path()).env("XDG_CACHE_HOME", cache.path());
        said(zoo.args(line.split_whitespace()))
    };
    let made = zoo("new my_net --blank").expect(0);
    assert!(made.out.starts_with("recipes/my_net.yaml\n"), "{}", made.out);
    zoo("new mine --from resnet101").expect(0);
    zoo("new aside --from resnet50 --out drafts/aside.yaml --format json").expect(0);
    assert!(here.path().join("recipes/schema/recipe.json").is_file());
    for recipe in ["my_net", "mine", "drafts/aside.yaml"] {
        let checked = zoo(&format!("validate {recipe}")).expect(0);
        assert!(checked.out.contains("ok"), "{}", checked.out);
    }
    // What is taken over from resnet50 through resnet101 is there to be changed.
    let text = std::fs::read_to_string(here.path().join("recipes/mine.yaml")).unwrap();
    assert!(text.contains("extends: resnet101\n") && text.contains("# optimizer: {sgd: {momentum: 0.875"), "{text}");
    let uncommented = text.replace("# optimizer: {sgd: {momentum: 0.875", "optimizer: {sgd: {momentum: 0.8");
    std::fs::write(here.path().join("recipes/mine.yaml"), uncommented).unwrap();
    zoo("validate mine").expect(0);
    let again = zoo("new my_net --blank").expect(2);
    assert!(again.err.contains("already exists"), "{}", again.err);
}

#[test]
fn what_cannot_be_a_recipe_is_refused() {
    let here = tempfile::tempdir().unwrap();
    for (line, code, message) in [
        ("new ../evil --blank", 2, "is not a valid recipe name"),
        ("new Hidden --blank", 2, "is not a valid recipe name"),
        ("new both --blank --from resnet50", 2, "cannot be used with"),
        ("new neither", 2, "--from"),
        ("new child --from resnet5", 2, "resnet50"),
    ] {
        let mut zoo = command();
        zoo.current_dir(here.path()).env("XDG_CACHE_HOME", here.path().join("cache"));
        let refused = said(zoo.args(line.split_whitespace())).expect(code);
        assert!(refused.err.contains(message), "{line}: {}", refused.err);
    }
    assert!(!here.path().join("recipes").exists());
}

#[test]
fn a_copy_is_the_original_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut copy = command();
    copy.args(["cp", "resnet18", "mine", "--out"]).arg(dir.path().join("deep/mine.yaml"));
    said(&mut copy).expect(0);
    let text = std::fs::read_to_string(dir.path().join("deep/mine.yaml")).unwrap();
    let original = std::fs::read_to_string("recipes/resnet18.yaml").unwrap();
    assert_eq!(text, original.replace("\nname: resnet18\n", "\nname: mine\n"));
    assert!(said(&mut copy).expect(2).err.contains("already exists"));
    assert!(zoo("cp resnet18 Mine").expect(2).err.contains("not a valid recipe name"));
    assert!(zoo("new mine").expect(2).err.contains("--from <RECIPE>|--blank"));
}

/// A folder with a command that runs in it.
struct Workplace(tempfile::TempDir);

impl Workplace {
    /// With a recipe `rel/child.yaml` that extends `rel/base.yaml`.
    fn new() -> Self {
        let here = Self(tempfile::tempdir().unwrap());
        here.write("rel/base.yaml", "name: base\nextends: lenet\ntrain: {batch: 7}\n");
        here.write("rel/child.yaml", "# A child.\nextends: base.yaml # why\nname: child\n");
        here
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    fn zoo(&self, arguments: &[&str]) -> Said {
        said(command().current_dir(&self.0).env("XDG_CACHE_HOME", self.0.path().join("cache")).args(arguments))
    }

    /// The batch size of a recipe, which also shows that it is valid.
    fn batch(&self, recipe: &str) -> serde_json::Value {
        self.zoo(&["validate", recipe]).expect(0);
        let resolved = self.zoo(&["show", recipe, "--resolved", "--format", "json"]).expect(0).json();
        resolved["recipe"]["train"]["batch"].clone()
    }
}

#[test]
fn a_path_can_be_extended_from_another_folder() {
    let here = Workplace::new();
    here.write("dir/my net.yaml", "name: quite_different\nextends: lenet\ntrain: {batch: 9}\n");
    let made = here.zoo(&["new", "okname", "--from", "dir/my net.yaml", "--out", "oo/x y.yaml"]).expect(0);
    assert!(here.read("oo/x y.yaml").contains("\nextends: \"../dir/my net.yaml\"\n"), "{}", here.read("oo/x y.yaml"));
    assert_eq!(here.batch("oo/x y.yaml"), 9);
    // What is printed and commented works as it is.
    for command in ["validate", "show", "run"] {
        assert!(made.out.contains(&format!("\n  zoo {command} 'oo/x y.yaml'\n")), "{}", made.out);
        assert!(here.read("oo/x y.yaml").contains(&format!("# zoo {command} 'oo/x y.yaml' ")), "{command}");
    }
    here.zoo(&["new", "rr", "--from", "rel/child.yaml"]).expect(0);
    assert_eq!(here.batch("rr"), 7);
    assert!(here.read("recipes/rr.yaml").contains("# train: {batch: 7}\n"), "{}", here.read("recipes/rr.yaml"));
    // In the same folder, the name of the file is enough.
    here.zoo(&["new", "sibling", "--from", "rel/base.yaml", "--out", "rel/sibling.yaml"]).expect(0);
    assert!(here.read("rel/sibling.yaml").contains("\nextends: base.yaml\n"));
    let blank = here.zoo(&["new", "plain", "--blank", "--out", "plain"]).expect(0);
    assert!(blank.out.contains("zoo run ./plain\n") && here.read("plain").contains("# zoo run ./plain "));
    here.zoo(&["validate", "./plain"]).expect(0);
}

#[test]
fn a_copy_in_another_folder_refers_to_the_same_recipes() {
    let here = Workplace::new();
    here.zoo(&["cp", "rel/child.yaml", "kid", "--out", "rel2/kid.yaml"]).expect(0);
    assert_eq!(here.read("rel2/kid.yaml"), "# A child.\nextends: ../rel/base.yaml # why\nname: kid\n");
    assert_eq!(here.batch("rel2/kid.yaml"), 7);
    // By name, and with blocks of another file.
    here.write("rel/named.yaml", "name: named\nextends: base\nmodel: {blocks: {basic: {from: r18.yaml}}}\n");
    here.write("rel/r18.yaml", "name: r18\nextends: resnet18\n");
    here.zoo(&["cp", "rel/named.yaml", "other", "--out", "rel2/other.yaml"]).expect(0);
    assert_eq!(
        here.read("rel2/other.yaml"),
        "name: other\nextends: ../rel/base.yaml\nmodel: {blocks: {basic: {from: ../rel/r18.yaml}}}\n"
    );
    // In the same folder nothing changes, and the copy never has an inherited name.
    here.write("rel/unnamed.yaml", "extends: base.yaml\n");
    here.zoo(&["cp", "rel/unnamed.yaml", "twin", "--out", "rel/twin.yaml"]).expect(0);
    assert_eq!(here.read("rel/twin.yaml"), "name: twin\nextends: base.yaml\n");
}

#[test]
fn a_recipe_that_would_be_invalid_is_not_written() {
    let here = Workplace::new();
    let cycle = here.zoo(&["new", "lenet", "--from", "lenet"]).expect(2);
    assert!(cycle.err.contains("cycle"), "{}", cycle.err);
    assert!(!here.0.path().join("recipes/lenet.yaml").exists());
    // A block file is only found next to its recipes.
    here.write("rel/blocks/own.yaml", "blocks: {relued: {body: [relu]}}\n");
    here.write("rel/user.yaml", "name: user\nextends: lenet\nmodel: {blocks: {relued: {from: blocks/own}}}\n");
    here.zoo(&["validate", "rel/user.yaml"]).expect(0);
    let refused = here.zoo(&["cp", "rel/user.yaml", "copy", "--out", "rel2/copy.yaml"]).expect(2);
    assert!(refused.err.contains("there is no block file `blocks/own`"), "{}", refused.err);
    assert!(!here.0.path().join("rel2/copy.yaml").exists());
}

#[test]
fn what_set_changes_is_shown_as_it_is() {
    let here = Workplace::new();
    here.zoo(&["new", "mine", "--from", "vit_l_16"]).expect(0);
    let text = here.read("recipes/mine.yaml");
    for line in ["#   sgd:", "#   batch: 128", "#   epochs: 600", "#     base_lr: 0.0625", "#     label_smoothing: 0.1"]
    {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(!text.contains("adamw") && text.contains("#     - trivial_augment"), "{text}");
    assert!(!text.contains("proves this recipe too") && text.contains("# vit_l_16 has no golden."), "{text}");
    here.zoo(&["new", "golden", "--from", "resnet50"]).expect(0);
    assert!(here.read("recipes/golden.yaml").contains("# The golden of resnet50 proves this recipe too"));
}

#[test]
fn a_path_that_cannot_be_written_is_called_so() {
    let here = Workplace::new();
    here.write("file", "");
    for arguments in [["new", "x", "--blank"].as_slice(), &["new", "x", "--from", "lenet"], &["cp", "lenet", "x"]] {
        let refused = here.zoo(&[arguments, &["--out", "file/x.yaml"]].concat()).expect(2);
        assert!(refused.err.contains("file: cannot be written: not a directory"), "{}", refused.err);
    }
}
