//! The communication between ranks in a training step.

use crate::{
    Recipe,
    schema::{Split, SplitWord},
};
use zoo_graph::passes::{AverageOverRanks, Buckets, Pass, Pipeline, SyncBatchNorm};

/// Passes for one of several ranks that share each batch of a recipe's training.
pub fn across(ranks: usize, recipe: &Recipe) -> Pipeline {
    let mut passes: Vec<Box<dyn Pass + Send + Sync>> = Vec::new();
    if ranks > 1 {
        if recipe.train.sync_bn {
            passes.push(Box::new(SyncBatchNorm { ranks }));
        }
        let buckets = match &recipe.npu.all_reduce.split {
            Split::Word(SplitWord::One) => Buckets::One,
            Split::Word(SplitWord::Auto) => Buckets::Filled,
            Split::At(begins) => Buckets::At(begins.clone()),
        };
        passes.push(Box::new(AverageOverRanks { ranks, buckets, overlap: recipe.npu.all_reduce.overlap }));
    }
    Pipeline::of(passes)
}
