//! Traces, and the recipes that they become.

mod again;
mod attention;
mod computed_weights;
mod decoders;
mod experts;
mod functions;
mod networks;
mod programs;
mod tokens_first;
mod values;
