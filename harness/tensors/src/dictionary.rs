//! A dictionary of arrays, as `numpy.save(path, {"name": array})` writes it, and reprod_log with it: an `.npy` file of
//! one Python object, which is a pickle.
//!
//! Of a pickle, only what describes such a dictionary is interpreted: the instructions of pickletools that NumPy
//! writes, and of functions NumPy's constructors of arrays and element types. Nothing is called, and each instruction
//! adds at most one value, so that memory grows with the file alone.

use std::collections::HashMap;

use crate::array::{Array, ElementType};
use crate::npy;

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
    let mut machine = Machine { bytes: pickle, place: 0, values: Vec::new(), stack: Vec::new(), memo: HashMap::new() };
    let root = machine.run().map_err(|reason| format!("at byte {} of its pickle: {reason}", machine.place))?;
    let Value::Objects(objects) = machine.value(root)? else { return Err(NO_DICTIONARY.to_owned()) };
    let [dictionary] = objects[..] else { return Err(NO_DICTIONARY.to_owned()) };
    let Value::Dict(entries) = machine.value(dictionary)? else { return Err(NO_DICTIONARY.to_owned()) };
    let entry = |(key, value): &(usize, usize)| {
        let Value::Text(name) = machine.value(*key)? else {
            return Err("a key of its dictionary is no text".to_owned());
        };
        match machine.value(*value)? {
            Value::Array(array) => Ok((name.clone(), array.clone())),
            _ => Err(format!("`{name}` is no array of numbers")),
        }
    };
    entries.iter().map(entry).collect()
}

const NO_DICTIONARY: &str = "its object is no dictionary of arrays";

/// A value; parts are places in [`Machine::values`].
#[derive(Clone, Debug)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    Text(String),
    Bytes(std::ops::Range<usize>),
    Tuple(Vec<usize>),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    /// Makes an array to be filled.
    Reconstruct,
    /// Makes an array of one number.
    Scalar,
    /// The classes.
    ArrayClass,
    DtypeClass,
    /// An element type, with the byte order before its letters.
    Dtype(String),
    /// An array to be filled.
    Empty,
    Array(Array),
    /// An array of Python objects.
    Objects(Vec<usize>),
    /// What several values are counted from.
    Mark,
}

struct Machine<'b> {
    bytes: &'b [u8],
    place: usize,
    values: Vec<Value>,
    stack: Vec<usize>,
    memo: HashMap<usize, usize>,
}

impl Machine<'_> {
    fn value(&self, place: usize) -> Result<&Value, String> {
        self.values.get(place).ok_or_else(|| "a value that is not there".to_owned())
    }

    fn take(&mut self, count: usize) -> Result<std::ops::Range<usize>, String> {
        let end = self.place.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or("truncated")?;
        let range = self.place..end;
        self.place = end;
        Ok(range)
    }

    /// A little-endian number of so many bytes.
    fn number(&mut self, bytes: usize) -> Result<usize, String> {
        let range = self.take(bytes)?;
        let number =
            self.bytes[range].iter().rev().try_fold(0u64, |n, byte| n.checked_mul(256)?.checked_add(u64::from(*byte)));
        number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| "a number that is too large".to_owned())
    }

    fn text(&mut self, length: usize) -> Result<String, String> {
        let range = self.take(length)?;
        String::from_utf8(self.bytes[range].to_vec()).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    fn line(&mut self) -> Result<String, String> {
        let length = self.bytes[self.place..].iter().position(|byte| *byte == b'\n').ok_or("truncated")?;
        let line = self.text(length)?;
        self.take(1)?;
        Ok(line)
    }

    fn push(&mut self, value: Value) {
        self.values.push(value);
        self.stack.push(self.values.len() - 1);
    }

    fn pop(&mut self) -> Result<usize, String> {
        self.stack.pop().ok_or_else(|| "a value is missing".to_owned())
    }

    fn last(&self, count: usize) -> Result<usize, String> {
        self.stack.len().checked_sub(count).ok_or_else(|| "a value is missing".to_owned())
    }

    /// What lies above the last mark.
    fn marked(&mut self) -> Result<Vec<usize>, String> {
        let is_mark = |place: &usize| matches!(self.values.get(*place), Some(Value::Mark));
        let mark = self.stack.iter().rposition(is_mark).ok_or("a mark is missing")?;
        let above = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(above)
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let from = self.last(count)?;
        let parts = self.stack.split_off(from);
        self.push(Value::Tuple(parts));
        Ok(())
    }

    fn remember(&mut self, key: usize) -> Result<(), String> {
        let top = *self.stack.last().ok_or("a value is missing")?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: usize) -> Result<(), String> {
        let place = self.memo.get(&key).copied().ok_or("a value that was not kept")?;
        self.stack.push(place);
        Ok(())
    }

    fn append(&mut self, items: Vec<usize>) -> Result<(), String> {
        let list = *self.stack.last().ok_or("a value is missing")?;
        match self.values.get_mut(list) {
            Some(Value::List(list)) => list.extend(items),
            _ => return Err("it appends to what is no list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, items: &[usize]) -> Result<(), String> {
        let dictionary = *self.stack.last().ok_or("a value is missing")?;
        match self.values.get_mut(dictionary) {
            Some(Value::Dict(entries)) if items.len().is_multiple_of(2) => {
                entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return Err("it sets keys of what is no dictionary".to_owned()),
        }
        Ok(())
    }

    /// The place of the object that the pickle describes.
    fn run(&mut self) -> Result<usize, String> {
        loop {
            let code = self.number(1)? as u8;
            match code {
                // PROTO, FRAME
                0x80 => _ = self.take(1)?,
                0x95 => _ = self.take(8)?,
                b'N' => self.push(Value::None),
                0x88 => self.push(Value::Bool(true)),
                0x89 => self.push(Value::Bool(false)),
                b'K' => {
                    let number = self.number(1)?;
                    self.push(Value::Int(number as i64));
                }
                b'M' => {
                    let number = self.number(2)?;
                    self.push(Value::Int(number as i64));
                }
                b'J' => {
                    let number = self.number(4)?;
                    self.push(Value::Int(i64::from(number as u32 as i32)));
                }
                // LONG1
                0x8a => {
                    let length = self.number(1)?;
                    let number = self.number(length)?;
                    self.push(Value::Int(i64::try_from(number).map_err(|_| "a number that is too large")?));
                }
                // Texts and bytes, with a length of 1, 4 or 8 bytes.
                0x8c | b'X' | 0x8d => {
                    let length = self.number(if code == 0x8c {
                        1
                    } else if code == b'X' {
                        4
                    } else {
                        8
                    })?;
                    let text = self.text(length)?;
                    self.push(Value::Text(text));
                }
                b'C' | b'B' | 0x8e => {
                    let length = self.number(if code == b'C' {
                        1
                    } else if code == b'B' {
                        4
                    } else {
                        8
                    })?;
                    let range = self.take(length)?;
                    self.push(Value::Bytes(range));
                }
                b'(' => self.push(Value::Mark),
                b')' => self.push(Value::Tuple(Vec::new())),
                b']' => self.push(Value::List(Vec::new())),
                b'}' => self.push(Value::Dict(Vec::new())),
                0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
                b't' => {
                    let parts = self.marked()?;
                    self.push(Value::Tuple(parts));
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.marked()?;
                    self.append(items)?;
                }
                b's' => {
                    let from = self.last(2)?;
                    let pair = self.stack.split_off(from);
                    self.set(&pair)?;
                }
                b'u' => {
                    let items = self.marked()?;
                    self.set(&items)?;
                }
                0x94 => self.remember(self.memo.len())?,
                b'q' | b'r' => {
                    let key = self.number(if code == b'q' { 1 } else { 4 })?;
                    self.remember(key)?;
                }
                b'h' | b'j' => {
                    let key = self.number(if code == b'h' { 1 } else { 4 })?;
                    self.recall(key)?;
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    let value = global(&module, &name)?;
                    self.push(value);
                }
                // STACK_GLOBAL
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (Value::Text(module), Value::Text(name)) = (self.value(module)?, self.value(name)?) else {
                        return Err("the name of a function is no text".to_owned());
                    };
                    let value = global(module, name)?;
                    self.push(value);
                }
                b'R' => self.reduce()?,
                b'b' => self.build()?,
                b'.' => return self.pop(),
                other => return Err(format!("instruction {other:#x}, which no dictionary of arrays needs")),
            }
        }
    }

    /// A call of one of the known functions.
    fn reduce(&mut self) -> Result<(), String> {
        let (given, function) = (self.pop()?, self.pop()?);
        let Value::Tuple(given) = self.value(given)?.clone() else { return Err("a call without arguments".to_owned()) };
        let made = match (self.value(function)?, &given[..]) {
            (Value::Reconstruct, [class, ..]) if matches!(self.value(*class)?, Value::ArrayClass) => Value::Empty,
            (Value::DtypeClass, [letters, ..]) => match self.value(*letters)? {
                Value::Text(letters) => Value::Dtype(format!("<{letters}")),
                _ => return Err("an element type that is no text".to_owned()),
            },
            (Value::Scalar, [dtype, bytes]) => Value::Array(self.array(*dtype, Vec::new(), false, *bytes)?),
            _ => return Err("a call of what is no function".to_owned()),
        };
        self.push(made);
        Ok(())
    }

    /// Fills an array, or gives an element type its byte order.
    fn build(&mut self) -> Result<(), String> {
        let (state, object) = (self.pop()?, *self.stack.last().ok_or("a value is missing")?);
        let Value::Tuple(state) = self.value(state)?.clone() else { return Err("a state that is no tuple".to_owned()) };
        let built = match (self.value(object)?, &state[..]) {
            (Value::Empty, [_, shape, dtype, fortran, data]) => {
                let Value::Tuple(extents) = self.value(*shape)? else {
                    return Err("a shape that is no tuple".to_owned());
                };
                let extent = |place: &usize| match self.value(*place)? {
                    Value::Int(extent) => usize::try_from(*extent).map_err(|_| "a negative extent".to_owned()),
                    _ => Err("an extent that is no number".to_owned()),
                };
                let extents = extents.iter().map(extent).collect::<Result<Vec<usize>, String>>()?;
                let Value::Bool(fortran) = self.value(*fortran)? else {
                    return Err("an order that is no switch".to_owned());
                };
                match self.value(*data)? {
                    Value::List(objects) => Value::Objects(objects.clone()),
                    _ => Value::Array(self.array(*dtype, extents, *fortran, *data)?),
                }
            }
            (Value::Dtype(letters), [_, order, ..]) => match self.value(*order)? {
                Value::Text(order) => Value::Dtype(format!("{order}{}", letters.get(1..).unwrap_or_default())),
                _ => return Err("a byte order that is no text".to_owned()),
            },
            _ => return Err("a state of what is no array".to_owned()),
        };
        self.values[object] = built;
        Ok(())
    }

    fn array(&self, dtype: usize, shape: Vec<usize>, fortran: bool, data: usize) -> Result<Array, String> {
        let (Value::Dtype(descr), Value::Bytes(range)) = (self.value(dtype)?, self.value(data)?) else {
            return Err("an array without elements".to_owned());
        };
        let (dtype, big_endian): (ElementType, bool) = npy::element_type(descr)?;
        npy::elements(dtype, big_endian, fortran, shape, &self.bytes[range.clone()])
    }
}

fn global(module: &str, name: &str) -> Result<Value, String> {
    match (module, name) {
        ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Ok(Value::Reconstruct),
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Ok(Value::Scalar),
        ("numpy", "ndarray") => Ok(Value::ArrayClass),
        ("numpy", "dtype") => Ok(Value::DtypeClass),
        _ => Err(format!("it calls `{module}.{name}`, and nothing in a file is executed")),
    }
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
