//! What the terms of a loss add nodes with.

use super::{BuildOptions, LABEL, LOGITS, Routing};
use crate::values::{Part, Training};
use std::collections::HashSet;
use zoo_graph::{
    DType, Graph, GraphError, Op, Phase, Scope, Shape, TensorType, ValueId, Variable,
    formula::Formula,
    ops::{DeviceName, Map, Reshape, Scale},
};

/// A component of the loss: its name, its weight in the total, its value.
pub(crate) type Component = (String, f64, ValueId);

/// The context in which a loss term adds its operators.
pub(crate) struct Terms<'a> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) options: &'a BuildOptions,
    /// What is trained differently from the rest.
    pub(crate) parts: &'a [Part],
    /// Number of classes of the model.
    pub(crate) classes: usize,
    /// Whether images are mixed, and have a second class.
    pub(crate) mixed: bool,
    /// Labels that terms ignore, by the names of their inputs.
    pub(crate) ignored: Vec<(&'a str, u32)>,
    /// The mixtures of experts of the network.
    pub(crate) routings: &'a [Routing],
    /// The term under way.
    pub(crate) scope: Scope,
    pub(crate) components: Vec<Component>,
}

impl Terms<'_> {
    /// An error at the term.
    pub fn refuse(&self, message: String) -> GraphError {
        GraphError::Model { origin: self.scope.origin.clone(), message }
    }

    /// The output of the network that has this name.
    pub fn output(&self, name: &str) -> Option<ValueId> {
        self.graph.outputs.iter().find(|(output, _)| output == name).map(|(_, value)| *value)
    }

    /// The output of the network that the term judges.
    pub fn prediction(&self, name: &str) -> Result<ValueId, GraphError> {
        self.output(name).ok_or_else(|| self.refuse(format!("the network has no output `{name}`")))
    }

    /// An input that the term compares with; several terms may share it.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> Result<ValueId, GraphError> {
        self.shared(name, TensorType::plain(shape, self.options.dtype))
    }

    fn shared(&mut self, name: &str, ty: TensorType) -> Result<ValueId, GraphError> {
        match self.graph.inputs.iter().find(|input| input.name == name).map(|input| input.value) {
            None => Ok(self.graph.add_input(name, ty)),
            Some(known) if *self.graph.ty(known) == ty => Ok(known),
            Some(known) => Err(self.refuse(format!("the input `{name}` is {} and {ty}", self.graph.ty(known)))),
        }
    }

    /// The class of each row of a prediction, under this name: of each sample, or of each token of one. `known` are
    /// the numbers below this one, and `ignored`. Others, which another term ignores, are refused.
    pub fn labels(
        &mut self,
        name: &str,
        prediction: &[usize],
        (known, ignored): (usize, Option<u32>),
    ) -> Result<ValueId, GraphError> {
        let is_known = |label: &u32| (*label as usize) < known || ignored == Some(*label);
        let mut ignored = self.ignored.iter().filter(|(labels, _)| *labels == name);
        if let Some((_, label)) = ignored.find(|(_, label)| !is_known(label)) {
            return Err(self.refuse(format!(
                "another term of the loss ignores the label {label} of `{name}`, which is no class here"
            )));
        }
        let rows = prediction.split_last().map_or(prediction, |(_, rows)| rows);
        self.shared(name, TensorType::plain(rows, DType::U32))
    }

    /// The largest number that the data's labels contain although terms of the loss ignore it.
    pub fn ignored(&self) -> Option<u32> {
        self.ignored.iter().filter(|(labels, _)| *labels == LABEL).map(|(_, label)| *label).max()
    }

    /// Element type of everything that is computed.
    pub fn dtype(&self) -> DType {
        self.options.dtype
    }

    /// Samples of the step.
    pub fn batch(&self) -> usize {
        self.options.batch
    }

    /// The parameters that are trained in this step: not those of frozen modules, nor of layers that are never called.
    pub fn trained_parameters(&self) -> impl Iterator<Item = &Variable> {
        let forward = self.graph.nodes.iter().filter(|node| node.phase == Phase::Forward);
        let read: HashSet<ValueId> = forward.flat_map(|node| node.inputs.iter().copied()).collect();
        let is_trained = move |variable: &&Variable| {
            let training = Training::of(self.parts, &variable.name, self.options.epoch);
            training.trained && read.contains(&variable.value)
        };
        self.graph.parameters().map(|(_, variable)| variable).filter(is_trained)
    }

    /// The mixtures of experts of the network, at least one.
    pub fn routings(&self) -> Result<&[Routing], GraphError> {
        match self.routings {
            [] => Err(self.refuse("the network has no `experts`".to_owned())),
            routings => Ok(routings),
        }
    }

    /// Shape of a value.
    pub fn shape(&self, value: ValueId) -> &Shape {
        &self.graph.ty(value).shape
    }

    /// Types of values.
    pub fn types(&self, values: &[ValueId]) -> Vec<&TensorType> {
        self.graph.types(values)
    }

    /// Axes of a prediction `[C, H, W]`.
    pub fn axes(&self, value: ValueId) -> Result<[usize; 4], GraphError> {
        let message = || format!("needs a map, [C, H, W]; this prediction is {}", self.shape(value));
        self.shape(value).nchw().ok_or_else(|| self.refuse(message()))
    }

    /// Samples, height and width of a prediction `[1, H, W]`.
    pub fn one_channel(&self, value: ValueId) -> Result<[usize; 3], GraphError> {
        match self.axes(value)? {
            [n, 1, h, w] => Ok([n, h, w]),
            _ => Err(self.refuse(format!("needs one channel, [1, H, W]; this prediction is {}", self.shape(value)))),
        }
    }

    /// Adds an operator of the term.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        self.graph.add(&self.scope, name.into(), op, operands)
    }

    /// Adds a formula of the term over these operands, which broadcast from their last axes.
    pub fn formula(
        &mut self,
        name: impl Into<String>,
        formula: Formula,
        device: DeviceName,
        operands: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let map = Map::over(formula, &self.graph.types(operands)).map_err(|error| self.refuse(error.to_string()))?;
        self.add(name, map.named(device), operands)
    }

    /// Adds the term as a formula with one number as result, which becomes the component.
    pub fn formula_term(
        &mut self,
        (name, weight): (&str, f64),
        formula: Formula,
        device: DeviceName,
        operands: &[ValueId],
    ) -> Result<(), GraphError> {
        let value = self.formula(format!("loss/{name}/value"), formula, device, operands)?;
        self.term((name, weight), Reshape { shape: Shape::scalar() }, &[value])?;
        Ok(())
    }

    /// Adds the term as the mean of a formula over the elements of a prediction and of an input in its shape.
    pub fn mean_term(
        &mut self,
        term: (&str, f64),
        prediction: Option<&str>,
        target: &str,
        formula: Formula,
    ) -> Result<(), GraphError> {
        let prediction = self.prediction(prediction.unwrap_or(LOGITS))?;
        let shape = self.shape(prediction).clone();
        let target = self.input(target, shape.clone())?;
        self.sum_term(term, formula, &[prediction, target], shape.numel())
    }

    /// Adds the term as the sum of a formula over all elements of its operands, divided by a count.
    pub fn sum_term(
        &mut self,
        (name, weight): (&str, f64),
        formula: Formula,
        operands: &[ValueId],
        count: usize,
    ) -> Result<(), GraphError> {
        let axes = operands.iter().map(|operand| self.shape(*operand).len()).max().unwrap_or(0);
        let device = DeviceName::new("LossFormula", "LossFormulaGrad");
        let sum = self.formula(format!("loss/{name}/sum"), formula.summed((0..axes).collect()), device, operands)?;
        let sum = self.add(format!("loss/{name}/scalar"), Reshape { shape: Shape::scalar() }, &[sum])?;
        self.term((name, weight), Scale { factor: 1.0 / count.max(1) as f64 }, &[sum])?;
        Ok(())
    }

    /// A value in another shape with as many elements.
    pub fn reshaped(
        &mut self,
        name: impl Into<String>,
        value: ValueId,
        shape: impl Into<Shape>,
    ) -> Result<ValueId, GraphError> {
        self.add(name, Reshape { shape: shape.into() }, &[value])
    }

    /// Adds an operator of the term that has several results.
    pub fn add_several(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        self.graph.add_node(&self.scope, name.into(), op, operands)
    }

    /// Adds the term's last operator, keeps its first result as component, and returns all.
    pub fn term(
        &mut self,
        (name, weight): (&str, f64),
        op: impl Into<Op>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        if self.components.iter().any(|(known, ..)| known == name) {
            return Err(self.refuse(format!("two terms of the loss are called `{name}`: give one another `name`")));
        }
        let results = self.graph.add_node(&self.scope, format!("loss/{name}"), op, operands)?;
        self.components.push((name.into(), weight, results[0]));
        Ok(results)
    }

    /// A number of the step that is reported with the losses.
    pub fn metric(&mut self, name: &str, value: ValueId) {
        self.graph.metrics.push((name.into(), value));
    }
}
