//! `ls` and `show`.

use crate::workbench::{command, said, zoo};

#[test]
fn all_recipes_are_listed() {
    let list = zoo("ls").expect(0);
    assert!(list.err.is_empty());
    insta::assert_snapshot!("ls", list.out);
    let json = zoo("ls --format json").expect(0).json();
    let names: Vec<_> = json["recipes"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(["alexnet", "db_resnet", "resnet50", "siammask"].iter().all(|name| names.contains(name)), "{names:?}");
    for row in json["recipes"].as_array().unwrap() {
        // Some networks are there for their cost: the parts of db_resnet18 are proven in db_resnet and resnet18, the
        // others are larger versions of proven networks.
        let is_proven = ["db_resnet18", "bert_large", "vit_l_16", "swin_b"].iter().all(|name| row["name"] != *name);
        assert!(row["error"].is_null() && row["golden"].is_string() == is_proven, "{row}");
    }
}

#[test]
fn a_folder_of_recipes_comes_first() {
    let list = zoo("ls --recipes tests/fixtures/recipes --format json").expect(0).json();
    let tiny = list["recipes"].as_array().unwrap().iter().find(|row| row["name"] == "tiny").unwrap();
    assert_eq!(tiny["path"], "tests/fixtures/recipes/tiny.yaml");
    assert!(tiny["golden"].is_null());
}

#[test]
fn a_broken_recipe_is_listed_as_that() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("broken.yaml"), "name: broken\nmodel: 3\n").unwrap();
    let list = said(command().args(["ls", "--format", "json", "--recipes"]).arg(dir.path())).expect(0).json();
    let broken = list["recipes"].as_array().unwrap().iter().find(|row| row["name"] == "broken").unwrap();
    assert!(broken["error"].as_str().unwrap().starts_with("error: "), "{broken}");
}

#[test]
fn recipes_are_found_from_below_and_from_anywhere() {
    let below =
        said(command().current_dir(crate::workbench::root().join("golden")).args(["show", "alexnet"])).expect(0);
    assert!(below.out.contains("parameters"));
    let (elsewhere, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut installed = command();
    installed.current_dir(elsewhere.path()).env("XDG_CACHE_HOME", cache.path());
    let anywhere = said(installed.args(["show", "alexnet"])).expect(0);
    assert_eq!(anywhere.out, below.out);
    // The golden is there too.
    let mut installed = command();
    installed.current_dir(elsewhere.path()).env("XDG_CACHE_HOME", cache.path());
    let check = said(installed.args(["check", "alexnet-torchvision", "--format", "json"])).expect(0);
    assert_eq!(check.json()["verdict"], "pass");
    // A folder of one's own can build on what is built in.
    std::fs::create_dir(elsewhere.path().join("recipes")).unwrap();
    let mine = "name: mine\nextends: resnet18\ntrain: {batch: 7}\n";
    std::fs::write(elsewhere.path().join("recipes/mine.yaml"), mine).unwrap();
    let mut installed = command();
    installed.current_dir(elsewhere.path()).env("XDG_CACHE_HOME", cache.path());
    let shown = said(installed.args(["show", "mine"])).expect(0);
    assert!(shown.out.contains("11.690 M parameters"), "{}", shown.out);
}

#[test]
fn layers_have_shapes_parameters_and_macs() {
    insta::assert_snapshot!("show-alexnet", zoo("show alexnet").expect(0).out);
    let resnet = zoo("show resnet50").expect(0).out;
    // torchvision's documentation: 25 557 032 parameters, 4.09 GMAC.
    assert!(resnet.ends_with("25.557 M parameters, 4.09 GMAC at batch 1\n"), "{resnet}");
    let json = zoo("show resnet50 --format json").expect(0).json();
    assert_eq!(json["parameters"], 25_557_032);
    assert_eq!(json["macs"], 4_089_184_256u64);
    let rows = json["layers"].as_array().unwrap();
    assert_eq!(rows[0]["output"], serde_json::json!([1, 64, 112, 112]));
    assert_eq!(rows[0]["parameters"], 64 * 3 * 49);
}

#[test]
fn sizes_of_the_other_networks_are_torchvision_s() {
    for (recipe, parameters) in [
        ("resnet18", 11_689_512u64),
        ("vgg16", 138_357_544),
        ("alexnet-torchvision", 61_100_840),
        ("resnet34", 21_797_672),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("resnext50_32x4d", 25_028_904),
        ("wide_resnet50_2", 68_883_240),
        ("vgg11_bn", 132_868_840),
        ("googlenet", 6_624_904),
        ("inception_v3", 23_834_568),
        ("squeezenet1_0", 1_248_424),
        ("squeezenet1_1", 1_235_496),
        ("densenet121", 7_978_856),
        ("mobilenetv2", 3_504_872),
        ("mobilenet_v3_large", 5_483_032),
        ("efficientnet_b0", 5_288_548),
        ("convnext_tiny", 28_589_128),
        ("se_resnet50", 28_088_024),
        ("vit_b_16", 86_567_656),
        ("vit_l_16", 304_326_632),
        ("swin_t", 28_288_354),
        ("swin_b", 87_768_224),
        ("gpt2", 124_439_808),
        ("gpt_shakespeare", 804_096),
        ("llama", 260_032),
        ("unet_medical", 31_029_698),
        ("bert_base", 110_106_428),
        ("deeplabv3_resnet50", 39_638_869),
        ("retinanet_resnet50_fpn", 34_068_119),
        ("resnet20", 269_722),
        ("resnet8_tiny", 78_186),
        ("airbench94", 1_972_792),
        ("lenet", 61_684),
    ] {
        assert_eq!(zoo(&format!("show {recipe} --format json")).expect(0).json()["parameters"], parameters, "{recipe}");
    }
}

#[test]
fn the_graph_has_all_phases_and_costs() {
    let json = zoo("show resnet18 --graph --batch 2 --format json").expect(0).json();
    let nodes = json["nodes"].as_array().unwrap();
    for phase in ["forward", "loss", "backward", "update"] {
        assert!(nodes.iter().any(|node| node["phase"] == phase), "{phase}");
    }
    let conv = nodes.iter().find(|node| node["name"] == "conv1").unwrap();
    assert_eq!(conv["op"], "Conv2D");
    // Two images, 64 x 112 x 112 outputs, each 3 x 7 x 7 multiply-accumulates of two operations.
    assert_eq!(conv["flop"], 2 * 64 * 112 * 112 * 147 * 2);
    assert!(conv["line"].as_str().unwrap().starts_with("recipes/resnet18.yaml:"));
    let mut wide = crate::workbench::command();
    wide.env("COLUMNS", "400").args(["show", "resnet18", "--graph", "--batch", "2"]);
    let text = crate::workbench::said(&mut wide).expect(0).out;
    assert_eq!(text.lines().filter(|line| line.starts_with("  ")).count(), nodes.len());
}

#[test]
fn passes_shrink_the_graph_one_by_one() {
    let graph = |rest: &str| zoo(&format!("show resnet18 --graph {rest} --format json")).expect(0).json();
    let plain = graph("");
    let all = graph("--passes");
    let passes = all["passes"].as_array().unwrap();
    assert!(passes.iter().any(|pass| pass["patches"].as_array().unwrap().len() > 10), "{passes:?}");
    let first = graph("--passes --passes-until 1");
    assert_eq!(first["passes"].as_array().unwrap().len(), 1);
    assert!(first["nodes"].as_array().unwrap().len() < plain["nodes"].as_array().unwrap().len());
}

#[test]
fn learning_rates_are_shown() {
    insta::assert_snapshot!("schedule", zoo("show resnet50 --schedule --profile mini").expect(0).out);
    let json = zoo("show resnet50 --schedule --steps-per-epoch 5004 --format json").expect(0).json();
    let lr = json["lr"].as_array().unwrap();
    assert_eq!(lr.len(), 90 * 5004);
    // golden/resnet50/schedule.json
    let close = |step: usize, truth: f64| (lr[step].as_f64().unwrap() / truth - 1.0).abs() < 1e-12;
    assert!(close(0, 1.0231814548361311e-05) && close(5005, 0.05122046362909673));
    let unknown = zoo("show resnet50 --schedule").expect(2);
    assert!(unknown.err.contains("--steps-per-epoch"), "{}", unknown.err);
}

#[test]
fn the_resolved_recipe_is_a_recipe() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("resolved.yaml");
    std::fs::write(&file, zoo("show alexnet-torchvision --profile mini --resolved").expect(0).out).unwrap();
    let shown = said(command().arg("show").arg(&file)).expect(0);
    assert_eq!(shown.out, zoo("show alexnet-torchvision --profile mini").expect(0).out);
    let json = zoo("show alexnet-torchvision --profile mini --resolved --format json").expect(0).json();
    assert_eq!(json["recipe"]["name"], "alexnet-torchvision");
    // JSON is YAML, too.
    std::fs::write(&file, json["recipe"].to_string()).unwrap();
    assert_eq!(said(command().arg("show").arg(&file)).expect(0).out, shown.out);
}

#[test]
fn an_unknown_name_gets_a_proposal() {
    let recipe = zoo("show resnet5O").expect(2);
    assert!(recipe.err.contains("did you mean `resnet50`?"), "{}", recipe.err);
    let profile = zoo("show resnet50 --profile minni").expect(2);
    assert!(profile.err.contains("did you mean `mini`?"), "{}", profile.err);
    let path = zoo("show resnet50 --set optimizer.sgd.momentun=0.9").expect(2);
    assert!(path.err.contains("did you mean `momentum`?"), "{}", path.err);
    let json = zoo("show resnet5O --format json").expect(2).json();
    assert_eq!(json["errors"][0]["file"], "resnet5O");
}

#[test]
fn an_override_without_effect_is_mentioned() {
    let shown = zoo("show resnet50 --set optimizer.sgd.momentum=0.875").expect(0);
    assert!(shown.err.starts_with("warning: "), "{}", shown.err);
}

#[test]
fn architectures_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (svg, dot) = (path("net.svg"), path("net.dot"));
    let said = zoo(&format!("show resnet50 --svg {svg} --dot {dot}")).expect(0);
    assert_eq!(said.out, format!("{svg}\n{dot}\n"));
    let svg = std::fs::read_to_string(svg).unwrap();
    for text in
        ["<title id=\"title\">resnet50</title>", "25.56 M parameters", "layer3.1 to layer3.5, 5 times", "64×112×112"]
    {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains("href") && !svg.contains("url(http"), "needs nothing else");
    let dot = std::fs::read_to_string(dot).unwrap();
    assert!(
        dot.starts_with("digraph \"resnet50\" {") && dot.contains("label=\"layer3.1 to layer3.5, 5 times\";"),
        "{dot}"
    );
    let tiny = path("tiny.svg");
    zoo(&format!("show tiny --recipes tests/fixtures/recipes --svg {tiny}")).expect(0);
    insta::assert_snapshot!("picture", std::fs::read_to_string(tiny).unwrap());
    zoo("show resnet50 --svg README.md/x.svg").expect(2);
    let piped = zoo("show tiny --recipes tests/fixtures/recipes --svg -").expect(0);
    assert!(piped.out.starts_with("<svg") && piped.out.trim_end().ends_with("</svg>"), "{}", piped.out);
    zoo("show resnet50 --svg x.svg --graph").expect(2);
}

#[test]
fn differences_say_where_they_come_from() {
    insta::assert_snapshot!("difference", zoo("show --diff resnet50 resnet101").expect(0).out);
    let json = zoo("show --diff resnet50 --set train.batch=512 --format json").expect(0).json();
    let [only] = json["differences"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!((&only["path"], &only["a"]["value"]), (&"train.batch".into(), &256.into()));
    assert_eq!((&only["b"]["value"], &only["b"]["from"]), (&512.into(), &"--set:1".into()));
    let same = zoo("show --diff resnet50 resnet50").expect(0).out;
    assert_eq!(same, "resnet50 against resnet50: the same\n");
    zoo("show --diff resnet50").expect(2);
    zoo("show --diff resnet50 no_such_net").expect(2);
    zoo("show resnet50 resnet101").expect(2);
}

#[test]
fn long_lines_fit_a_narrow_terminal() {
    let failing = ["check", "lenet", "--dtype", "f64", "--set", "optimizer.sgd.momentum=0.8"];
    // The stages of a check have eight columns.
    for (arguments, width, exit) in
        [(&["show", "--diff", "resnet50", "resnet101"][..], 60, 0), (&["advise", "alexnet"], 60, 0), (&failing, 80, 1)]
    {
        let narrow = said(command().args(arguments).env("COLUMNS", width.to_string())).expect(exit);
        let long: Vec<&str> = narrow.out.lines().filter(|line| line.chars().count() > width).collect();
        assert!(long.is_empty(), "{arguments:?}: {long:?}");
    }
}
