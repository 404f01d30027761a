#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that are not UTF-8 in the environment, in paths and in texts: each error is a message of attune without foreign
bytes. Also paths of the wrong type. Needs only the CPU target's library."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import attune

VARIABLES = ("POLICY", "TRUST", "PIN", "NO_JIT", "LOG", "CHECK_WORKSPACE", "BUNDLE")


def said(code, **environment):
    """Returns what a new Python process prints on stderr, as bytes."""
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, **environment), capture_output=True,
                          timeout=60, check=False)
    return done.stderr


class ForeignBytesTest(unittest.TestCase):

    def test_variables(self):
        for name in VARIABLES:
            with self.subTest(name):
                found = said("import attune; attune.Context('cpu:1', store='')", **{
                    f"ATTUNE_{name}": os.fsdecode(b"/\xff\x1b")})
                self.assertNotIn(b"Unicode", found)
                self.assertNotIn(b"\xff", found)
                self.assertNotIn(b"\x1b", found)

    def test_paths_of_any_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            store = os.path.join(folder, os.fsdecode(b"\xff.sqlite"))
            for path in (store, pathlib.Path(store), os.fsencode(store)):
                attune.Context("cpu:1", store=path)
            for name in ("pin", "bundles"):
                path = store + ".none"
                with self.subTest(name), self.assertRaisesRegex(attune.Error, r"\?\.sqlite\.none"):
                    attune.Context("cpu:1", store="", **{name: [path] if name == "bundles" else path})

    def test_texts(self):
        with self.assertRaisesRegex(attune.Error, r"dtype is \"\?\""):
            attune.Context("cpu:1", store="").plan("dtype=\udcff")
        with self.assertRaisesRegex(attune.Error, "target"):
            attune.Context("cpu:\udcff", store="")

    def test_paths_of_other_types(self):
        for name, given in (("store", 5), ("pin", 1.5), ("capture_file", []), ("bundles", [7])):
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"{name} is of type .*; must be a path"):
                attune.Context("cpu:1", **{name: given})
        with self.assertRaisesRegex(ValueError, "store is .*; must not hold a NUL"):
            attune.Context("cpu:1", store="a\0b")

    def test_a_library_that_is_not_a_regular_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "libattune.so")
            os.mkfifo(fifo)
            self.assertIn(b"is not a regular file", said("import attune", ATTUNE_LIBRARY=fifo))


if __name__ == "__main__":
    unittest.main()
