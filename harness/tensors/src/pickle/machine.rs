//! The machine whose instructions a pickle is (those of Python's pickletools).

use super::{Class, Id, Object, Value};
use std::{collections::HashMap, ops::Range};

/// Most values. A tensor takes about 20.
const MOST_VALUES: usize = 32 << 20;

/// All values of a pickle, the place of its object, and the place behind it.
pub(super) fn interpret(bytes: &[u8]) -> Result<(Vec<Value>, Id, usize), String> {
    if bytes.len() > u32::MAX as usize {
        return Err("a pickle of more than 4 GiB".to_owned());
    }
    let values = vec![Value::None, Value::Bool(false), Value::Bool(true), Value::Mark, Value::Opaque];
    let mut machine = Machine { bytes, place: 0, values, stack: Vec::new(), memo: HashMap::new() };
    let root = machine.run().map_err(|reason| format!("at byte {} of its pickle: {reason}", machine.place))?;
    Ok((machine.values, root, machine.place))
}

/// Values that need no place of their own.
const NONE: Id = Id(0);
const FALSE: Id = Id(1);
const TRUE: Id = Id(2);
const MARK: Id = Id(3);
const OPAQUE: Id = Id(4);

/// Classes whose objects are dictionaries, and that pickles make by a call.
const DICTIONARIES: [(&str, &str); 3] =
    [("collections", "OrderedDict"), ("collections", "defaultdict"), ("collections", "Counter")];

struct Machine<'b> {
    bytes: &'b [u8],
    place: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    memo: HashMap<usize, Id>,
}

impl Machine<'_> {
    fn take(&mut self, count: usize) -> Result<Range<u32>, String> {
        let end = self.place.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or("truncated")?;
        let range = self.place as u32..end as u32;
        self.place = end;
        Ok(range)
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// A little-endian number of so many bytes, at most eight.
    fn number(&mut self, bytes: usize) -> Result<usize, String> {
        let range = self.take(bytes)?;
        let number = self.slice(&range).iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).map_err(|_| "a number that is too large".to_owned())
    }

    /// A line, without its end.
    fn line(&mut self) -> Result<Range<u32>, String> {
        let length = self.bytes[self.place..].iter().position(|byte| *byte == b'\n').ok_or("truncated")?;
        let line = self.take(length)?;
        self.take(1)?;
        Ok(line)
    }

    fn told(&self, range: &Range<u32>) -> Result<String, String> {
        String::from_utf8(self.slice(range).to_vec()).map_err(|_| "a name that is not UTF-8".to_owned())
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        if self.values.len() >= MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values"));
        }
        self.stack.push(Id(self.values.len() as u32));
        self.values.push(value);
        Ok(())
    }

    fn text(&mut self, range: Range<u32>) -> Result<(), String> {
        if std::str::from_utf8(self.slice(&range)).is_err() {
            self.stack.push(OPAQUE);
            return Ok(());
        }
        self.push(Value::Text(range))
    }

    fn pop(&mut self) -> Result<Id, String> {
        self.stack.pop().filter(|id| *id != MARK).ok_or_else(|| "a value is missing".to_owned())
    }

    fn top(&self) -> Result<Id, String> {
        self.stack.last().copied().ok_or_else(|| "a value is missing".to_owned())
    }

    fn value_mut(&mut self, id: Id) -> Result<&mut Value, String> {
        self.values.get_mut(id.0 as usize).ok_or_else(|| "a value is missing".to_owned())
    }

    /// What lies above the last mark.
    fn marked(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.stack.iter().rposition(|id| *id == MARK).ok_or("a mark is missing")?;
        let above = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(above)
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let from = self.stack.len().checked_sub(count).ok_or("a value is missing")?;
        let parts = self.stack.split_off(from);
        self.push(Value::Tuple(parts))
    }

    fn remember(&mut self, key: usize) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: usize) -> Result<(), String> {
        let id = self.memo.get(&key).copied().ok_or("a value that was not kept")?;
        self.stack.push(id);
        Ok(())
    }

    /// Appends to a list; objects of other classes keep no items of their own.
    fn append(&mut self, items: Vec<Id>) -> Result<(), String> {
        let list = self.top()?;
        match self.value_mut(list)? {
            Value::List(list) => list.extend(items),
            Value::Object(_) => {}
            _ => return Err("it appends to what is no list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Id]) -> Result<(), String> {
        let dictionary = self.top()?;
        let pairs = items.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match self.value_mut(dictionary)? {
            Value::Dict(entries) => entries.extend(pairs),
            Value::Object(object) => object.items.extend(pairs),
            _ => return Err("it sets keys of what is no dictionary".to_owned()),
        }
        Ok(())
    }

    fn global(&mut self, module: String, name: String) -> Result<(), String> {
        self.push(Value::Class(Box::new(Class { module, name })))
    }

    /// An object of a class, of which nothing is executed.
    fn make(&mut self, class: Id, args: Id) -> Result<(), String> {
        let is_dictionary = |class: &Class| DICTIONARIES.contains(&(class.module.as_str(), class.name.as_str()));
        if matches!(&self.values[class.0 as usize], Value::Class(class) if is_dictionary(class)) {
            let pairs = self.pairs(args);
            return self.push(Value::Dict(pairs));
        }
        self.push(Value::Object(Box::new(Object { class, args, state: None, items: Vec::new() })))
    }

    /// The items of a dictionary that is made from a list of pairs, as Python 2 does it.
    fn pairs(&self, args: Id) -> Vec<(Id, Id)> {
        let value = |id: Id| &self.values[id.0 as usize];
        let Value::Tuple(args) = value(args) else { return Vec::new() };
        let Some(Value::List(list)) = args.first().map(|list| value(*list)) else { return Vec::new() };
        let pair = |id: &Id| match value(*id) {
            Value::List(pair) | Value::Tuple(pair) if pair.len() == 2 => Some((pair[0], pair[1])),
            _ => None,
        };
        list.iter().filter_map(pair).collect()
    }

    /// Sets the attributes of an object. Those of a dictionary are no items.
    fn build(&mut self) -> Result<(), String> {
        let (state, object) = (self.pop()?, self.top()?);
        if let Value::Object(object) = self.value_mut(object)? {
            object.state = Some(state);
        }
        Ok(())
    }

    /// A number in decimal digits.
    fn decimal(&mut self) -> Result<(), String> {
        let line = self.line()?;
        let digits = self.told(&line)?;
        match (digits.as_str(), digits.trim_end_matches('L').parse()) {
            ("00", _) => self.stack.push(FALSE),
            ("01", _) => self.stack.push(TRUE),
            (_, Ok(number)) => return self.push(Value::Int(number)),
            (_, Err(_)) => self.stack.push(OPAQUE),
        }
        Ok(())
    }

    /// An integer of so many bytes, with a sign.
    fn long(&mut self, length: usize) -> Result<(), String> {
        let range = self.take(length)?;
        let bytes = self.slice(&range);
        if bytes.len() > size_of::<i64>() {
            self.stack.push(OPAQUE);
            return Ok(());
        }
        let fill = if bytes.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
        let mut whole = [fill; size_of::<i64>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(whole)))
    }

    /// The place of the object that the pickle describes.
    fn run(&mut self) -> Result<Id, String> {
        loop {
            let code = self.number(1)? as u8;
            match code {
                // PROTO, FRAME
                0x80 => _ = self.take(1)?,
                0x95 => _ = self.take(8)?,
                b'.' => return self.pop(),
                b'N' => self.stack.push(NONE),
                0x88 => self.stack.push(TRUE),
                0x89 => self.stack.push(FALSE),
                b'(' => self.stack.push(MARK),
                b'0' => _ = self.stack.pop().ok_or("a value is missing")?,
                b'1' => _ = self.marked()?,
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                b'K' | b'M' => {
                    let number = self.number(if code == b'K' { 1 } else { 2 })?;
                    self.push(Value::Int(number as i64))?;
                }
                b'J' => self.long(4)?,
                b'I' | b'L' => self.decimal()?,
                // LONG1, LONG4
                0x8a | 0x8b => {
                    let length = self.number(if code == 0x8a { 1 } else { 4 })?;
                    self.long(length)?;
                }
                // Fractions, in eight bytes or in digits.
                b'G' => {
                    self.take(8)?;
                    self.stack.push(OPAQUE);
                }
                b'F' => {
                    self.line()?;
                    self.stack.push(OPAQUE);
                }
                // Texts with a length of 1, 4 or 8 bytes; those of Python 2 are bytes.
                0x8c | b'U' | b'X' | b'T' | 0x8d => {
                    let length = self.number(length_of(code))?;
                    let range = self.take(length)?;
                    self.text(range)?;
                }
                // A text as a line, in quotes or without.
                b'S' | b'V' => {
                    let line = self.line()?;
                    let quoted = code == b'S' && line.len() >= 2;
                    let range = if quoted { line.start + 1..line.end - 1 } else { line };
                    self.text(range)?;
                }
                b'C' | b'B' | 0x8e | 0x96 => {
                    let length = self.number(length_of(code))?;
                    let range = self.take(length)?;
                    self.push(Value::Bytes(range))?;
                }
                b')' => self.push(Value::Tuple(Vec::new()))?,
                b']' => self.push(Value::List(Vec::new()))?,
                b'}' => self.push(Value::Dict(Vec::new()))?,
                // EMPTY_SET, ADDITEMS, FROZENSET
                0x8f => self.push(Value::List(Vec::new()))?,
                0x90 => {
                    let items = self.marked()?;
                    self.append(items)?;
                }
                0x91 => {
                    let items = self.marked()?;
                    self.push(Value::List(items))?;
                }
                0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
                b't' => {
                    let parts = self.marked()?;
                    self.push(Value::Tuple(parts))?;
                }
                b'l' => {
                    let parts = self.marked()?;
                    self.push(Value::List(parts))?;
                }
                b'd' => {
                    let items = self.marked()?;
                    self.push(Value::Dict(Vec::new()))?;
                    self.set(&items)?;
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
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(&[key, value])?;
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
                b'p' | b'g' => {
                    let line = self.line()?;
                    let key = self.told(&line)?.parse().map_err(|_| "a place that is no number")?;
                    if code == b'p' { self.remember(key)? } else { self.recall(key)? }
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    let (module, name) = (self.told(&module)?, self.told(&name)?);
                    self.global(module, name)?;
                }
                // STACK_GLOBAL
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let told = |id: Id| match &self.values[id.0 as usize] {
                        Value::Text(range) => self.told(range),
                        _ => Err("the name of a function is no text".to_owned()),
                    };
                    let (module, name) = (told(module)?, told(name)?);
                    self.global(module, name)?;
                }
                // REDUCE, NEWOBJ
                b'R' | 0x81 => {
                    let (args, class) = (self.pop()?, self.pop()?);
                    self.make(class, args)?;
                }
                // NEWOBJ_EX
                0x92 => {
                    let (_, args, class) = (self.pop()?, self.pop()?, self.pop()?);
                    self.make(class, args)?;
                }
                // OBJ, INST
                b'o' => {
                    let mut parts = self.marked()?;
                    let args = parts.split_off(parts.len().min(1));
                    let class = *parts.first().ok_or("a class is missing")?;
                    self.push(Value::Tuple(args))?;
                    let args = self.pop()?;
                    self.make(class, args)?;
                }
                b'i' => {
                    let (module, name) = (self.line()?, self.line()?);
                    let (module, name) = (self.told(&module)?, self.told(&name)?);
                    let args = self.marked()?;
                    self.global(module, name)?;
                    self.push(Value::Tuple(args))?;
                    let (args, class) = (self.pop()?, self.pop()?);
                    self.make(class, args)?;
                }
                b'b' => self.build()?,
                b'Q' => {
                    let id = self.pop()?;
                    self.push(Value::Persistent(id))?;
                }
                // PERSID, EXT1, EXT2, EXT4, NEXT_BUFFER
                b'P' => {
                    self.line()?;
                    self.stack.push(OPAQUE);
                }
                0x82..=0x84 => {
                    self.take(1 << (code - 0x82))?;
                    self.stack.push(OPAQUE);
                }
                0x97 => self.stack.push(OPAQUE),
                // READONLY_BUFFER
                0x98 => {}
                other => return Err(format!("instruction {other:#x}, which no pickle has")),
            }
        }
    }
}

/// Bytes of the length before a text or bytes.
fn length_of(code: u8) -> usize {
    match code {
        0x8c | b'U' | b'C' => 1,
        b'X' | b'T' | b'B' => 4,
        _ => 8,
    }
}
