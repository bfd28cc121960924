"""The folder of a program that `zoo emit` wrote."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

PASSED, DIFFERS, WRONG, MISSING = 0, 1, 2, 3


class ProofError(Exception):
    """Why nothing can be proven."""


@dataclass
class Program:
    """The folder of an emitted program."""

    folder: Path
    about: dict

    @classmethod
    def read(cls, folder: Path) -> "Program":
        try:
            about = json.loads((folder / "emitted.json").read_text())
        except (OSError, ValueError) as error:
            raise ProofError(f"{folder} is no emitted program: {error}") from error
        return cls(folder, about)

    @property
    def inputs(self) -> dict[str, dict]:
        """The arguments of the network, in their order: kind, type and shape without the batch."""
        return {described["name"]: described for described in self.about["inputs"]}

    def module(self, name: str) -> ModuleType:
        """One of its Python files; another program's of the same name is forgotten."""
        path = self.folder / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.exists():
            raise ProofError(f"{path} is not there")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ProofError(f"{path} fails: {type(error).__name__}: {error}") from error
        return module

    def network(self):
        """The network, a module of its framework."""
        kind = getattr(self.module("model"), self.about["class"], None)
        if kind is None:
            raise ProofError(f"{self.folder / 'model.py'} has no class {self.about['class']}")
        return kind()


def goldens(program: Program, given: str | None) -> Iterator[Path]:
    """Where the golden may be."""
    manifest = program.about["golden"]
    if given is not None:
        yield Path(given)
    elif manifest is not None:
        folders = [Path.cwd(), *Path.cwd().parents, program.folder.resolve(), *program.folder.resolve().parents]
        yield from (folder / "golden" / manifest for folder in folders)


def framework(arguments: list[str]) -> str | None:
    """The framework of the program that a command line names."""
    folders = (Path(argument) for argument in arguments if (Path(argument) / "emitted.json").exists())
    program = next(folders, None)
    return None if program is None else Program.read(program).about.get("framework")
