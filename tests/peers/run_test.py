#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests run.py on a folder of made-up tests: one for each outcome, one that ends its process, one that never ends.
Without PyTorch and pytest, says so and skips (status 77)."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

if any(importlib.util.find_spec(name) is None for name in ("torch", "pytest")):
    print("SKIP: there is no PyTorch or no pytest here")
    sys.exit(77)

RUN = pathlib.Path(__file__).resolve().parent / "run.py"
FLASHINFER = '''
import os
import signal
import time

import flashinfer
import pytest
import torch
from flashinfer.cute_dsl.utils import is_cute_dsl_available
from flashinfer.jit import MissingError
from tests.helpers.made_up import heads

Q, K = torch.randn(3, 4, 64, device="cuda"), torch.randn(5, 2, 64, device="cuda:0")


@pytest.mark.parametrize("kv_len", [1, 2, 3, 4, 5, 4096])
def test_passes(kv_len):
    assert Q.device.type == "cpu" and not is_cute_dsl_available() and issubclass(MissingError, Exception)
    assert flashinfer.prefill.single_prefill_with_kv_cache(Q, K[:kv_len], K[:kv_len]).shape == (3, heads, 64)


def test_is_refused():
    flashinfer.single_prefill_with_kv_cache(Q, K, K, kv_layout="DHN")


def test_is_wrong():
    torch.testing.assert_close(flashinfer.single_decode_with_kv_cache(Q[0], K, K), torch.zeros(4, 64))


def test_has_an_error_of_its_own():
    raise ValueError("of the test")


def test_leaves_no_device():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_calls_what_is_absent():
    flashinfer.trtllm.batch_decode()


def test_has_an_argument_that_is_absent():
    flashinfer.single_prefill_with_kv_cache(Q, K, K, no_such_argument=1)


def test_is_skipped():
    pytest.skip("for a reason")


def test_ends_its_process():
    os.abort()


def test_takes_long():
    time.sleep(1000)


def test_never_ends():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)
'''
FLASH = '''
import torch
from flash_attn import flash_attn_func
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.layers.rotary import apply_rotary_emb
from flash_attn_interface import flash_attn_varlen_func


def test_forward():
    q = torch.randn(1, 5, 2, 64).cuda()
    torch.testing.assert_close(flash_attn_func(q, q, q, causal=True)[:, :1], q[:, :1])


def test_rotary():
    x, angle = torch.randn(2, 3, 2, 16), torch.rand(9, 4)
    for interleaved in (False, True):
        y = apply_rotary_emb(x, angle.cos(), angle.sin(), interleaved, seqlen_offsets=torch.tensor([0, 4]))
        torch.testing.assert_close(y[..., 8:], x[..., 8:])
        torch.testing.assert_close(y[..., :8].norm(dim=-1), x[..., :8].norm(dim=-1))
        back = apply_rotary_emb(y, angle.cos(), -angle.sin(), interleaved, seqlen_offsets=torch.tensor([0, 4]))
        torch.testing.assert_close(back, x)
'''
CUTE = '''
import torch
from flash_attn.cute.cache_utils import JITCache
from flash_attn.cute.interface import _flash_attn_fwd, flash_attn_func
from flash_attn.cute.testing import made_up


def test_forward():
    q = torch.randn(1, 5, 2, 64, device="cuda")
    o, lse = flash_attn_func(q, q, q, window_size=(None, -1), return_lse=True)
    assert made_up() and lse.shape == (1, 2, 5)
    torch.testing.assert_close(o[:, 1], q[:, 0])


def test_private_names():
    _flash_attn_fwd.compile_cache.clear()
'''
TRANSFORMERS = '''
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SMALL = LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                    num_key_value_heads=1)


def test_eager_matches_sdpa_inference(tmp_path):
    eager = LlamaForCausalLM._from_config(SMALL, attn_implementation="eager").eval()
    eager.save_pretrained(tmp_path)
    other = LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    assert other.config._attn_implementation == "at" + "tune"
    ids = torch.randint(0, 32, (2, 9))
    torch.testing.assert_close(other(ids).logits, eager(ids).logits, rtol=1e-4, atol=1e-4)
'''


class RunTest(unittest.TestCase):
    def run_on(self, peer, text, *more):
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "flash_attn" / "cute").mkdir(parents=True)
            (pathlib.Path(place) / "flash_attn" / "cute" / "testing.py").write_text("def made_up():\n    return True\n")
            folder = pathlib.Path(place) / "tests" / "attention"
            (folder.parent / "helpers").mkdir(parents=True)
            folder.mkdir()
            (folder.parent / "helpers" / "made_up.py").write_text("heads = 4\n")
            (folder / "test_made_up.py").write_text(text)
            (folder / "test_cannot_be_read.py").write_text("import no_such_module\n")
            (folder / "conftest.py").write_text("raise ImportError('the conftest of a peer is left out')\n")
            found = subprocess.run([sys.executable, RUN, "--peer", peer, "--tests", folder, "--device", "cpu", *more],
                                   capture_output=True, text=True, check=False)
            self.assertEqual(found.stderr, "")
            return found.returncode, found.stdout

    def test_outcomes(self):
        status, text = self.run_on("flashinfer", FLASHINFER, "--longest", "100", "--seconds", "8")
        self.assertEqual(status, 1, text)
        for part in ("15 of 16 tests, 1 longer ones left out", "not collected: tests/attention/test_cannot_be_read.py",
                     "no_such_module", "passed 5  refused 1  wrong 1  error 7  skipped 1",
                     "refused 1: ValueError: kv_layout is 'DHN'", "wrong 1: AssertionError: Tensor-likes are not close",
                     "error 1: ValueError: of the test", "an illegal memory access",
                     "error 1: Absent: attune has no flashinfer.trtllm.batch_decode",
                     "unexpected keyword argument 'no_such_argument'", "error 1: the process ended with -6",
                     "error 1: took more than 16 s", "error 1: TimeoutError: took more time than --seconds",
                     "skipped 1: Skipped: for a reason", "tests/attention/test_made_up.py::test_is_wrong"):
            self.assertIn(part, text)

    def test_samples(self):
        sys.path.insert(0, str(RUN.parent))
        from session import chosen
        items = [(f"test_{letter}[{n}]", f"{letter}{n}") for letter, most in (("a", 100), ("b", 2), ("c", 30))
                 for n in range(most)]
        found = chosen(items, 1, 12)
        self.assertEqual(found, chosen(items[::-1], 1, 12))
        self.assertNotEqual(found, chosen(items, 2, 12))
        self.assertEqual(sorted(letter for letter, *_ in found), [*"aaaaabbccccc"])
        self.assertEqual(len(set(found)), 12)
        self.assertEqual(sorted(chosen(items, 1, 500)), sorted(item for _, item in items))

    def test_flash_attention(self):
        status, text = self.run_on("flash_attn3", FLASH)
        self.assertIn("passed 2  refused 0  wrong 0  error 0  skipped 0", text)
        self.assertEqual(status, 0)

    def test_flash_attention_4(self):
        status, text = self.run_on("flash_attn4", CUTE)
        self.assertIn("passed 1  refused 0  wrong 0  error 1  skipped 0", text)
        self.assertIn("error 1: Absent: attune has no flash_attn.cute.interface._flash_attn_fwd.compile_cache.clear",
                      text)
        self.assertEqual(status, 0)

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "there is no transformers here")
    def test_transformers(self):
        status, text = self.run_on("transformers", TRANSFORMERS)
        self.assertIn("passed 1  refused 0  wrong 0  error 0  skipped 0", text)
        self.assertEqual(status, 0)

    def test_folders_that_are_none(self):
        found = subprocess.run([sys.executable, RUN, "--peer", "flashinfer", "--tests", "/no/such/folder"],
                               capture_output=True, text=True, check=False)
        self.assertEqual(found.returncode, 2)
        self.assertIn("--tests is /no/such/folder; must be a folder", found.stderr)


if __name__ == "__main__":
    unittest.main()
