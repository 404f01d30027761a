# SPDX-License-Identifier: Apache-2.0
"""Skips a script aloud (status 77) if this machine lacks something. The last lines of a test run show the sentence.

`from skips import np, torch` imports NumPy and PyTorch, or skips.
"""
import contextlib
import importlib
import os
import sys
import unittest

MODULES = {"np": "numpy", "torch": "torch"}


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


@contextlib.contextmanager
def without_modules():
    """Skips if the block cannot import a module."""
    try:
        yield
    except ImportError as error:
        skip(error)


def __getattr__(name):
    if name not in MODULES:
        raise AttributeError(name)
    with without_modules():
        return importlib.import_module(MODULES[name])


def run(device="cpu"):
    """Runs the tests of the script, without a store. Skips if attune has no such device here."""
    import attune
    os.environ["ATTUNE_STORE"] = ""
    try:
        attune.Context(device)
    except attune.Error as error:
        skip(f"no {device} target: {error}")
    unittest.main()
