//! Runs the command, and reads what it says.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

/// What a command said and how it ended.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The only line of stdout, as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in: {}\n{}", self.out, self.err))
    }

    /// Every line of stdout, as JSON.
    pub fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in: {line}"))).collect()
    }

    /// Requires an exit code.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }
}

/// Folder of this source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command, in the root of the source tree, without the user's environment.
pub fn command() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    command
        .current_dir(root())
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("GITHUB_ACTIONS")
        .env("COLUMNS", "100");
    command
}

/// Runs the command with arguments separated by blanks.
pub fn zoo(arguments: &str) -> Said {
    said(command().args(arguments.split_whitespace()))
}

/// Runs a command.
pub fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
