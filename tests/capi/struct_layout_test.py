#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's mirror of the public structs has their fields, sizes and offsets, as a C program prints them that is made of
the header: structs have versions, so a mirror that lacks a field would work, and silently ignore it.

Usage: struct_layout_test.py INCLUDE_DIR CC (with PYTHONPATH and ATTUNE_LIBRARY as for the module)
"""
import pathlib
import subprocess
import sys
import tempfile

from attune.core import library as _library
from header_structs import c_program, structs

MIRRORS = {
    "attune_context_options": _library.ContextOptions, "attune_memory_bundle": _library.MemoryBundle,
    "attune_problem": _library.Problem, "attune_tensor": _library.Tensor, "attune_scale": _library.Scale,
    "attune_operands": _library.Operands, "attune_plan_info": _library.PlanInfo, "attune_capture": _library.Capture,
    "attune_scalar": _library.Scalar, "attune_score_operands": _library.ScoreOperands,
    "attune_program_desc": _library.ProgramDesc, "attune_program_capture": _library.ProgramCapture,
    "attune_program_scalar": _library.ProgramScalar, "attune_block_map": _library.BlockMapStruct,
    "attune_append_operands": _library.AppendOperands, "attune_rotary": _library.Rotary,
    "attune_cache_operands": _library.CacheOperands, "attune_dropout_operands": _library.DropoutOperands,
    "attune_gradient_operands": _library.GradientOperands,
    **{f"attune_problem_{name}": kind
       for name, kind in _library.Problem._fields_ if name in _library.Problem._anonymous_}}


def mirrored():
    """Yields the lines of the C program, for the mirror."""
    for struct, mirror in MIRRORS.items():
        yield f"{struct} {_library.ctypes.sizeof(mirror)} 0"
        for name, _ in mirror._fields_:
            field = getattr(mirror, name)
            yield f"{struct}.{name} {field.size} {field.offset}"


def main():
    include, cc = sys.argv[1:]
    fields = structs("".join(
        header.read_text() for header in sorted((pathlib.Path(include) / "attune").glob("attune_*types.h"))))
    if sum(map(len, fields.values())) < 60:
        sys.exit(f"the header's structs were not understood: {fields}")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "layout"
        subprocess.run([cc, "-std=c11", f"-I{include}", "-x", "c", "-", "-o",
                        str(program)], input=c_program(fields), text=True, check=True)
        in_c = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    in_python = list(mirrored())
    # "reserved" of a part hides that of attune_problem in Python.
    different = sorted(line for line in set(in_c) ^ set(in_python) if ".reserved " not in line)
    print(f"{len(in_c)} lines of name, size, offset")
    for line in different:
        print(f"{'in C alone' if line in in_c else 'in Python alone'}: {line}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
