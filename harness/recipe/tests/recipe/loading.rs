//! Inheritance, profiles and overrides: what changes, what stays, and the reported positions.

use std::fs;

use tempfile::TempDir;
use zoo_recipe::layers::{Conv, Stack};
use zoo_recipe::schema::{LossScale, Optimizer, Padding, Pair, Period, Schedule, Size, Source};
use zoo_recipe::{Layer, Library, LoadOptions, Loaded, Recipe, ResolvedLayer};

const PARENT: &str = "\
name: parent
model:
  inputs: {image: [3, 32, 32]}
  classes: 10
  blocks:
    unit:
      args: {width: 8}
      body:
        - residual:
            main:
              - conv: {name: conv, out: $width, kernel: 3, pad: 1}
        - relu
  body:
    - conv: {name: conv1, out: 8, kernel: 3, pad: 1}
    - sequential:
        name: features
        body: [relu, conv: {out: 8, kernel: 1}, relu]
    - stack: {name: layer1, block: unit, repeat: 2}
    - global_avg_pool
    - flatten
    - linear: {name: fc, out: $classes}
data: {source: {characters: {}}}
loss: {softmax_cross_entropy: {label_smoothing: 0.1}, l2: {weight: 1/8192}}
optimizer: {sgd: {momentum: 0.9, nesterov: true}}
schedule: {cosine: {base_lr: 0.1, warmup: {over: 5 epochs}}}
train: {batch: 32, epochs: 90}
target: {metric: top1, value: 76.9%, of: the paper}
profiles:
  mini:
    train: {epochs: 2}
    schedule: {cosine: {warmup: ~}}
    set: {model.features.2.enabled: false}
";

fn load(files: &[(&str, &str)], profile: Option<&str>, sets: &[&str]) -> Loaded {
    let dir = TempDir::new().unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let options =
        LoadOptions { profile: profile.map(str::to_owned), sets: sets.iter().map(|set| set.to_string()).collect() };
    let name = files[0].0.trim_end_matches(".yaml");
    Library::new([dir.path()]).load(name, &options).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn parent(sets: &[&str]) -> Recipe {
    load(&[("parent.yaml", PARENT)], None, sets).recipe
}

fn child(text: &str, profile: Option<&str>) -> Recipe {
    let text = format!("name: child\nextends: parent\n{text}");
    load(&[("child.yaml", &text), ("parent.yaml", PARENT)], profile, &[]).recipe
}

fn body(recipe: &Recipe) -> Vec<ResolvedLayer> {
    recipe.resolve().unwrap_or_else(|diagnostics| panic!("{diagnostics}")).body
}

fn conv(layer: &ResolvedLayer) -> &Conv {
    if let Layer::Conv(conv) = &layer.kind { conv } else { panic!("{layer:?} is not a convolution") }
}

/// The convolution of the block `unit` in its first use.
fn unit(recipe: &Recipe) -> Conv {
    let body = body(recipe);
    let unit = &stack(&body).uses.layers[0].kind.describe().inside()[0][0].kind.describe().inside()[0][0];
    conv(unit).clone()
}

fn stack(body: &[ResolvedLayer]) -> &Stack {
    let Layer::Stack(stack) = &body[2].kind else { panic!() };
    stack
}

/// The convolution, and how many layers there are, in the module `features`.
fn features(recipe: &Recipe) -> (Conv, usize) {
    let body = body(recipe);
    let Layer::Sequential(features) = &body[1].kind else { panic!() };
    (conv(&features.body.layers[1]).clone(), features.body.layers.len())
}

#[test]
fn fractions_percentages_and_short_forms() {
    let recipe = parent(&[]);
    assert!(matches!(body(&recipe)[3].kind, Layer::GlobalAvgPool(_)));
    assert_eq!(recipe.loss.l2.unwrap().weight, 1.0 / 8192.0);
    assert_eq!(recipe.target.unwrap().value, 0.769);
    let set = parent(&["loss.l2.weight=1/32768", "train.batch=1e2", "loss.softmax_cross_entropy.label_smoothing=5%"]);
    assert_eq!((set.loss.l2.unwrap().weight, set.train.batch), (1.0 / 32768.0, 100));
    assert_eq!(set.loss.softmax_cross_entropy.unwrap().label_smoothing, 0.05);
}

#[test]
fn children_change_what_they_name() {
    let recipe = child("train: {batch: 64}\nloss: {l2: ~}\noptimizer: {sgd: {nesterov: false}}", None);
    assert_eq!((recipe.train.batch, recipe.train.epochs), (64, 90));
    assert_eq!(recipe.loss.l2, None);
    assert!(recipe.loss.softmax_cross_entropy.is_some());
    let Optimizer::Sgd(sgd) = &recipe.optimizer else { panic!() };
    assert_eq!((sgd.momentum, sgd.nesterov), (0.9, false));
}

#[test]
fn another_choice_replaces_the_inherited_one() {
    let recipe = child("optimizer: {adam: {beta1: 0.8}}\nschedule: {step: {base_lr: 0.1, every: 30 epochs}}", None);
    let Optimizer::Adam(adam) = &recipe.optimizer else { panic!() };
    assert_eq!((adam.beta1, adam.beta2), (0.8, 0.999));
    assert!(matches!(recipe.schedule, Schedule::Step(_)));
    assert!(matches!(child("optimizer: adam", None).optimizer, Optimizer::Adam(_)));
}

#[test]
fn lists_replace() {
    let recipe = child("model: {body: [flatten, linear: {name: fc, out: 10}]}", None);
    assert_eq!(body(&recipe).len(), 2);
}

#[test]
fn places_are_those_of_the_file_that_wrote_them() {
    let recipe = child("train: {batch: 64}", None);
    assert!(recipe.span("train.batch").file.ends_with("child.yaml"));
    assert_eq!((recipe.span("train.batch").line, recipe.span("train.batch").column), (3, 16));
    assert!(recipe.span("train.epochs").file.ends_with("parent.yaml"));
    // A default is where its section is.
    assert_eq!(recipe.span("train.seed"), recipe.span("train"));
    let recipe = parent(&["train.epochs=3", "model.conv1.stride=2"]);
    assert_eq!(recipe.span("model.body[0].conv.stride").to_string(), "--set:2:20");
    assert!(recipe.span("model.body[0].conv.stride").is_override());
}

#[test]
fn profiles() {
    let files = [("parent.yaml", PARENT)];
    let mini = load(&files, Some("mini"), &[]);
    assert_eq!(mini.profiles, ["mini"]);
    assert_eq!((mini.recipe.train.epochs, mini.recipe.train.batch), (2, 32));
    assert!(mini.recipe.schedule.warmup().is_none());
    assert_eq!((features(&mini.recipe).1, features(&parent(&[])).1), (2, 3));
    // Overrides of the command line come after the profile.
    assert_eq!(load(&files, Some("mini"), &["train.epochs=7"]).recipe.train.epochs, 7);
}

#[test]
fn profiles_are_inherited() {
    let recipe = child("train: {batch: 64, epochs: 30}", Some("mini"));
    assert_eq!((recipe.train.batch, recipe.train.epochs), (64, 2));
    let own = "profiles:\n  mini: {train: {batch: 8}, set: {}}\n  long: {train: {epochs: 300}}";
    let recipe = child(own, Some("mini"));
    assert_eq!((recipe.train.batch, recipe.train.epochs), (8, 2));
    assert_eq!(features(&recipe).1, 3);
    assert_eq!(child(own, Some("long")).train.epochs, 300);
    // `~` in a child's profile takes away what the recipe itself has.
    let recipe = child("profiles: {mini: {loss: {l2: ~}, target: ~}}", Some("mini"));
    assert_eq!((recipe.loss.l2, recipe.target), (None, None));
    // `~` in place of a profile takes it away.
    let without = "name: child\nextends: parent\nprofiles: {mini: ~, own: ~}";
    assert_eq!(load(&[("child.yaml", without), ("parent.yaml", PARENT)], None, &[]).profiles, ["own"]);
}

#[test]
fn set_changes_the_file_it_is_in() {
    let recipe = child("set: {model.conv1.stride: 2, model.layer1.repeat: 5}", None);
    assert!(recipe.span("model.body[0].conv.stride").file.ends_with("child.yaml"));
    assert_eq!(stack(&body(&recipe)).repeat.0, 5);
}

#[test]
fn layers_are_addressed_by_name_index_and_full_path() {
    for path in ["model.conv1.kernel", "model.body[0].kernel", "model.body[0].conv.kernel", "model.body.conv1.kernel"] {
        let recipe = parent(&[&format!("{path}=[5, 7]")]);
        assert_eq!(conv(&body(&recipe)[0]).kernel, Pair([5, 7]), "{path}");
    }
    let recipe = parent(&["model.features.1.out=16", "model.blocks.unit.conv.pad=[0, 1, 2, 3]"]);
    assert_eq!((features(&recipe).0.out, unit(&recipe).pad), (Size(16), Padding([0, 1, 2, 3])));
}

#[test]
fn overrides_make_what_was_not_written() {
    let recipe = parent(&[
        "npu.loss_scale.dynamic.init=1024",
        "schedule.warmup.over=10 steps",
        "optimizer.momentum=0.8",
        "model.layer1.args.width=8",
        "model.conv1.init.weight.normal.std=0.01",
        "data.source.train=4000",
        "data.on_error=skip",
    ]);
    assert!(
        matches!(&recipe.npu.loss_scale, LossScale::Dynamic(scale) if scale.init == 1024.0 && scale.window == 2000)
    );
    assert_eq!(recipe.schedule.warmup().unwrap().over, Period::Steps(10));
    assert!(matches!(&recipe.optimizer, Optimizer::Sgd(sgd) if sgd.momentum == 0.8 && sgd.nesterov));
    assert!(matches!(&recipe.data.source, Source::Characters(characters) if characters.train == 4000));
    assert!(conv(&body(&recipe)[0]).init.weight.is_some());
}

#[test]
fn overrides_remove_and_replace() {
    let recipe = parent(&["loss.l2=~", "target=~", "optimizer.adam.eps=1e-6", "schedule={constant: {base_lr: 0.01}}"]);
    assert_eq!((recipe.loss.l2, recipe.target), (None, None));
    assert!(matches!(&recipe.optimizer, Optimizer::Adam(adam) if adam.eps == 1e-6));
    assert!(matches!(&recipe.schedule, Schedule::Constant(constant) if constant.base_lr == 0.01));
}

#[test]
fn overrides_are_listed_and_those_without_effect_are_named() {
    let loaded = load(&[("parent.yaml", PARENT)], None, &["train.batch=32", "optimizer.momentum=0.8", "train.seed=0"]);
    let paths: Vec<_> = loaded.overridden.iter().map(|path| path.as_str()).collect();
    assert_eq!(paths, ["train.batch", "optimizer.sgd.momentum", "train.seed"]);
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str().to_owned()).collect();
    assert_eq!(warned, ["train.batch", "train.seed"]);
}

#[test]
fn recipes_are_found_beside_the_file_that_extends_them_and_by_path() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("own")).unwrap();
    fs::write(dir.path().join("parent.yaml"), PARENT).unwrap();
    fs::write(dir.path().join("own/child.yaml"), "name: child\nextends: ../parent.yaml\n").unwrap();
    fs::write(dir.path().join("own/grandchild.yaml"), "name: grandchild\nextends: child\n").unwrap();
    let path = dir.path().join("own/grandchild.yaml");
    let library = Library::new([dir.path()]);
    let loaded = library.load(path.to_str().unwrap(), &LoadOptions::default()).unwrap();
    assert_eq!((loaded.recipe.name.as_str(), loaded.recipe.train.batch), ("grandchild", 32));
    assert_eq!(library.list().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["parent"]);
}

#[test]
fn aliases_stand_for_what_they_name() {
    let text = PARENT.replace("batch: 32, epochs: 90", "batch: &n 32, epochs: *n");
    let recipe = load(&[("parent.yaml", &text)], None, &[]).recipe;
    assert_eq!((recipe.train.batch, recipe.train.epochs), (32, 32));
}

#[test]
fn the_class_count_can_be_changed_after_loading() {
    let mut recipe = parent(&[]);
    recipe.model.classes = 1000;
    assert!(matches!(&body(&recipe).last().unwrap().kind, Layer::Linear(linear) if linear.out == Size(1000)));
}
