//! Tests of several modules together.

mod by_hand;
mod invariants;
mod measured;
mod scores;
mod steps;
