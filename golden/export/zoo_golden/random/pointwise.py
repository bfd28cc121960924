"""Words on values of any rank: activations, formulas, arithmetic with other values."""

from .program import Draw, Value
from .vocabulary import word

ANY = (1, 2, 3)

ACTIVATIONS = {
    "relu": ("F.relu(X)", "torch.relu(X)", "nn.ReLU()", "nn.ReLU(inplace=True)", "X.relu()"),
    "relu6": ("F.relu6(X)", "nn.ReLU6()", "F.hardtanh(X, 0.0, 6.0)"),
    "sigmoid": ("torch.sigmoid(X)", "nn.Sigmoid()", "X.sigmoid()", "F.sigmoid(X)"),
    "silu": ("F.silu(X)", "nn.SiLU()"),
    "hard_swish": ("F.hardswish(X)", "nn.Hardswish()"),
    "hard_sigmoid": ("F.hardsigmoid(X)", "nn.Hardsigmoid()"),
    "mish": ("F.mish(X)", "nn.Mish()"),
    "tanh": ("torch.tanh(X)", "nn.Tanh()", "X.tanh()", "F.tanh(X)"),
    "gelu": ("F.gelu(X)", "nn.GELU()", "F.gelu(X, approximate='tanh')", "nn.GELU(approximate='tanh')"),
    "leaky_relu": ("F.leaky_relu(X)", "nn.LeakyReLU(0.2)", "F.leaky_relu(X, 0.3)", "nn.LeakyReLU()"),
    "elu": ("F.elu(X)", "nn.ELU(alpha=0.5)", "F.elu(X, 1.7)", "nn.ELU()"),
}
"""Layers of recipes and how networks write them."""

FORMULAS = (
    "F.softplus(X)",
    "nn.Softplus()",
    "F.hardtanh(X)",
    "nn.Hardtanh(-2.0, 2.0)",
    "X.clamp(-1.5, 1.5)",
    "torch.clamp(X, min=-0.5)",
    "X.clip(max=0.7)",
    "X.abs()",
    "torch.erf(X)",
    "torch.sin(X)",
    "torch.cos(X)",
    "X.square()",
    "X ** 2",
    "X.pow(3) * 0.1",
    "torch.sqrt(X.abs() + 1.0)",
    "torch.rsqrt(X * X + 1.0)",
    "torch.log(X.abs() + 1.0)",
    "torch.exp(-X.abs())",
    "torch.expm1(X.clamp(max=2.0))",
    "X * torch.sigmoid(1.702 * X)",
    "0.5 * X * (1.0 + torch.erf(X / math.sqrt(2.0)))",
    "0.5 * X * (1 + torch.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X.pow(3))))",
    "X * torch.tanh(F.softplus(X))",
    "X * F.relu6(X + 3) / 6",
    "2 * X - 1",
    "1 - X",
    "X / 3",
    "-X",
    "X * 0.5",
    "0.3 + X",
    "X / (1 + X.abs())",
    "F.relu(X) ** 2",
    "X.floor() * 0.1 + X",
    "F.threshold(X, 0.1, 0.0)",
    "1.0 / (1.0 + X * X)",
    "(X - 1) / 2",
    "torch.neg(X) * 0.7",
)


@word(*ANY, weight=6)
def activation(d: Draw, x: Value) -> str:
    kind = d.pick("kind", sorted(ACTIVATIONS))
    form = d.pick(f"form of {kind}", ACTIVATIONS[kind])
    d.tag(kind)
    if "'tanh'" in form:
        d.tag("gelu.approximate")
    if kind == "leaky_relu" and "0." in form:
        d.tag("leaky_relu.slope")
    if kind == "elu" and "." in form.removeprefix("F.").removeprefix("nn."):
        d.tag("elu.alpha")
    return applied(d, form, x)


def applied(d: Draw, form: str, x: Value) -> str:
    return f"{d.module(form, 'act')}({x.name})" if form.startswith("nn.") else form.replace("X", x.name)


@word(*ANY, weight=3)
def formula(d: Draw, x: Value) -> str:
    form = d.pick("form", FORMULAS)
    d.tag("map")
    return applied(d, form, x)


@word(*ANY, weight=0.4)
def dropout(d: Draw, x: Value) -> str:
    rate = d.pick("rate", [0.1, 0.5, 0.25])
    form = d.pick("form", ["nn.Dropout", "F", "nn.Dropout2d"])
    d.need(form != "nn.Dropout2d")
    d.tag("dropout", "dropout.rate")
    if form == "F":
        return f"F.dropout({x.name}, {rate}, self.training)"
    return f"{d.module(f'{form}({rate})')}({x.name})"


@word(*ANY, weight=0.8)
def softmax(d: Draw, x: Value) -> str:
    dim = d.pick("dim", [-1, 1])
    d.need(dim == -1 and x.shape[-1] > 1 or x.shape[0] > 1)
    d.tag("softmax")
    form = d.pick("form", ["F.softmax(X, dim=D)", "X.softmax(D)", "nn.Softmax(dim=D)", "torch.softmax(X, D)"])
    return applied(d, form.replace("D", str(dim)), x)


@word(*ANY, weight=0.5)
def cumsum(d: Draw, x: Value) -> str:
    axis = d.pick("axis", [1, 2, 3])
    d.need(axis <= x.rank)
    dim = d.pick("dim", [axis, axis - x.rank - 1])
    d.tag("cumsum", *(["cumsum.axis"] if axis > 1 else []))
    return d.pick("form", [f"torch.cumsum({x.name}, {dim})", f"{x.name}.cumsum(dim={dim})"])


def broadcastable(a: Value, b: Value) -> bool:
    return a.rank == b.rank and all(m == n or n == 1 for m, n in zip(a.shape, b.shape))


@word(*ANY, weight=4)
def add(d: Draw, x: Value, y: Value) -> str:
    d.need(x.shape == y.shape and x.name != y.name)
    d.tag("add", "residual", "residual.main")
    return d.pick("form", [f"{x.name} + {y.name}", f"{y.name} + {x.name}", f"torch.add({x.name}, {y.name})", f"{x.name}.add({y.name})"])


@word(*ANY, weight=2)
def arithmetic(d: Draw, x: Value, y: Value) -> str:
    d.need(broadcastable(x, y) and x.name != y.name)
    form = d.pick(
        "form",
        [
            "X - Y",
            "X * Y",
            "torch.sub(X, Y)",
            "X.mul(Y)",
            "Y * X",
            "Y - X",
            "X + Y",
            "X / (1 + Y.abs())",
            "X * torch.sigmoid(Y)",
            "torch.tanh(X) * Y",
        ],
    )
    d.tag("subtract" if "-" in form or "sub" in form else "mul")
    return form.replace("X", x.name).replace("Y", y.name)


@word(*ANY, weight=2)
def concat(d: Draw, x: Value, y: Value) -> str:
    axis = d.pick("axis", [1, 2, 3])
    d.need(x.rank == y.rank and axis <= x.rank)
    d.need(all(m == n for place, (m, n) in enumerate(zip(x.shape, y.shape), 1) if place != axis))
    d.tag("concat", "concat.branches", *(["concat.axis"] if axis > 1 else []))
    dim = d.pick("dim", [axis, axis - x.rank - 1])
    return d.pick(
        "form",
        [f"torch.cat([{x.name}, {y.name}], {dim})", f"torch.cat(({y.name}, {x.name}), dim={dim})", f"torch.concat([{x.name}, {y.name}], dim={dim})"],
    )
