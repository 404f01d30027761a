#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that faults.txt fits the sources and the tests of a build tree, and that faults.py restores what it changes.
Run by CTest: faults_test.py BUILD.
"""
import collections
import pathlib
import sys
import tempfile
import unittest

import faults

FAULTS = faults.read_faults(faults.LIST.read_text())


class List(unittest.TestCase):
    def test_each_layer_has_six(self):
        self.assertEqual(collections.Counter(map(faults.layer_of, FAULTS)), dict.fromkeys(faults.LAYERS, 6))
        self.assertEqual(len({fault.name for fault in FAULTS}), len(FAULTS))

    def test_old_texts_stand_once(self):
        for fault in FAULTS:
            text = (faults.ROOT / fault.path).read_text()
            self.assertEqual(text.count(fault.old), 1, f"{fault.name}: how often {fault.path} has its old text")
            self.assertNotEqual(fault.old, fault.new, fault.name)

    def test_tests_are_known(self):
        tests = faults.tests_of(pathlib.Path(BUILD))
        for fault in FAULTS:
            self.assertTrue(faults.named(fault, tests), f"{fault.name}: no test is called {fault.tests}")


class Planting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.file = self.root / "a.txt"
        self.file.write_text("one\ntwo\ntwo\n")
        faults.git(self.root, "init", "-q")
        faults.git(self.root, "add", "a.txt")

    def test_a_file_is_restored_after_an_exception(self):
        fault = faults.Fault("name", "a.txt", "test", "one\n", "ONE\n")
        with self.assertRaises(KeyboardInterrupt), faults.planted(self.root, fault):
            self.assertEqual(self.file.read_text(), "ONE\ntwo\ntwo\n")
            raise KeyboardInterrupt
        self.assertEqual(self.file.read_text(), "one\ntwo\ntwo\n")

    def test_a_text_that_stands_twice_is_refused(self):
        fault = faults.Fault("name", "a.txt", "test", "two", "2")
        with self.assertRaisesRegex(ValueError, "2 times; must be once"), faults.planted(self.root, fault):
            self.fail("it was planted")

    def test_only_a_failed_test_catches(self):
        self.assertEqual(faults.verdict({"a": "fail", "b": "fail"}), "caught")
        self.assertEqual(faults.verdict({"a": "fail", "b": "run"}), "NOT CAUGHT (b: passed)")
        self.assertEqual(faults.verdict({"a": "notrun"}), "NOT CAUGHT (a: skipped)")
        self.assertEqual(faults.verdict({}), "NOT CAUGHT (no test ran)")

    def test_the_format(self):
        self.assertEqual(
            faults.read_faults("# a comment\n\nname a.cpp x_test\n-  a;\n-  b;\n+  c;\n\n\nother b.py y\n-d\n+\n"),
            [faults.Fault("name", "a.cpp", "x_test", "  a;\n  b;", "  c;"),
             faults.Fault("other", "b.py", "y", "d", "")])


if __name__ == "__main__":
    BUILD = sys.argv.pop()
    unittest.main()
