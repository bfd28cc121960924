//! The variables that an operator updates, and whether a skipped step omits the update.

/// The effect of an operator on persistent variables. Its first results are the next values of the operands at the same
/// positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// It updates a parameter, operand 0, and its slots with the gradient, the last operand.
    Optimizer {
        /// Slots of the parameter: operands 1 to `slots`.
        slots: usize,
        /// The settings of parameter groups.
        group: Group,
        /// Where the rule applies the weight decay.
        decay: DecayTerm,
        /// The largest step for a parameter whose gradient consists of rounding errors.
        longest: LongestStep,
    },
    /// It updates an average of a parameter.
    Average,
    /// It updates a running mean and a running variance.
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

/// Where the rule of an optimizer applies the weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayTerm {
    /// It is added to the gradient first, so it can be omitted if the gradient already includes it.
    InGradient,
    /// It is a term of the rule itself (decoupled, or part of a norm).
    InRule,
}

/// The largest step of an optimizer if the direction of the gradient is random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LongestStep {
    /// The step follows the size of the gradient.
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

    /// Whether a skipped step omits it. Running statistics are still updated, as in PyTorch.
    pub fn is_skipped(self) -> bool {
        match self {
            Self::Optimizer { .. } | Self::Average => true,
            Self::Statistics => false,
        }
    }
}
