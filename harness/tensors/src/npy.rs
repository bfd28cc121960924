//! NumPy's `.npy`: a header in Python's notation, and the elements
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use std::{
    fs::File,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::Path,
};

use crate::array::{Array, ElementType, numel};

/// The first bytes of every file, before its version.
const MAGIC: &[u8] = b"\x93NUMPY";
/// The header ends at a multiple of this many bytes.
const ALIGNMENT: usize = 64;
/// The header has room for so many digits of rows, so that it can be written again (as NumPy's own).
const DIGITS: usize = 20;

/// Decodes the array in a file.
///
/// # Errors
/// Returns a description of the defect. An array of Python objects is refused, because reading it would require
/// executing a pickle.
pub fn parse(bytes: &[u8]) -> Result<Array, String> {
    let (header, data) = split(bytes)?;
    let (dtype, big_endian) = element_type(field(header, "descr")?.trim_matches(['\'', '"']))?;
    let fortran = match field(header, "fortran_order")? {
        "True" => true,
        "False" => false,
        other => return Err(format!("fortran_order is `{other}`")),
    };
    elements(dtype, big_endian, fortran, shape(field(header, "shape")?)?, data)
}

/// What follows the header of a file of Python objects: a pickle; `None` for any other file.
pub(crate) fn object(bytes: &[u8]) -> Option<&[u8]> {
    let (header, pickle) = split(bytes).ok()?;
    (field(header, "descr").ok()?.trim_matches(['\'', '"']) == "|O").then_some(pickle)
}

/// The header of a file, and what follows it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let cut = || "truncated in its header".to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or("not an .npy file")?;
    let [major, _minor, rest @ ..] = rest else { return Err(cut()) };
    let (length, rest) = match (major, rest) {
        (1, [a, b, rest @ ..]) => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        (2 | 3, [a, b, c, d, rest @ ..]) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        (1..=3, _) => return Err(cut()),
        _ => return Err(format!("format version {major} is not supported")),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text".to_owned())?;
    Ok((header, data))
}

/// The array of these elements, in either order of bytes and axes.
pub(crate) fn elements(
    dtype: ElementType,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
    data: &[u8],
) -> Result<Array, String> {
    let swapped;
    let data = if big_endian {
        swapped = data.chunks(dtype.size()).flat_map(|element| element.iter().rev().copied()).collect::<Vec<u8>>();
        &swapped
    } else {
        data
    };
    let needed = numel(&shape).and_then(|numel| numel.checked_mul(dtype.size()));
    let array = Array::decode(dtype, shape.clone(), data).ok_or_else(|| match needed {
        Some(needed) if needed > data.len() => {
            format!("truncated: the shape {shape:?} in {dtype} needs {needed} bytes, {} are there", data.len())
        }
        _ => format!("the shape {shape:?} in {dtype} is not what its {} bytes hold", data.len()),
    })?;
    Ok(if fortran { row_major(array) } else { array })
}

/// The bytes of a file with this array.
pub fn encode(array: &Array) -> Vec<u8> {
    // NumPy has no bf16: f32 holds it exactly.
    let data = match array.dtype {
        ElementType::Bf16 => array.values.iter().flat_map(|value| ElementType::F32.bytes(*value)).collect(),
        _ => array.bytes(),
    };
    [header(array.dtype, &array.shape), data].concat()
}

/// What a file with such an array begins with.
fn header(dtype: ElementType, shape: &[usize]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    let written = if extents.len() == 1 { format!("{},", extents[0]) } else { extents.join(", ") };
    let descr = match dtype {
        ElementType::F64 => "<f8",
        ElementType::F32 | ElementType::Bf16 => "<f4",
        ElementType::F16 => "<f2",
        ElementType::I64 => "<i8",
        ElementType::I32 => "<i4",
        ElementType::I16 => "<i2",
        ElementType::I8 => "|i1",
        ElementType::U8 => "|u1",
        ElementType::Bool => "|b1",
    };
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({written}), }}");
    let room = extents.first().map_or(0, |rows| DIGITS.saturating_sub(rows.len()));
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + room + 1).next_multiple_of(ALIGNMENT) - before;
    let header = format!("{header:<width$}\n", width = padded - 1);
    [MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), header.as_bytes()].concat()
}

/// A file with an array whose rows are written one after the other.
#[derive(Debug)]
pub struct Growing {
    file: BufWriter<File>,
    dtype: ElementType,
    /// Number of rows, and the shape of one.
    shape: Vec<usize>,
}

impl Growing {
    /// An array without rows.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn create(path: &Path, dtype: ElementType, row: &[usize]) -> io::Result<Self> {
        let shape = [&[0], row].concat();
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header(dtype, &shape))?;
        Ok(Self { file, dtype, shape })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Those of the operating system, and bytes that are no whole rows.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let row = self.shape[1..].iter().product::<usize>() * self.dtype.size();
        if row == 0 || !bytes.len().is_multiple_of(row) {
            return Err(io::Error::other(format!("{} bytes are no rows of {row}", bytes.len())));
        }
        self.shape[0] += bytes.len() / row;
        self.file.write_all(bytes)
    }

    /// Ends the file; returns the number of rows.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn finish(mut self) -> io::Result<usize> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header(self.dtype, &self.shape))?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(self.shape[0])
    }
}

/// The value of a key in the header.
fn field<'h>(header: &'h str, key: &str) -> Result<&'h str, String> {
    let missing = || format!("its header has no readable `{key}`");
    let behind = [format!("'{key}':"), format!("\"{key}\":")];
    let rest = behind.iter().find_map(|key| header.split_once(key.as_str())).ok_or_else(missing)?.1.trim_start();
    let end = if rest.starts_with('(') { rest.find(')').map(|end| end + 1) } else { rest.find([',', '}']) };
    Ok(rest[..end.ok_or_else(missing)?].trim())
}

/// Element type and whether it is big-endian.
pub(crate) fn element_type(descr: &str) -> Result<(ElementType, bool), String> {
    if descr.starts_with('[') || descr.contains('O') {
        return Err("an array of Python objects, which cannot be read without executing a pickle: save arrays of \
                    numbers, one by one or with numpy.savez"
            .to_owned());
    }
    let mut letters = descr.chars();
    let big_endian = letters.next() == Some('>');
    let dtype = match letters.as_str() {
        "f8" => ElementType::F64,
        "f4" => ElementType::F32,
        "f2" => ElementType::F16,
        "i8" => ElementType::I64,
        "i4" => ElementType::I32,
        "i2" => ElementType::I16,
        "i1" => ElementType::I8,
        "u1" => ElementType::U8,
        "b1" => ElementType::Bool,
        _ => return Err(format!("elements of type `{descr}` are not supported: save float32 or float64")),
    };
    Ok((dtype, big_endian))
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let extents = inner.map(|inner| inner.split(',').map(str::trim).filter(|extent| !extent.is_empty()));
    let shape: Option<Vec<usize>> = extents.and_then(|extents| extents.map(|extent| extent.parse().ok()).collect());
    shape.ok_or_else(|| format!("its shape is `{text}`"))
}

/// Reorders an array from column-major to row-major order.
fn row_major(array: Array) -> Array {
    let Array { dtype, shape, values } = array;
    let strides: Vec<usize> = (0..shape.len()).map(|dim| shape[..dim].iter().product()).collect();
    let mut index = vec![0; shape.len()];
    let mut ordered = Vec::with_capacity(values.len());
    for _ in 0..values.len() {
        let at: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        ordered.push(values.get(at).copied().unwrap_or(f64::NAN));
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    Array { dtype, shape, values: ordered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `numpy.save` of `numpy.array([[1, 2, 3], [4, 5, 6]], dtype, order)`.
    fn saved(descr: &str, fortran: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (2, 3), }}");
        let header = format!("{header:<117}\n");
        [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn floats(values: &[f32], bytes: fn(f32) -> [u8; 4]) -> Vec<u8> {
        values.iter().flat_map(|value| bytes(*value)).collect()
    }

    #[test]
    fn orders_and_byte_orders_are_undone() {
        let (rows, columns) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        for file in [
            saved("<f4", "False", &floats(&rows, f32::to_le_bytes)),
            saved(">f4", "False", &floats(&rows, f32::to_be_bytes)),
            saved("<f4", "True", &floats(&columns, f32::to_le_bytes)),
        ] {
            let array = parse(&file).unwrap();
            assert_eq!((array.shape, array.values), (vec![2, 3], rows.map(f64::from).to_vec()));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (shape, values) in [(vec![], vec![-3.0]), (vec![3], vec![1.0, 0.0, 2.0]), (vec![0, 4], vec![])] {
            for dtype in [ElementType::F64, ElementType::F16, ElementType::I64, ElementType::I32, ElementType::I8] {
                let array = Array { dtype, shape: shape.clone(), values: values.clone() };
                let bytes = encode(&array);
                assert_eq!((bytes.len() - values.len() * dtype.size()) % ALIGNMENT, 0);
                assert_eq!(parse(&bytes).unwrap(), array);
            }
        }
    }

    #[test]
    fn an_array_grows_by_rows() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut growing = Growing::create(path.path(), ElementType::F32, &[2]).unwrap();
        let rows = 123;
        for row in 0..rows {
            growing.push(&floats(&[row as f32, 0.5], f32::to_le_bytes)).unwrap();
        }
        assert!(growing.push(&[0; 4]).is_err());
        assert_eq!(growing.finish().unwrap(), rows);
        let array = parse(&std::fs::read(path.path()).unwrap()).unwrap();
        assert_eq!((array.shape, array.values[244]), (vec![rows, 2], 122.0));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = saved("<f4", "False", &floats(&[0.0; 6], f32::to_le_bytes));
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end}");
        }
        assert!(parse(&whole[..whole.len() - 1]).unwrap_err().contains("truncated"));
    }

    #[test]
    fn python_objects_are_refused_unread() {
        let pickle = saved("|O", "False", b"\x80\x04cposix\nsystem\n(X\x04\x00\x00\x00truetR.");
        assert!(parse(&pickle).unwrap_err().contains("Python objects"));
        assert!(parse(&saved("<V2", "False", &[0; 12])).unwrap_err().contains("save float32"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(place in 0usize..160, byte: u8) {
            let mut file = saved("<f4", "True", &floats(&[0.5; 6], f32::to_le_bytes));
            if let Some(changed) = file.get_mut(place) {
                *changed = byte;
            }
            let _ = parse(&file);
        }
    }
}
