//! What an operator updates, if it updates anything: who is left alone by a step that is skipped.

/// What an operator does to what outlives the step. Its first results are the next values of the operands of the same
/// places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// It moves a parameter, operand 0, and its slots by the gradient, the last operand.
    Optimizer {
        /// Slots of the parameter: operands 1 to `slots`.
        slots: usize,
        /// Decay that is added to the gradient.
        weight_decay: f64,
        /// Factor on the step's learning rate.
        lr_scale: f64,
    },
    /// It moves an average of a parameter.
    Average,
    /// It moves a running mean and a running variance.
    Statistics,
}

impl Update {
    /// Number of results that are next values.
    pub fn results(self) -> usize {
        match self {
            Self::Optimizer { slots, .. } => 1 + slots,
            Self::Average => 1,
            Self::Statistics => 2,
        }
    }

    /// Whether a step that is skipped leaves it out. Running statistics still move then, as in PyTorch.
    pub fn is_skipped(self) -> bool {
        match self {
            Self::Optimizer { .. } | Self::Average => true,
            Self::Statistics => false,
        }
    }
}

/// What a group of parameters sets in the optimizer's operator.
#[derive(Debug)]
pub struct Group<'a> {
    /// Decay that is added to the gradient.
    pub weight_decay: &'a mut f64,
    /// Factor on the step's learning rate.
    pub lr_scale: &'a mut f64,
}
