//! The architecture: inputs, blocks and body.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InitDefaults;
pub use crate::layers::Block;
use crate::layers::Body;

zoo_settings::settings! {
    /// The architecture.
    pub struct Model {
        /// Shape of each input without the batch. The body starts from the first one; use `from` for the others.
        #[schemars(length(min = 1))]
        pub inputs: IndexMap<String, InputShape>,
        /// Number of classes; layers refer to it as `$classes`.
        #[schemars(range(min = 1, max = 1000000))]
        pub classes: usize,
        /// Initialisation of parameters whose layer has none.
        pub init: InitDefaults = InitDefaults::default(),
        /// Parts that are used several times.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub blocks: IndexMap<String, Block> = IndexMap::new(),
        /// The layers, from input to output.
        #[schemars(length(min = 1))]
        pub body: Body,
        /// Outputs of the network, if there are several: taps, by the names that losses and metrics use. By default the
        /// last value is the output `logits`.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub outputs: IndexMap<String, String> = IndexMap::new(),
    }
}

/// Shape of an input without the batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum InputShape {
    /// Real numbers, `[channels, height, width]`.
    Image([Extent; 3]),
    /// Whole numbers from 0, for example token ids.
    Indices(IndexShape),
    /// Real numbers of any shape, for example a mask.
    Numbers(NumberShape),
}

zoo_settings::settings! {
    /// Whole numbers from 0, for example token ids.
    pub struct IndexShape {
        /// Their shape: `[256]` for samples of 256 tokens.
        #[schemars(length(min = 1, max = 8))]
        pub indices: Vec<Extent>,
    }
}

zoo_settings::settings! {
    /// Real numbers of any shape, for example a mask that is 1 for tokens and 0 for padding.
    pub struct NumberShape {
        /// Their shape: `[256]` for one number for each of 256 tokens.
        #[schemars(length(min = 1, max = 8))]
        pub numbers: Vec<Extent>,
    }
}

impl InputShape {
    /// The extents.
    pub fn extents(&self) -> &[Extent] {
        match self {
            Self::Image(extents) => extents,
            Self::Indices(shape) => &shape.indices,
            Self::Numbers(shape) => &shape.numbers,
        }
    }

    /// The extents, to be changed.
    pub fn extents_mut(&mut self) -> &mut [Extent] {
        match self {
            Self::Image(extents) => extents,
            Self::Indices(shape) => &mut shape.indices,
            Self::Numbers(shape) => &mut shape.numbers,
        }
    }

    /// Takes these extents, if they are as many.
    pub fn set(&mut self, shape: &[usize]) {
        if shape.len() == self.extents().len() {
            self.extents_mut().iter_mut().zip(shape).for_each(|(extent, size)| *extent = Extent(*size));
        }
    }

    /// Channels, height and width of an image.
    pub fn image(&self) -> Option<[usize; 3]> {
        match self {
            Self::Image(extents) => Some(extents.map(|extent| extent.0)),
            Self::Indices(_) | Self::Numbers(_) => None,
        }
    }

    /// Makes an image of this many pixels either way.
    pub fn set_side(&mut self, side: usize) {
        if let Self::Image([_, height, width]) = self {
            (height.0, width.0) = (side, side);
        }
    }

    /// Number of tokens; `None` for an image.
    pub fn tokens(&self) -> Option<usize> {
        match self {
            Self::Image(_) => None,
            Self::Indices(_) | Self::Numbers(_) => Some(self.extents().iter().map(|extent| extent.0).product()),
        }
    }

    /// Makes a sequence of this many tokens; an image stays as it is.
    pub fn set_tokens(&mut self, tokens: usize) {
        match self {
            Self::Image(_) => {}
            Self::Indices(IndexShape { indices: extents }) | Self::Numbers(NumberShape { numbers: extents }) => {
                extents.last_mut().into_iter().for_each(|last| last.0 = tokens);
            }
        }
    }
}

/// The size of one dimension of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Extent(#[schemars(range(min = 1, max = 65536))] pub usize);

/// A file of shared blocks, in the folder `blocks` next to recipes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockFile {
    /// What these are, in a sentence or two.
    #[serde(default)]
    pub description: Option<String>,
    /// The blocks. A recipe takes one with `model.blocks.NAME.from`.
    #[schemars(length(min = 1))]
    pub blocks: IndexMap<String, Block>,
}
