//! Test-time augmentation: `preprocess.tta`.

use zoo_datasets::transforms::reflected_place;
use zoo_recipe::schema::TestTimeAugmentation;

use crate::{EvaluationError, Field, Input, Network};

/// A variant of an image, and its weight in the average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Variant {
    /// Pixels by which the image is moved down and to the right.
    shift: isize,
    mirrored: bool,
    weight: f64,
}

/// The variants of an image; their weights add up to 1.
fn variants(tta: Option<TestTimeAugmentation>) -> Vec<Variant> {
    let TestTimeAugmentation { mirror, shift } = tta.unwrap_or(TestTimeAugmentation { mirror: false, shift: 0 });
    let step = shift as isize;
    let moved = if shift == 0 { vec![(0, 1.0)] } else { vec![(0, 0.5), (step, 0.25), (-step, 0.25)] };
    let sides: &[(bool, f64)] = if mirror { &[(false, 0.5), (true, 0.5)] } else { &[(false, 1.0)] };
    let with = |(shift, share): (isize, f64)| {
        sides.iter().map(move |(mirrored, half)| Variant { shift, mirrored: *mirrored, weight: share * half })
    };
    moved.into_iter().flat_map(with).collect()
}

/// The first output of the network for `n` images, sample after sample: its average over the variants of each image.
pub(super) fn outputs(
    network: &mut dyn Network,
    image: &Input,
    n: usize,
    images: &[f32],
    tta: Option<TestTimeAugmentation>,
) -> Result<Vec<f64>, EvaluationError> {
    let mut sum: Vec<f64> = Vec::new();
    for variant in variants(tta) {
        let size = image.shape.last_chunk::<2>().copied().unwrap_or([1, images.len()]);
        let outputs = network.run(n, vec![Field::real(&image.name, varied(images, size, variant))])?;
        let output = outputs.first().ok_or_else(|| EvaluationError::Mismatch("the network has no output".into()))?;
        sum.resize(output.values.len(), 0.0);
        sum.iter_mut().zip(&output.values).for_each(|(sum, value)| *sum += variant.weight * f64::from(*value));
    }
    Ok(sum)
}

/// A variant of all planes of some images.
fn varied(images: &[f32], [height, width]: [usize; 2], Variant { shift, mirrored, .. }: Variant) -> Vec<f32> {
    if shift == 0 && !mirrored {
        return images.to_vec();
    }
    let columns: Vec<usize> = (0..width).map(|x| reflected_place(x as isize - shift, width)).collect();
    let mut varied = Vec::with_capacity(images.len());
    for plane in images.chunks_exact((height * width).max(1)) {
        for y in 0..height {
            let from = reflected_place(y as isize - shift, height) * width;
            let row = columns.iter().map(|x| plane[from + x]);
            if mirrored { varied.extend(row.rev()) } else { varied.extend(row) }
        }
    }
    varied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn airbench_has_six_variants() {
        let found = variants(Some(TestTimeAugmentation { mirror: true, shift: 1 }));
        let expected = [(0, 0.25), (1, 0.125), (-1, 0.125)]
            .into_iter()
            .flat_map(|(shift, weight)| [false, true].map(|mirrored| Variant { shift, mirrored, weight }));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(variants(None), [Variant { shift: 0, mirrored: false, weight: 1.0 }]);
    }

    /// Rows and columns of `F.pad(x, (1, 1, 1, 1), "reflect")` without the last or the first two; then `flip(-1)`.
    #[test]
    fn images_are_moved_and_mirrored() {
        let image: Vec<f32> = (0..6).map(|n| n as f32).collect();
        let of = |shift, mirrored| varied(&image, [2, 3], Variant { shift, mirrored, weight: 1.0 });
        assert_eq!(of(0, false), image);
        assert_eq!(of(1, false), [4.0, 3.0, 4.0, 1.0, 0.0, 1.0]);
        assert_eq!(of(-1, false), [4.0, 5.0, 4.0, 1.0, 2.0, 1.0]);
        assert_eq!(of(-1, true), [4.0, 5.0, 4.0, 1.0, 2.0, 1.0]);
        assert_eq!(of(0, true), [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    }
}
