"""python -m unittest tests.test_wheel (in golden/export): the wheel that .ci/wheel packs, with a stand-in for the command. Needs no torch."""

import base64
import csv
import hashlib
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock
from zipfile import ZipFile

SCRIPT = Path(__file__).parents[3] / ".ci/wheel"

COMMAND = b"\x7fELF\0GLIBC_2.4\0GLIBC_2.28\0GLIBC_2.2.5\0GLIBCXX_3.4.30\0text GLIBC_2.99 text\0"
"""Names of versions as in the table of strings of a program, and one in a text of it."""


def packer():
    """The script as a module."""
    loader = SourceFileLoader("wheel_script", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.packer = packer()
        binary = self.folder / "zoo"
        binary.write_bytes(COMMAND)
        with mock.patch.object(self.packer.sys, "platform", "linux"), mock.patch.object(self.packer.platform, "machine", lambda: "x86_64"):
            self.wheels = [self.packer.pack(binary, self.folder / name) for name in ("one", "two")]

    def test_the_name_says_which_systems_have_what_the_binary_needs(self):
        self.assertTrue(self.wheels[0].name.endswith("-py3-none-manylinux_2_28_x86_64.whl"), self.wheels[0].name)

    def test_the_same_binary_gives_the_same_wheel(self):
        self.assertEqual(*(wheel.read_bytes() for wheel in self.wheels))

    def test_the_record_lists_every_file_with_its_digest(self):
        with ZipFile(self.wheels[0]) as archive:
            names = set(archive.namelist())
            (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
            rows = {path: (digest, size) for path, digest, size in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(rows.keys(), names)
            self.assertEqual(rows.pop(record), ("", ""))
            for name, (digest, size) in rows.items():
                content = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, size), (f"sha256={expected}", str(len(content))), name)

    def test_it_holds_the_command_and_the_whole_package(self):
        package = SCRIPT.parents[1] / "golden/export/zoo_golden"
        files = {f"zoo_golden/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.suffix == ".py" or path.name == "py.typed"}
        with ZipFile(self.wheels[0]) as archive:
            self.assertEqual({name for name in archive.namelist() if name.startswith("zoo_golden/")}, files)
            (command,) = (entry for entry in archive.infolist() if entry.filename.endswith(".data/scripts/zoo"))
            self.assertEqual((archive.read(command), command.external_attr >> 16), (COMMAND, 0o100755))

    def test_only_extras_need_other_packages(self):
        with ZipFile(self.wheels[0]) as archive:
            (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            head = archive.read(metadata).decode().split("\n\n", 1)[0].splitlines()
        required = [line for line in head if line.startswith("Requires-Dist: ")]
        self.assertIn('Requires-Dist: torch>=2.4; extra == "torch"', required)
        self.assertTrue(all("; extra == " in line for line in required), required)


if __name__ == "__main__":
    unittest.main()
