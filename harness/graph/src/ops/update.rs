//! What an operator updates, and whether a skipped step omits it.

/// The effect of an operator on persistent variables. Its first results are the next values of the operands at the same
/// positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// It moves a parameter, operand 0, and its slots by the gradient, the last operand.
    Optimizer {
        /// Slots of the parameter: operands 1 to `slots`.
        slots: usize,
        /// The settings of parameter groups.
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

/// The settings of a parameter group in an optimizer.
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
    /// It is added to the gradient first, so it can be omitted if the gradient already includes it.
    InGradient,
    /// It is a term of the rule itself (decoupled, or part of a norm).
    InRule,
}

/// The longest step of an optimizer along a gradient whose direction is chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LongestStep {
    /// The step is as small as the gradient.
    OfGradient,
    /// The rule divides the gradient by its size: no element changes by more than this number of learning rates.
    Rates(f64),
    /// The rule scales the step to the norm of the parameter, times this number of learning rates.
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
