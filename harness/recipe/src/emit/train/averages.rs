//! Moving averages (`train.ema`) and slow weights (`train.lookahead`).

use super::program::Program;
use super::real;

/// Adds their functions.
pub(super) fn write(program: &mut Program<'_>) {
    let train = &program.recipe.train;
    if let Some(decay) = train.ema {
        let decay = match train.ema_warmup {
            true => format!("min({}, (1 + done) / (10 + done))", real(decay)),
            false => real(decay),
        };
        program.add(&AVERAGE.replace("DECAY", &decay));
    }
    if let Some(lookahead) = program.recipe.train.lookahead {
        let power = match lookahead.power {
            0.0 => String::new(),
            1.0 => " * (done / steps)".to_owned(),
            power => format!(" * (done / steps) ** {}", real(power)),
        };
        let decay = format!("{}{power}", real(lookahead.decay));
        program.add(&LOOKAHEAD.replace("EVERY", &lookahead.every.to_string()).replace("DECAY", &decay));
    }
}

const AVERAGE: &str = r#"
def copied(network: nn.Module) -> nn.Module:
    """A network with the same weights."""
    other = type(network)().to(next(network.parameters()))
    other.load_state_dict(network.state_dict())
    return other


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, done: int) -> None:
    """Moves the average of the parameters towards them after `done` updates; buffers are copied."""
    decay = DECAY
    for kept, parameter in zip(average.parameters(), network.parameters(), strict=True):
        kept.lerp_(parameter, 1 - decay)
    for kept, buffer in zip(average.buffers(), network.buffers(), strict=True):
        kept.copy_(buffer)
"#;

const LOOKAHEAD: &str = r#"
def weights(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and running statistics."""
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


@torch.no_grad()
def pull(network: nn.Module, slow: dict[str, Tensor], done: int, steps: int) -> None:
    """Moves the slow weights towards the weights after `done` updates, which continue from there (Lookahead, arXiv
    1907.08610); at the end, they become the slow ones."""
    if done % EVERY and done != steps:
        return
    decay = DECAY if done % EVERY == 0 else 1.0
    for name, tensor in weights(network).items():
        tensor.copy_(slow[name].lerp_(tensor, 1 - decay))
"#;
