//! Expressions call by call: what is called is looked up in the table, whatever it is part of.

use super::words::{self, Call};
use crate::python::code::{Binding, Code, Piece};

/// Attributes that tensors and cells of both frameworks have.
const ATTRIBUTES: [&str; 4] = ["shape", "ndim", "training", "requires_grad"];

/// Functions of Python.
const PYTHON: [&str; 7] = ["range", "len", "sum", "min", "max", "int", "parameters"];

/// An expression in MindSpore's words.
pub(super) fn rewritten(code: &Code, helpers: &mut Vec<&'static str>) -> Result<Code, String> {
    let mut pieces = Vec::new();
    for piece in exploded(&code.pieces)? {
        match piece {
            Piece::List(open, items, close) => {
                let (before, name) = match pieces.last() {
                    Some(Piece::Text(before)) if open == "(" => called(before),
                    _ => ("", ""),
                };
                let (before, name) = (before.to_owned(), name.to_owned());
                let kept = items.iter().filter(|item| !words::drops(&name, item));
                let items = kept.map(|item| rewritten(item, helpers)).collect::<Result<Vec<_>, _>>()?;
                if name.is_empty() {
                    if matches!(pieces.last(), Some(Piece::Child(_))) {
                        words::expect_operands(&items)?;
                    }
                    pieces.push(Piece::List(open, items, close));
                    continue;
                }
                let call = Call::of(&name, items);
                let mut call = if is_known(&name) { call.code() } else { words::called(call, helpers)? };
                pieces.pop();
                pieces.extend((!before.is_empty()).then_some(Piece::Text(before)));
                if name.starts_with('.') && !matches!(call.pieces.first(), Some(Piece::Text(to)) if to.starts_with('.'))
                {
                    // A method that is a function there: of all that stands before it.
                    let receiver = Code { pieces: std::mem::take(&mut pieces), binding: Binding::Tight };
                    if receiver.flat().contains(' ') {
                        return Err(super::unwritten(name.trim_start_matches('.')));
                    }
                    if let Some(Piece::List(_, arguments, _)) = call.pieces.last_mut() {
                        arguments.insert(0, receiver);
                    }
                }
                pieces.extend(call.pieces);
            }
            Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) => pieces.push(piece),
            // What is in a row was written before.
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => pieces.push(piece),
        }
    }
    Ok(Code { pieces, binding: code.binding })
}

/// Whether a function needs no translation: those of Python, and of the program.
fn is_known(name: &str) -> bool {
    PYTHON.contains(&name) || super::helpers::named(name).is_some()
}

/// What is called, at the end of a text: a method, or a function with the modules that it is in.
fn called(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let start = text.rfind(|c| !is_part(c)).map_or(0, |place| place + 1);
    let path = &text[start..];
    let of_module = ["torch.", "functional.", "nn.", "math."].iter().any(|module| path.starts_with(module));
    let start = match path.rfind('.') {
        Some(dot) if !of_module => start + dot,
        _ => start,
    };
    text.split_at(start)
}

/// With calls inside of texts taken apart.
fn exploded(pieces: &[Piece]) -> Result<Vec<Piece>, String> {
    let mut all = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => {
                let calls = matches!(pieces.get(index + 1), Some(Piece::List("(", ..)));
                parse(text, calls, &mut all)?;
            }
            Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => all.push(piece.clone()),
            Piece::Child(_) | Piece::New(_) | Piece::Row(..) => all.push(piece.clone()),
        }
    }
    Ok(all)
}

/// A text as pieces; if it `calls` what comes behind it, it ends with a name.
fn parse(text: &str, calls: bool, all: &mut Vec<Piece>) -> Result<(), String> {
    let bytes = text.as_bytes();
    let is_part = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'.';
    let (mut start, mut place) = (0, 0);
    while place < bytes.len() {
        match bytes[place] {
            b'"' => place = text[place + 1..].find('"').map_or(bytes.len(), |end| place + end + 2),
            c if is_part(c) => {
                let first = place;
                while place < bytes.len() && is_part(bytes[place]) {
                    place += 1;
                }
                let path = &text[first..place];
                let is_number = c.is_ascii_digit() || c == b'.' && path[1..].starts_with(|c: char| c.is_ascii_digit());
                if is_number || place == bytes.len() && calls {
                    continue;
                }
                if bytes.get(place) != Some(&b'(') {
                    let known = attribute(path)?;
                    if known != path {
                        all.push(Piece::Text(format!("{}{known}", &text[start..first])));
                        start = place;
                    }
                    continue;
                }
                let close = closing(text, place).ok_or_else(|| super::unwritten(path))?;
                all.push(Piece::Text(text[start..place].to_owned()));
                let inner = split(&text[place + 1..close]);
                all.push(Piece::List("(", inner.into_iter().map(Code::text).collect(), ")"));
                (start, place) = (close + 1, close + 1);
            }
            _ => place += 1,
        }
    }
    if start < text.len() {
        all.push(Piece::Text(text[start..].to_owned()));
    }
    Ok(())
}

/// A name that is not called.
fn attribute(path: &str) -> Result<String, String> {
    if path == "torch.inf" {
        return Ok("float(\"inf\")".to_owned());
    }
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or_default();
    let of_module = ["torch", "functional", "nn"].contains(&first) && path != first;
    match path.rsplit('.').next() {
        Some(last) if !of_module && (last == first || first == "self" || ATTRIBUTES.contains(&last)) => {
            Ok(path.to_owned())
        }
        _ => Err(super::unwritten(path.trim_start_matches('.'))),
    }
}

/// The place of the bracket that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (place, c) in text.bytes().enumerate().skip(open) {
        match c {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// Arguments, at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (place, c) in text.bytes().enumerate() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Result<String, String> {
        rewritten(&Code::text(text), &mut Vec::new()).map(|code| code.flat())
    }

    #[test]
    fn calls_inside_of_texts_are_translated() {
        let flat = "x.flatten(start_dim=2).swapaxes(1, 2)";
        assert_eq!(written("x.flatten(2).transpose(1, 2)").as_deref(), Ok(flat));
        let sum = "sum(parameter.square().sum() / 2 for parameter in network.trainable_params() if parameter.ndim > 1)";
        assert_eq!(written(sum).as_deref(), Ok(sum));
        assert_eq!(written("torch.cat([x, nn.ReLU()(y)], dim=1)").as_deref(), Ok("ops.cat([x, nn.ReLU()(y)], axis=1)"));
        assert_eq!(written("torch.arange(x.shape[1], device=x.device)").as_deref(), Ok("ops.arange(x.shape[1])"));
        assert_eq!(written("batch[\"torch.abs(x)\"] * 1e-5").as_deref(), Ok("batch[\"torch.abs(x)\"] * 1e-5"));
        let unflatten = "unflatten(x.flatten(start_dim=2), 1, (2, -1)).permute(0, 2)";
        assert_eq!(written("x.flatten(2).unflatten(1, (2, -1)).permute(0, 2)").as_deref(), Ok(unflatten));
        assert_eq!(written("-torch.inf").as_deref(), Ok("-float(\"inf\")"));
    }

    #[test]
    fn what_the_table_does_not_list_is_refused() {
        for (text, name) in [
            ("torch.lgamma(x)", "`torch.lgamma`"),
            ("x.unfold(1, 2, 3)", "`unfold`"),
            ("x + x.device", "`x.device`"),
            ("x.unflatten(2, (-1, ", "`x.unflatten`"),
            ("y + x.unflatten(2, (-1, 2))", "`unflatten`"),
            ("nn.Linear(3, 4, device=\"cpu\")", "`nn.Linear` with `device`"),
            ("nn.Embedding(3, 4, padding_idx=0)", "`nn.Embedding` with `padding_idx`"),
            ("sum(nn.Foo(x) for x in y)", "`nn.Foo`"),
        ] {
            let refused = written(text).expect_err(text);
            assert!(refused.starts_with(name), "{text}: {refused}");
        }
    }
}
