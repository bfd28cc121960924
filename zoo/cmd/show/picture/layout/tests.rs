use super::*;
use zoo_recipe::BuildOptions;
use zoo_recipe::{Library, LoadOptions};

/// Boxes, inputs and outputs: left, top, right, bottom.
fn solid(drawing: &Drawing) -> Vec<[f64; 4]> {
    let area = |mark: &Mark| match mark {
        Mark::Box { x, y, width, height, .. } => Some([*x, *y, x + width, y + height]),
        Mark::Pill { x, y, width, .. } => Some([*x, *y, x + width, y + LINE + 8.0]),
        _ => None,
    };
    drawing.marks.iter().filter_map(area).collect()
}

fn drawing(library: &Library, name: &str) -> Drawing {
    let recipe = library.load(name, &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}")).recipe;
    let model = recipe.resolve().unwrap();
    let graph = zoo_recipe::build(&recipe, &model, &BuildOptions::eval(1)).unwrap();
    lay_out(&Outline::new(&model, &graph))
}

#[test]
fn nothing_covers_anything_in_any_recipe() {
    let root = env!("CARGO_MANIFEST_DIR");
    let library = Library::new([format!("{root}/recipes"), format!("{root}/tests/fixtures/recipes")]);
    for (name, _) in library.list() {
        let drawing = drawing(&library, &name);
        let areas = solid(&drawing);
        assert!(areas.len() > 3, "{name}");
        for (index, a) in areas.iter().enumerate() {
            assert!(a[0] >= 0.0 && a[1] >= 0.0 && a[2] <= drawing.width && a[3] <= drawing.height, "{name} {a:?}");
            for b in &areas[index + 1..] {
                let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                assert!(apart, "{name}: {a:?} and {b:?}");
            }
        }
    }
}

#[test]
fn columns_are_as_even_as_their_parts_allow() {
    let of = |heights: &[f64]| -> Vec<Block> {
        heights.iter().map(|height| Block { height: height - GAP, ..Block::default() }).collect()
    };
    assert_eq!(even(&of(&[100.0; 9]), 3), [3, 3, 3]);
    assert_eq!(even(&of(&[300.0, 100.0, 100.0, 100.0]), 2), [1, 3]);
    assert_eq!(even(&of(&[50.0]), 4), [1]);
}

#[test]
fn what_begins_from_a_value_stands_below_it() {
    let library = Library::new([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recipes")]);
    let drawing = drawing(&library, "tiny_track");
    let curves: Vec<_> = drawing
        .marks
        .iter()
        .filter_map(|mark| match mark {
            Mark::Curve { from, to } => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert!(!curves.is_empty());
    assert!(curves.iter().all(|(from, to)| to.1 >= from.1), "{curves:?}");
}
