"""Words that move elements: views, permutations, slices."""

from .maps import divisors
from .pointwise import applied
from .program import Draw, Value
from .vocabulary import word

ANY = (1, 2, 3)


@word(2, 3, weight=1.2)
def permute(d: Draw, x: Value) -> str:
    if d.pick("transposes", [False, True]):
        a = d.between("a", 1, x.rank)
        b = d.between("b", 1, x.rank)
        d.need(a != b)
        return d.pick(
            "form",
            [f"{x.name}.transpose({a}, {b})", f"torch.transpose({x.name}, {a - x.rank - 1}, {b})", f"{x.name}.swapaxes({a}, {b}).contiguous()"],
        )
    orders = {2: ["2, 1"], 3: ["2, 3, 1", "3, 1, 2", "1, 3, 2", "3, 2, 1", "2, 1, 3"]}[x.rank]
    order = d.pick("order", orders)
    d.tag("permute", "permute.order")
    return d.pick("form", [f"{x.name}.permute(0, {order})", f"torch.permute({x.name}, (0, {order}))", f"{x.name}.permute(0, {order}).contiguous()"])


@word(1, 2, 3, weight=1.5)
def reshape(d: Draw, x: Value) -> str:
    count = 1
    for extent in x.shape:
        count *= extent
    rank = d.pick("rank", [2, 3, 1])
    shape, rest = [], count
    for place in range(rank - 1):
        part = d.pick(f"extent {place}", divisors(rest))
        shape.append(part)
        rest //= part
    shape.append(rest)
    d.need(tuple(shape) != x.shape and max(shape) <= 600)
    d.tag("reshape", "reshape.to")
    to = ", ".join(map(str, shape))
    return d.pick(
        "form",
        [
            f"{x.name}.reshape(-1, {to})",
            f"{x.name}.reshape({x.name}.shape[0], {to})",
            f"torch.reshape({x.name}, (-1, {to}))",
            f"{x.name}.reshape({x.name}.size(0), {', '.join(['-1', *map(str, shape[1:])])})",
        ],
    )


@word(2, 3, weight=1)
def flatten(d: Draw, x: Value) -> str:
    first = d.pick("first", [1, 2])
    d.need(first < x.rank)
    d.tag("flatten")
    form = d.pick("form", [f"torch.flatten(X, {first})", f"X.flatten({first})", f"nn.Flatten({first})"])
    return applied(d, form, x)


@word(3, weight=1.5)
def tokens(d: Draw, x: Value) -> str:
    c, height, width = x.shape
    d.tag("tokens")
    return d.pick(
        "form",
        [
            f"{x.name}.flatten(2).transpose(1, 2)",
            f"{x.name}.flatten(2).permute(0, 2, 1)",
            f"{x.name}.reshape(-1, {c}, {height * width}).transpose(1, 2)",
            f"{x.name}.permute(0, 2, 3, 1).flatten(1, 2)",
        ],
    )


@word(*ANY, weight=1.2)
def slice(d: Draw, x: Value) -> str:
    axis = d.between("axis", 1, x.rank)
    extent = x.shape[axis - 1]
    start = d.pick("from", [0, 1, 2])
    size = d.pick("size", list(range(1, extent + 1)))
    d.need(start + size <= extent and size < extent)
    key = ", ".join([":"] * axis + [f"{start or ''}:{start + size if start + size < extent else ''}"])
    d.tag("slice", "slice.from", "slice.size", "slice.axis")
    return f"{x.name}[{key}]"


@word(*ANY, weight=1.2)
def chunk(d: Draw, x: Value) -> str:
    axis = d.between("axis", 1, x.rank)
    extent = x.shape[axis - 1]
    parts = d.pick("parts", [2, 3, 4])
    d.need(extent % parts == 0)
    size = extent // parts
    names = [f"{d.name('part')}" for _ in range(parts)]
    d.tag("slice", "slice.size")
    form = d.pick(
        "form",
        [
            f"{x.name}.chunk({parts}, {axis})",
            f"torch.chunk({x.name}, {parts}, dim={axis})",
            f"{x.name}.split({size}, {axis})",
            f"torch.split({x.name}, [{', '.join([str(size)] * parts)}], dim={axis})",
            f"torch.tensor_split({x.name}, {parts}, dim={axis})",
        ],
    )
    d.do(f"{', '.join(names)} = {form}")
    use = d.pick("use", ["add", "gate", "cat", "last", "sub"])
    if use == "add":
        return " + ".join(names)
    if use == "gate":
        return f"{names[0]} * torch.sigmoid({names[1]})"
    if use == "cat":
        return f"torch.cat([{', '.join(reversed(names))}], {axis})"
    return names[-1] if use == "last" else f"{names[1]} - {names[0]}"


@word(*ANY, weight=0.8)
def roll(d: Draw, x: Value) -> str:
    axes = d.pick("axes", [(1,), (2,), (1, 2), (2, 3), (1, 2, 3)])
    d.need(max(axes) <= x.rank)
    by = tuple(d.pick(f"by {axis}", [1, -1, 2, -3]) for axis in axes)
    d.tag("roll", "roll.by")
    if len(axes) == 1:
        return d.pick("form", [f"torch.roll({x.name}, {by[0]}, {axes[0]})", f"{x.name}.roll({by[0]}, dims={axes[0]})"])
    return f"torch.roll({x.name}, {by}, {axes})"


@word(2, 3, weight=0.6)
def take(d: Draw, x: Value) -> str:
    axis = d.between("axis", 1, x.rank)
    index = d.pick("index", [0, 1, -1])
    d.need(-x.shape[axis - 1] <= index < x.shape[axis - 1])
    d.tag("take", "take.index", "take.axis")
    key = ", ".join([":"] * axis + [str(index)])
    return d.pick("form", [f"{x.name}[{key}]", f"{x.name}.select({axis}, {index})"])


@word(2, 3, weight=0.6)
def mean(d: Draw, x: Value) -> str:
    axis = d.between("axis", 1, x.rank)
    keeps = d.pick("keeps", [False, True])
    d.tag("map")
    return f"{x.name}.mean({axis}" + (", keepdim=True)" if keeps else ")")
