#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""why(), tune() and tune_on_first_use() on the CPU target, with a store of their own and budgets of seconds. Skips
aloud (status 77) without NumPy or the CPU target."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import attune
from attune.tools import tune as _tune, why as _why

TARGET = "cpu:1"
SMALL = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2,
    "num_key_value_heads": 1, "torch_dtype": "float32", "max_position_embeddings": 64}


def operands(seqlen=20, head_dim=32):
    drawn = np.random.default_rng(1).standard_normal((3, 1, seqlen, 2, head_dim), dtype=np.float32)
    return drawn[0], np.ascontiguousarray(drawn[1][:, :, :1]), np.ascontiguousarray(drawn[2][:, :, :1])


def bent(score, b, h, q_idx, kv_idx):
    return score - 0.01 * (q_idx - kv_idx) * (q_idx - kv_idx)


class WithStore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        locks = unittest.mock.patch.dict(os.environ, ATTUNE_LOCKS=folder.name)  # no waiting for others' tunes
        locks.start()
        self.addCleanup(locks.stop)
        self.store = os.path.join(folder.name, "private", "store.db")
        os.mkdir(os.path.dirname(self.store), 0o700)
        self.context = attune.Context(TARGET, store=self.store)


class Failure(unittest.TestCase):
    def test_an_error_names_itself_once_whichever_stream_tells_it(self):
        process = types.SimpleNamespace(returncode=1)
        told = {
            "schema": "attune.error/1", "error": {
                "code": "invalid argument", "message": "heads is 0; must be at least 1", "exit_code": 1}}
        for output, errors in ((json.dumps(told), None), (json.dumps(told), "attune: note: busy\nattune: heads is 0"),
                               ("", "attune: heads is 0; must be at least 1\n")):
            with self.assertRaises(attune.Error) as caught:
                _tune.report(process, output, errors)
            self.assertTrue(
                str(caught.exception).endswith("attune tune: heads is 0; must be at least 1"), caught.exception)


class Serving(WithStore):
    def test_a_model_is_tuned_for_an_engine(self):
        report = attune.tune(SMALL, serving=True, batch=1, kv_lengths=64, page_size=16, max_batch_tokens=16,
                             dtype="fp32", target=TARGET, store=self.store, effort="quick", budget_s=60, progress=False)
        problems = [shape["problem"] for shape in report.shapes]
        self.assertTrue(any("op=attention_kvcache" in text and "page_size=16" in text for text in problems), problems)
        self.assertTrue(any("op=append_kv" in text for text in problems), problems)
        self.assertEqual(report.failures, {})
        self.context.reload()
        decode = next(text for text in problems if "seqlen_q=1," in text and "packed_q" not in text)
        self.assertEqual(self.context.plan(decode).rung, "exact")

    def test_choices_are_refused_without_serving(self):
        for name, value in (("kv_lengths", [64]), ("page_size", 16), ("max_batch_tokens", 8), ("kv_dtype", "e4m3")):
            with self.assertRaisesRegex(ValueError, f"{name} is given without serving"):
                attune.tune(SMALL, **{name: value}, target=TARGET, store=self.store)
        with self.assertRaisesRegex(ValueError, "kv_lengths is 0"):
            attune.tune(SMALL, serving=True, kv_lengths=0, target=TARGET, store=self.store)


class Why(WithStore):
    def test_names_kernel_rung_and_the_others(self):
        found = attune.why(*operands(), "causal", softcap=30.0, context=self.context)
        self.assertEqual((found.rung, found.kernel_template, found.tuned, found.error),
                         ("default_config", "prefill_cpu", False, None))
        self.assertIn("cp.async", found.reasons["prefill_sm80"])
        self.assertIsNone(found.reasons["prefill_cpu"])
        text = str(found)
        for part in ("kernel     prefill_cpu", "rung       default_config", "softcap=30", "prefill_sm80: ", "advice "):
            self.assertIn(part, text)
        self.assertNotIn("op is prefill", text)

    def test_programs(self):
        """The advice once was to tune the problem without its programs."""
        program = lambda score, b, h, q_idx, kv_idx: score * 0.5
        found = attune.why(*operands(), score_mod=program, context=self.context)
        self.assertIn("attune.tune_on_first_use() measures the kernels for calls with this score_mod", str(found))
        self.assertNotIn("attune.tune('", str(found))
        blocks = attune.block_map.from_blocks(np.ones((1, 1, 1, 1), bool), 64, 64, 20, 20)
        self.assertNotIn("advice", str(attune.why(*operands(), block_map=blocks, context=self.context)))

    def test_advice_is_for_this_context(self):
        """The advice once named neither target nor store, and said to tune what only the reference serves."""
        text = str(attune.why(*operands(), context=self.context))
        self.assertRegex(text, f"attune.tune\\('.*', target='{TARGET}', store='{self.store}'\\) measures the kernels")
        told = text.partition("attune.tune(")[2].partition(") measures")[0]
        eval(f"attune.tune({told}, effort='quick', budget_s=2)", {"attune": attune})
        self.assertEqual(attune.why(*operands(), context=self.context).rung, "exact")
        without = attune.Context(TARGET, store="")
        self.assertIn("advice     give the context a store", str(attune.why(*operands(), context=without)))
        plan = types.SimpleNamespace(rung="reference", explain=lambda: "")
        self.assertIn("tuning changes nothing", str(_why.Why("a=1", plan, None, {}, (), self.context)))

    def test_says_so_where_no_kernel_is_to_be_had(self):
        strict = attune.Context(TARGET, store=self.store, policy="strict")
        found = attune.why(*operands(), mask_tensor=np.ones((20, 20), bool), context=strict)
        self.assertIsNone(found.plan)
        self.assertIn("policy strict allows no kernel", found.error)
        self.assertIn("mask_tensor=1", found.problem)
        self.assertIn("kernel     none", str(found))
        self.assertIsNone(found.reasons["reference_cpu"])

    def test_refuses_what_attention_refuses(self):
        q, k, v = operands()
        with self.assertRaisesRegex(ValueError, "mask is 'diagonal'"):
            attune.why(q, k, v, "diagonal", context=self.context)
        with self.assertRaisesRegex(TypeError, "multiple values for argument .mask."):
            attune.why(q, k, v, "none", mask="none")
        with self.assertRaisesRegex(TypeError, "why\\(\\) takes from 3 to 8 positional arguments"):
            attune.why(q, k, v, None, None, None, None, False, False)


class RefusedStore(WithStore):
    def test_a_named_one_is_said_once_a_process(self):
        """Python sets no log function, so the line goes to stderr, from either way of naming a store."""
        with open(self.store, "wb") as file:
            file.write(b"anything")
        os.chmod(self.store, 0o666)
        code = f"import attune; [attune.Context('cpu:1', store=store) for store in (None, {self.store!r})]"
        ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "ATTUNE_STORE": self.store},
                             capture_output=True, text=True, check=True)
        self.assertEqual(ran.stderr.count("AT106: "), 1, ran.stderr)
        self.assertIn(f"store {self.store}: its file {self.store} has mode 0666, so others can write it", ran.stderr)


class Tune(WithStore):
    def test_a_problem_and_the_contexts_that_are_open(self):
        q, k, v = operands()
        held = attune.prepare(attune.attention, q, k, v, context=self.context)
        want = attune.attention(q, k, v, context=self.context)
        done = attune.tune("dtype=fp32,head_dim=32,heads=2/1,seqlen=20", target=TARGET, store=self.store,
                           effort="quick", budget_s=2)
        self.assertEqual(len(done.shapes), 1)
        self.assertEqual(done.shapes[0]["winner"]["template"], "prefill_cpu")
        self.assertEqual(done.store, self.store)
        self.assertIn("1 of 1 problems tuned", str(done))
        self.assertEqual(attune.why(q, k, v, context=self.context).rung, "exact")
        self.assertEqual(held.rung, "default_config")  # and still runs
        np.testing.assert_allclose(attune.attention(q, k, v, context=self.context), want, atol=2e-5)
        out = np.zeros_like(q)
        held.run(q, k, v, out)
        np.testing.assert_allclose(out, want, atol=2e-5)

    def test_what_can_be_tuned_is_though_another_cannot(self):
        """Such a call once raised, and open contexts kept the default."""
        q, k, v = operands()
        self.assertEqual(attune.why(q, k, v, context=self.context).rung, "default_config")
        problem = "dtype=fp32,head_dim=32,heads=2/1,seqlen=20"
        slow = ("op=attention_backward,dtype=fp32,head_dim=32,heads=2,seqlen=16,mask=none,alibi=1,"
                "score_gradient=alibi")
        done = attune.tune([problem, slow], target=TARGET, store=self.store, effort="quick")
        (failed, sentence), = done.failures.items()
        self.assertIn("score_gradient=alibi", failed)
        self.assertIn("only the reference kernel serves", sentence)
        self.assertEqual((done.complete, sum(shape["winner"] is not None for shape in done.shapes)), (True, 1))
        self.assertEqual(attune.why(q, k, v, context=self.context).rung, "exact")
        with self.assertRaisesRegex(attune.Error, "score_gradient=alibi.*only the reference kernel serves") as caught:
            attune.tune(slow, target=TARGET, store=self.store, effort="quick")
        self.assertEqual(caught.exception.status, "unsupported")

    def test_models_become_the_programs_arguments(self):
        class Config:
            def to_dict(self):
                return SMALL

        class Model:
            config = Config()

        with tempfile.TemporaryDirectory() as folder:
            for model in (SMALL, Config(), Model()):
                path, = _tune.workload(model, folder)
                self.assertEqual(json.loads(pathlib.Path(path).read_text()), SMALL)
            self.assertEqual(_tune.workload("dtype=fp32,heads=1", folder), ["--problem", "dtype=fp32,heads=1"])
            self.assertEqual(_tune.workload(["a=1", "b=2"], folder), ["--problem", "a=1", "--problem", "b=2"])
            self.assertEqual(_tune.workload(pathlib.Path(path), folder), [path])
            self.assertEqual(_tune.options("quick", None, None, None, training=True, deterministic=True),
                             ["--effort", "quick", "--training", "--deterministic"])
            self.assertEqual(_tune.options("quick", None, None, None), ["--effort", "quick"])
            for wrong in (3, None, object()):
                with self.assertRaisesRegex(TypeError, "must be a transformers config or model"):
                    _tune.workload(wrong, folder)
            for wrong in ([], ["config.json"], [1]):
                with self.assertRaisesRegex(ValueError, "must be a list of at least one problem text"):
                    _tune.workload(wrong, folder)

    def test_a_model(self):
        done = attune.tune(SMALL, seqlen=16, dtype="fp32", target=TARGET, store=self.store, effort="quick", budget_s=2)
        self.assertEqual({shape["problem"].partition(",batch")[0]
                          for shape in done.shapes}, {"dtype=fp32,head_dim=32,heads=2/1"})

    def test_wrong_words(self):
        for keywords, words in (({"effort": "hard"}, "effort is 'hard'; must be one of quick, normal, exhaustive"), ({
                "budget_s": 0}, "budget_s is 0; must be seconds above 0"), ({"budget_s": True}, "budget_s is True"), ({
                    "seqlen": 0}, "seqlen is 0; must be a whole number"), ({
                        "batch": []}, "batch is \\[\\]; must be")):
            with self.assertRaisesRegex(ValueError, words):
                attune.tune("dtype=fp32,head_dim=32,heads=1,seqlen=8", store=self.store, **keywords)
        with unittest.mock.patch.dict(os.environ, ATTUNE_STORE=""), self.assertRaisesRegex(
                ValueError, "so the winners cannot be kept"):
            attune.tune("dtype=fp32,head_dim=32,heads=1,seqlen=8")
        with self.assertRaisesRegex(attune.Error, "head_dim_qk is 7; must be a multiple of 8") as caught:
            attune.tune("dtype=fp32,head_dim=7,heads=1,seqlen=8", target=TARGET, store=self.store)
        self.assertEqual(caught.exception.status, "invalid_argument")


class FirstUse(WithStore):
    def test_beside_what_runs(self):
        q, k, v = operands()
        with tempfile.TemporaryDirectory(suffix=",a") as folder, unittest.mock.patch.object(
                tempfile, "tempdir", folder):
            first_use = attune.tune_on_first_use(
                budget_s=20)  # a comma would end the name of a program's file in a problem's text
        with first_use:
            with self.assertRaisesRegex(RuntimeError, "is on already"):
                attune.tune_on_first_use()
            self.assertFalse(first_use.step())
            want = attune.attention(q, k, v, score_mod=bent, context=self.context)
            attune.attention(q, k, v, score_mod=bent, context=self.context)
            attune.attention(q, k, v, context=attune.Context(TARGET, store=""))  # nowhere to keep it
            self.assertTrue(first_use.wait(250))
            self.assertEqual((len(first_use.done), first_use.failures), (1, {}))
            self.assertEqual(attune.why(q, k, v, score_mod=bent, context=self.context).rung,
                             "default_config")  # not within a step
            self.assertTrue(first_use.step())
            self.assertEqual(attune.why(q, k, v, score_mod=bent, context=self.context).rung, "exact")
            np.testing.assert_allclose(attune.attention(q, k, v, score_mod=bent, context=self.context), want, atol=2e-5)
            self.assertFalse(first_use.step())
        attune.attention(*operands(seqlen=9), context=self.context)
        self.assertEqual(first_use.waiting, [])

    def test_between_steps_and_no_longer_than_the_budget(self):
        with attune.tune_on_first_use(budget_s=1.5, between_steps=True) as first_use:
            for seqlen in (11, 70):
                attune.attention(*operands(seqlen), context=self.context)
            self.assertEqual((len(first_use.waiting), threading.active_count()), (2, 1))
            for _ in range(4):
                first_use.step()
            if os.environ.get("ATTUNE_TEST_TIMING") == "1":
                self.assertLess(first_use.spent_s, 1.5 + 6)  # a process that hangs is ended 5 s later
            self.assertGreaterEqual(len(first_use.done), 1)

    def test_not_in_a_capture_and_not_in_a_fork(self):
        class Module:
            def register_forward_pre_hook(self, hook):
                self.hook = hook

        cuda = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                                     is_current_stream_capturing=lambda: True)
        module = Module()
        with attune.tune_on_first_use(budget_s=20) as first_use:
            first_use.attach(module)
            attune.attention(*operands(seqlen=12), context=self.context)
            self.assertTrue(first_use.wait(250))
            with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)):
                self.assertIsNone(module.hook(module, ()))
                self.assertFalse(first_use.step())
            child = os.fork()
            if child == 0:
                attune.attention(*operands(seqlen=13), context=self.context)
                os._exit(1 if first_use.step() or len(first_use._seen) != 1 else 0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(attune.why(*operands(seqlen=12), context=self.context).rung, "default_config")
            self.assertIsNone(module.hook(module, ()))
            self.assertEqual(attune.why(*operands(seqlen=12), context=self.context).rung, "exact")

    def test_the_end_of_python_ends_it(self):
        code = ("import attune, numpy as np, sys\n"
                f"context = attune.Context({TARGET!r}, store=sys.argv[1])\n"
                "first_use = attune.tune_on_first_use(budget_s=1000, effort='exhaustive')\n"
                "x = np.ones((1, 200, 1, 64), np.float32)\n"
                "attune.attention(x, x, x, context=context)\n"
                "import time\n"
                "while first_use._process is None: time.sleep(0.01)\n"
                "time.sleep(float(sys.argv[2])); print(first_use._process.pid)\n")
        for delay_s in (0, 0.3):
            done = subprocess.run(
                [sys.executable, "-c", code, self.store, str(delay_s)], capture_output=True, text=True, timeout=60,
                check=True)
            self.assertEqual(done.stderr, "")
            self.assertFalse(pathlib.Path(f"/proc/{int(done.stdout)}").exists())

    def test_wrong_words(self):
        for keywords, words in (({"budget_s": -1}, "budget_s is -1"), ({"budget_s": None}, "budget_s is None"), ({
                "effort": "x"}, "effort is 'x'"), ({"between_steps": 1}, "between_steps is 1; must be True or False")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.tune_on_first_use(**keywords)


if __name__ == "__main__":
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
