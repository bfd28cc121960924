//! A learned tensor as a value.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, init::NormalInit, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Continues with a learned tensor in place of the current value, the same for all samples: tokens in a branch of
    /// `concat`, a factor in `gate`, a shift in `residual`. Its name is the name of the parameter.
    pub struct Parameter {
        /// Shape of the parameter; empty for a single number.
        #[schemars(length(max = 8))]
        pub shape: Vec<Size>,
        /// Shape of the value, without the batch; by default that of the parameter, without a leading axis of one
        /// element if it has several, and with one if it has none.
        #[schemars(length(min = 1, max = 8))]
        pub to?: Vec<Size>,
        /// Initialisation of the parameter.
        pub init: Init = Init::Normal(NormalInit { std: 0.02 }),
    }
}

impl Parameter {
    /// Shapes of the parameter and of the value of a sample.
    fn shapes(&self) -> [Vec<usize>; 2] {
        let extents = |sizes: &[Size]| sizes.iter().map(|size| size.0).collect::<Vec<_>>();
        let own = extents(&self.shape);
        let to = match (&self.to, &own[..]) {
            (Some(to), _) => extents(to),
            (None, []) => vec![1],
            (None, [1, rest @ ..]) if !rest.is_empty() => rest.to_vec(),
            (None, _) => own.clone(),
        };
        [own, to]
    }
}

impl Word for Parameter {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let samples = at.shape(x)[0];
        let [own, to] = self.shapes();
        if own.iter().product::<usize>() != to.iter().product::<usize>() {
            return Err(at.refuse(format!("a parameter {own:?} cannot have the shape {to:?}")));
        }
        let value = at.parameter("", VariableRole::Weight, &own, &self.init)?;
        let one = [&[1], &to[..]].concat();
        let value = if own == one { value } else { at.add_part("one", ops::Reshape { shape: one.into() }, &[value])? };
        let each = [&[samples], &to[..]].concat();
        at.add(ops::Map::with_space(Formula::define(0, |[own]| [own]), each.into()), &[value])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let [own, to] = self.shapes();
        let sizes = |at: &mut At<'_, '_>, key: &str, extents: &[usize]| {
            let size = |(index, extent): (usize, &usize)| Code::number(at.size(&format!("{key}[{index}]"), *extent));
            extents.iter().enumerate().map(size).collect::<Vec<_>>()
        };
        let extents = if own.is_empty() { vec![Code::text("()")] } else { sizes(at, "shape", &own) };
        let start = Code::call("torch.zeros", extents);
        let mut pieces = at.parameter(start)?.pieces;
        if own != to && own != [&[1], &to[..]].concat() {
            let sizes = sizes(at, "to", &to);
            pieces.extend([Piece::Text(".reshape".into()), Piece::List("(", sizes, ")")]);
        }
        let kept = to.iter().map(|_| Code::text("-1"));
        let extents = std::iter::once(Code::of(at.x(), ".shape[0]")).chain(kept).collect();
        pieces.extend([Piece::Text(".expand".into()), Piece::List("(", extents, ")")]);
        Ok(at.function(Code { pieces, binding: Binding::Tight }))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let extents: Vec<String> = self.shapes()[1].iter().map(usize::to_string).collect();
        Step::new(Work::Other, format!("parameter {}", extents.join("x"))).into()
    }
}
