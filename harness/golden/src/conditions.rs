//! Settings in which recipe and golden disagree, except those that the golden may choose.
//!
//! A golden may choose the batch, shapes, number of classes, learning rates, weights, inputs and dropout. Everything
//! else must be as in the recipe, unless its section `golden:` declares the difference or `--set` changes the
//! setting. In these cases the other stages must detect the effect.

use crate::manifest::Manifest;
use serde::Serialize;
use zoo_graph::{Graph, Node, Op, Optimized};
use zoo_recipe::{
    ConfigPath, Recipe,
    schema::{Clip, L2Over, SmoothingOver},
};

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Path in the recipe.
    pub path: String,
    /// Value in the recipe.
    pub recipe: String,
    /// Value in the golden.
    pub golden: String,
    /// `file:line:column` of the recipe.
    pub line: String,
    /// Why the difference does not count, if the recipe declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
}

/// The eps of the normalisation that gives its statistics to this `BNRunningUpdate`.
pub(crate) fn eps(graph: &Graph, running: &Node) -> Option<f64> {
    let mean = running.inputs.get(2)?;
    graph.nodes.iter().find_map(|node| match &node.op {
        Op::BnTrainingUpdate(op) if node.inputs.get(1) == Some(mean) => Some(op.eps),
        _ => None,
    })
}

/// Number of conditions that are compared.
pub const COMPARED: usize = 14;

/// Text of a setting in a difference. Numbers have one form, whether written as integers or not.
fn text(value: &serde_json::Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string())
}

/// Text of clipping in a difference.
fn clipping(clips: &[Clip]) -> String {
    let text = |clip: &Clip| match clip {
        Clip::Norm(bound) => format!("norm {bound}"),
        Clip::Value(bound) => format!("value {bound}"),
    };
    if clips.is_empty() { "none".to_owned() } else { clips.iter().map(text).collect::<Vec<_>>().join(", ") }
}

/// Compares recipe and golden. `graph` is the recipe's step under the golden's conditions.
pub fn differences(recipe: &Recipe, graph: &Graph, golden: &Manifest) -> Vec<Difference> {
    let mut found = Found { recipe, differences: Vec::new() };
    found.optimizer(golden);
    found.decay(graph, golden);
    found.rates(graph, golden);
    found.loss(golden);
    found.normalisation(graph, golden);
    found.outputs(golden);
    found.differences
}

struct Found<'a> {
    recipe: &'a Recipe,
    differences: Vec<Difference>,
}

impl Found<'_> {
    /// Records a difference, unless the command line sets the value.
    fn note(&mut self, path: &str, recipe: impl ToString, golden: impl ToString) {
        let span = self.recipe.span(path);
        let (recipe, golden) = (recipe.to_string(), golden.to_string());
        if recipe == golden || span.is_override() {
            return;
        }
        let declares = self.recipe.golden.iter().flat_map(|g| &g.declares);
        let declared = declares.filter(|d| d.path == path).map(|d| d.because.clone()).next();
        let line = span.to_string();
        self.differences.push(Difference { path: path.into(), recipe, golden, line, declared });
    }

    fn optimizer(&mut self, golden: &Manifest) {
        let theirs = &golden.optimizer;
        let tag = self.recipe.optimizer.tag();
        if tag == theirs.tag() {
            let ours = serde_json::to_value(&self.recipe.optimizer).unwrap_or_default();
            for (key, value) in theirs.settings() {
                self.note(&format!("optimizer.{tag}.{key}"), text(&ours[tag][&key]), text(&value));
            }
        } else {
            self.note("optimizer", tag, theirs.tag());
        }
        let [ours, theirs] = [&self.recipe.gradients.clip, &theirs.clipping()].map(|clips| clipping(clips));
        self.note("gradients.clip", ours, theirs);
        if let Some(parts) = self.recipe.golden.as_ref().and_then(|golden| golden.parts.as_ref())
            && *parts != self.recipe.train.parts
        {
            self.note("train.parts", "parts of its own", "those of the `golden` section");
        }
    }

    /// Learning rates per parameter, relative to the largest.
    fn rates(&mut self, graph: &Graph, golden: &Manifest) {
        let base = golden.optimizer.base_lr();
        for node in &graph.nodes {
            let Some(Optimized { parameter, group, .. }) = graph.optimized(node) else { continue };
            let (ours, name) = (group.lr_scale, &graph.variable(parameter).name);
            let group = golden.optimizer.groups.iter().find(|g| g.params.iter().any(|p| p == name));
            let Some(theirs) = group.map(|g| g.lr / base).filter(|theirs| (ours - theirs).abs() > 1e-12) else {
                continue;
            };
            self.note("train.parts", format!("{ours} x the rate on {name}"), format!("{theirs} x"));
            return;
        }
    }

    /// Decay is compared per parameter, because groups are only a notation.
    fn decay(&mut self, graph: &Graph, golden: &Manifest) {
        let mut wrong: Vec<(&str, f64, f64)> = Vec::new();
        for node in &graph.nodes {
            let Some(Optimized { parameter, group, .. }) = graph.optimized(node) else { continue };
            let ours = group.weight_decay;
            let name = &graph.variable(parameter).name;
            let mut groups = golden.optimizer.groups.iter();
            let group = groups.find(|g| g.params.iter().any(|p| p == name));
            if let Some(group) = group.filter(|g| g.weight_decay != ours) {
                wrong.push((name, ours, group.weight_decay));
            }
        }
        if let Some((name, ours, theirs)) = wrong.first() {
            let optimizer = format!("optimizer.{}", self.recipe.optimizer.tag());
            // If one side is zero, the groups differ and not the value.
            let exempt = (*ours == 0.0) != (*theirs == 0.0) && self.recipe.optimizer.decay().0 != 0.0;
            let key = if exempt { "no_decay" } else { "weight_decay" };
            let more = match wrong.len() - 1 {
                0 => String::new(),
                1 => "; 1 more parameter differs".to_owned(),
                n => format!("; {n} more parameters differ"),
            };
            let span_path = format!("{optimizer}.{key}");
            let decides = [span_path.as_str(), &format!("{optimizer}.weight_decay"), &format!("{optimizer}.no_decay")]
                .iter()
                .any(|p| self.recipe.span(p).is_override());
            if !decides {
                self.note(&span_path, format!("{ours} on {name}"), format!("{theirs} on {name}{more}"));
            }
        }
    }

    fn loss(&mut self, golden: &Manifest) {
        let loss = self.recipe.loss.clone();
        let cross_entropy = loss.softmax_cross_entropy.unwrap_or_default();
        let theirs = golden.hyper.label_smoothing.unwrap_or(0.0);
        let path = "loss.softmax_cross_entropy";
        self.note(&format!("{path}.label_smoothing"), cross_entropy.label_smoothing, theirs);
        if cross_entropy.label_smoothing > 0.0 {
            let theirs = golden.hyper.smoothing_over.unwrap_or(SmoothingOver::AllClasses);
            let [ours, theirs] = [cross_entropy.smoothing_over, theirs].map(|over| match over {
                SmoothingOver::AllClasses => "all_classes",
                SmoothingOver::OtherClasses => "other_classes",
            });
            self.note(&format!("{path}.smoothing_over"), ours, theirs);
        }
        if let Some(theirs) = golden.hyper.loss_weights {
            let ours = [
                ("select_cross_entropy", loss.select_cross_entropy.as_ref().map(|term| term.weight)),
                ("weighted_l1", loss.weighted_l1.as_ref().map(|term| term.weight)),
                ("mask_soft_margin", loss.mask_soft_margin.as_ref().map(|term| term.weight)),
            ];
            for ((term, ours), theirs) in ours.into_iter().zip(theirs) {
                self.note(&format!("loss.{term}.weight"), ours.unwrap_or(0.0), theirs);
            }
        }
        if let (Some(ours), Some(theirs)) = (&loss.balanced_bce, golden.hyper.negative_ratio) {
            self.note("loss.balanced_bce.negative_ratio", ours.negative_ratio, theirs);
        }
        let l2 = loss.l2.as_ref().map_or(0.0, |l2| l2.weight);
        self.note("loss.l2.weight", l2, golden.hyper.l2_in_loss.unwrap_or(0.0));
        if let Some(l2) = loss.l2.as_ref().filter(|l2| l2.weight > 0.0) {
            let [ours, theirs] = [l2.over, golden.hyper.l2_over.unwrap_or(L2Over::All)].map(|over| match over {
                L2Over::All => "all",
                L2Over::Weights => "weights",
            });
            self.note("loss.l2.over", ours, theirs);
        }
    }

    /// Outputs of the reference's network that, as the recipe declares, it does not have.
    fn outputs(&mut self, golden: &Manifest) {
        let declares: Vec<String> =
            self.recipe.golden.iter().flat_map(|g| &g.declares).map(|difference| difference.path.clone()).collect();
        for path in declares.iter().filter(|path| golden.tensors.contains_key(&format!("out/{path}"))) {
            self.note(path, "not given", "given");
        }
    }

    fn normalisation(&mut self, graph: &Graph, golden: &Manifest) {
        let mut layers: Vec<(String, f64, f64)> = Vec::new();
        for node in &graph.nodes {
            let Op::BnRunningUpdate(running) = &node.op else { continue };
            let path = node.origin.as_ref().map_or_else(String::new, |o| o.path.clone());
            layers.push((path, eps(graph, node).unwrap_or(f64::NAN), running.momentum));
        }
        let mut seen: Vec<String> = Vec::new();
        for (path, eps, momentum) in layers {
            if golden.bn.is_empty() || seen.contains(&path) || golden.bn.contains(&(eps, momentum)) {
                continue;
            }
            let (their_eps, their_momentum) = golden.bn[0];
            self.note(&format!("{path}.bn.eps"), eps, their_eps);
            self.note(&format!("{path}.bn.momentum"), momentum, their_momentum);
            seen.push(path);
        }
    }
}

/// Whether the command line sets this part of the recipe.
pub fn overridden(recipe: &Recipe, path: &str) -> bool {
    recipe.span_of(&ConfigPath::from(path)).is_override()
}
