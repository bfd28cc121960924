"""Words that contain other words: modules of their own, in branches or one after the other."""

from .program import Draw, Node, Program, Unfit, Value, Written, extend, generalised
from .vocabulary import WORDS, word, writers

ANY = (1, 2, 3)
TRIES = 40
"""Words that are tried for a node before the program ends there."""


def drawn(d: Draw, x: Value, count: int) -> Program:
    """A program of about so many nodes for a value, drawn or as it was recorded."""
    assert d.chance is not None
    written = Written({"x": x.shape}, [])
    program, values = Program(), [Value("x", x.shape)]
    for place in range(count):
        node = draw_node(d.chance, written, values, str(place), inside=True)
        if node is None:
            break
        program.nodes.append(node)
    if not program.nodes:
        raise Unfit("an empty body")
    return program


def draw_node(chance, written: Written, values: list[Value], label: str, inside: bool = False, last: int | None = None) -> Node | None:
    """Draws a node that fits, writes it and adds its value."""
    for _ in range(TRIES):
        latest = values[-1]
        first = len(values) - 1 if chance.random() < 0.85 else chance.randrange(len(values))
        names = [name for name, entry in WORDS.items() if values[first].rank in entry.ranks and not entry.refused]
        if inside:
            names = [name for name in names if name not in ("block", "stack")]
        name = chance.choices(names, [WORDS[name].weight for name in names])[0]
        entry = WORDS[name]
        inputs = [first]
        if entry.arity > 1:
            others = [place for place, value in enumerate(values) if place != first and value.name != latest.name or place != first]
            if not others:
                continue
            inputs.append(chance.choice(others))
        node = Node(name, inputs)
        try:
            values.append(extend(written, node, values, writers(), chance, label))
        except Unfit:
            continue
        return node
    return None


def body(d: Draw, x: Value) -> tuple[list[str], list[str], Value]:
    """Lines of `__init__` and of `forward`, and the result, of the node's body for a value. Its classes and tags become those of the
    enclosing source; a class of one name has one text."""
    assert d.node.body is not None
    written = Written({"x": x.shape}, [])
    values = [Value("x", x.shape)]
    for place, node in enumerate(d.node.body.nodes):
        values.append(extend(written, node, values, writers(), None, f"{d.label}_{place}"))
    for source in written.classes:
        same_name = [known for known in d.written.classes if known.partition("(")[0] == source.partition("(")[0]]
        if not same_name:
            d.written.add_class(source)
        d.need(same_name in ([], [source]))
    d.tag(*written.tags)
    return written.inits, written.lines, values[-1]


def class_text(name: str, inits: list[str], lines: list[str], result: str, numbers: bool) -> str:
    uses = any("n[" in line for line in lines)
    head = [f"class {name}(nn.Module):", f"    def __init__(self{', n' if numbers else ''}):", "        super().__init__()"]
    head += ["        self.n = n"] if uses else []
    lines = [line.replace("n[", "self.n[") for line in lines] if uses else lines
    return "\n".join(
        [
            *head,
            *(f"        {line}" for line in inits),
            "",
            "    def forward(self, x):",
            *(f"        {line}" for line in lines),
            f"        return {result}",
            "",
        ]
    )


@word(*ANY, weight=2)
def block(d: Draw, x: Value) -> str:
    """A module of its own, alone or as a branch of a sum or of a product."""
    if d.node.body is None:
        d.node.body = drawn(d, x, d.between("length", 1, 4))
    inits, lines, value = body(d, x)
    result, shape = value.name, value.shape
    d.tag("block", "block.use")
    name = f"Block{d.label}"
    join = d.pick("join", ["none", "residual", "gate", "concat"])
    d.need(join in ("none", "concat") or shape == x.shape)
    d.need(join != "concat" or shape[1:] == x.shape[1:])
    lines = list(lines)
    if join == "residual":
        result = f"{result} + x"
    elif join == "gate":
        result = f"x * torch.sigmoid({result})"
    elif join == "concat":
        result = f"torch.cat([x, {result}], 1)"
    d.written.add_class(class_text(name, inits, lines, result, False))
    return f"{d.module(f'{name}()', 'block')}({x.name})"


@word(*ANY, weight=2)
def stack(d: Draw, x: Value) -> str:
    """Modules of one class, one after the other, which differ in numbers."""
    if d.node.body is None:
        d.node.body = drawn(d, x, d.between("length", 1, 3))
    repeat = d.pick("repeat", [2, 3, 4])
    texts, at, residual = [], x, d.pick("residual", [False, True])
    for _ in range(repeat):
        inits, lines, value = body(d, at)
        residual = residual and value.shape == at.shape
        texts.append((inits, lines, value.name))
        at = Value("x", value.shape)
    merged, numbers = generalised([[*inits, "forward:", *lines] for inits, lines, _ in texts])
    cut = merged.index("forward:")
    result = texts[0][2] + (" + x" if residual else "")
    d.tag("stack", "stack.block", "stack.repeat")
    name, some = f"Block{d.label}", bool(numbers[0])
    d.written.add_class(class_text(name, merged[:cut], merged[cut + 1 :], result, some))
    calls = ", ".join(f"{name}(({', '.join(given)},))" if some else f"{name}()" for given in numbers)
    form = d.pick("form", ["Sequential", "ModuleList"])
    made = d.module(f"nn.Sequential({calls})" if form == "Sequential" else f"nn.ModuleList([{calls}])", "layers")
    if form == "Sequential":
        return f"{made}({x.name})"
    last = d.line(x.name, "z")
    d.do(f"for layer in {made}: {last} = layer({last})")
    return last
