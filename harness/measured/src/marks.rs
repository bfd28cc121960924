//! Marks in traces: ranges with a name that programs of zoo, `zoo_golden.profile` and PyTorch itself record.

use crate::recording::Part;

/// What a range says of all that runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark<'t> {
    /// A step.
    Step,
    /// A part of a step.
    Part(Part),
    /// A call of a module, by its dotted name; the network itself has none.
    Module(&'t str),
    /// The wait for samples.
    Input,
}

/// The gradient of an operator, as PyTorch's engine calls it.
const GRADIENT: &str = "autograd::engine::evaluate_function: ";

/// The mark of a range; `None` if it is not one of these. `ProfilerStep#N`, `Optimizer...` and `enumerate(DataLoader)`
/// are PyTorch's own.
pub(crate) fn mark(name: &str) -> Option<Mark<'_>> {
    match name {
        "forward" => Some(Mark::Part(Part::Forward)),
        "loss" => Some(Mark::Part(Part::Loss)),
        "backward" => Some(Mark::Part(Part::Backward)),
        "update" => Some(Mark::Part(Part::Update)),
        "input" => Some(Mark::Input),
        // What programs of zoo call the network itself.
        "forward/network" | "forward/@root" => Some(Mark::Module("")),
        _ if name.starts_with("ProfilerStep#") => Some(Mark::Step),
        _ if name.starts_with("enumerate(DataLoader)") => Some(Mark::Input),
        _ if name.starts_with("Optimizer.") => Some(Mark::Part(Part::Update)),
        _ => name.strip_prefix("forward/").map(Mark::Module),
    }
}

/// The function whose gradient an operator of PyTorch's engine is.
pub(crate) fn gradient(name: &str) -> Option<&str> {
    name.strip_prefix(GRADIENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranges() {
        assert_eq!(mark("forward"), Some(Mark::Part(Part::Forward)));
        assert_eq!(mark("forward/layer1.0.conv1"), Some(Mark::Module("layer1.0.conv1")));
        assert_eq!(mark("forward/network"), Some(Mark::Module("")));
        assert_eq!(mark("Optimizer.step#SGD.step"), Some(Mark::Part(Part::Update)));
        assert_eq!(mark("ProfilerStep#3"), Some(Mark::Step));
        assert_eq!(mark("my range"), None);
        assert_eq!(gradient("autograd::engine::evaluate_function: AddBackward0"), Some("AddBackward0"));
        assert_eq!(gradient("AddBackward0"), None);
    }
}
