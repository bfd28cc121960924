//! `zoo new`: recipes to start from.

use crate::workbench::{command, said, zoo};

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
