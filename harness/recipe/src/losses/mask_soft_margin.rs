//! Logistic loss of the masks at selected positions.

use zoo_graph::{
    GraphError,
    ops::{self, ExtractPatches, LogitLayout, Window},
};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Mean of log(1 + exp(-mask*logit)) over the pixels of the positions whose `select` is 1 (arXiv 1812.05050,
    /// section 3.2).
    ///
    /// The target of a position is a window of the mask, with `size` pixels and the stride `stride`. The mask is padded
    /// with `pad` zeros, which are not labels: they add log 2 and no gradient.
    pub struct MaskSoftMargin called "mask_loss" {
        /// Output of the model: `[s*s, H, W]`, where the s x s logits of each position are upsampled to `size`
        /// bilinearly with aligned corners; or one row of `size*size` logits per position.
        pub prediction: String,
        /// Input of the step: 1 inside the object, -1 outside, `[1, H', W']`, the area that the windows cover.
        pub target: String,
        /// Input of the step: 1 at the selected positions, `[1, H, W]`.
        pub select: String,
        /// Height and width of a window.
        #[schemars(range(min = 1, max = 4096))]
        pub size: usize,
        /// Step of the windows.
        #[schemars(range(min = 1, max = 4096))]
        pub stride: usize,
        /// Zeros around the mask.
        #[schemars(range(max = 4096))]
        pub pad: usize = 0,
        /// Whether upsampling aligns the centres of the corner pixels (as the authors of SiamMask do) instead of their
        /// corners.
        pub align_corners: bool = true,
    }
}

impl LossTerm for MaskSoftMargin {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let op = ops::MaskSoftMargin { size: self.size, align_corners: self.align_corners };
        let batch = at.batch();
        let shape = at.shape(prediction).clone();
        let [h, w] = match shape[..] {
            [_, _, h, w] => [h, w],
            _ => [(shape[0] / batch.max(1)).isqrt(); 2],
        };
        if op.logit_layout(&shape, [batch, 1, h, w]).is_ok_and(|layout| layout == LogitLayout::Rows) && h * w == 0 {
            return Err(at.refuse(format!("{shape} has no positions")));
        }
        // What the windows of all positions cover, without the padding.
        let covered =
            |positions: usize| (positions.saturating_sub(1) * self.stride + self.size).saturating_sub(2 * self.pad);
        let target = at.input(&self.target, [batch, 1, covered(h), covered(w)])?;
        let select = at.input(&self.select, [batch, 1, h, w])?;
        let window = Window { pad: [self.pad; 4], ..Window::new([self.size; 2], [self.stride; 2]) };
        let name = format!("loss/{}/windows", self.name);
        let windows = at.add(name, ExtractPatches { window }, &[target])?;
        let results = at.term((&self.name, self.weight), op, &[prediction, windows, select])?;
        for (name, value) in ["mask_iou", "mask_iou_over_50", "mask_iou_over_70"].into_iter().zip(&results[2..]) {
            at.metric(name, *value);
        }
        Ok(())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let sizes = [("size", self.size), ("stride", self.stride), ("pad", self.pad)];
        let (prediction, _) = at.output(&self.prediction)?;
        let mut arguments: Vec<Code> =
            [prediction, format!("batch[\"{}\"]", self.target), format!("batch[\"{}\"]", self.select)]
                .map(Code::text)
                .into();
        arguments.extend(sizes.map(|(key, value)| Code::named(key, Code::count(value))));
        arguments.push(Code::named("align_corners", Code::switch(self.align_corners)));
        at.function(TEXT);
        at.term(&self.name, self.weight, Code::call("mask_soft_margin", arguments));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def mask_soft_margin(
    p: Tensor, target: Tensor, select: Tensor, size: int, stride: int, pad: int, align_corners: bool
) -> Tensor:
    """Logistic loss of the masks at the selected positions."""
    chosen = select.flatten() == 1
    windows = functional.unfold(target, size, padding=pad, stride=stride).transpose(1, 2)
    windows = windows.reshape(-1, size * size)[chosen]
    if p.ndim == 4:
        side = math.isqrt(p.shape[1])
        maps = p.permute(0, 2, 3, 1).reshape(-1, 1, side, side)[chosen]
        p = functional.interpolate(maps, (size, size), mode="bilinear", align_corners=align_corners).flatten(1)
    else:
        p = p[chosen]
    return functional.soft_margin_loss(p, windows) if len(p) else p.sum() * 0
"#;
