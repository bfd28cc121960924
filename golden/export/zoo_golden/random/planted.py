"""Words that recipes cannot say: what the importer must refuse, and the reason that it must give."""

from .program import Draw, Value
from .vocabulary import word

ANY = (1, 2, 3)


@word(*ANY, refused="training")
def training_branch(d: Draw, x: Value) -> str:
    return d.pick("form", [f"{x.name} if self.training else 2 * {x.name}", f"({x.name} * 0.5 if self.training else {x.name})"])


@word(*ANY, refused="batch")
def batch_number(d: Draw, x: Value) -> str:
    return d.pick("form", [f"{x.name} / {x.name}.shape[0]", f"{x.name} * (1.0 / {x.name}.size(0))", f"{x.name} + {x.name}.shape[0]"])


@word(*ANY, refused="type")
def type_conversion(d: Draw, x: Value) -> str:
    return d.pick("form", [f"{x.name}.half().float()", f"{x.name}.to(torch.bfloat16).to(torch.float32)"])


@word(*ANY, refused="sort")
def sorted_rows(d: Draw, x: Value) -> str:
    return f"torch.sort({x.name})[0]"


@word(3, refused="padding_mode|circular|pad")
def circular(d: Draw, x: Value) -> str:
    return f"F.pad({x.name}, (1, 1, 1, 1), mode='circular')"


@word(*ANY, refused="beta")
def softplus_beta(d: Draw, x: Value) -> str:
    return f"F.softplus({x.name}, beta=2.0)"


@word(3, refused="shift|weight")
def norm_without_shift(d: Draw, x: Value) -> str:
    return f"{d.module(f'nn.BatchNorm2d({x.shape[0]}, affine=False)')}({x.name})"


@word(3, refused="groups")
def grouped_transpose(d: Draw, x: Value) -> str:
    c = x.shape[0]
    d.need(c > 1 and x.shape[1] < 12)
    return f"{d.module(f'nn.ConvTranspose2d({c}, {c}, 2, groups={c})')}({x.name})"


@word(2, refused="einsum")
def einsum(d: Draw, x: Value) -> str:
    return f"torch.einsum('bte,bse->bts', {x.name}, {x.name})"
