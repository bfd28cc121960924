//! Entry point of the `zoo` command.

fn main() {}
