#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every code block of README.md. A comment on the line before a block says how, and one without it fails:

  <!-- test: run -->      shell lines, run in the source tree with the built `attune` in PATH and a store of their own
  <!-- test: build -->    a C or C++ program: compiled against the public headers, linked to libattune, and run
  <!-- test: scripts -->  commands too long for a test: each script they name must exist and parse; arguments are not looked at

Run by CTest; without the CPU target, blocks that need it skip aloud.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LANGUAGES = {"sh": "run", "bash": "run", "c": "build", "cpp": "build"}


def code_blocks(text):
    """(line, language, how, code) of each fenced block."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = re.fullmatch(r"```(\w*)", lines[number])
        if not fence:
            number += 1
            continue
        how = re.fullmatch(r"<!-- test: (\w+) -->", lines[number - 1]) if number else None
        end = lines.index("```", number + 1)
        yield number + 1, fence.group(1), how.group(1) if how else None, "\n".join(lines[number + 1:end]) + "\n"
        number = end + 1


def run(command, environment, **options):
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=200, check=False, **options)
    print(done.stdout[-1500:], end="")
    if done.returncode != 0:
        sys.exit(f"{command!r} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def run_scripts(code):
    for script in re.findall(r"\S+\.sh", code):
        subprocess.run(["bash", "-n", ROOT / script], check=True)


def build_and_run(arguments, language, code, folder, environment):
    source = folder / f"block.{language}"
    source.write_text(code)
    library = pathlib.Path(arguments.library)
    compiler = [arguments.cc, "-std=c11"] if language == "c" else [arguments.cxx, "-std=c++17"]
    run(compiler + ["-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "runtime/include"), str(source), "-o", str(folder / "block"),
                    str(library), f"-Wl,-rpath,{library.parent}", "-lm"], environment)
    run([str(folder / "block")], environment)


def main():
    parser = argparse.ArgumentParser()
    for name in ("attune", "library", "cc", "cxx"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    blocks = list(code_blocks((ROOT / "README.md").read_text()))
    if not blocks:
        sys.exit("README.md has no code block: nothing was tested")
    no_cpu = '"cpu_target_found": false' in subprocess.run([arguments.attune, "doctor", "--json"], text=True, capture_output=True,
                                                           check=False).stdout
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, ATTUNE_STORE=f"{folder}/store/store.db",
                           PATH=f"{pathlib.Path(arguments.attune).parent}:{os.environ['PATH']}")
        for line, language, how, code in blocks:
            print(f"README.md:{line}: {language or 'no language'}, {how}", flush=True)
            if how not in ("run", "build", "scripts") or (how != "scripts" and LANGUAGES.get(language) != how):
                sys.exit(f"README.md:{line}: the block's comment says '{how}', which does not go with '{language}' (see readme_test.py)")
            if how == "scripts":
                run_scripts(code)
            elif no_cpu:
                print("SKIP: the CPU target is not built here")
            elif how == "run":
                run(["bash", "-euo", "pipefail", "-c", code], environment)
            else:
                build_and_run(arguments, language, code, pathlib.Path(folder), environment)
    print(f"{len(blocks)} code blocks of README.md hold")


if __name__ == "__main__":
    main()
