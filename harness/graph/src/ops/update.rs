//! What an operator updates, if it updates anything: who is left alone by a step that is skipped.

/// What an operator does to what outlives the step. Its first results are the next values of the operands of the same
/// places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// It moves a parameter, operand 0, and its slots by the gradient, the last operand.
    Optimizer {
        /// Slots of the parameter: operands 1 to `slots`.
        slots: usize,
        /// What groups of parameters set.
        group: Group,
        /// Where the rule puts the weight decay.
        decay: DecayTerm,
        /// How far it moves a parameter whose gradient is nothing but rounding.
        longest: LongestStep,
    },
    /// It moves an average of a parameter.
    Average,
    /// It moves a running mean and a running variance.
    Statistics,
}

/// What a group of parameters sets in an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Weight decay.
    pub weight_decay: f64,
    /// Factor on the step's learning rate.
    pub lr_scale: f64,
}

/// Where the rule of an optimizer puts the weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayTerm {
    /// It is added to the gradient before anything else: whoever gives the sum as the gradient may leave it out.
    InGradient,
    /// It is a term of the rule itself (decoupled, or part of a norm).
    InRule,
}

/// The longest step of an optimizer along a gradient whose direction is chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LongestStep {
    /// The step is as small as the gradient.
    OfGradient,
    /// The rule divides the gradient by its own size: no element moves further than so many learning rates.
    Rates(f64),
    /// The rule makes the step as long as the parameter, times so many learning rates.
    OfParameter(f64),
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
