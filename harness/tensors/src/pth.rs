//! Files of `torch.save`: a pickle that describes tensors as views of storages, and the storages
//! (<https://pytorch.org/docs/stable/notes/serialization.html>).
//!
//! A file may hold anything beside the tensors: numbers, settings, objects of classes that only its author has. Nothing
//! of it is executed; what is no dictionary of tensors is passed over.

mod entries;
mod storages;
mod view;

use candle_core::{Device, Tensor};
use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
};

use crate::{
    Array,
    array::numel,
    pickle::{Id, Pickle},
};
pub use entries::{Entry, Saved};
use entries::{Key, Names};
use storages::Storages;
pub use storages::{is_one, is_zip};
use view::View;

/// The tensors may take this multiple of the file size: f16 becomes f64, and tied weights occur several times.
const MOST_GROWTH: u64 = 16;
/// They may take this many bytes in any case: a small file may hold a number that is expanded to a tensor.
const FREE: u64 = 64 << 20;

/// The tensors of an entry, in f32.
type Tensors = BTreeMap<String, Tensor>;

impl Saved {
    /// Reads what a file contains, but no values yet.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn open(file: File) -> Result<Self, String> {
        let (pickle, storages) = Storages::open(file)?;
        Self::new(pickle, storages)
    }

    /// The tensors of an entry of [`Saved::entries`], in f32. Tensors that are stored in a way that is not read are left
    /// out unless they are `needed`.
    ///
    /// # Errors
    /// Errors of the file; a tensor that is needed and not read.
    pub fn read(&mut self, entry: &Entry, needed: impl Fn(&str) -> bool) -> Result<Tensors, String> {
        let mut views = Vec::new();
        for (name, id) in &entry.tensors {
            match View::of(&self.pickle, *id) {
                Some(Ok(view)) => views.push((name.clone(), view)),
                Some(Err(reason)) if needed(name) => return Err(format!("tensor `{name}`: {reason}")),
                Some(Err(_)) | None => {}
            }
        }
        let mut tensors = Tensors::new();
        each(&mut self.storages, views, |name, array| {
            let values: Vec<f32> = array.values.iter().map(|value| *value as f32).collect();
            let tensor = Tensor::from_vec(values, array.shape, &Device::Cpu).map_err(|error| error.to_string())?;
            tensors.insert(name, tensor);
            Ok(())
        })?;
        Ok(tensors)
    }
}

/// All saved tensors: a single tensor has no name; tensors in nested dictionaries have the keys joined by `/`.
///
/// # Errors
/// Errors of the file; no tensor.
pub fn read_all(file: File) -> Result<Vec<(String, Array)>, String> {
    let (pickle, mut storages) = Storages::open(file)?;
    let views = nested(&pickle)?;
    if views.is_empty() {
        return Err("there is no tensor in it: torch.save(TENSOR, FILE) writes one".to_owned());
    }
    let mut arrays = Vec::new();
    each(&mut storages, views, |name, array| {
        arrays.push((name, array));
        Ok(())
    })?;
    Ok(arrays)
}

/// The tensors of nested dictionaries.
fn nested(pickle: &Pickle) -> Result<Vec<(String, View)>, String> {
    let mut names = Names::of(pickle);
    let mut seen: HashSet<Id> = HashSet::new();
    let mut views = Vec::new();
    let mut rest = vec![(String::new(), pickle.root())];
    while let Some((name, id)) = rest.pop() {
        if let Some(view) = View::of(pickle, id) {
            views.push((name.clone(), view.map_err(|reason| format!("tensor `{name}`: {reason}"))?));
            continue;
        }
        let Some(items) = pickle.items(id).filter(|_| seen.insert(id)) else { continue };
        for (key, value) in items.iter().rev() {
            let Some(Key::Text(key)) = Key::of(pickle, *key) else { continue };
            let inner = if name.is_empty() { key.to_owned() } else { format!("{name}/{key}") };
            rest.push((names.charge(inner)?, *value));
        }
    }
    Ok(views)
}

/// Passes each tensor to `take`. Parameters may be views of one storage, which is read once.
fn each(
    storages: &mut Storages,
    mut views: Vec<(String, View)>,
    mut take: impl FnMut(String, Array) -> Result<(), String>,
) -> Result<(), String> {
    let mut left = storages.size().saturating_mul(MOST_GROWTH).max(FREE);
    views.sort_by(|(_, a), (_, b)| a.storage.cmp(&b.storage));
    let mut storage: Option<(String, Vec<u8>)> = None;
    for (name, view) in views {
        let fail = |reason: String| match name.as_str() {
            "" => reason,
            name => format!("tensor `{name}`: {reason}"),
        };
        let bytes = numel(&view.shape).and_then(|numel| numel.checked_mul(size_of::<f64>()));
        let rest = bytes.and_then(|bytes| left.checked_sub(bytes as u64));
        left = rest.ok_or_else(|| fail("larger than the file".into()))?;
        let (_, bytes) = match storage.take().filter(|(key, _)| *key == view.storage) {
            Some(read) => storage.insert(read),
            None => {
                let bytes = storages.read(&view.storage).map_err(fail)?;
                storage.insert((view.storage.clone(), bytes))
            }
        };
        let values = view.values(bytes).map_err(fail)?;
        take(name.clone(), Array { dtype: view.dtype, shape: view.shape, values }).map_err(fail)?;
    }
    Ok(())
}
