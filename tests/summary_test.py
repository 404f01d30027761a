#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of summary.py on a small ctest project: every kind of end is counted, and skips that --skips does not allow
fail. Run by CTest."""
import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest

import summary

TESTS = {
    "passes": ("echo fine", "cpu"),
    "skips_without_gpu": ("echo 'SKIP: no GPU here'; exit 77", "gpu"),
    "skips_without_torch": ("echo 'SKIP: no PyTorch here'; exit 77", "cpu"),
    "skips_by_its_words": ("echo '[  SKIPPED ] Gpu.Case (0 ms)'; echo '[  PASSED  ] 0 tests.'", "gpu"),
    "skips_silently": ("exit 77", "gpu"),
    "skips_cases": (
        "echo '[  SKIPPED ] Suite.Case (0 ms)'; echo 'ok 3 links # skip no compiler'; echo 'OK (skipped=2)'", "cpu"),
    "skips_parts": ("echo 'SKIP: no Chromium here'", "cpu"),
    "fails": ("exit 1", "cpu"),
    "takes_long": ("exit 0", "full"), }


class Summary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(sample NONE)", "enable_testing()"]
        for name, (command, label) in TESTS.items():
            lines.append(f'add_test(NAME {name} COMMAND sh -c "{command}")')
            lines.append(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 LABELS {label})")
        lines.append(
            "set_tests_properties(skips_by_its_words PROPERTIES SKIP_REGULAR_EXPRESSION \"PASSED  . 0 tests\")")
        lines.append("add_test(NAME is_missing COMMAND /no/such/program)")
        (cls.root / "CMakeLists.txt").write_text("\n".join(lines))
        subprocess.run(["cmake", "-S", cls.root, "-B", cls.root / "build"], check=True, capture_output=True)

    def summary(self, *choice, skips="any"):
        """Returns the status and the lines of summary.py after a run of the tests that `choice` leaves."""
        results = self.root / "results.xml"
        subprocess.run(["ctest", "--test-dir", self.root / "build", "--output-junit", results, "-LE", "full", *choice],
                       check=False, capture_output=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = summary.main([str(self.root / "build"), str(results), "--skips", skips])
        return status, printed.getvalue().splitlines()

    def test_every_end_is_counted(self):
        status, lines = self.summary()
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "3 passed, 2 failed, 9 skipped")  # 3 tests, and 5 cases of tests that passed
        for line in ("  skips_without_gpu: no GPU here", "  skips_silently: it did not say why",
                     "  skips_cases: Suite.Case", "  skips_cases: links # skip no compiler",
                     "  skips_cases: a case of unittest (2 times)", "  skips_parts: SKIP: no Chromium here",
                     "Left out: 1 full"):
            self.assertIn(line, lines)

    def test_skips_that_are_not_allowed_fail(self):
        passing = ("-E", "fails|is_missing")
        self.assertEqual(self.summary(*passing)[0], 0)
        status, lines = self.summary(*passing, skips="gpu")
        self.assertEqual((status, lines[-2]), (1, "Skipped, though --skips is gpu: skips_without_torch"))
        self.assertEqual(self.summary("-E", "fails|is_missing|torch", skips="gpu")[0], 0)
        self.assertEqual(self.summary("-E", "fails|is_missing|torch", skips="none")[0], 1)

    def test_tests_that_were_not_chosen_are_counted(self):
        status, lines = self.summary("-R", "^passes$")
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertIn(f"Left out: 1 full, {len(TESTS) - 1} not chosen", lines)


if __name__ == "__main__":
    unittest.main()
