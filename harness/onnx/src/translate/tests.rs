use super::*;
use std::collections::BTreeMap;
use zoo_recipe::BuildOptions;
use zoo_recipe::{Library, LoadOptions};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recipes");

/// The graph for a batch size that no other dimension has.
fn graph(recipe: &str, sets: &[&str]) -> Graph {
    graph_for(distinct_batch(&graph_for(1, recipe, sets)), recipe, sets)
}

fn graph_for(samples: usize, recipe: &str, sets: &[&str]) -> Graph {
    let options = LoadOptions { profile: None, sets: sets.iter().map(ToString::to_string).collect() };
    let recipe = Library::new([FIXTURES]).load(recipe, &options).unwrap_or_else(|error| panic!("{error}")).recipe;
    zoo_recipe::build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::eval(samples)).unwrap()
}

/// The model with weights of 0.5, decoded from its file.
fn model(graph: &Graph) -> Model {
    let half = |name: &str| {
        let id = graph.find_variable(name)?;
        Some(vec![0.5; graph.ty(graph.variable(id).value).shape.numel()])
    };
    let about = About { name: "net".into(), ..About::default() };
    let exported = export(graph, batch(graph), &about, half).unwrap_or_else(|error| panic!("{error}"));
    Model::decode(exported.bytes.as_slice()).unwrap()
}

fn ints(node: &NodeMessage, name: &str) -> Vec<i64> {
    node.attribute.iter().find(|attribute| attribute.name == name).unwrap_or_else(|| panic!("no {name}")).ints.clone()
}

fn node<'a>(graph: &'a GraphMessage, name: &str) -> &'a NodeMessage {
    graph.node.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no node {name}"))
}

#[test]
fn a_chain_of_operators_becomes_a_chain_of_nodes() {
    let model = model(&graph("operators", &[]));
    assert_eq!((model.ir_version, model.opset_import[0].version), (8, 18));
    let graph = model.graph.unwrap();
    let operators: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
    assert_eq!(
        operators,
        [
            "Pad",
            "Conv",
            "BatchNormalization",
            "Relu",
            "LRN",
            "MaxPool",
            "Conv",
            "Clip",
            "Add",
            "AveragePool",
            "Conv",
            "Conv",
            "Concat",
            "Sigmoid",
            "Mul",
            "Resize",
            "ConvTranspose",
            "Reshape",
            "Add",
            "Slice",
            "MatMul",
            "MatMul",
            "Reshape",
            "Gemm",
            "Relu",
            "Gemm"
        ]
    );
    // Each operand is an input, an initializer or an earlier result; names of results are unique.
    let mut known: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    known.extend(graph.input.iter().map(|input| input.name.as_str()));
    for node in &graph.node {
        assert!(node.input.iter().all(|name| name.is_empty() || known.contains(name.as_str())), "{node:?}");
        assert!(node.output.iter().all(|name| known.insert(name)), "{node:?}");
    }
    let names: HashSet<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), graph.node.len(), "runtimes want names of their own");
    let weights: BTreeMap<&str, &Tensor> = graph.initializer.iter().map(|t| (t.name.as_str(), t)).collect();
    assert_eq!(weights["conv.weight"].dims, [16, 3, 3, 3]);
    assert_eq!(weights["conv.weight"].raw_data[..4], 0.5_f32.to_le_bytes());
    assert_eq!(node(&graph, "bn").input[1..], ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]);
    assert_eq!(graph.output[0].name, "logits");
}

#[test]
fn any_batch_may_come_unless_an_operator_mixes_it() {
    let first = |model: &Model| {
        let input = model.graph.as_ref().unwrap().input[0].kind.clone().unwrap().tensor.unwrap().shape.unwrap();
        input.dim[0].clone()
    };
    assert_eq!(first(&model(&graph("operators", &[]))).param.as_deref(), Some("batch"));
    // A correlation of each sample with its own kernel is a convolution with a group per sample and channel.
    let track = model(&graph_for(1, "tiny_track", &[]));
    assert_eq!(first(&track).value, Some(1));
    let track = track.graph.unwrap();
    let correlated = track.node.iter().find(|node| node.name.ends_with("/correlated")).unwrap();
    let group = correlated.attribute.iter().find(|attribute| attribute.name == "group").unwrap();
    let kernels = track.initializer.iter().find(|tensor| tensor.name.ends_with("/kernels_shape")).unwrap();
    let channels = i64::from_le_bytes(kernels.raw_data[..8].try_into().unwrap());
    assert_eq!(group.i, Some(channels));
    // Inputs and outputs share their names.
    let outputs: Vec<&str> = track.output.iter().map(|output| output.name.as_str()).collect();
    assert!(outputs.contains(&"cls") && !outputs.contains(&"template"), "{outputs:?}");
}

/// The axis of a layer leaves the batch out.
#[test]
fn sums_along_an_axis_have_it_as_a_number() {
    let body =
        "model.body=[{cumsum: {name: sums, axis: 1, reverse: true}}, flatten, {linear: {name: fc, out: $classes}}]";
    let graph = graph("tiny", &[body]);
    assert_eq!(batch(&graph), Batch::Any);
    let model = model(&graph).graph.unwrap();
    let sums = node(&model, "sums");
    assert_eq!((sums.op_type.as_str(), &sums.input[..]), ("CumSum", &["image".to_owned(), "sums/axis".to_owned()][..]));
    assert_eq!(sums.attribute[0], Attribute::int("reverse", 1));
    let axis = model.initializer.iter().find(|tensor| tensor.name == "sums/axis").unwrap();
    assert_eq!((axis.dims.len(), &axis.raw_data[..]), (0, &2_i64.to_le_bytes()[..]));
}

/// A parameter is the same for all samples. Runtimes concatenate it with samples only if it is expanded to their
/// number.
#[test]
fn a_token_of_a_parameter_is_repeated_for_each_sample() {
    let body = "model.body=[{conv: {name: conv, out: 8, kernel: 4, stride: 4}}, tokens, {prepend: {name: cls}}, \
                {take: {index: 0}}, {linear: {name: fc, out: $classes}}]";
    let graph = graph("tiny", &[body]);
    assert_eq!(batch(&graph), Batch::Any);
    let model = model(&graph).graph.unwrap();
    let expand = node(&model, "cls/first");
    assert_eq!((expand.op_type.as_str(), expand.input[0].as_str()), ("Expand", "cls"));
    let extents = node(&model, "cls/first/extents");
    assert_eq!(extents.input[0], node(&model, "cls/first/batch").output[0]);
    assert_eq!(node(&model, "cls/first/batch").input, ["image"]);
}

/// Nothing of a parameter or constant is a sample, even if its first extent is 1.
#[test]
fn a_single_channel_or_head_is_not_a_sample() {
    let smoothed = "model.body=[{conv: {name: conv, out: 1, kernel: 3}}, {blur_pool: {}}, global_avg_pool, flatten, \
                    {linear: {name: fc, out: $classes}}]";
    let cosine = "model.body=[{conv: {name: conv, out: 8, kernel: 4, stride: 4}}, tokens, \
                  {linear: {name: qkv, out: 24}}, {logit_scale: {name: scale, heads: 1, tap: cosine}}, \
                  {dot_product_attention: {heads: 1, cosine: cosine}}, {take: {index: 0}}, \
                  {linear: {name: fc, out: $classes}}]";
    for body in [smoothed, cosine] {
        let graph = graph("tiny", &[body]);
        assert_eq!(batch(&graph), Batch::Any);
        let model = model(&graph).graph.unwrap();
        let batch = model.input[0].kind.clone().unwrap().tensor.unwrap().shape.unwrap().dim[0].clone();
        assert_eq!(batch.param.as_deref(), Some("batch"));
        // Nothing is expanded to the number of samples.
        assert!(model.node.iter().all(|node| node.op_type != "Shape"), "{body}");
        // No shape contains the batch size that the graph was built for.
        let samples = graph.ty(graph.inputs[0].value).shape[0] as i64;
        let shapes = model.initializer.iter().filter(|tensor| tensor.name.ends_with("/shape"));
        let numbers = |tensor: &Tensor| -> Vec<i64> {
            tensor.raw_data.chunks_exact(8).map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
        };
        assert!(shapes.into_iter().all(|tensor| !numbers(tensor).contains(&samples)));
        // One sample is no distinct batch.
        assert_eq!(super::batch(&graph_for(1, "tiny", &[body])), Batch::Fixed);
    }
}

#[test]
fn partial_windows_are_padded_by_hand() {
    // 18 rows, windows of 3 every 2, the last one partial: ceil((18 - 3) / 2) + 1 = 9 windows reach 2*8 + 3 = 19 rows.
    let sets = ["model.max_pool.kernel=3", "model.max_pool.stride=2", "model.max_pool.ceil_mode=true"];
    let ceil = model(&graph("operators", &sets));
    let graph = ceil.graph.unwrap();
    let pool = node(&graph, "max_pool");
    assert_eq!(ints(pool, "pads"), [0, 0, 1, 1]);
    assert_eq!(ints(pool, "strides"), [2, 2]);
}

#[test]
fn a_transposed_convolution_is_one() {
    let model = model(&graph("operators", &[])).graph.unwrap();
    let deconv = model.node.iter().find(|node| node.op_type == "ConvTranspose").unwrap();
    assert_eq!((ints(deconv, "kernel_shape"), ints(deconv, "strides")), (vec![2, 2], vec![2, 2]));
    assert_eq!((ints(deconv, "pads"), ints(deconv, "output_padding")), (vec![0; 4], vec![0, 0]));
    assert_eq!(deconv.input[1], "deconv.weight");
}

#[test]
fn what_onnx_has_not_is_refused_by_name_with_its_line() {
    let sets = ["model.body[9]={patches: {name: windows, kernel: 3}}"];
    let graph = graph("operators", &sets);
    let refused = export(&graph, Batch::Fixed, &About::default(), |_| None);
    assert!(matches!(refused, Err(OnnxError::Variable(name)) if name == "conv.weight"));
    let zeros = |name: &str| {
        let id = graph.find_variable(name)?;
        Some(vec![0.0; graph.ty(graph.variable(id).value).shape.numel()])
    };
    let Err(OnnxError::Operator { node, operator, origin, .. }) =
        export(&graph, Batch::Fixed, &About::default(), zeros)
    else {
        panic!("windows as a batch are no operator of ONNX")
    };
    assert_eq!((node.as_str(), operator), ("windows", "ExtractImagePatches"));
    assert_eq!(origin.unwrap().path, "model.body[9]");
    // ONNX's window of an even size begins at another channel.
    let even = self::graph("operators", &["model.lrn.size=4"]);
    let zeros = |name: &str| Some(vec![0.0; even.ty(even.variable(even.find_variable(name)?).value).shape.numel()]);
    match export(&even, Batch::Fixed, &About::default(), zeros) {
        Err(OnnxError::Operator { node, reason, .. }) => {
            assert_eq!(node, "lrn");
            assert!(reason.contains("an even number of channels (4)"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
