# SPDX-License-Identifier: Apache-2.0
"""Valid and wrong calls, made after calls that the C module knows. Each outcome is a text: the raised error, or a
digest of the results. quick_test.py and quick_torch_test.py compare these outcomes with those of a process in which
Python checks every call."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import attune
from attune.core.library import module

SHAPES = {"q": (2, 5, 4, 16), "k": (2, 7, 2, 16), "v": (2, 7, 2, 16), "out": (2, 5, 4, 16), "lse": (2, 4, 5)}
PROBLEM = "dtype=fp32,head_dim=16,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=7"
SCALES = {"scale": 0.3}


def use_a_store():
    """So that each kernel is compiled once: the store that there is, which the tests of these calls share, or one of
    this process and its children. What it returns must live as long."""
    if os.environ.get("ATTUNE_STORE"):
        return None
    folder = tempfile.TemporaryDirectory()
    os.environ["ATTUNE_STORE"] = os.path.join(folder.name, "store.db")
    return folder


def begin(outcomes):
    """Prepares both tests: a store, the CPU or a skip (77), and for their children's `--outcomes` these as JSON, with
    the number of calls that ran in the C module. With `checked` behind it Python checks every call. Returns what
    use_a_store() does."""
    folder = use_a_store()
    try:
        attune.Context("cpu")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    if sys.argv[1:2] == ["--outcomes"]:
        if sys.argv[2:] == ["checked"]:
            check_every_call()
        print(json.dumps([outcomes(), module.counters()["hits"]]))
        sys.exit(0)
    return folder


def check_every_call():
    """The C module knows no type of argument from here on, so all calls take the Python path."""
    module.set_probe(lambda of: None)


def of_children(script, *options):
    """Returns the script's outcomes with known calls, and with Python checking every call, each of a process of its
    own."""
    found = []
    for ways in ((), ("checked", )):
        child = subprocess.run([sys.executable, *options, script, "--outcomes", *ways], stdout=subprocess.PIPE,
                               check=True, text=True)
        outcomes, hits = json.loads(child.stdout)
        assert (hits == 0) == bool(ways), f"{hits} calls ran in the C module {ways}"
        found.append(outcomes)
    return found


def aligned(shape, dtype=np.float32, offset=0):
    """Zeros at a multiple of 64 bytes, and `offset` bytes more."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128 + offset, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start:start + size].view(dtype).reshape(shape)


def values(name, shape=None):
    array = aligned(shape or SHAPES[name])
    array[...] = np.random.default_rng(sum(map(ord, name))).standard_normal(array.shape)
    return array


def features(make):
    """Keywords of attention() by a name, each with tensors of its own; `make`: an array to a tensor."""
    rng = np.random.default_rng(5)
    bias = make(rng.standard_normal((2, 4, 5, 7)).astype(np.float32))
    lengths = make(np.array([3, 6], np.int32))
    ids_q, ids_kv = make(rng.integers(0, 2, (2, 5)).astype(np.int32)), make(rng.integers(0, 2, (2, 7)).astype(np.int32))
    keep = make(rng.random((2, 1, 5, 7)) < 0.7)
    return {
        "plain": {},
        "causal": {"mask": "causal_bottom_right"},
        "scaled": {"scale": 0.25},
        "window": {"window": (2, 0)},
        "open window": {"window": (None, 1)},
        "named context": {"context": "cpu:1"},
        "lse": {"return_lse": True},
        "softcap": {"softcap": 3.0},
        "bias": {"bias": bias},
        "bias, lengths": {"bias": bias[:, :1], "key_lengths": lengths},
        "chunk": {"chunk": 3},
        "alibi": {"alibi_slopes": make(rng.random(4).astype(np.float32))},
        "documents": {"documents": (ids_q, ids_kv)},
        "mask_tensor": {"mask_tensor": keep},
        "relative_bias": {"relative_bias": make(rng.standard_normal((4, 11)).astype(np.float32))},
        "sinks": {"sinks": make(rng.standard_normal(4).astype(np.float32))},
        "prefix": {"prefix": make(np.array([1, 4], np.int32))},
        "all at once": {
            "softcap": 2.0, "bias": bias, "mask_tensor": keep, "sinks": make(np.ones(4, np.float32)),
            "mask": "causal_top_left"}, }


def digest(result):
    parts = result if isinstance(result, tuple) else (result,)
    arrays = [np.asarray(part) for part in parts if part is not None]
    return " ".join(f"{a.dtype}{a.shape}{a.strides}{hashlib.sha1(np.ascontiguousarray(a).tobytes()).hexdigest()[:12]}"
                    for a in arrays)


def outcome(call, *arguments, **choices):
    try:
        return digest(call(*arguments, **choices))
    except Exception as error:  # any error is an outcome
        return re.sub("0x[0-9a-f]+", "0x..", f"{type(error).__name__}: {error}")


def twice_and_others(known, others):
    """Outcomes of `known` three times, then of each of `others`, with `known` between them."""
    found = [known() for _ in range(3)]
    for other in others:
        found += [other(), other(), known()]
    return found


def wrong_scalars(q, k, v):
    """Choices beside those of a call that is known; some are equal to its by ==, and must not be taken for it."""
    base = {"window": (2, 0), "scale": 1.0, "mask": "none"}
    changes = [{"window": (2, False)}, {"window": (2.0, 0)}, {"window": (2, 0, 0)}, {"window": [2, 0]}, {
        "window": (3, 0)}, {"scale": 1}, {"scale": True}, {"scale": -1.0}, {"scale": np.array(0.5)}, {
            "scale": np.array(0.7)}, {"scale": np.float32(0.6)}, {"mask": "causal"}, {"mask": "nothing"}, {"mask": 1}, {
                "is_causal": True}, {"is_causal": 1}, {"accuracy": "fast"}, {"accuracy": None}, {"dtype": "fp32"}, {
                    "dtype": "fp16"}, {"return_lse": True}, {"softcap": 0.0}, {"chunk": 2}, {"chunk": 1 << 70}, {
                        "context": 3}, {"context": "nowhere"}, {"q_scale": 1.0}, {"pad_head_dim": False}, {
                            "scale_block": 16}, {"v_layout": "columns"}, {"unknown": 1}, {"mask": "n" * 500}]
    known = lambda: outcome(attune.attention, q, k, v, **base)
    return twice_and_others(
        known, [lambda change=change: outcome(attune.attention, q, k, v, **{**base, **change}) for change in changes])


def wrong_tensors(tensors, variants):
    """`variants`: pairs of a name and tensors that stand in for those of that name."""
    def call(**changed):
        given = {**tensors, **changed}
        return outcome(attune.attention, given["q"], given["k"], given["v"], out=given["out"])
    return twice_and_others(call, [lambda change=change: call(**dict([change])) for change in variants])


def runs(tensors, variants):
    """Like wrong_tensors(), for Plan.run()."""
    plan = attune.Context("cpu:1", store="").plan(PROBLEM)

    def call(**changed):
        given = {**tensors, **changed}
        given["out"][...] = 0
        found = outcome(plan.run, given["q"], given["k"], given["v"], given["out"], lse=given["lse"])
        return f"{found} {digest((given['out'], given['lse']))}"
    return twice_and_others(call, [lambda change=change: call(**dict([change])) for change in variants])
