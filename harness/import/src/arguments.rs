//! The arguments of a call, by position and name, with PyTorch's defaults. A call is refused if one of its arguments
//! was not read, so that no argument is ignored.

use zoo_recipe::schema::{Padding, Pair};

use crate::Refusal;
use crate::operation::Unit;
use crate::trace::{Argument, FunctionCall, Made};

/// Arguments that do not change the result of any function.
const WITHOUT_EFFECT: &[&str] = &["inplace", "_stacklevel", "memory_format", "non_blocking", "copy", "device"];

/// Kernel, stride and margins of windows.
pub(crate) type Window = (Pair, Option<Pair>, Padding);

/// The position of a keyword-only argument.
pub(crate) const NAMED: usize = usize::MAX;

/// A call of a function inside a module, and the operations of that module so far.
pub(crate) struct At<'c> {
    /// Path of the module.
    pub module: &'c str,
    /// The call.
    pub call: &'c FunctionCall,
    /// The operations so far.
    pub units: &'c mut Vec<Unit>,
    /// Arguments that have been read.
    read: Vec<&'c Argument>,
}

impl<'c> At<'c> {
    pub fn new(module: &'c str, call: &'c FunctionCall, units: &'c mut Vec<Unit>) -> Self {
        Self { module, call, units, read: Vec::new() }
    }

    /// The refusal of this call.
    pub fn refuse(&self, what: impl Into<String>, nearest: impl Into<String>) -> Refusal {
        Refusal {
            module: self.module.to_owned(),
            operator: self.call.function.clone(),
            at: self.call.at.clone(),
            what: what.into(),
            nearest: nearest.into(),
        }
    }

    /// The refusal of an argument with an unknown form.
    pub fn unknown_form(&self, key: &str) -> Refusal {
        self.refuse(
            format!("its argument `{key}` has a form that is not supported"),
            "numbers, booleans and tensors are supported",
        )
    }

    /// The argument at this position, or with one of these names. Python's `None` counts as absent.
    pub fn argument(&mut self, place: usize, names: &[&str]) -> Option<&'c Argument> {
        let call = self.call;
        let named = || names.iter().find_map(|name| call.kwargs.get(*name));
        let found = call.args.get(place).or_else(named)?;
        self.read.push(found);
        (*found != Argument::None).then_some(found)
    }

    /// A keyword-only argument.
    pub fn named(&mut self, name: &str) -> Option<&'c Argument> {
        self.argument(NAMED, &[name])
    }

    /// The operand of the function.
    pub fn input(&mut self) -> Option<&'c Argument> {
        self.argument(0, &["input", "self", "tensor"])
    }

    /// The result of the call, or the first of several.
    pub fn made(&self) -> Result<&'c Made, Refusal> {
        let none = || self.refuse("its result is not a tensor", "only tensors are supported");
        self.call.outputs.values().next().ok_or_else(none)
    }

    /// Refuses a call with an argument that depends on the number of samples.
    pub fn without_batch(&self) -> Result<(), Refusal> {
        match self.call.args.iter().chain(self.call.kwargs.values()).find_map(Argument::of_batch) {
            Some(text) => Err(self.refuse(
                format!("it depends on the number of samples: its argument is {text} for the traced batch"),
                "layers work on each sample separately, and a batch may have any size; the loss takes the mean",
            )),
            None => Ok(()),
        }
    }

    /// Marks an element type among the arguments as read, if it is this one.
    pub fn without_conversion(&mut self, dtype: &str) {
        let arguments = self.call.args.iter().chain(self.call.kwargs.values());
        self.read.extend(arguments.filter(|argument| matches!(argument, Argument::Dtype(other) if other == dtype)));
    }

    /// Marks all arguments as read, because the shape of the result contains their information.
    pub fn told_by_the_result(&mut self) {
        self.read = self.call.args.iter().chain(self.call.kwargs.values()).collect();
    }

    /// Refuses a call with an argument that was not read.
    pub fn all_read(&self) -> Result<(), Refusal> {
        let places = self.call.args.iter().enumerate().map(|(place, it)| (format!("number {}", place + 1), it));
        let names = self.call.kwargs.iter().filter(|(name, _)| !WITHOUT_EFFECT.contains(&name.as_str()));
        let names = names.map(|(name, it)| (format!("`{name}`"), it));
        let is_read = |it: &Argument| *it == Argument::None || self.read.iter().any(|read| std::ptr::eq(*read, it));
        match places.chain(names).find(|(_, it)| !is_read(it)) {
            Some((name, _)) => {
                Err(self
                    .refuse(format!("its argument {name} is not supported"), "omit it if its default does the same"))
            }
            None => Ok(()),
        }
    }

    pub fn float(&mut self, place: usize, key: &str, usual: f64) -> Result<f64, Refusal> {
        match self.argument(place, &[key]) {
            None => Ok(usual),
            Some(value) => value.number().ok_or_else(|| self.unknown_form(key)),
        }
    }

    pub fn flag(&mut self, place: usize, key: &str, usual: bool) -> Result<bool, Refusal> {
        match self.argument(place, &[key]) {
            None => Ok(usual),
            Some(Argument::Bool(value)) => Ok(*value),
            Some(_) => Err(self.unknown_form(key)),
        }
    }

    pub fn size(&mut self, place: usize, key: &str, usual: Option<usize>) -> Result<usize, Refusal> {
        let found = match self.argument(place, &[key]) {
            Some(value) => value.int().and_then(|value| usize::try_from(value).ok()),
            None => usual,
        };
        found.ok_or_else(|| self.unknown_form(key))
    }

    /// Integers: one, or several in a list.
    pub fn numbers(&mut self, place: usize, key: &str) -> Result<Vec<i64>, Refusal> {
        let found = match self.argument(place, &[key]) {
            Some(Argument::List(items)) => items.iter().map(Argument::int).collect(),
            Some(other) => other.int().map(|value| vec![value]),
            None => None,
        };
        found.ok_or_else(|| self.unknown_form(key))
    }

    /// Height and width: two sizes, or one for both.
    pub fn pair(&mut self, place: usize, key: &str, usual: Option<[usize; 2]>) -> Result<[usize; 2], Refusal> {
        if let Some(usual) = usual
            && self.argument(place, &[key]).is_none_or(|argument| *argument == Argument::List(Vec::new()))
        {
            return Ok(usual);
        }
        let sizes: Option<Vec<usize>> =
            self.numbers(place, key)?.into_iter().map(|size| usize::try_from(size).ok()).collect();
        match sizes.as_deref() {
            Some([both]) => Ok([*both, *both]),
            Some([height, width]) => Ok([*height, *width]),
            Some(_) | None => Err(self.unknown_form(key)),
        }
    }

    pub fn padding(&mut self, place: usize, key: &str) -> Result<Padding, Refusal> {
        let [height, width] = self.pair(place, key, Some([0, 0]))?;
        Ok(Padding([height, height, width, width]))
    }

    /// Kernel, stride and margins of windows. The stride is `None` if it equals the kernel.
    pub fn window(&mut self) -> Result<Window, Refusal> {
        let kernel = self.pair(1, "kernel_size", None)?;
        let stride = self.pair(2, "stride", Some(kernel))?;
        Ok((Pair(kernel), (stride != kernel).then_some(Pair(stride)), self.padding(3, "padding")?))
    }

    /// Refuses a setting whose value differs from that of the layer, which is PyTorch's default.
    pub fn only<T: PartialEq + std::fmt::Debug>(&self, key: &str, found: T, only: T) -> Result<(), Refusal> {
        match found == only {
            true => Ok(()),
            false => Err(self.refuse(format!("its {key} is {found:?}"), format!("the layer has {only:?}"))),
        }
    }

    /// An axis, which may be counted from the end.
    pub fn axis(&mut self, place: usize, names: &[&str], rank: usize) -> Result<usize, Refusal> {
        let argument = self.argument(place, names);
        let axis = argument.and_then(Argument::int).and_then(|axis| wrapped(axis, rank));
        axis.ok_or_else(|| self.unknown_form(names[0]))
    }
}

/// An index, counted from the end of `count` elements if it is negative.
pub(crate) fn wrapped(index: i64, count: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(i64::try_from(count).ok()?)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < count)
}
