//! A network that is divided among processes (FSDP2), and its whole state in checkpoints.

use zoo_graph::VariableRole;

use super::parts;
use super::program::Program;

/// Whether a program can divide its network: FSDP2 keeps to what is trained at first.
pub(super) fn possible(program: &Program<'_>) -> bool {
    !parts::change(program)
}

/// Whether the network has running statistics, which each process computes from its samples.
pub(super) fn has_statistics(program: &Program<'_>) -> bool {
    program.graph.variables.iter().any(|variable| variable.role == VariableRole::RunningMean)
}

/// Adds the functions that divide a network and put its state together.
pub(super) fn write(program: &mut Program<'_>) {
    if possible(program) {
        program.add(DIVIDE);
        program.add(STATE);
    }
}

const DIVIDE: &str = r#"
def divide(network: nn.Module) -> None:
    """Divides a network among the processes, block by block (FSDP2, PyTorch 2.6)."""
    from torch.distributed.fsdp import fully_shard

    stacks = [module for module in network.modules() if isinstance(module, (nn.Sequential, nn.ModuleList))]
    blocks = [block for stack in stacks for block in stack if any(block.children()) and any(block.state_dict())]
    for module in (*reversed(blocks), network):
        fully_shard(module)
"#;

const STATE: &str = r#"
def whole(state: object) -> object:
    """A state whose tensors are put together from the parts of all processes."""
    if isinstance(state, dict):
        return {key: whole(value) for key, value in state.items()}
    return state.full_tensor() if hasattr(state, "full_tensor") else state


def divided(state: Tensor, like: Tensor) -> Tensor:
    """A tensor of a checkpoint, divided among the processes as another one is."""
    if not hasattr(like, "full_tensor") or state.shape != like.shape:
        return state
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(state, like.device_mesh, like.placements)


def fill(network: nn.Module, state: dict[str, Tensor]) -> None:
    """Loads the state of a network."""
    own = network.state_dict()
    network.load_state_dict({name: divided(tensor, own[name]) for name, tensor in state.items()})


def fill_rule(rule: torch.optim.Optimizer, state: dict) -> None:
    """Loads the state of an optimizer."""
    parameters = [parameter for group in rule.param_groups for parameter in group["params"]]
    for index, slots in state["state"].items():
        slots.update({slot: divided(value, parameters[index]) for slot, value in slots.items()})
    rule.load_state_dict(state)
"#;
