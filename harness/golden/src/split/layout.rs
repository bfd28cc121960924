//! Which rank has which part of a recorded tensor: as the recording says, as zoo divides it, or as its shape allows.

use crate::foreign::Held;
use std::collections::BTreeMap;
use zoo_engine::lockstep::Ranked;
use zoo_graph::parallel::{Mesh, MeshAxis, Part, Placement};

/// Axes of the mesh along which a tensor is not whole, from the one that divides all of it to the one that divides what
/// the others leave.
pub(super) type Layout = Vec<(MeshAxis, Placement)>;

/// Most ways that a shape allows.
const MOST: usize = 64;

/// The ways in which the ranks may have a tensor of this shape, the likeliest first.
///
/// # Errors
/// Parts that do not make up the tensor.
pub(super) fn layouts(
    whole: &[usize],
    ranks: &Ranked,
    said: Option<&BTreeMap<MeshAxis, Held>>,
    planned: &[(MeshAxis, Placement)],
    mesh: &Mesh,
) -> Result<Vec<Layout>, String> {
    let several = |axis| ranks.iter().enumerate().any(|(rank, own)| own.is_some() && mesh.place(rank, axis) > 0);
    let axes: Vec<(MeshAxis, usize)> = mesh.axes().iter().copied().filter(|(axis, _)| several(*axis)).collect();
    let mut found = Vec::new();
    let mut take = |layout: Layout| {
        if fits(whole, ranks, &layout, mesh) && !found.contains(&layout) && found.len() < MOST {
            found.push(layout);
        }
    };
    if let Some(said) = said {
        // Micro-batches are samples, which is the first dimension of all that is recorded of them.
        let micro_batches = axes.iter().any(|(axis, _)| *axis == MeshAxis::MicroBatch);
        let micro_batches = micro_batches.then_some((MeshAxis::MicroBatch, Held::Along(0)));
        let held: Vec<(MeshAxis, Held)> = said.iter().map(|(axis, held)| (*axis, *held)).chain(micro_batches).collect();
        orders(&held).into_iter().for_each(|order| take(layout(whole, &order, mesh)));
    } else {
        let recorded = |(axis, _): &&(MeshAxis, Placement)| axes.iter().any(|(known, _)| known == axis);
        take(planned.iter().filter(recorded).cloned().collect());
        for choice in choices(&axes, whole.len()) {
            orders(&choice).into_iter().for_each(|order| take(layout(whole, &order, mesh)));
        }
    }
    if found.is_empty() {
        let shape = |rank: usize| ranks[rank].as_ref().map(|own| format!("{:?} on {}", own.dims(), named(rank, mesh)));
        let shapes: Vec<String> = (0..ranks.len()).filter_map(shape).take(2).collect();
        let said = if said.is_some() { ", as the recording says it is divided" } else { "" };
        return Err(format!("its parts ({}) do not make up {whole:?}{said}", shapes.join(", ")));
    }
    Ok(found)
}

/// A rank for people.
pub(super) fn named(rank: usize, mesh: &Mesh) -> String {
    format!("rank {} ({})", rank % mesh.devices(), mesh.name(rank))
}

/// All ways to divide dimensions over axes; those that divide less come first.
fn choices(axes: &[(MeshAxis, usize)], dimensions: usize) -> Vec<Vec<(MeshAxis, Held)>> {
    let mut all = vec![Vec::new()];
    for (axis, _) in axes {
        let divided = all.iter().flat_map(|choice: &Vec<_>| {
            (0..dimensions).map(|along| [&choice[..], &[(*axis, Held::Along(along))]].concat())
        });
        let divided: Vec<_> = divided.collect();
        all.extend(divided);
    }
    all
}

/// The orders of axes that divide one dimension: the slower axis of the mesh first, or the faster one.
fn orders(held: &[(MeshAxis, Held)]) -> Vec<Vec<(MeshAxis, Held)>> {
    let mut all: Vec<Vec<(MeshAxis, Held)>> = vec![Vec::new()];
    for next in held {
        let with = |order: &Vec<(MeshAxis, Held)>| {
            let shared = order.iter().any(|(_, held)| *held == next.1 && matches!(held, Held::Along(_)));
            let places = if shared { 0..=order.len() } else { order.len()..=order.len() };
            let order = order.clone();
            places.rev().map(move |place| [&order[..place], &[*next], &order[place..]].concat())
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// The layout of axes in an order.
fn layout(whole: &[usize], order: &[(MeshAxis, Held)], mesh: &Mesh) -> Layout {
    let mut left = whole.to_vec();
    let place = |(axis, held): &(MeshAxis, Held)| match *held {
        Held::Sum => (*axis, Placement::Partial),
        Held::Along(along) => {
            let extent = left.get(along).copied().unwrap_or(0);
            if let Some(extent) = left.get_mut(along) {
                *extent = extent.div_ceil(mesh.extent(*axis));
            }
            (*axis, Placement::Split(Part { axis: along, runs: vec![extent] }))
        }
    };
    order.iter().map(place).collect()
}

/// Whether what the ranks have makes up a tensor of this shape.
fn fits(whole: &[usize], ranks: &Ranked, layout: &[(MeshAxis, Placement)], mesh: &Mesh) -> bool {
    let mut shapes: Vec<Option<Vec<usize>>> =
        ranks.iter().map(|own| own.as_ref().map(|own| own.dims().to_vec())).collect();
    for (axis, placement) in layout.iter().rev() {
        let Placement::Split(part) = placement else { continue };
        for group in mesh.groups(*axis) {
            let Some(parts) = group.iter().map(|rank| shapes[*rank].clone()).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let mut joined = parts[0].clone();
            let Some(extent) = joined.get_mut(part.axis) else { return false };
            *extent = parts.iter().filter_map(|shape| shape.get(part.axis)).sum();
            // What has several runs is divided equally.
            if part.runs.len() > 1 && parts.iter().any(|shape| *shape != parts[0]) {
                return false;
            }
            group.iter().for_each(|rank| shapes[*rank] = Some(joined.clone()));
        }
    }
    shapes.iter().flatten().all(|shape| shape == whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};

    fn mesh() -> Mesh {
        Mesh::new(|axis| match axis {
            MeshAxis::Data | MeshAxis::Tensor => 2,
            MeshAxis::MicroBatch | MeshAxis::Pipeline | MeshAxis::Expert | MeshAxis::Context => 1,
        })
    }

    fn ranks(shapes: [&[usize]; 4]) -> Ranked {
        shapes.iter().map(|shape| Some(Tensor::zeros(*shape, DType::F32, &Device::Cpu).unwrap())).collect()
    }

    fn along(layout: &Layout) -> Vec<(MeshAxis, usize, usize)> {
        let of = |(axis, placement): &(MeshAxis, Placement)| match placement {
            Placement::Split(part) => (*axis, part.axis, part.runs[0]),
            Placement::Whole | Placement::Partial | Placement::Local => (*axis, usize::MAX, 0),
        };
        layout.iter().map(of).collect()
    }

    #[test]
    fn a_shape_allows_what_makes_it_up() {
        let own = ranks([&[2, 6, 4]; 4]);
        let found = layouts(&[4, 6, 8], &own, None, &[], &mesh()).unwrap();
        let found: Vec<_> = found.iter().map(along).collect();
        assert_eq!(
            found,
            [[(MeshAxis::Data, 0, 4), (MeshAxis::Tensor, 2, 8)], [(MeshAxis::Data, 2, 8), (MeshAxis::Tensor, 0, 4)]]
        );
        assert_eq!(layouts(&[2, 6, 4], &own, None, &[], &mesh()).unwrap(), [Layout::new()]);
        let error = layouts(&[2, 6, 7], &own, None, &[], &mesh()).unwrap_err();
        assert_eq!(
            error,
            "its parts ([2, 6, 4] on rank 0 (tensor 0, data 0), [2, 6, 4] on rank 1 (tensor 1, data 0)) do not make up \
             [2, 6, 7]"
        );
    }

    #[test]
    fn one_dimension_is_divided_by_either_axis_first() {
        let own = ranks([&[2]; 4]);
        let said = BTreeMap::from([(MeshAxis::Data, Held::Along(0)), (MeshAxis::Tensor, Held::Along(0))]);
        let found = layouts(&[8], &own, Some(&said), &[], &mesh()).unwrap();
        let found: Vec<_> = found.iter().map(along).collect();
        assert_eq!(
            found,
            [[(MeshAxis::Data, 0, 8), (MeshAxis::Tensor, 0, 4)], [(MeshAxis::Tensor, 0, 8), (MeshAxis::Data, 0, 4)]]
        );
    }

    #[test]
    fn parts_may_be_unequal_where_the_recording_says_so() {
        let own = ranks([&[2, 3], &[2, 3], &[1, 3], &[1, 3]]);
        let said = BTreeMap::from([(MeshAxis::Data, Held::Along(0))]);
        assert_eq!(layouts(&[3, 3], &own, Some(&said), &[], &mesh()).unwrap().len(), 1);
        assert!(
            layouts(&[4, 3], &own, Some(&said), &[], &mesh())
                .unwrap_err()
                .ends_with("as the recording says it is divided")
        );
        let sum = BTreeMap::from([(MeshAxis::Tensor, Held::Sum)]);
        let found = layouts(&[2, 6, 4], &ranks([&[2, 6, 4]; 4]), Some(&sum), &[], &mesh()).unwrap();
        assert_eq!(found, [[(MeshAxis::Tensor, Placement::Partial)]]);
    }
}
