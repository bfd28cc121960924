"""Words of vision transformers and language models: windows, merged patches, tied tables, learned affine maps."""

from .maps import divisors
from .program import Draw, Value
from .vocabulary import word


@word(2, weight=0.7)
def affine(d: Draw, x: Value) -> str:
    """Of a module with the names that ResMLP has."""
    d.tag("affine")
    width = x.shape[-1]
    name = f"Affine{d.label}"
    d.written.add_class(
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.alpha = nn.Parameter(torch.ones(1, 1, {width}))\n        self.beta = nn.Parameter(torch.zeros(1, 1, {width}))\n\n"
        "    def forward(self, x):\n        return torch.addcmul(self.beta, self.alpha, x)\n"
    )
    return f"{d.module(f'{name}()', 'affine')}({x.name})"


@word(2, weight=0.7)
def positions(d: Draw, x: Value) -> str:
    tokens, width = x.shape
    rows = tokens + d.pick("more", [0, 3])
    d.need(width <= 64)
    d.tag("positions", "positions.rows")
    table = d.module(f"nn.Embedding({rows}, {width})", "wpe")
    return d.pick(
        "form",
        [
            f"{x.name} + {table}(torch.arange({tokens}, device={x.name}.device))",
            f"{table}(torch.arange(0, {tokens}, dtype=torch.long, device={x.name}.device)) + {x.name}",
        ],
    )


@word(*(1, 2, 3), weight=0.5)
def drop_path(d: Draw, x: Value) -> str:
    d.tag("drop_path", "drop_path.rate")
    made = d.module(f"torchvision.ops.StochasticDepth({d.pick('rate', [0.1, 0.5])}, 'row')")
    return f"{x.name} + {made}(torch.tanh({x.name}))" if d.pick("adds", [True, False]) else f"{made}({x.name})"


@word(3, weight=0.7)
def windows(d: Draw, x: Value) -> str:
    """torchvision's attention of shifted windows, on maps with channels last."""
    height, width, c = x.shape
    heads = d.pick("heads", [part for part in divisors(c) if part <= 4 and c // part >= 2])
    d.need(4 <= height <= 16 and 4 <= width <= 16 and c <= 24)
    size = d.pick("size", [4, 2, 3])
    shift = d.pick("shift", [0, size // 2])
    second = d.pick("version", [False, True])
    kind = "ShiftedWindowAttentionV2" if second else "ShiftedWindowAttention"
    d.tag(
        "windows",
        "windows.size",
        "windows.body",
        "relative_position_bias" if not second else "continuous_position_bias",
        "dot_product_attention.bias",
        "linear.functional",
    )
    d.tag(*(["windows.shift", "windows.segments", "dot_product_attention.segments"] if shift else []))
    if second:
        d.tag(
            "logit_scale",
            "logit_scale.heads",
            "logit_scale.tap",
            "dot_product_attention.cosine",
            "linear.bias_of",
            *(f"continuous_position_bias.{key}" for key in ("heads", "size", "tap")),
        )
    else:
        d.tag(*(f"relative_position_bias.{key}" for key in ("heads", "size", "tap")))
    made = d.module(f"swin.{kind}({c}, [{size}, {size}], [{shift}, {shift}], {heads})", "attn")
    return f"{made}({x.name})"


@word(3, weight=0.5)
def merge_patches(d: Draw, x: Value) -> str:
    height, width, c = x.shape
    d.need(height >= 2 and width >= 2 and c <= 24)
    d.tag("merge_patches", "merge_patches.size")
    return f"{d.module(f'swin.PatchMerging({c})', 'merge')}({x.name})"


@word(2, weight=0.7)
def grouped_attention(d: Draw, x: Value) -> str:
    """Several heads of queries for each head of keys and values, from layers of their own."""
    tokens, width = x.shape
    groups, share, size = d.pick("groups", [1, 2]), d.pick("share", [2, 3]), d.pick("size of a head", [4, 2])
    heads = groups * share
    d.need(2 <= tokens <= 40 and 2 <= width <= 64)
    d.tag("dot_product_attention", "dot_product_attention.kv_heads", "dot_product_attention.key", "dot_product_attention.value")
    views = []
    for kind, count in (("q", heads), ("k", groups), ("v", groups)):
        made = d.module(f"nn.Linear({width}, {count * size})", f"{kind}_proj")
        views.append(d.line(f"{made}({x.name}).view(-1, {tokens}, {count}, {size}).transpose(1, 2)", kind))
    q, k, v = views
    if d.pick("repeats", [True, False]):
        k = d.line(f"{k}[:, :, None].expand(-1, {groups}, {share}, {tokens}, {size}).reshape(-1, {heads}, {tokens}, {size})", "k")
        v = d.line(f"{v}[:, :, None].expand(-1, {groups}, {share}, {tokens}, {size}).reshape(-1, {heads}, {tokens}, {size})", "v")
        y = d.line(f"F.scaled_dot_product_attention({q}, {k}, {v})", "a")
    else:
        y = d.line(f"F.scaled_dot_product_attention({q}, {k}, {v}, enable_gqa=True)", "a")
    return d.line(f"{y}.transpose(1, 2).reshape(-1, {tokens}, {heads * size})", "a")


@word(2, weight=0.5)
def cross_attention(d: Draw, x: Value, y: Value) -> str:
    """Queries of one value, keys and values of another."""
    d.need(y.rank == 2 and x.name != y.name and 2 <= x.shape[0] <= 60 and 2 <= y.shape[0] <= 60 and max(x.shape[1], y.shape[1]) <= 64)
    heads, size = d.pick("heads", [1, 2]), d.pick("size of a head", [4, 3])
    d.tag("dot_product_attention", "dot_product_attention.key", "dot_product_attention.value")
    views = []
    for kind, value in (("q", x), ("k", y), ("v", y)):
        made = d.module(f"nn.Linear({value.shape[1]}, {heads * size})", f"{kind}_proj")
        views.append(d.line(f"{made}({value.name}).view(-1, {value.shape[0]}, {heads}, {size}).transpose(1, 2)", kind))
    a = d.line(f"F.scaled_dot_product_attention({', '.join(views)})", "a")
    return f"{a}.transpose(1, 2).flatten(2)"


@word(2, weight=0.5)
def transposed_linear(d: Draw, x: Value) -> str:
    """A dense layer with the weight of the other orientation, as the Conv1D of transformers has it."""
    width, out = x.shape[-1], d.pick("out", [8, 6, 12])
    d.need(width <= 200)
    d.tag("linear", "linear.transposed")
    name = f"Conv1D{d.label}"
    d.written.add_class(
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.weight = nn.Parameter(torch.randn({width}, {out}) * 0.1)\n        self.bias = nn.Parameter(torch.zeros({out}))\n\n"
        f"    def forward(self, x):\n        return torch.addmm(self.bias, x.view(-1, {width}), self.weight).view(x.size()[:-1] + ({out},))\n"
    )
    return f"{d.module(f'{name}()', 'c_fc')}({x.name})"


@word(2, weight=0.5)
def encoder_layer(d: Draw, x: Value) -> str:
    """PyTorch's own block of transformers."""
    tokens, width = x.shape
    heads = d.pick("heads", [part for part in divisors(width) if part <= 4])
    d.need(2 <= tokens <= 60 and 4 <= width <= 24)
    first, act = d.pick("norm first", [False, True]), d.pick("act", ["'relu'", "'gelu'"])
    d.tag("attention", "attention.heads", "attention.dropout", "layer_norm", "dropout")
    made = d.module(f"nn.TransformerEncoderLayer({width}, {heads}, {d.pick('inner', [16, 8])}, 0.1, {act}, norm_first={first}, batch_first=True)", "encoder")
    return f"{made}({x.name})"


@word(2, weight=0.4)
def sine_positions(d: Draw, x: Value) -> str:
    """Sines and cosines in a buffer, as in the tutorial of PyTorch."""
    tokens, width = x.shape
    d.need(width % 2 == 0 and width <= 64)
    name = d.name("pe")
    d.written.init(f"position, rate = torch.arange({tokens}).unsqueeze(1), torch.exp(torch.arange(0, {width}, 2) * (-math.log(10000.0) / {width}))")
    d.written.init("table = torch.stack([torch.sin(position * rate), torch.cos(position * rate)], -1).flatten(1)")
    d.written.init(f"self.register_buffer('{name}', table[None])")
    return f"{x.name} + self.{name}"
