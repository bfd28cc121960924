//! Programs in PyTorch of recipes that are drawn, against zoo's own step in f64.

use crate::prove::Prover;
use std::path::{Path, PathBuf};
use std::process::Command;
use zoo_recipe::emit::{Dialect, Origin, program};

/// What became of a recipe.
pub enum Written {
    /// Its program is in this folder, and its step in the folder `golden` above.
    Program(PathBuf),
    /// It has no program, for this reason.
    Refused(String),
    /// Its step is not finite.
    NotFinite,
}

/// Writes the step of a recipe and its program: with its training, or with its rules if its training has none.
pub fn write(prover: &Prover, text: &str, name: &str, folder: &Path) -> Result<Written, String> {
    let told = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let text = format!("{text}\ngolden: {{manifest: {name}/step.json}}\n");
    let golden = folder.join("golden").join(name);
    std::fs::create_dir_all(&golden).map_err(|error| told(&error))?;
    let recipe = prover.load(&folder.join(format!("{name}.yaml")), &text)?;
    if prover.recorded(&recipe, &golden.join("step"))?.is_none() {
        return Ok(Written::NotFinite);
    }
    let model = recipe.resolve().map_err(|errors| told(&errors))?;
    let files = |rules_alone| {
        let origin = Origin { recipe: name, profile: None, sets: &[], rules_alone, version: "0", hash: |_| 0 };
        program(Dialect::PyTorch, &recipe, &model, origin)
    };
    let files = match files(false).or_else(|_| files(true)) {
        Ok(files) => files,
        Err(reason) => return Ok(Written::Refused(reason.to_string())),
    };
    let folder = folder.join("programs").join(name);
    std::fs::create_dir_all(&folder).map_err(|error| told(&error))?;
    for (file, text) in files {
        std::fs::write(folder.join(file), text).map_err(|error| told(&error))?;
    }
    Ok(Written::Program(folder))
}

/// Whether programs compute the values of their goldens, as `python -m zoo_golden prove` says: `PYTHON` names an
/// interpreter with PyTorch.
pub fn prove(programs: &[PathBuf]) -> bool {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let export = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/export");
    let mut command = Command::new(&python);
    command.args(["-m", "zoo_golden", "prove", "--values-only"]).args(programs).env("PYTHONPATH", export);
    command.status().unwrap_or_else(|error| panic!("{python}: {error}")).success()
}
