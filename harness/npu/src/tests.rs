//! Tests of several modules together.

mod by_hand;
mod invariants;
mod measured;
mod real;
mod scores;
mod steps;
