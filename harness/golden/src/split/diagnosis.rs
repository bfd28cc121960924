//! What is wrong with a value of the ranks.

use super::{
    LIMIT,
    assembled::assembled,
    truth::{Exact, distance},
};
use crate::probe::to_f64;
use candle_core::{Result, Tensor};
use zoo_engine::lockstep::{Ranked, part_of};
use zoo_graph::parallel::{Mesh, MeshAxis, Placement};

/// Largest relative difference of what counts as the same value in an explanation.
const SAME: f64 = 1e-5;

/// Largest one where rounding explains more.
const MOST_SAME: f64 = 1e-2;

/// What is wrong with a value.
pub(super) struct Diagnosis {
    /// For people.
    pub text: String,
    /// Whether it says what is missing, and not only that something differs.
    pub explains: bool,
}

/// Explains why the ranks do not have the value of one device, which had another one in the step before. `wholes` are
/// the replicas, `ranks` what each rank has.
pub(super) fn diagnose(
    (truth, step_before): (&Exact, Option<&Exact>),
    wholes: &[(usize, Vec<f64>)],
    ranks: &Ranked,
    placements: &[(MeshAxis, Placement)],
    mesh: &Mesh,
) -> Result<Diagnosis> {
    let explained = |text: String| Ok(Diagnosis { text, explains: true });
    // Rounding hides more of a change than of a value.
    let tolerance = SAME.max((LIMIT * truth.floor).min(MOST_SAME));
    let same = |a: &[f64], b: &[f64]| near(a, b, tolerance);
    if wholes.iter().any(|(_, values)| values.iter().any(|x| !x.is_finite())) {
        return Ok(Diagnosis { text: "it is not a finite number".to_owned(), explains: false });
    }
    if wholes.iter().all(|(_, values)| values.iter().all(|x| *x == 0.0)) {
        return explained("it is zero".to_owned());
    }
    // What an update does is small beside a parameter: its change is what is compared.
    let change = |values: &[f64]| match &truth.before {
        Some(before) => values.iter().zip(before).map(|(after, before)| after - before).collect(),
        None => values.to_vec(),
    };
    let right: Vec<f64> = change(&truth.values);
    let wholes: Vec<(usize, Vec<f64>)> = wholes.iter().map(|(rank, values)| (*rank, change(values))).collect();
    let wrong: Vec<usize> = wholes.iter().filter(|(_, values)| !same(values, &right)).map(|(rank, _)| *rank).collect();
    let differ = wholes.iter().any(|(_, values)| !same(values, &wholes[0].1));
    if let Some(old) = step_before.map(|old| change(&old.values)) {
        if wholes.iter().all(|(_, values)| same(values, &old)) {
            return explained("it is that of the step before".to_owned());
        }
        let rest: Vec<f64> = wholes[0].1.iter().zip(&right).map(|(own, right)| own - right).collect();
        // Gradients are clipped in place.
        if !differ && multiple(&rest, &old, MOST_SAME).is_some() {
            return explained("that of the step before, perhaps clipped, is added to it".to_owned());
        }
    }
    let unchanged = |rank: &usize| wholes.iter().any(|(own, values)| own == rank && values.iter().all(|x| *x == 0.0));
    if truth.before.is_some() && !wrong.is_empty() && wrong.iter().all(unchanged) {
        let names: Vec<String> = wrong.iter().map(|rank| mesh.name(*rank)).collect();
        return explained(match differ {
            false => "it was not updated: it has its value from before the step".to_owned(),
            true => format!("it was not updated on {}", names.join("; ")),
        });
    }
    let replicated = |axis: MeshAxis| placements.iter().all(|(divided, _)| *divided != axis);
    for (axis, extent) in mesh.axes().iter().copied().filter(|(axis, _)| replicated(*axis)) {
        let of = |rank: &usize| wholes.iter().find(|(first, _)| first == rank).map(|(_, values)| values);
        let groups = mesh.groups(axis);
        let several = groups.iter().map(|group| group.iter().filter_map(of).collect::<Vec<_>>());
        let Some(group) = several.max_by_key(Vec::len).filter(|group| group.len() > 1) else { continue };
        let sum: Vec<f64> = (0..right.len()).map(|n| group.iter().map(|values| values[n]).sum()).collect();
        let differ = group.windows(2).any(|pair| !same(pair[0], pair[1]));
        if differ && same(&sum, &right) {
            return explained(format!("each {axis} rank has a partial sum: the sum over the {axis} group is missing"));
        }
        let mean: Vec<f64> = sum.iter().map(|x| x / extent as f64).collect();
        if differ && same(&mean, &right) {
            return explained(format!("each {axis} rank has its own value: the mean over the {axis} group is missing"));
        }
    }
    if let Some(factor) = factor(&wholes[0].1, &right, tolerance).filter(|_| !differ) {
        let name = by_ranks(factor, mesh, tolerance);
        let named = name.as_ref().map(|name| format!(" = {name}")).unwrap_or_default();
        let what = if truth.before.is_some() { "change" } else { "value" };
        let text = format!("it is {factor:.6}{named} times the {what} of one device");
        return Ok(Diagnosis { text, explains: name.is_some() });
    }
    for (axis, placement) in placements {
        if matches!(placement, Placement::Split(_))
            && let Some(text) = misplaced(truth, ranks, (*axis, placements), mesh)?
        {
            return explained(text);
        }
    }
    let size = distance(&right, &vec![0.0; right.len()]);
    let errors = wholes.iter().map(|(_, values)| distance(values, &right));
    let error = errors.fold(0.0, f64::max) / if size > 0.0 { size } else { 1.0 };
    let text = match differ {
        true => {
            let names: Vec<String> = wrong.iter().map(|rank| mesh.name(*rank)).collect();
            format!("ranks that ought to have the same value differ: wrong on {} (by {error:.1e})", names.join("; "))
        }
        false => format!("it differs by {error:.1e} of its size on all ranks"),
    };
    Ok(Diagnosis { text, explains: false })
}

/// Explains a loss or a norm, each with its rank: a term of a sum, or the root of one of squares.
pub(super) fn of_scalar(
    (truth, step_before): (&Exact, Option<&Exact>),
    ranks: &[(usize, f64)],
    mesh: &Mesh,
) -> Option<String> {
    let right = truth.values[0];
    let close = |value: f64, other: f64| (value - other).abs() <= SAME * other.abs();
    if ranks.iter().all(|(_, value)| *value == 0.0) {
        return Some("it is zero".to_owned());
    }
    if step_before.is_some_and(|old| ranks.iter().all(|(_, value)| close(*value, old.values[0]))) {
        return Some("it is that of the step before".to_owned());
    }
    for (axis, _) in mesh.axes() {
        let of = |rank: &usize| ranks.iter().find(|(own, _)| own == rank).map(|(_, value)| *value);
        let groups: Vec<Vec<f64>> =
            mesh.groups(*axis).iter().map(|group| group.iter().filter_map(of).collect()).collect();
        let several = groups.iter().filter(|group| group.len() > 1).collect::<Vec<_>>();
        let all =
            |whole: fn(&[f64]) -> f64| !several.is_empty() && several.iter().all(|group| close(whole(group), right));
        if all(|terms| terms.iter().sum()) {
            return Some(format!("each {axis} rank has a term: the sum over the {axis} group is missing"));
        }
        if all(|parts| parts.iter().map(|part| part * part).sum::<f64>().sqrt()) {
            return Some(format!(
                "each {axis} rank has the norm of its own part: the sum over the {axis} group is missing"
            ));
        }
    }
    None
}

fn same(a: &[f64], b: &[f64]) -> bool {
    near(a, b, SAME)
}

fn near(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let size = b.iter().map(|x| x * x).sum::<f64>().sqrt();
    a.len() == b.len() && distance(a, b) <= tolerance * size
}

/// The number by which a tensor is a multiple of another one, if it is.
fn multiple(values: &[f64], of: &[f64], tolerance: f64) -> Option<f64> {
    let dot: f64 = values.iter().zip(of).map(|(a, b)| a * b).sum();
    let factor = dot / of.iter().map(|x| x * x).sum::<f64>();
    let scaled: Vec<f64> = of.iter().map(|x| x * factor).collect();
    (of.len() > 1 && factor.is_finite() && near(values, &scaled, tolerance)).then_some(factor)
}

/// The factor between two tensors, if there is one other than 1.
fn factor(values: &[f64], truth: &[f64], tolerance: f64) -> Option<f64> {
    let tells = |factor: &f64| (factor - 1.0).abs() > tolerance && factor.abs() > tolerance;
    multiple(values, truth, tolerance).filter(tells)
}

/// A factor as a product or quotient of numbers of ranks.
fn by_ranks(factor: f64, mesh: &Mesh, tolerance: f64) -> Option<String> {
    let close = |value: f64| (factor / value - 1.0).abs() < tolerance;
    let axes = mesh.axes();
    let one = axes.iter().filter_map(|(axis, extent)| {
        let ranks = *extent as f64;
        let names = [(ranks, format!("{axis}")), (1.0 / ranks, format!("1/{axis}"))];
        let squares = [(ranks * ranks, format!("{axis}^2")), (1.0 / ranks / ranks, format!("1/{axis}^2"))];
        names.into_iter().chain(squares).find(|(value, _)| close(*value)).map(|(_, name)| name)
    });
    let one: Vec<String> = one.collect();
    let single = (!one.is_empty()).then(|| one.join(" or "));
    let pairs = || {
        axes.iter().flat_map(|a| axes.iter().map(move |b| (a, b))).find_map(|((a, m), (b, n))| {
            let (m, n) = (*m as f64, *n as f64);
            let names = [
                (m * n, format!("{a} * {b}")),
                (m / n, format!("{a} / {b}")),
                (1.0 / m / n, format!("1 / ({a} * {b})")),
            ];
            names.into_iter().find(|(value, _)| a != b && close(*value)).map(|(_, name)| name)
        })
    };
    single.or_else(pairs)
}

/// Ranks that have the part of another rank along an axis, or whose part alone is wrong.
fn misplaced(
    truth: &Exact,
    ranks: &Ranked,
    (axis, placements): (MeshAxis, &[(MeshAxis, Placement)]),
    mesh: &Mesh,
) -> Result<Option<String>> {
    let Some(whole) = assembled(ranks, placements, mesh)?.into_iter().flatten().next() else { return Ok(None) };
    let whole = Tensor::from_vec(truth.values.clone(), whole.dims(), whole.device())?;
    let right = |rank: usize| {
        let part = placements.iter().try_fold(whole.clone(), |tensor, (axis, placement)| match placement {
            Placement::Split(part) if part.divides(mesh.extent(*axis)) => {
                part_of(&tensor, part, mesh.place(rank, *axis), mesh.extent(*axis))
            }
            Placement::Split(_) | Placement::Whole | Placement::Partial | Placement::Local => Ok(tensor),
        });
        to_f64(&part?)
    };
    for group in mesh.groups(axis) {
        let Some(given) = group.iter().map(|rank| ranks[*rank].as_ref()).collect::<Option<Vec<_>>>() else { continue };
        let own = given.iter().map(|part| to_f64(part)).collect::<Result<Vec<_>>>()?;
        let parts = group.iter().map(|rank| right(*rank)).collect::<Result<Vec<_>>>()?;
        let wrong: Vec<usize> = (0..group.len()).filter(|place| !same(&own[*place], &parts[*place])).collect();
        let of_other =
            |place: &usize| parts.iter().position(|part| same(&own[*place], part)).map(|other| (*place, other));
        if let Some((place, other)) = wrong.iter().find_map(of_other) {
            return Ok(Some(format!(
                "{axis} rank {place} has the part of rank {other}: the order of the parts is another"
            )));
        }
        if (1..group.len()).contains(&wrong.len()) {
            let places = wrong.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let factor = factor(&own[wrong[0]], &parts[wrong[0]], SAME).filter(|_| wrong.len() == 1);
            return Ok(Some(match (factor, wrong.len()) {
                (Some(factor), _) => format!("the part of {axis} rank {places} is {factor:.6} times its value"),
                (None, 1) => format!("the part of {axis} rank {places} alone is wrong"),
                (None, _) => format!("the parts of {axis} ranks {places} alone are wrong"),
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use zoo_graph::parallel::Part;

    fn mesh() -> Mesh {
        Mesh::new(|axis| if axis == MeshAxis::Data { 2 } else { 1 })
    }

    /// What is said of two replicas.
    fn said(truth: &Exact, before: Option<&Exact>, replicas: [&[f64]; 2]) -> (String, bool) {
        let wholes = [(0, replicas[0].to_vec()), (1, replicas[1].to_vec())];
        let ranks: Ranked = replicas.iter().map(|x| Tensor::new(*x, &Device::Cpu).ok()).collect();
        let Diagnosis { text, explains } = diagnose((truth, before), &wholes, &ranks, &[], &mesh()).unwrap();
        (text, explains)
    }

    fn exact(values: &[f64], before: Option<&[f64]>) -> Exact {
        Exact { values: values.to_vec(), before: before.map(<[f64]>::to_vec), floor: 1e-10, without_digits: false }
    }

    #[test]
    fn gradients() {
        let (right, old) = (exact(&[4.0, 2.0, 6.0], None), exact(&[1.0, 7.0, 1.0], None));
        let of = |a: &[f64; 3], b: &[f64; 3]| said(&right, Some(&old), [a, b]).0;
        assert!(of(&[1.0, 2.0, 1.0], &[3.0, 0.0, 5.0]).starts_with("each data rank has a partial sum"));
        assert!(of(&[8.0, 2.0, 1.0], &[0.0, 2.0, 11.0]).contains("the mean over the data group is missing"));
        assert_eq!(of(&[2.0, 1.0, 3.0], &[2.0, 1.0, 3.0]), "it is 0.500000 = 1/data times the value of one device");
        assert_eq!(of(&[0.0; 3], &[0.0; 3]), "it is zero");
        assert_eq!(of(&[1.0, 7.0, 1.0], &[1.0, 7.0, 1.0]), "it is that of the step before");
        let added = "that of the step before, perhaps clipped, is added to it";
        assert_eq!(of(&[5.0, 9.0, 7.0], &[5.0, 9.0, 7.0]), added);
        let clipped = [4.005, 2.035, 6.005];
        assert_eq!(of(&clipped, &clipped), added, "a two hundredth of it");
        let (text, explains) = said(&right, None, [&[2.0, 1.0, 3.0], &[4.0, 2.0, 6.0]]);
        assert!(
            !explains && text.starts_with("ranks that ought to have the same value differ: wrong on data 0"),
            "{text}"
        );
    }

    /// A change is small beside its parameter: a wrong one is no mean, and half of one is a factor.
    #[test]
    fn updates() {
        let before = [1000.0, 2000.0, 3000.0];
        let after = |change: [f64; 3]| [0, 1, 2].map(|n| before[n] + change[n]);
        let right = exact(&after([0.4, 0.2, 0.6]), Some(&before));
        let of = |a: [f64; 3], b: [f64; 3]| said(&right, None, [&after(a), &after(b)]);
        assert_eq!(of([0.0; 3], [0.0; 3]).0, "it was not updated: it has its value from before the step");
        assert_eq!(of([0.4, 0.2, 0.6], [0.0; 3]).0, "it was not updated on data 1");
        assert_eq!(of([0.2, 0.1, 0.3], [0.2, 0.1, 0.3]).0, "it is 0.500000 = 1/data times the change of one device");
        let (text, explains) = of([0.4, 0.2, 0.6], [0.4, 0.3, 0.6]);
        assert!(
            !explains && text.starts_with("ranks that ought to have the same value differ: wrong on data 1"),
            "{text}"
        );
    }

    #[test]
    fn parts() {
        let right = exact(&[1.0, 2.0, 3.0, 4.0], None);
        let placements = [(MeshAxis::Data, Placement::Split(Part { axis: 0, runs: vec![4] }))];
        let of = |a: [f64; 2], b: [f64; 2]| {
            let ranks: Ranked = [a, b].iter().map(|x| Tensor::new(x, &Device::Cpu).ok()).collect();
            let wholes = [(0, [a, b].concat())];
            diagnose((&right, None), &wholes, &ranks, &placements, &mesh()).unwrap().text
        };
        assert_eq!(of([3.0, 4.0], [1.0, 2.0]), "data rank 0 has the part of rank 1: the order of the parts is another");
        assert_eq!(of([1.0, 2.0], [6.0, 8.0]), "the part of data rank 1 is 2.000000 times its value");
        assert_eq!(of([1.0, 5.0], [3.0, 4.0]), "the part of data rank 0 alone is wrong");
    }

    #[test]
    fn losses_and_norms() {
        let of = |right: f64, old: f64, ranks: [f64; 2]| {
            let [right, old] = [right, old].map(|value| exact(&[value], None));
            of_scalar((&right, Some(&old)), &[(0, ranks[0]), (1, ranks[1])], &mesh())
        };
        assert!(of(5.0, 9.0, [2.0, 3.0]).unwrap().starts_with("each data rank has a term"));
        assert!(of(5.0, 9.0, [3.0, 4.0]).unwrap().starts_with("each data rank has the norm of its own part"));
        assert_eq!(of(5.0, 9.0, [9.0, 9.0]).unwrap(), "it is that of the step before");
        assert_eq!(of(5.0, 9.0, [6.0, 6.0]), None);
    }
}
