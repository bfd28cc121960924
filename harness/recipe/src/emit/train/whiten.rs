//! `train.whiten`: initial filters from the training images.

use super::program::Program;
use super::real;
use crate::diagnostic::Diagnostic;
use crate::schema::SampleKind;

/// Adds the function that computes the filters.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    let Some(whiten) = &program.recipe.train.whiten else { return Ok(()) };
    if program.prepared {
        // The weights beside the prepared samples are whitened.
        return Ok(());
    }
    if program.recipe.data.source.kind() != SampleKind::Image {
        return Err(program.refuse("train.whiten", "only images with a class are whitened"));
    }
    let text = TEXT
        .replace("MODULE", &whiten.module)
        .replace("IMAGES", &whiten.images.to_string())
        .replace("EPS", &real(whiten.eps));
    program.add(&text);
    Ok(())
}

const TEXT: &str = r#"
@torch.no_grad()
def whiten(network: nn.Module, images: Dataset) -> None:
    """Makes the filters of a convolution whiten the patches of the first training images (arXiv 2404.00498)."""
    weight = network.get_submodule("MODULE").weight
    height, width = weight.shape[2:]
    moments, count, left = 0, 0, IMAGES
    for batch in DataLoader(images, 500):
        chosen = batch["image"][:left].double()
        patches = chosen.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)
        moments, count, left = moments + patches.T @ patches, count + len(patches), left - len(chosen)
        if left == 0:
            break
    values, vectors = torch.linalg.eigh(moments / count)
    filters = (vectors / torch.sqrt(values.clamp(min=0) + EPS)).T.flip(0)
    filters = filters * filters.gather(1, filters.abs().argmax(1, keepdim=True)).sign()
    weight.copy_(torch.cat([filters, -filters]).view_as(weight))
"#;
