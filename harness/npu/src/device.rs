//! Device files: the properties of a device that determine its clock. The types define the schema.

use crate::figure::{Figure, figures};
use crate::host::{Host, Pipeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zoo_recipe::schema::Subnormals;

/// A device that trains or evaluates networks. `H` is its host: in a file its name, otherwise the host itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device<H = Host> {
    /// Name of the device and of its file.
    pub name: String,
    /// Description in one sentence.
    pub description: String,
    /// Whether it only evaluates.
    #[serde(default)]
    pub inference_only: bool,
    /// Cores, each with a matrix and a Vector unit.
    pub cores: Figure,
    /// The matrix units.
    pub matrix: Matrix,
    /// The Vector units.
    pub vector: Vector,
    /// On-chip memory of each core.
    pub buffers: Buffers,
    /// The cache shared by the cores.
    pub l2: L2,
    /// Device memory.
    pub hbm: Hbm,
    /// Control of the device: launches, loops, compilation.
    pub control: Control,
    /// Links to other devices.
    pub links: Links,
    /// The host: the name of a file in recipes/hosts.
    pub host: H,
    /// What happens to results that do not fit the half-precision format.
    pub numerics: Numerics,
    /// Which operators the device has, and in which number formats.
    pub operators: Operators,
    /// Software stacks. Published measurements on them have different options, which `zoo score` applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

zoo_recipe::settings! {
    /// Matrix units.
    pub struct Matrix {
        /// Rows, columns and depth of the product that one core computes per cycle.
        pub tile: [usize; 3],
        /// Where the size of the tile is published.
        pub tile_source: String,
        /// Clock.
        pub clock_ghz: Figure,
        /// Share of the peak for a stream of full tiles.
        pub efficiency: Figure,
        /// The same for operators tuned by the tuning engine.
        pub tuned_efficiency: Figure,
        /// Rate in f32 as a share of the rate in half precision.
        pub f32_rate: Figure,
        /// Whether the rows of each image are padded to whole tiles; otherwise the rows of the batch are.
        pub pads_each_image: bool,
        /// Whether channels are padded to whole tiles per tap of the window (layout NC1HWC0).
        pub blocked_channels: bool,
        /// Whether weights and weight gradients of dense layers are converted to the layout of the matrix unit in each
        /// step.
        pub converts_dense: bool,
        /// Whether feature maps in f32 are stored channels first. Convolutions then convert them to channels last for
        /// the matrix units, and back.
        pub transposes_f32: bool = false,
        /// Rate of depthwise convolutions as a share of the rate of others: the matrix unit processes one channel at a
        /// time although it could process many.
        pub depthwise_rate: Figure,
        /// Whether results go directly to the Vector units, without memory, so that a kernel can combine a product and
        /// element-wise operators.
        pub feeds_vector: bool,
    }
}

zoo_recipe::settings! {
    /// Vector units.
    pub struct Vector {
        /// Bytes that one core processes per cycle.
        pub bytes_per_cycle: Figure,
        /// Clock.
        pub clock_ghz: Figure,
        /// Share of the peak that is reached.
        pub efficiency: Figure,
        /// Instructions of a function: an exponential, a logarithm, a root, a quotient.
        pub function_instructions: Figure,
        /// Instructions per tap of a depthwise convolution, if it runs on the Vector units.
        pub depthwise_instructions?: Figure,
        /// Cycles to start an instruction. They are hidden in streams of whole tensors, but not in pooling, which works
        /// row by row.
        pub start_cycles: Figure,
    }
}

zoo_recipe::settings! {
    /// On-chip memory of each core.
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
}

zoo_recipe::settings! {
    /// The cache shared by the cores.
    pub struct L2 {
        /// Size.
        pub mib: Figure,
        /// Bytes per cycle and core.
        pub bytes_per_cycle: Figure,
        /// Share of it in which results stay for the following operators.
        pub resident: Figure,
    }
}

zoo_recipe::settings! {
    /// Device memory.
    pub struct Hbm {
        /// Size.
        pub gib: Figure,
        /// Peak bandwidth.
        pub gb_per_s: Figure,
        /// Share of the peak for long streams.
        pub efficiency: Figure,
        /// The same for operators tuned by the tuning engine.
        pub tuned_efficiency: Figure,
        /// Cost of starting a new run of addresses, in bytes: a copy in runs of `r` bytes takes `1 + this / r` times as
        /// long.
        pub run_overhead_bytes: Figure,
    }
}

zoo_recipe::settings! {
    /// Control of the device.
    pub struct Control {
        /// Time to start an operator of a compiled graph.
        pub launch_us: Figure,
        /// Additional time of a kernel for each tensor that it reads or writes, however small: its address, and the
        /// first access. Absent: none.
        pub tensor_us?: Figure,
        /// Time of the host to launch an operator in eager mode.
        pub eager_launch_us: Figure,
        /// Time of the synchronisation of device and host, once per loop.
        pub sync_ms: Figure,
        /// Share of the shorter stages that overlaps with the longest one if instructions are issued in order.
        pub in_order_overlap: Figure,
        /// Compilation and warm-up before the first step, independent of the graph.
        pub compile_s: Figure,
        /// The same, per operator of the graph.
        pub compile_ms_per_operator: Figure,
        /// Whether the stack can run XLA.
        pub xla: bool = false,
        /// Whether a ReLU stores one bit per element for its gradient.
        pub relu_mask: bool = false,
        /// Random elements per microsecond for dropout masks that are generated in parallel with the operators. Absent:
        /// the operator generates them.
        pub mask_elements_per_us?: Figure,
        /// Whether the optimizer's operator includes weight decay.
        pub decay_in_optimizer: bool = false,
    }
}

zoo_recipe::settings! {
    /// Links to other devices.
    pub struct Links {
        /// Devices in a server.
        pub devices_per_server: Figure,
        /// Fixed time of a collective inside a server.
        pub latency_ms: Figure,
        /// Bandwidth in bytes of gradients, for all devices of a server.
        pub gb_per_s: Figure,
        /// Fixed time of a collective, per doubling of the number of servers.
        pub server_latency_ms: Figure,
        /// Bandwidth of one device to other servers.
        pub server_gb_per_s: Figure,
        /// Additional time of every step with several devices, apart from transfers.
        pub step_ms: Figure,
        /// Relative spread of the times of a step on several devices. A step waits for the slowest one.
        pub spread: Figure,
        /// Bandwidth between host and device.
        pub host_gb_per_s: Figure,
        /// Fixed time of a copy between host and device, including synchronisation.
        pub host_copy_us: Figure,
    }
}

zoo_recipe::settings! {
    /// The operators that the device has.
    pub struct Operators {
        /// Source of the lists.
        pub source: String,
        /// The half-precision type.
        pub half: Half,
        /// Whether the device also computes in bfloat16, if that is not its half-precision type.
        pub bf16: bool = false,
        /// Operators that run in half precision in mixed precision.
        pub white: Vec<String>,
        /// Operators that stay in f32 in mixed precision.
        pub black: Vec<String>,
        /// Operators that do not exist in f32.
        pub half_only: Vec<String> = Vec::new(),
        /// Operators that only accept row-major tensors, so that feature maps are converted before and after them.
        pub row_major: Vec<String> = Vec::new(),
        /// Operators that the device does not have.
        pub missing: Vec<String> = Vec::new(),
        /// Operators for which the software has no kernel: each term of their formula is a kernel.
        pub composed: Vec<String> = Vec::new(),
        /// Rates of the kernels of single operators, relative to those that follow from the numbers of the units: how
        /// well the software's kernels use them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub rates: BTreeMap<String, Figure> = BTreeMap::new(),
        /// Operators that only read their operand in another way (a part of it, or its axes in another order with the
        /// fastest one unchanged). The software leaves this to the operators that read their result.
        pub views: Vec<String> = Vec::new(),
        /// Where the software's fused attention is published, if it has one.
        pub fused_attention: Option<String> = None,
    }
}

impl Operators {
    /// Whether the device computes in bfloat16.
    pub fn computes_bf16(&self) -> bool {
        self.bf16 || self.half == Half::Bf16
    }
}

zoo_recipe::settings! {
    /// What happens to results that do not fit the half-precision format.
    pub struct Numerics {
        /// Results that exceed the largest number.
        pub overflow: Overflow,
        /// Results below the smallest normal number.
        pub subnormals: Subnormals,
        /// Where this is published.
        pub source: String,
    }
}

/// What happens to results that exceed the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// They become the largest number with their sign, and only a status flag shows it.
    Saturate,
    /// They become infinite.
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

zoo_recipe::settings! {
    /// A software stack.
    pub struct Stack {
        /// Its name.
        pub name: String,
        /// Beginnings of the sources of its rows in a throughput file.
        pub sources: Vec<String>,
        /// Its options, as overrides of the recipe: `npu.fusion: false`.
        pub set: Vec<String>,
        /// Reason.
        pub because: String,
        /// Time to start an operator of a compiled graph, if it differs from that of the device.
        pub launch_us?: Figure,
        /// Time of the host to launch an operator in eager mode, if it differs from that of the device.
        pub eager_launch_us?: Figure,
        /// Bandwidth in bytes of gradients inside a server, if its servers have other links.
        pub link_gb_per_s?: Figure,
        /// Operators for which it has no kernel, in addition to those of the device.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub composed: Vec<String> = Vec::new(),
        /// Operators that it leaves to the operators that read their result, in addition to those of the device.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub views: Vec<String> = Vec::new(),
        /// Input pipelines that differ from the recipe.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub pipelines: Vec<Pipeline> = Vec::new(),
    }
}

impl Device<String> {
    /// The device with its host.
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
    /// The device with a software stack: its kernels and its pipelines. Its options are set in the recipe.
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
    /// Number of cores.
    pub fn cores(&self) -> usize {
        (self.cores.value as usize).max(1)
    }

    /// Peak FLOP per second of the matrix units in half precision.
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
