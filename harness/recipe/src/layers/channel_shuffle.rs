//! Interleaves the channels of groups.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Interleaves the channels of several groups: the first of each group, the second of each, ... (arXiv 1707.01083;
    /// PyTorch's ChannelShuffle).
    pub struct ChannelShuffle {
        /// Number of groups.
        pub groups: Size,
    }
}

impl Word for ChannelShuffle {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (shape, groups) = (at.shape(x).clone(), self.groups.0);
        let [n, c, h, w] = shape[..] else {
            return Err(at.refuse(format!("expected [C, H, W], found {shape}")));
        };
        if !c.is_multiple_of(groups) {
            return Err(at.refuse(format!("{c} channels cannot be split in {groups} equal groups")));
        }
        let split = [n, groups, c / groups, h, w].into();
        let x = at.add_part("split", ops::Reshape { shape: split }, &[x])?;
        let x = at.transposed("turns", &[0, 2, 1, 3, 4], x)?;
        at.add(ops::Reshape { shape }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let groups = Code::number(at.size("groups", self.groups.0));
        let apart =
            Code::method(at.x(), "unflatten", vec![Code::text("1"), Code::tuple(vec![groups, Code::text("-1")])]);
        at.pure(apart.around("", ".transpose(1, 2).flatten(1, 2)", Binding::Tight))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Size, format!("channel_shuffle {}", self.groups.0)).into()
    }
}
