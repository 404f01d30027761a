#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of README.md, or of another page, in their order, as a newcomer would.

Variables that a block exports reach the next blocks. The line before a block says how it runs; without it a block
fails:

  <!-- test: fresh -->    builds from nothing: --fresh runs it in a copy of the tree; else its lines must parse
                          and its scripts exist
  <!-- test: install -->  runs with the home of a new user; without --fresh it installs the tests' build
  <!-- test: run -->      shell lines; they run in the source tree with a store of their own and the PATH that the
                          blocks before have set
  <!-- test: parse -->    shell lines that need another machine (a container, an index of packages): they must parse
  <!-- test: build -->    a C or C++ program: compiled against the public headers, linked to libattune, and run

Blocks of Python run by tests/python/tools/page_test.py; blocks of text are not run. Run by CTest; without the CPU
target, blocks that need it skip aloud."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHELL = ("fresh", "install", "run", "parse")
LANGUAGES = {"sh": SHELL, "bash": SHELL, "c": ("build",), "cpp": ("build",)}
OTHERS = ("python", "text")  # page_test.py runs the first; the second is shown alone
BUILD = "build/quickstart"  # where quickstart.sh builds, and what the install block names


def code_blocks(text):
    """Yields (line, language, how, code) of each fenced block."""
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


class Reader:
    """Somebody who follows the README: a home, a tree, and an environment that blocks change."""

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.tree = copy_of_tree(folder) if arguments.fresh else ROOT
        self.environment = {
            name: value
            for name, value in os.environ.items() if not name.startswith("ATTUNE_") or name == "ATTUNE_NVRTC"}
        self.environment.update(HOME=str(folder / "home"), ATTUNE_STORE=str(folder / "store/store.db"),
                                ATTUNE_LOCKS=str(folder))
        (folder / "home").mkdir()

    def run(self, command, **options):
        limit = 1500 if self.arguments.fresh else 200
        done = subprocess.run(command, cwd=self.tree, env=self.environment, text=True, capture_output=True,
                              timeout=limit, check=False, **options)
        print(done.stdout[-1500:], end="")
        if done.returncode != 0:
            sys.exit(f"{command!r} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")

    def run_lines(self, code):
        kept = self.folder / "environment"
        self.run(["bash", "-euo", "pipefail", "-c", f"{code}\nenv -0 >'{kept}'"])
        self.environment = dict(entry.split("=", 1) for entry in kept.read_text().split("\0") if entry)

    def build_and_run(self, language, code):
        source = self.folder / f"block.{language}"
        source.write_text(code)
        library = pathlib.Path(self.arguments.library)
        compiler = [self.arguments.cc, "-std=c11"] if language == "c" else [self.arguments.cxx, "-std=c++17"]
        self.run(compiler + ["-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "runtime/include"), str(source), "-o",
                             str(self.folder / "block"), str(library), f"-Wl,-rpath,{library.parent}", "-lm"])
        self.run([str(self.folder / "block")])

    def follow(self, language, how, code):
        if how == "build":
            self.build_and_run(language, code)
        elif how == "parse":
            subprocess.run(["bash", "-n", "-c", code], check=True)
        elif how == "fresh" and not self.arguments.fresh:
            subprocess.run(["bash", "-n", "-c", code], check=True)
            for script in re.findall(r"\S+\.sh", code):
                subprocess.run(["bash", "-n", ROOT / script], check=True)
        elif how == "install" and not self.arguments.fresh:
            if BUILD not in code:
                sys.exit(f"the install block does not install {BUILD}")
            self.run_lines(code.replace(BUILD, self.arguments.build))
        else:
            self.run_lines(code)


def copy_of_tree(folder):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                            text=True, check=True)
    tree = folder / "attune"
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def use_build(reader, arguments):
    """Sets the environment as if the build were installed: its program, library and headers are found."""
    folder = str(pathlib.Path(arguments.library).parent)
    reader.environment.update(PATH=f"{pathlib.Path(arguments.attune).parent}:{reader.environment['PATH']}",
                              LIBRARY_PATH=folder, LD_LIBRARY_PATH=folder, CPATH=str(ROOT / "runtime/include"))


def main():
    parser = argparse.ArgumentParser()
    for name in ("attune", "library", "build", "cc", "cxx"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--fresh", action="store_true", help="build from nothing too, as the README says")
    parser.add_argument("--page", default="README.md",
                        help="another page, whose blocks find the build as if it were installed")
    arguments = parser.parse_args()
    page, text = arguments.page, (ROOT / arguments.page).read_text()
    blocks = [block for block in code_blocks(text) if block[1] not in OTHERS]
    if not blocks:
        sys.exit(f"{page} has no code block: nothing was tested")
    no_cpu = '"cpu_target_found": false' in subprocess.run([arguments.attune, "doctor", "--json"], text=True,
                                                           capture_output=True, check=False).stdout
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(arguments, pathlib.Path(folder))
        if page != "README.md":
            use_build(reader, arguments)
        for line, language, how, code in blocks:
            print(f"{page}:{line}: {language or 'no language'}, {how}", flush=True)
            if how not in LANGUAGES.get(language, ()):
                sys.exit(
                    f"{page}:{line}: the block's comment says '{how}', which does not go with '{language}' (see "
                    f"readme_test.py)"
                )
            if no_cpu and how not in ("fresh", "parse"):
                print("SKIP: the CPU target is not built here")
            else:
                reader.follow(language, how, code)
    print(f"{len(blocks)} code blocks of {page} hold")


if __name__ == "__main__":
    main()
