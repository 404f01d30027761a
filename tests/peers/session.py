# SPDX-License-Identifier: Apache-2.0
"""One run of pytest for run.py, in a separate process. Chooses the sample, and writes a line of JSON before and after
each test."""
import json
import linecache
import os
import pathlib
import random
import signal
import sys
import types

import pytest

import stand_ins

ATTUNE = (ValueError, TypeError, RuntimeError, NotImplementedError, OverflowError)  # types of attune's own errors
NO_DEVICE = ("no NVIDIA driver", "No CUDA", "not compiled with CUDA", "CUDA is not available", "Torch not compiled",
             "_cuda_", "requires CUDA", "CUDA driver version is insufficient")
# After these errors, a GPU runs nothing more for the process.
NO_CONTEXT = ("illegal memory access", "device-side assert", "misaligned address", "unspecified launch failure")


def is_refusal(error, folder):
    """True if a `raise` statement in attune's files raised this error, not a library below it."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    file = last.tb_frame.f_code.co_filename
    own = pathlib.Path(file).is_relative_to(folder) and linecache.getline(file,
                                                                          last.tb_lineno).strip().startswith("raise ")
    return own and (isinstance(error, ATTUNE) or type(error).__module__.startswith("attune"))


def judged(error, folder):
    """Returns (outcome, words) for a test that ended with an error."""
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, AssertionError):
        # Assertions about error messages, or about a process that the test started.
        others = "pattern did not match" in words.lower() or "Traceback (most recent" in words
        return ("error" if others else "wrong"), words
    if is_refusal(error, folder):
        return "refused", words
    if any(part in words for part in NO_DEVICE):
        return "skipped", words
    return "error", words


def chosen(items, seed, sample):
    """Returns a sample of a list of (name of a test, item), equally from all test functions."""
    of_functions = {}
    for name, item in sorted(items, key=lambda pair: pair[0]):
        of_functions.setdefault(name.partition("[")[0], []).append(item)
    drawn, order, found = random.Random(seed), sorted(of_functions), []
    drawn.shuffle(order)
    for some in of_functions.values():
        drawn.shuffle(some)
    while len(found) < min(sample, len(items)):
        for name in order:
            if of_functions[name] and len(found) < sample:
                found.append(of_functions[name].pop())
    return found


class Recorder:
    """The pytest plugin that records outcomes."""

    def __init__(self, job):
        import attune
        self.job, self.attune, self.all, self.long = job, pathlib.Path(attune.__file__).resolve().parent, 0, 0
        self.lines = open(job["lines"], "a")

    def write(self, what, id, **more):
        self.lines.write(json.dumps(dict(what=what, id=id, **more)) + "\n")
        self.lines.flush()

    def is_long(self, item):
        values = getattr(item, "callspec", None)
        return self.job["longest"] and values is not None and any(
            isinstance(value, int) and value > self.job["longest"]
            for name, value in values.params.items() if "len" in name or "seq" in name)

    def pytest_collectreport(self, report):
        if report.failed and not self.job["done"]:
            self.write("file", report.nodeid, words=" ".join(str(report.longrepr).split()[-40:]))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        short = [(item.nodeid, item) for item in items if not self.is_long(item)]
        sample = chosen(short, self.job["seed"], self.job["sample"])
        if not self.job["done"]:
            self.write("chosen", "", all=len(items), long=len(items) - len(short))
        done = set(self.job["done"])
        items[:] = [item for item in sample if item.nodeid not in done]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.outcome = "passed", ""
        self.write("begin", item.nodeid)
        signal.alarm(self.job["seconds"])
        yield
        signal.alarm(0)
        self.write("end", item.nodeid, outcome=self.outcome[0], words=self.outcome[1])
        if any(part in self.outcome[1] for part in NO_CONTEXT):
            os._exit(1)

    def pytest_sessionfinish(self):
        self.write("finished", "")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if self.outcome[0] != "passed" or report.passed and not hasattr(report, "wasxfail"):
            return
        if report.skipped or hasattr(report, "wasxfail"):
            self.outcome = "skipped", str(
                report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", ""))
        elif call.excinfo is not None:
            self.outcome = judged(call.excinfo.value, self.attune)


def end_test(signal_number, frame):
    raise TimeoutError("took more time than --seconds")


def without_gpu():
    """Replaces functions of torch.cuda that tests call during collection, for a machine without a GPU."""
    import torch
    name = types.SimpleNamespace(total_memory=80 << 30, multi_processor_count=132, name="CPU", major=9, minor=0)
    for function, value in (("get_device_capability", (9, 0)), ("get_device_properties", name), ("synchronize", None),
                            ("empty_cache", None), ("current_device", 0), ("get_device_name", "CPU"), ("device_count",
                                                                                                       1)):
        setattr(torch.cuda, function, lambda *args, value=value, **choices: value)


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(job["folder"])
    top = next(parent for parent in folder.parents if parent.name == "copy")
    sys.path[:0] = [str(parent) for parent in (folder, *folder.parents) if parent.is_relative_to(top)]
    if job["device"] == "cpu":
        without_gpu()
    signal.signal(signal.SIGALRM, end_test)
    stand_ins.put(job["peer"], job["given"])
    files = [str(file) for file in sorted(folder.glob(job["files"]))]
    options = [
        "-q", "-p", "no:cacheprovider", "--noconftest", "--continue-on-collection-errors", f"--rootdir={top}",
        "--import-mode=importlib"]
    return pytest.main([*options, *(["-k", job["only"]] if job["only"] else []), *files], plugins=[Recorder(job)])


if __name__ == "__main__":
    sys.exit(main())
