# SPDX-License-Identifier: Apache-2.0
"""The structs of the C headers, and a C program that prints how they lie in memory. Used by struct_layout_test.py and
abi_test.py."""
import re


def structs(header):
    """{struct: names of its fields} of the header's text."""
    plain = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    bodies = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", plain, re.S)
    return {name: re.findall(r"(\w+)\s*(?:\[\d+\])?;", body) for name, body in bodies}


def c_program(fields):
    lines = []
    for struct, names in fields.items():
        lines.append(f'printf("{struct} %zu 0\\n", sizeof({struct}));')
        lines += [
            f'printf("{struct}.{name} %zu %zu\\n", sizeof((({struct}*)0)->{name}), offsetof({struct}, {name}));'
            for name in names]
    return "#include <attune/attune.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
