//! Recipes: how they are read, resolved, built as graphs, and written as programs.

mod device_passes;
mod diagnostics;
mod emit;
mod emit_rare;
mod graphs;
mod loading;
mod optimizers;
mod recipes;
mod resolving;
mod robustness;
mod schedules;
mod schema_file;
mod shared_blocks;
