//! Conversion between row-major and blocked tensors.
//!
//! A blocked tensor is a candle tensor with one axis of all stored elements, including padding.

use crate::elements::Elements;
use candle_core::{DType, Device, Error, Result, Tensor, WithDType};
use zoo_graph::{C0, Layout, TensorType, lies_depthwise};

/// Sizes of the candle tensor that stores a value: its shape if it is row-major, otherwise one axis with all stored
/// elements.
pub fn stored_dims(ty: &TensorType) -> Vec<usize> {
    match ty.layout {
        Layout::Plain => ty.shape.to_vec(),
        Layout::Nc1hwc0 | Layout::FractalZ { .. } => vec![ty.stored_numel()],
    }
}

/// Converts a row-major tensor to the layout of `ty`.
///
/// # Errors
/// The shape of the tensor is not that of `ty`.
pub fn to_stored(plain: &Tensor, ty: &TensorType) -> Result<Tensor> {
    if plain.dims() != &ty.shape[..] {
        return Err(Error::Msg(format!("a tensor {:?} where {ty} was expected", plain.dims())));
    }
    match ty.layout {
        Layout::Plain => Ok(plain.clone()),
        Layout::Nc1hwc0 | Layout::FractalZ { .. } => move_elements(plain, ty, Direction::ToStored),
    }
}

/// Converts a value in the layout of `ty` to a row-major tensor.
///
/// # Errors
/// The size of the tensor is not that of `ty`.
pub fn to_plain(stored: &Tensor, ty: &TensorType) -> Result<Tensor> {
    if stored.dims() != stored_dims(ty) {
        return Err(Error::Msg(format!("a tensor {:?} where {ty} was expected", stored.dims())));
    }
    match ty.layout {
        Layout::Plain => Ok(stored.clone()),
        Layout::Nc1hwc0 | Layout::FractalZ { .. } => move_elements(stored, ty, Direction::ToPlain),
    }
}

#[derive(Clone, Copy)]
enum Direction {
    ToStored,
    ToPlain,
}

fn move_elements(x: &Tensor, ty: &TensorType, direction: Direction) -> Result<Tensor> {
    let dtype = x.dtype();
    if dtype == DType::F32 {
        moved::<f32>(x, ty, direction)
    } else if dtype == DType::F64 {
        moved::<f64>(x, ty, direction)
    } else {
        Err(Error::Msg(format!("{} tensors have no blocked layout", dtype.as_str())))
    }
}

fn moved<T: WithDType>(x: &Tensor, ty: &TensorType, direction: Direction) -> Result<Tensor> {
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    let places = places(ty)?;
    match direction {
        Direction::ToStored => {
            let mut stored = vec![T::from_f64(0.0); ty.stored_numel()];
            places.iter().zip(x).for_each(|(place, x)| stored[*place] = *x);
            Tensor::from_vec(stored, stored_dims(ty), &Device::Cpu)
        }
        Direction::ToPlain => {
            let plain: Vec<T> = places.iter().map(|place| x[*place]).collect();
            Tensor::from_vec(plain, ty.shape.to_vec(), &Device::Cpu)
        }
    }
}

/// Memory index of each element, in row-major order.
fn places(ty: &TensorType) -> Result<Vec<usize>> {
    let Some([a, b, h, w]) = ty.shape.nchw() else {
        return Err(Error::Msg(format!("{ty} has no four axes to lie in blocks")));
    };
    let pixels = h * w;
    // Index of element (0, 0) of a plane, and the distance between elements of the plane.
    let plane: Box<dyn Fn(usize, usize) -> (usize, usize)> = match ty.layout {
        Layout::Plain => Box::new(move |n, c| ((n * b + c) * pixels, 1)),
        Layout::Nc1hwc0 => {
            let c1 = b.div_ceil(C0);
            Box::new(move |n, c| ((n * c1 + c / C0) * pixels * C0 + c % C0, C0))
        }
        // Depthwise: [c1][kh][kw][c0].
        Layout::FractalZ { groups } if lies_depthwise([a, b], groups) => {
            Box::new(move |o, _| (o / C0 * pixels * C0 + o % C0, C0))
        }
        // [o1][i1][kh][kw][i][o0], with i1 from the first to the last input block that the output block reads.
        Layout::FractalZ { groups } => {
            let (per_group, i) = ((a / groups).max(1), (b * groups).min(C0));
            let seen = move |block: usize| {
                let last = ((block + 1) * C0).min(a) - 1;
                block * C0 / per_group * b / C0..((last / per_group + 1) * b).div_ceil(C0)
            };
            let before = move |block: usize| (0..block).map(|block| seen(block).len()).sum::<usize>();
            let starts: Vec<usize> = (0..a.div_ceil(C0)).map(before).collect();
            Box::new(move |o, c| {
                let channel = o / per_group * b + c;
                let matrix = starts[o / C0] + channel / C0 - seen(o / C0).start;
                ((matrix * pixels * i + channel % C0) * C0 + o % C0, i * C0)
            })
        }
    };
    let planes = (0..a).flat_map(|first| (0..b).map(move |second| (first, second)));
    Ok(planes
        .flat_map(|(first, second)| {
            let (start, step) = plane(first, second);
            (0..pixels).map(move |p| start + p * step)
        })
        .collect())
}
