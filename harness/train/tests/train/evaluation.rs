//! Evaluation: rests of batches, checkpoints, cancellation.

use crate::support::Case;
use std::sync::atomic::AtomicBool;
use zoo_tasks::Evaluation;
use zoo_train::{Outcome, Weights, evaluate};

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn trained(case: &Case) -> (Weights, f64) {
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
    (case.weights(dir.path()), result.achieved.unwrap())
}

/// The last batch of 21 samples holds five; the filling must not show, however the samples are divided.
#[test]
fn the_rest_counts_and_the_filling_does_not() {
    let mut case = Case::new(&[]);
    let (weights, achieved) = trained(&case);
    let of = |case: &Case| -> Evaluation { evaluate(case.job(), &weights, &never(), &mut |_| ()).unwrap().unwrap() };
    let whole = of(&case);
    assert_eq!((whole.samples, whole.scores[0].value), (21, achieved));
    for batch in [1, 5, 21, 64] {
        case.recipe.train.batch = batch;
        let other = of(&case);
        assert_eq!((other.samples, &other.scores), (21, &whole.scores));
        let (ours, theirs) = (other.loss.unwrap(), whole.loss.unwrap());
        assert!((ours - theirs).abs() < 1e-6 * theirs, "{other:?} {whole:?}");
    }
}

#[test]
fn a_cancelled_evaluation_has_no_result() {
    let case = Case::new(&["train.epochs=1"]);
    let (weights, _) = trained(&case);
    assert_eq!(evaluate(case.job(), &weights, &AtomicBool::new(true), &mut |_| ()).unwrap(), None);
}

#[test]
fn weights_of_another_network_are_refused() {
    let (mut weights, _) = trained(&Case::new(&["train.epochs=1"]));
    let case = Case::new(&["model.conv.out=5"]);
    assert!(evaluate(case.job(), &weights, &never(), &mut |_| ()).is_err());
    weights.tensors.remove("conv.weight");
    let error = evaluate(case.job(), &weights, &never(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("1 not in the file: conv.weight"), "{error}");
}
