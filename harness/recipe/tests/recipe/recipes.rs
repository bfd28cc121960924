//! The recipes of the repository: they load, with every profile, and list the modules and parameters of their goldens.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_recipe::{Layer, Library, LoadOptions, Loaded, ResolvedLayer, ResolvedModel};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn library() -> Library {
    Library::new([root().join("recipes")])
}

fn load(name: &str, profile: Option<&str>, sets: &[&str]) -> Loaded {
    let sets = sets.iter().map(|set| set.to_string()).collect();
    let options = LoadOptions { profile: profile.map(str::to_owned), sets };
    library().load(name, &options).unwrap_or_else(|diagnostics| panic!("{name} {profile:?}:\n{diagnostics}"))
}

fn golden(name: &str) -> Value {
    let path = root().join("golden").join(name).join("step.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Modules in the order in which they return, with the number of the call, as forward hooks of PyTorch see them.
fn modules(model: &ResolvedModel) -> Vec<String> {
    fn walk(layers: &[ResolvedLayer], calls: &mut HashMap<String, usize>, out: &mut Vec<String>) {
        for layer in layers {
            layer.kind.describe().inside().into_iter().for_each(|list| walk(list, calls, out));
            // The goldens of alexnet leave dropout out; here it has no name.
            if let Some(name) = &layer.name {
                let call = calls.entry(name.clone()).or_default();
                out.push(format!("out/{name}#{call}"));
                *call += 1;
            }
        }
    }
    let mut out = Vec::new();
    walk(&model.body, &mut HashMap::new(), &mut out);
    out.push("out/@root#0".to_owned());
    out
}

fn for_each_layer(layers: &[ResolvedLayer], visit: &mut dyn FnMut(&ResolvedLayer)) {
    for layer in layers {
        visit(layer);
        layer.kind.describe().inside().into_iter().for_each(|list| for_each_layer(list, visit));
    }
}

/// Names of parameters and buffers with the first extent of each.
fn tensors(model: &ResolvedModel) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    for_each_layer(&model.body, &mut |layer| {
        let name = layer.name.clone().unwrap_or_default();
        let extent = match &layer.kind {
            Layer::Conv(conv) => Some((conv.out.0, conv.bias)),
            Layer::Linear(linear) => Some((linear.out.0, linear.bias)),
            _ => None,
        };
        if let Some((extent, bias)) = extent {
            out.push((format!("{name}.weight"), extent));
            out.extend(bias.then(|| (format!("{name}.bias"), extent)));
        }
        if let Layer::Bn(_) = layer.kind {
            let buffers = ["weight", "bias", "running_mean", "running_var"];
            out.extend(buffers.map(|buffer| (format!("{name}.{buffer}"), 0)));
        }
    });
    out
}

const RECIPES: [&str; 5] = ["alexnet", "alexnet-torchvision", "resnet18", "resnet50", "vgg16"];

#[test]
fn recipes_and_their_profiles_are_sound() {
    let mut names: Vec<String> = library().list().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| RECIPES.contains(&name.as_str()));
    assert_eq!(names, RECIPES);
    for name in RECIPES {
        let diagnostics = library().validate(name);
        assert!(diagnostics.is_empty(), "{diagnostics}");
        assert_eq!(load(name, None, &[]).recipe.name, name);
    }
}

#[test]
fn modules_come_in_the_order_of_the_goldens() {
    for name in RECIPES {
        let model = load(name, None, &[]).recipe.resolve().unwrap();
        let expected: Vec<String> = golden(name)["output_order"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| key.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(modules(&model), expected, "{name}");
    }
}

#[test]
fn parameters_are_those_of_the_goldens() {
    for name in RECIPES {
        let golden = golden(name);
        let shapes = golden["shapes"].as_object().unwrap();
        let own = tensors(&load(name, None, &[]).recipe.resolve().unwrap());
        for (parameter, extent) in &own {
            let shape = shapes.get(parameter).unwrap_or_else(|| panic!("{name}: surplus {parameter}"));
            assert!(*extent == 0 || shape[0] == *extent, "{name}: {parameter} is {shape} there, {extent} here");
        }
        let counted = shapes.keys().filter(|key| !key.ends_with("num_batches_tracked")).count();
        assert_eq!(own.len(), counted, "{name}");
    }
}

#[test]
fn schedules_are_those_of_the_goldens() {
    for name in RECIPES {
        let path = root().join("golden").join(name).join("schedule.json");
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let count = |key: &str| golden[key].as_u64().unwrap() as usize;
        let recipe = load(name, None, &[]).recipe;
        assert_eq!((recipe.train.batch, recipe.train.epochs), (count("batch"), count("epochs")), "{name}");
        for (step, rate) in golden["lr"].as_object().unwrap() {
            let own = recipe.schedule.lr(step.parse().unwrap(), (count("steps_per_epoch"), count("epochs")));
            let rate = rate.as_f64().unwrap();
            assert!((own - rate).abs() <= 1e-12, "{name} at {step}: {own} instead of {rate}");
        }
    }
}

#[test]
fn resolved_recipes_load_again_as_equals() {
    let dir = tempfile::tempdir().unwrap();
    for name in RECIPES {
        for profile in [None, Some("mini"), Some("full")] {
            let recipe = load(name, profile, &[]).recipe;
            let path = dir.path().join("resolved.yaml");
            std::fs::write(&path, recipe.to_yaml().unwrap()).unwrap();
            let again = library().load(path.to_str().unwrap(), &LoadOptions::default());
            assert_eq!(again.unwrap_or_else(|d| panic!("{d}")).recipe, recipe, "{name} {profile:?}");
        }
    }
}

#[test]
fn layers_know_their_lines() {
    let recipe = load("resnet50", None, &[]).recipe;
    let text = std::fs::read_to_string(root().join("recipes/resnet50.yaml")).unwrap();
    for_each_layer(&recipe.resolve().unwrap().body, &mut |layer| {
        assert_eq!(recipe.span_of(&layer.path), layer.span);
        let line = text.lines().nth(layer.span.line - 1).unwrap();
        let tag = line.trim_start_matches([' ', '-']);
        assert_eq!(line.len() - tag.len() + 1, layer.span.column, "{} is at {}", layer.path, layer.span);
        if let Layer::Conv(_) = layer.kind {
            assert!(tag.starts_with("conv:"), "{} is at {}", layer.path, layer.span);
        }
    });
}

#[test]
fn depth_and_switches_come_from_arguments() {
    let count = |loaded: Loaded| {
        tensors(&loaded.recipe.resolve().unwrap()).iter().filter(|(n, _)| n.ends_with("weight")).count()
    };
    assert_eq!(count(load("resnet50", None, &[])), 107);
    // ResNet-101 has 17 more blocks of three convolutions and normalisations.
    assert_eq!(count(load("resnet50", None, &["model.layer3.repeat=23"])), 107 + 17 * 6);
    assert_eq!(load("alexnet-torchvision", None, &[]).recipe.model.init.conv.weight, None);
    let mini = load("alexnet", Some("mini"), &[]).recipe.resolve().unwrap();
    let names: Vec<_> = mini.body.iter().filter_map(|layer| layer.name.clone()).collect();
    assert!(!names.iter().any(|name| name == "pool5" || name == "fc_relu3"));
}
