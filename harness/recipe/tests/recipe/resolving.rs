//! From layers as written to layers with everything decided.

use std::fs;

use tempfile::TempDir;
use zoo_recipe::layers::{Conv, Description};
use zoo_recipe::schema::{Init, Kaiming, Padding, Pair, Size, UniformInit};
use zoo_recipe::{Diagnostics, Layer, Library, LoadOptions, ResolvedLayer, ResolvedModel};

/// The model of a recipe whose `model` section is `model`, indented by two.
fn resolve(model: &str) -> Result<ResolvedModel, Diagnostics> {
    let rest = "data: {source: {characters: {}}}\nloss: {softmax_cross_entropy: {}}\noptimizer: sgd\n\
                schedule: {constant: {base_lr: 0.1}}\ntrain: {batch: 32, epochs: 1}\n";
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("r.yaml"), format!("name: r\nmodel:\n{model}\n{rest}")).unwrap();
    Library::new([dir.path()]).load("r", &LoadOptions::default()).map(|loaded| loaded.recipe.resolve().unwrap())
}

fn body(body: &str) -> Vec<ResolvedLayer> {
    resolve(&format!("  inputs: {{image: [3, 8, 8]}}\n  classes: 10\n{body}")).unwrap_or_else(|d| panic!("{d}")).body
}

fn errors(model: &str) -> Vec<(String, String)> {
    let model = format!("  inputs: {{image: [3, 8, 8]}}\n  classes: 10\n{model}");
    let errors = resolve(&model).unwrap_err();
    errors.iter().map(|error| (error.path.to_string(), error.message.clone())).collect()
}

/// Names of modules in the tree, containers before their content.
fn names(layers: &[ResolvedLayer]) -> Vec<String> {
    let mut out = Vec::new();
    for layer in layers {
        out.push(layer.name.clone().unwrap_or_else(|| "-".to_owned()));
        layer.kind.describe().inside().into_iter().for_each(|list| out.extend(names(list)));
    }
    out
}

#[test]
fn sizes_and_defaults() {
    let layers = body(
        "  init: {conv: {weight: {uniform: {bound: 0.5}}}}
  body:
    - conv: {name: a, out: 4, kernel: [3, 5], stride: [2, 1], pad: [1, 2], groups: 1, bias: false}
    - conv: {name: b, out: 4, kernel: 1, pad: [1, 2, 3, 4], init: {weight: kaiming_uniform}}
    - max_pool: {kernel: [3, 2]}
    - bn: {name: n, init: {gamma: 0}}",
    );
    let a = conv(&layers[0]);
    assert_eq!((a.kernel, a.stride, a.dilation), (Pair([3, 5]), Pair([2, 1]), Pair([1, 1])));
    assert_eq!(
        (a.pad, a.bias, a.init.weight()),
        (Padding([1, 1, 2, 2]), false, Init::Uniform(UniformInit { bound: 0.5 }))
    );
    let b = conv(&layers[1]);
    assert_eq!((b.pad, b.init.weight()), (Padding([1, 2, 3, 4]), Init::KaimingUniform(Kaiming::default())));
    assert!(b.bias && matches!(b.init.bias(), Init::TorchDefault(_)));
    let Layer::MaxPool(pool) = &layers[2].kind else { panic!() };
    assert_eq!((pool.kernel, pool.stride), (Pair([3, 2]), None));
    let Layer::Bn(bn) = &layers[3].kind else { panic!() };
    assert_eq!((bn.eps, bn.momentum, bn.init.gamma, bn.init.beta), (1e-5, 0.1, Some(0.0), None));
}

fn conv(layer: &ResolvedLayer) -> &Conv {
    let Layer::Conv(conv) = &layer.kind else { panic!("{layer:?} is not a convolution") };
    conv
}

/// timm's BatchNormAct2d: a module with the parameters of a normalisation, and an activation in it.
#[test]
fn a_layer_may_have_the_parameters_of_the_module_around_it() {
    let layers = body(
        "  blocks: {norm: {body: [bn: {name: .}, relu: {name: act}]}}
  body:
    - conv: {name: conv, out: 4, kernel: 1}
    - block: {name: bn1, use: norm}
    - residual: {name: res, main: [conv: {name: conv, out: 4, kernel: 1}, bn: {name: .}]}
    - flatten
    - linear: {name: fc, out: $classes}",
    );
    assert_eq!(names(&layers), ["conv", "bn1", "bn1", "bn1.act", "res", "res.conv", "res", "-", "fc"]);
    let own = errors("  body: [bn: {name: .}, flatten, linear: {name: fc, out: 10}]");
    assert!(own[0].1.contains("the enclosing module") && own[0].0 == "model.body[0].bn.name", "{own:?}");
    let twice = errors(
        "  body:\n    - sequential: {name: s, body: [bn: {name: .}, bn: {name: .}]}\n    - flatten\n    - linear: \
         {name: fc, out: 10}",
    );
    assert_eq!(
        twice,
        [("model.body[0].sequential.body[1].bn.name".into(), "`s` already has a layer with the name `.`".into())]
    );
}

/// A layer's own initialiser counts before that of its block, that before those of the blocks around it, and
/// `model.init` comes last; weight and bias apart.
#[test]
fn blocks_say_how_their_parameters_start() {
    let layers = body(
        "  init: {conv: {weight: {constant: 1}, bias: {constant: 1}}, bn: {gamma: 1, beta: 1}}
  blocks:
    inner:
      init: {conv: {weight: {constant: 3}}}
      body: [conv: {name: c, out: 1, kernel: 1}, conv: {name: d, out: 1, kernel: 1, init: {weight: {constant: 4}}}, bn: {name: n}]
    outer:
      init: {conv: {weight: {constant: 2}}, bn: {gamma: 2}}
      body: [conv: {name: c, out: 1, kernel: 1}, block: {name: i, use: inner}, stack: {name: s, block: inner, repeat: 1}]
  body: [conv: {name: c, out: 1, kernel: 1}, block: {name: o, use: outer}, conv: {name: d, out: 1, kernel: 1}]",
    );
    fn starts(layers: &[ResolvedLayer]) -> Vec<String> {
        let start = |layer: &ResolvedLayer| {
            let value = |init: Init| if let Init::Constant(value) = init { value } else { panic!("{init:?}") };
            let name = layer.name.as_deref().unwrap_or_default();
            match &layer.kind {
                Layer::Conv(conv) => vec![format!("{name} {} {}", value(conv.init.weight()), value(conv.init.bias()))],
                Layer::Bn(bn) => vec![format!("{name} {} {}", bn.init.gamma.unwrap(), bn.init.beta.unwrap())],
                other => other.describe().inside().into_iter().flat_map(starts).collect(),
            }
        };
        layers.iter().flat_map(start).collect()
    }
    let expected = [
        "c 1 1",
        "o.c 2 1",
        "o.i.c 3 1",
        "o.i.d 4 1",
        "o.i.n 2 1",
        "o.s.0.c 3 1",
        "o.s.0.d 4 1",
        "o.s.0.n 2 1",
        "d 1 1",
    ];
    assert_eq!(starts(&layers), expected);
}

#[test]
fn names_follow_state_dict() {
    let layers = body(
        "  blocks:
    inner: {body: [conv: {name: c, out: 3, kernel: 1}, relu]}
    outer:
      args: {n: ~}
      body: [stack: {name: s, block: inner, repeat: $n}, block: {name: b, use: inner}]
  body:
    - sequential: {name: features, body: [conv: {out: 3, kernel: 1}, relu: {enabled: false}, bn, sequential: {body: [relu]}]}
    - stack: {name: layer, block: outer, repeat: 2, args: {n: 1}, first: {n: 2}}
    - concat: {branches: [[conv: {name: d, out: 3, kernel: 1}], [], [block: {use: inner}]]}
    - residual: {name: r, main: [conv: {name: c, out: 9, kernel: 1}]}",
    );
    let expected = "features features.0 features.2 features.3 features.3.0 \
        layer layer.0 layer.0.s layer.0.s.0 layer.0.s.0.c - layer.0.s.1 layer.0.s.1.c - layer.0.b layer.0.b.c - \
        layer.1 layer.1.s layer.1.s.0 layer.1.s.0.c - layer.1.b layer.1.b.c - \
        - d - c - r r.c";
    assert_eq!(names(&layers), expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn uses_of_a_stack_take_arguments_in_turn_and_count() {
    let layers = body(
        "  blocks:
    unit: {args: {out: 3, kernel: ~, pad: 9}, body: [conv: {name: c, out: $out, kernel: $kernel, pad: $pad}]}
  body:
    - stack: {name: s, block: unit, repeat: 3, args: {pad: 4}, turns: [{kernel: 1}, {kernel: 3}], count: {out: 5}, first: {out: 2}}",
    );
    let Layer::Stack(stack) = &layers[0].kind else { panic!() };
    let convs = stack.uses.layers.iter().map(|used| conv(&used.kind.describe().inside()[0][0]).clone());
    let found: Vec<_> = convs.map(|conv| (conv.out.0, conv.kernel.0, conv.pad.0)).collect();
    assert_eq!(found, [(2, [1, 1], [4; 4]), (6, [3, 3], [4; 4]), (7, [1, 1], [4; 4])]);
}

#[test]
fn expressions_are_computed_from_left_to_right() {
    let layers = body(
        "  blocks:
    unit: {args: {w: ~, g: 4}, body: [conv: {name: c, out: 2*$w/$g*3, kernel: $g, groups: $g}]}
  body: [block: {name: u, use: unit, args: {w: $classes*8}}]",
    );
    let Layer::UseBlock(unit) = &layers[0].kind else { panic!() };
    let conv = conv(&unit.body.layers[0]);
    assert_eq!((conv.out, conv.kernel, conv.groups), (Size(2 * 80 / 4 * 3), Pair([4, 4]), Size(4)));
}

/// Sizes, counts, fractions and switches, also where the block is switched off.
#[test]
fn every_number_and_switch_may_be_an_expression() {
    let layers = body(
        "  blocks:
    unit:
      args: {e: 0.001, c: true, on: true}
      body:
        - bn: {name: n, eps: $e*2, momentum: $e}
        - max_pool: {kernel: [2, 3], ceil_mode: $c}
        - relu: {enabled: $on}
        - sequential: {name: off, enabled: $on, body: [dropout: {rate: $e}, crop: {margin: 1, narrower_than: $classes}]}
  body: [block: {name: a, use: unit}, block: {name: b, use: unit, args: {on: false}}]",
    );
    let [on, off] = [0, 1].map(|index: usize| layers[index].kind.describe().inside()[0]);
    assert_eq!((on.len(), off.len()), (4, 2));
    let (Layer::Bn(bn), Layer::MaxPool(pool)) = (&on[0].kind, &on[1].kind) else { panic!() };
    assert_eq!((bn.eps, bn.momentum, pool.ceil_mode), (0.002, 0.001, true));
    let Layer::Crop(crop) = &on[3].kind.describe().inside()[0][1].kind else { panic!() };
    assert_eq!(crop.narrower_than, Some(Size(10)));
    let found = errors(
        "  blocks:
    unit: {args: {p: 0.5}, body: [bn: {name: n, eps: $p*4}, dropout: {rate: $p*2}, max_pool: {kernel: 2, ceil_mode: $p}]}
  body: [block: {name: a, use: unit}]",
    );
    let found: Vec<_> = found.iter().map(|(path, message)| format!("{path}: {message}")).collect();
    let expected = [
        "model.blocks.unit.body[0].bn.eps: `$p*4` is 2 (p = 0.5), expected a number from 0 to 1",
        "model.blocks.unit.body[1].dropout.rate: `$p*2` is 1 (p = 0.5), expected a number of at least 0 and below 1",
        "model.blocks.unit.body[2].max_pool.ceil_mode: `$p` is 0.5 (p = 0.5), expected `true` or `false`",
    ];
    assert_eq!(found, expected);
}

#[test]
fn taps_are_found_in_the_module_and_around_it() {
    let layers = body(
        "  blocks:
    head: {body: [tap: start, relu, tap: end, from: start, from: stem, from: image]}
  body:
    - tap: stem
    - stack: {name: h, block: head, repeat: 2}",
    );
    fn taps(layers: &[ResolvedLayer]) -> Vec<String> {
        let mut out = Vec::new();
        for layer in layers {
            match layer.kind.describe() {
                Description::Tap(name) => out.push(format!("+{name}")),
                Description::From(name) => out.push(name.to_owned()),
                other => other.inside().into_iter().for_each(|list| out.extend(taps(list))),
            }
        }
        out
    }
    let expected = "+stem +h.0.start +h.0.end h.0.start stem image +h.1.start +h.1.end h.1.start stem image";
    assert_eq!(taps(&layers), expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn a_block_reads_taps_under_names_of_its_own() {
    let blocks =
        "  blocks:\n    inner: {body: [mul: skip]}\n    up: {body: [add: skip, block: {name: inner, use: inner}]}\n";
    let layers = body(&format!(
        "{blocks}  body:
    - tap: first
    - relu
    - tap: second
    - block: {{name: up1, use: up, inputs: {{skip: second}}}}
    - block: {{name: up2, use: up, inputs: {{skip: first}}}}
    - block: {{use: up, inputs: {{skip: image}}}}"
    ));
    let read = |layer: &ResolvedLayer| {
        let Description::Row([add, inner]) = layer.kind.describe() else { panic!() };
        let Description::Row([mul]) = inner.kind.describe() else { panic!() };
        match (&add.kind, &mul.kind) {
            (Layer::Add(add), Layer::Mul(mul)) => [add.0.clone(), mul.0.clone()],
            other => panic!("{other:?}"),
        }
    };
    let found: Vec<_> = [3, 4, 5].map(|place| read(&layers[place])).to_vec();
    assert_eq!(found, [["second", "second"], ["first", "first"], ["image", "image"]]);

    let wrong = |uses: &str| errors(&format!("{blocks}  body:\n    - tap: first\n{uses}"));
    let reads = wrong("    - block: {name: up, use: up, inputs: {skip: first, other: first}}");
    assert_eq!(
        reads,
        [("model.body[1].block.inputs".to_owned(), "no layer of the block `up` reads `other`".to_owned())]
    );
    let unknown = wrong("    - block: {name: up, use: up, inputs: {skip: frist}}");
    let path = "model.body[1].block.inputs.skip";
    assert_eq!(unknown, [(path.to_owned(), "there is no tap or input `frist` before this layer".to_owned())]);
    // A mistake in one of several leaves nothing behind.
    let both = wrong("    - block: {use: up, inputs: {skip: first, other: frist}}\n    - add: skip");
    let messages: Vec<&str> = both.iter().map(|(_, message)| message.as_str()).collect();
    let unknown =
        ["there is no tap or input `frist` before this layer", "there is no tap or input `skip` before this layer"];
    assert_eq!(messages, unknown);
    // After the block, the name is nobody's.
    let after = wrong("    - block: {use: up, inputs: {skip: first}}\n    - add: skip");
    assert_eq!(after[0].1, "there is no tap or input `skip` before this layer");
    let taken = wrong("    - tap: skip\n    - block: {use: up, inputs: {skip: first}}");
    assert_eq!(taken[0].1, "a tap or input `skip` already exists");
}

#[test]
fn inputs_are_used() {
    let model =
        |body: &str| format!("  inputs: {{template: [3, 8, 8], search: [3, 16, 16]}}\n  classes: 10\n  body: {body}");
    assert!(resolve(&model("[relu, tap: t, from: search, relu]")).is_ok());
    let messages: Vec<_> = resolve(&model("[relu]")).unwrap_err().into_iter().map(|error| error.message).collect();
    assert_eq!(messages, ["nothing uses the input `search`"]);
}

#[test]
fn blocks_cannot_contain_themselves() {
    let found = errors(
        "  blocks:
    a: {body: [block: {name: x, use: b}]}
    b: {body: [stack: {name: y, block: a, repeat: 2}]}
  body: [block: {name: z, use: a}]",
    );
    let expected = ("model.blocks.b.body[0].stack.block", "blocks use each other in a cycle: a -> b -> a");
    assert_eq!(found, [(expected.0.to_owned(), expected.1.to_owned())]);
}

#[test]
fn repetition_of_repetition_is_bounded() {
    let found = errors(
        "  blocks:
    a: {body: [relu, relu]}
    b: {body: [stack: {name: s, block: a, repeat: 1024}]}
    c: {body: [stack: {name: s, block: b, repeat: 1024}]}
    d: {body: [stack: {name: s, block: c, repeat: 1024}]}
  body: [stack: {name: s, block: d, repeat: 1024}]",
    );
    assert_eq!(found.len(), 1);
    assert!(found[0].1.starts_with("more than 20000 layers"), "{found:?}");
}

/// Each module calls the one before twice: a file of a few lines with 2^60 layers.
#[test]
fn calls_of_calls_are_counted_before_they_are_made() {
    let chain = |calls: &str| {
        let module = |n: usize| {
            format!("\n    - sequential: {{name: m{n}, body: [{}]}}", calls.replace('$', &format!("m{}", n - 1)))
        };
        let modules: String = (1..60).map(module).collect();
        errors(&format!("  body:\n    - sequential: {{name: m0, body: [bn: {{name: n}}]}}{modules}"))
    };
    let found = chain("again: $, again: $");
    assert!(found[0].1.starts_with("more than 20000 layers"), "{found:?}");
    let found = chain("again: $");
    assert!(found[0].1.starts_with("layers nested deeper than 64 levels"), "{found:?}");
}

/// Blocks that use each other without a cycle, and containers in them.
fn nested_blocks(count: usize) -> String {
    let open = "sequential: {body: [".repeat(12);
    let close = "]}".repeat(12);
    let block = |n: usize| format!("    b{n}: {{body: [block: {{use: b{}}}]}}\n", n + 1);
    let blocks: String = (0..count).map(block).collect();
    format!("  blocks:\n{blocks}    b{count}: {{body: [{open}relu{close}]}}\n  body: [block: {{use: b0}}]")
}

#[test]
fn nesting_of_blocks_is_bounded() {
    let found = errors(&nested_blocks(3000));
    assert_eq!(found.len(), 1);
    assert!(found[0].1.starts_with("layers nested deeper than 64 levels"), "{found:?}");
    assert_eq!(body(&nested_blocks(50)).len(), 1);
    // Named blocks can be called again, each with all that is in it.
    let block = |n: usize| format!("    b{n}: {{body: [block: {{name: n, use: b{}}}]}}\n", n + 1);
    let blocks: String = (0..30).map(block).collect();
    let inner = "relu, ".repeat(10_000);
    let found =
        errors(&format!("  blocks:\n{blocks}    b30: {{body: [{inner}]}}\n  body: [block: {{name: n, use: b0}}]"));
    assert!(found[0].1.starts_with("more than 160000 layers in modules inside each other"), "{found:?}");
}

#[test]
fn names_are_bounded() {
    let long = "x".repeat(150);
    let found =
        errors(&format!("  body: [sequential: {{name: {long}, body: [conv: {{name: {long}, out: 3, kernel: 1}}]}}]"));
    let expected = "a name of more than 200 characters, with those of enclosing modules";
    assert_eq!(found, [("model.body[0].sequential.body[0].conv.name".to_owned(), expected.to_owned())]);
    let found = errors(&format!("  body: [from: {long}{long}]"));
    assert_eq!(found, [("model.body[0].from".to_owned(), expected.to_owned())]);
    let found = errors(&format!("  body: [tap: {long}{long}]"));
    assert_eq!(found, [("model.body[0].tap".to_owned(), expected.to_owned())]);
}

#[test]
fn names_that_collide() {
    for body in [
        "[conv: {name: a, out: 1, kernel: 1}, relu: {name: a}]",
        "[relu: {name: a}, bn: {name: a}]",
        "[sequential: {name: a, body: [relu]}, sequential: {name: a, body: [relu]}]",
        "[sequential: {name: a, body: [bn]}, block: {use: u}]",
    ] {
        let blocks = "  blocks: {u: {body: [sequential: {name: a, body: [relu]}]}}\n";
        let found = errors(&format!("{blocks}  body: {body}"));
        assert_eq!(found[0].1, "two modules are called `a`", "{found:?}");
    }
}

#[test]
fn what_no_layer_can_be() {
    let found = errors(
        "  blocks: {u: {args: {classes: 3, n: 1}, body: [relu]}}
  body: [max_pool: {kernel: 2, pad: 2}, relu: {name: a.b}, tap: image, stack: {name: s, block: u, repeat: $classes*1000}]",
    );
    let found: Vec<_> = found.iter().map(|(path, message)| format!("{path}: {message}")).collect();
    let expected = [
        "model.blocks.u.args.classes: `classes` always means the number of classes of the model",
        "model.blocks.u.args.n: no layer of `u` uses the argument `n`",
        "model.body[0].max_pool.pad: a pool of 2x2 cannot be padded by [2, 2, 2, 2]: some windows would contain only padding",
        "model.body[1].relu.name: `a.b` is not a module name",
        "model.body[2].tap: a tap or input `image` already exists",
        "model.body[3].stack.repeat: `$classes*1000` is 10000 (classes = 10), expected a whole number from 1 to 1024",
    ];
    assert_eq!(found, expected);
}
