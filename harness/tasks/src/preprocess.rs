//! From decoded images to the input of the network.

use zoo_datasets::{Image, Normalize, Pipeline, Size};
use zoo_recipe::{Recipe, schema};

use crate::{Input, InputError};

/// The list of steps to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// `preprocess.train`.
    Train,
    /// `preprocess.eval`.
    Eval,
}

impl Split {
    /// The steps and their path in the recipe.
    fn steps(self, recipe: &Recipe) -> (&[schema::Step], &'static str) {
        match self {
            Self::Train => (&recipe.preprocess.train, "preprocess.train"),
            Self::Eval => (&recipe.preprocess.eval, "preprocess.eval"),
        }
    }
}

/// Builds the preprocessing of a recipe, and checks that its result fits the model. `image` is `[channels, height,
/// width]`; one channel means grey images. `from` is the common size of all images of the data set, if they have one.
///
/// # Errors
/// Steps after the normalisation, impossible steps, or a result that does not have the model's input size.
pub(crate) fn pipeline(
    recipe: &Recipe,
    split: Split,
    from: Option<Size>,
    image: [usize; 3],
) -> Result<Pipeline, InputError> {
    let (steps, path) = split.steps(recipe);
    let refuse = |at: &str, message: String| InputError::at(recipe, at, message);
    let (mut of_pixels, mut normalize, mut erasing) = (Vec::new(), None, None);
    for (i, step) in steps.iter().enumerate() {
        let misplaced = |message: &str| refuse(&format!("{path}[{i}]"), message.into());
        match step {
            _ if erasing.is_some() => return Err(misplaced("nothing may follow `random_erasing`")),
            schema::Step::RandomErasing(_) if normalize.is_none() => {
                return Err(misplaced("`random_erasing` follows `normalize`"));
            }
            schema::Step::RandomErasing(step) => {
                erasing = Some(step.clone());
            }
            _ if normalize.is_some() => {
                return Err(misplaced("nothing but `random_erasing` may follow `normalize`"));
            }
            schema::Step::Normalize(n) => normalize = Some(normalisation(n)),
            other => of_pixels.push(other.clone()),
        }
    }
    let [c, h, w] = image;
    let normalize = Normalize { grey: c == 1, ..normalize.unwrap_or(Normalize::UNCHANGED) };
    let pipeline = Pipeline::new(of_pixels, normalize).and_then(|pipeline| match erasing {
        Some(erasing) => pipeline.erasing(erasing),
        None => Ok(pipeline),
    });
    let pipeline = pipeline.map_err(|e| refuse(path, e.to_string()))?;
    let channels = normalize.planes();
    match pipeline.output(from) {
        Some(size) if [channels, size.height, size.width] == image => Ok(pipeline),
        Some(size) => {
            let made = format!("{channels}x{}x{}", size.height, size.width);
            Err(refuse(path, format!("preprocessing makes images of {made}, but the model takes {c}x{h}x{w}")))
        }
        None => Err(refuse(
            path,
            format!(
                "image files can have any size, and no step makes them {c}x{h}x{w}: put `resize_to: {{size: {h}}}` \
                 before `normalize`"
            ),
        )),
    }
}

/// Whether both lists of steps produce the input size of the model from files of any size.
///
/// # Errors
/// As [`pipeline`].
pub(crate) fn expect_any_size(recipe: &Recipe) -> Result<(), InputError> {
    let shape = recipe.resolve().ok().and_then(|model| model.inputs.values().next()?.image());
    let Some(shape) = shape else { return Ok(()) };
    [Split::Train, Split::Eval].into_iter().try_for_each(|split| pipeline(recipe, split, None, shape).map(|_| ()))
}

/// The preprocessing of images whose size is determined elsewhere in the recipe: only normalisation.
///
/// # Errors
/// Other steps.
pub(crate) fn unresized(recipe: &Recipe, split: Split) -> Result<Pipeline, InputError> {
    Ok(Pipeline::new(Vec::new(), only_normalisation(recipe, split)?)?)
}

/// As [`only_normalisation`], of images with `channels` channels, which are grey if there is only one.
///
/// # Errors
/// Other steps, and another number of channels than 1 and 3.
pub(crate) fn normalisation_of(recipe: &Recipe, split: Split, channels: usize) -> Result<Normalize, InputError> {
    let normalize = only_normalisation(recipe, split)?;
    if channels != 3 && channels != 1 {
        let message = format!("images have three channels, or one if they are grey, not {channels}");
        return Err(InputError::at(recipe, "model.inputs", message));
    }
    Ok(Normalize { grey: channels == 1, ..normalize })
}

/// The normalisation of a list of steps in which nothing else is allowed, because another section augments samples.
pub(crate) fn only_normalisation(recipe: &Recipe, split: Split) -> Result<Normalize, InputError> {
    let (steps, path) = split.steps(recipe);
    match steps {
        [] => Ok(Normalize::UNCHANGED),
        [schema::Step::Normalize(normalize)] => Ok(normalisation(normalize)),
        _ => {
            let message = "only `normalize` is allowed here: images with text are augmented by `preprocess.text`, \
                           images with label maps by `preprocess.label_maps`, images with boxes by \
                           `preprocess.boxes`, videos by `preprocess.pairs`";
            Err(InputError::at(recipe, path, message))
        }
    }
}

/// The normalisation of a recipe.
fn normalisation(n: &schema::Normalize) -> Normalize {
    let &schema::Normalize { mean, std, scale, channels } = n;
    Normalize { mean: mean.map(|m| m as f32), std: std.map(|s| s as f32), scale, channels, grey: false }
}

/// The network's first input as an image, `[channels, height, width]`; zeros if it is not an image.
pub(crate) fn image(input: &Input) -> [usize; 3] {
    <[usize; 3]>::try_from(input.shape.as_slice()).unwrap_or_default()
}

/// An image normalised for the network, CHW.
pub(crate) fn normalized(image: &Image, normalize: &Normalize) -> Vec<f32> {
    let mut pixels = vec![0.0; normalize.planes() * image.size().area()];
    normalize.apply(image, &mut pixels);
    pixels
}

/// A range as a pair.
pub(crate) fn pair<T: Copy>([low, high]: [T; 2]) -> (T, T) {
    (low, high)
}
