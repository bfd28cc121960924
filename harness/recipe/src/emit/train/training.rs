//! The step, and what a checkpoint holds.

use super::parts;
use super::program::Program;
use super::{real, shard};
use crate::diagnostic::Diagnostic;
use crate::schema::{Clip, LossScale};

/// The class of the training.
pub(super) fn training(program: &Program<'_>) -> Result<String, Diagnostic> {
    let recipe = program.recipe;
    let (ema, lookahead) = (recipe.train.ema.is_some(), recipe.train.lookahead.is_some());
    let shards = shard::possible(program);
    let (signature, average) = (if shards { SHARDED } else { ALONE }, "copied(network).requires_grad_(False)");
    let mut text = TRAINING.trim().replace("SIGNATURE", signature.trim_matches('\n'));
    text = text.replace(
        "        # average\n",
        &if ema { format!("        self.average = {average}\n") } else { String::new() },
    );
    let divide = match (shards, ema) {
        (false, _) => "",
        (true, false) => "        if divides:\n            divide(network)\n",
        (true, true) => "        if divides:\n            divide(network)\n            divide(self.average)\n",
    };
    let mut lines: Vec<String> = text.replace("        # divide\n", divide).lines().map(str::to_owned).collect();
    let mut add = |line: &str| lines.push(line.to_owned());
    let dynamic = match &recipe.npu.loss_scale {
        LossScale::None | LossScale::Fixed(_) => None,
        LossScale::Dynamic(scale) => Some(format!(
            "init_scale={}, growth_factor={}, backoff_factor={}, growth_interval={}",
            real(scale.init),
            real(scale.factor),
            real(1.0 / scale.factor),
            scale.window
        )),
    };
    let fixed = match &recipe.npu.loss_scale {
        LossScale::None | LossScale::Dynamic(_) => None,
        LossScale::Fixed(scale) => Some(scale),
    };
    if recipe.gradients.clip_scaled {
        let message = "clipping of scaled gradients is not written in PyTorch yet";
        return Err(program.refuse("gradients.clip_scaled", message));
    }
    if let Some(settings) = &dynamic {
        add(&format!(
            "        scaling = {{{}}}",
            settings
                .split(", ")
                .map(|s| {
                    let (key, value) = s.split_once('=').unwrap_or((s, ""));
                    format!("\"{key}\": {value}")
                })
                .collect::<Vec<_>>()
                .join(", ")
        ));
        add("        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == \"fp16\", **scaling)");
    }
    if let Some(scale) = fixed {
        add(&format!("        self.scale = {} if precision == \"fp16\" else 1.0", real(scale.scale)));
    }
    if lookahead {
        add("        self.slow = {name: tensor.clone() for name, tensor in weights(network).items()}");
    }
    add("");
    add("    def enter(self, epoch: int) -> None:");
    add("        \"\"\"Prepares for the steps of an epoch.\"\"\"");
    add("        self.epoch = epoch");
    if parts::change(program) {
        add("        if freeze(self.network, self.rule, epoch):");
        add("            self.model = self.shared()");
    }
    add("        self.network.train()");
    if parts::stored(program) {
        add("        keep_statistics(self.network)");
    }
    add("");
    let steps = if lookahead { ", steps: int" } else { "" };
    add(&format!("    def step(self, batch: dict[str, Tensor], learning_rate: float{steps}) -> dict[str, Tensor]:"));
    add("        \"\"\"One update; returns the terms of the loss.\"\"\"");
    add("        set_rate(self.rule, learning_rate)");
    add("        self.rule.zero_grad()");
    let pieces = recipe.npu.accumulate;
    let depth = if pieces > 1 {
        add(&format!("        for part in range({pieces}):"));
        add(&format!(
            "            piece = {{name: value.tensor_split({pieces})[part] for name, value in batch.items()}}"
        ));
        "            "
    } else {
        "        "
    };
    let batch = if pieces > 1 { "piece" } else { "batch" };
    add(&format!("{depth}with self.autocast, record_function(\"forward\"):"));
    add(&format!("{depth}    outputs = {}", program.call("self.model").replace("batch[", &format!("{batch}["))));
    add(&format!("{depth}if self.half:"));
    add(&match program.graph.outputs.len() {
        1 => format!("{depth}    outputs = outputs.float()"),
        _ => format!("{depth}    outputs = {{name: value.float() for name, value in outputs.items()}}"),
    });
    let network = if program.text().contains("def loss(outputs: Tensor, batch: dict[str, Tensor], network")
        || program.text().contains("def loss(outputs: dict[str, Tensor], batch: dict[str, Tensor], network")
    {
        ", self.network"
    } else {
        ""
    };
    add(&format!("{depth}with record_function(\"loss\"):"));
    add(&format!("{depth}    terms = loss(outputs, {batch}{network})"));
    let share = if pieces > 1 { format!(" / {pieces}") } else { String::new() };
    add(&format!("{depth}with record_function(\"backward\"):"));
    let backward = match (&dynamic, fixed) {
        (Some(_), _) => format!("self.scaler.scale(terms[\"loss\"]{share}).backward()"),
        (None, Some(_)) => format!("(terms[\"loss\"]{share} * self.scale).backward()"),
        (None, None) if pieces > 1 => format!("(terms[\"loss\"]{share}).backward()"),
        (None, None) => "terms[\"loss\"].backward()".to_owned(),
    };
    add(&format!("{depth}    {backward}"));
    let mut changes = Vec::new();
    if dynamic.is_some() {
        changes.push("self.scaler.unscale_(self.rule)".to_owned());
    }
    if fixed.is_some() {
        changes.push("gradients = [p.grad for p in self.network.parameters() if p.grad is not None]".to_owned());
        changes.push("torch._foreach_div_(gradients, self.scale)".to_owned());
    }
    for clip in &recipe.gradients.clip {
        let (function, bound) = match clip {
            Clip::Norm(bound) => ("clip_grad_norm_", bound),
            Clip::Value(bound) => ("clip_grad_value_", bound),
        };
        changes.push(format!("nn.utils.{function}(self.network.parameters(), {})", real(*bound)));
    }
    if !changes.is_empty() {
        add("        with record_function(\"clip\"):");
        changes.iter().for_each(|change| add(&format!("            {change}")));
    }
    let mut tests = Vec::new();
    if let Some(bound) = recipe.gradients.skip_loss_above {
        tests.push(format!("summed(terms[\"loss\"].detach().cpu(), self.device) <= {} * self.ranks", real(bound)));
    }
    if fixed.is_some_and(|scale| scale.skip_overflow) {
        tests.push("all(gradient.isfinite().all() for gradient in gradients)".to_owned());
    }
    let step = if dynamic.is_some() { "self.scaler.step(self.rule)" } else { "self.rule.step()" };
    if tests.is_empty() {
        add("        with record_function(\"update\"):");
        add(&format!("            {step}"));
    } else {
        add(&format!("        if {}:", tests.join(" and ")));
        add("            with record_function(\"update\"):");
        add(&format!("                {step}"));
    }
    if dynamic.is_some() {
        add("        self.scaler.update()");
    }
    add("        self.done += 1");
    if ema || lookahead {
        add("        with record_function(\"average\"):");
    }
    if ema {
        add("            follow(self.average, self.network, self.done)");
    }
    if lookahead {
        add("            pull(self.network, self.slow, self.done, steps)");
    }
    add("        return {name: term.detach() for name, term in terms.items()}");
    let mut state = vec![
        "\"network\": self.network.state_dict()".to_owned(),
        "\"rule\": self.rule.state_dict()".to_owned(),
        "\"done\": self.done".to_owned(),
    ];
    let mut load = match shards {
        true => vec!["        fill(self.network, state[\"network\"])", "        fill_rule(self.rule, state[\"rule\"])"],
        false => vec![
            "        self.network.load_state_dict(state[\"network\"])",
            "        self.rule.load_state_dict(state[\"rule\"])",
        ],
    };
    load.push("        self.done = state[\"done\"]");
    if dynamic.is_some() {
        state.push("\"scaler\": self.scaler.state_dict()".to_owned());
        load.push("        self.scaler.load_state_dict(state[\"scaler\"])");
    }
    if ema {
        state.push("\"average\": self.average.state_dict()".to_owned());
        load.push(match shards {
            true => "        fill(self.average, state[\"average\"])",
            false => "        self.average.load_state_dict(state[\"average\"])",
        });
    }
    if lookahead {
        state.push("\"slow\": self.slow".to_owned());
        load.push(match shards {
            true => {
                "        self.slow = {name: divided(kept, self.slow[name]) for name, kept in state[\"slow\"].items()}"
            }
            false => "        self.slow = state[\"slow\"]",
        });
    }
    if parts::leak(program) {
        let named = "for name, p in self.network.named_parameters() if leaks(name)";
        state.push(format!("\"leaked\": {{name: p.grad {named}}}"));
        load.push("        for name, parameter in self.network.named_parameters():");
        load.push("            parameter.grad = state[\"leaked\"].get(name)");
    }
    if shards && shard::has_statistics(program) {
        let buffers = match ema {
            true => "(*self.network.buffers(), *self.average.buffers())",
            false => "self.network.buffers()",
        };
        add("");
        add("    def agree(self) -> None:");
        add("        \"\"\"Gives all processes the running statistics of the first, as DDP does in each step.\"\"\"");
        add(&format!("        for buffer in {buffers} if self.divides else ():"));
        add("            distributed.broadcast(buffer, 0)");
    }
    add("");
    add("    def save(self, path: Path, writes: bool) -> None:");
    add("        \"\"\"Writes a checkpoint, which one process does; the file is complete or absent.\"\"\"");
    add("        state = {");
    state.iter().for_each(|entry| add(&format!("            {entry},")));
    add("        }");
    if shards {
        add("        state = whole(state)");
    }
    add("        if writes:");
    add("            torch.save(state, path.with_suffix(\".new\"))");
    add("            path.with_suffix(\".new\").replace(path)");
    add("");
    add("    def resume(self, path: Path, per_epoch: int) -> None:");
    add("        \"\"\"Goes on from a checkpoint.\"\"\"");
    add("        state = torch.load(path, map_location=self.device, weights_only=True)");
    add("        self.enter(max(state[\"done\"] - 1, 0) // per_epoch)");
    load.iter().for_each(|line| add(line));
    add("");
    add("    def shared(self) -> nn.Module:");
    add("        \"\"\"The network as the steps call it: with gradients summed over all processes.\"\"\"");
    add(if shards { "        if self.ranks == 1 or self.divides:" } else { "        if self.ranks == 1:" });
    add("            return self.network");
    add("        devices = None if self.device.type == \"cpu\" else [self.device.index]");
    add("        return DistributedDataParallel(self.network, devices)");
    Ok(lines.join("\n"))
}

const ALONE: &str = "
    def __init__(self, network: nn.Module, device: torch.device, precision: str, ranks: int) -> None:
        self.network, self.device, self.ranks = network, device, ranks
";

const SHARDED: &str = "
    def __init__(
        self, network: nn.Module, device: torch.device, precision: str, ranks: int, divides: bool = False
    ) -> None:
        self.network, self.device, self.ranks, self.divides = network, device, ranks, divides
";

const TRAINING: &str = r#"
class Training:
    """A network in training: what a checkpoint holds, and the step."""

SIGNATURE
        self.done, self.epoch = 0, -1
        # average
        # divide
        self.rule = optimizer(network)
        self.model = self.shared()
        self.half = precision != "fp32"
        self.autocast = torch.autocast(device.type, PRECISIONS[precision], enabled=self.half)
"#;
