#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an #include that crosses the layers of the project.

Arrows point one way: tests, examples -> tuner -> runtime -> {cache, generator} -> generator/core with generator/score.
templates/ is data: it includes only itself, and host code reads only templates/shared/*.h of it. Run by
CTest; prints each offence as file:line.
"""
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


def main():
    found = [text for path in source_files() for text in offences(path)]
    print("\n".join(found) if found else "layers: no include crosses them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
