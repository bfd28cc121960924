"""Words on feature maps, [C, H, W]."""

from .program import Draw, Value
from .vocabulary import word

WIDTHS = (4, 6, 8, 3, 5, 7, 9, 10, 12, 16)
EPS = (1e-5, 1e-3, 1e-4, 1e-6, 2e-5, 0.01)
MOMENTA = (0.1, 0.01, 0.03, 0.25, 0.5, 0.9, 1.0)


def divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def pair(d: Draw, key: str, choices: list[int]) -> tuple[str, int, int]:
    """The text of a size in both directions, often one number, and both numbers."""
    if d.usually(f"{key} is square", True, [False]):
        one = d.pick(key, choices)
        return d.pick(f"{key} text", [f"{one}", f"({one}, {one})"]), one, one
    h, w = d.pick(f"{key} h", choices), d.pick(f"{key} w", choices)
    return f"({h}, {w})", h, w


def fit(size: int, kernel: int, dilation: int = 1, pad: int = 0) -> bool:
    return size + 2 * pad >= dilation * (kernel - 1) + 1


@word(3, weight=5)
def conv(d: Draw, x: Value) -> str:
    c, height, width = x.shape
    groups = d.pick("groups", [1, 1, 1, *divisors(c)])
    out = groups * d.pick("out per group", [1, 2, 3, 4, 5]) if groups > 1 else d.pick("out", WIDTHS)
    d.need(out <= 24)
    kernel, kh, kw = pair(d, "kernel", [3, 1, 2, 4, 5, 7])
    dilation, dh, dw = pair(d, "dilation", [1, 1, 1, 2, 3])
    stride, sh, sw = pair(d, "stride", [1, 1, 2, 3])
    form = d.pick("padding", ["number", "number", "same", "valid", "pair"])
    if form == "number":
        p = d.pick("pad", [0, 1, 2, 3])
        padding, ph, pw = f"{p}", p, p
    elif form == "pair":
        ph, pw = d.pick("pad h", [0, 1, 2]), d.pick("pad w", [0, 1, 3])
        padding = f"({ph}, {pw})"
    elif form == "same":
        d.need((sh, sw) == (1, 1))
        padding, ph, pw = "'same'", 9, 9
    else:
        padding, ph, pw = "'valid'", 0, 0
    d.need(fit(height, kh, dh, ph) and fit(width, kw, dw, pw))
    bias = d.pick("bias", [True, False])
    given = f"{c}, {out}, {kernel}"
    if stride != "1":
        given += f", stride={stride}"
    if padding != "0":
        given += f", padding={padding}"
    if dilation != "1":
        given += f", dilation={dilation}"
    if groups > 1:
        given += f", groups={groups}"
    given += "" if bias else ", bias=False"
    told = {"stride": stride != "1", "pad": ph + pw, "dilation": dilation != "1", "groups": groups > 1, "bias": not bias}
    d.tag("conv", "conv.out", "conv.kernel", *(f"conv.{key}" for key, is_told in told.items() if is_told))
    return f"{d.module(f'nn.Conv2d({given})')}({x.name})"


@word(3, weight=1)
def conv_transpose(d: Draw, x: Value) -> str:
    c, height, width = x.shape
    kernel, _, _ = pair(d, "kernel", [2, 3, 4])
    stride, sh, sw = pair(d, "stride", [1, 2, 3])
    pad = d.pick("pad", ["0", "1", "(1, 0)", "(0, 1)"])
    out, bias = d.pick("out", WIDTHS), d.pick("bias", [True, False])
    d.need(height * sh < 30 and width * sw < 30)
    d.tag("conv_transpose", "conv_transpose.out", "conv_transpose.kernel", "conv_transpose.stride", "conv_transpose.pad", "conv_transpose.bias")
    return f"{d.module(f'nn.ConvTranspose2d({c}, {out}, {kernel}, stride={stride}, padding={pad}, bias={bias})')}({x.name})"


@word(3, weight=3)
def bn(d: Draw, x: Value) -> str:
    eps, momentum = d.usually("eps", 1e-5, EPS), d.usually("momentum", 0.1, MOMENTA)
    given = f"{x.shape[0]}" + (f", eps={eps}" if eps != 1e-5 else "") + (f", momentum={momentum}" if momentum != 0.1 else "")
    d.tag("bn", *(["bn.eps"] if eps != 1e-5 else []), *(["bn.momentum"] if momentum != 0.1 else []))
    return f"{d.module(f'nn.BatchNorm2d({given})')}({x.name})"


@word(3, weight=1.5)
def group_norm(d: Draw, x: Value) -> str:
    c, height, width = x.shape
    groups = d.pick("groups", divisors(c))
    d.need(c // groups * height * width > 3)
    eps = d.usually("eps", 1e-5, EPS)
    d.tag("group_norm", "group_norm.groups", "group_norm.eps")
    return f"{d.module(f'nn.GroupNorm({groups}, {c}, eps={eps})')}({x.name})"


@word(3)
def instance_norm(d: Draw, x: Value) -> str:
    d.need(x.shape[1] * x.shape[2] > 3)
    eps = d.usually("eps", 1e-5, EPS)
    d.tag("instance_norm", "instance_norm.eps")
    if d.pick("functional", [False, True]):
        return f"F.instance_norm({x.name}, eps={eps})"
    return f"{d.module(f'nn.InstanceNorm2d({x.shape[0]}, eps={eps})')}({x.name})"


@word(3, weight=0.7)
def lrn(d: Draw, x: Value) -> str:
    size = d.pick("size", [3, 5, 2, 1])
    alpha, beta, k = d.pick("alpha", [1e-4, 0.1, 0.5]), d.pick("beta", [0.75, 0.5, 1.0]), d.pick("k", [1.0, 2.0])
    d.tag("lrn", "lrn.size", "lrn.alpha", "lrn.beta", "lrn.k")
    if d.pick("functional", [False, True]):
        return f"F.local_response_norm({x.name}, {size}, alpha={alpha}, beta={beta}, k={k})"
    return f"{d.module(f'nn.LocalResponseNorm({size}, alpha={alpha}, beta={beta}, k={k})')}({x.name})"


@word(3, weight=1.5)
def max_pool(d: Draw, x: Value) -> str:
    kernel, kh, kw = pair(d, "kernel", [2, 3, 4, 5])
    stride = d.pick("stride", ["", "1", "2", "3", "(2, 1)"])
    pad, ceil = d.pick("pad", [0, 1]), d.usually("ceil", False, [True])
    d.need(fit(x.shape[1], kh, 1, pad) and fit(x.shape[2], kw, 1, pad) and 2 * pad <= min(kh, kw))
    given = kernel + (f", {stride}" if stride else "") + (f", padding={pad}" if pad else "") + (", ceil_mode=True" if ceil else "")
    d.tag(
        "max_pool",
        "max_pool.kernel",
        *(["max_pool.stride"] if stride else []),
        *(["max_pool.pad"] if pad else []),
        *(["max_pool.ceil_mode"] if ceil else []),
    )
    if d.pick("functional", [False, True]):
        return f"F.max_pool2d({x.name}, {given})"
    return f"{d.module(f'nn.MaxPool2d({given})')}({x.name})"


@word(3, weight=1.5)
def avg_pool(d: Draw, x: Value) -> str:
    kernel, kh, kw = pair(d, "kernel", [2, 3, 4, 5])
    stride = d.pick("stride", ["", "1", "2", "3", "(1, 2)"])
    pad, ceil, counts = d.pick("pad", [0, 1]), d.usually("ceil", False, [True]), d.pick("counts", [True, False])
    d.need(fit(x.shape[1], kh, 1, pad) and fit(x.shape[2], kw, 1, pad) and 2 * pad <= min(kh, kw))
    given = kernel + (f", {stride}" if stride else "") + (f", padding={pad}" if pad else "") + (", ceil_mode=True" if ceil else "")
    given += "" if counts else ", count_include_pad=False"
    d.tag(
        "avg_pool",
        "avg_pool.kernel",
        *(["avg_pool.stride"] if stride else []),
        *(["avg_pool.pad"] if pad else []),
        *(["avg_pool.ceil_mode"] if ceil else []),
        *([] if counts else ["avg_pool.count_include_pad"]),
    )
    if d.pick("functional", [False, True]):
        return f"F.avg_pool2d({x.name}, {given})"
    return f"{d.module(f'nn.AvgPool2d({given})')}({x.name})"


@word(3)
def adaptive_avg_pool(d: Draw, x: Value) -> str:
    out, h, w = pair(d, "out", [2, 3, 1, 4])
    d.need(h <= x.shape[1] and w <= x.shape[2])
    d.tag("adaptive_avg_pool", "adaptive_avg_pool.out")
    if d.pick("functional", [False, True]):
        return f"F.adaptive_avg_pool2d({x.name}, {out})"
    return f"{d.module(f'nn.AdaptiveAvgPool2d({out})')}({x.name})"


@word(3, weight=0.6)
def global_avg_pool(d: Draw, x: Value) -> str:
    form = d.pick("form", ["nn.AdaptiveAvgPool2d(1)", "mean", "mean -1", "avg_pool2d"])
    d.tag("global_avg_pool")
    if form == "mean":
        return f"{x.name}.mean((2, 3), keepdim=True)"
    if form == "mean -1":
        return f"torch.mean({x.name}, dim=[-2, -1], keepdim=True)"
    if form == "avg_pool2d":
        return f"F.avg_pool2d({x.name}, {x.name}.size()[2:])"
    return f"{d.module(form)}({x.name})"


@word(3)
def pad(d: Draw, x: Value) -> str:
    left, right, top, bottom = (d.between(side, 0, 2) for side in ("left", "right", "top", "bottom"))
    reflects = d.pick("reflects", [False, True])
    d.need(left + right + top + bottom)
    d.need(not reflects or max(left, right) < x.shape[2] and max(top, bottom) < x.shape[1])
    form = d.pick("form", ["F", "module"])
    d.tag("pad", "pad.size", *(["pad.mode"] if reflects else []))
    sides = f"({left}, {right}, {top}, {bottom})"
    if form == "F":
        return f"F.pad({x.name}, {sides}" + (", mode='reflect')" if reflects else ")")
    kind = "ReflectionPad2d" if reflects else "ZeroPad2d"
    return f"{d.module(f'nn.{kind}({sides})')}({x.name})"


@word(3, weight=0.8)
def blur_pool(d: Draw, x: Value) -> str:
    size, stride = d.pick("size", [3, 2, 4, 5]), d.pick("stride", [2, 1, 3])
    d.need(min(x.shape[1:]) >= size)
    taps = {2: [1, 1], 3: [1, 2, 1], 4: [1, 3, 3, 1], 5: [1, 4, 6, 4, 1]}[size]
    name = d.name("filter")
    taps_text = f"torch.tensor({[float(tap) for tap in taps]}) / {float(sum(taps))}"
    d.written.init(f"self.register_buffer('{name}', ({taps_text})[:, None] * ({taps_text}))")
    d.tag("blur_pool", "blur_pool.kernel", "blur_pool.stride")
    filters = f"self.{name}.expand({x.shape[0]}, 1, {size}, {size})"
    return f"F.conv2d({x.name}, {filters}, stride={stride}, groups={x.shape[0]})"


@word(3)
def upsample(d: Draw, x: Value) -> str:
    _, height, width = x.shape
    mode = d.pick("mode", ["nearest", "bilinear"])
    aligned = mode == "bilinear" and d.pick("aligned", [False, True])
    by = d.pick("by", ["scale", "size", "scale pair"])
    d.need(height <= 12 and width <= 12)
    if by == "scale":
        told = f"scale_factor={d.pick('scale', [2, 3])}"
    elif by == "scale pair":
        told = f"scale_factor=({d.pick('scale h', [1, 2])}, {d.pick('scale w', [2, 3])})"
    else:
        told = f"size=({height + d.pick('more h', [0, 1, 3])}, {width + d.pick('more w', [1, 0, 5])})"
    told += f", mode='{mode}'" + (", align_corners=True" if aligned else "")
    d.tag(
        "upsample",
        "upsample.size" if by == "size" else "upsample.scale",
        *(["upsample.mode"] if mode == "bilinear" else []),
        *(["upsample.align_corners"] if aligned else []),
    )
    if d.pick("functional", [False, True]):
        return f"F.interpolate({x.name}, {told})"
    return f"{d.module(f'nn.Upsample({told})')}({x.name})"


@word(3, weight=0.6)
def channel_shuffle(d: Draw, x: Value) -> str:
    c, height, width = x.shape
    groups = d.pick("groups", [part for part in divisors(c) if 1 < part < c])
    d.tag("channel_shuffle", "channel_shuffle.groups")
    form = d.pick("form", ["module", "view", "reshape"])
    if form == "module":
        return f"{d.module(f'nn.ChannelShuffle({groups})')}({x.name})"
    if form == "view":
        return f"{x.name}.view(-1, {groups}, {c // groups}, {height}, {width}).transpose(1, 2).contiguous().view(-1, {c}, {height}, {width})"
    parts = d.line(f"{x.name}.reshape({x.name}.shape[0], {groups}, {c // groups}, {height}, {width}).permute(0, 2, 1, 3, 4)")
    return f"{parts}.reshape({x.name}.shape[0], {c}, {height}, {width})"


@word(3, weight=0.6)
def pixel_shuffle(d: Draw, x: Value) -> str:
    by = d.pick("by", [by for by in (2, 3) if x.shape[0] % (by * by) == 0])
    d.tag("pixel_shuffle", "pixel_shuffle.by")
    if d.pick("functional", [False, True]):
        return f"F.pixel_shuffle({x.name}, {by})"
    return f"{d.module(f'nn.PixelShuffle({by})')}({x.name})"


@word(3, weight=1.2)
def gate(d: Draw, x: Value) -> str:
    """Squeeze and excite."""
    c = x.shape[0]
    inner = d.pick("inner", [4, 2, 3])
    act, gate_ = d.pick("act", ["F.relu", "F.silu", "F.gelu"]), d.pick("gate", ["torch.sigmoid", "F.hardsigmoid"])
    d.tag("gate", "global_avg_pool")
    if d.pick("form", ["conv", "linear"]) == "conv":
        first, second = d.module(f"nn.Conv2d({c}, {inner}, 1)", "fc"), d.module(f"nn.Conv2d({inner}, {c}, 1)", "fc")
        s = d.line(f"F.adaptive_avg_pool2d({x.name}, 1)", "s")
        s = d.line(f"{gate_}({second}({act}({first}({s}))))", "s")
    else:
        first, second = d.module(f"nn.Linear({c}, {inner})", "fc"), d.module(f"nn.Linear({inner}, {c}, bias=False)", "fc")
        s = d.line(f"{x.name}.mean((2, 3))", "s")
        s = d.line(f"{gate_}({second}({act}({first}({s}))))", "s")
        s = d.line(d.pick("unsqueeze", [f"{s}.unsqueeze(-1).unsqueeze(-1)", f"{s}.view(-1, {c}, 1, 1)", f"{s}[:, :, None, None]"]), "s")
    return d.pick("order", [f"{x.name} * {s}", f"{s} * {x.name}", f"torch.mul({x.name}, {s})"])


@word(3, weight=1)
def layer_scale(d: Draw, x: Value) -> str:
    name = d.name("gamma")
    form = d.pick("form", ["maps", "flat", "last"])
    shape = {"maps": f"{x.shape[0]}, 1, 1", "flat": f"{x.shape[0]}", "last": f"{x.shape[-1]}"}[form]
    d.written.init(f"self.{name} = nn.Parameter(torch.ones({shape}) * {d.pick('start', [1.0, 0.1, 1e-6])})")
    d.tag("layer_scale", "layer_scale.start", *(["layer_scale.flat"] if form == "flat" else []))
    scale = f"self.{name}.view(1, -1, 1, 1)" if form == "flat" else f"self.{name}"
    return d.pick("order", [f"{x.name} * {scale}", f"{scale} * {x.name}"])


@word(3, weight=0.6)
def upsample_like(d: Draw, x: Value, y: Value) -> str:
    d.need(y.rank == 3 and x.name != y.name and max(y.shape[1:]) <= 20 and x.shape[1:] != y.shape[1:])
    mode = d.pick("mode", ["nearest", "bilinear"])
    d.tag("upsample", "upsample.size")
    return f"F.interpolate({x.name}, size={y.name}.shape[2:], mode='{mode}')"


@word(3, weight=0.5)
def depthwise_separable(d: Draw, x: Value) -> str:
    """A sequence of modules in an order of their names."""
    c, out = x.shape[0], d.pick("out", WIDTHS)
    act = d.pick("act", ["nn.ReLU6(inplace=True)", "nn.SiLU()", "nn.Hardswish(inplace=True)"])
    d.tag("sequential", "sequential.body", "conv.groups", "bn")
    first = f"nn.Conv2d({c}, {c}, 3, padding=1, groups={c}, bias=False), nn.BatchNorm2d({c}), {act}"
    return f"{d.module(f'nn.Sequential({first}, nn.Conv2d({c}, {out}, 1, bias=False), nn.BatchNorm2d({out}))', 'dw')}({x.name})"


@word(3, weight=0.5)
def two_results(d: Draw, x: Value) -> str:
    """A module that returns two values."""
    c, out = x.shape[0], d.pick("out", WIDTHS)
    name, (a, b) = f"Two{d.label}", (d.name("a"), d.name("b"))
    d.written.add_class(
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.left = nn.Conv2d({c}, {out}, 1)\n        self.right = nn.Conv2d({c}, {out}, 1)\n\n"
        "    def forward(self, x):\n        y = self.left(x)\n        return y, torch.tanh(self.right(x))\n"
    )
    d.tag("block", "block.returns", "sequential.returns")
    d.do(f"{a}, {b} = {d.module(f'{name}()', 'two')}({x.name})")
    return f"{a} * {b}"


@word(3, weight=0.4)
def shared_activation(d: Draw, x: Value) -> str:
    """One module without parameters that is called twice."""
    act = d.module(d.pick("act", ["nn.ReLU()", "nn.GELU()", "nn.Tanh()"]), "act")
    conv_ = d.module(f"nn.Conv2d({x.shape[0]}, {x.shape[0]}, 3, padding=1)", "conv")
    return f"{act}({conv_}({act}({x.name})))"
