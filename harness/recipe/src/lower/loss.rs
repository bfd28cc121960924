//! The `loss` section: components and their total.

use super::{BuildOptions, LABEL, builder::LOGITS, section};
use crate::{Recipe, schema};
use zoo_graph::{
    DType, Graph, GraphError, Op, Phase, Scope, Shape, TensorType, ValueId, VariableRole,
    ops::{
        BalancedBce, DiceLoss, ExtractPatches, HardNegatives, L2Loss, LogitLayout, MaskSoftMargin, MaskedL1,
        MiningScope, SelectCrossEntropy, SmoothingOver, SoftmaxCrossEntropy, WeightedL1, WeightedSum, Window,
    },
};

/// A component of the loss: its name, its weight in the total, its value.
type Component = (String, f64, ValueId);

/// Adds the loss, and the inputs that it is compared with. The total comes first; its components follow if there are
/// several, without their weights.
pub(super) fn lower(graph: &mut Graph, recipe: &Recipe, options: &BuildOptions) -> Result<(), GraphError> {
    let mut terms = Terms { graph, recipe, options, components: Vec::new() };
    let loss = &recipe.loss;
    loss.softmax_cross_entropy.iter().try_for_each(|term| terms.softmax_cross_entropy(term))?;
    loss.l2.iter().filter(|l2| l2.weight > 0.0).try_for_each(|term| terms.l2(term))?;
    loss.balanced_bce.iter().try_for_each(|term| terms.balanced_bce(term))?;
    loss.masked_l1.iter().try_for_each(|term| terms.masked_l1(term))?;
    loss.dice.iter().try_for_each(|term| terms.dice(term))?;
    loss.select_cross_entropy.iter().try_for_each(|term| terms.select_cross_entropy(term))?;
    loss.weighted_l1.iter().try_for_each(|term| terms.weighted_l1(term))?;
    loss.mask_soft_margin.iter().try_for_each(|term| terms.mask_soft_margin(term))?;
    let components = terms.components;
    total(graph, recipe, components)
}

fn total(graph: &mut Graph, recipe: &Recipe, components: Vec<Component>) -> Result<(), GraphError> {
    let scope = section(recipe, "loss", Phase::Loss);
    match components.as_slice() {
        [] => {
            let message = "the loss has no component: add `softmax_cross_entropy: {}`".into();
            Err(GraphError::Model { origin: scope.origin, message })
        }
        [(_, 1.0, only)] => {
            graph.losses.push(("loss".into(), *only));
            Ok(())
        }
        several => {
            let values: Vec<ValueId> = several.iter().map(|c| c.2).collect();
            let weights = several.iter().map(|c| c.1).collect();
            let total = graph.add(&scope, "loss/total", WeightedSum { weights }, &values)?;
            graph.losses.push(("loss".into(), total));
            graph.losses.extend(components.into_iter().map(|(name, _, value)| (name, value)));
            Ok(())
        }
    }
}

struct Terms<'a> {
    graph: &'a mut Graph,
    recipe: &'a Recipe,
    options: &'a BuildOptions,
    components: Vec<Component>,
}

impl Terms<'_> {
    fn scope(&self, term: &str) -> Scope {
        section(self.recipe, &format!("loss.{term}"), Phase::Loss)
    }

    /// The output of the network that a term judges.
    fn prediction(&self, scope: &Scope, name: &str) -> Result<ValueId, GraphError> {
        let found = self.graph.outputs.iter().find(|(output, _)| output == name);
        found.map(|(_, value)| *value).ok_or_else(|| GraphError::Model {
            origin: scope.origin.clone(),
            message: format!("the network has no output `{name}`"),
        })
    }

    /// An input that a term compares with; several terms may share it.
    fn input(&mut self, scope: &Scope, name: &str, shape: impl Into<Shape>) -> Result<ValueId, GraphError> {
        let ty = TensorType::plain(shape, self.options.dtype);
        match self.graph.inputs.iter().find(|input| input.name == name).map(|input| input.value) {
            None => Ok(self.graph.add_input(name, ty)),
            Some(known) if *self.graph.ty(known) == ty => Ok(known),
            Some(known) => Err(GraphError::Model {
                origin: scope.origin.clone(),
                message: format!("the input `{name}` is {} and {ty}", self.graph.ty(known)),
            }),
        }
    }

    /// Axes of a prediction, which the term's own shape rule judges if they are not four.
    fn axes(&self, value: ValueId) -> [usize; 4] {
        self.graph.ty(value).shape.nchw().unwrap_or_default()
    }

    /// Adds a term's operator, keeps its first result as component, and returns all.
    fn term(
        &mut self,
        scope: &Scope,
        (name, weight): (&str, f64),
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let results = self.graph.add_node(scope, format!("loss/{name}"), op, operands)?;
        self.components.push((name.into(), weight, results[0]));
        Ok(results)
    }

    fn softmax_cross_entropy(&mut self, loss: &schema::SoftmaxCrossEntropy) -> Result<(), GraphError> {
        let scope = self.scope("softmax_cross_entropy");
        let logits = self.prediction(&scope, LOGITS)?;
        let (width, classes) = (self.graph.ty(logits).shape.last().copied(), self.recipe.model.classes);
        if let Some(width) = width.filter(|width| *width < classes) {
            let message = format!(
                "the network has {width} logits for {classes} classes: let its last layer have `out: $classes`"
            );
            return Err(GraphError::Model { origin: scope.origin, message });
        }
        let labels = self.graph.add_input(LABEL, TensorType::plain([self.options.batch], DType::U32));
        let over = match loss.smoothing_over {
            schema::SmoothingOver::AllClasses => SmoothingOver::AllClasses,
            schema::SmoothingOver::OtherClasses => SmoothingOver::OtherClasses,
        };
        let op = SoftmaxCrossEntropy { smoothing: loss.label_smoothing, over };
        self.term(&scope, ("cross_entropy", 1.0), op, &[logits, labels])?;
        Ok(())
    }

    fn l2(&mut self, l2: &schema::L2) -> Result<(), GraphError> {
        let scope = self.scope("l2");
        let regularised: Vec<(String, ValueId)> = self
            .graph
            .parameters()
            .filter(|(_, v)| l2.over == schema::L2Over::All || v.role == VariableRole::Weight)
            .map(|(_, v)| (v.name.clone(), v.value))
            .collect();
        let mut squares = Vec::new();
        for (name, value) in regularised {
            squares.push(self.graph.add(&scope, format!("loss/l2/{name}"), L2Loss, &[value])?);
        }
        if !squares.is_empty() {
            let weights = vec![l2.weight; squares.len()];
            let sum = self.graph.add(&scope, "loss/l2", WeightedSum { weights }, &squares)?;
            self.components.push(("l2".into(), 1.0, sum));
        }
        Ok(())
    }

    fn balanced_bce(&mut self, loss: &schema::BalancedBce) -> Result<(), GraphError> {
        let scope = self.scope("balanced_bce");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let [n, c, h, w] = self.axes(prediction);
        let target = self.input(&scope, &loss.target, [n, c, h, w])?;
        let mask = self.input(&scope, &loss.mask, [n, h, w])?;
        let hard_negatives = match loss.top_k {
            schema::TopK::Dynamic => HardNegatives::TopK,
            schema::TopK::Static => HardNegatives::RankMask,
        };
        let scope_of_mining = match loss.mine_over {
            schema::MineOver::Batch => MiningScope::Batch,
            schema::MineOver::Image => MiningScope::Image,
        };
        let op =
            BalancedBce { negative_ratio: loss.negative_ratio, eps: loss.eps, hard_negatives, scope: scope_of_mining };
        let results = self.term(&scope, (&loss.name, loss.weight), op, &[prediction, target, mask])?;
        for (name, value) in ["positive_count", "negative_count", "ohem_kth_loss"].into_iter().zip(&results[2..]) {
            self.graph.metrics.push((name.into(), *value));
        }
        Ok(())
    }

    fn masked_l1(&mut self, loss: &schema::MaskedL1) -> Result<(), GraphError> {
        let scope = self.scope("masked_l1");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let [n, _, h, w] = self.axes(prediction);
        let target = self.input(&scope, &loss.target, [n, h, w])?;
        let mask = self.input(&scope, &loss.mask, [n, h, w])?;
        self.term(&scope, (&loss.name, loss.weight), MaskedL1, &[prediction, target, mask])?;
        Ok(())
    }

    fn dice(&mut self, loss: &schema::Dice) -> Result<(), GraphError> {
        let scope = self.scope("dice");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let [n, c, h, w] = self.axes(prediction);
        let target = self.input(&scope, &loss.target, [n, c, h, w])?;
        let mask = self.input(&scope, &loss.mask, [n, h, w])?;
        self.term(&scope, (&loss.name, loss.weight), DiceLoss { eps: loss.eps }, &[prediction, target, mask])?;
        Ok(())
    }

    fn select_cross_entropy(&mut self, loss: &schema::SelectCrossEntropy) -> Result<(), GraphError> {
        let scope = self.scope("select_cross_entropy");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let axes = &self.graph.ty(prediction).shape;
        let shape = axes[..axes.len().saturating_sub(1)].to_vec();
        let label = self.input(&scope, &loss.label, shape)?;
        self.term(&scope, (&loss.name, loss.weight), SelectCrossEntropy, &[prediction, label])?;
        Ok(())
    }

    fn weighted_l1(&mut self, loss: &schema::WeightedL1) -> Result<(), GraphError> {
        let scope = self.scope("weighted_l1");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let [n, c, h, w] = self.axes(prediction);
        let target = self.input(&scope, &loss.target, [n, 4, c / 4, h, w])?;
        let weights = self.input(&scope, &loss.weights, [n, c / 4, h, w])?;
        self.term(&scope, (&loss.name, loss.weight), WeightedL1, &[prediction, target, weights])?;
        Ok(())
    }

    fn mask_soft_margin(&mut self, loss: &schema::MaskSoftMargin) -> Result<(), GraphError> {
        let scope = self.scope("mask_soft_margin");
        let prediction = self.prediction(&scope, &loss.prediction)?;
        let op = MaskSoftMargin { size: loss.size, align_corners: loss.align_corners };
        let batch = self.options.batch;
        let shape = self.graph.ty(prediction).shape.clone();
        let [h, w] = match shape[..] {
            [_, _, h, w] => [h, w],
            _ => [(shape[0] / batch.max(1)).isqrt(); 2],
        };
        if op.logit_layout(&shape, [batch, 1, h, w]).is_ok_and(|layout| layout == LogitLayout::Rows) && h * w == 0 {
            return Err(GraphError::Model {
                origin: scope.origin.clone(),
                message: format!("no positions in {shape}"),
            });
        }
        // What the windows of all positions cover, without the padding.
        let covered =
            |positions: usize| (positions.saturating_sub(1) * loss.stride + loss.size).saturating_sub(2 * loss.pad);
        let target = self.input(&scope, &loss.target, [batch, 1, covered(h), covered(w)])?;
        let select = self.input(&scope, &loss.select, [batch, 1, h, w])?;
        let window = Window { pad: [loss.pad; 4], ..Window::new([loss.size; 2], [loss.stride; 2]) };
        let name = format!("loss/{}/windows", loss.name);
        let windows = self.graph.add(&scope, name, ExtractPatches { window }, &[target])?;
        let results = self.term(&scope, (&loss.name, loss.weight), op, &[prediction, windows, select])?;
        for (name, value) in ["mask_iou", "mask_iou_over_50", "mask_iou_over_70"].into_iter().zip(&results[2..]) {
            self.graph.metrics.push((name.into(), *value));
        }
        Ok(())
    }
}
