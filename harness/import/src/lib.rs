//! Converts the trace of a PyTorch network to a recipe.
//!
//! [`Trace::read`] reads the document that `python -m zoo_golden port` writes. [`import`] returns the text of a recipe:
//! functions of torch become layers (`functions` dispatches to `layers`, `pointwise`, `maps`, `joins`, `attention`,
//! `scores` and `axes`; `arguments` checks that no argument is ignored; views of a tensor are combined in `view`),
//! operands become branches (`structure`), repeated modules become blocks and stacks (`layout`, `fold`, `generalise`),
//! and `write` writes all this in the style of an author. `proof` compares the result with the trace: operation by
//! operation, module by module, parameter by parameter; `modes` compares the calls in training and in evaluation mode.
//! Unsupported operations are never omitted: they are an
//! [`ImportError::Refused`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let trace = zoo_import::Trace::read(&std::fs::read("../../tests/fixtures/traces/resnet18.json")?)?;
//! let imported = zoo_import::import(&trace, "my_resnet18")?;
//! assert!(imported.text.contains("name: my_resnet18"));
//! assert_eq!(imported.proof.parameters, 62);
//! # Ok(())
//! # }
//! ```

mod alibi;
mod align;
mod arguments;
mod attention;
mod axes;
mod borrowed;
mod checks;
mod computed_weights;
mod constant;
mod constants;
mod correlation;
mod cosine;
mod decay;
mod distances;
mod error;
mod experts;
mod fold;
mod formula;
mod functions;
mod generalise;
mod gradients;
mod heads;
mod item;
mod joins;
mod layers;
mod layout;
mod log_softmax;
mod loss;
mod maps;
mod masks;
mod modes;
mod numbers;
mod offsets;
mod operands;
mod operation;
mod overwritten;
mod parameters;
mod patches;
mod pointwise;
mod products;
mod proof;
mod read;
mod reader;
mod recipe;
mod rows;
mod scalar;
mod scores;
mod sides;
mod sines;
mod slots;
mod standardised;
mod structure;
mod table;
mod tables;
mod tokens;
mod trace;
mod turned;
mod unfold;
mod view;
mod windows;
mod word;
mod write;

pub use constant::Constant;
pub use error::{ImportError, Refusal};
pub use proof::Proof;
pub use trace::{FORMAT, LossKind, LossTerm, MAX_BYTES, Trace, Training};

use proof::Results;
use zoo_recipe::{Library, LoadOptions, Recipe};

/// A recipe, and the proof that it equals the traced network.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of the recipe.
    pub text: String,
    /// Numbers of parts that were found equal.
    pub proof: Proof,
    /// Keys of the module outputs that the recipe has, as goldens name them.
    pub outputs: Vec<String>,
}

/// The recipe of a traced network, under this name.
///
/// The recipe was loaded, resolved and compared with the trace: the same operations with the same settings on the same
/// operands, the same module outputs, the same parameters with the same shapes.
///
/// # Errors
/// The first unsupported operation; or a recipe that differs from the network.
pub fn import(trace: &Trace, name: &str) -> Result<Imported, ImportError> {
    error::check_names(trace)?;
    let mut network = read::read(trace)?;
    let evaluation = trace.in_evaluation();
    if let Some(evaluation) = &evaluation {
        modes::same(trace, &network, &read::read_evaluation(evaluation)?)?;
    }
    network.say_scales();
    let mut training = trace.training.clone().unwrap_or_default();
    let (mut imported, roles) = proven(trace, &training, &network, name)?;
    if !training.undecayed.is_empty() {
        // The layers tell normalisations and biases apart, so the exceptions from the decay are written at last.
        decay::spare(&mut training.optimizer, &training.undecayed, &roles);
        imported = proven(trace, &training, &network, name)?.0;
    }
    imported.proof.evaluation = evaluation.is_some();
    Ok(imported)
}

/// Proves that a recipe is the traced network, whatever wrote either: the same operations with the same settings on the
/// same operands, the same module outputs, the same parameters with the same shapes.
///
/// # Errors
/// The first unsupported operation of the network; what differs from the recipe; a recipe that cannot be resolved.
pub fn compare(trace: &Trace, recipe: &Recipe) -> Result<Proof, ImportError> {
    error::check_names(trace)?;
    let network = read::read_any(trace)?;
    let evaluation = trace.in_evaluation();
    if let Some(evaluation) = &evaluation {
        modes::same(trace, &network, &read::read_evaluation(evaluation)?)?;
    }
    let model = recipe.resolve().map_err(|errors| ImportError::Invalid(Box::new(errors)))?;
    let shapes = zoo_recipe::layer_shapes(recipe, &model).map_err(|error| error::unbuildable(recipe, error))?;
    let proof = proof::same(&network, &model, shapes, Results::Tensors)?;
    let parameters = proof::shapes(trace, recipe, &model)?.0.len();
    Ok(Proof { parameters, evaluation: evaluation.is_some(), ..proof })
}

/// The recipe with this training, and the roles of its parameters.
fn proven(
    trace: &Trace,
    training: &Training,
    network: &operation::Network,
    name: &str,
) -> Result<(Imported, decay::Roles), ImportError> {
    let text = recipe::text(trace, training, network, name)?;
    let temporary = |source| ImportError::Temporary { source };
    let folder = tempfile::tempdir().map_err(temporary)?;
    std::fs::write(folder.path().join(format!("{name}.yaml")), &text).map_err(temporary)?;
    let library = Library::new([folder.path()]);
    let recipe = library.load(name, &LoadOptions::default());
    let invalid = |errors| ImportError::Invalid(Box::new(errors));
    let recipe = recipe.map_err(invalid)?.recipe;
    let model = recipe.resolve().map_err(invalid)?;
    let proof = proof::same(network, &model, Vec::new(), Results::Keys)?;
    let (roles, outputs) = proof::shapes(trace, &recipe, &model)?;
    let proof = Proof { parameters: roles.len(), ..proof };
    Ok((Imported { text, proof, outputs }, roles))
}
