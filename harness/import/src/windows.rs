//! Windows that one module cuts and another one joins: `windows` would contain its layers, so that they are reshapes
//! and permutations of the map.

use zoo_recipe::Layer;
use zoo_recipe::layers::{Pad, PadMode, Permute, Reshape, Roll, Slice};
use zoo_recipe::schema::{Count, Padding, Size};

use crate::operation::{Module, Operation, Unit, What, Windows};
use crate::reader::Reader;
use crate::structure::joins_windows;
use crate::word::Word;

impl Reader<'_> {
    /// Writes windows of a module as steps, unless it joins all that it cuts.
    pub(crate) fn open_windows(&mut self, module: &mut Module) {
        let moves = |unit: &Unit| match unit {
            Unit::Operation(operation) => matches!(operation.what, What::Cut(_) | What::Join(_)),
            Unit::Module(_) => false,
        };
        if !module.body.iter().any(moves) || joins_windows(module) && !self.counts_axes(module) {
            return;
        }
        for unit in std::mem::take(&mut module.body) {
            match unit {
                Unit::Operation(operation) if let Some(layers) = self.steps(&operation) => {
                    self.push_steps(&mut module.body, operation, layers);
                }
                other => module.body.push(other),
            }
        }
    }

    /// Whether a map is one window without an axis of windows, and layers inside count axes.
    fn counts_axes(&self, module: &Module) -> bool {
        let is_whole = |unit: &Unit| match unit {
            Unit::Operation(Operation { what: What::Cut(_), result, .. }) => self.shape_of(*result).len() == 3,
            Unit::Operation(_) | Unit::Module(_) => false,
        };
        let is_end = |unit: &Unit| matches!(unit, Unit::Operation(Operation { what: What::Join(_), .. }));
        let inside = module.body.iter().skip_while(|unit| !is_whole(unit)).take_while(|unit| !is_end(unit));
        inside.into_iter().any(counts_axes)
    }

    /// The layers that do what cutting or joining windows does; `None` for other operations.
    fn steps(&self, operation: &Operation) -> Option<Vec<Layer>> {
        let from = operation.operands.first().map(|operand| self.shape_of(*operand))?;
        match &operation.what {
            What::Cut(windows) => {
                let c = from.last().copied()?;
                // The axis of a single window may be left out.
                let [count, tokens] = windows.counts();
                let to = self.shape_of(operation.result).get(1..).filter(|to| **to == [tokens, c] && count == 1);
                Some(cut(windows, c, to.unwrap_or(&[count, tokens, c])))
            }
            What::Join(windows) => Some(join(windows, from.last().copied()?)),
            What::Layer(_) | What::Add | What::Subtract | What::Mul | What::Concat(_) | What::Segments(_) => None,
        }
    }

    /// The layers in place of an operation.
    fn push_steps(&mut self, units: &mut Vec<Unit>, operation: Operation, layers: Vec<Layer>) {
        let Operation { operands, result, at, .. } = operation;
        let Some(mut x) = operands.first().copied() else { return };
        let last = layers.len().saturating_sub(1);
        for (place, layer) in layers.into_iter().enumerate() {
            let what = What::Layer(Word::of(&layer));
            if place == last {
                let at = at.clone();
                units.push(Unit::Operation(Operation { what, operands: vec![x], result, name: None, at }));
            } else {
                x = self.push(units, what, vec![x], Vec::new(), &at);
            }
        }
    }
}

/// Whether an operation, or one in a module, names axes of samples.
fn counts_axes(unit: &Unit) -> bool {
    match unit {
        Unit::Operation(Operation { what: What::Layer(word), .. }) => {
            ["reshape", "permute", "take", "slice", "roll", "cumsum", "matmul"].contains(&word.tag)
        }
        Unit::Operation(Operation { what: What::Concat(_), .. }) => true,
        Unit::Operation(_) => false,
        Unit::Module(module) => module.body.iter().any(counts_axes),
    }
}

fn permute<const N: usize>(order: [usize; N]) -> Layer {
    Layer::Permute(Permute { order: order.to_vec() })
}

fn reshape(to: &[usize]) -> Layer {
    Layer::Reshape(Reshape { to: to.iter().map(|extent| Size(*extent)).collect() })
}

fn moved([down, across]: [i64; 2]) -> Option<Layer> {
    let by: Option<Vec<i32>> = [down, across, 0].into_iter().map(|by| i32::try_from(by).ok()).collect();
    by.filter(|by| by.iter().any(|by| *by != 0)).map(|by| Layer::Roll(Roll { by }))
}

fn signed(shift: [usize; 2]) -> [i64; 2] {
    shift.map(|by| i64::try_from(by).unwrap_or(0))
}

/// A map `[h, w, c]` in windows of this shape.
fn cut(windows: &Windows, c: usize, to: &[usize]) -> Vec<Layer> {
    let ([rows, columns], [h, w], [height, width]) = (windows.grid(), windows.size, windows.map);
    let after = [rows.saturating_mul(h).saturating_sub(height), columns.saturating_mul(w).saturating_sub(width)];
    let mut layers = Vec::new();
    if after != [0, 0] {
        // `pad` takes maps, [C, H, W].
        let pad = Pad { size: Padding([0, after[0], 0, after[1]]), mode: PadMode::Zeros };
        layers.extend([permute([2, 0, 1]), Layer::Pad(pad), permute([1, 2, 0])]);
    }
    layers.extend(moved(signed(windows.shift).map(|by| -by)));
    layers.extend([reshape(&[rows, h, columns, w, c]), permute([0, 2, 1, 3, 4]), reshape(to)]);
    layers
}

/// Windows as the map `[h, w, c]`.
fn join(windows: &Windows, c: usize) -> Vec<Layer> {
    let ([rows, columns], [h, w], [height, width]) = (windows.grid(), windows.size, windows.map);
    let whole = [rows.saturating_mul(h), columns.saturating_mul(w)];
    let mut layers =
        vec![reshape(&[rows, columns, h, w, c]), permute([0, 2, 1, 3, 4]), reshape(&[whole[0], whole[1], c])];
    layers.extend(moved(signed(windows.shift)));
    for (axis, (whole, own)) in whole.into_iter().zip([height, width]).enumerate() {
        if whole != own {
            layers.push(Layer::Slice(Slice { axis: Count(axis), from: Count(0), size: Size(own) }));
        }
    }
    layers
}
