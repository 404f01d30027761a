#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a peer's own test files with attune under the peer's names. Counts tests that passed, were refused by attune,
were wrong (an assertion), or ended in another error. The caller has the files:
tests/peers/run.py --peer flashinfer --tests CHECKOUT/tests/attention --device cpu --seed 1 --sample 50

pytest runs in a separate process (session.py), which is started again after a test that ends it. The exit code is 1
if a test was wrong or a process died."""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ("flash_attn2", "flash_attn3", "flash_attn4", "flashinfer", "transformers")
_NO_GPU = "no NVIDIA driver"  # what PyTorch says without a GPU, in the words of skipped tests
OUTCOMES = ("passed", "refused", "wrong", "error", "skipped")
CUDA = [(r"""(["'])cuda(:0)?\1""", r"\1cpu\1"), (r"\.cuda\(\)", ".cpu()"), (r"\.to\(0\)", '.to("cpu")')]
ATTUNE = [
    (r"""attn_implementation=(["'])sdpa\1""", r"attn_implementation=\1attune\1")]  # for transformers, whose names stay


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--tests", required=True, type=pathlib.Path, metavar="FOLDER",
                        help="the folder of the peer's tests")
    parser.add_argument("--files", default="test_*.py", metavar="PATTERN", help="files in it (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORDS", help="tests whose names match, as in pytest's -k")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: %(default)s)")
    parser.add_argument("--sample", type=int, default=100, metavar="N",
                        help="number of tests to run, equally from all functions (default: %(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: replaces the device in a copy of the files")
    parser.add_argument("--longest", type=int, default=0, metavar="N",
                        help="leaves out tests with a length parameter above N")
    parser.add_argument("--seconds", type=int, default=300, metavar="N",
                        help="ends a test that takes longer (default: %(default)s)")
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE", help="keeps what pytest prints")
    parser.add_argument("--show", type=int, default=8, metavar="N",
                        help="number of kinds of each outcome to print (default: %(default)s)")
    given = parser.parse_args()
    if not given.tests.is_dir():
        parser.error(f"--tests is {given.tests}; must be a folder")
    return given


def copied(given, into):
    """Copies the tests, and returns their folder in the copy. The copy begins at the enclosing folder `tests`, because
    tests import helpers from it."""
    folder = given.tests.resolve()
    top = next((parent for parent in (folder, *folder.parents) if parent.name == "tests"), folder)
    changes = (CUDA if given.device == "cpu" else []) + (ATTUNE if given.peer == "transformers" else [])
    for file in top.rglob("*.py"):
        place = into / top.name / file.relative_to(top)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(errors="replace")
        for pattern, instead in changes:
            text = re.sub(pattern, instead, text)
        place.write_text(text)
    for file in top.rglob("*"):
        if file.is_file() and file.suffix in (".json", ".toml", ".txt"):
            place = into / top.name / file.relative_to(top)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    return into / top.name / folder.relative_to(top)


def written(lines):
    """Returns the lines that the session has written so far."""
    return [json.loads(line) for line in lines.read_text().splitlines() if line.endswith("}")] if lines.exists() else []


def run_session(given, job, place):
    """Runs pytest once. Returns its process's status, or None if a test took too long."""
    (place / "job.json").write_text(json.dumps(job))
    with (place / "pytest.log").open("a") as log:
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(
                str(pathlib.Path(one).resolve()) for one in sys.path[1:] if one)}
        process = subprocess.Popen([sys.executable, HERE / "session.py", place / "job.json"], stdout=log, stderr=log,
                                   cwd=place, env=environment)
        before, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            lines = written(place / "lines")
            if len(lines) != before:
                before, since = len(lines), time.monotonic()
            is_late = time.monotonic() - since > 2 * given.seconds
            if is_late and lines and lines[-1]["what"] == "begin":  # the session has not ended the test
                process.kill()
                process.wait()
                return None
    return process.returncode


def outcomes(given, folder, place):
    """Runs sessions until each test of the sample has an outcome. Returns the lines that the sessions wrote."""
    job = dict(peer=given.peer, folder=str(folder), given=str(given.tests.resolve()), files=given.files,
               only=given.only, seed=given.seed, sample=given.sample, device=given.device, longest=given.longest,
               seconds=given.seconds, lines=str(place / "lines"), done=[])
    while True:
        before = len(written(place / "lines"))
        status = run_session(given, job, place)
        lines = written(place / "lines")
        if any(line["what"] == "finished" for line in lines[before:]):
            return lines
        if not any(line["what"] == "begin" for line in lines[before:]):
            sys.exit((place / "pytest.log").read_text()[-3000:] + f"\nno test was run: pytest ended with {status}")
        if lines[-1]["what"] == "begin":
            words = f"took more than {2 * given.seconds} s" if status is None else f"the process ended with {status}"
            with (place / "lines").open("a") as file:
                file.write(
                    json.dumps(dict(what="end", id=lines[-1]["id"], outcome="error", words=words, died=True)) + "\n")
        job["done"] = [line["id"] for line in written(place / "lines") if line["what"] == "end"]


def kind_of(words):
    """Returns the kind of a sentence: sentences that differ only in numbers have the same kind."""
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", words)[:200]


def report(given, lines):
    chosen = next(line for line in lines if line["what"] == "chosen")
    ends = [line for line in lines if line["what"] == "end"]
    print(f"{given.peer}, {given.tests}, {given.device}, seed {given.seed}: {len(ends)} of {chosen['all']} tests" +
          (f", {chosen['long']} longer ones left out" if chosen["long"] else ""))
    for line in lines:
        if line["what"] == "file":
            print(f"  not collected: {line['id']}: ..{line['words'][-160:]}")
    counts = collections.Counter(line["outcome"] for line in ends)
    print("  ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES))
    for outcome in OUTCOMES[1:]:
        kinds = collections.defaultdict(list)
        for line in ends:
            if line["outcome"] == outcome:
                kinds[kind_of(line["words"])].append(line)
        for same in sorted(kinds.values(), key=len, reverse=True)[:given.show]:
            print(f"{outcome} {len(same)}: {same[0]['words'][:300]}\n    {same[0]['id']}")
    skipped = [line for line in ends if line["outcome"] == "skipped"]
    if given.device == "cuda" and any(_NO_GPU in line["words"] for line in skipped):
        print("PyTorch finds no GPU here, so tests of CUDA are counted as skipped; give --device cpu to run them in a "
              "copy of the files whose device is the CPU")
    return 1 if counts["wrong"] or any(line.get("died") for line in ends) else 0


def main():
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="attune-peers-") as place:
        place = pathlib.Path(place)
        lines = outcomes(given, copied(given, place / "copy"), place)
        if given.log is not None:
            shutil.copyfile(place / "pytest.log", given.log)
        return report(given, lines)


if __name__ == "__main__":
    sys.exit(main())
