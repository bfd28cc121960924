"""Words on rows: dense layers, tokens [T, E], attention, signals [C, L]."""

from .maps import EPS, WIDTHS, divisors
from .program import Draw, Value
from .vocabulary import word

ANY = (1, 2, 3)


@word(*ANY, weight=2.5)
def linear(d: Draw, x: Value) -> str:
    width, out, bias = x.shape[-1], d.pick("out", WIDTHS), d.pick("bias", [True, False])
    d.need(width <= 600)
    d.tag("linear", "linear.out", *([] if bias else ["linear.bias"]))
    made = d.module(f"nn.Linear({width}, {out}{'' if bias else ', bias=False'})")
    return f"{made}({x.name})"


@word(*ANY, weight=1.5)
def layer_norm(d: Draw, x: Value) -> str:
    axes = d.between("axes", 1, x.rank)
    shape = x.shape[-axes:]
    count = 1
    for extent in shape:
        count *= extent
    d.need(3 < count <= 800)
    eps, bias = d.usually("eps", 1e-5, EPS), d.usually("bias", True, [False])
    d.tag("layer_norm", *(["layer_norm.axes"] if axes > 1 else []), *(["layer_norm.eps"] if eps != 1e-5 else []), *([] if bias else ["layer_norm.bias"]))
    text = f"({', '.join(map(str, shape))})" if axes > 1 else str(shape[0])
    return f"{d.module(f'nn.LayerNorm({text}, eps={eps}' + ('' if bias else ', bias=False') + ')')}({x.name})"


@word(*ANY, weight=0.8)
def rms_norm(d: Draw, x: Value) -> str:
    d.need(x.shape[-1] > 3)
    eps = d.pick("eps", [1e-6, 1e-5, 1e-3])
    d.tag("rms_norm", "rms_norm.eps")
    return f"{d.module(f'nn.RMSNorm({x.shape[-1]}, eps={eps})')}({x.name})"


@word(3, weight=0.6)
def layer_norm_of_pixels(d: Draw, x: Value) -> str:
    d.need(x.shape[0] > 3)
    d.tag("layer_norm", "layer_norm.channels_first")
    norm = d.module(f"nn.LayerNorm({x.shape[0]}, eps={d.pick('eps', EPS)})", "norm")
    return f"{norm}({x.name}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)"


@word(2, weight=1)
def conv1d(d: Draw, x: Value) -> str:
    c, length = x.shape
    groups = d.pick("groups", [1, 1, *divisors(c)])
    out = groups * d.pick("out per group", [1, 2, 3])
    kernel, stride, pad, dilation = d.pick("kernel", [3, 1, 5]), d.pick("stride", [1, 2, 3]), d.pick("pad", [0, 1, 2]), d.pick("dilation", [1, 2])
    bias = d.pick("bias", [True, False])
    d.need(out <= 24 and length + 2 * pad >= dilation * (kernel - 1) + 1)
    d.tag("conv1d", "conv1d.out", "conv1d.kernel", "conv1d.stride", "conv1d.pad", "conv1d.dilation", "conv1d.groups", "conv1d.bias")
    return f"{d.module(f'nn.Conv1d({c}, {out}, {kernel}, stride={stride}, padding={pad}, dilation={dilation}, groups={groups}, bias={bias})')}({x.name})"


@word(2, weight=2)
def attention(d: Draw, x: Value) -> str:
    tokens, width = x.shape
    heads = d.pick("heads", [part for part in divisors(width) if part <= 4])
    d.need(2 <= width <= 32 and 2 <= tokens <= 80)
    weights = d.pick("weights", [", need_weights=False", ""])
    d.tag("attention", "attention.heads")
    made = d.module(f"nn.MultiheadAttention({width}, {heads}, batch_first=True)")
    return d.line(f"{made}({x.name}, {x.name}, {x.name}{weights})[0]")


@word(2, weight=2)
def dot_product_attention(d: Draw, x: Value) -> str:
    tokens, width = x.shape
    heads = d.pick("heads", [1, 2, 3, 4])
    size = d.pick("size of a head", [4, 2, 3, 5])
    d.need(2 <= tokens <= 80 and 2 <= width <= 64)
    causal = d.pick("causal", [False, True])
    bias = d.pick("bias", [True, False])
    d.tag("dot_product_attention", "dot_product_attention.heads", *(["dot_product_attention.causal"] if causal else []))
    total = heads * size
    form = d.pick("qkv", ["one", "three", "unbind"])
    if form == "one":
        qkv = d.module(f"nn.Linear({width}, {3 * total}, bias={bias})", "qkv")
        q, k, v = d.name("q"), d.name("k"), d.name("v")
        d.do(f"{q}, {k}, {v} = {qkv}({x.name}).chunk(3, dim=-1)")
        q, k, v = (d.line(f"{part}.view(-1, {tokens}, {heads}, {size}).transpose(1, 2)", kind) for part, kind in ((q, "q"), (k, "k"), (v, "v")))
    elif form == "unbind":
        qkv = d.module(f"nn.Linear({width}, {3 * total}, bias={bias})", "qkv")
        q, k, v = d.name("q"), d.name("k"), d.name("v")
        d.do(f"{q}, {k}, {v} = {qkv}({x.name}).reshape(-1, {tokens}, 3, {heads}, {size}).permute(2, 0, 3, 1, 4).unbind(0)")
    else:
        q, k, v = (
            d.line(
                f"{d.module(f'nn.Linear({width}, {total}, bias={bias})', f'{kind}_proj')}({x.name}).view(-1, {tokens}, {heads}, {size}).transpose(1, 2)",
                kind,
            )
            for kind in "qkv"
        )
    how = d.pick("how", ["sdpa", "by hand"])
    if how == "sdpa":
        y = d.line(f"F.scaled_dot_product_attention({q}, {k}, {v}" + (", is_causal=True)" if causal else ")"), "a")
    else:
        scale = d.pick(
            "scale",
            [
                f"{q} @ {k}.transpose(-2, -1) * {size} ** -0.5",
                f"torch.matmul({q}, {k}.transpose(-2, -1)) / math.sqrt({size})",
                f"({q} * {size} ** -0.5) @ {k}.transpose(-2, -1)",
            ],
        )
        s = d.line(scale, "s")
        if causal:
            mask, least = d.name("mask"), d.pick("least", ["-math.inf", "-100.0", "-1e9", "-20000.0", "-30.0"])
            seen = f"torch.tril(torch.ones({tokens}, {tokens})).view(1, 1, {tokens}, {tokens})"
            if least == "-math.inf":
                d.written.init(f"self.register_buffer('{mask}', {seen})")
                s = d.line(f"{s}.masked_fill(self.{mask} == 0, float('-inf'))", "s")
            else:
                d.written.init(f"self.register_buffer('{mask}', (1 - {seen}) * {least})")
                s = d.line(d.pick("masked", [f"{s} + self.{mask}", f"torch.add({s}, self.{mask})"]), "s")
                d.tag("dot_product_attention.masked")
        s = d.line(d.pick("softmax", [f"{s}.softmax(-1)", f"F.softmax({s}, dim=-1)"]), "s")
        y = d.line(f"{s} @ {v}", "a")
    y = d.line(
        d.pick(
            "heads back",
            [
                f"{y}.transpose(1, 2).reshape(-1, {tokens}, {total})",
                f"{y}.transpose(1, 2).contiguous().view(-1, {tokens}, {total})",
                f"{y}.transpose(1, 2).flatten(2)",
            ],
        ),
        "a",
    )
    return f"{d.module(f'nn.Linear({total}, {width})', 'proj')}({y})" if d.pick("proj", [True, False]) else y


@word(2, weight=0.8)
def add_parameter(d: Draw, x: Value) -> str:
    name = d.name("pos")
    d.written.init(f"self.{name} = nn.Parameter(torch.zeros(1, {', '.join(map(str, x.shape))}))")
    d.tag("add_parameter")
    return f"{x.name} + self.{name}"


@word(2, weight=0.6)
def prepend(d: Draw, x: Value) -> str:
    name = d.name("cls")
    d.written.init(f"self.{name} = nn.Parameter(torch.zeros(1, 1, {x.shape[-1]}))")
    d.tag("prepend")
    return d.pick(
        "form",
        [
            f"torch.cat([self.{name}.expand({x.name}.shape[0], -1, -1), {x.name}], 1)",
            f"torch.cat((self.{name}.expand({x.name}.size(0), 1, {x.shape[-1]}), {x.name}), dim=1)",
        ],
    )


@word(*ANY, weight=0.4)
def called_twice(d: Draw, x: Value) -> str:
    width = x.shape[-1]
    d.need(width <= 64)
    d.tag("linear", "linear.out", "again")
    made = d.module(f"nn.Linear({width}, {width})")
    return f"{made}(torch.tanh({made}({x.name})))"


@word(*ANY, weight=0.3)
def weight_norm(d: Draw, x: Value) -> str:
    width, out = x.shape[-1], d.pick("out", WIDTHS)
    d.need(width <= 600)
    d.tag("linear", "linear.out", "linear.weight_norm")
    function = d.pick("kind", ["nn.utils.parametrizations.weight_norm", "nn.utils.weight_norm"])
    return f"{d.module(f'{function}(nn.Linear({width}, {out}))')}({x.name})"


@word(2, weight=0.3)
def weight_norm_of_signals(d: Draw, x: Value) -> str:
    channels, length = x.shape
    d.need(length > 2)
    d.tag("conv1d", "conv1d.out", "conv1d.kernel", "conv1d.weight_norm")
    conv = f"nn.Conv1d({channels}, {d.pick('out', [4, 6])}, 3)"
    return f"{d.module(f'nn.utils.parametrizations.weight_norm({conv})')}({x.name})"


@word(1, 2, weight=0.5)
def batch_norm_of_rows(d: Draw, x: Value) -> str:
    d.tag("bn")
    return f"{d.module(f'nn.BatchNorm1d({x.shape[0]})')}({x.name})"


@word(2, weight=0.5)
def pool_of_signals(d: Draw, x: Value) -> str:
    kernel, stride = d.pick("kernel", [2, 3]), d.pick("stride", [1, 2])
    d.need(x.shape[1] >= kernel)
    kind = d.pick("kind", ["max", "avg"])
    d.tag(f"{kind}_pool", f"{kind}_pool.kernel", *([f"{kind}_pool.stride"] if stride != kernel else []))
    return f"F.{kind}_pool1d({x.name}, {kernel}, {stride})"


@word(*ANY, weight=0.4)
def prelu(d: Draw, x: Value) -> str:
    shared, start = d.pick("shared", [False, True]), d.usually("start", 0.25, [0.1])
    d.tag("prelu", *(["prelu.shared"] if shared and x.shape[0] != 1 else []), *(["prelu.start"] if start != 0.25 else []))
    return f"{d.module(f'nn.PReLU({1 if shared else x.shape[0]}, init={start})')}({x.name})"


@word(*ANY, weight=0.4)
def largest(d: Draw, x: Value) -> str:
    d.need(x.rank > 1)
    axis = d.between("axis", 1, x.rank)
    d.tag("max_pool", "max_pool.kernel")
    return f"{x.name}.max({axis}, keepdim=True)[0]"


@word(*ANY, weight=0.3)
def gated_halves(d: Draw, x: Value) -> str:
    d.need(x.shape[0] % 2 == 0)
    d.tag("slice", "sigmoid")
    return f"F.glu({x.name}, dim=1)"


@word(*ANY, weight=0.3)
def log_softmax(d: Draw, x: Value) -> str:
    d.tag("map")
    return f"F.log_softmax({x.name}, dim={d.pick('axis', [1, -1])})"


@word(*ANY, weight=0.2)
def cut_off(d: Draw, x: Value) -> str:
    d.tag("map")
    return f"{x.name} * torch.sigmoid({x.name}.detach())"
