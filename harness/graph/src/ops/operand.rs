//! Properties of operands for passes and devices: the element type and layout in which each is read, and how much of
//! it.

/// How an operator reads one of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Element type in which it is read.
    pub element: Element,
    /// Layout in which it is read.
    pub layout: OperandLayout,
    /// How much of it is read.
    pub read: Read,
}

/// The element type in which an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The type in which the operator computes.
    Computed,
    /// f32, independent of the type of the operator: values per channel, master weights, terms of a loss.
    F32,
    /// Any type: scalars, class indices, values that are only passed on.
    AsIs,
}

/// The layout in which an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandLayout {
    /// Any layout, but the same for all operands: element-wise operators.
    Elements,
    /// Row-major or NC1HWC0, the same for all feature maps among the operands.
    Map,
    /// Row-major.
    Plain,
    /// NC1HWC0.
    Blocked,
    /// NC1HWC0; but an image with few channels stays row-major.
    Image,
    /// FRACTAL_Z.
    Filters {
        /// Groups of the convolution.
        groups: usize,
    },
    /// Any layout, independently of the other operands.
    Any,
}

/// How much of an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All of it.
    Whole,
    /// As many elements as are written.
    Part,
    /// The signs: one bit per element, if a device stores such masks.
    Sign,
}

impl Operand {
    /// Used in a computation element by element, in any layout.
    pub const ELEMENTS: Self = Self::in_layout(OperandLayout::Elements);
    /// A feature map.
    pub const MAP: Self = Self::in_layout(OperandLayout::Map);
    /// Used in a computation in row-major order.
    pub const PLAIN: Self = Self::in_layout(OperandLayout::Plain);
    /// In f32 and row-major: values per channel, or a term of a loss.
    pub const EXACT: Self = Self { element: Element::F32, ..Self::PLAIN };
    /// A parameter, a slot or a gradient of an update: in f32, in any layout.
    pub const MASTER: Self = Self { element: Element::F32, ..Self::ELEMENTS };
    /// Class indices, or a scalar.
    pub const AS_IS: Self = Self { element: Element::AsIs, ..Self::PLAIN };

    /// Used in a computation in this layout.
    pub const fn in_layout(layout: OperandLayout) -> Self {
        Self { element: Element::Computed, layout, read: Read::Whole }
    }
}
