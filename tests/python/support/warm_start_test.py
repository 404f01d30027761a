#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests warm_start.py: a script in a fork of the serving process sees and does what it sees and does by itself."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(__file__).with_name("warm_start.py")
SCRIPT = """
import json, os, sys, threading
import beside, on_path
words = ["WORD", "EXTRA"]
json.dump({"name": __name__, "file": __file__, "main": sys.modules["__main__"].__file__,
           "words": sys.argv, "folder": os.getcwd(), "path": sys.path[:2],
           "variable": os.environ.get(words[0]), "extra": os.environ.get(words[1]),
           "serving": os.getppid(), "input": sys.stdin.read(), "threads": threading.active_count()}, sys.stdout)
sys.stderr.write("to stderr")
"""


class WarmStart(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.write("on_path/on_path.py", "")
        self.write("scripts/beside.py", "")
        self.environment = os.environ | {"WORD": "of the asker", "PYTHONPATH": str(self.folder / "on_path")}

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def serve(self):
        """Starts a serving process that finds fake modules instead of NumPy and PyTorch. Returns it."""
        self.write("fake/numpy.py", "")
        self.write("fake/torch.py", "import os; imported_by = os.getpid()")
        process = subprocess.Popen([sys.executable, PROGRAM, "--serve"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   env=os.environ | {"PYTHONPATH": str(self.folder / "fake"), "EXTRA": "1"})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for(lambda: (self.folder / "warm_start.socket").exists())
        return process

    def wait_for(self, happened):
        while not happened():
            time.sleep(0.01)

    def start(self, script, *words, **options):
        return subprocess.Popen([sys.executable, "-I", "-S", PROGRAM, script, *words], cwd=self.folder,
                                env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **options)

    def ran(self, script, *words, given=""):
        """Returns exit status, output and errors of a script."""
        process = self.start(script, *words)
        out, err = process.communicate(given)
        return process.returncode, out, err

    def test_a_script_sees_the_same_with_and_without_the_serving_process(self):
        script = self.write("scripts/script.py", SCRIPT)
        status, alone, err = self.ran(script, "a", "b c", given="line")
        self.assertEqual((status, err), (0, "to stderr"))
        serving = self.serve()
        status, warm, err = self.ran(script, "a", "b c", given="line")
        self.assertEqual((status, err), (0, "to stderr"))
        self.assertIn(f'"serving": {serving.pid}', warm)
        self.assertEqual(warm.replace(f'"serving": {serving.pid}', f'"serving": {os.getpid()}'), alone)
        self.assertIn('"variable": "of the asker"', warm)

    def test_modules_are_imported_once(self):
        serving = self.serve()
        script = self.write("scripts/script.py", "import torch; print(torch.imported_by)")
        for _ in range(2):
            self.assertEqual(self.ran(script), (0, f"{serving.pid}\n", ""))

    def test_the_exit_status_is_the_scripts(self):
        self.serve()
        self.assertEqual(self.ran(self.write("scripts/skips.py", "import sys; sys.exit(77)"))[0], 77)
        status, _, err = self.ran(self.write("scripts/fails.py", "def fails():\n  raise ValueError('why')\nfails()"))
        self.assertEqual(status, 1)
        self.assertIn("fails.py\", line 2, in fails", err)
        self.assertIn("ValueError: why", err)
        dies = self.write("scripts/dies.py", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        self.assertEqual(self.ran(dies)[0], -signal.SIGSEGV)

    def test_unittest_finds_the_scripts_tests(self):
        self.serve()
        script = self.write("scripts/tests.py", "import unittest\nclass T(unittest.TestCase):\n"
                            "  def test_a(self): self.fail('why')\nunittest.main()")
        status, _, err = self.ran(script)
        self.assertEqual(status, 1)
        self.assertIn("test_a (__main__.T", err)
        self.assertIn("FAILED (failures=1)", err)

    def test_a_script_ends_when_its_asker_is_killed(self):
        self.serve()
        script = self.write("scripts/waits.py", "import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
        asker = self.start(script)
        self.addCleanup(asker.stderr.close)
        self.addCleanup(asker.stdin.close)
        with asker.stdout as lines:
            pid = int(lines.readline())
            asker.kill()
            asker.wait()
            self.wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists())
        self.assertEqual(self.ran(self.write("scripts/next.py", "print(1)")), (0, "1\n", ""))

    def test_scripts_run_at_the_same_time(self):
        self.serve()
        script = self.write("scripts/meets.py", "import os, sys, time\nopen(sys.argv[1], 'w').close()\n"
                            "while not os.path.exists(sys.argv[2]): time.sleep(0.01)")
        names = [str(self.folder / name) for name in "ab"]
        both = [self.start(script, *names), self.start(script, *reversed(names))]
        for process in both:
            process.communicate()
        self.assertEqual([process.returncode for process in both], [0, 0])


if __name__ == "__main__":
    unittest.main()
