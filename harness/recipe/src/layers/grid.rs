//! From tokens to maps.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Piece, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// `[T, E]` to `[E, H, W]`: tokens become the pixels of a map, row by row; the opposite of `tokens`.
    pub struct Grid {
        /// Number of rows; by default as many as columns.
        pub rows?: Size,
    }
}

/// In Python.
const GRID: &str = r#"
def grid(x: Tensor) -> Tensor:
    """`[T, C]` to `[C, H, W]`: tokens become the pixels of a square."""
    return x.transpose(1, 2).unflatten(2, (round(x.shape[1] ** 0.5), -1))
"#;

impl Word for Grid {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let &[n, t, e] = &at.shape(x)[..] else {
            return Err(at.refuse(format!("expected tokens `[T, E]`; this value has {} axes", at.rank(x))));
        };
        let rows = self.rows.map_or(t.isqrt(), |Size(rows)| rows).max(1);
        let columns = t / rows;
        if rows * columns != t || self.rows.is_none() && rows != columns {
            return Err(at.refuse(match self.rows {
                None => format!("{t} tokens are no square: say how many `rows` they have"),
                Some(_) => format!("{t} tokens are no {rows} rows of the same length"),
            }));
        }
        let channels = at.transposed("channels", &[0, 2, 1], x)?;
        at.add_part("rows", ops::Reshape { shape: [n, e, rows, columns].into() }, &[channels])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let channels = at.last();
        at.gives(channels);
        let Some(Size(rows)) = self.rows else {
            at.helper(GRID);
            return at.pure(Code::applied("grid", at.x(), vec![]));
        };
        let rows = at.size("rows", rows);
        let mut code = Code::of(at.x(), ".transpose(1, 2).unflatten");
        code.pieces.push(Piece::List(
            "(",
            vec![Code::count(2), Code::tuple(vec![Code::number(rows), Code::text("-1")])],
            ")",
        ));
        at.pure(code)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let rows = self.rows.map(|Size(rows)| format!(" of {rows} rows"));
        Step::new(Work::Size, format!("grid{}", rows.unwrap_or_default())).into()
    }
}
