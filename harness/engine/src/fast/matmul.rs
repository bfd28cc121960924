//! Matrix products.

use super::call::Call;
use crate::KernelError;
use zoo_graph::{
    TensorType,
    ops::{MatMul, Products},
};
use zoo_kernels::{
    Isa,
    half::HalfType,
    linear::{self, Linear},
    matmul::{self, Extents, Places},
};

/// Number of rows from which on loading the weights of a dense layer no longer dominates.
const MANY_ROWS: usize = 64;

/// The kernel of a product.
pub(super) enum Kernel {
    /// One of the three products of a dense layer with few samples.
    Layer(Linear),
    /// Any other product: its extents, and the matrices of each product.
    Any(Extents, Vec<[usize; 2]>),
}

impl Kernel {
    /// The kernel for operands of these types; none if they do not fit each other.
    pub fn of(op: &MatMul, operands: &[&TensorType]) -> Option<Self> {
        let &[a, b, ..] = operands else { return None };
        let products = op.joined(a, b).ok()?;
        if products.leading.is_empty() {
            let layer = layer(op, &products, operands.len() == 3);
            if let Some(layer) = layer.filter(|layer| layer.batch < MANY_ROWS) {
                return Some(Self::Layer(layer));
            }
        }
        let place = |index| [&products.leading_a, &products.leading_b].map(|own| products.matrix_of(own, index));
        let places = (0..products.count()).map(place).collect();
        let Products { m, n, k, .. } = products;
        let extents = Extents { m, n, k, transpose_a: op.transpose_a, transpose_b: op.transpose_b };
        (m > 0 && n > 0 && k > 0).then_some(Self::Any(extents, places))
    }

    /// Number of elements that it needs in addition to operands and results.
    pub fn workspace_len(&self, (isa, operands): (Isa, Option<HalfType>)) -> usize {
        match self {
            Self::Layer(layer) => layer.workspace_len(),
            Self::Any(extents, places) => extents.workspace_len(isa, operands, Places(places)),
        }
    }

    pub fn run(self, op: &MatMul, call: Call<'_>) -> Result<(), KernelError> {
        let bias = call.apart(2);
        let ((isa, operands), a, b) = (call.factors(), call.operand(0)?, call.operand(1)?);
        let Call { workspace, mut results, .. } = call;
        let result = &mut *results[0];
        match (self, op.transpose_a, op.transpose_b) {
            (Self::Any(extents, places), ..) => {
                matmul::products(isa, extents, operands, Places(&places), a, b, bias, workspace, result);
            }
            (Self::Layer(layer), false, true) => linear::forward(isa, layer, a, b, bias, workspace, result),
            (Self::Layer(layer), false, false) => linear::input_gradient(isa, layer, a, b, workspace, result),
            (Self::Layer(layer), true, _) => linear::weight_gradient(isa, layer, a, b, workspace, result),
        }
        Ok(())
    }
}

/// The dense layer that a product belongs to.
fn layer(op: &MatMul, products: &Products, has_bias: bool) -> Option<Linear> {
    let Products { m, n, k, .. } = *products;
    match (op.transpose_a, op.transpose_b) {
        (false, true) => Some(Linear { batch: m, inputs: k, outputs: n }),
        (false, false) if !has_bias => Some(Linear { batch: m, inputs: n, outputs: k }),
        (true, false) if !has_bias => Some(Linear { batch: k, inputs: n, outputs: m }),
        (false | true, false) | (true, true) => None,
    }
}
