//! The events of a step on streams: device, host, copies, collectives, mask generator.
//!
//! Kernels run in the order of the graph on the device, and host operators on the host. Values that one produces and
//! the other reads are copied. A host operator splits a compiled graph into two parts: it waits for the first part, the
//! second part waits for it, and device and host synchronise as between loops. Sums of gradients have their own stream
//! and run during the backward pass. An update waits for the buckets of all gradients that it needs (for the norm of
//! all gradients, these are all), and updates run in the order in which these end. In eager mode the host launches one
//! kernel after the other, and no kernel starts before it is launched.

use crate::{
    collective::{self, Bucket, Gradient},
    device::Device,
    kernel::Kernel,
    memory::gradient_bytes,
    price::{Bound, Price},
    units::Seconds,
};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use zoo_graph::{Graph, Op, Phase, Place, Source, ValueId, VariableId};
use zoo_recipe::schema::{DropoutKernel, Mode, Npu};

/// Where events run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Kernels of the device.
    Device,
    /// Operators on the host, and launches in eager mode.
    Host,
    /// Copies between host and device.
    Copy,
    /// Sums over devices.
    Collective,
    /// Random masks.
    Masks,
}

/// An event of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name: the operator's node, the copied value, or the bucket.
    pub name: String,
    /// The device's name of the operator.
    pub op: String,
    /// Its stream.
    pub stream: Stream,
    /// Start.
    pub start: Seconds,
    /// End.
    pub end: Seconds,
    /// Its kernel, if it has one.
    pub kernel: Option<usize>,
    /// The event that determined its start. This can be the previous event of its stream.
    pub after: Option<usize>,
}

/// All events of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Events in the order in which they were placed.
    pub events: Vec<Event>,
    /// End of the last event.
    pub end: Seconds,
    /// Sums over devices.
    pub buckets: Vec<Bucket>,
    /// Time of the sums that no computation hides.
    pub exposed: Seconds,
}

/// Inputs of the timeline.
pub struct Plan<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its kernels.
    pub kernels: &'a [Kernel],
    /// The price of each kernel.
    pub prices: &'a [Price],
    /// The device.
    pub device: &'a Device,
    /// Options.
    pub npu: &'a Npu,
    /// Number of devices that train together.
    pub devices: usize,
    /// Number of micro-batches, computed one after the other.
    pub accumulate: usize,
}

impl Plan<'_> {
    /// Places all events.
    pub fn timeline(&self) -> Timeline {
        let is_update = |k: &usize| self.kernels[*k].phase == Phase::Update;
        let (updates, others): (Vec<usize>, Vec<usize>) = (0..self.kernels.len()).partition(is_update);
        let before = self.earlier_micro_batches(&others);
        let mut run = Run::new(self);
        if before > Seconds::ZERO {
            run.earlier(before);
        }
        for k in others {
            run.kernel(k, Seconds::ZERO, None);
        }
        let computed = run.free(Stream::Device);
        let buckets = self.buckets(&run, &updates);
        // Time at which the gradient of each parameter is summed.
        let mut summed: HashMap<usize, (Seconds, Option<usize>)> = HashMap::new();
        for bucket in &buckets {
            let event = run.place(Stream::Collective, "gradients", "HcomAllReduce", bucket.start, bucket.end, None);
            bucket.parameters.iter().for_each(|p| {
                summed.insert(*p, (bucket.end, Some(event)));
            });
        }
        let order: Vec<usize> = buckets.iter().flat_map(|bucket| &bucket.parameters).copied().collect();
        let awaited = self.awaited(&updates, &order);
        let mut ordered: Vec<(Seconds, Option<usize>, usize)> = updates
            .into_iter()
            .zip(awaited)
            .map(|(k, parameter)| {
                let (at, event) = parameter.and_then(|p| summed.get(&p)).copied().unwrap_or_default();
                (at, event, k)
            })
            .collect();
        ordered.sort_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.2.cmp(&b.2)));
        let mut exposed = Seconds::ZERO;
        for (at, event, k) in ordered {
            let waits = at - run.free(Stream::Device).max(computed);
            exposed += waits.max(Seconds::ZERO);
            run.kernel(k, at, event);
        }
        let end = run.events.iter().fold(Seconds::ZERO, |latest, event| latest.max(event.end));
        Timeline { events: run.events, end, buckets, exposed }
    }

    /// Time of all micro-batches except the last: their kernels, and adding their gradients to the sums in memory.
    fn earlier_micro_batches(&self, kernels: &[usize]) -> Seconds {
        if self.accumulate < 2 {
            return Seconds::ZERO;
        }
        let mut run = Run::new(self);
        kernels.iter().for_each(|k| run.kernel(*k, Seconds::ZERO, None));
        let end = run.events.iter().fold(Seconds::ZERO, |latest, event| latest.max(event.end));
        let hbm = &self.device.hbm;
        let rate = hbm.gb_per_s.value * 1e9 * hbm.efficiency.value;
        let launches = self.graph.gradients.len() as f64;
        let launch = match self.npu.mode {
            Mode::Graph => self.device.control.launch_us.value,
            Mode::Eager => self.device.control.launch_us.value.max(self.device.control.eager_launch_us.value),
        };
        let add = Seconds(3.0 * gradient_bytes(self.graph) as f64 / rate + launches * launch * 1e-6);
        (end + add) * (self.accumulate - 1) as f64
    }

    /// The sums over devices, if there are several.
    fn buckets(&self, run: &Run<'_>, updates: &[usize]) -> Vec<Bucket> {
        if self.devices < 2 {
            return Vec::new();
        }
        let parameters = self.parameters();
        let gradients = self.graph.gradients.iter().map(|(id, v)| {
            let parameter = parameters.get(id).copied().unwrap_or_default();
            let ready = run.made(*v).map_or(Seconds::ZERO, |(at, _)| at);
            let bytes = self.graph.ty(*v).shape.numel() as u64 * self.graph.ty(*v).dtype.bytes().0;
            Gradient { parameter, ready, bytes, update: Seconds::ZERO }
        });
        let mut gradients: Vec<Gradient> = gradients.collect();
        collective::sort(&mut gradients);
        let order: Vec<usize> = gradients.iter().map(|gradient| gradient.parameter).collect();
        let mut update: HashMap<Option<usize>, Seconds> = HashMap::new();
        for (k, parameter) in updates.iter().zip(self.awaited(updates, &order)) {
            *update.entry(parameter).or_default() += self.prices[*k].time;
        }
        for gradient in &mut gradients {
            gradient.update = update.get(&Some(gradient.parameter)).copied().unwrap_or_default();
        }
        // Updates that wait for no gradient run first, before the sums arrive.
        let computed = run.free(Stream::Device) + update.get(&None).copied().unwrap_or_default();
        let cost = |bytes| collective::all_reduce(self.device, self.devices, bytes);
        let all_reduce = &self.npu.all_reduce;
        collective::schedule(gradients, computed, &all_reduce.split, all_reduce.overlap, &cost)
    }

    /// Indices of the parameters, in the order of declaration.
    fn parameters(&self) -> HashMap<VariableId, usize> {
        self.graph.parameters().enumerate().map(|(i, (id, _))| (id, i)).collect()
    }

    /// For each kernel of the update, the parameter whose gradient comes last, in `order`, of those that it needs,
    /// itself or through other kernels of the update; none if it needs none. A kernel that reads only a parameter runs
    /// with the update of that parameter. `order`: indices of parameters, as the result.
    fn awaited(&self, updates: &[usize], order: &[usize]) -> Vec<Option<usize>> {
        let indices = self.parameters();
        let places: HashMap<usize, usize> =
            order.iter().enumerate().map(|(place, parameter)| (*parameter, place)).collect();
        let place = |id| places.get(indices.get(id)?).copied();
        // For each value, the place of the last gradient that it is computed from.
        let mut last: HashMap<ValueId, usize> =
            self.graph.gradients.iter().filter_map(|(id, v)| Some((*v, place(id)?))).collect();
        // Only the update reads summed gradients. The backward pass reads those of normalisations before.
        for node in self.graph.nodes.iter().filter(|node| node.phase == Phase::Update) {
            let Some(place) = node.inputs.iter().filter_map(|v| last.get(v)).max().copied() else { continue };
            node.outputs.iter().for_each(|v| {
                last.entry(*v).or_insert(place);
            });
        }
        let own = |v: &ValueId| match self.graph.value(*v).source {
            Source::Variable(id) => indices.get(&id).copied(),
            Source::Input(_) | Source::Node(..) => None,
        };
        let of_kernel = |k: &usize| {
            let operands = || self.kernels[*k].nodes.iter().flat_map(|n| &self.graph.nodes[*n].inputs);
            let place = operands().filter_map(|v| last.get(v)).max();
            place.map(|place| order[*place]).or_else(|| operands().find_map(own))
        };
        updates.iter().map(of_kernel).collect()
    }
}

/// Streams other than that of the device.
const STREAMS_BESIDE: [Stream; 4] = [Stream::Host, Stream::Copy, Stream::Collective, Stream::Masks];

/// A timeline under construction.
struct Run<'p> {
    plan: &'p Plan<'p>,
    events: Vec<Event>,
    /// For each stream, when it is free, and its last event.
    streams: HashMap<Stream, (Seconds, Option<usize>)>,
    /// For each value, when it is computed and by which event, on the machine that computes it.
    made: HashMap<ValueId, (Seconds, usize)>,
    /// Nodes that are in a kernel.
    in_kernel: HashSet<usize>,
    /// The same on the other machine, for copied values.
    copied: HashMap<ValueId, (Seconds, usize)>,
}

impl<'p> Run<'p> {
    fn new(plan: &'p Plan<'p>) -> Self {
        let in_kernel = plan.kernels.iter().flat_map(|kernel| &kernel.nodes).copied().collect();
        let (streams, made, copied) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { plan, events: Vec::new(), streams, made, copied, in_kernel }
    }

    /// Makes every stream start after the earlier micro-batches.
    fn earlier(&mut self, end: Seconds) {
        let event = self.place(Stream::Device, "earlier micro-batches", "AccumulateGrad", Seconds::ZERO, end, None);
        for stream in STREAMS_BESIDE {
            self.streams.insert(stream, (end, Some(event)));
        }
    }

    /// When a stream becomes free.
    fn free(&self, stream: Stream) -> Seconds {
        self.streams.get(&stream).map_or(Seconds::ZERO, |(at, _)| *at)
    }

    fn place(
        &mut self,
        stream: Stream,
        name: &str,
        op: &str,
        start: Seconds,
        end: Seconds,
        after: Option<usize>,
    ) -> usize {
        let event = Event { name: name.to_owned(), op: op.to_owned(), stream, start, end, kernel: None, after };
        self.events.push(event);
        let index = self.events.len() - 1;
        self.streams.insert(stream, (end, Some(index)));
        index
    }

    /// Starts an event once its stream is free and everything that it waits for is complete.
    fn start(
        &mut self,
        stream: Stream,
        name: &str,
        op: &str,
        duration: Seconds,
        waits: &[(Seconds, Option<usize>)],
    ) -> usize {
        let (mut start, mut after) = self.streams.get(&stream).copied().unwrap_or_default();
        for (at, event) in waits {
            if *at > start {
                (start, after) = (*at, *event);
            }
        }
        self.place(stream, name, op, start, start + duration, after)
    }

    /// When a value is computed, and by which event; `None` if it is always available. A node without a kernel has its
    /// results as soon as its operands are computed.
    fn made(&self, v: ValueId) -> Option<(Seconds, usize)> {
        let graph = self.plan.graph;
        let (mut open, mut seen) = (vec![v], HashSet::new());
        let mut latest: Option<(Seconds, usize)> = None;
        while let Some(v) = open.pop() {
            if let Some(made) = self.made.get(&v) {
                latest = latest.filter(|other| other.0 >= made.0).or(Some(*made));
            } else if let Source::Node(n, _) = graph.value(v).source
                && !self.in_kernel.contains(&n.0)
                && seen.insert(n.0)
            {
                open.extend(&graph.node(n).inputs);
            }
        }
        latest
    }

    /// Runs a kernel, not earlier than `at`.
    fn kernel(&mut self, k: usize, at: Seconds, after: Option<usize>) {
        let plan = self.plan;
        let kernel = &plan.kernels[k];
        let node = &plan.graph.nodes[kernel.nodes[0]];
        let mut waits = vec![(at, after)];
        for n in &kernel.nodes {
            for v in plan.graph.nodes[*n].inputs.clone() {
                waits.extend(self.arrival(v, kernel.place));
            }
        }
        let stream = if kernel.place == Place::Host { Stream::Host } else { Stream::Device };
        if plan.npu.mode == Mode::Eager && kernel.place == Place::Device {
            let launches = plan.prices[k].launches as f64;
            let launch = Seconds(plan.device.control.eager_launch_us.value * 1e-6 * launches);
            let event = self.start(Stream::Host, &node.name, "launch", launch, &[]);
            waits.push((self.events[event].end, Some(event)));
        }
        if let Some(mask) = self.mask(k) {
            waits.push((self.events[mask].end, Some(mask)));
        }
        let splits = kernel.place == Place::Host && plan.npu.mode == Mode::Graph;
        if splits {
            waits.extend(self.streams.get(&Stream::Device).copied());
        }
        let event = self.start(stream, &node.name, node.op.name(), plan.prices[k].time, &waits);
        self.events[event].kernel = Some(k);
        let end = self.events[event].end;
        if splits {
            let sync = Seconds(plan.device.control.sync_ms.value * 1e-3);
            self.streams.insert(Stream::Device, (end + sync, Some(event)));
        }
        for n in &kernel.nodes {
            plan.graph.nodes[*n].outputs.iter().for_each(|v| {
                self.made.insert(*v, (end, event));
            });
        }
    }

    /// When a value is available for a kernel on `place`. Copies it if it is computed elsewhere. `None` if it is
    /// always available.
    fn arrival(&mut self, v: ValueId, place: Place) -> Option<(Seconds, Option<usize>)> {
        let made_by = match self.plan.graph.value(v).source {
            Source::Node(n, _) => self.plan.graph.node(n),
            Source::Input(_) | Source::Variable(_) if place == Place::Device => return None,
            Source::Input(_) | Source::Variable(_) => return Some(self.copy(v)),
        };
        if made_by.place == place {
            return self.made(v).map(|(at, event)| (at, Some(event)));
        }
        Some(self.copy(v))
    }

    /// Copies a value to the other machine, once.
    fn copy(&mut self, v: ValueId) -> (Seconds, Option<usize>) {
        if let Some((at, event)) = self.copied.get(&v) {
            return (*at, Some(*event));
        }
        let links = &self.plan.device.links;
        let bytes = self.plan.graph.ty(v).bytes().0 as f64;
        let duration = Seconds(links.host_copy_us.value * 1e-6 + bytes / (links.host_gb_per_s.value * 1e9));
        let ready: Vec<_> = self.made(v).map(|(at, event)| (at, Some(event))).into_iter().collect();
        let name = format!("value {}", v.0);
        let event = self.start(Stream::Copy, &name, "Memcpy", duration, &ready);
        let end = self.events[event].end;
        self.copied.insert(v, (end, event));
        (end, Some(event))
    }

    /// Generates the mask of a dropout in parallel with the kernels, if the device does so. The gradient uses the
    /// same mask.
    fn mask(&mut self, k: usize) -> Option<usize> {
        let plan = self.plan;
        let rate = plan.device.control.mask_elements_per_us.as_ref()?.value * 1e6;
        let dropouts = plan.kernels[k].nodes.iter().map(|n| &plan.graph.nodes[*n]);
        let node = dropouts.filter(|node| node.phase == Phase::Forward).find(|n| matches!(n.op, Op::Dropout(_)))?;
        let elements = plan.graph.ty(node.outputs[0]).shape.numel() as f64;
        // The framework's own dropout draws integers instead of bits, and compares and multiplies them.
        let factor = match plan.npu.dropout {
            DropoutKernel::Device => 1.0,
            DropoutKernel::Framework => 4.0,
        };
        Some(self.start(Stream::Masks, &node.name, "DropOutGenMask", Seconds(factor * elements / rate), &[]))
    }
}

impl Timeline {
    /// The chain of events that determines the end of the step, first to last.
    pub fn critical_path(&self) -> Vec<usize> {
        let last = (0..self.events.len()).max_by(|a, b| self.events[*a].end.0.total_cmp(&self.events[*b].end.0));
        let mut path: Vec<usize> = std::iter::successors(last, |event| self.events[*event].after).collect();
        path.reverse();
        path
    }

    /// Time on the critical path, by limit.
    pub fn bounds(&self, prices: &[Price]) -> Vec<(&'static str, Seconds)> {
        let mut sums: HashMap<&'static str, Seconds> = HashMap::new();
        for event in self.critical_path().into_iter().map(|event| &self.events[event]) {
            let bound = match (event.stream, event.kernel) {
                (Stream::Device | Stream::Host, Some(k)) => prices[k].bound.name(),
                (Stream::Device, None) => "earlier micro-batches",
                (Stream::Host, None) => Bound::Host.name(),
                (Stream::Copy, _) => "copy",
                (Stream::Collective, _) => "collective",
                (Stream::Masks, _) => "masks",
            };
            *sums.entry(bound).or_default() += event.end - event.start;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(b.0)));
        sums
    }
}
