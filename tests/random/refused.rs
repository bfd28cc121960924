//! Recipes with one value that cannot be: an error with its line, and never a panic.

use crate::{
    draw,
    prove::Prover,
    vocabulary::{Form, Setting},
};
use serde_json::{Value, json};

/// Values that this place cannot have, and what they are.
pub fn impossible(setting: &Setting) -> Vec<(Value, &'static str)> {
    let mut values = vec![(json!({ "nowhere": 1 }), "a map"), (json!([[[]]]), "nested lists")];
    match &setting.form {
        Form::Switch(_) => values.push((json!(7.5), "a number for a switch")),
        Form::Choice { .. } => values.push((json!("nonsense"), "another word")),
        Form::Number { whole, least, most, above, below, .. } => {
            values.push((json!("1e"), "no number"));
            values.extend(least.map(|least| (json!(least - 1.0), "less than the least")));
            values.extend(most.map(|most| (json!(most + 1.0), "more than the most")));
            values.extend(above.map(|above| (json!(above), "the bound itself")));
            values.extend(below.map(|below| (json!(below), "the bound itself")));
            if *whole {
                values.push((json!(1.5), "a fraction"));
            }
        }
    }
    values
}

/// Requires an error with a line for a recipe that is wrong at one place.
pub fn expect_refusal(
    prover: &Prover,
    recipe: &Value,
    setting: &Setting,
    value: Value,
    what: &str,
) -> Result<(), String> {
    let wrong = setting.changed(recipe, value.clone());
    let Err(errors) = prover.read(&draw::text(&wrong)) else {
        return Err(format!("{} = {value} ({what}) was accepted", setting.told()));
    };
    let placed = |diagnostic: &zoo_recipe::Diagnostic| diagnostic.span.line > 0;
    match errors.iter().all(placed) && errors.has_errors() {
        true => Ok(()),
        false => Err(format!("{} = {value} ({what}): no line in: {errors}", setting.told())),
    }
}
