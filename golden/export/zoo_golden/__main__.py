"""The command: `port ...` ports a network, `prove ...` proves an emitted program; anything else makes a golden.

PyTorch is imported where it is needed: programs in MindSpore are proven without it.
"""

import sys

MISSING = 3
"""Exit code if a package is not installed: as of the command zoo, which takes it for data that are missing."""


def run(arguments: list[str]) -> int:
    """The exit code of a command line."""
    command, rest = arguments[:1], arguments[1:]
    if command == ["prove"]:
        from .program import framework

        if framework(rest) == "mindspore":
            from .prove_mindspore import main as prove
        else:
            from .prove import main as prove
        return prove(rest)
    if command == ["random"]:
        from .random.command import main as random

        return random(rest)
    if command == ["port"]:
        from .port import main as port

        return port(rest)
    from .goldens import main

    main(arguments)
    return 0


def console() -> None:
    """The command `zoo-golden`."""
    try:
        sys.exit(run(sys.argv[1:]))
    except ModuleNotFoundError as missing:
        # A wheel of zoo installs without them: the command itself needs none.
        if missing.name not in {"numpy", "safetensors", "torch", "torchvision"}:
            raise
        print(f"{missing.name} is not installed: pip install torch torchvision numpy safetensors", file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    console()
