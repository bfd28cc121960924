//! What users read when a recipe is wrong: place, message, hint, all at once.

use std::fs;

use tempfile::TempDir;
use zoo_recipe::{Diagnostics, Library, LoadOptions};

const SOUND: &str = "\
name: tiny
model:
  inputs: {image: [3, 32, 32]}
  classes: 10
  blocks:
    unit:
      args: {width: ~, project: false}
      body:
        - residual:
            main:
              - conv: {name: conv, out: $width, kernel: 3, pad: 1, bias: false}
              - bn: {name: bn}
            shortcut:
              - sequential:
                  name: downsample
                  enabled: $project
                  body: [conv: {out: $width, kernel: 1}]
        - relu
  body:
    - conv: {name: conv1, out: 16, kernel: 3, pad: 1}
    - relu
    - stack: {name: layer1, block: unit, repeat: 2, args: {width: 16}}
    - global_avg_pool
    - flatten
    - linear: {name: fc, out: $classes}
data: {source: {characters: {size: 32}}}
preprocess:
  train: [normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}]
  eval: [normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}]
loss: {softmax_cross_entropy: {}}
optimizer: {sgd: {momentum: 0.9, weight_decay: 1e-4}}
schedule: {cosine: {base_lr: 0.1}}
train: {batch: 32, epochs: 2}
target: {metric: top1, value: 50%, of: three runs}
profiles:
  mini: {train: {epochs: 1}}
";

/// The sound recipe with parts of its text replaced.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(SOUND.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the recipe");
        text.replacen(from, to, 1)
    })
}

fn load(files: &[(&str, &[u8])], sets: &[&str]) -> Result<zoo_recipe::Loaded, Diagnostics> {
    let dir = TempDir::new().unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let options = LoadOptions { profile: None, sets: sets.iter().map(|set| set.to_string()).collect() };
    Library::new([dir.path()]).load(files[0].0.trim_end_matches(".yaml"), &options)
}

/// The report as printed, with the folder taken out of file names.
fn report(files: &[(&str, &[u8])], sets: &[&str]) -> String {
    let text = match load(files, sets) {
        Ok(loaded) => loaded.warnings.to_string(),
        Err(diagnostics) => diagnostics.to_string(),
    };
    without_folder(&text)
}

/// A report without the folder of its files.
pub fn without_folder(text: &str) -> String {
    let folder = std::env::temp_dir().display().to_string();
    let shorten = |line: &str| {
        let mut line = line.to_owned();
        while let Some(start) = line.find(&folder) {
            let end = start + line[start..].find(".tmp").unwrap() + ".tmpXXXXXX/".len();
            line.replace_range(start..end, "");
        }
        line.trim_end().to_owned()
    };
    text.lines().map(shorten).collect::<Vec<_>>().join("\n")
}

fn of(text: &str) -> String {
    report(&[("tiny.yaml", text.as_bytes())], &[])
}

fn with_sets(sets: &[&str]) -> String {
    report(&[("tiny.yaml", SOUND.as_bytes())], sets)
}

#[test]
fn the_sound_recipe_is_sound() {
    assert_eq!(of(SOUND), "");
}

#[test]
fn everything_at_once() {
    insta::assert_snapshot!(of(&with(&[
        ("classes: 10", "classes: ten"),
        ("out: 16, kernel: 3", "out: 16, kernal: 3"),
        ("- stack: {name: layer1, block: unit", "- stak: {name: layer1, block: unit"),
        ("repeat: 2", "repeat: 0"),
        ("momentum: 0.9", "momentum: 1.5"),
        ("metric: top1", "metric: topone"),
        ("epochs: 2", "epochs: 2.5"),
        ("data: {source: {characters: {size: 32}}}", "dat: {source: {characters: {size: 32}}}"),
        ("{epochs: 1}", "{epoch: 1}"),
        ("- linear: {name: fc, out: $classes}", "- linear: {name: fc}"),
    ])));
}

#[test]
fn wrong_kinds_of_values() {
    insta::assert_snapshot!(of(&with(&[
        ("name: tiny", "name: 12"),
        ("inputs: {image: [3, 32, 32]}", "inputs: {image: [3, 32]}"),
        ("kernel: 3, pad: 1, bias: false", "kernel: [3, 3, 3], pad: [1, 2, 3], bias: no"),
        ("loss: {softmax_cross_entropy: {}}", "loss: softmax_cross_entropy"),
        ("optimizer: {sgd: {momentum: 0.9, weight_decay: 1e-4}}", "optimizer: {sgd: {momentum: 1/0}, adam: {}}"),
        ("schedule: {cosine: {base_lr: 0.1}}", "schedule: {cosine: {base_lr: .inf, warmup: {over: 5}}}"),
        ("- flatten", "- linear"),
    ])));
}

#[test]
fn layers_that_do_not_fit_together() {
    insta::assert_snapshot!(of(&with(&[
        ("args: {width: ~, project: false}", "args: {width: ~, project: false, stride: 1}"),
        ("args: {width: 16}", "args: {widht: 16}"),
        ("    - relu\n    - stack", "    - conv: {name: conv1, out: $channels, kernel: 1}\n    - stack"),
        ("- global_avg_pool", "- bn"),
        ("- flatten", "- block: {name: last, use: unt}\n    - from: nowhere"),
    ])));
}

#[test]
fn impossible_expressions() {
    insta::assert_snapshot!(of(&with(&[
        ("out: $classes", "out: $"),
        ("out: $width, kernel: 3", "out: 4*, kernel: 3")
    ])));
    insta::assert_snapshot!(of(&with(&[
        ("out: $width, kernel: 3", "out: $width/3, kernel: 3"),
        ("out: $width, kernel: 1", "out: $project*2, kernel: 1"),
        ("args: {width: 16}", "args: {width: 16, project: true}"),
        ("- flatten", "- flatten: {enabled: $classes}"),
    ])));
}

#[test]
fn contradictions_and_the_unusual() {
    insta::assert_snapshot!(of(&with(&[
        ("bn: {name: bn}", "bn: {name: bn, momentum: 0.9}"),
        ("weight_decay: 1e-4", "weight_decay: 1e-2"),
        ("{softmax_cross_entropy: {}}", "{softmax_cross_entropy: {label_smoothing: 0.5}, l2: {weight: 1e-4}}"),
        ("base_lr: 0.1", "base_lr: 10, warmup: {over: 3 epochs, start_lr: 20}"),
        ("train: {batch: 32, epochs: 2}", "train: {batch: 32, epochs: 2}\nnpu: {loss_scale: {fixed: {scale: 1000}}}"),
    ])));
    insta::assert_snapshot!(of(&with(&[
        ("size: 32", "size: 32, blur: [2, 1]"),
        ("mean: [0.5, 0.5, 0.5]", "mean: [128, 128, 128]"),
        ("{softmax_cross_entropy: {}}", "{}"),
        ("momentum: 0.9", "nesterov: true"),
        ("base_lr: 0.1", "base_lr: 0"),
    ])));
}

#[test]
fn images_are_mixed_where_the_loss_can_weigh_two_classes() {
    let mixed = |mix: &str, more: &[(&str, &str)]| {
        let preprocess = format!("preprocess:\n  mix: {mix}");
        of(&with(&[&[("preprocess:", preprocess.as_str())], more].concat()))
    };
    assert_eq!(mixed("{mixup: 0.2, cutmix: 1}", &[]), "");
    let loss = "{softmax_cross_entropy: {}}";
    let formula = "{formulas: {f: {formula: \"logits * label\"}}}";
    let sentences = ("characters: {size: 32}", "sentences: {}");
    let said = [
        mixed("{}", &[]),
        mixed("{cutmix: 1e-9}", &[]),
        mixed("{mixup: 5}", &[]),
        mixed("{mixup: 1}", &[(loss, formula)]),
        mixed("{mixup: 1}", &[sentences]),
    ];
    insta::assert_snapshot!(said.join("\n\n"));
}

#[test]
fn tokens_are_hidden_where_the_loss_ignores_the_others() {
    let hidden = |more: &[(&str, &str)]| {
        of(&with(&[&[("preprocess:", "preprocess:\n  masking: {share: 0.15}")], more].concat()))
    };
    let sentences = ("characters: {size: 32}", "sentences: {}");
    let target = ("target: {metric: top1", "target: {metric: masked_accuracy");
    let loss = |loss: &'static str| ("{softmax_cross_entropy: {}}", loss);
    assert_eq!(hidden(&[sentences, target, loss("{softmax_cross_entropy: {ignore: 65535}}")]), "");
    let said = [
        hidden(&[]),
        hidden(&[sentences, target]),
        hidden(&[sentences, target, loss("{softmax_cross_entropy: {ignore: 3}}")]),
        hidden(&[sentences, target, loss("{formulas: {f: {formula: \"logits * label\"}}}")]),
        of(&with(&[sentences, target])),
    ];
    insta::assert_snapshot!(said.join("\n\n"));
}

#[test]
fn schedules_that_cannot_be() {
    let schedule = |schedule: &str| of(&with(&[("cosine: {base_lr: 0.1}", schedule)]));
    insta::assert_snapshot!(schedule("multi_step: {base_lr: 0.1, milestones: [0 epochs, 1.5 epochs, 1 epoch]}"));
    insta::assert_snapshot!(schedule("exponential: {base_lr: 0.1, gamma: 0.9, every: 0 steps}"));
    insta::assert_snapshot!(schedule("one_cycle: {base_lr: 0.1, pct_start: 30, div_factor: 0.04}"));
}

#[test]
fn a_warmup_by_epochs_has_whole_ones() {
    let warmup = |over: &str| of(&with(&[("base_lr: 0.1", &format!("base_lr: 0.1, warmup: {{over: {over}}}"))]));
    for over in ["1.5 epochs, per: epoch", "62 steps, per: epoch"] {
        let said = warmup(over);
        let (length, _) = over.split_once(',').unwrap();
        assert!(said.contains(&format!("warning: a warm-up `per: epoch` needs whole epochs, not {length}")), "{said}");
        assert!(said.contains("schedule.cosine.warmup.over") && !said.contains("error"), "{said}");
    }
    assert_eq!(warmup("1 epoch, per: epoch"), "");
    assert_eq!(warmup("1.5 epochs"), "");
}

#[test]
fn operators_and_layers_that_there_are_not() {
    let host = of(&with(&[("train: {", "npu: {host_operators: [MaxPol]}\ntrain: {")]));
    assert!(host.contains("error: no device operator is named `MaxPol`"), "{host}");
    assert!(host.contains("tiny.yaml:33:24") && host.contains("did you mean `MaxPool`?"), "{host}");
    let kept = with(&[("train: {", "npu: {keep_fp32: [MaxPool, conv1, layer1.0.cnov]}\ntrain: {")]);
    let recipe = load(&[("tiny.yaml", kept.as_bytes())], &[]).unwrap().recipe;
    let refused = zoo_recipe::build(&recipe, &recipe.resolve().unwrap(), &zoo_recipe::BuildOptions::train(2));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("tiny.yaml:33:35") && refused.contains("did you mean `layer1.0.conv`?"), "{refused}");
}

/// One slip each, by what the message begins with.
#[test]
fn slips_are_named_with_their_sources() {
    let norm = "normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}";
    let eval = format!("eval: [{norm}]");
    let train = format!("train: [{norm}]");
    let steps = |split: &str, steps: &str| format!("{split}: [{steps}, {{{norm}}}]");
    let cases: &[(&str, &str, &str, &str)] = &[
        (", of: three runs", "", "this target has no source", "add `of:`"),
        ("base_lr: 0.1", "base_lr: 1e-4", "learning rate 0.0001 with batch 32 is less than 1/32", "1706.02677"),
        (
            "cosine: {base_lr: 0.1}",
            "step: {base_lr: 0.1, every: 30 epochs}",
            "the learning rate never drops",
            "1512.03385",
        ),
        (
            "cosine: {base_lr: 0.1}",
            "multi_step: {base_lr: 0.1, milestones: [1 epoch, 60 epochs]}",
            "the training ends after 2 epochs, before the drop at 60 epochs",
            "scale its milestones",
        ),
        ("batch: 32", "batch: 2", "the statistics of batch normalisation over 2 samples", "1803.08494"),
        (
            &eval,
            &steps("eval", "{resize: {shorter: 224}}, {center_crop: {size: 256}}"),
            "a crop of 256x256 from images that can be 224x224",
            "1512.03385",
        ),
        (
            &train,
            &steps("train", "{resize_to: {size: 28}}, {random_crop: {size: 32, pad: 1}}"),
            "a crop of 32x32 from images that can be 30x30",
            "1512.03385",
        ),
        (&eval, &steps("eval", "{random_crop: {size: 32}}"), "evaluation crops at random", "1512.03385"),
        (&eval, &steps("eval", "rand_augment"), "evaluation changes images at random", "without random changes"),
        (&eval, &steps("eval", "trivial_augment"), "evaluation changes images at random", "without random changes"),
        ("batch: 32", "ema_warmup: true, batch: 32", "there is no average", "set train.ema"),
        (
            &train,
            "train: [normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25], scale: byte}]",
            "a deviation below 1 is for pixels from 0 to 1",
            "torchvision",
        ),
        (
            &eval,
            "eval: [normalize: {mean: [0.5, 0.5, 0.5], std: [64, 64, 64]}]",
            "a deviation above 2 is for pixels from 0 to 255",
            "scale: byte",
        ),
        (
            &eval,
            "eval: [normalize: {mean: [0.4, 0.5, 0.5], std: [0.25, 0.25, 0.25]}]",
            "evaluation normalises differently",
            "same mean",
        ),
    ];
    for (from, to, message, source) in cases {
        let said = of(&with(&[(from, to)]));
        assert!(said.contains(&format!("warning: {message}")) && said.contains(source), "{to}\n{said}");
        assert!(!said.contains("error:"), "{to}\n{said}");
    }
    // What is not a slip: a fine-tuning's small rate, frozen statistics, a crop that padding makes room for.
    let sound = [
        ("train: {batch: 32, epochs: 2}", "train: {batch: 32, epochs: 2, init_from: {checkpoint: a.pth}}"),
        ("base_lr: 0.1", "base_lr: 1e-4"),
    ];
    assert_eq!(of(&with(&sound)), "");
    assert_eq!(of(&with(&[(&train, &steps("train", "{random_crop: {size: 32, pad: 4}}"))])), "");
    // Values from the command line need no source.
    assert_eq!(report(&[("tiny.yaml", with(&[(", of: three runs", "")]).as_bytes())], &["target.value=0.6"]), "");
}

#[test]
fn a_part_joins_before_it_leaves() {
    let parts = |until| format!("batch: 32, parts: [{{modules: [fc], from_epoch: 1, until_epoch: {until}}}]");
    let said = of(&with(&[("batch: 32", &parts(1))]));
    assert!(said.contains("error: the part leaves before it joins in epoch 1, so it is never trained"), "{said}");
    assert_eq!(of(&with(&[("batch: 32", &parts(2))])), "");
}

#[test]
fn targets_are_values_of_their_metric() {
    let of_target = |target: &str| of(&with(&[("target: {metric: top1, value: 50%, of: three runs}", target)]));
    assert_eq!(of_target("target: {metric: cross_entropy, value: 1.88, of: three runs}"), "");
    let wrong = [
        ("metric: top1, value: 150%", "1.5 is out of the range of top1", "0 to 1"),
        ("metric: cross_entropy, value: -1", "-1 is out of the range of cross_entropy", "0 or more"),
        ("metric: top1, value: 1, also: [{metric: top5, value: 2}]", "2 is out of the range of top5", "0 to 1"),
        ("metric: hmean, value: 50%", "this metric is not available for these data", "top1, top5, cross_entropy"),
    ];
    for (target, message, hint) in wrong {
        let said = of_target(&format!("target: {{{target}, of: three runs}}"));
        assert!(said.contains(&format!("error: {message}")) && said.contains(hint), "{target}\n{said}");
    }
}

#[test]
fn a_rate_that_was_chosen_for_another_optimizer() {
    let slip = "was chosen for another optimizer";
    let adam = with_sets(&["optimizer={adam: {}}"]);
    assert!(adam.contains(&format!("learning rate 0.1 {slip}: it is 100 times the usual one for Adam")), "{adam}");
    assert!(adam.contains("tiny.yaml:32:30") && adam.contains("1412.6980"), "{adam}");
    // Both are told: the rate was meant.
    assert_eq!(with_sets(&["optimizer={adam: {}}", "schedule.cosine.base_lr=0.01"]), "");
    let adamw = with(&[("sgd: {momentum: 0.9, weight_decay: 1e-4}", "adamw: {}"), ("base_lr: 0.1", "base_lr: 1e-3")]);
    let child = |changes: &str| {
        let text = format!("name: child\nextends: tiny\n{changes}\n");
        report(&[("child.yaml", text.as_bytes()), ("tiny.yaml", adamw.as_bytes())], &[])
    };
    let sgd = child("optimizer: {sgd: {momentum: 0.9}}");
    assert!(sgd.contains(&format!("learning rate 0.001 {slip}: it is 0.008 per 256 samples")), "{sgd}");
    assert_eq!(child("schedule: {cosine: {base_lr: 5e-3}}"), "");
}

#[test]
fn a_batch_that_the_learning_rate_was_not_written_for() {
    let slip = "does not fit batch";
    let tiny = ("tiny.yaml", with(&[("batch: 32", "batch: 256")]));
    let child = |train: &str| {
        let text = format!("name: child\nextends: tiny\n{train}\n");
        report(&[("child.yaml", text.as_bytes()), (tiny.0, tiny.1.as_bytes())], &[])
    };
    let said = child("train: {batch: 2048}");
    assert!(said.contains(&format!("learning rate 0.1 {slip} 2048: 0.01 per 256 samples")), "{said}");
    assert!(said.contains("child.yaml:3:16") && said.contains("1706.02677"), "{said}");
    assert_eq!(child("train: {batch: 2048}\nschedule: {cosine: {base_lr: 0.8}}"), "");
    assert_eq!(child("train: {batch: 128}"), "", "twice the usual is not a slip");
    assert_eq!(child("train: {batch: 2048, init_from: {checkpoint: a.pth}}"), "", "less, on purpose");
    assert_eq!(report(&[(tiny.0, tiny.1.as_bytes())], &["train.batch=16"]), "", "the command line tries things");
}

#[test]
fn yaml_that_is_none() {
    let mut report = String::new();
    for text in [
        "model: {inputs: [",
        "name: tiny\n\tmodel: {}",
        "name: a\nname: b",
        "name: !tag a",
        "a: 1\n---\nb: 2",
        "? [a, b]\n: c",
        "a: &x [*x]",
        "just a text",
        "",
        "- a list",
        "%",
    ] {
        report += &format!("==== {text:?}\n{}\n\n", of(text));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn files_that_are_no_recipes() {
    let large = vec![b'#'; 10 << 20];
    let deep = "[".repeat(100_000);
    let deep_block: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let bomb: String = (1..30).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let below = format!("*a{}", level - 1);
        format!("{text}a{level}: &a{level} [{}]\n", vec![below; 9].join(", "))
    });
    let long_text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 40_000].join(","));
    let mut report = String::new();
    for (what, content) in [
        ("10 MB", large.as_slice()),
        ("binary", b"\x7fELF\x02\x01\x01\x00\x00"),
        ("not UTF-8", b"name: \xff\xfe"),
        ("UTF-16", b"\xff\xfen\x00a\x00"),
        ("100000 brackets", deep.as_bytes()),
        ("200 levels", deep_block.as_bytes()),
        ("alias bomb", bomb.as_bytes()),
        ("bomb of one long text", long_text.as_bytes()),
    ] {
        report += &format!("==== {what}\n{}\n\n", self::report(&[("tiny.yaml", content)], &[]));
    }
    insta::assert_snapshot!(report);
}

/// Whatever the work grows with has a limit.
#[test]
fn keys_paths_anchors_and_profiles_are_bounded() {
    let key = "k".repeat(201);
    assert!(of(&format!("{key}: 1")).contains("error: a key of more than 200 characters"));
    let key = "k".repeat(150);
    let nested = (0..7).fold("[1]".to_owned(), |inner, _| format!("{{{key}: {inner}}}"));
    assert!(of(&nested).contains("error: the keys on the path have more than 1000 characters"));
    let half = (0..4).fold("[1]".to_owned(), |inner, _| format!("{{{key}: {inner}}}"));
    let alias = (0..4).fold("*a".to_owned(), |inner, _| format!("{{{key}: {inner}}}"));
    let said = of(&format!("a: &a {half}\nb: {alias}"));
    assert!(said.contains("error: the keys on the path have more than 1000 characters"), "{said}");
    let deep = format!("a: &a {}{}\nb: {}*a{}", "[".repeat(40), "]".repeat(40), "[".repeat(40), "]".repeat(40));
    assert!(of(&deep).contains("error: nested deeper than 64 levels"));
    let anchors: String = (0..40).map(|n| format!("&a{n} [")).collect();
    let values = vec!["1"; 2000].join(", ");
    let said = of(&format!("a: {anchors}{values}{}", "]".repeat(40)));
    assert!(said.contains("error: anchors (`&name`) stand for more than 65536 values"), "{said}");
    let profiles: String = (0..65).map(|n| format!("  p{n}: {{train: {{epochs: 1}}}}\n")).collect();
    let said = of(&with(&[("  mini: {train: {epochs: 1}}\n", &profiles)]));
    assert!(said.contains("error: more than 64 profiles") && said.contains("(profiles.p64)"), "{said}");
    let profiles: String = (0..60).map(|n| format!("  p{n}: {{train: {{epochs: 1}}}}\n")).collect();
    let relus = "    - relu\n".repeat(3000);
    let said = of(&with(&[
        ("  mini: {train: {epochs: 1}}\n", &profiles),
        ("    - flatten\n", &format!("{relus}    - flatten\n")),
    ]));
    assert!(said.contains("error: too many values for 60 profiles"), "{said}");
}

#[test]
fn numbers_fit_the_types_that_read_them() {
    let ignore = ("{softmax_cross_entropy: {}}", "{softmax_cross_entropy: {ignore: 4294967296}}");
    let split = ("train: {batch", "npu: {all_reduce: {split: [1, 4294967296]}}\ntrain: {batch");
    let (low, high) =
        ("    - roll: {by: [-2147483649]}\n    - flatten", "    - roll: {by: [2147483648]}\n    - flatten");
    let cases = [
        (ignore, "at most 4294967295, found 4294967296", "loss.softmax_cross_entropy.ignore"),
        (split, "at most 4294967295, found 4294967296", "npu.all_reduce.split[1]"),
        (("    - flatten", low), "at least -2147483648, found -2147483649", "model.body[4].roll.by[0]"),
        (("    - flatten", high), "at most 2147483647, found 2147483648", "model.body[4].roll.by[0]"),
    ];
    for (change, message, path) in cases {
        let said = of(&with(&[change]));
        assert!(said.contains(&format!("error: must be {message}")) && said.contains(&format!("({path})")), "{said}");
    }
}

#[test]
fn hints_where_there_is_nothing_to_choose_from() {
    let flat = "inputs: {image: [3, 32, 32]}\n  classes: 10\n  body: [flatten, BODY, linear: {name: fc, out: 10}]\n";
    let model = |body: &str| {
        let (start, rest) = (SOUND.find("inputs:").unwrap(), SOUND.find("data:").unwrap());
        of(&format!("{}{}{}", &SOUND[..start], flat.replace("BODY", body), &SOUND[rest..]))
    };
    for (body, hint) in [
        ("block: {use: unit}", "`model.blocks` is empty"),
        ("again: head", "there are none above"),
        ("unembed: {table: words}", "no layer above has a name"),
    ] {
        let said = model(body);
        assert!(said.contains(&format!("hint: {hint}")), "{said}");
    }
    assert!(with_sets(&["model.outputs.mask.x=1"]).contains("hint: `model.outputs` is empty"));
    let relu = of(&with(&[("    - relu\n    - stack", "    - relu: {slope: 1}\n    - stack")]));
    assert!(relu.contains("unknown key `slope`"), "{relu}");
    let optimizers = ("{sgd: {momentum: 0.9, weight_decay: 1e-4}}", "{sgd: {momentum: 0.9}, adamw: {}}");
    let said = of(&with(&[optimizers]));
    assert!(said.contains("found `sgd`, `adamw`") && said.contains("hint: keep one of them"), "{said}");
    let said = of(&with(&[("- conv: {name: conv1, out: 16, kernel: 3, pad: 1}", "- {conv: ~, name: conv1}")]));
    assert!(said.contains("hint: are the lines below it indented?"), "{said}");
}

#[test]
fn inheritance_gone_wrong() {
    let circle: &[(&str, &[u8])] =
        &[("a.yaml", b"extends: b"), ("b.yaml", b"name: b\nextends: c.yaml"), ("c.yaml", b"extends: a")];
    insta::assert_snapshot!(report(circle, &[]));
    insta::assert_snapshot!(report(&[("a.yaml", b"extends: a")], &[]));
    let missing: &[(&str, &[u8])] = &[("child.yaml", b"name: child\nextends: tinny"), ("tiny.yaml", SOUND.as_bytes())];
    insta::assert_snapshot!(report(missing, &[]));
    let child =
        b"name: child\nextends: tiny\noptimizer: {sgd: {momentun: 0.8}}\ntrain: {batch: -1}\nset: {model.conv9.out: 3}";
    insta::assert_snapshot!(report(&[("child.yaml", child), ("tiny.yaml", SOUND.as_bytes())], &[]));
}

/// A file that is not a recipe: as many mistakes as there are keys, on one line of 200 KB. Reports stay short.
#[test]
fn more_mistakes_than_anybody_reads() {
    let keys: Vec<String> = (0..20_000).map(|key| format!("k{key}: 1")).collect();
    let line = format!("{{{}}}", keys.join(", "));
    let said = report(&[("line.yaml", line.as_bytes())], &[]);
    assert!(said.len() < 300_000, "{} bytes", said.len());
    assert!(said.contains("more than 500 mistakes; further ones are not listed"), "{}", &said[said.len() - 300..]);
}

#[test]
fn inheritance_in_too_many_steps_or_from_other_files() {
    let steps: Vec<(String, String)> =
        (0..20).map(|step| (format!("r{step}.yaml"), format!("extends: r{}\n", step + 1))).collect();
    let files: Vec<(&str, &[u8])> = steps.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    assert!(report(&files, &[]).contains("a chain of more than 16 recipes that extend each other"));
    let secret: &[(&str, &[u8])] = &[("a.yaml", b"extends: ./notes.txt"), ("notes.txt", b"not for everybody")];
    let said = report(secret, &[]);
    assert!(said.contains("there is no recipe `./notes.txt`") && !said.contains("everybody"), "{said}");
}

#[test]
fn overrides_gone_wrong() {
    insta::assert_snapshot!(with_sets(&[
        "train.bach=64",
        "model.conv2.stride=1",
        "model.body[9].kernel=5",
        "model.layer1.conv.stride=2",
        "model.relu.enabled=false",
        "model.conv1.kernel=[1,",
        "train.batch.size=3",
        "nonsense",
        "..=1",
        "model.conv1[=3",
        "train.epochs[0]=3",
    ]));
    // A key that does not exist, and a layer of that name in it.
    for (key, path) in [("foo: [foo]", "model.foo"), ("foo: [bar], bar: [foo]", "model.foo.x")] {
        let said = of(&format!(
            "{}\nset: {{{path}: 3}}\n",
            with(&[("  classes: 10", &format!("  {}\n  classes: 10", key.replace(", ", "\n  ")))])
        ));
        assert!(said.contains("error: there is no `foo` in `model`") && said.contains("unknown key `foo`"), "{said}");
    }
    insta::assert_snapshot!(with_sets(&[
        "model.conv1.kernel=0",
        "optimizer.sgd.momentum=a lot",
        "schedule.cosine.warmup.over=5"
    ]));
    insta::assert_snapshot!(with_sets(&["train.batch=32", "model.conv1.dilation=1", "train.epochs=3"]));
}

#[test]
fn unknown_names() {
    let library = Library::new([TempDir::new().unwrap().path()]);
    let message = library.load("resnet50", &LoadOptions::default()).unwrap_err().to_string();
    insta::assert_snapshot!(message);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tiny.yaml"), SOUND).unwrap();
    let library = Library::new([dir.path()]);
    let message = library.load("tyni", &LoadOptions::default()).unwrap_err().to_string();
    insta::assert_snapshot!(message);
    let options = LoadOptions { profile: Some("maxi".to_owned()), sets: Vec::new() };
    let error = library.load("tiny", &options).unwrap_err().into_iter().next().unwrap();
    insta::assert_snapshot!(format!("{} / {}", error.message, error.hint.unwrap()));
}

#[test]
fn as_json() {
    let errors =
        load(&[("tiny.yaml", with(&[("kernel: 3, pad: 1}", "kernel: 0, pad: 1}")]).as_bytes())], &[]).unwrap_err();
    let mut json = serde_json::to_value(&errors).unwrap();
    json[0]["file"] = "tiny.yaml".into();
    insta::assert_json_snapshot!(json);
}
