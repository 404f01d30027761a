#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of faults.txt in the sources, one at a time, and demands that the tests they name fail. Run by
hand, since it takes a build for each fault; faults_test.py checks the list.

Usage: faults.py BUILD [--only NAME...] [--list]. BUILD is a build tree of these sources, made by Ninja. Refuses sources
with uncommitted changes, and restores each file however it ends. Exits with 1 if a fault was not caught.
"""
import argparse
import collections
import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).resolve().parent / "faults.txt"
LAYERS = {  # Python's folder is inside of the runtime's, so it comes first
    "python": "runtime/python/", "generator": "generator/", "templates": "templates/", "tuner": "tuner/",
    "runtime": ("runtime/", "cache/")}
# Files that tests of these beginnings open at run time, besides those that they name.
OPENED = ("bin/attune", "lib/libattune_clang.so", "lib/_attune.abi3.so")
OPENING = ("capi_", "cli_", "python_")

# tests: a pattern of the names of the tests that must fail. old, new: text of the file at `path`.
Fault = collections.namedtuple("Fault", "name path tests old new")


def read_faults(text):
    """Returns the Faults of a list in the format of faults.txt."""
    faults = []
    for block in re.split(r"\n\n+", re.sub(r"^#.*\n", "", text, flags=re.M).strip()):
        head, *lines = block.split("\n")
        old, new = ("\n".join(line[1:] for line in lines if line[:1] == sign) for sign in "-+")
        faults.append(Fault(*head.split(), old, new))
    return faults


def layer_of(fault):
    return next(layer for layer, folders in LAYERS.items() if fault.path.startswith(folders))


def tests_of(build):
    """Returns what CMake wrote about each test of a build tree, by the test's name."""
    found = collections.defaultdict(str)
    for file in (build / "tests").rglob("CTestTestfile.cmake"):
        for name, rest in re.findall(r"^(?:add_test|set_tests_properties)\(\[=\[(.+?)\]=\](.*)$", file.read_text(),
                                     re.M):
            found[name] += rest
    return found


def named(fault, tests):
    """Returns the names of the tests that must fail."""
    return [name for name in tests if re.fullmatch(fault.tests, name)]


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def planted(root, fault):
    """Puts a fault into its file in the git working tree `root`; restores the file at the end of the scope."""
    file = root / fault.path
    text = file.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.path} has the old text of {fault.name} {text.count(fault.old)} times; must be once")
    try:
        file.write_text(text.replace(fault.old, fault.new))
        yield
    finally:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # of git too
        git(root, "checkout", "--", fault.path)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Build:
    def __init__(self, folder):
        self.folder, self.tests = folder, tests_of(folder)
        targets = subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], check=True, capture_output=True,
                                 text=True)
        self.files = set(re.findall(r"^(.+): \w", targets.stdout, re.M))

    def make(self, names):
        """Builds the programs and libraries of tests. Returns an error's last lines, or an empty text."""
        said = " ".join(self.tests[name] for name in names)
        wanted = set(re.findall(rf"{re.escape(str(self.folder))}/([^\s\";:=]+)", said))
        wanted.update(OPENED if any(name.startswith(OPENING) for name in names) else ())
        done = subprocess.run(["cmake", "--build", self.folder, "--target", *sorted(wanted & self.files)],
                              capture_output=True, text=True)
        return "\n".join(done.stdout.splitlines()[-20:]) if done.returncode else ""

    def run(self, names):
        """Runs tests. Returns CTest's word for each: run (it passed), fail, notrun (it was skipped), by name."""
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "results.xml"
            chosen = f"^({'|'.join(names)})$"
            subprocess.run(["ctest", "--test-dir", self.folder, "--output-junit", results, "-R", chosen], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return {case.get("name"): case.get("status") for case in ElementTree.parse(results).iter("testcase")}


def verdict(results):
    """Returns "caught" if all tests failed, else NOT CAUGHT with the names of those that did not."""
    others = [f"{name}: {'skipped' if status == 'notrun' else 'passed'}"
              for name, status in results.items() if status != "fail"]
    return "caught" if results and not others else f"NOT CAUGHT ({', '.join(others) or 'no test ran'})"


def tried(build, fault):
    """Plants a fault and returns the verdict on it. A fault that does not compile proves nothing about tests."""
    names = named(fault, build.tests)
    with planted(ROOT, fault):
        error = build.make(names)
        return f"NOT CAUGHT (it does not build)\n{error}" if error else verdict(build.run(names))


def without_faults(build, faults):
    """Returns the tests that do not pass without a fault, after building all that the faults need."""
    names = sorted({name for fault in faults for name in named(fault, build.tests)})
    if error := build.make(names):
        sys.exit(f"the sources do not build:\n{error}")
    return [f"{name}: {status}" for name, status in build.run(names).items() if status != "run"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="plants these faults alone")
    parser.add_argument("--list", action="store_true", help="prints the faults and does nothing")
    arguments = parser.parse_args()
    faults = [fault for fault in read_faults(LIST.read_text()) if fault.name in (arguments.only or [fault.name])]
    if unknown := set(arguments.only or ()) - {fault.name for fault in faults}:
        sys.exit(f"--only names {', '.join(sorted(unknown))}; must be faults of {LIST.name}")
    if arguments.list:
        print("\n".join(f"{layer_of(fault):9} {fault.name:28} {fault.path} {fault.tests}" for fault in faults))
        return 0
    if git(ROOT, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"{ROOT} has uncommitted changes; must be clean, since each faulty file is restored by git checkout")
    build = Build(arguments.build.resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # restores the file
    if failing := without_faults(build, faults):
        sys.exit("tests that do not pass without a fault:\n" + "\n".join(failing))
    missed = 0
    for fault in faults:
        begin = time.monotonic()
        found = tried(build, fault)
        missed += found != "caught"
        print(f"{fault.name:28} {fault.tests:40} {time.monotonic() - begin:5.0f} s  {found}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
