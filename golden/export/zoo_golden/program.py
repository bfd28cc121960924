"""The folder of a program that `zoo emit` wrote."""

import importlib.util
import json
import subprocess
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

    @property
    def golden(self) -> dict:
        """The golden of the recipe: manifest, variant, parts that its step trains."""
        return self.about["golden"] or {}

    def without_golden(self) -> str:
        """Why there are no values to compare with."""
        manifest = self.golden.get("manifest")
        return f"its golden {manifest} is not here (--golden FILE)" if manifest else "the recipe has no golden"

    def fitting(self, shapes: dict[str, list[int]], own: dict[str, list[int]], inputs: dict[str, list[int]], zoo: str, folder: Path) -> "Program":
        """The program for the sizes of the golden and the parts that its step trains: written again if those of the recipe are others."""
        changes = []
        if any(shapes.get(name, shape) != shape for name, shape in own.items()):
            changes += [f"model.inputs.{name}={_written(one, inputs[name])}" for name, one in self.inputs.items() if name in inputs]
        if (parts := self.golden.get("parts")) is not None:
            changes.append(f"train.parts={json.dumps(parts)}")
        if not changes:
            return self
        options = [part for change in [*self.about["set"], *changes] for part in ("--set", change)]
        options += ["--profile", self.about["profile"]] if self.about["profile"] else []
        options += ["--no-data"] if (self.folder / "rules.py").exists() else []
        out = folder / "program"
        command = [zoo, "emit", self.about["recipe"], "--to", self.about["framework"], "-o", out, *options, "--quiet"]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            raise ProofError("the program cannot be written for the conditions of the golden")
        return Program.read(out)

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


def _written(described: dict, shape: list[int]) -> str:
    text = json.dumps(shape)
    return text if described["kind"] == "image" else f"{{{described['kind']}: {text}}}"


def goldens(program: Program, given: str | None) -> Iterator[Path]:
    """Where the golden may be."""
    manifest = program.golden.get("manifest")
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
