//! `judge`: names of a recording that are not those of the recipe.

use crate::judge::{copied, exported, judged};
use std::fs;
use tempfile::TempDir;

#[test]
fn names_that_the_step_has_not_fail_unless_they_are_allowed() {
    let folder = exported("named", &[]);
    let extra = folder.path().join("aux.npy");
    fs::copy(folder.path().join("grad/fc.bias.npy"), &extra).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("1 name of the recording that the step does not have (not allowed"), "{}", said.out);
    assert!(said.out.contains("\n  aux\n"), "{}", said.out);
    let junit = folder.path().join("judge.xml");
    let names = |allowed: &[&str], code: i32| {
        judged(folder.path(), &[&["--junit", junit.to_str().unwrap()], allowed].concat()).expect(code);
        let xml = fs::read_to_string(&junit).unwrap();
        let case = xml.split("<testcase ").find(|case| case.starts_with("name=\"names\"")).unwrap();
        (case.contains("1 name of the recording that the step does not have"), xml.contains("failures=\"1\""))
    };
    assert_eq!(names(&[], 1), (true, true));
    assert_eq!(names(&["--allow-unmatched"], 0), (false, false));
    // The same said once and for all, and a name that means something.
    fs::rename(folder.path().join("out/fc#0.npy"), folder.path().join("logits.npy")).unwrap();
    fs::write(folder.path().join("names.yaml"), "names: {logits: 'out/fc#0'}\nignore: [aux]").unwrap();
    judged(folder.path(), &[]).expect(0);
}

/// A port need not have what computes nothing, and may have more of it.
#[test]
fn what_computes_nothing_is_optional_on_both_sides() {
    let folder = exported("named", &["--set", "model.bn1.eps=1e-5"]);
    let out = folder.path().join("out");
    fs::remove_file(out.join("@root#0.npy")).unwrap();
    fs::copy(out.join("fc#0.npy"), out.join("head#0.npy")).unwrap();
    fs::copy(folder.path().join("input/image.npy"), out.join("normalize#0.npy")).unwrap();
    let said = judged(folder.path(), &[]).expect(0);
    assert!(said.out.contains("not compared: 2 outputs that repeat another one"), "{}", said.out);
    assert!(said.out.ends_with("pass, 5 stages\n"), "{}", said.out);
    // An output that is none of the others has to mean something.
    fs::copy(folder.path().join("grad/fc.bias.npy"), out.join("aux#0.npy")).unwrap();
    assert!(judged(folder.path(), &[]).expect(1).out.contains("\n  out/aux#0\n"));
}

/// A copy of the named recording with other names.
fn renamed(rename: impl Fn(&str, &str) -> String) -> TempDir {
    let folder = exported("named", &[]);
    for kind in ["buffer1", "grad", "momentum1", "out", "param1", "start"] {
        for entry in fs::read_dir(folder.path().join(kind)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            fs::rename(entry.path(), entry.path().with_file_name(rename(kind, &name))).unwrap();
        }
    }
    folder
}

#[test]
fn wrappers_are_recognised_and_named() {
    let named = |folder: &TempDir, added: &str, count: usize| {
        let said = judged(folder.path(), &[]).expect(0);
        let line = format!("read without `{added}`, which a wrapper adds: {count} names");
        assert!(said.out.contains(&line) && said.out.ends_with("pass, 5 stages\n"), "`{line}`: {}", said.out);
        let report = judged(folder.path(), &["--format", "json"]).expect(0).json();
        assert_eq!(report["wrappers"][added], count);
    };
    let prefixed = |prefix: &'static str| {
        renamed(move |_, name| match name.strip_prefix("@root") {
            Some(rest) if !prefix.ends_with("net.") => format!("{}{rest}", prefix.trim_end_matches('.')),
            _ => format!("{prefix}{name}"),
        })
    };
    for prefix in ["module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module.", "network._backbone."] {
        named(&prefixed(prefix), prefix, 37);
    }
    // The name of a network, which is no wrapper that zoo knows.
    named(&prefixed("tiny_net."), "tiny_net.", 37);
    // Only some modules are wrapped, in the middle of the name.
    let some = renamed(|_, name| match name.strip_prefix("conv2") {
        Some(rest) => format!("conv2._checkpoint_wrapped_module{rest}"),
        None => name.to_owned(),
    });
    named(&some, "_checkpoint_wrapped_module.", 9);
}

/// A port with its own names, recorded in the order of its calls: capture.json has it.
#[test]
fn other_names_are_proposed_and_not_used() {
    let own = |name: &str| match name.split('.').next().unwrap_or(name).split('#').next().unwrap_or(name) {
        "conv1" => name.replace("conv1", "stem.conv"),
        "bn1" => name.replace("bn1", "stem.norm"),
        "fc" => name.replace("fc", "head"),
        _ => name.to_owned(),
    };
    let folder = renamed(|_, name| own(name));
    let yaml = folder.path().join("proposed.yaml");
    let said = judged(folder.path(), &["--propose-names", yaml.to_str().unwrap()]).expect(1);
    assert!(said.out.contains("proposed names.yaml, by kind, shape and order; not used here."), "{}", said.out);
    let proposed = "modules:\n  \"head\": \"fc\"\n  \"stem.conv\": \"conv1\"\n  \"stem.norm\": \"bn1\"\n";
    assert_eq!(fs::read_to_string(&yaml).unwrap(), proposed);
    let said = judged(folder.path(), &["--names", yaml.to_str().unwrap()]).expect(0);
    assert!(said.out.ends_with("pass, 5 stages\n"), "{}", said.out);
}

#[test]
fn a_wrapper_may_return_what_its_network_returns_and_nothing_else() {
    let folder = exported("named", &[]);
    let out = folder.path().join("out");
    fs::copy(out.join("@root#0.npy"), out.join("module#0.npy")).unwrap();
    judged(folder.path(), &[]).expect(0);
    fs::copy(out.join("conv1#0.npy"), out.join("module.bn1#0.npy")).unwrap();
    let said = judged(folder.path(), &[]).expect(3);
    assert!(said.err.contains("`out/module.bn1#0` (without `module.`) are both out/bn1#0"), "{}", said.err);
}

#[test]
fn modules_of_other_names_are_mapped() {
    let folder = copied("msprobe-statistics");
    let manifest = folder.path().join("dump.json");
    let text = fs::read_to_string(&manifest).unwrap();
    // As a network of MindSpore would name them.
    let text = text.replace("Module.", "Cell.").replace("\"torch.float32\"", "\"Float32\"");
    let text = text.replace("Cell.conv1.", "Cell.stem.").replace("Cell.fc.", "Cell.head.");
    let text =
        text.replace("BatchNorm2d.parameters_grad.0\": {\"weight\"", "BatchNorm2d.parameters_grad.0\": {\"gamma\"");
    fs::write(&manifest, text).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("8 names of the recording that the step does not have (not allowed"), "{}", said.out);
    fs::write(folder.path().join("names.yaml"), "modules: {stem: conv1, head: fc}").unwrap();
    judged(folder.path(), &["--allow-missing=update"]).expect(0);
}
