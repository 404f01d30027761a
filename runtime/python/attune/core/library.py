# SPDX-License-Identifier: Apache-2.0
"""Finds libattune.so and the C module _attune (runtime/python/module/), and connects them. `module` has the functions
and structs of attune.h. Everything in the package that calls the library uses it."""
import importlib.machinery
import importlib.util
import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).parents[1]
MODULE_REVISION = 8  # kRevision of runtime/python/module/module.c
STATUS_NAMES = ("ok", "invalid_argument", "unsupported", "not_tuned", "would_compile", "compile", "driver", "store",
                "out_of_memory", "io", "internal")
RUNG_NAMES = ("pinned", "exact", "bucket", "nearest", "default_config", "reference")


class Error(RuntimeError):
    """A failed call. `status` is one of STATUS_NAMES."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else str(status)


def _loader_folders():
    """Yields folders in which the loader looks for libraries. The current folder is not among them."""
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"))
    for folder in map(pathlib.Path, ("/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64")):
        yield from (str(folder), *map(str, sorted(folder.glob("*-linux-gnu"))))


def _library_paths():
    """Yields paths of libattune.so: $ATTUNE_LIBRARY alone if it is set; a wheel; an installed tree
    (<prefix>/share/attune/python next to <prefix>/lib*); the loader's folders."""
    name = os.environ.get("ATTUNE_LIBRARY") or "libattune.so.2"
    if os.sep in name:
        yield name
        return
    if not os.environ.get("ATTUNE_LIBRARY"):
        here = PACKAGE.resolve()
        yield str(here / "libattune.so")
        if here.parts[-4:] == ("share", "attune", "python", "attune"):
            yield from sorted(str(path) for path in here.parents[3].glob("lib*/**/libattune.so"))
    yield from (os.path.join(folder, name) for folder in _loader_folders())


def module_name(suffixes, abiflags, implementation):
    """Returns the file name of the C module for an interpreter. Raises ImportError if it runs no such module.

    suffixes: importlib.machinery.EXTENSION_SUFFIXES. abiflags: sys.abiflags. implementation: sys.implementation.name.
    """
    if implementation == "cpython" and "t" in abiflags:  # free-threaded: a module for this version alone
        return f"_attune{suffixes[0]}"
    if implementation == "cpython" and ".abi3.so" in suffixes:
        return "_attune.abi3.so"
    raise ImportError(
        f"this Python is {implementation} without CPython's stable ABI; attune needs CPython 3.10 or later, since its "
        "C module _attune.abi3.so runs there alone")


class MissingModule(ImportError):
    """There is no C module beside a library. Another library may have one."""


def _load_module(library):
    """Returns the C module from the package, as in a wheel, or from the library's folder, as in build trees and
    installations."""
    file = module_name(importlib.machinery.EXTENSION_SUFFIXES, getattr(sys, "abiflags", ""), sys.implementation.name)
    paths = [PACKAGE.resolve() / file, pathlib.Path(library).absolute().parent / file]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise MissingModule(
            f"{file} is missing; must be in {paths[0].parent} or next to {library}. Install attune's wheel, or build "
            f"attune with the headers of Python {sys.version_info[0]}.{sys.version_info[1]} (Debian: python3-dev)")
    name = "attune._attune"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    found = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
    loader.exec_module(found)
    if found.REVISION != MODULE_REVISION:
        raise ImportError(
            f"{path} has revision {found.REVISION}, and this package needs {MODULE_REVISION}; both must be of the same "
            "version of attune")
    return found


def _load():
    """Returns the C module, connected to the first library that can be loaded, and the library's path."""
    tried, missing = [], None
    for path in _library_paths():
        try:
            if not os.path.isfile(path):  # the loader would wait for a FIFO's other end
                raise OSError(f"{path} {'is not a regular file' if os.path.exists(path) else 'does not exist'}")
            found = _load_module(path)
            found.connect(path, Error)
            return found, os.path.abspath(path)
        except MissingModule as error:
            missing = missing or str(error)
        except OSError as error:
            tried.append(str(error))
    if missing:
        raise ImportError(missing)
    raise ImportError("libattune.so was not found; set ATTUNE_LIBRARY to its path. Tried: " + "; ".join(tried))


module, LIBRARY_PATH = _load()


def version():
    """Returns the version of libattune.so in the form "MAJOR.MINOR.PATCH"."""
    return module.version()
