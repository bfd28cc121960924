//! Programs for other frameworks: what they look like. That they compute the same is proven by `zoo_golden prove`.

use std::path::{Path, PathBuf};
use zoo_recipe::emit::{self, Dialect};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn model(name: &str) -> String {
    model_in(&recipes(), name)
}

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn loaded(folder: &Path, name: &str) -> Recipe {
    let loaded = Library::new([folder]).load(name, &LoadOptions::default());
    loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe
}

fn model_in(folder: &Path, name: &str) -> String {
    let recipe = loaded(folder, name);
    let resolved = recipe.resolve().unwrap();
    emit::model(Dialect::PyTorch, &recipe, &resolved).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The program of a recipe in MindSpore, or why there is none.
fn mindspore(folder: &Path, name: &str, rules_alone: bool) -> Result<Vec<(&'static str, String)>, String> {
    let recipe = loaded(folder, name);
    let hash: fn(&[u8]) -> u64 = |_| 0;
    let origin = emit::Origin { recipe: name, profile: None, sets: &[], rules_alone, version: "0", hash };
    emit::program(Dialect::MindSpore, &recipe, &recipe.resolve().unwrap(), origin).map_err(|errors| errors.to_string())
}

/// The classes of a recipe with these blocks and this body, on images of 3 x 8 x 8.
fn program_of(blocks: &str, body: &str) -> String {
    let text = format!(
        "name: r\nmodel:\n  inputs: {{image: [3, 8, 8]}}\n  classes: 10\n  blocks: {{{blocks}}}\n  body: [{body}]\n\
         data: {{source: {{characters: {{}}}}}}\nloss: {{softmax_cross_entropy: {{}}}}\noptimizer: sgd\nschedule: \
         {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    model_in(folder.path(), "r")
}

/// Its classes alone.
fn classes_of(blocks: &str, body: &str) -> String {
    let text = program_of(blocks, body);
    text[text.find("\nclass ").unwrap()..].trim().to_owned()
}

#[test]
fn networks_read_as_an_author_would_write_them() {
    for name in ["resnet50", "densenet121", "vit_b_16", "unet_medical", "gpt2", "db_resnet", "mobilenet_v3_large"] {
        insta::assert_snapshot!(name, model(name));
    }
}

#[test]
fn all_recipes_have_a_program() {
    let mut count = 0;
    for entry in std::fs::read_dir(recipes()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let recipe = loaded(&recipes(), name);
            let resolved = recipe.resolve().unwrap();
            let train = emit::train(&recipe, &resolved).or_else(|_| emit::rules_of_step(&recipe, &resolved));
            for text in [model(name), train.unwrap_or_else(|errors| panic!("{errors}"))] {
                assert_eq!(text.lines().find(|line| line.chars().count() > 120), None, "{name}");
                assert_eq!(text.matches(['(', '[', '{']).count(), text.matches([')', ']', '}']).count(), "{name}");
            }
            count += 1;
        }
    }
    assert!(count >= 45, "{count}");
}

#[test]
fn networks_read_in_mindspore_as_an_author_would_write_them() {
    for name in ["resnet18", "gpt_shakespeare"] {
        let files = mindspore(&recipes(), name, false).unwrap();
        insta::assert_snapshot!(format!("mindspore_{name}"), files[0].1);
    }
}

/// Those whose data `train.py` cannot read have their rules.
#[test]
fn recipes_have_a_program_in_mindspore() {
    for (name, trains) in [
        ("lenet", true),
        ("alexnet", true),
        ("resnet18", true),
        ("resnet50", true),
        ("mobilenetv2", true),
        ("vgg11_bn", true),
        ("vit_b_16", true),
        ("gpt2", true),
        ("gpt_shakespeare", true),
        ("bert_base", false),
        ("db_resnet", false),
        ("unet_medical", false),
    ] {
        let files = mindspore(&recipes(), name, !trains).unwrap();
        let names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
        let training = if trains { "train.py" } else { "rules.py" };
        assert_eq!(names, ["model.py", "weights.py", training, "README.md", "recipe.yaml", "emitted.json"]);
        for (file, text) in files.iter().filter(|(file, _)| file.ends_with(".py")) {
            assert_eq!(text.lines().find(|line| line.chars().count() > 120), None, "{name}/{file}");
            assert_eq!(text.matches(['(', '[', '{']).count(), text.matches([')', ']', '}']).count(), "{name}/{file}");
            assert!(!text.contains("torch.") && !text.contains("functional."), "{name}/{file}:\n{text}");
        }
        if !trains {
            let refused = mindspore(&recipes(), name, false).unwrap_err();
            assert!(
                refused.contains("-->") && refused.contains("MindSpore yet") || refused.contains("NumPy"),
                "{refused}"
            );
        }
    }
}

/// Where MindSpore means something else by the same word, it is said.
#[test]
fn arguments_are_those_of_mindspore() {
    let text = "name: r\nmodel:\n  inputs: {image: [3, 8, 8]}\n  classes: 10\n  body:\n    - conv: {name: c, out: 4, kernel: \
                3, pad: [1, 1, 0, 0]}\n    - bn: {name: b, momentum: 0.01}\n    - max_pool: {name: p, kernel: 2}\n    - \
                dropout: {name: d, rate: 0.25}\n    - global_avg_pool\n    - flatten\n    - linear: {name: fc, out: 10}\n\
                data: {source: {characters: {}}}\nloss: {softmax_cross_entropy: {}}\noptimizer: sgd\nschedule: {constant: \
                {base_lr: 0.1}}\ntrain: {batch: 32, epochs: 1}\n";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let model = mindspore(folder.path(), "r", true).unwrap().remove(0).1;
    for line in [
        "nn.Conv2d(3, 4, kernel_size=3, pad_mode=\"pad\", padding=(1, 1, 0, 0), has_bias=True)",
        "nn.BatchNorm2d(4, momentum=0.99)",
        "nn.MaxPool2d(2, stride=2)",
        "nn.Dropout(p=0.25)",
        "nn.Dense(4, 10)",
    ] {
        assert!(model.contains(line), "{line}\n{model}");
    }
}

#[test]
fn what_mindspore_has_no_word_for_is_refused_with_its_line() {
    let text = "name: r\nmodel:\n  inputs: {image: [4, 8, 8]}\n  classes: 10\n  body:\n    - conv: {name: c, out: 4, kernel: \
                1}\n    - pixel_shuffle: {name: up, by: 2}\n    - global_avg_pool\n    - flatten\n    - linear: {name: fc, out: \
                10}\ndata: {source: {characters: {}}}\nloss: {softmax_cross_entropy: {}}\noptimizer: sgd\nschedule: {constant: \
                {base_lr: 0.1}}\ntrain: {batch: 32, epochs: 1}\n";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let error = mindspore(folder.path(), "r", true).unwrap_err();
    assert!(
        error.contains("r.yaml:7:") && error.contains("`nn.PixelShuffle` is not written in MindSpore yet"),
        "{error}"
    );
    let cell = text.replace("pixel_shuffle: {name: up, by: 2}", "relu: {name: phase}");
    std::fs::write(folder.path().join("r.yaml"), cell).unwrap();
    let error = mindspore(folder.path(), "r", true).unwrap_err();
    assert!(error.contains("r.yaml:7:") && error.contains("every module of MindSpore has an attribute"), "{error}");
}

/// The channels of the operand and what a use changes are arguments; a module that an argument switches is there in
/// each.
#[test]
fn a_block_is_a_class_with_arguments() {
    let block = "unit: {args: {width: ~, wide: false}, body: [conv: {name: conv, out: $width, kernel: 3, pad: 1}, \
                 conv: {name: more, out: $width*2, kernel: 1, enabled: $wide}, relu]}";
    let body = "block: {name: first, use: unit, args: {width: 8}}, \
                block: {name: second, use: unit, args: {width: 16, wide: true}}, \
                global_avg_pool, flatten, linear: {name: fc, out: $classes}";
    insta::assert_snapshot!(classes_of(block, body));
}

/// A value that another module needs leaves the one that makes it and enters the one that uses it.
#[test]
fn taps_cross_classes_as_arguments_and_results() {
    let body = "sequential: {name: early, body: [conv: {name: a, out: 4, kernel: 1}, tap: kept, relu, \
                conv: {name: b, out: 4, kernel: 1}]}, \
                sequential: {name: late, body: [conv: {name: c, out: 4, kernel: 1}, add: early.kept]}, \
                global_avg_pool, flatten, linear: {name: fc, out: $classes}";
    insta::assert_snapshot!(classes_of("", body));
}

/// The same module on another operand, and a formula whose terms are used several times.
#[test]
fn modules_are_called_again() {
    let body = "conv: {name: stem, out: 3, kernel: 1}, tap: first, again: stem, \
                map: \"(x + first) * sigmoid(x + first)\", global_avg_pool, flatten, linear: {name: fc, out: $classes}";
    insta::assert_snapshot!(classes_of("", body));
}

/// Comparisons and numbers of Python would be computed in 32 bits in a network of 64; expressions get brackets where
/// they stand in others.
#[test]
fn formulas_keep_types_and_order() {
    for (formulas, written) in [
        (&["x + 1", "x * 2"][..], "(self.c(x) + 1.0) * 2.0"),
        (&["(x > 0) * 0.3"], "(x > 0.0).type_as(x) * 0.3"),
        (&["(x > 0) * x"], "(x > 0.0) * x"),
        (&["(-2)^x + (x + 1)^3"], "(-2.0)**x + (x + 1.0)**3.0"),
        (&["select(x > 0, 0.1, 0.9)"], "torch.where(x > 0.0, torch.full_like(x, 0.1), 0.9)"),
        (&["max(x * x, 0.5)"], "torch.where(x > 0.5, x, 0.5)"),
        (&["x * row_index"], "x * torch.arange(x.shape[-1], device=x.device).type_as(x)"),
        (&["log(row_size) * x"], "torch.log(torch.full_like(x, x.shape[-1])) * x"),
        (&["x - (x - 2 - row_sum(x))"], "x - (x - 2.0 - torch.sum(x, dim=-1, keepdim=True))"),
    ] {
        let maps: Vec<String> = formulas.iter().map(|formula| format!("map: \"{formula}\"")).collect();
        let maps = maps.join(", ");
        let body = format!(
            "conv: {{name: c, out: 4, kernel: 1}}, {maps}, global_avg_pool, flatten, linear: {{name: fc, out: 10}}"
        );
        let text = classes_of("", &body);
        assert!(text.contains(written), "{written}:\n{text}");
    }
}

/// Blocks that differ in a number behind their names and in the names of their arguments are one class all the same.
#[test]
fn blocks_of_one_form_are_one_class() {
    let blocks = "unit1: {args: {width: ~}, body: [conv: {name: conv, out: $width, kernel: 1}]}, \
                  unit2: {args: {size: ~}, body: [conv: {name: conv, out: $size, kernel: 1}]}";
    let body = "block: {name: a, use: unit1, args: {width: 8}}, block: {name: b, use: unit2, args: {size: 16}}, \
                global_avg_pool, flatten, linear: {name: fc, out: $classes}";
    let text = classes_of(blocks, body);
    assert_eq!(text.matches("class Unit").count(), 1, "{text}");
}

/// A block, a tap or an argument may be called like a function of the program, or like a word of Python.
#[test]
fn names_do_not_hide_others() {
    let blocks = "apply: {args: {in: ~}, body: [conv: {name: lambda, out: $in, kernel: 1}]}";
    let body = "sequential: {name: turns, body: [permute: {order: [1, 2, 0]}, permute: {order: [2, 0, 1]}]}, \
                tap: apply, block: {name: own, use: apply, args: {in: 3}}, tap: functional, add: apply, \
                from: functional, sigmoid, add: functional, global_avg_pool, flatten, linear: {name: fc, out: 10}";
    let text = classes_of(blocks, body);
    assert!(text.contains("class Apply(nn.Module):") && text.contains("class Apply2(nn."), "{text}");
    assert!(!text.contains(" functional = ") && text.contains("add_module(\"lambda\""), "{text}");
}

#[test]
fn modules_cannot_hide_attributes_of_modules() {
    let text = "name: r\nmodel:\n  inputs: {image: [3, 8, 8]}\n  classes: 10\n  body: [conv: {name: type, out: 4, kernel: \
                1}, global_avg_pool, flatten, linear: {name: fc, out: 10}]\ndata: {source: {characters: {}}}\nloss: \
                {softmax_cross_entropy: {}}\noptimizer: sgd\nschedule: {constant: {base_lr: 0.1}}\ntrain: {batch: 32, \
                epochs: 1}\n";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let recipe = Library::new([folder.path()]).load("r", &LoadOptions::default()).unwrap().recipe;
    let error = emit::model(Dialect::PyTorch, &recipe, &recipe.resolve().unwrap()).unwrap_err().to_string();
    assert!(error.contains("r.yaml:5:") && error.contains("choose another name"), "{error}");
}

/// Names that the helpers of layers use are imported or defined.
#[test]
fn helpers_know_their_names() {
    let body = "conv: {name: a, out: 4, kernel: 3, standardised: 1e-5, gain: 1.5}, conv: {name: b, out: 4, kernel: 1, \
                weight_norm: hooked}, prelu: {name: c}, tokens, tap: x, linear: {name: gate, out: 3, bias: false}, \
                tap: scores, from: x, experts: {name: moe, scores: scores, top: 2, hidden: 2, activation: gelu_tanh}, \
                linear: {name: qkv, out: 12}, dot_product_attention: {heads: 2, alibi: 8}, rms_norm: {name: n, \
                width: 2}, linear: {name: fc, out: 10}, take: {index: 0}";
    let text = program_of("", body);
    let unknown = "import ast, builtins, sys\n\
                   tree = ast.parse(sys.argv[1])\n\
                   known = set(dir(builtins))\n\
                   for node in ast.walk(tree):\n\
                   \x20   if isinstance(node, (ast.Import, ast.ImportFrom)): known |= {a.asname or a.name for a in node.names}\n\
                   \x20   elif isinstance(node, (ast.FunctionDef, ast.ClassDef)): known.add(node.name)\n\
                   \x20   elif isinstance(node, ast.arg): known.add(node.arg)\n\
                   \x20   elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store): known.add(node.id)\n\
                   names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known\n\
                   sys.exit(str(sorted(names)) if names else 0)";
    let run = std::process::Command::new("python3").args(["-c", unknown, &text]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// Operands get the axes that they lack, and what does not have all elements of a formula is counted as if it had.
#[test]
fn terms_of_the_loss_are_functions() {
    let text = "name: r\nmodel:\n  inputs: {image: [3, 8, 8]}\n  classes: 5\n  outputs: {a: a, b: b}\n  body: [tap: start, \
                conv: {name: one, out: 5, kernel: 1}, tap: a, from: start, conv: {name: two, out: 1, kernel: 1}, tap: b]\n\
                data: {source: {characters: {}}}\nloss:\n  formulas:\n    \
                distance: {formula: \"abs(a - gt) * mask\"}\n    \
                even-ness: {formula: \"row_log_sum_exp(a)\", reduction: batch_mean}\n    \
                own: {formula: \"-row_sum(select(row_index == label, log_softmax(a), 0))\", reduction: sum, weight: 0.5}\n    \
                part: {formula: \"b * b + 0 * a\", reduction: batch_mean}\n    \
                squares: {formula: \"select(low > 0.5, b, 0) * b\", reduction: sum}\n\
                optimizer: sgd\nschedule: {constant: {base_lr: 0.1}}\ntrain: {batch: 32, epochs: 1}\n";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let recipe = loaded(folder.path(), "r");
    let rules = emit::rules_of_step(&recipe, &recipe.resolve().unwrap()).unwrap_or_else(|errors| panic!("{errors}"));
    let (start, end) = (rules.find("def distance_term").unwrap(), rules.find("def optimizer").unwrap());
    insta::assert_snapshot!(rules[start..end].trim());
}

#[test]
fn what_pytorch_cannot_say_is_refused_with_its_line() {
    let text = "name: r\nmodel:\n  inputs: {image: [3, 8, 8]}\n  classes: 10\n  body:\n    - conv_transpose: {name: up, \
                out: 4, kernel: 3, pad: [1, 0, 1, 0]}\n    - global_avg_pool\n    - flatten\n    - linear: {name: fc, out: 10}\n\
                data: {source: {characters: {}}}\nloss: {softmax_cross_entropy: {}}\noptimizer: sgd\nschedule: {constant: \
                {base_lr: 0.1}}\ntrain: {batch: 32, epochs: 1}\n";
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let recipe = Library::new([folder.path()]).load("r", &LoadOptions::default()).unwrap().recipe;
    let error = emit::model(Dialect::PyTorch, &recipe, &recipe.resolve().unwrap()).unwrap_err().to_string();
    assert!(error.contains("r.yaml:6:") && error.contains("removes before at most a step more than behind"), "{error}");
}
