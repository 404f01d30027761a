#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on what must not be in the tree: a source without its SPDX line and header, inline assembly outside the
wrappers, a foreign header outside its home, an op named outside its own files, a path of somebody's machine, an
unexpected entry at the root, a version that is not the one of CMakeLists.txt, a library that is looked for and not
installed. Run by CTest.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".sh", ".bats", ".cmake"}
SPDX = "SPDX-License-Identifier: Apache-2.0"

ROOT_ENTRIES = {
    "generator", "templates", "tuner", "runtime", "cache", "tests", "examples", "CMakeLists.txt", "README.md",
    "CMakePresets.json", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml", ".ci", ".clang-format",
    ".clang-tidy", ".gitignore", ".gitattributes"}

# header pattern -> path patterns that may include it. Nothing but a .cpp may, so no other folder ever sees one.
FOREIGN_HOMES = {
    r"sqlite3\.h": [r"cache/sqlite\.cpp", r"tests/cache/.*\.cpp"],
    r"(cuda|nvrtc|cuda_runtime|cuda_fp16|cuda_bf16)\.h": [r"tests/runtime/.*\.cpp", r"examples/cuda_.*\.cpp"],
    r"(llvm|clang|lld)/.*": [
        r"generator/compile/clang_(compiler|thread)\.cpp", r"runtime/cpu/no_polly\.cpp",
        r"tests/generator/compile/cpu/llvm_names_test\.cpp"],
    r"nlohmann/.*": [r".*\.(cpp)", r"tuner/.*\.hpp"],
    r"CLI/.*": [r"tuner/cli/command_line\.cpp"],
    r"sodium\.h": [r"generator/core/system/digest\.cpp"],
    r"xxhash\.h": [r"generator/core/system/digest\.cpp"], }
# Each PTX instruction is wrapped once: in ptx/, or in the part that writes wgmma operand lists. The CPU's spin-wait
# hint has no builtin on ARM; the compiler must not touch the benchmarks' loop of the peak; a test of digests changes
# code.
ASM_HOMES = [
    r"templates/cuda/ptx/.*", r"generator/.*wgmma.*", r"runtime/cpu/thread_pool\.cpp",
    r"generator/compile/cpu/host_arch\.cpp", r"tests/bench/cpu/fma_peak\.cpp", r"tests/generator/sass_digest_test\.cpp"]
ASM = re.compile(r"\b(asm|__asm__|__asm)\b\s*(volatile|__volatile__)?\s*\(")
# Only an op's description, oracle and kernels may ask which op they have.
OP_HOMES = [
    r"generator/core/ops/.*", r"tuner/oracles/.*", r"generator/families/.*", r"templates/.*", r"tests/.*",
    r"tuner/models/serving.cpp"]  # the ops that an engine calls
OP_NAMED = re.compile(r"\bOp::k[A-Z]")
# Places that repeat the version: change each together with CMakeLists.txt; the change log opens with it.
VERSIONS = {
    "pyproject.toml": r"attune-cpu==([0-9.]+)",
    "runtime/python/cpu/pyproject.toml": r'(?:^version = "|"attune==)([0-9.]+)"',
    "examples/vllm/pyproject.toml": r'^version = "([0-9.]+)"', "CHANGELOG.md": r"\A.*?^## ([0-9.]+), \d{4}-\d\d-\d\d$"}
# Packages that CMakeLists.txt files look for, and their names in examples/packages.sh, by which a bare machine builds.
PACKAGES = {
    "fmt": "libfmt-dev", "nlohmann_json": "nlohmann-json3-dev", "SQLite3": "libsqlite3-dev", "PkgConfig": "pkg-config",
    "libsodium": "libsodium-dev", "CLI11": "libcli11-dev", "Python3": "python3-dev", "LLVM": "llvm-19-dev",
    "GTest": "libgtest-dev", "Threads": "build-essential"}
SOUGHT = re.compile(r"^\s*(?:find_package|pkg_check_modules)\((\w+)", re.M)
NOT_NEEDED = {"attune", "CUDAToolkit"}  # itself, from the outside; where there is one
MACHINE_PATH = re.compile(r"(?<![\w.])/(root|work|home/[a-z])/[\w.]")


def matches(path, patterns):
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def says_what_it_is(head):
    """True if there is a comment of two words or more, besides the licence and interpreter lines."""
    return any(
        re.match(r'\s*(//|#(?!!|include|pragma|define|if)|"""|/?\*)\W*\w\S*\s+\S', line) for line in head
        if SPDX not in line)


def check_source(path, text):
    head = text.splitlines()[:4]
    if not any(SPDX in line for line in head):
        yield 1, f"no line '{SPDX}' at the top"
    elif not says_what_it_is(head):
        yield 1, "no header that says what this file is"
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"
        include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)', line)
        for pattern, homes in FOREIGN_HOMES.items():
            if include and re.fullmatch(pattern, include.group(1)) and not matches(path, homes):
                yield number, f"{include.group(1)} is included outside its home"
        if OP_NAMED.search(line) and not matches(path, OP_HOMES):
            yield number, "an op is named outside generator/core/ops/, tuner/oracles/ and generator/families/"
    if pathlib.Path(path).suffix in {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"} and not matches(path, ASM_HOMES):
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            if ASM.search(line):
                yield number, "inline assembly outside templates/cuda/ptx/"


def check_versions(read):
    """Yields each place of VERSIONS that does not name the version of CMakeLists.txt. `read(path)` returns a text."""
    version = re.search(r"project\(attune VERSION ([0-9.]+)", read("CMakeLists.txt")).group(1)
    for path, pattern in VERSIONS.items():
        found = re.findall(pattern, read(path), re.M | re.S)
        if not found or set(found) != {version}:
            yield f"{path}: names version {' and '.join(sorted(set(found))) or 'nothing'}; CMakeLists.txt has {version}"


def check_packages(read, paths):
    """Yields libraries that a CMakeLists.txt of `paths` looks for and examples/packages.sh does not install."""
    installed = read("examples/packages.sh").split()
    installed = {word.strip('"').rpartition('"')[2] for word in installed}
    for path in paths:
        for name in set(SOUGHT.findall(read(path))) - NOT_NEEDED:
            if PACKAGES.get(name) not in installed:
                package = PACKAGES.get(name, "package that is known to have it")
                yield f"{path}: looks for {name}; examples/packages.sh installs no {package}"


def files():
    """Returns the paths of the tree that git does not ignore, or all outside a git checkout."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=False)
    if listed.returncode == 0:
        return sorted(path for path in set(listed.stdout.splitlines()) if (ROOT / path).is_file())
    return sorted(file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*") if file.is_file())


def is_source(path):
    file = pathlib.PurePosixPath(path)
    named = file.suffix in SOURCE or file.name in {"CMakeLists.txt", "run"}
    return named and not {"golden", "__pycache__"} & set(file.parts)


def main():
    paths = files()
    found = [
        f"{name}: not a name the root may hold" for name in sorted({path.split("/")[0]
                                                                    for path in paths} - ROOT_ENTRIES)]
    for path in filter(is_source, paths):
        found += [
            f"{path}:{number}: {what}"
            for number, what in check_source(path, (ROOT / path).read_text(errors="replace"))]
    def read(path):
        return (ROOT / path).read_text()

    found += check_versions(read)
    found += check_packages(read, [path for path in paths if path.endswith("CMakeLists.txt")])
    print("\n".join(found) if found else "repo: licence lines, homes of headers and assembly, versions are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
