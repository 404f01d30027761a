#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an #include that crosses the layers of the project, and on an import that crosses the rooms of attune.

Arrows point one way: tests, examples -> tuner -> runtime -> {cache, generator} -> generator/core with generator/score.
templates/ is data: it includes only itself, and host code reads only templates/shared/*.h of it.

In the Python package arrows point from a room to itself and to lower rooms: core <- score <- ops <- torch <- adapters
<- tools <- attune/__init__.py. Imports inside functions count, and no module may import itself through others.

Run by CTest; prints each offence as file:line.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# layer -> prefixes of quoted includes it may use (besides its own)
MAY_INCLUDE = {
    "generator/core": ["generator/core/", "generator/score/", "templates/shared/"],
    "generator": ["generator/", "templates/shared/"],
    "cache": ["cache/", "generator/core/", "generator/score/", "templates/shared/"],
    "runtime": ["runtime/", "cache/", "generator/", "templates/shared/", "attune/"],
    "tuner": ["tuner/", "runtime/", "cache/", "generator/", "templates/shared/"],
    "examples": ["attune/", "my_kernels.h"],  # what `attune compile` writes beside an object
    "tests": ["tests/", "tuner/", "runtime/", "cache/", "generator/", "templates/shared/", "attune/", "my_kernels.h"],
    "templates": ["shared/", "cuda/", "cpu/", "generated/"],
}

# The store keeps images, so its records hold the generator's plain values; it calls nothing of the generator above
# core.
EXCEPTIONS = {("cache", "generator/compile/compiler.hpp"), ("cache", "generator/compile/image_info.hpp")}

PACKAGE = "runtime/python/attune"
# Rooms, the lowest first, with their folders and files. "": the package's own __init__.py.
ROOMS = {
    "core": ["core"], "score": ["score"], "ops": ["ops", "block_map"], "torch": ["torch"],
    "adapters": [
        "adapters", "diffusers", "distributed", "flash", "flash_mla", "flashinfer", "flex", "sdpa", "transformers"],
    "tools": ["tools", "__main__"], "attune": [""]}
ROOM_OF = {part: room for room, parts in ROOMS.items() for part in parts}


def layer_of(path):
    if path.startswith(("generator/core/", "generator/score/")):
        return "generator/core"
    return path.split("/", 1)[0]


def allowed(layer, path, quote, target):
    if quote == "<" and not target.startswith("attune/"):
        return layer != "templates"  # system and foreign headers: check_repo.py knows their homes
    if any(target.startswith(prefix) for prefix in MAY_INCLUDE[layer]):
        return True
    if path.startswith("tests/toy/templates/"):  # a template that the tests add
        return any(target.startswith(prefix) for prefix in ["toy/", *MAY_INCLUDE["templates"]])
    if (layer, target) in EXCEPTIONS:
        return True
    if path.startswith("tests/templates/") and any(target.startswith(prefix) for prefix in MAY_INCLUDE["templates"]):
        return True  # parts of kernels that are plain C++, compiled for the host
    # A name without a folder: a header beside the file.
    return "/" not in target and (ROOT / path).parent.joinpath(target).exists()


def offences(path):
    layer = layer_of(path)
    if layer not in MAY_INCLUDE:
        return
    for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match and not allowed(layer, path, *match.groups()):
            yield f"{path}:{number}: {layer} may not include {match.group(2)}"


def source_files():
    for folder in sorted({layer.split("/")[0] for layer in MAY_INCLUDE}):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES and "golden" not in file.parts:
                yield file.relative_to(ROOT).as_posix()


def module_of(path):
    """Returns the dotted name of a file of the package, relative to it."""
    return path.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", ".")


def base_of(node, package):
    """Returns the parts of the module that a node imports from, relative to attune; None if it imports another package.
    package: the parts of the importing module's package."""
    level, name = 0, None
    if isinstance(node, ast.ImportFrom):
        level, name = node.level, node.module or ""
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            name = node.args[0].value.lstrip(".")
            level = len(node.args[0].value) - len(name)
    if level:
        return [*package[:len(package) - level + 1], *filter(None, name.split("."))]
    parts = (name or "").split(".")
    return parts[1:] if parts[0] == "attune" else None


def imported(path, text, modules):
    """Yields (line, module of attune) for each import of a file of the package, also for imports inside functions."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".") for alias in node.names]
            yield from ((node.lineno, rest) for top, _, rest in names if top == "attune")
            continue
        base = base_of(node, package)
        for alias in getattr(node, "names", [None]) if base is not None else ():
            member = ".".join([*base, alias.name] if alias else base)
            yield node.lineno, member if member in modules else ".".join(base)


def circle(imports):
    """Returns modules that import each other in a circle, the first also last; [] if there is none."""
    left = {module: set(targets) - {module} for module, targets in imports.items()}
    while leaves := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in leaves:
            del left[module]
    walk = sorted(left)[:1]
    while walk and walk[-1] not in walk[:-1]:
        walk.append(min(left[walk[-1]] & left.keys()))
    return walk[walk.index(walk[-1]):] if walk else []


def python_offences(texts):
    """Yields the offences of the package's files. texts: by path relative to the package."""
    rooms, modules = list(ROOMS), {module_of(path) for path in texts}
    imports = {}
    for path, text in sorted(texts.items()):
        module = module_of(path)
        room = ROOM_OF.get(module.partition(".")[0])
        if room is None:
            yield f"{PACKAGE}/{path}:1: {module} has no room in check_layers.py"
            continue
        imports[module] = set()
        for line, target in sorted(set(imported(path, text, modules))):
            imports[module].add(target)
            above = ROOM_OF.get(target.partition(".")[0])
            if above is not None and rooms.index(above) > rooms.index(room):
                yield f"{PACKAGE}/{path}:{line}: {room} may not import {target or 'attune'} of {above}"
    if found := circle(imports):
        yield f"{PACKAGE}: a circle of imports: {' -> '.join(name or 'attune' for name in found)}"


def python_texts():
    folder = ROOT / PACKAGE
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*.py")}


def main():
    found = [*(text for path in source_files() for text in offences(path)), *python_offences(python_texts())]
    print("\n".join(found) if found else "layers: no include and no import crosses them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
