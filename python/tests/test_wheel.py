# SPDX-License-Identifier: Apache-2.0
"""What `pip wheel .` made, in PYMOTET_WHEELS, and what installing it gave this Python."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

WHEELS = Path(os.environ.get("PYMOTET_WHEELS") or "/nowhere")
TREE = Path(__file__).resolve().parents[2]
GLIBC = (2, 34)
# Of what is made while building: none of it may be written down in a file.
PLACES = re.compile(
    rb"/tmp/(?:tmp|pip-)[^\0 \n]*|" + re.escape(str(TREE).encode()) + rb"/[^\0 \n]*"
)
ALL_REDUCE = """
import array, motet
got = motet.run(lambda comm: comm.all_reduce(array.array("f", [comm.rank]))[0], 4)
assert got == [6.0] * 4, got
print(motet.__file__)
"""

# A file fits one row, and a row has a file; `+` says that there are several.
CONTENTS = {
    r"motet/lib/(libmotet\.so\.0|libnccl\.so\.2|librccl\.so\.1)": 3,
    r"motet/bin/motet": 1,
    r"motet/include/(motet|nccl|rccl|rccl/rccl|motet/nccl_api)\.h": 5,
    r"motet/share/man/man1/motet(-[a-z]+)?\.1": "+",
    # The probe looks for libraries with the one, and gates and compiles kernels with the other.
    r"motet/share/motet/find/find[a-z_]*\.[ch]": "+",
    r"motet/share/motet/kernels/([a-z]+/)*[a-z]+\.(c|h|def|sh|py)": "+",
    r"motet/share/motet/kernels/probe-gate-gfx[0-9a-f]+\.co": "*",
    r"motet/[a-z_]+\.py": "+",
    r"motet/py\.typed": 1,
    r"motet/torch/[a-z_]+\.py": "+",
    r"motet/torch/(backend|bridge)\.cpp": 2,
    r"motet/torch/[a-z_]+\.hpp": "*",
    r"motet-[0-9.]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt)": 4,
    r"motet-[0-9.]+\.dist-info/licenses/LICENSE": 1,
}
# Of the archive of sources: what must be there to build, and what must not be there.
SOURCES = ["pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO", "include/nccl.h",
           "python/build/motet_build.py", "python/motet/torch/bridge.cpp", "cmake/glibc.h",
           "man/motet.1", "src/CMakeLists.txt", "tools/CMakeLists.txt"]  # fmt: skip
STRANGE = re.compile(r"(build|dist|\.git|\.ci|_carry)/|.*(/__pycache__/|\.o$|\.pyc$)")


def run(*command, **settings):
    """A command; what it printed on both of its outputs."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        **settings,
    )
    assert done.returncode == 0, f"{command} exits with {done.returncode}:\n{done.stdout}"
    return done.stdout


def is_elf(data):
    """Of this machine: the code objects for GPUs are ELF files, too."""
    return data[:4] == b"\x7fELF" and data[18:20] != b"\xe0\x00"


class Case(unittest.TestCase):
    """A folder for the time of a test, and the wheel."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    @staticmethod
    def wheel():
        (path,) = WHEELS.glob("motet-*.whl")
        return path


class Wheel(Case):
    def test_it_holds_what_the_table_says(self):
        with zipfile.ZipFile(self.wheel()) as archive:
            names = archive.namelist()
        fits = {row: [n for n in names if re.fullmatch(row, n)] for row in CONTENTS}
        self.assertEqual(sorted(set(names).difference(*fits.values())), [], "no row has these")
        for row, wanted in CONTENTS.items():
            if wanted != "*":
                good = len(fits[row]) > 1 if wanted == "+" else len(fits[row]) == wanted
                self.assertTrue(good, f"{row}: wanted {wanted}, is {fits[row]}")

    def test_the_tag_is_true(self):
        """The tag of glibc 2.34 where no file needs a newer one, else that of this system."""
        newest, needed = self.needs()
        self.assertLessEqual(
            needed,
            {"libc.so.6", "libm.so.6", f"ld-linux-{platform.machine().replace('_', '-')}.so.2"},
        )
        name = self.wheel().name
        version = importlib.metadata.version("motet")
        portable = f"motet-{version}-py3-none-manylinux_2_34_{platform.machine()}.whl"
        if newest[0] <= GLIBC:
            self.assertEqual(name, portable)
        else:
            print(f"not tagged as portable: {newest[1]} needs glibc {newest[0]}")
            self.assertNotIn("manylinux", name)
        with zipfile.ZipFile(self.wheel()) as archive:
            words = archive.read(f"motet-{version}.dist-info/WHEEL").decode()
        self.assertIn(f"Tag: {'-'.join(name[:-4].split('-')[2:])}\n", words)

    def needs(self):
        """The newest glibc that is needed, with the file, and the libraries."""
        newest, needed = ((0,), ""), set()
        for path, _ in self.files():
            text = run("readelf", "--wide", "--dynamic", "--version-info", path)
            needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
            for word in re.findall(r"Name: GLIBC_(\S+)", text):
                numbers = tuple(map(int, word.split("."))) if word[0].isdigit() else (99,)
                newest = max(newest, (numbers, f"{path.name}, {word}"))
        self.assertGreater(newest[0], (2,), "no version of glibc was found in any file")
        return newest, needed

    def files(self):
        """The ELF files of the wheel, unpacked, with their bytes."""
        with zipfile.ZipFile(self.wheel()) as archive:
            archive.extractall(self.folder)
        found = [(p, p.read_bytes()) for p in sorted(self.folder.rglob("*")) if p.is_file()]
        return [(path, data) for path, data in found if is_elf(data)]

    def test_its_libraries_and_command_can_be_moved(self):
        files = self.files()
        self.assertEqual(len(files), 4)
        for path, _ in files:
            for line in run("readelf", "--wide", "--dynamic", path).splitlines():
                if "RPATH" in line or "RUNPATH" in line:
                    self.assertRegex(line, r"\[\$ORIGIN[^:]*\]", path)
            text = run("ldd", "-r", path)
            self.assertNotRegex(text, "not found|undefined symbol", path)

    def test_no_file_says_where_it_was_built(self):
        with zipfile.ZipFile(self.wheel()) as archive:
            said = {n: set(PLACES.findall(archive.read(n))) for n in archive.namelist()}
        self.assertEqual({n: s for n, s in said.items() if s}, {})


class Sources(Case):
    def test_the_archive_of_sources_is_whole_and_clean(self):
        found = sorted(WHEELS.glob("motet-*.tar.gz"))
        if not found:
            self.skipTest("no archive of sources was made beside the wheel")
        with tarfile.open(found[0]) as archive:
            names = [n.split("/", 1)[1] for n in archive.getnames() if "/" in n]
        self.assertEqual([n for n in SOURCES if n not in names], [])
        self.assertEqual([n for n in names if STRANGE.match(n)], [])


class Installed(Case):
    """From another folder, by this Python, which is that of a virtual environment."""

    def setUp(self):
        super().setUp()
        names = ("PYTHONPATH", "PYMOTET_LIBRARY", "LD_LIBRARY_PATH")
        clean = {k: v for k, v in os.environ.items() if k not in names}
        clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
        self.settings = {"cwd": self.folder, "env": clean}

    def test_four_ranks_reduce(self):
        printed = run(sys.executable, "-c", ALL_REDUCE, **self.settings)
        self.assertTrue(Path(printed.strip()).is_relative_to(sys.prefix), printed)

    def test_the_command_is_on_the_path(self):
        command = shutil.which("motet", path=self.settings["env"]["PATH"])
        self.assertEqual(Path(command).parent, Path(sys.executable).parent)
        self.assertIn("motet doctor", run("motet", "doctor", "--help", **self.settings))
        self.assertIn(importlib.metadata.version("motet"), run("motet", "version", **self.settings))
        run("motet", "smoke", "-n", "2", **self.settings)

    def test_the_version_is_the_library_s(self):
        printed = run(
            sys.executable, "-c", "import motet; print(motet.__version__)", **self.settings
        )
        self.assertEqual(printed.strip(), importlib.metadata.version("motet"))

    def test_it_works_where_it_is_put(self):
        first, second = self.folder / "first", self.folder / "a second place"
        words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        words += ["--disable-pip-version-check", "--target", first, self.wheel()]
        run(sys.executable, *words, **self.settings)
        first.rename(second)
        self.settings["env"]["PYTHONPATH"] = str(second)
        printed = run(sys.executable, "-c", ALL_REDUCE, **self.settings)
        self.assertTrue(Path(printed.strip()).is_relative_to(second), printed)
        run(second / "motet" / "bin" / "motet", "smoke", "-n", "2", **self.settings)


if __name__ == "__main__":
    if not list(WHEELS.glob("motet-*.whl")):
        print("SKIPPED: PYMOTET_WHEELS names no folder with a wheel")
        sys.exit(77)
    unittest.main()
