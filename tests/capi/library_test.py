#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libattune.so exports attune_* alone and needs nothing but the C and C++ runtimes and SQLite; stripped it is no larger
than what was promised. Usage: library_test.py LIBRARY HEADER [MAX_BYTES]"""
import pathlib
import re
import subprocess
import sys
import tempfile

ALLOWED_LIBRARIES = {
    "libsqlite3", "libstdc++", "libm", "libgcc_s", "libc", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def stripped_bytes(library):
    with tempfile.NamedTemporaryFile() as stripped:
        output("strip", "-o", stripped.name, library)
        return pathlib.Path(stripped.name).stat().st_size


def main():
    library = sys.argv[1]
    exported = {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    strangers = sorted(name for name in exported if not name.startswith("attune_"))
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", output("readelf", "-d", library)))
    unwanted = sorted(needed - ALLOWED_LIBRARIES)
    header = "".join(path.read_text() for path in sorted(pathlib.Path(sys.argv[2]).parent.glob("attune*.h")))
    declared = set(re.findall(r"ATTUNE_API [^;]*?\b(attune_\w+)\(", header))
    print(f"{len(exported)} exported, needs {', '.join(sorted(needed))}")
    for name in strangers:
        print(f"exported, but not of the interface: {name}")
    for name in unwanted:
        print(f"needs {name}")
    for name in sorted(declared ^ exported):
        print(f"declared and exported differ: {name}")
    size, limit = stripped_bytes(library), int(sys.argv[3]) if len(sys.argv) > 3 else None
    print(f"{size} bytes stripped; the limit is {limit}")
    if limit and size > limit:
        print(
            "it is too large: bloaty or `nm -SC --size-sort` say what grew; compile what is off the way of a call for "
            "size (-Os)"
        )
        return 1
    return 1 if strangers or unwanted or declared != exported else 0


if __name__ == "__main__":
    sys.exit(main())
