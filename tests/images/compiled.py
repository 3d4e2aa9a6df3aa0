# SPDX-License-Identifier: Apache-2.0
"""Files that clang 19 and lld make, and the code objects in them, which are made twice:
alone, for llvm-readelf to count in, and within the file."""

import os
import shutil
import subprocess

from good import Fixture

# Every way to a declaration that amd-hosts §6.4 lists, and what has none.
SOURCE = r"""
#define KERNEL extern "C" __attribute__((global))
#define DEVICE extern "C" __attribute__((device, noinline))
#ifdef HOST
struct dim3 { unsigned x, y, z; };
typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
extern "C" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, unsigned long, hipStream_t);
#endif
#ifdef REAL
#define plain plain_too
#elif defined(ELSEWHERE)
#define plain plain_elsewhere
#endif
KERNEL void plain(int *p) { *p = 3; }
#ifdef CALLS
typedef int f_t(int);
DEVICE int here(int n) { return n * n + 1; }
DEVICE int there(int n) { return n * n + 2; }
__attribute__((device)) f_t *const volatile table[] = { here, there };
KERNEL void known(int *p) { *p = here(*p); }
KERNEL void pointer(int *p, f_t *f) { *p = f(*p); }
KERNEL void by_table(int *p) { *p = table[*p](*p); }
KERNEL void traps(int *p) { if (*p) __builtin_trap(); }
#endif
#ifdef EXTERNAL
extern "C" __attribute__((device, visibility("default"))) int elsewhere(int n);
KERNEL void external(int *p) { *p = elsewhere(*p); }
#endif
#ifdef ELSEWHERE
DEVICE int elsewhere(int n) { return n + 1; }
#endif
#ifdef REAL
DEVICE int __ockl_hostcall_internal(int n)
{
    return *((int *__attribute__((address_space(4))) *)__builtin_amdgcn_implicitarg_ptr())[10] + n;
}
KERNEL void real(int *p) { *p = __ockl_hostcall_internal(*p); }
#endif
"""
CLANG, LINK, LLC = "clang-19", "ld.lld-19", "llc-19"
STRIP = "llvm-strip-19"
CUID = "-cuid="  # names the translation unit; else it is a hash of all options
TARGETS = ("gfx906", "gfx90a:xnack-", "gfx90a:xnack+", "gfx1030", "gfx1100", "gfx1201")


def missing():
    """What compiled() needs and is not there, None if all is."""
    for name in (CLANG, LINK, LLC, STRIP, "cc", "ar"):
        if shutil.which(name) is None:
            return name
    return None


class Compiler:
    """Makes files in @p folder; the commands' own words are in the error of one that fails."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.source = os.path.join(folder, "k.hip")
        with open(self.source, "w", encoding="ascii") as out:
            out.write(SOURCE)

    def path(self, name):
        return os.path.join(self.folder, name)

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def call(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

    def device(self, name, *options, targets=("gfx1100",), bare=True):
        """One object, or a bundle of the targets'."""
        self.call(
            CLANG,
            "-x",
            "hip",
            "--cuda-device-only",
            "-nogpulib",
            "-nogpuinc",
            "-Wno-everything",
            *(["--no-gpu-bundle-output"] if bare else []),
            *(f"--offload-arch={t}" for t in targets),
            *options,
            self.source,
            "-o",
            name,
        )
        return self.bytes_of(name)

    def unit(self, name, *options, targets=TARGETS):
        """An object file for the host with code for the targets in it."""
        self.call(
            CLANG,
            "-x",
            "hip",
            "-c",
            "-fPIC",
            "-DHOST",
            "-nogpulib",
            "-nogpuinc",
            "-Wno-everything",
            "-O3",
            *(f"--offload-arch={t}" for t in targets),
            *options,
            self.source,
            "-o",
            name,
        )

    def library(self, name, *units):
        self.call("cc", "-shared", "-o", name, *units)
        return self.bytes_of(name)


def compiled(folder):
    """Fixtures whose files lie in @p folder already."""
    made = Compiler(folder)
    yield from objects(made)
    yield from carriers(made)


def objects(made):
    """The rows of amd-hosts §6.4, the same without symbols, and every version clang writes."""
    for name, options in (
        ("plain", ["-O3"]),
        ("plain_O0", ["-O0"]),
        ("calls", ["-O3", "-DCALLS"]),
        ("calls_O0", ["-O0", "-DCALLS"]),
        ("real", ["-O3", "-DREAL"]),
        ("both", ["-O3", "-DREAL", "-DCALLS"]),
        ("v4", ["-O3", "-DCALLS", "-mcode-object-version=4"]),
        ("v6", ["-O3", "-DCALLS", "-mcode-object-version=6"]),
    ):
        blob = made.device(name + ".co", *options)
        yield Fixture(name + ".co", blob, [blob], "code object")
    for name in ("calls", "real", "plain"):
        made.call(STRIP, name + ".co", "-o", name + "_stripped.co")
        blob = made.bytes_of(name + "_stripped.co")
        yield Fixture(name + "_stripped.co", blob, [blob], "code object")
    # Objects linked as they are: what was unknown to the compiler may be in the file.
    for unit in ("external", "elsewhere"):
        made.device(unit + ".ll", "-O3", "-D" + unit.upper(), "-S", "-emit-llvm")
        made.call(
            LLC,
            "-mtriple=amdgcn-amd-amdhsa",
            "-mcpu=gfx1100",
            "-filetype=obj",
            unit + ".ll",
            "-o",
            unit + ".o",
        )
    for name, units in (
        ("external.co", ["external.o"]),
        ("linked.co", ["external.o", "elsewhere.o"]),
    ):
        made.call(LINK, "-shared", *units, "-o", name)
        yield Fixture(name, made.bytes_of(name), [made.bytes_of(name)], "code object")
    blob = made.device(
        "generic.co", "-O3", "-DCALLS", "-mcode-object-version=6", targets=("gfx11-generic",)
    )
    yield Fixture("generic.co", blob, [blob], "code object")


def carriers(made):
    """What holds the objects of several targets. Each target's is made alone, too: the same
    source and options give the same bytes."""
    alone = {}
    for define in ("-DCALLS", "-DREAL"):
        for target in TARGETS:
            alone[define, target] = made.device(
                "alone.co", "-O3", define, CUID + define[2:], targets=(target,)
            )
    calls, real = (
        [alone[define, target] for target in TARGETS] for define in ("-DCALLS", "-DREAL")
    )
    for name, options in (("bundle", []), ("compressed", ["--offload-compress"])):
        blob = made.device(
            name + ".hipfb", "-O3", "-DCALLS", CUID + "CALLS", *options, targets=TARGETS, bare=False
        )
        yield Fixture(name + ".hipfb", blob, calls, "ccob" if options else "bundle")
    made.unit("calls.o", "-DCALLS", CUID + "CALLS")
    made.unit("real.o", "-DREAL", CUID + "REAL", "--offload-compress")
    yield Fixture("calls.o", made.bytes_of("calls.o"), calls, "elf")
    for name, units in (("one.so", ["calls.o"]), ("two.so", ["calls.o", "real.o"])):
        yield Fixture(
            name, made.library(name, *units), calls + (real if len(units) == 2 else []), "elf"
        )
    made.call(STRIP, "two.so", "-o", "stripped.so")
    yield Fixture("stripped.so", made.bytes_of("stripped.so"), calls + real, "elf")
    made.call(STRIP, "--strip-sections", "two.so", "-o", "no_sections.so")
    yield Fixture("no_sections.so", made.bytes_of("no_sections.so"), calls + real, "elf")
    made.call("ar", "rcs", "static.a", "calls.o", "real.o")
    yield Fixture("static.a", made.bytes_of("static.a"), calls + real, "archive")
