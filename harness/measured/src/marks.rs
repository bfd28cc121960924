//! Marks in traces: ranges with a name that programs of zoo, `zoo_golden.profile` and PyTorch itself record.

use crate::recording::Part;

/// What a range says of all that runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark<'t> {
    /// A step.
    Step,
    /// A part of a step, and what stands for the module there: [`LOSS`], [`CLIP`], [`UPDATE`], [`AVERAGE`].
    Part(Part, Option<&'static str>),
    /// A call of a module, by its dotted name; the network itself has none.
    Module(&'t str),
    /// The wait for samples.
    Input,
    /// A compilation, with all that it runs.
    Compile,
}

/// Stands for the module of what computes the loss, and of its gradient.
pub const LOSS: &str = "@loss";

/// Stands for the module of what clips gradients.
pub const CLIP: &str = "@clip";

/// Stands for the module of the optimizer.
pub const UPDATE: &str = "@update";

/// Stands for the module of moving averages of the parameters.
pub const AVERAGE: &str = "@average";

/// The gradient of an operator, as PyTorch's engine calls it.
const GRADIENT: &str = "autograd::engine::evaluate_function: ";

/// The mark of a range; `None` if it is not one of these. `ProfilerStep#N`, `Optimizer...`,
/// `enumerate(DataLoader)` and what `torch._dynamo` times are PyTorch's own.
pub(crate) fn mark(name: &str) -> Option<Mark<'_>> {
    match name {
        "forward" => Some(Mark::Part(Part::Forward, None)),
        "loss" => Some(Mark::Part(Part::Loss, Some(LOSS))),
        "backward" => Some(Mark::Part(Part::Backward, None)),
        "clip" => Some(Mark::Part(Part::Update, Some(CLIP))),
        "update" => Some(Mark::Part(Part::Update, Some(UPDATE))),
        "average" => Some(Mark::Part(Part::Update, Some(AVERAGE))),
        "input" => Some(Mark::Input),
        "entire_frame_compile" | "entire_backward_compile" => Some(Mark::Compile),
        // What programs of zoo call the network itself.
        "forward/network" | "forward/@root" => Some(Mark::Module("")),
        _ if name.starts_with("ProfilerStep#") => Some(Mark::Step),
        _ if name.starts_with("enumerate(DataLoader)") => Some(Mark::Input),
        _ if name.ends_with(" (dynamo_timed)") => Some(Mark::Compile),
        _ if name.starts_with("Optimizer.") => Some(Mark::Part(Part::Update, Some(UPDATE))),
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
        assert_eq!(mark("forward"), Some(Mark::Part(Part::Forward, None)));
        assert_eq!(mark("forward/layer1.0.conv1"), Some(Mark::Module("layer1.0.conv1")));
        assert_eq!(mark("forward/network"), Some(Mark::Module("")));
        assert_eq!(mark("Optimizer.step#SGD.step"), Some(Mark::Part(Part::Update, Some(UPDATE))));
        assert_eq!(mark("ProfilerStep#3"), Some(Mark::Step));
        assert_eq!(mark("_compile.compile_inner (dynamo_timed)"), Some(Mark::Compile));
        assert_eq!(mark("my range"), None);
        assert_eq!(gradient("autograd::engine::evaluate_function: AddBackward0"), Some("AddBackward0"));
        assert_eq!(gradient("AddBackward0"), None);
    }
}
