//! Parameters and tensors without a gradient: `requires_grad=False`, `no_grad`, `detach`.

use std::collections::HashSet;

use crate::Refusal;
use crate::arguments::At;
use crate::functions::is_inside;
use crate::operation::{Tensor, What};
use crate::reader::{Reader, Seen};
use crate::trace::Trace;
use crate::word::Word;

const DETACH: &str = "detach(x)";

/// What gets gradients.
#[derive(Default)]
pub(crate) struct Gradients {
    /// Tensors that depend on trained parameters.
    trained: HashSet<Tensor>,
    /// Names of layers that were used with gradients, and without.
    with: HashSet<String>,
    without: HashSet<String>,
}

impl Gradients {
    /// Notes an operation.
    pub fn computed(&mut self, what: &What, operands: &[Tensor], result: Tensor) {
        let stops = matches!(what, What::Layer(word) if *word == Word::formula(DETACH.to_owned()));
        if !stops && operands.iter().any(|operand| self.trained.contains(operand)) {
            self.trained.insert(result);
        }
    }

    /// Notes a use of the parameters of a layer.
    pub fn used(&mut self, trace: &Trace, name: &str, no_grad: bool, result: Tensor) -> Result<(), String> {
        let mut own = trace.parameters.iter().filter(|(parameter, _)| is_inside(parameter, name));
        if own.all(|(_, parameter)| parameter.frozen) {
            return Ok(());
        }
        let (here, there) = match no_grad {
            true => (&mut self.without, &self.with),
            false => (&mut self.with, &self.without),
        };
        here.insert(name.to_owned());
        if there.contains(name) {
            return Err(format!("the parameters of `{name}` are used with gradients, and without"));
        }
        if !no_grad {
            self.trained.insert(result);
        }
        Ok(())
    }

    /// The parameters without a gradient that the network uses.
    pub fn untrained(&self, trace: &Trace) -> Vec<String> {
        let is_untrained = |name: &String| self.without.iter().any(|owner| is_inside(name, owner));
        let own = trace.parameters.iter().filter(|(_, parameter)| parameter.same_as.is_none());
        own.filter(|(name, parameter)| parameter.frozen || is_untrained(name)).map(|(name, _)| name.clone()).collect()
    }
}

impl Reader<'_> {
    /// Lets what a call gives have no gradient.
    pub(crate) fn without_gradient(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let value = at.made()?.value;
        if let Some(Seen::Of(base, views)) = self.seen(value).cloned()
            && self.gradients.trained.contains(&base)
        {
            let shape = self.shape_of(base).to_vec();
            let base = self.inner(at, What::Layer(Word::formula(DETACH.to_owned())), vec![base], shape);
            self.is(value, Seen::Of(base, views));
        }
        Ok(())
    }
}

/// The outermost modules all of whose parameters are among `wanted`, and the parameters that are in none: the modules
/// of a part. Parameters that nothing uses count for neither.
pub(crate) fn modules_of(trace: &Trace, wanted: &[String], unused: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in wanted.iter().filter(|name| !unused.contains(name)) {
        let is_whole = |path: &&str| {
            let own = trace.parameters.iter().filter(|(_, parameter)| parameter.same_as.is_none());
            own.filter(|(name, _)| is_inside(name, path) && !unused.contains(name))
                .all(|(name, _)| wanted.contains(name))
        };
        let ends = name.match_indices('.').map(|(end, _)| &name[..end]).chain([name.as_str()]);
        let outermost = ends.into_iter().find(is_whole).unwrap_or(name).to_owned();
        if !found.contains(&outermost) {
            found.push(outermost);
        }
    }
    found
}
