//! A tensor as a pickle describes it.

use crate::{
    ElementType,
    array::numel,
    pickle::{Class, Id, Pickle, Value},
};

/// Parameters hold a tensor, and tensors of a class of its own hold another call; deeper is not written.
const DEEPEST: usize = 8;

/// A tensor: a view of a storage.
#[derive(Debug)]
pub(super) struct View {
    pub dtype: ElementType,
    /// Name of the storage.
    pub storage: String,
    /// Elements of the storage before the first.
    pub offset: usize,
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<usize>,
}

/// What a pickle says of a storage.
pub(super) struct Stored<'p> {
    /// Its class, which names the type of its elements.
    pub class: &'p Class,
    /// Its name.
    pub key: &'p str,
    /// Elements of the storage named by `key` before this one, which is a part of it.
    pub offset: usize,
}

impl<'p> Stored<'p> {
    /// `("storage", class, key, device, number of elements, part)`.
    pub(super) fn of(pickle: &'p Pickle, id: Id) -> Option<Self> {
        let Value::Persistent(id) = pickle.value(id) else { return None };
        let [_, class, key, _, _, part @ ..] = pickle.tuple(*id)? else { return None };
        let part = part.first().and_then(|part| pickle.tuple(*part));
        let offset = part.and_then(|part| pickle.extent(*part.get(1)?)).unwrap_or(0);
        Some(Self { class: pickle.class(*class)?, key: pickle.text(*key)?, offset })
    }
}

impl View {
    /// A tensor or parameter; `None` if the object is something else; an error if it is a tensor that is not read.
    pub(super) fn of(pickle: &Pickle, id: Id) -> Option<Result<Self, String>> {
        let (mut class, mut args) = pickle.call(id)?;
        for _ in 0..DEEPEST {
            match (class.module.as_str(), class.name.as_str()) {
                // (storage, offset, shape, strides, requires_grad, hooks, metadata); the first four before PyTorch 0.4
                ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => {
                    return Some(Self::strided(pickle, args, None, args.get(6)));
                }
                // The same with the element type before the metadata.
                ("torch._utils", "_rebuild_tensor_v3") => {
                    return Some(Self::strided(pickle, args, args.get(6), args.get(7)));
                }
                // (tensor, requires_grad, hooks)
                ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
                    (class, args) = pickle.call(*args.first()?)?;
                }
                // (function, class, its arguments, state)
                ("torch._tensor", "_rebuild_from_type_v2") => {
                    let [function, _, given, ..] = args else { return None };
                    (class, args) = (pickle.class(*function)?, pickle.tuple(*given)?);
                }
                ("torch._utils", name) if name.starts_with("_rebuild_") => {
                    let kind = name.trim_start_matches("_rebuild_").trim_end_matches("_tensor");
                    return Some(Err(format!(
                        "stored as `{kind}`, which is not read: store dense tensors, such as tensor.to_dense() or \
                         tensor.dequantize()"
                    )));
                }
                _ => return None,
            }
        }
        Some(Err("a tensor in a tensor without end".to_owned()))
    }

    fn strided(pickle: &Pickle, args: &[Id], dtype: Option<&Id>, metadata: Option<&Id>) -> Result<Self, String> {
        let [storage, offset, shape, strides, ..] = args else { return Err("without a storage".to_owned()) };
        let stored = Stored::of(pickle, *storage).ok_or("without a storage")?;
        let type_name = dtype.map_or(Some(stored.class), |dtype| pickle.class(*dtype));
        let type_name = type_name.map(|class| class.name.as_str()).ok_or("without an element type")?;
        let dtype = element_type(type_name)
            .ok_or_else(|| format!("its elements are of type `{type_name}`: convert it, such as tensor.float()"))?;
        if metadata.and_then(|metadata| pickle.items(*metadata)).is_some_and(|items| !items.is_empty()) {
            return Err("a view that changes signs: store tensor.resolve_neg()".to_owned());
        }
        let extents = |id: &Id| {
            let parts = pickle.tuple(*id)?;
            parts.iter().map(|part| pickle.extent(*part)).collect::<Option<Vec<usize>>>()
        };
        let offset = pickle.extent(*offset).and_then(|offset| offset.checked_add(stored.offset));
        let (Some(offset), Some(shape), Some(strides)) = (offset, extents(shape), extents(strides)) else {
            return Err("with a shape that is no tuple of numbers".to_owned());
        };
        if shape.len() != strides.len() {
            return Err("with more or fewer strides than dimensions".to_owned());
        }
        Ok(Self { dtype, storage: stored.key.to_owned(), offset, shape, strides })
    }

    /// The elements in row-major order.
    pub(super) fn values(&self, storage: &[u8]) -> Result<Vec<f64>, String> {
        let size = self.dtype.size();
        let numel = numel(&self.shape).ok_or("its shape is too large")?;
        if numel == 0 {
            return Ok(Vec::new());
        }
        let last = self.shape.iter().zip(&self.strides).try_fold(self.offset, |last, (extent, stride)| {
            last.checked_add(extent.saturating_sub(1).checked_mul(*stride)?)
        });
        let fits = last.and_then(|last| last.checked_add(1)?.checked_mul(size)).is_some_and(|end| end <= storage.len());
        if !fits {
            return Err(format!("shape {:?} does not lie within its storage of {} bytes", self.shape, storage.len()));
        }
        let element = |at: usize| self.dtype.value(&storage[at * size..(at + 1) * size]);
        let mut values = Vec::with_capacity(numel);
        let mut index = vec![0; self.shape.len()];
        let mut at = self.offset;
        loop {
            values.push(element(at));
            // The next index, the last dimension first.
            let mut dim = self.shape.len();
            loop {
                let Some(next) = dim.checked_sub(1) else { return Ok(values) };
                dim = next;
                index[dim] += 1;
                at += self.strides[dim];
                if index[dim] < self.shape[dim] {
                    break;
                }
                at -= self.shape[dim] * self.strides[dim];
                index[dim] = 0;
            }
        }
    }
}

/// An element type, by the class of a storage or by the name of the type.
fn element_type(name: &str) -> Option<ElementType> {
    Some(match name {
        "DoubleStorage" | "float64" => ElementType::F64,
        "FloatStorage" | "float32" => ElementType::F32,
        "HalfStorage" | "float16" => ElementType::F16,
        "BFloat16Storage" | "bfloat16" => ElementType::Bf16,
        "LongStorage" | "int64" => ElementType::I64,
        "IntStorage" | "int32" => ElementType::I32,
        "ShortStorage" | "int16" => ElementType::I16,
        "CharStorage" | "int8" => ElementType::I8,
        "ByteStorage" | "uint8" => ElementType::U8,
        "BoolStorage" | "bool" => ElementType::Bool,
        _ => return None,
    })
}

/// Bytes of an element of a storage, by its class.
pub(super) fn size_of_storage(class: &str) -> Option<usize> {
    Some(match class {
        "ComplexDoubleStorage" => 16,
        "ComplexFloatStorage" => 8,
        "QInt32Storage" => 4,
        "QInt8Storage" | "QUInt8Storage" | "UntypedStorage" => 1,
        other => element_type(other)?.size(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn view(offset: usize, shape: &[usize], strides: &[usize]) -> View {
        View { dtype: ElementType::F32, storage: "0".into(), offset, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn views_are_read_in_row_major_order() {
        let storage = bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let read = |view: View| view.values(&storage);
        assert_eq!(read(view(1, &[2, 3], &[3, 1])).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        // A transposed matrix, as channels_last leaves it; a scalar; an empty tensor.
        assert_eq!(read(view(0, &[3, 2], &[1, 3])).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(read(view(6, &[], &[])).unwrap(), [6.0]);
        assert_eq!(read(view(0, &[0, 5], &[5, 1])).unwrap(), [0.0; 0]);
        for outside in [view(2, &[2, 3], &[3, 1]), view(0, &[2], &[usize::MAX]), view(7, &[], &[])] {
            assert!(read(outside).unwrap_err().contains("does not lie within"));
        }
    }
}
