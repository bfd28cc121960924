//! Values that are kept by name, and how they get into other classes.

use super::code::Var;
use super::emitter::Emitter;
use super::number::{Kind, Number};
use super::usage::{Home, Value};

impl Emitter<'_> {
    /// Keeps a value under the name of a tap.
    pub(super) fn keep(&mut self, tap: &str, var: Var) {
        let value = &mut self.frame().values[var.0];
        if value.hint.is_none() {
            value.hint = tap.rsplit('.').next().map(str::to_owned);
        }
        let home = Home { frames: self.around(), var };
        self.taps.insert(tap.to_owned(), home);
    }

    /// The value of a tap in the present class; it is passed in from classes around it, and out of others.
    pub(super) fn tapped(&mut self, tap: &str) -> Var {
        let depth = self.frames.len();
        self.tapped_at(tap, depth)
    }

    fn tapped_at(&mut self, tap: &str, depth: usize) -> Var {
        let Some(home) = self.taps.get(tap).cloned() else { return Var(0) };
        let around = self.around();
        let shared = home.frames.iter().zip(&around).take_while(|(a, b)| a == b).count();
        for (key, prefix) in &home.frames[shared..] {
            // It must leave the classes that are not around this place; the next walk knows it.
            let inner = tap.strip_prefix(prefix.as_str()).unwrap_or(tap);
            self.wanted.insert((key.clone(), inner.to_owned()));
        }
        if home.frames.len() > shared {
            return self.frames[depth - 1].value(Value { dims: vec![Number::count(1); 4], hint: None });
        }
        if home.frames.len() == depth {
            return home.var;
        }
        if let Some((_, var)) = self.frames[depth - 1].inputs.iter().skip(1).find(|(name, _)| name == tap) {
            return *var;
        }
        let outer = self.tapped_at(tap, depth - 1);
        let outer = self.frames[depth - 2].values[outer.0].dims.clone();
        let rank = outer.len();
        let frame = &mut self.frames[depth - 1];
        let mut dims = Vec::new();
        for (axis, number) in outer.into_iter().enumerate() {
            dims.push(match (frame.own, axis, rank) {
                (true, 1, 4) if !frame.arguments.contains_key("skip_channels") => {
                    frame.arguments.insert("skip_channels".to_owned(), (number.clone(), None));
                    Number::argument("skip_channels", number.value, Kind::Whole)
                }
                (true, ..) => number.literal(),
                (false, ..) => number,
            });
        }
        let hint = tap.rsplit('.').next().map(str::to_owned);
        let var = self.frames[depth - 1].value(Value { dims, hint });
        self.frames[depth - 1].inputs.push((tap.to_owned(), var));
        var
    }
}
