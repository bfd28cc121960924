//! Entry point of the `zoo` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    zoo::main()
}
