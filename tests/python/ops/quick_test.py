#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module of attune's Python package on NumPy's arrays. Known calls run in it; all other calls give the outcome of
the Python path, word for word. Nothing leaks, and threads, forks and the end of the process do no harm. Interpreters
and files that do not fit are refused. Skips aloud (status 77) without NumPy or the CPU target.

    quick_test.py --outcomes      prints outcomes as JSON, for the comparison"""
import gc
import importlib.machinery
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import unittest
import weakref

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import quick_cases as cases
from held_gil import gil_held_elsewhere
from quick_cases import aligned, values

import attune
from attune.core.library import module

TENSORS = {name: values(name) for name in ("q", "k", "v", "out", "lse")}
Q, K, V = (TENSORS[name] for name in "qkv")


class Sub(np.ndarray):
    pass


def variants():
    """Arrays that stand in for those of a call that is known."""
    frozen = aligned(cases.SHAPES["out"])
    frozen.flags.writeable = False
    wide = np.repeat(V, 2, axis=3)
    found = [("out", frozen), ("out", Q), ("out", aligned((2, 5, 4, 32))[..., ::2]),
             ("out", aligned((2, 6, 4, 16))[:, 1:]), ("out", None), ("out", K[:, :5])]
    for name in "qkv":
        x = TENSORS[name]
        moved = aligned(x.shape, offset=4)
        moved[...] = x
        found += [
            (name, y)
            for y in (moved, x.astype(np.float16), x.astype(np.float64), x.view(np.int32), x[0], x[:, ::-1],
                      np.asfortranarray(x), x[..., ::2], x[:, :0], x[:1], np.ma.masked_array(x, x > 0), x.view(Sub),
                      x.tolist(), None, x.astype(">f4"), np.broadcast_to(x[:1], x.shape), x.astype(object))]
    return found + [("v", wide[..., :16]), ("v", wide[..., ::2])]


def outcomes():
    found = {"scalars": cases.wrong_scalars(Q, K, V), "tensors": cases.wrong_tensors(TENSORS, variants())}
    lse = [("lse", None), ("lse", aligned((2, 4, 6))[..., :5]), ("lse", aligned((2, 4, 5), np.float64)),
           ("lse", TENSORS["out"].reshape(-1)[:40].reshape(2, 4, 5))]
    found["runs"] = cases.runs(TENSORS, [
        (name, x) for name, x in variants() if not (name == "out" and (x is None or not x.flags.writeable))] + lse)
    for name, choices in cases.features(lambda array: array).items():
        call = lambda choices=choices: cases.outcome(attune.attention, Q, K, V, **choices)
        found[name] = [call() for _ in range(3)]
        for keyword, value in choices.items():
            if isinstance(value, np.ndarray):
                off = aligned(value.shape, value.dtype, 1)  # its elements are not aligned
                off[...] = value
                for wrong in (value[..., :1], value[None], value.astype(
                        np.float64), value.copy(order="F"), off, value[..., ::-1]):
                    found[name] += [cases.outcome(attune.attention, Q, K, V, **{**choices, keyword: wrong}), call()]
    return found


class Counted:
    """How many calls ran in the module inside the scope."""

    def __enter__(self):
        self.before = module.counters()
        return self

    def __exit__(self, *_):
        self.hits, self.misses, self.kept = (module.counters()[name] - self.before[name]
                                             for name in ("hits", "misses", "kept"))


class QuickTest(unittest.TestCase):
    def test_known_calls_run_in_the_module(self):
        for name, choices in cases.features(lambda array: array).items():
            with self.subTest(name):
                first = attune.attention(Q, K, V, **choices)
                with Counted() as counted:
                    for _ in range(3):
                        self.assertEqual(cases.digest(attune.attention(Q.copy(), k=K, v=V.copy(), **choices)),
                                         cases.digest(first))
                self.assertEqual((counted.hits, counted.misses), (3, 0))

    def test_runs_and_launchers(self):
        plan, out, lse = attune.Context("cpu:1", store="").plan(cases.PROBLEM), aligned(cases.SHAPES["out"]), aligned(
            cases.SHAPES["lse"])
        want = attune.attention(Q, K, V, return_lse=True)
        launch = plan.launcher(Q, K, V, out)
        for call in (lambda: plan.run(Q, K, V, out), lambda: plan.run(Q, K, v=V, o=out, lse=lse), launch):
            call()
            out[...] = 0
            with Counted() as counted:
                self.assertIsNone(call())
            np.testing.assert_array_equal(out, want[0])
            self.assertEqual(counted.misses, 0)
        np.testing.assert_array_equal(lse, want[1])
        with self.assertRaisesRegex(TypeError, "run.* missing 1 required positional argument: 'o'"):
            plan.run(Q, K, V)

    def test_outcomes_equal_those_of_the_python_path(self):
        known, checked = cases.of_children(__file__, "-X", "dev")
        self.assertEqual(known.keys(), checked.keys())
        for name, found in known.items():
            for i, (ours, theirs) in enumerate(zip(found, checked[name])):
                self.assertEqual(ours, theirs, f"{name}, outcome {i}")
            self.assertTrue(any("Error" not in text for text in found), f"{name}: nothing runs: {found[0]}")
        self.assertGreater(sum("Error" in text for text in known["tensors"]), 50)  # wrong calls are refused

    def test_new_memory_is_read_at_each_call(self):
        """Same shapes, other arrays: nothing of a call but what it depends on is kept."""
        for seed in range(4):
            q, k, v = (values(f"{name}{seed}", cases.SHAPES[name]) for name in "qkv")
            bias = values(f"bias{seed}", (4, 5, 7))
            quick = attune.attention(q, k, v, bias=bias)
            np.testing.assert_array_equal(quick, attune.ops.attention._checked(q, k, v, bias=bias)[0])

    def test_contexts_and_plans_end_with_their_last_reference(self):
        context = attune.Context("cpu:1", store="")
        for _ in range(3):
            attune.attention(Q, K, V, context=context)
        plan = context.plan(cases.PROBLEM)
        for _ in range(3):
            plan.run(Q, K, V, TENSORS["out"])
        gone = [weakref.ref(context), weakref.ref(plan)]
        gc.disable()
        try:
            del context, plan
            self.assertEqual([ref() for ref in gone], [None, None])
        finally:
            gc.enable()

    def test_nothing_leaks(self):
        documents, out = cases.features(lambda array: array)["documents"]["documents"], TENSORS["out"]
        plan = attune.Context("cpu:1", store="").plan(cases.PROBLEM)
        calls = [
            lambda: attune.attention(Q, K, V, return_lse=True),
            lambda: attune.attention(Q, K, V, documents=documents, window=(3, 1)),
            lambda: attune.attention(Q, K, V, out=out, context="cpu:1"), lambda: plan.run(Q, K, V, out),
            plan.launcher(Q, K, V, out), lambda: cases.outcome(attune.attention, Q, K, V[:, 1:]),
            lambda: plan.launcher(Q, K, V, out)()]
        for call in calls:
            call(), call()
            objects = [
                Q, K, V, out, *documents, attune.attention, *((None, False) if sys.version_info < (3, 12) else
                                                              ())]  # later they do not count
            gc.collect()
            counts = [sys.getrefcount(x) for x in objects]
            tracemalloc.start()
            taken = []
            for _ in range(3):  # memory that a turn keeps once is not a leak
                for _ in range(500):
                    call()
                gc.collect()
                taken.append(tracemalloc.take_snapshot())
            tracemalloc.stop()
            grown = [
                {str(line.traceback)
                 for line in after.compare_to(before, "lineno")
                 if line.count_diff > 100}  # in blocks: tables grow by one at times
                for before, after in zip(taken, taken[1:])]
            self.assertEqual(set.intersection(*grown), set(), calls.index(call))
            for x, count in zip(objects, counts):
                self.assertLess(abs(sys.getrefcount(x) - count), 100, repr(x)[:40])

    def test_tables_are_bounded(self):
        table, want, long = module.Table(8), [], values("q", (2, 30, 4, 16))
        signature = attune.ops.quick.parameters_of(attune.ops.attention._checked)
        call = module.function("attention", "", *signature[:2], signature[2], signature[3],
                               signature[0].index("context"), attune.ops.attention._checked, table)
        for turn in range(3):
            for rows in range(1, 30):
                found = cases.digest(call(long[:, :rows], K, V))
                if turn == 0:
                    want.append(found)
                self.assertEqual(found, want[rows - 1])
                self.assertLessEqual(len(table), 8)
        with Counted() as counted:
            for rows in range(22, 30):
                call(long[:, :rows], K, V)
        self.assertEqual(counted.hits, 8)  # the most recently used
        table.clear()
        self.assertEqual(len(table), 0)
        for wrong in (0, -1, 1 << 40):
            with self.assertRaises((ValueError, OverflowError)):
                module.Table(wrong)

    def test_threads(self):
        for holds in (False, True):
            with self.subTest(gil_held_elsewhere=holds), gil_held_elsewhere(holds):
                self.threads()

    def threads(self):
        shapes = [(1 + i % 3, 4 + i, 4, 16) for i in range(16)]
        want, wrong = {}, []
        for shape in shapes:
            q = values("q", shape)
            want[shape] = q, attune.ops.attention._checked(q, q, q, mask="causal")[0]

        def work(shape):
            q, expected = want[shape]
            for i in range(100):
                other = want[shapes[i % 16]]
                if not ((attune.attention(q, q, q, mask="causal") == expected).all() and
                        (attune.attention(*3 * other[:1], mask="causal") == other[1]).all()):
                    wrong.append(shape)
        threads = [threading.Thread(target=work, args=(shape,)) for shape in shapes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_fork_computes(self):
        plan, out = attune.Context("cpu:1", store="").plan(cases.PROBLEM), aligned(cases.SHAPES["out"])
        plan.run(Q, K, V, out)
        want = out.copy()
        child = os.fork()
        if child == 0:
            out[...] = 0
            before = module.counters()["hits"]
            plan.run(Q, K, V, out)
            os._exit(0 if (out == want).all() and module.counters()["hits"] == before + 1 else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_calls_while_the_process_ends(self):
        program = """
import atexit, sys, threading, numpy as np, attune
x = np.zeros((1, 8, 2, 16), np.float32)
class Late:
    def __del__(self): attune.attention(x, x, x, context="cpu:1")
late = [Late()]; late.append(late)
sys.late = Late()
atexit.register(attune.attention, x, x, x, context="cpu:1")
def forever():
    while True: attune.attention(x, x, x, context="cpu:1")
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
for _ in range(50): attune.attention(x, x, x, context="cpu:1")
"""
        # With known calls, and with Python checking each. Kernels are recompiled, which the end of a process must not
        # interrupt.
        for before in ("", "import quick_cases\nquick_cases.check_every_call()\n"):
            child = subprocess.run([sys.executable, "-X", "dev", "-c", before + program],
                                   env={**os.environ, "ATTUNE_STORE": ""}, stderr=subprocess.PIPE, text=True,
                                   check=False, timeout=120)
            self.assertEqual(child.returncode, 0, child.stderr)

    def test_errors_of_the_library(self):
        plan = attune.Context("cpu:1", store="").plan(cases.PROBLEM)
        launch = module.launcher(-1, plan.handle, module.Operands(), 0, 0, None, plan)
        with self.assertRaisesRegex(attune.Error, "q is a null pointer"):
            launch()
        with self.assertRaisesRegex(TypeError, "must be of type Operands"):
            module.launcher(-1, plan.handle, 0, 0, 0, None, plan)

    def test_recipes_that_do_not_fit_are_refused(self):
        """Values from Python are checked before use: a mistake is an exception, never a stray write."""
        blob = bytes(64)
        good = (None, 1, -1, 0, 0, -1, blob, (), ((0, (8,), 0, 0),), (), ())
        wrong = [
            good[:-1], (*good[:8], ((3, (8, ), 0, 0), ), (), ()), (*good[:8], ((0, (60, ), 0, 0), ), (), ()),
            (*good[:8], ((0, (-8, ), 0, 0), ), (), ()), (*good[:7], ((0, 64), ), (), (), ()),
            (*good[:7], ((0, ), ), (), (), ()), (*good[:9], ((((print, ()), ), (99, ), 4), ), ()),
            (*good[:9], (((), (), 4), ), ()), (*good[:9], ((((print, ()), ) * 3, (), 4), ), ()),
            (*good[:9], ((((print, []), ), (), 4), ), ()), (*good[:10], (1, )), (*good[:10], (-1, )),
            (*good[:6], bytes(1 << 16), (), (), (), ()), 5, (*good[:8], (None, ), (), ())]
        said, before = [], sys.unraisablehook
        sys.unraisablehook = lambda what: said.append(what.exc_type)
        try:
            for recipe in wrong:
                table = module.Table(4)
                call = module.function("f", "", ("x", "context"), (None, ), 1, 2, 1, lambda *_, recipe=recipe:
                                       (7, lambda: recipe), table)
                self.assertEqual(call(Q), 7)
                self.assertEqual(len(table), 0)
        finally:
            sys.unraisablehook = before
        self.assertEqual(len(said), len(wrong))

    def said(self, program, **environment):
        child = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, check=False,
                               stderr=subprocess.PIPE, text=True)
        self.assertNotEqual(child.returncode, 0)
        return child.stderr

    def test_pythons_without_a_stable_abi_are_refused(self):
        for hidden in ("importlib.machinery.EXTENSION_SUFFIXES.remove('.abi3.so')", "sys.implementation.name = 'pypy'"):
            self.assertRegex(
                self.said(f"import importlib.machinery, sys; {hidden}; import attune"),
                "ImportError: this Python is (cpython|pypy) without .* stable ABI; attune needs CPython 3.10 or later")

    def test_free_threaded_pythons_need_a_module_of_their_own(self):
        suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
        found = self.said("import sys; sys.abiflags = 't'; import attune")
        self.assertRegex(found, f"ImportError: _attune{re.escape(suffix)} is missing; must be in .*python3-dev")

    def test_files_that_do_not_fit_are_named(self):
        """A library without its module; one that is no libattune.so; a module of another version."""
        own = pathlib.Path(attune.core.library.LIBRARY_PATH).resolve()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(own, folder / "libattune.so")
            library = str(folder / "libattune.so")
            self.assertRegex(self.said("import attune", ATTUNE_LIBRARY=library),
                             f"ImportError: _attune.* is missing; must be in .* or next to {library}")
            shutil.copy(module.__file__, folder)
            shutil.copy(module.__file__, folder / "libattune.so")
            self.assertRegex(self.said("import attune", ATTUNE_LIBRARY=library),
                             f"ImportError: {library} has no attune_.*; must be of this module's version of attune")
            package = pathlib.Path(attune.__file__).parent
            shutil.copytree(package, folder / "attune", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            text = (folder / "attune/core/library.py").read_text()
            revision = f"MODULE_REVISION = {attune.core.library.MODULE_REVISION}"
            self.assertIn(revision, text)
            (folder / "attune/core/library.py").write_text(text.replace(revision, "MODULE_REVISION = 0"))
            self.assertRegex(self.said("import attune", ATTUNE_LIBRARY=str(own), PYTHONPATH=name),
                             r"ImportError: .*_attune.* has revision \d+, and this package needs 0")

    def test_the_module_starts_again(self):
        """After a failed import, and for a package that is imported anew; objects of before still work."""
        program = """
import os, sys
own, os.environ["ATTUNE_LIBRARY"] = os.environ["ATTUNE_LIBRARY"], "/nowhere/libattune.so"
try:
    import attune
except ImportError:
    pass
def forget():
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "attune"}
forget()
os.environ["ATTUNE_LIBRARY"] = own
import attune, numpy
first, kept = attune, forget()
import attune
assert attune is not first
q = numpy.random.default_rng(1).random((1, 3, 2, 16), "float32")
expected = attune.attention(q, q, q)
forget()
sys.modules.update(kept)
for rows in (3, 2):
    assert abs(first.attention(q[:, :rows], q, q) - expected[:, :rows]).max() < 1e-6
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=100,
                       env={**os.environ, "ATTUNE_LIBRARY": attune.core.library.LIBRARY_PATH})

    def test_other_interpreters_are_refused(self):
        program = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        sys.exit(77)
import attune
made = interpreters.create()
failure = interpreters.run_string(made, "import attune")
sys.exit(str(failure))
"""
        child = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
        if child.returncode == 77:
            self.skipTest("this Python makes no interpreters")
        self.assertRegex(child.stderr, "serves only the main interpreter|does not support loading in subinterpreters")


if __name__ == "__main__":
    folder = cases.begin(outcomes)
    unittest.main()
