//! Pieces of Python, and their layout in lines.

use super::number::Number;

/// Longest line.
pub(super) const COLUMNS: usize = 120;

/// A value of `forward`, by its number in the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Var(pub usize);

/// How tightly the parts of an expression hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    /// Comparisons, and anything that is no operand.
    Loose,
    /// `a + b`
    Sum,
    /// `a * b`
    Product,
    /// A name, a call, an index.
    Tight,
}

/// A piece of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// As it is.
    Text(String),
    /// A value, in brackets if its expression binds looser than this.
    Value(Var, Binding),
    /// A number.
    Number(Number),
    /// A number as an operand of a product.
    Factor(Number),
    /// `(a, b)`: what can be broken into lines.
    List(&'static str, Vec<Code>, &'static str),
    /// A module of the class, by its path.
    Child(String),
    /// A new instance of a class of the program, by the number of this use.
    New(usize),
    /// Modules in a row, by name.
    Row(Holder, Vec<(String, Code)>),
}

/// What holds modules in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A module that calls them: `nn.Sequential`.
    Sequential,
    /// A list, of which each is called: `nn.ModuleList`.
    List,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Code {
    /// Its pieces.
    pub pieces: Vec<Piece>,
    /// How tightly it holds.
    pub binding: Binding,
}

impl Code {
    /// A text that needs no brackets.
    pub fn text(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Text(text.into())], binding: Binding::Tight }
    }

    /// A number.
    pub fn number(number: Number) -> Self {
        Self { pieces: vec![Piece::Number(number)], binding: Binding::Sum }
    }

    /// A whole number.
    pub fn count(value: usize) -> Self {
        Self::number(Number::count(value))
    }

    /// A number that is no count.
    pub fn real(value: f64) -> Self {
        Self::number(Number::real(value))
    }

    /// `True` or `False`.
    pub fn switch(value: bool) -> Self {
        Self::text(if value { "True" } else { "False" })
    }

    /// A value.
    pub fn value(var: Var) -> Self {
        Self { pieces: vec![Piece::Value(var, Binding::Loose)], binding: Binding::Tight }
    }

    /// `function(arguments)`
    pub fn call(function: impl Into<String>, arguments: Vec<Self>) -> Self {
        Self { pieces: vec![Piece::Text(function.into()), Piece::List("(", arguments, ")")], binding: Binding::Tight }
    }

    /// `function(value, arguments)`
    pub fn applied(function: &str, value: Var, arguments: Vec<Self>) -> Self {
        Self::call(function, std::iter::once(Self::value(value)).chain(arguments).collect())
    }

    /// `[items]`
    pub fn list(items: Vec<Self>) -> Self {
        Self { pieces: vec![Piece::List("[", items, "]")], binding: Binding::Tight }
    }

    /// `(items)`, or `(item,)`
    pub fn tuple(items: Vec<Self>) -> Self {
        let close = if items.len() == 1 { ",)" } else { ")" };
        Self { pieces: vec![Piece::List("(", items, close)], binding: Binding::Tight }
    }

    /// `key=value`
    pub fn named(key: &str, value: Self) -> Self {
        let mut pieces = vec![Piece::Text(format!("{key}="))];
        pieces.extend(value.pieces);
        Self { pieces, binding: Binding::Loose }
    }

    /// `before` and `after` around it.
    pub fn around(self, before: &str, after: &str, binding: Binding) -> Self {
        let mut pieces = vec![Piece::Text(before.to_owned())];
        pieces.extend(self.pieces);
        pieces.push(Piece::Text(after.to_owned()));
        Self { pieces, binding }
    }

    /// `value.method(arguments)`
    pub fn method(value: Var, method: &str, arguments: Vec<Self>) -> Self {
        let pieces = vec![
            Piece::Value(value, Binding::Tight),
            Piece::Text(format!(".{method}")),
            Piece::List("(", arguments, ")"),
        ];
        Self { pieces, binding: Binding::Tight }
    }

    /// `value` followed by a text that belongs to it, such as `.shape[0]` or `[:, 0]`.
    pub fn of(value: Var, text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Value(value, Binding::Tight), Piece::Text(text.into())], binding: Binding::Tight }
    }

    /// `a operator b`
    pub fn operation(a: Var, operator: &str, b: Var) -> Self {
        let (left, right, binding) = match operator {
            "*" | "/" => (Binding::Product, Binding::Tight, Binding::Product),
            "-" => (Binding::Sum, Binding::Product, Binding::Sum),
            // The order of sums stays as it is.
            _ => (Binding::Sum, Binding::Product, Binding::Sum),
        };
        let pieces = vec![Piece::Value(a, left), Piece::Text(format!(" {operator} ")), Piece::Value(b, right)];
        Self { pieces, binding }
    }

    /// The values in it, in order.
    pub fn values(&self) -> Vec<Var> {
        let mut values = Vec::new();
        self.visit(&mut |piece| {
            if let Piece::Value(var, _) = piece {
                values.push(*var);
            }
        });
        values
    }

    /// Calls `each` with every piece, those of lists included.
    pub fn visit(&self, each: &mut impl FnMut(&Piece)) {
        for piece in &self.pieces {
            each(piece);
            match piece {
                Piece::List(_, items, _) => items.iter().for_each(|item| item.visit(each)),
                Piece::Row(_, items) => items.iter().for_each(|(_, item)| item.visit(each)),
                Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) => {}
                Piece::Child(_) | Piece::New(_) => {}
            }
        }
    }

    /// Calls `each` with every piece, to be changed.
    pub fn visit_mut(&mut self, each: &mut impl FnMut(&mut Piece)) {
        for piece in &mut self.pieces {
            each(piece);
            match piece {
                Piece::List(_, items, _) => items.iter_mut().for_each(|item| item.visit_mut(each)),
                Piece::Row(_, items) => items.iter_mut().for_each(|(_, item)| item.visit_mut(each)),
                Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) => {}
                Piece::Child(_) | Piece::New(_) => {}
            }
        }
    }

    /// Whether it differs from another in numbers only.
    pub fn has_form_of(&self, other: &Self) -> bool {
        let list = |a: &[Self], b: &[Self]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.has_form_of(b));
        self.pieces.len() == other.pieces.len()
            && self.pieces.iter().zip(&other.pieces).all(|(a, b)| match (a, b) {
                (Piece::Number(a), Piece::Number(b)) | (Piece::Factor(a), Piece::Factor(b)) => a.kind == b.kind,
                (Piece::List(open, a, _), Piece::List(other, b, _)) => open == other && list(a, b),
                (Piece::Row(holder, a), Piece::Row(other, b)) => {
                    holder == other
                        && a.len() == b.len()
                        && a.iter().zip(b).all(|((a, x), (b, y))| a == b && x.has_form_of(y))
                }
                (a, b) => a == b,
            })
    }

    /// With an expression in place of each value and each new instance.
    pub fn filled(&self, fill: &impl Fn(&Piece) -> Option<Self>) -> Self {
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            match (fill(piece), piece) {
                (Some(code), Piece::Value(_, needed)) if code.binding < *needed => {
                    pieces.push(Piece::Text("(".into()));
                    pieces.extend(code.pieces);
                    pieces.push(Piece::Text(")".into()));
                }
                (Some(code), _) => pieces.extend(code.pieces),
                (None, Piece::List(open, items, close)) => {
                    pieces.push(Piece::List(open, items.iter().map(|item| item.filled(fill)).collect(), close));
                }
                (None, Piece::Row(holder, items)) => {
                    let filled = |(name, item): &(String, Self)| (name.clone(), item.filled(fill));
                    pieces.push(Piece::Row(*holder, items.iter().map(filled).collect()));
                }
                (None, other) => pieces.push(other.clone()),
            }
        }
        Self { pieces, binding: self.binding }
    }

    /// On one line.
    pub fn flat(&self) -> String {
        self.pieces.iter().map(flat).collect()
    }

    /// As lines, the first of which starts with `start` and the last of which ends with `end`.
    pub fn lines(&self, indent: usize, start: &str, end: &str, out: &mut Vec<String>) {
        let margin = " ".repeat(indent);
        let whole = format!("{margin}{start}{}{end}", self.flat());
        let last = self.pieces.iter().rposition(|piece| matches!(piece, Piece::List(_, items, _) if !items.is_empty()));
        let Some(place) = last.filter(|_| whole.chars().count() > COLUMNS) else {
            out.push(whole);
            return;
        };
        let Piece::List(open, items, close) = &self.pieces[place] else { return };
        let before: String = self.pieces[..place].iter().map(flat).collect();
        let after: String = self.pieces[place + 1..].iter().map(flat).collect();
        out.push(format!("{margin}{start}{before}{open}"));
        match &items[..] {
            // Python takes no comma behind it.
            [only] if only.is_generator() => only.clauses(indent + 4, out),
            items => items.iter().for_each(|item| item.lines(indent + 4, "", ",", out)),
        }
        let close = close.trim_start_matches(',');
        out.push(format!("{margin}{close}{after}{end}"));
    }
}

impl Code {
    /// Whether it is `x for y in z`.
    fn is_generator(&self) -> bool {
        let starts = matches!(self.pieces.first(), Some(Piece::Text(text)) if text.starts_with("*["));
        !starts && self.pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(" for ")))
    }

    /// A generator as lines: its clauses, if it has more than one line.
    fn clauses(&self, indent: usize, out: &mut Vec<String>) {
        let (margin, flat) = (" ".repeat(indent), self.flat());
        let clause = flat.rfind(" for ").filter(|_| indent + flat.chars().count() > COLUMNS);
        let Some((value, rest)) = clause.map(|place| flat.split_at(place)) else {
            out.push(format!("{margin}{flat}"));
            return;
        };
        out.push(format!("{margin}{value}"));
        let (each, test) = rest.split_at(rest.find(" if ").unwrap_or(rest.len()));
        out.extend(
            [each, test].into_iter().filter(|text| !text.is_empty()).map(|text| format!("{margin}{}", text.trim())),
        );
    }
}

fn flat(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.clone(),
        Piece::Number(number) => number.to_string(),
        Piece::Factor(number) if number.is_sum() => format!("({number})"),
        Piece::Factor(number) => number.to_string(),
        Piece::List(open, items, close) => {
            let items: Vec<String> = items.iter().map(Code::flat).collect();
            format!("{open}{}{close}", items.join(", "))
        }
        // All are filled in before anything is printed.
        Piece::Value(..) | Piece::Child(_) | Piece::New(_) | Piece::Row(..) => String::new(),
    }
}
