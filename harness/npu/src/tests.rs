//! Tests of several modules together.

mod by_hand;
mod invariants;
mod scores;
mod steps;
