"""What can become of a case."""

import re
from dataclasses import asdict, dataclass, field
from enum import Enum


class Kind(str, Enum):
    """In the order of the summary."""

    PASS = "pass"
    REFUSED = "refused"
    """The importer names module, file and line, and a reason."""
    ILL = "ill-conditioned"
    """A check fails, and PyTorch's own step moves as much if its input moves in the last place."""
    UNCLEAR = "unclear refusal"
    """A refusal without place or reason, or with another reason than the construct that was planted."""
    FALSE = "false alarm"
    """A check fails for a tensor whose exact value is zero: both sides have only rounding errors of it."""
    WRONG = "wrong"
    """Imported, and its values differ."""
    INVALID = "invalid recipe"
    CRASH = "crash"
    HANG = "hang"


FAULTS = (Kind.UNCLEAR, Kind.FALSE, Kind.WRONG, Kind.INVALID, Kind.CRASH, Kind.HANG)
"""Outcomes that are shrunk and written down."""
ACCEPTED = (Kind.PASS, Kind.ILL, Kind.FALSE, Kind.WRONG)
"""Outcomes of networks that were imported."""


@dataclass
class Outcome:
    kind: Kind
    stage: str = ""
    """What was done when it was decided."""
    reason: str = ""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of what was done."""
    error: float = 0.0

    def json(self) -> dict:
        return asdict(self) | {"kind": self.kind.value}


class Failed(Exception):
    """Ends a case."""

    def __init__(self, kind: Kind, stage: str, reason: str, error: float = 0.0):
        super().__init__(reason)
        self.outcome = Outcome(kind, stage, reason.strip(), error=error)


@dataclass(frozen=True)
class Planted:
    """What a case has that cannot be imported."""

    reason: str
    """Pattern of the reason that the refusal must give."""
    lines: range
    """Where it is in the source."""


_PLACE = re.compile(r"\S+\.py:\d+")
_TRACED = re.compile(r"needs the values|changed in place by")
"""Refusals that the tracer gives."""
_REFUSAL = re.compile(r"cannot import (`[^`]*`|the network): (?P<what>.+)\n --> (?P<at>\S+)\n  = `[^`]*`: (?P<nearest>.+)", re.DOTALL)


def of_refusal(message: str, planted: Planted | None) -> Outcome:
    """A refusal is honest if it says where and why; at a construct that was planted, it must give the true reason."""
    found = _REFUSAL.search(message)
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    if found is None and not (_TRACED.search(message) and _PLACE.search(message)):
        return Outcome(Kind.UNCLEAR, "import", text)
    if found is not None and not _PLACE.fullmatch(found["at"]):
        return Outcome(Kind.UNCLEAR, "import", f"no file and line: {text}")
    line = int(_PLACE.findall(message)[-1].rpartition(":")[2])
    if planted and line in planted.lines and not re.search(planted.reason, text):
        return Outcome(Kind.UNCLEAR, "import", f"planted `{planted.reason}`: {text}")
    return Outcome(Kind.REFUSED, "import", text)
