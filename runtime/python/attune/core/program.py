# SPDX-License-Identifier: Apache-2.0
"""The places of this installation's parts: library, program, headers, CMake and pkg-config files, folders of NVRTC.
main() is the wheel's command `attune`, which becomes the program that came with it. Used by __main__.py, ops/context.py
and tools/tune.py."""
import os
import pathlib
import sys

from .library import LIBRARY_PATH, PACKAGE

HERE = PACKAGE.resolve()
# NVIDIA's wheels for CUDA 13 and later have one folder for all libraries; those for CUDA 12 have one per library.
PLACES = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
PACKAGES = ("site-packages", "dist-packages")


def nvrtc_folders():
    """Returns absolute paths of the folders that exist in the interpreter's packages, CUDA 13 before 12."""
    packages = [
        pathlib.Path(entry) for entry in dict.fromkeys(sys.path)
        if entry.startswith("/") and entry.rstrip("/").endswith(PACKAGES)]
    folders = [folder / place for place in PLACES for folder in packages]
    return [str(folder) for folder in folders if folder.is_dir()]


def library_path():
    """Returns the path of the libattune.so that this process has loaded."""
    return pathlib.Path(LIBRARY_PATH).resolve()


def _roots():
    """Yields folders that may hold the parts: the package (a wheel), the prefix of `cmake --install`, the library's
    folder, a build tree."""
    loaded = library_path()
    yield HERE
    if HERE.parts[-4:] == ("share", "attune", "python", "attune"):
        yield HERE.parents[3]
    yield loaded.parent
    yield from list(loaded.parents)[1:3]


def _first(what, *places):
    for root in _roots():
        for place in places:
            for found in sorted(root.glob(place)):
                return found
    raise FileNotFoundError(f"{what} is not near {library_path()}; install the wheel, or use `cmake --install`")


def program():
    """Returns the path of the program `attune` that belongs to the loaded library."""
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
    """Returns the environment for the program: it looks for NVRTC where this interpreter has it, and for the CPU target
    next to the library."""
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
