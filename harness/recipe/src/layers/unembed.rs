//! Scores for all rows of an embedding table.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Number, Var};

zoo_settings::settings! {
    /// The product of `[T, E]` with the table of an earlier embedding: a score for each of its rows (tied weights,
    /// arXiv 1608.05859). In PyTorch, a Linear that shares its weight with the Embedding.
    pub struct Unembed {
        /// Name of the embedding.
        pub table: String,
        /// Name of a bias parameter with one number per row, initialised with 0; by default there is none. `NAME.bias`,
        /// with the name of this layer, is its own.
        pub bias?: String,
    }
}

impl Word for Unembed {
    const MODULE: Module = Module::Function;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.table = at.module_name("table", &self.table)?;
        self.bias = self.bias.as_ref().map(|bias| at.beside(bias));
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let name = format!("{}.weight", self.table);
        let Some(table) = at.graph().find_variable(&name) else {
            return Err(at.refuse(format!("there is no parameter `{name}` above")));
        };
        let table = at.graph().variable(table).value;
        let mut operands = vec![x, table];
        if let Some(bias) = &self.bias {
            let rows = at.shape(table)[0];
            operands.push(at.parameter_called(bias.clone(), VariableRole::Bias, &[rows], &Init::Constant(0.0))?);
        }
        at.add(ops::MatMul { transpose_a: false, transpose_b: true }, &operands)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let weight = format!("{}.weight", self.table);
        let out = at.rows_of(&weight).unwrap_or_else(|| Number::count(at.output().last().copied().unwrap_or(0)));
        let inputs = at.last();
        at.gives(out.clone());
        let start = Code::call("torch.zeros", vec![Code::number(out.clone())]);
        if let Some(name) = at.name().map(str::to_owned) {
            at.tie(format!("{name}.weight"), weight);
            let mut arguments = vec![Code::number(inputs), Code::number(out)];
            match &self.bias {
                None => arguments.push(Code::text("bias=False")),
                Some(bias) if *bias == format!("{name}.bias") => {}
                Some(bias) => {
                    at.parameter_beside(bias, start)?;
                    at.tie(format!("{name}.bias"), bias.clone());
                }
            }
            return at.module(Code::call("nn.Linear", arguments));
        }
        let mut arguments = vec![at.parameter_named(&weight)?];
        if let Some(bias) = &self.bias {
            arguments.push(at.parameter_beside(bias, start)?);
        }
        Ok(at.function(Code::applied("functional.linear", at.x(), arguments)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Dense, format!("unembed {}", self.table)).into()
    }
}
