#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that examples/quickstart.sh builds all that `cmake --install` needs: configures a tree as that script does,
asks Ninja what its build command makes, and looks for every built file that the install scripts name. Builds nothing.
Run by CTest.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def script_lines():
    """quickstart.sh with its continued lines joined."""
    return (ROOT / "examples/quickstart.sh").read_text().replace("\\\n", " ").splitlines()


def configure(build, compiler):
    line = next(line for line in script_lines() if line.startswith("cmake -S . -B"))
    options = [word for word in line.split() if word.startswith("-DATTUNE_") and "$" not in word]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options, f"-DCMAKE_CXX_COMPILER={compiler}"],
                   check=True, stdout=subprocess.DEVNULL)


def built_files(build):
    line = next(line for line in script_lines() if line.startswith("cmake --build"))
    named = re.search(r"--target((?: [a-z_]+)+)", line)
    targets = named.group(1).split() if named else ["all"]
    graph = subprocess.run(["ninja", "-C", build, "-t", "graph", *targets], check=True, capture_output=True,
                           text=True).stdout
    return {str(build / name) for name in re.findall(r'label="([^"]+)"', graph)}


def wanted_files(build):
    for script in build.rglob("cmake_install.cmake"):
        for name in re.findall(r'file\(INSTALL DESTINATION [^)]*? FILES?((?:\s+"[^"]+")+)', script.read_text()):
            yield from (path for path in re.findall(r'"([^"]+)"', name) if path.startswith(str(build)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cxx", required=True)
    arguments = parser.parse_args()
    if not shutil.which("ninja"):
        sys.exit("ninja is not here; quickstart.sh installs it")
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder).resolve() / "build"
        configure(build, arguments.cxx)
        built = built_files(build)
        wanted = [
            path for path in wanted_files(build) if not pathlib.Path(path).exists()]  # what is not made by configuring
    names = {pathlib.Path(path).name for path in wanted}
    if not {"attune", "libattune.so"} <= names:
        sys.exit(f"the install scripts name only {sorted(names)}")
    # libattune.so.2 is a link that is made with libattune.so.
    missing = sorted(path for path in wanted if not {path, re.sub(r"\.so\.\d+$", ".so", path)} & built)
    if missing:
        sys.exit("examples/quickstart.sh does not build what `cmake --install` wants:\n" + "\n".join(missing))
    print(f"{len(wanted)} built files to install, all made by quickstart.sh's build command")


if __name__ == "__main__":
    main()
