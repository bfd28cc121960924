//! Device files: what a device can do, as far as the clock asks. The types here are the schema.

mod library;

pub use library::DeviceLibrary;
pub(crate) use library::{unknown_operator, yaml_files};

use crate::host::{Host, Pipeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_recipe::schema::Subnormals;

/// A number of a device, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit that the key names.
    #[schemars(range(min = 0))]
    pub value: f64,
    /// Where it is published, how it follows from what is, or that it is assumed.
    pub source: String,
    /// What it was fitted to: rows of a throughput file, or a study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted_to: Vec<String>,
}

/// A device that trains or evaluates networks. `H` is its host: in a file the name of one, else the host itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device<H = Host> {
    /// Name: that of the file.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// Whether it evaluates only.
    #[serde(default)]
    pub inference_only: bool,
    /// Cores, each with a matrix and a Vector unit.
    pub cores: Figure,
    /// The matrix units.
    pub matrix: Matrix,
    /// The Vector units.
    pub vector: Vector,
    /// On-chip memory of one core.
    pub buffers: Buffers,
    /// The cache that the cores share.
    pub l2: L2,
    /// Device memory.
    pub hbm: Hbm,
    /// How the device is driven.
    pub control: Control,
    /// Links to other devices.
    pub links: Links,
    /// The host: the name of a file in recipes/hosts.
    pub host: H,
    /// What half-precision results become that the format cannot hold.
    pub numerics: Numerics,
    /// Which operators the device has, and in which number formats.
    pub operators: Operators,
    /// Software stacks whose published figures differ in their options, for `zoo score`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// Matrix units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Rows, columns and depth of the product that one core does per cycle.
    pub tile: [usize; 3],
    /// Where the tile's size is published.
    pub tile_source: String,
    /// Clock.
    pub clock_ghz: Figure,
    /// Share of the peak that a stream of full tiles reaches.
    pub efficiency: Figure,
    /// The same for operators that went through the tuning engine.
    pub tuned_efficiency: Figure,
    /// Rate in f32 as a share of the rate in half precision.
    pub f32_rate: Figure,
    /// Whether the rows of each image are padded to whole tiles (else those of the batch).
    pub pads_each_image: bool,
    /// Whether channels are padded to whole tiles per tap of the window (layout NC1HWC0).
    pub blocked_channels: bool,
    /// Whether dense layers have their weights and weight gradients converted to the matrix unit's layout each step.
    pub converts_dense: bool,
    /// Whether feature maps in f32 lie channels first, and convolutions bring them to channels last and back, which the
    /// matrix units take.
    #[serde(default)]
    pub transposes_f32: bool,
    /// Rate of convolutions of single channels as a share of the rate of others: a channel at a time goes through a
    /// unit that takes many.
    pub depthwise_rate: Figure,
    /// Whether results pass to the Vector units without memory, so that element-wise operators ride on products.
    pub feeds_vector: bool,
}

/// Vector units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// Bytes that one core processes per cycle.
    pub bytes_per_cycle: Figure,
    /// Clock.
    pub clock_ghz: Figure,
    /// Share of the peak that is reached.
    pub efficiency: Figure,
    /// Instructions that a function takes: an exponential, a logarithm, a root, a quotient.
    pub function_instructions: Figure,
    /// Instructions per tap of a convolution of single channels, where these run on the Vector units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depthwise_instructions: Option<Figure>,
    /// Cycles to start an instruction. Streams of whole tensors hide them; pools, which work row by row, do not.
    pub start_cycles: Figure,
}

/// On-chip memory of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Buffers {
    /// Left operands of the matrix unit.
    pub l0a_kib: Figure,
    /// Right operands.
    pub l0b_kib: Figure,
    /// Sums.
    pub l0c_kib: Figure,
    /// Tiles of feature maps and filters.
    pub l1_kib: Figure,
    /// Operands and results of the Vector unit.
    pub unified_kib: Figure,
    /// Bytes per cycle into the left operands.
    pub l0a_bytes_per_cycle: Figure,
    /// Bytes per cycle into the right operands.
    pub l0b_bytes_per_cycle: Figure,
}

/// The cache that the cores share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Size.
    pub mib: Figure,
    /// Bytes per cycle and core.
    pub bytes_per_cycle: Figure,
    /// Share of it in which results stay for the operators that follow.
    pub resident: Figure,
}

/// Device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hbm {
    /// Size.
    pub gib: Figure,
    /// Peak bandwidth.
    pub gb_per_s: Figure,
    /// Share of the peak that long streams reach.
    pub efficiency: Figure,
    /// The same for operators that went through the tuning engine.
    pub tuned_efficiency: Figure,
    /// Bytes that starting a new run of addresses costs: a copy in runs of `r` bytes takes `1 + this / r` times as
    /// long.
    pub run_overhead_bytes: Figure,
}

/// How the device is driven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Start of an operator of a compiled graph.
    pub launch_us: Figure,
    /// Time of the host to launch an operator in eager mode.
    pub eager_launch_us: Figure,
    /// Time in which device and host wait for each other once per loop.
    pub sync_ms: Figure,
    /// Share of the shorter stages that overlaps with the longest if instructions are issued in order.
    pub in_order_overlap: Figure,
    /// Compilation and warm-up before the first step, whatever the graph.
    pub compile_s: Figure,
    /// The same per operator of the graph.
    pub compile_ms_per_operator: Figure,
    /// Whether the stack can run XLA.
    #[serde(default)]
    pub xla: bool,
    /// Whether a ReLU keeps one bit per element for its gradient.
    #[serde(default)]
    pub relu_mask: bool,
    /// Random bits per second for dropout masks, made beside the operators; absent: made within the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_elements_per_us: Option<Figure>,
    /// Whether the optimizer's operator decays weights itself.
    #[serde(default)]
    pub decay_in_optimizer: bool,
}

/// Links to other devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Devices in a server.
    pub devices_per_server: Figure,
    /// Fixed time of a collective inside a server.
    pub latency_ms: Figure,
    /// Bytes of the gradients over time, for all devices of a server.
    pub gb_per_s: Figure,
    /// Fixed time of a collective per doubling of the servers.
    pub server_latency_ms: Figure,
    /// Bandwidth of one device to other servers.
    pub server_gb_per_s: Figure,
    /// Time that every step with several devices costs beyond the transfers.
    pub step_ms: Figure,
    /// How much the times of the same step on several devices spread, as a share: a step waits for the slowest.
    pub spread: Figure,
    /// Bandwidth between host and device.
    pub host_gb_per_s: Figure,
    /// Fixed time of a copy between host and device, the wait for each other included.
    pub host_copy_us: Figure,
}

/// Which operators the device has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operators {
    /// Where the lists come from.
    pub source: String,
    /// The half-precision type.
    pub half: Half,
    /// Operators that mixed precision reduces.
    pub white: Vec<String>,
    /// Operators that mixed precision keeps in f32.
    pub black: Vec<String>,
    /// Operators without an f32 form.
    #[serde(default)]
    pub half_only: Vec<String>,
    /// Operators that take row-major tensors only, so that feature maps are converted around them.
    #[serde(default)]
    pub row_major: Vec<String>,
    /// Operators that the device does not have.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Operators for which the software has no kernel of its own: each term of their formula is one.
    #[serde(default)]
    pub composed: Vec<String>,
    /// Operators that only read their operand otherwise (parts of it, axes in another order with the fastest left
    /// alone), and that the software leaves to those that read them.
    #[serde(default)]
    pub views: Vec<String>,
    /// Where the software's fused attention is published, if it has one.
    #[serde(default)]
    pub fused_attention: Option<String>,
}

/// What half-precision results become that the format cannot hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Numerics {
    /// Results beyond the largest number.
    pub overflow: Overflow,
    /// Results below the smallest normal number.
    pub subnormals: Subnormals,
    /// Where this is published.
    pub source: String,
}

/// What becomes of results beyond the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The largest number of their sign; only a status flag tells.
    Saturate,
    /// Infinity.
    Infinite,
}

/// A half-precision type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// IEEE half precision.
    Fp16,
    /// bfloat16.
    Bf16,
}

/// A software stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Its name.
    pub name: String,
    /// How the sources of its rows begin in a throughput file.
    pub sources: Vec<String>,
    /// Its options, as overrides of the recipe: `npu.fusion: false`.
    pub set: Vec<String>,
    /// Why.
    pub because: String,
    /// Start of an operator of a compiled graph, where it is not the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_us: Option<Figure>,
    /// The host's launch of an operator in eager mode, where it is not the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eager_launch_us: Option<Figure>,
    /// Bytes of the gradients over time inside a server, where its servers link devices otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_gb_per_s: Option<Figure>,
    /// Operators for which it has no kernel of its own, beyond the device's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub composed: Vec<String>,
    /// Operators that it leaves to those that read them, beyond the device's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<String>,
    /// Pipelines that are not as the recipe has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipelines: Vec<Pipeline>,
}

impl Device<String> {
    /// The same with its host.
    pub fn on(self, host: Host) -> Device {
        let Self {
            name,
            description,
            inference_only,
            cores,
            matrix,
            vector,
            buffers,
            l2,
            hbm,
            control,
            links,
            host: _,
            numerics,
            operators,
            stacks,
        } = self;
        Device {
            name,
            description,
            inference_only,
            cores,
            matrix,
            vector,
            buffers,
            l2,
            hbm,
            control,
            links,
            host,
            numerics,
            operators,
            stacks,
        }
    }
}

impl Device {
    /// The device as a software stack drives it: its kernels and its pipelines. Its options are the recipe's.
    #[must_use]
    pub fn under(mut self, stack: &Stack) -> Self {
        self.operators.composed.extend(stack.composed.iter().cloned());
        self.operators.views.extend(stack.views.iter().cloned());
        if let Some(launch) = &stack.launch_us {
            self.control.launch_us = launch.clone();
        }
        if let Some(launch) = &stack.eager_launch_us {
            self.control.eager_launch_us = launch.clone();
        }
        if let Some(bandwidth) = &stack.link_gb_per_s {
            self.links.gb_per_s = bandwidth.clone();
        }
        self.host.pipelines.extend(stack.pipelines.iter().cloned());
        self
    }

    /// Whether a figure of this device was fitted to `row`.
    pub fn is_fitted_to(&self, row: &str) -> bool {
        self.figures().iter().any(|(_, figure)| figure.fitted_to.iter().any(|name| name == row))
    }
}

impl<H: Serialize> Device<H> {
    /// Cores.
    pub fn cores(&self) -> usize {
        (self.cores.value as usize).max(1)
    }

    /// FLOP per second that the matrix units could do in half precision.
    pub fn peak_flops(&self) -> f64 {
        let [m, n, k] = self.matrix.tile;
        2.0 * (m * n * k) as f64 * self.cores.value * self.matrix.clock_ghz.value * 1e9
    }

    /// Bytes of device memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.hbm.gib.value * f64::from(1 << 30)) as u64
    }

    /// All figures, with their paths.
    pub fn figures(&self) -> Vec<(String, Figure)> {
        figures(self)
    }
}

/// All figures of a file, with their paths.
fn figures(file: &impl Serialize) -> Vec<(String, Figure)> {
    fn walk(path: &str, value: &serde_json::Value, found: &mut Vec<(String, Figure)>) {
        if let Ok(figure) = serde_json::from_value::<Figure>(value.clone()) {
            found.push((path.to_owned(), figure));
        } else if let Some(map) = value.as_object() {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                walk(&format!("{path}{dot}{key}"), value, found);
            }
        } else if let Some(list) = value.as_array() {
            list.iter().enumerate().for_each(|(i, value)| walk(&format!("{path}[{i}]"), value, found));
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(file) {
        walk("", &value, &mut found);
    }
    found
}
