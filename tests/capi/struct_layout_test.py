#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module's structs have the fields of the public structs, at the offsets that a C program prints: a struct
without a field would work, and silently ignore it.

Usage: struct_layout_test.py INCLUDE_DIR CC (with PYTHONPATH and ATTUNE_LIBRARY as for the package)
"""
import pathlib
import subprocess
import sys
import tempfile

from attune.core.library import module
from header_structs import c_program, structs

OF_MODULE = {
    "attune_problem": module.Problem, "attune_tensor": module.Tensor, "attune_scale": module.Scale,
    "attune_operands": module.Operands, "attune_score_operands": module.ScoreOperands,
    "attune_block_map": module.BlockMapStruct, "attune_append_operands": module.AppendOperands,
    "attune_rotary": module.Rotary, "attune_cache_operands": module.CacheOperands,
    "attune_dropout_operands": module.DropoutOperands, "attune_gradient_operands": module.GradientOperands}
HIDDEN = ("size", "reserved")  # Python neither reads nor writes them


def main():
    include, cc = sys.argv[1:]
    fields = structs("".join(
        header.read_text() for header in sorted((pathlib.Path(include) / "attune").glob("attune_*types.h"))))
    fields = {struct: [name for name in names if name not in HIDDEN] for struct, names in fields.items()}
    parts = {name: fields.get(f"attune_problem_{name}", ()) for name in fields["attune_problem"]}
    fields = {struct: fields[struct] for struct in OF_MODULE}
    # Python shows the fields of a problem's parts as the problem's own.
    fields["attune_problem"] = [
        member for name, inner in parts.items() for member in ([f"{name}.{each}" for each in inner] or [name])]
    if sum(map(len, fields.values())) < 60:
        sys.exit(f"the header's structs were not understood: {fields}")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "layout"
        subprocess.run([cc, "-std=c11", f"-I{include}", "-x", "c", "-", "-o",
                        str(program)], input=c_program(fields), text=True, check=True)
        printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    in_c = {}
    for name, _, offset in (line.split() for line in printed if "." in line):
        in_c[f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"] = int(offset)
    in_module = {
        f"{struct}.{name}": offset
        for struct, of in OF_MODULE.items()
        for name, offset in of.offsets.items()}
    print(f"{len(in_c)} fields")
    different = sorted(set(in_c.items()) ^ set(in_module.items()))
    for name, offset in different:
        print(f"{'in C alone' if in_c.get(name) == offset else 'in Python alone'}: {name} at {offset}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
