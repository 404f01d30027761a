# SPDX-License-Identifier: Apache-2.0
"""Where the parts of this installation are: library, program, headers, CMake and pkg-config files. main() is the command `attune` of the
wheel, which becomes the program that came with it. Used by __main__.py and _tune.py."""
import os
import pathlib
import sys

from . import _library
from ._nvrtc import nvrtc_folders

HERE = pathlib.Path(__file__).resolve().parent


def library_path():
    """The libattune.so that this process has open."""
    path = pathlib.Path(_library.library._name)
    if path.is_absolute():
        return path.resolve()
    with open("/proc/self/maps") as maps:  # the loader found it by its name
        return next(pathlib.Path(line[line.index("/"):].rstrip("\n")) for line in maps if "/libattune.so" in line)


def _roots():
    """Folders below which the parts lie: the package (a wheel), the prefix of `cmake --install`, that of the library, a build tree."""
    library = library_path()
    yield HERE
    if HERE.parts[-4:] == ("share", "attune", "python", "attune"):
        yield HERE.parents[3]
    yield library.parent
    yield from list(library.parents)[1:3]


def _first(what, *places):
    for root in _roots():
        for place in places:
            for found in sorted(root.glob(place)):
                return found
    raise FileNotFoundError(f"{what} is not beside {library_path()}; must be the wheel and what `cmake --install` made")


def program():
    """The program `attune` that belongs to the open library."""
    return next((path for root in _roots() for path in (root / "attune", root / "bin" / "attune") if path.is_file()),
                None) or _first("the program attune", "bin/attune")


def include_folder():
    return _first("attune/attune.h", "include/attune/attune.h").parents[1]


def cmake_folder():
    return _first("attuneConfig.cmake", "cmake/attune/attuneConfig.cmake", "lib*/cmake/attune/attuneConfig.cmake",
                  "lib/*/cmake/attune/attuneConfig.cmake").parent


def pkgconfig_folder():
    return _first("attune.pc", "pkgconfig/attune.pc", "lib*/pkgconfig/attune.pc", "lib/*/pkgconfig/attune.pc").parent


def program_environment():
    """The environment for the program: it looks for NVRTC where this interpreter has it, and for the CPU target beside the library."""
    environment = dict(os.environ)
    given = environment.get("ATTUNE_NVRTC_FOLDERS")
    folders = ([given] if given else []) + nvrtc_folders()
    if folders:
        environment["ATTUNE_NVRTC_FOLDERS"] = ":".join(folders)
    return environment


def run(arguments):
    """Becomes the program; does not return."""
    path = str(program())
    sys.stdout.flush()
    os.execve(path, [path, *arguments], program_environment())


def main():
    try:
        run(sys.argv[1:])
    except OSError as error:
        sys.exit(f"attune: {error}")
