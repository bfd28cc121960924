//! Functions that programs define, by their names.

/// A function in MindSpore's words; `None` if it is not written yet.
pub(super) fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "Apply" => APPLY,
        "split_heads" | "join_heads" => HEADS,
        "masked_attention" => MASKED,
        "alibi_bias" => ALIBI,
        "causal_mask" => CAUSAL,
        "crop_like" => CROP_LIKE,
        "crop" => CROP,
        "rotate" => ROTARY,
        "LayerNorm2d" => LAYER_NORM_2D,
        "mixed" => MIXED,
        "balanced_bce" => BALANCED_BCE,
        "masked_l1" => MASKED_L1,
        "dice" => DICE,
        _ => return None,
    })
}

const APPLY: &str = r#"
class Apply(nn.Cell):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def construct(self, x: Tensor) -> Tensor:
        return self.function(x)
"#;

const HEADS: &str = r#"
def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[..., T, heads * d]` as `[..., heads, T, d]`."""
    return x.reshape((*x.shape[:-1], heads, -1)).swapaxes(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """The reverse of `split_heads`."""
    x = x.swapaxes(-3, -2)
    return x.reshape((*x.shape[:-2], -1))
"#;

/// A method of PyTorch's tensors.
pub(super) const UNFLATTEN: &str = r#"
def unflatten(x: Tensor, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """One axis as several; one of their sizes may be -1."""
    axis = axis % x.ndim
    return x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
"#;

/// PyTorch's `scaled_dot_product_attention`.
pub(super) const ATTENTION: &str = r#"
def attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, dropout_p: float = 0.0, scale: float | None = None
) -> Tensor:
    """Attention of each head."""
    scores = ops.matmul(q, k.swapaxes(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = ops.arange(k.shape[-2]) > ops.arange(q.shape[-2])[:, None] + (k.shape[-2] - q.shape[-2])
        scores = scores.masked_fill(later, float("-inf"))
    weights = ops.softmax(scores, -1)
    return ops.matmul(ops.dropout(weights, dropout_p) if dropout_p > 0 else weights, v)
"#;

const MASKED: &str = r#"
def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    bias: Tensor | None = None,
    masked: float = float("-inf"),
    causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention with a bias of the scores, where a query sees keys of its own segment that are no padding."""
    scores = ops.matmul(q, k.swapaxes(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    unseen = ops.zeros((q.shape[-2], k.shape[-2])) > 0
    if causal:
        later = ops.arange(k.shape[-2]) > ops.arange(q.shape[-2])[:, None] + (k.shape[-2] - q.shape[-2])
        unseen = ops.logical_or(unseen, later)
    if mask is not None:
        shape = (mask.shape[0], *[1] * (q.ndim - 2), mask.shape[-1])
        unseen = ops.logical_or(unseen, (mask == 0).reshape(shape))
    if segments is not None:
        unseen = ops.logical_or(unseen, segments[..., None, :, None] != segments[..., None, None, :])
    # Without weight, or with less.
    hidden = float("-inf") if masked == float("-inf") else scores + masked
    scores = ops.where(unseen, hidden, scores)
    weights = ops.softmax(scores, -1)
    return ops.matmul(ops.dropout(weights, dropout_p) if dropout_p > 0 else weights, v)
"#;

const ALIBI: &str = r#"
def alibi_bias(q: Tensor, k: Tensor, most: float) -> Tensor:
    """A bias `[heads, T, T]` of scores that grows with the distance of a key (arXiv 2108.12409)."""
    heads, t, s = q.shape[-3], q.shape[-2], k.shape[-2]
    whole = 2 ** (heads.bit_length() - 1)
    powers = [head + 1.0 if head < whole else head - whole + 0.5 for head in range(heads)]
    slopes = Tensor([2.0 ** (-most * power / whole) for power in powers], q.dtype)
    places = (ops.arange(s - t, s)[:, None] - ops.arange(s)).astype(q.dtype)
    return -slopes[:, None, None] * places.abs()
"#;

const CAUSAL: &str = r#"
def causal_mask(x: Tensor) -> Tensor:
    """Hides later tokens."""
    return ops.arange(x.shape[-2]) > ops.arange(x.shape[-2])[:, None]
"#;

const CROP_LIKE: &str = r#"
def crop_like(x: Tensor, like: Tensor) -> Tensor:
    """The centre of a map, with the height and width of another."""
    top, left = (x.shape[-2] - like.shape[-2]) // 2, (x.shape[-1] - like.shape[-1]) // 2
    return x[:, :, top : top + like.shape[-2], left : left + like.shape[-1]]
"#;

const CROP: &str = r#"
def crop(x: Tensor, margin: int, narrower_than: int | None = None) -> Tensor:
    """Removes a margin on all sides, of maps that are narrower than a limit if there is one."""
    if margin == 0 or (narrower_than is not None and x.shape[-1] >= narrower_than):
        return x
    return x[:, :, margin:-margin, margin:-margin]
"#;

const ROTARY: &str = r#"
def rotate(x: Tensor, base: float) -> Tensor:
    """Rotates pairs of channels by angles that grow with the position (arXiv 2104.09864)."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[-2])[:, None] * base ** (-np.arange(half) / half)
    cosines, sines = (Tensor(np.tile(table, 2), x.dtype) for table in (np.cos(angles), np.sin(angles)))
    return x * cosines + ops.cat([-x[..., half:], x[..., :half]], axis=-1) * sines
"#;

/// PyTorch's `nn.RMSNorm`.
pub(super) const RMS_NORM: &str = r#"
class RmsNorm(nn.Cell):
    """Division by the root of the mean square of the last axis."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = Parameter(ops.ones((channels,)))
        self.eps = eps

    def construct(self, x: Tensor) -> Tensor:
        return x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + self.eps) * self.weight
"#;

/// torchvision's.
pub(super) const DEPTH: &str = r#"
def stochastic_depth(x: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Drops a branch, of each sample (`row`) or of all, and makes the others larger."""
    if not training or p == 0:
        return x
    samples = x.shape[0] if mode == "row" else 1
    return x * ops.dropout(ops.ones((samples, *[1] * (x.ndim - 1)), x.dtype), p)


class StochasticDepth(nn.Cell):
    """`stochastic_depth` as a module."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def construct(self, x: Tensor) -> Tensor:
        return stochastic_depth(x, self.p, self.mode, self.training)
"#;

/// PyTorch's `nn.LayerNorm` without a bias.
pub(super) const LAYER_NORM: &str = r#"
class UnbiasedLayerNorm(nn.Cell):
    """Layer normalisation without a bias."""

    def __init__(self, shape: tuple[int], epsilon: float) -> None:
        super().__init__()
        self.weight = Parameter(ops.ones(shape))
        self.zeros = ops.zeros(shape)
        self.normalize = ops.LayerNorm(-1, -1, epsilon)

    def construct(self, x: Tensor) -> Tensor:
        return self.normalize(x, self.weight.astype(x.dtype), self.zeros.astype(x.dtype))[0]
"#;

const LAYER_NORM_2D: &str = r#"
class LayerNorm2d(nn.LayerNorm):
    """Layer normalisation of the channels of each pixel."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__((channels,), epsilon=eps)

    def construct(self, x: Tensor) -> Tensor:
        return super().construct(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
"#;

/// PyTorch's `cross_entropy`. `ops.cross_entropy` takes an exponential that is off by 3e-6 on a CPU.
pub(super) const CROSS_ENTROPY: &str = r#"
def cross_entropy(
    logits: Tensor, label: Tensor, ignore_index: int | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """The mean cross entropy of what is not ignored."""
    classes, share = logits.shape[1], label_smoothing / logits.shape[1]
    if logits.ndim == 4:
        logits = logits.transpose(0, 2, 3, 1).reshape((-1, classes))
    label = label.flatten()
    truth = ops.one_hot(label, classes, 1 - label_smoothing + share, share)
    entropy, _ = ops.SoftmaxCrossEntropyWithLogits()(logits, truth)
    if ignore_index is None:
        return entropy.mean()
    known = (label != ignore_index).astype(entropy.dtype)
    return (entropy * known).sum() / known.sum()
"#;

const MIXED: &str = r#"
def mixed(share: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """The loss of mixed images, from the losses with their own classes and with those that were mixed in."""
    share = share.mean()
    return share * own + (1 - share) * other
"#;

const BALANCED_BCE: &str = r#"
def balanced_bce(p: Tensor, target: Tensor, mask: Tensor, ratio: float, eps: float) -> Tensor:
    """Binary cross entropy over the positives and the hardest negatives of all samples together."""
    mask = mask[:, None]
    positive, negative = ops.trunc(target * mask), ops.trunc((1 - target) * mask)
    count = min(int(negative.sum()), int(positive.sum() * ratio))
    entropy = ops.binary_cross_entropy(p, target, reduction="none")
    hardest = ops.topk((entropy * negative).flatten(), count)[0]
    return ((entropy * positive).sum() + hardest.sum()) / (positive.sum() + count + eps)
"#;

const MASKED_L1: &str = r#"
def masked_l1(p: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean absolute difference where the mask is set."""
    weight = mask.sum()
    return ((p[:, 0] - target).abs() * mask).sum() / ops.where(weight == 0, ops.ones_like(weight), weight)
"#;

const DICE: &str = r#"
def dice(p: Tensor, target: Tensor, mask: Tensor, eps: float) -> Tensor:
    """One minus the Dice coefficient."""
    mask = mask[:, None]
    return 1 - 2 * (p * target * mask).sum() / ((p * mask).sum() + (target * mask).sum() + eps)
"#;
