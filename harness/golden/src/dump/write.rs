//! Writes a dump.

use super::{
    DumpedNode, DumpedValue, FORMAT, Manifest, files,
    names::{Names, converts},
    own::{self, Operand, Own},
};
use crate::{
    GoldenError,
    bound::Bound,
    compare::Precision,
    device::{DeviceOptions, scaled, stage},
    golden::Golden,
    probe::to_f64,
};
use candle_core::Tensor;
use serde_json::json;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use zoo_datasets::{atomic::Aside, hash::fnv1a64};
use zoo_engine::{EngineError, Inputs, Observer, Options, Scalars, Step, StepResult, simulate::Tally};
use zoo_graph::{DType, Graph, Node, Source, ValueId};
use zoo_recipe::Recipe;
use zoo_tensors::safetensors::Reader;

/// The arithmetic of a dumped step.
#[derive(Clone, Copy)]
pub enum Arithmetics<'a> {
    /// Of this machine.
    Host(Precision),
    /// Of a device.
    Device(DeviceOptions<'a>),
}

/// How to dump a step.
#[derive(Clone, Copy)]
pub struct DumpOptions<'a> {
    /// The arithmetic.
    pub arithmetic: Arithmetics<'a>,
    /// Kernels and threads. Operators are not fused, so that each of them has its values.
    pub engine: Options,
}

/// A dump that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The folder.
    pub folder: PathBuf,
    /// Number of nodes.
    pub nodes: usize,
    /// Size of both files.
    pub bytes: u64,
    /// The hash of the step, as in the manifest.
    pub hash: String,
}

/// Runs the first step of the golden and writes all its values to a folder.
///
/// # Errors
/// A step that cannot be built or run, or files that cannot be written. An existing dump is replaced only when the
/// new one is complete.
pub fn dump(
    recipe: &Recipe,
    golden: &Golden,
    options: &DumpOptions<'_>,
    folder: &Path,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<Written, GoldenError> {
    let Ready { bound: Bound { recipe, golden, .. }, mut step, inputs, scalars, dtype } =
        Ready::of(recipe, golden, options)?;

    let [manifest_file, values_file] = files(folder);
    let unwritable = GoldenError::unwritable;
    fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let aside = values_file.with_extension("partial");
    let graph = step.graph().clone();
    progress("step, written as it is computed", graph.nodes.len());
    let mut recorder = Recorder::create(&graph, &aside).map_err(unwritable(&aside))?;
    let result = step.run(&inputs, scalars, &mut recorder)?;
    recorder.finish(&graph).map_err(unwritable(&aside))?;

    let tallies = step.findings().map(|findings| findings.tallies.clone()).unwrap_or_default();
    let hash = hash(&result, &step)?;
    drop(step);
    let values = Reader::open(&aside)?;
    let describe =
        Describe { graph: &graph, names: Names::of(&graph), scaled: scaled(&graph), values, inputs, scalars };
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for (n, node) in graph.nodes.iter().enumerate() {
        progress(&format!("own error of node {} of {}", n + 1, graph.nodes.len()), graph.nodes.len() - n - 1);
        nodes.push(describe.node(node, tallies.get(n).copied().unwrap_or_default(), result.skipped)?);
    }
    let sources = (0..graph.values.len())
        .map(ValueId)
        .filter(|v| !matches!(graph.value(*v).source, Source::Node(..)) && graph.ty(*v).dtype.is_float());
    let manifest = Manifest {
        zoo_dump: FORMAT,
        zoo: env!("CARGO_PKG_VERSION").to_owned(),
        recipe: recipe.name.clone(),
        golden: golden.path.display().to_string(),
        device: match options.arithmetic {
            Arithmetics::Host(_) => "host".to_owned(),
            Arithmetics::Device(DeviceOptions { device, .. }) => device.to_owned(),
        },
        dtype: dtype.to_owned(),
        loss_scale: scalars.loss_scale,
        losses: result.losses.iter().map(|(name, loss)| (name.clone(), loss.is_finite().then_some(*loss))).collect(),
        hash,
        sources: sources.map(|v| describe.value(v)).collect(),
        nodes,
    };
    let text = serde_json::to_string(&manifest).map_err(|error| crate::error::malformed(&manifest_file, error))?;
    let manifest_aside = Aside::write(&manifest_file, |out| out.write_all(text.as_bytes()));
    let manifest_aside = manifest_aside.map_err(unwritable(&manifest_file))?;
    fs::rename(&aside, &values_file).map_err(unwritable(&values_file))?;
    manifest_aside.commit().map_err(unwritable(&manifest_file))?;
    let bytes = text.len() as u64 + fs::metadata(&values_file).map_err(unwritable(&values_file))?.len();
    Ok(Written { folder: folder.to_owned(), nodes: manifest.nodes.len(), bytes, hash: manifest.hash })
}

/// The hash of a step without an observer, which must equal [`Manifest::hash`] of the dumped step.
///
/// # Errors
/// A step that cannot be built or run.
pub fn hash_of_step(recipe: &Recipe, golden: &Golden, options: &DumpOptions<'_>) -> Result<String, GoldenError> {
    let Ready { mut step, inputs, scalars, .. } = Ready::of(recipe, golden, options)?;
    let result = step.run(&inputs, scalars, &mut ())?;
    hash(&result, &step)
}

/// Hash of the bits of all losses and of all variables.
fn hash(result: &StepResult, step: &Step) -> Result<String, GoldenError> {
    let mut bytes: Vec<u8> = result.losses.iter().flat_map(|(_, loss)| loss.to_bits().to_le_bytes()).collect();
    for (_, tensor) in step.variables()? {
        let elements = to_f64(&tensor).map_err(EngineError::from)?;
        let bits: Vec<u8> = elements.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
        bytes.extend(fnv1a64(&bits).to_le_bytes());
    }
    Ok(format!("{:016x}", fnv1a64(&bytes)))
}

/// A step that is ready to run.
struct Ready {
    bound: Bound,
    step: Step,
    inputs: Inputs,
    scalars: Scalars,
    dtype: &'static str,
}

impl Ready {
    fn of(recipe: &Recipe, golden: &Golden, options: &DumpOptions<'_>) -> Result<Self, GoldenError> {
        let (precision, dtype) = match options.arithmetic {
            Arithmetics::Host(Precision::F64) => (Precision::F64, "f64"),
            Arithmetics::Host(Precision::F32) | Arithmetics::Device(_) => (Precision::F32, "f32"),
        };
        let bound = Bound::new(recipe, golden, precision, options.engine)?;
        let (step, scalars) = match options.arithmetic {
            Arithmetics::Host(_) => {
                let step = Step::new(bound.graph.clone(), bound.engine.without_fusion())?;
                (bound.at_start(step)?, bound.scalars(0))
            }
            Arithmetics::Device(DeviceOptions { arithmetic, loss_scale, .. }) => {
                bound.simulated(arithmetic, loss_scale)?
            }
        };
        Ok(Self { inputs: bound.inputs()?, bound, step, scalars, dtype })
    }
}

/// Writes each value to its position in the file as soon as it exists.
struct Recorder {
    file: BufWriter<File>,
    places: HashMap<ValueId, Place>,
    written: usize,
    failed: Option<io::Error>,
}

/// The position of a value.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    numel: usize,
    wide: bool,
}

impl Recorder {
    /// Writes the header: all shapes are known before the step runs.
    fn create(graph: &Graph, path: &Path) -> io::Result<Self> {
        let names = Names::of(graph);
        let (mut header, mut places, mut offset) = (serde_json::Map::new(), HashMap::new(), 0u64);
        for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
            let v = ValueId(v);
            let wide = value.ty.dtype == DType::F64;
            let (numel, size) = (value.ty.shape.numel(), if wide { 8 } else { 4 });
            let end = offset + numel as u64 * size;
            let (dtype, shape) = (if wide { "F64" } else { "F32" }, value.ty.shape.to_vec());
            header.insert(
                names.own(v).to_owned(),
                json!({"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}),
            );
            places.insert(v, Place { offset, numel, wide });
            offset = end;
        }
        let header = serde_json::Value::Object(header).to_string();
        let padding = header.len().next_multiple_of(8) - header.len();
        let start = 8 + (header.len() + padding) as u64;
        places.values_mut().for_each(|place| place.offset += start);
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&(start - 8).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        file.write_all(&b"        "[..padding])?;
        Ok(Self { file, places, written: 0, failed: None })
    }

    fn record(&mut self, place: Place, tensor: &Tensor) -> io::Result<()> {
        let other = |error: candle_core::Error| io::Error::other(error.to_string());
        if tensor.elem_count() != place.numel {
            return Err(io::Error::other("a value has another size than its type"));
        }
        self.file.seek(SeekFrom::Start(place.offset))?;
        let flat = tensor.flatten_all().map_err(other)?;
        if place.wide {
            flat.to_vec1::<f64>().map_err(other)?.iter().try_for_each(|x| self.file.write_all(&x.to_le_bytes()))
        } else {
            flat.to_vec1::<f32>().map_err(other)?.iter().try_for_each(|x| self.file.write_all(&x.to_le_bytes()))
        }
    }

    /// Checks that every value was observed and written.
    fn finish(mut self, graph: &Graph) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.written != self.places.len() {
            let message =
                format!("{} of {} values were shown ({} nodes)", self.written, self.places.len(), graph.nodes.len());
            return Err(io::Error::other(message));
        }
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

impl Observer for Recorder {
    fn wants(&self, value: ValueId) -> bool {
        self.places.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let Some(place) = self.places.get(&value).copied() else { return };
        self.written += 1;
        if let Err(error) = self.record(place, tensor) {
            self.failed.get_or_insert(error);
        }
    }
}

/// Describes the values and nodes of a step that has run.
struct Describe<'a> {
    graph: &'a Graph,
    names: Names,
    scaled: Vec<bool>,
    values: Reader,
    inputs: Inputs,
    scalars: Scalars,
}

impl Describe<'_> {
    fn value(&self, v: ValueId) -> DumpedValue {
        DumpedValue {
            name: self.names.own(v).to_owned(),
            exact: self.names.exact(v).to_owned(),
            dtype: self.graph.ty(v).dtype.to_string(),
            scaled: self.scaled[v.0],
        }
    }

    fn node(&self, node: &Node, tally: Tally, skipped: bool) -> Result<DumpedNode, GoldenError> {
        let float = |v: &&ValueId| self.graph.ty(**v).dtype.is_float();
        let elements: usize = node.outputs.iter().map(|v| self.graph.ty(*v).shape.numel()).sum();
        let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
        // A skipped update computes nothing.
        let computes = !(skipped && node.op.is_skipped());
        Ok(DumpedNode {
            node: node.name.clone(),
            op: node.op.name().to_owned(),
            stage: stage(node.phase),
            line: node.origin.as_ref().map(|origin| origin.span.to_string()),
            converts: converts(node),
            reads: node.inputs.iter().filter(float).map(|v| self.names.own(*v).to_owned()).collect(),
            writes: node.outputs.iter().filter(float).map(|v| self.value(*v)).collect(),
            own: if computes { Some(self.own(node)?) } else { None },
            underflow: share(tally.flushed, tally.nonzero),
            overflow: share(tally.overflowed, elements as u64),
        })
    }

    fn own(&self, node: &Node) -> Result<Own, GoldenError> {
        let mut operands = Vec::new();
        for v in &node.inputs {
            let ty = self.graph.ty(*v);
            operands.push(match self.graph.value(*v).source {
                Source::Input(i) if !ty.dtype.is_float() => {
                    let name = &self.graph.inputs[i].name;
                    let labels =
                        self.inputs.get(name).ok_or_else(|| crate::error::malformed(self.values.path(), name))?;
                    Operand::Index(labels.clone())
                }
                _ => Operand::Float(self.values.read(self.names.own(*v))?.values, ty.shape.to_vec()),
            });
        }
        let (mut results, mut dtypes) = (Vec::new(), Vec::new());
        for v in &node.outputs {
            results.push(self.values.read(self.names.own(*v))?.values);
            dtypes.push(self.graph.ty(*v).dtype);
        }
        own::own(node, &operands, &results, &dtypes, self.scalars)
    }
}
