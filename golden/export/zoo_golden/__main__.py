"""The command: `port ...` ports a network, `prove ...` proves an emitted program; anything else makes a golden.

PyTorch is imported where it is needed: programs in MindSpore are proven without it.
"""

import sys


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
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    console()
