#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the C ABI against tests/capi/abi.txt, the list of what programs that were built before rely on: functions with
their parameters, constants with their values, structs with their sizes, and fields with sizes and offsets. Whatever
stands there must stay as it is while attune_abi_version() does. What is new is added by ATTUNE_ACCEPT_ABI=1; a struct
may grow only when it carries its size. In a clone with tags the list of the last one (v0.2, ...) counts too, so that no
edit of abi.txt takes back what was released.

Usage: abi_test.py LIBRARY INCLUDE_DIR CC; abi_test.py --self-test
"""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from header_structs import c_program, structs

LIST = pathlib.Path(__file__).with_name("abi.txt")


def headers(include):
    text = "".join(path.read_text() for path in sorted((include / "attune").glob("attune*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def functions(text):
    """Returns {"function NAME": its declaration on one line}."""
    found = {}
    for declaration in re.findall(r"^ATTUNE_API ([^;{]*)[;{]", text, re.M):
        line = " ".join(declaration.split())
        found[f"function {re.search(r'(attune_[a-z0-9_]+)[(]', line).group(1)}"] = line
    return found


def printed(text, include, cc):
    """Returns {"constant NAME": value, "struct NAME": size, "field STRUCT.NAME": size and offset}."""
    bodies = re.findall(r"typedef enum \w* ?\{(.*?)\}", text, re.S)
    constants = sorted({name for body in bodies for name in re.findall(r"\bATTUNE_\w+", body)})
    program = c_program(structs(text))
    prints = "\n".join(f'printf("constant {name}=%d\\n", (int){name});' for name in constants)
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder) / "abi"
        subprocess.run([cc, "-std=c11", f"-I{include}", "-x", "c", "-", "-o", str(binary)], check=True, text=True,
                       input=program.replace("return 0;", prints + "\nreturn 0;"))
        lines = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for line in lines:
        if line.startswith("constant "):
            name, value = line.split("=")
            found[name] = value
        else:
            name, size, offset = line.split(" ")
            found[f"{'field' if '.' in name else 'struct'} {name}"] = f"{size} at {offset}" if "." in name else size
    return found


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def may_grow(struct, now):
    """True if the struct carries its size, or is filled by a function that receives the size."""
    return f"field {struct}.size" in now or f"function {struct}_init_sized" in now


def is_used(name, before, now):
    """True if a struct's reserved space only became smaller, for fields before it."""
    (old, old_at), (size, at) = ([int(number) for number in value.split(" at ")] for value in (before, now))
    return name.endswith(".reserved") and size < old and at + size == old_at + old


def differences(before, now):
    """Returns (changes that break programs built before, additions)."""
    broken, new = [], [f"{name} = {now[name]}" for name in now.keys() - before.keys()]
    for name, value in before.items():
        kind, _, bare = name.partition(" ")
        if name not in now:
            broken.append(f"{name} is gone")
        elif now[name] != value:
            grown = kind == "struct" and int(now[name]) > int(value) and may_grow(bare, now)
            grown = grown or (kind == "field" and is_used(bare, value, now[name]))
            (new if grown else broken).append(f"{name} was {value}, is {now[name]}")
    return sorted(broken), sorted(new)


def parsed(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(" = ", 1) for line in lines)


def released(folder):
    """Returns (tag, its list) for the last version tag before the checked-out commit, or (None, {})."""
    def git(*words):
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    if tag.returncode:
        return None, {}
    return tag.stdout.strip(), parsed(git("show", f"{tag.stdout.strip()}:./{LIST.name}").stdout)


def write_list(version, now):
    LIST.write_text("# SPDX-License-Identifier: Apache-2.0\n# The C ABI; see abi_test.py.\n" + f"abi = {version}\n" +
                    "".join(f"{name} = {now[name]}\n" for name in sorted(now)))


def self_test():
    before = {"function attune_a": "void attune_a(void)", "constant ATTUNE_X": "1", "struct attune_s": "16",
              "field attune_s.size": "8 at 0", "struct attune_t": "8", "field attune_t.reserved": "8 at 0"}
    cases = [({"struct attune_s": "24", "field attune_s.more": "8 at 16"}, 0, 2), ({"struct attune_s": "8"}, 1, 0),
             ({"struct attune_t": "16"}, 1, 0), ({"constant ATTUNE_X": "2"}, 1, 0),
             ({"function attune_a": "int attune_a(void)"}, 1, 0), ({"field attune_s.size": "8 at 8"}, 1, 0),
             ({"function attune_b": "void attune_b(void)"}, 0, 1), ({}, 0, 0),
             ({"field attune_t.reserved": "4 at 4", "field attune_t.more": "4 at 0"}, 0, 2),
             ({"field attune_t.reserved": "4 at 0"}, 1, 0)]
    for change, broken, new in cases:
        found = differences(before, {**before, **change})
        if tuple(map(len, found)) != (broken, new):
            sys.exit(f"{change}: {found}")
    if len(differences(before, {})[0]) != len(before):
        sys.exit("what is gone is not found")
    with tempfile.TemporaryDirectory() as folder:
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(["git", "-C", folder, *command], check=True)
        none = released(folder)
        pathlib.Path(folder, LIST.name).write_text("# a list\nabi = 1\nfunction attune_a = void attune_a(void)\n")
        for command in (["add", "."], [*who, "commit", "-q", "-m", "x"], ["tag", "v0.9"], ["rm", "-q", LIST.name]):
            subprocess.run(["git", "-C", folder, *command], check=True)
        found = released(folder)
    if none != (None, {}) or found != ("v0.9", {"abi": "1", "function attune_a": "void attune_a(void)"}):
        sys.exit(f"of tags: {none}, {found}")
    print(f"{len(cases) + 2} cases judged")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    library, include, cc = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    text = headers(include)
    now = {**functions(text), **printed(text, include, cc)}
    missing = {name.split()[1] for name in now if name.startswith("function ")} - exported(library)
    now = {name: value for name, value in now.items() if name.split()[-1] not in missing}
    version = str(ctypes.CDLL(library).attune_abi_version())
    before = parsed(LIST.read_text()) if LIST.exists() else {"abi": version}
    broken, new = differences({name: value for name, value in before.items() if name != "abi"}, now)
    tag, listed = released(LIST.parent)
    if listed.get("abi") == version:
        broken += [
            f"{line} (since {tag})"
            for line in differences({name: value
                                     for name, value in listed.items() if name != "abi"}, now)[0]]
    other = before["abi"] != version  # a new ABI, with a soname of its own: everything may differ
    for line in broken:
        print(f"{'differs' if other else 'breaks programs built before'}: {line}")
    for line in new:
        print(f"new: {line}")
    if broken and not other:
        sys.exit("keep it, or change attune_abi_version() and the library's soname")
    if (broken or new or other) and os.environ.get("ATTUNE_ACCEPT_ABI") == "1":
        return write_list(version, now)
    if broken or new or other:
        sys.exit("run this again with ATTUNE_ACCEPT_ABI=1, and look at what changes in tests/capi/abi.txt")
    print(f"ABI {version}: {len(now)} functions, constants, structs and fields are as in abi.txt" +
          (f" and {tag}" if tag else "; no version is tagged here"))


if __name__ == "__main__":
    main()
