//! A dictionary of arrays, as `numpy.save(path, {"name": array})` writes it, and reprod_log with it: an `.npy` file of
//! one Python object, which is a pickle.
//!
//! Of the functions that a pickle names, NumPy's constructors of arrays and element types are understood. Nothing is
//! called.

use std::borrow::Cow;

use crate::array::{Array, ElementType};
use crate::npy;
use crate::pickle::{Id, Pickle, Value};

/// Whether an `.npy` file holds Python objects, by its first bytes.
pub fn is_one(start: &[u8]) -> bool {
    npy::object(start).is_some()
}

/// The arrays of a dictionary, by name, in its order.
///
/// # Errors
/// What is wrong with the file, or what it would need to execute.
pub fn parse(bytes: &[u8]) -> Result<Vec<(String, Array)>, String> {
    let pickle = npy::object(bytes).ok_or("not an .npy file of Python objects")?;
    let pickle = Pickle::read(pickle.to_vec())?;
    let [dictionary] = objects(&pickle)? else { return Err(NO_DICTIONARY.to_owned()) };
    let Value::Dict(entries) = pickle.value(*dictionary) else { return Err(NO_DICTIONARY.to_owned()) };
    let entry = |(key, value): &(Id, Id)| {
        let name = pickle.text(*key).ok_or("a key of its dictionary is no text")?;
        let array = array(&pickle, *value)?.ok_or_else(|| format!("`{name}` is no array of numbers"))?;
        Ok((name.to_owned(), array))
    };
    entries.iter().map(entry).collect()
}

const NO_DICTIONARY: &str = "its object is no dictionary of arrays";

/// NumPy's modules before and since NumPy 2.
const MODULES: [&str; 2] = ["numpy.core.multiarray", "numpy._core.multiarray"];

/// The elements of the array of objects that the file holds.
fn objects(pickle: &Pickle) -> Result<&[Id], String> {
    let root = pickle.root();
    if let Some([_, _, _, _, list]) = array_state(pickle, root)
        && let Value::List(objects) = pickle.value(*list)
    {
        return Ok(objects);
    }
    Err(not_numpy(pickle, root).unwrap_or_else(|| NO_DICTIONARY.to_owned()))
}

/// What NumPy fills an array from: version, shape, element type, order, elements.
fn array_state(pickle: &Pickle, id: Id) -> Option<&[Id]> {
    let (class, _) = pickle.call(id)?;
    let is_array = MODULES.contains(&class.module.as_str()) && class.name == "_reconstruct";
    pickle.tuple(pickle.state(id).filter(|_| is_array)?)
}

/// Why an object is not read: it is made by something else than NumPy.
fn not_numpy(pickle: &Pickle, id: Id) -> Option<String> {
    let (class, _) = pickle.call(id)?;
    let is_numpy = MODULES.contains(&class.module.as_str());
    (!is_numpy).then(|| format!("it calls `{}.{}`, and nothing in a file is executed", class.module, class.name))
}

/// An array, or a number of NumPy; `None` for another object.
fn array(pickle: &Pickle, id: Id) -> Result<Option<Array>, String> {
    if let Some([_, shape, dtype, fortran, data]) = array_state(pickle, id) {
        let shape = pickle.tuple(*shape).ok_or("a shape that is no tuple")?;
        let extent = |id: &Id| pickle.extent(*id).ok_or("an extent that is no number".to_owned());
        let shape = shape.iter().map(extent).collect::<Result<Vec<usize>, String>>()?;
        let Value::Bool(fortran) = pickle.value(*fortran) else {
            return Err("an order that is no switch".to_owned());
        };
        return elements(pickle, *dtype, *fortran, shape, *data).map(Some);
    }
    match pickle.call(id) {
        Some((class, [dtype, data])) if MODULES.contains(&class.module.as_str()) && class.name == "scalar" => {
            elements(pickle, *dtype, false, Vec::new(), *data).map(Some)
        }
        _ => not_numpy(pickle, id).map_or(Ok(None), Err),
    }
}

fn elements(pickle: &Pickle, dtype: Id, fortran: bool, shape: Vec<usize>, data: Id) -> Result<Array, String> {
    let without = "an array without elements";
    let (dtype, big_endian): (ElementType, bool) = npy::element_type(&descr(pickle, dtype).ok_or(without)?)?;
    npy::elements(dtype, big_endian, fortran, shape, &bytes(pickle, data).ok_or(without)?)
}

/// An element type as an `.npy` file writes it: the byte order, and letters.
fn descr(pickle: &Pickle, id: Id) -> Option<String> {
    let (class, args) = pickle.call(id)?;
    let letters = pickle.text(*args.first()?).filter(|_| class.module == "numpy" && class.name == "dtype")?;
    let order = pickle.state(id).and_then(|state| pickle.text(*pickle.tuple(state)?.get(1)?)).unwrap_or("<");
    Some(format!("{order}{letters}"))
}

/// Bytes; before protocol 3 they are a text in Latin-1.
fn bytes(pickle: &Pickle, id: Id) -> Option<Cow<'_, [u8]>> {
    if let Value::Bytes(range) = pickle.value(id) {
        return Some(Cow::Borrowed(pickle.slice(range)));
    }
    let (class, args) = pickle.call(id)?;
    let text = pickle.text(*args.first()?).filter(|_| class.module == "_codecs" && class.name == "encode")?;
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect::<Option<Vec<u8>>>().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `ReprodLogger` of reprod_log 1.0.1 with NumPy 2.4.6: out/conv1#0, loss, grad/fc.bias.
    const WRITTEN: &[u8] = include_bytes!("../../../tests/fixtures/recordings/reprod_log.npy");

    fn f32(shape: &[usize], values: &[f64]) -> Array {
        Array { dtype: ElementType::F32, shape: shape.to_vec(), values: values.to_vec() }
    }

    #[test]
    fn what_reprod_log_writes_is_read() {
        let found = parse(WRITTEN).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["out/conv1#0", "loss", "grad/fc.bias"]);
        assert_eq!(found[0].1, f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        assert_eq!(found[1].1, f32(&[1], &[1.5]));
        assert_eq!(found[2].1, f32(&[3], &[1.0; 3]));
        assert!(is_one(&WRITTEN[..128]) && !is_one(&npy::encode(&found[1].1)));
    }

    #[test]
    fn protocol_3_is_read() {
        let pickle: &[u8] = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\nq\x01K\x00\x85q\x02C\x01bq\x03\
            \x87q\x04Rq\x05(K\x01)cnumpy\ndtype\nq\x06X\x02\x00\x00\x00O8q\x07K\x00K\x01\x87q\x08Rq\x09(K\x03X\x01\x00\x00\x00|q\x0a\
            NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tq\x0bb\x89]q\x0c}q\x0dX\x01\x00\x00\x00aq\x0eh\x00h\x01K\x00\x85q\x0fh\x03\x87q\x10\
            Rq\x11(K\x01K\x02\x85q\x12h\x06X\x02\x00\x00\x00i2q\x13K\x00K\x01\x87q\x14Rq\x15(K\x03X\x01\x00\x00\x00>q\x16NNN\
            J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x17b\x89C\x04\x01\x00\x00\x02tq\x18bsatb.";
        let found = parse(&[&WRITTEN[..128], pickle].concat()).unwrap();
        let wanted = Array { dtype: ElementType::I16, shape: vec![2], values: vec![256.0, 2.0] };
        assert_eq!(found, [("a".to_owned(), wanted)]);
    }

    #[test]
    fn nothing_is_executed() {
        let evil = b"\x80\x03cos\nsystem\nX\x02\x00\x00\x00ls\x85R.";
        let said = parse(&[&WRITTEN[..128], evil].concat()).unwrap_err();
        assert!(said.contains("it calls `os.system`, and nothing in a file is executed"), "{said}");
    }

    #[test]
    fn every_truncation_is_an_error() {
        for end in 0..WRITTEN.len() {
            assert!(parse(&WRITTEN[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_changed_byte_panics(place in 128..WRITTEN.len(), byte: u8) {
            let mut bytes = WRITTEN.to_vec();
            bytes[place] = byte;
            let _ = parse(&bytes);
        }
    }
}
