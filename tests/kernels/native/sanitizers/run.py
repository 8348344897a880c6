"""Runs all native kernels under the sanitizers of the C compiler: addresses, undefined behaviour, threads.

Run: python tests/kernels/native/sanitizers/run.py [--only address undefined thread] [--last D] [--step N]

Each library is compiled with the sanitizer and linked with driver.c, which calls every kernel for 1 to D
dimensions; once for every set of vector instructions of this processor. It needs GCC or Clang on Linux.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3]))
import build_native  # noqa: E402

SANITIZERS = ("address", "undefined", "thread")
WRAPPED = ("malloc", "calloc", "aligned_alloc")
FLAGS = ("-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-ffp-contract=fast", "-fno-math-errno")
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def main() -> None:
    """Compile and run; the first finding ends it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SANITIZERS, default=list(SANITIZERS))
    parser.add_argument("--last", type=int, default=140, help="dimensions at most")
    parser.add_argument("--step", type=int, default=1, help="between numbers of dimensions")
    arguments = parser.parse_args()
    for sanitizer in arguments.only:
        for library in build_native.LIBRARIES:
            with tempfile.TemporaryDirectory() as folder:
                program = compiled(library, sanitizer, Path(folder))
                for instructions in build_native.INSTRUCTIONS:
                    print(f"{sanitizer}, {Path(library.path).name}, {instructions}", flush=True)
                    environment = {**os.environ, **OPTIONS, "NATMIX_NATIVE": instructions}
                    command = [program, str(arguments.last), str(arguments.step)]
                    subprocess.run(command, check=True, env=environment)  # type: ignore[arg-type]


def compiled(library: build_native.Library, sanitizer: str, folder: Path) -> Path:
    """The driver with this library."""
    flags = (*FLAGS, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    objects = build_native.compile_objects(library, folder, flags)
    include = [f"-I{path}" for path in (*library.folders, build_native.ffi_include())]
    wrap = [f"-Wl,--wrap={name}" for name in WRAPPED]
    program = folder / "driver"
    command = [
        *build_native.compiler(),
        *flags,
        *include,
        *wrap,
        HERE / "driver.c",
        *objects,
        "-lm",
        "-pthread",
    ]
    subprocess.run([*command, "-o", program], check=True)  # type: ignore[list-item]
    return program


if __name__ == "__main__":
    main()
