#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a run of ctest came to: summary.py BUILD_DIR RESULTS.xml [--slowest N] [--skips any|gpu|none].

Reads the file of `ctest --output-junit` and the list of all tests in BUILD_DIR. Prints each skipped test with its
reason, the cases that passing tests skipped, the slowest tests, how many tests were left out by label, and last a line
of counts. Ends with 1 if a test failed, or was skipped against --skips: gpu allows the tests labelled gpu to be
skipped, none allows no test."""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

# Labels of tests that tests/run.sh leaves out unless it is asked for them.
LEFT_OUT = ("full", "whole", "timing", "fresh")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Lines by which test programs say that they skipped one case: GoogleTest, bats, and scripts of ours.
CASE = re.compile(r"^(?:\[  SKIPPED \] (?P<google>\S+\.\S+) \(|ok \d+ (?P<bats>.*? # skip.*)|(?P<script>SKIP: .*))",
                  re.M)
# The closing line of Python's unittest counts its skipped cases without naming them.
UNITTEST = re.compile(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", re.M)
# GoogleTest says why on the line below the place where a case skipped itself.
GOOGLE_REASON = re.compile(r"^\S+:\d+: Skipped\n(?P<reason>.+)$", re.M)


class Result:
    """One test of a run: name, labels, status, seconds, and what it printed."""

    def __init__(self, case, labels):
        self.name = case.get("name")
        self.labels = labels.get(self.name, [])
        self.seconds = float(case.get("time") or 0)
        self.output = case.findtext("system-out") or ""
        why = case.find("skipped")
        if case.get("status") == "run":
            self.status = PASSED
        elif why is not None and why.get(
                "message", "").startswith("SKIP_"):  # SKIP_RETURN_CODE=77, SKIP_REGULAR_EXPRESSION_MATCHED
            self.status = SKIPPED
        else:  # a program that could not be started and a disabled test among them
            self.status = FAILED

    def skipped_cases(self):
        """Returns one line for each case that the test skipped, as far as its output names them."""
        cases = [next(filter(None, match.groups())) for match in CASE.finditer(self.output)]
        return cases + ["a case of unittest"] * sum(int(count) for count in UNITTEST.findall(self.output))

    def reason(self):
        """Returns why the whole test was skipped, in its own words."""
        for pattern in (r"^SKIP: (.*)$", GOOGLE_REASON.pattern.replace("(?P<reason>", "(")):
            if match := re.search(pattern, self.output, re.M):
                return match.group(1).strip()
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else "it did not say why"


def results_of(file, labels):
    return [Result(case, labels) for case in ElementTree.parse(file).getroot().iter("testcase")]


def tests_of(build):
    """Returns the labels of each test that the build tree has, by its name."""
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True,
                            check=True).stdout
    labels = {}
    for test in json.loads(listed)["tests"]:
        values = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        labels[test["name"]] = values[0] if values else []
    return labels


def left_out(labels, results):
    """Returns how many tests did not take part, by the label that left them out."""
    ran = {result.name for result in results}
    counts = collections.Counter()
    for name, of_test in labels.items():
        if name not in ran:
            counts[next((label for label in LEFT_OUT if label in of_test), "not chosen")] += 1
    return counts


def report(results, labels, slowest):
    """Returns the lines to print; the last one holds the counts."""
    lines = []
    skipped = [result for result in results if result.status == SKIPPED]
    if skipped:
        lines += ["", f"Skipped tests ({len(skipped)}):"] + [f"  {r.name}: {r.reason()}" for r in skipped]
    inside = [(result, result.skipped_cases()) for result in results if result.status != SKIPPED]
    inside = [(result, cases) for result, cases in inside if cases]
    cases = sum(len(cases) for _, cases in inside)
    if inside:
        lines += ["", f"Skipped cases of tests that ran ({cases}):"]
        for result, names in inside:
            for name, count in collections.Counter(names).items():
                lines.append(f"  {result.name}: {name}" + (f" ({count} times)" if count > 1 else ""))
    if slowest:
        lines += ["", f"The {min(slowest, len(results))} slowest tests:"]
        lines += [f"  {r.seconds:7.1f} s  {r.name}" for r in sorted(results, key=lambda r: -r.seconds)[:slowest]]
    out = left_out(labels, results)
    if out:
        lines += ["", "Left out: " + ", ".join(f"{count} {label}" for label, count in sorted(out.items()))]
    status = collections.Counter(result.status for result in results)
    lines += ["", f"{status[PASSED]} passed, {status[FAILED]} failed, {status[SKIPPED] + cases} skipped"]
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--slowest", type=int, default=20)
    parser.add_argument("--skips", choices=("any", "gpu", "none"), default="any")
    chosen = parser.parse_args(arguments)
    labels = tests_of(chosen.build)
    results = results_of(chosen.results, labels)
    lines = report(results, labels, chosen.slowest)
    print("\n".join(lines[:-1]))
    wrong = [
        r.name for r in results
        if r.status == SKIPPED and (chosen.skips == "none" or chosen.skips == "gpu" and "gpu" not in r.labels)]
    if wrong:
        print(f"Skipped, though --skips is {chosen.skips}: {', '.join(wrong)}")
    print(lines[-1])
    failed = any(result.status == FAILED for result in results) or not results
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
