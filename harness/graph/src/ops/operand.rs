//! Properties of operands for passes and devices: element type and layout in which each is read, and how much of it.

/// How an operator reads one of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// In which element type.
    pub element: Element,
    /// In which layout.
    pub layout: OperandLayout,
    /// How much of it.
    pub read: Read,
}

/// In which element type an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// In the type in which the operator computes.
    Computed,
    /// In f32, independent of the type of the operator: values per channel, master weights, terms of a loss.
    F32,
    /// In any type: scalars, class indices, values that are only passed on.
    AsIs,
}

/// In which layout an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandLayout {
    /// In any layout, but the same for all operands: element-wise operators.
    Elements,
    /// Row-major or NC1HWC0, the same for all feature maps among the operands.
    Map,
    /// Row-major.
    Plain,
    /// NC1HWC0.
    Blocked,
    /// NC1HWC0, but an image of few channels row-major, as it comes.
    Image,
    /// FRACTAL_Z.
    Filters {
        /// Groups of the convolution.
        groups: usize,
    },
    /// Each operand as it comes.
    Any,
}

/// How much of an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All of it.
    Whole,
    /// As much as is written.
    Part,
    /// Which elements are positive: one bit per element, where a device keeps such masks.
    Sign,
}

impl Operand {
    /// Computed with, element by element, in any layout.
    pub const ELEMENTS: Self = Self::in_layout(OperandLayout::Elements);
    /// A feature map.
    pub const MAP: Self = Self::in_layout(OperandLayout::Map);
    /// Computed with in row-major order.
    pub const PLAIN: Self = Self::in_layout(OperandLayout::Plain);
    /// In f32 and row-major: a value per channel, a term of a loss.
    pub const EXACT: Self = Self { element: Element::F32, ..Self::PLAIN };
    /// A parameter, a slot or a gradient of an update: in f32, in any layout.
    pub const MASTER: Self = Self { element: Element::F32, ..Self::ELEMENTS };
    /// Class indices, or a scalar.
    pub const AS_IS: Self = Self { element: Element::AsIs, ..Self::PLAIN };

    /// Computed with in this layout.
    pub const fn in_layout(layout: OperandLayout) -> Self {
        Self { element: Element::Computed, layout, read: Read::Whole }
    }
}
