//! `judge`: what a recording has instead, if its numbers show it.

use crate::judge::{exported, judged, made};
use std::fs;
use tempfile::TempDir;

/// A recording of the recipe with changes, judged against the recipe with others: the hints.
fn explained(recipe: &[&str], recording: &[&str]) -> (String, String) {
    fn sets<'a>(changes: &[&'a str]) -> Vec<&'a str> {
        changes.iter().flat_map(|change| ["--set", change]).collect()
    }
    let folder = exported("named", &sets(&[recipe, recording].concat()));
    let report = judged(folder.path(), &[&["--format", "json"], &sets(recipe)[..]].concat()).expect(1).json();
    let divergence = &report["first_divergence"];
    (divergence["hints"].to_string(), divergence["line"].as_str().unwrap().to_owned())
}

#[test]
fn the_rule_that_gives_the_recorded_update_is_named() {
    let adamw = "optimizer={adamw: {weight_decay: 0.1, no_decay: [bn, bias]}}";
    let adam = "optimizer={adam: {weight_decay: 0.1, no_decay: [bn, bias]}}";
    let clip = "gradients.clip=[{norm: 0.2}]";
    let cases: [(&[&str], &str, &str); 17] = [
        (&[], "optimizer.sgd.nesterov=true", "as if momentum were with Nesterov's momentum"),
        (&["optimizer.sgd.nesterov=true"], "optimizer.sgd.nesterov=false", "as if momentum were without Nesterov's"),
        (
            &[],
            "optimizer.sgd.weight_decay=0",
            "as if there were no weight decay for conv1.weight, conv2.weight, fc.weight",
        ),
        (&[], "optimizer.sgd.weight_decay=5e-4", "as if the weight decay were 5e-4"),
        (&[], "optimizer.sgd.no_decay=[]", "as if the weight decay of 1e-4 were also for"),
        (&[], "optimizer.sgd.groups=[{match: conv1.*, weight_decay: 0}]", "no weight decay for conv1.weight:"),
        (&[], clip, "as if the norm of all gradients were clipped to 0.2"),
        (&[], "gradients.clip=[{norm: 1e-3}]", "as if the norm of all gradients were clipped to 0.001"),
        (&[clip], "gradients.clip=[]", "as if gradients were not clipped"),
        (&[clip], "gradients.clip=[{value: 0.2}]", "as if each element of the gradients were clipped to 0.2"),
        (&[clip], "gradients.clip=[{norm: 0.1}]", "as if the norm of all gradients were clipped to 0.1"),
        (&[adamw], adam, "as if the optimizer were Adam: decay added to the gradient"),
        (&[adam], adamw, "as if the optimizer were AdamW: decay apart from the gradient"),
        (&[adamw], "optimizer.adamw.beta1=0.8", "as if beta1 were 0.8, not 0.9"),
        (&[adamw], "optimizer.adamw.beta2=0.99", "as if beta2 were 0.99, not 0.999"),
        (&[adamw], "optimizer.adamw.beta2=0.9973", "as if beta2 were 0.9973, not 0.999"),
        (&[adam], "optimizer.adam.eps=1e-3", "as if eps were 1e-3, not 1e-8"),
    ];
    for (recipe, recording, text) in cases {
        let (hints, line) = explained(recipe, &[recording]);
        assert!(hints.contains(text), "{recording}: should say `{text}`: {hints}");
        assert!(line.contains("tiny.yaml:28") || line.contains("--set"), "{recording}: {line}");
    }
}

#[test]
fn the_loss_that_was_computed_is_named() {
    let l2 = "loss.l2={weight: 1e-2}";
    let cases: [(&[&str], &str, &str); 5] = [
        (&[], "loss.softmax_cross_entropy.label_smoothing=0.2", "as if labels were smoothed by 0.2 over all classes"),
        (&[], "loss.softmax_cross_entropy.label_smoothing=0", "as if labels were smoothed not at all"),
        (&[], "loss.softmax_cross_entropy.smoothing_over=other_classes", "by 0.1 over the other classes"),
        (&[l2], "loss.l2.over=weights", "as if `l2` summed over weights, and no biases or normalisations"),
        (&[l2], "loss.l2=~", "as if there were no `l2` in the loss"),
    ];
    for (recipe, recording, text) in cases {
        let (hints, line) = explained(recipe, &[recording]);
        assert!(hints.contains(text), "{recording}: should say `{text}`: {hints}");
        assert_eq!(line.contains("--set"), recipe.contains(&l2), "{recording}: {line}");
    }
}

/// Multiplies the elements of a recorded tensor.
fn multiply(folder: &TempDir, name: &str, by: f64) {
    let values: Vec<f64> = elements(folder, name).iter().map(|x| x * by).collect();
    replace(folder, name, &values);
}

#[test]
fn gradients_with_one_factor_are_explained_together() {
    let folder = exported("named", &[]);
    for entry in fs::read_dir(folder.path().join("grad")).unwrap().map(Result::unwrap) {
        multiply(&folder, &format!("grad/{}", entry.path().file_stem().unwrap().to_str().unwrap()), 1024.0);
    }
    let said = judged(folder.path(), &[]).expect(1).out;
    assert!(said.contains("1024 times what it should be: the gradient of fc.weight"), "{said}");
    assert!(said.contains("if that is a loss scale, say so: --loss-scale 1024"), "{said}");
    judged(folder.path(), &["--loss-scale", "1024"]).expect(0);
    let folder = exported("named", &[]);
    multiply(&folder, "loss/loss", 2.0);
    let said = judged(folder.path(), &[]).expect(1).out;
    assert!(said.contains("as if `cross_entropy` were summed over the 2 samples, not averaged"), "{said}");
}

/// A fault that no rule gives is not explained.
#[test]
fn what_no_rule_gives_has_no_explanation() {
    let folder = exported("named", &[]);
    multiply(&folder, "param1/conv1.weight", 1.01);
    let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
    assert!(!report["first_divergence"]["hints"].to_string().contains("as if"), "{}", report["first_divergence"]);
    let folder = exported("named", &[]);
    multiply(&folder, "loss/loss", 1.37);
    let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
    assert_eq!(report["first_divergence"]["hints"], serde_json::json!([]));
}

#[test]
fn dropout_that_is_on_is_named_with_its_line() {
    let folder = exported("named", &["--set", "model.dropout.rate=0.5"]);
    let said = judged(folder.path(), &[]).expect(1).out;
    assert!(said.contains("the recipe has a dropout of 0.1 in front of it"), "{said}");
    assert!(said.contains("goldens are made without dropout"), "{said}");
}

/// The elements of an `.npy` file in f64.
fn elements(folder: &TempDir, name: &str) -> Vec<f64> {
    let bytes = fs::read(folder.path().join(format!("{name}.npy"))).unwrap();
    let begin = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[begin..].as_chunks::<8>().0.iter().map(|element| f64::from_le_bytes(*element)).collect()
}

/// Writes an `.npy` file in f64.
fn write(folder: &TempDir, name: &str, shape: &str, values: &[f64]) {
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    fs::write(folder.path().join(format!("{name}.npy")), bytes).unwrap();
}

/// Replaces the elements of a recorded tensor.
fn replace(folder: &TempDir, name: &str, values: &[f64]) {
    let path = folder.path().join(format!("{name}.npy"));
    let mut bytes = fs::read(&path).unwrap();
    let begin = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(bytes.len() - begin, 8 * values.len());
    bytes.truncate(begin);
    values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

/// Rules that no setting of a recipe gives, planted in the recorded results: next parameter and slots of each element,
/// from parameter, gradient and weight decay.
#[test]
fn rules_of_other_frameworks_are_named() {
    const LR: f64 = 0.05;
    type Rule = fn(f64, f64, f64) -> [f64; 3];
    let adamw = "optimizer={adamw: {weight_decay: 0.1, eps: 1e-2, no_decay: [bn, bias]}}";
    let cases: [(&str, &str, Rule); 7] = [
        ("optimizer.sgd.momentum=0.9", "as if weight decay were apart from the gradient", |p, g, wd| {
            [p * (1.0 - LR * wd) - LR * g, g, 0.0]
        }),
        ("optimizer.sgd.momentum=0.9", "as if the momentum were an average: 0.9 of itself and 0.1", |p, g, wd| {
            let v = 0.1 * (g + wd * p);
            [p - LR * v, v, 0.0]
        }),
        ("optimizer.sgd.momentum=0.9", "as if the momentum contained the learning rate", |p, g, wd| {
            let v = LR * (g + wd * p);
            [p - v, v, 0.0]
        }),
        (adamw, "as if eps were added inside the root", |p, g, wd| {
            [p * (1.0 - LR * wd) - LR * g / (g * g + 1e-2).sqrt(), 0.1 * g, 0.001 * g * g]
        }),
        (adamw, "as if eps were added to the root before the correction", |p, g, wd| {
            let (m, v) = (0.1 * g, 0.001 * g * g);
            [p * (1.0 - LR * wd) - LR * 0.001f64.sqrt() / 0.1 * m / (v.sqrt() + 1e-2), m, v]
        }),
        (adamw, "as if the bias of the moments were not corrected", |p, g, wd| {
            let (m, v) = (0.1 * g, 0.001 * g * g);
            [p * (1.0 - LR * wd) - LR * m / (v.sqrt() + 1e-2), m, v]
        }),
        (adamw, "as if weight decay were not multiplied by the learning rate", |p, g, wd| {
            [p * (1.0 - wd) - LR * g / (g.abs() + 1e-2), 0.1 * g, 0.001 * g * g]
        }),
    ];
    for (recipe, text, rule) in cases {
        let folder = exported("named", &["--set", recipe]);
        let slots: &[&str] = if recipe == adamw { &["exp_avg1", "exp_avg_sq1"] } else { &["momentum1"] };
        for name in ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"] {
            let (start, gradient) =
                (elements(&folder, &format!("start/{name}")), elements(&folder, &format!("grad/{name}")));
            let decay = match name.starts_with("bn") || name.ends_with("bias") {
                true => 0.0,
                false if recipe == adamw => 0.1,
                false => 1e-4,
            };
            let next: Vec<[f64; 3]> = start.iter().zip(&gradient).map(|(p, g)| rule(*p, *g, decay)).collect();
            for (n, kind) in ["param1"].iter().chain(slots).enumerate() {
                let values: Vec<f64> = next.iter().map(|next| next[n]).collect();
                replace(&folder, &format!("{kind}/{name}"), &values);
            }
        }
        let report = judged(folder.path(), &["--format", "json", "--set", recipe]).expect(1).json();
        let hints = report["first_divergence"]["hints"].to_string();
        assert!(hints.contains(text), "should say `{text}`: {hints}");
    }
}

/// The recorded dropout is not the recipe's: its output is found by its input.
#[test]
fn a_recorded_dropout_that_is_on_is_found() {
    let folder = exported("named", &[]);
    let relu: Vec<f64> = elements(&folder, "out/conv2#0").iter().map(|x| x.max(0.0)).collect();
    let pooled: Vec<f64> = relu.chunks(16).map(|map| map.iter().sum::<f64>() / 16.0).collect();
    let dropped: Vec<f64> = pooled.iter().enumerate().map(|(n, x)| if n % 3 == 0 { 0.0 } else { 1.25 * x }).collect();
    let (weight, bias) = (elements(&folder, "start/fc.weight"), elements(&folder, "start/fc.bias"));
    let score = |features: &[f64], class: usize| {
        features.iter().zip(&weight[24 * class..]).map(|(x, w)| x * w).sum::<f64>() + bias[class]
    };
    let scores: Vec<f64> =
        dropped.chunks(24).flat_map(|features| (0..10).map(|class| score(features, class))).collect();
    write(&folder, "out/pool#0", "2, 24, 1, 1", &pooled);
    write(&folder, "out/drop#0", "2, 24", &dropped);
    ["out/fc#0", "out/@root#0"].iter().for_each(|name| replace(&folder, name, &scores));
    let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
    let (divergence, hint) = (&report["first_divergence"], report["first_divergence"]["hints"][0].as_str().unwrap());
    assert_eq!(divergence["tensor"], "fc#0");
    assert!(hint.contains("dropout is on: `out/drop#0` is its input with"), "{hint}");
    assert!(hint.contains("of the elements zero and the others times 1.250"), "{hint}");
}

#[test]
fn the_schedule_of_the_recipe_may_be_meant() {
    let said = judged(&made("capture"), &["--schedule"]).expect(1).out;
    assert!(said.contains("as if the learning rate were 0.05 (2.000 times"), "{said}");
}
