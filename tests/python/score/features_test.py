#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A new score feature is a row of score/features.py and a keyword in the signatures of ops/attention.py and
ops/kvcache.py: a copy of the package with such a row, of a field that the library knows, has the feature in all of its
functions. Skips aloud (status 77) without PyTorch."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import attune
import skips
from skips import torch

PACKAGE = pathlib.Path(attune.__file__).parent
EDITS = {
    "score/features.py": ("FEATURES = (\n",
                          'FEATURES = (\n    Feature("cap", "softcap", _softcap, float, over_caches=True),\n'),
    "ops/attention.py": ("context=None, softcap=None,", "context=None, cap=None, softcap=None,"),
    "ops/kvcache.py": ("context=None, softcap=None,", "context=None, cap=None, softcap=None,")}


def calls(name):
    """Returns the results of calls with the feature `name`."""
    import attune.torch
    cap, causal = {name: 0.5}, dict(mask="causal")
    q, k, v = (torch.randn(1, 5, 2, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    o, lse = attune.attention(q, k, v, **cap, **causal, return_lse=True)
    found = [o, lse, attune.attention_kvcache(q, k, v, **cap), *attune.attention_backward(o, q, k, v, o, lse, **cap),
             attune.score_gradient("sinks", o, q, k, v, o, lse, sinks=torch.zeros(2), **cap)]
    leaf = q.clone().requires_grad_()
    attune.attention(leaf, k, v, **cap).sum().backward()
    compiled = torch.compile(lambda x: attune.attention(x, k, v, **cap), backend="aot_eager", fullgraph=True)
    over_cache = torch.compile(lambda x: attune.attention_kvcache(x, k, v, **cap), backend="aot_eager", fullgraph=True)
    found += [leaf.grad, compiled(q), over_cache(q)]
    found.append(torch.ops.attune.attention(q, k, v, spec=attune.torch.spec(**cap))[0])
    plans = [attune.prepare(attune.attention, q, k, v, **cap), attune.why(q, k, v, **cap).plan]
    return found, [plan.problem.softcap for plan in plans]


class FeaturesTest(unittest.TestCase):
    def test_a_new_feature_is_one_row_and_its_keyword(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(PACKAGE, pathlib.Path(folder) / "attune", ignore=shutil.ignore_patterns("__pycache__"))
            for file, (before, after) in EDITS.items():
                path = pathlib.Path(folder) / "attune" / file
                text = path.read_text()
                self.assertEqual(text.count(before), 1, file)
                path.write_text(text.replace(before, after))
            environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
            run = subprocess.run([sys.executable, __file__, "compare"], env=environment, capture_output=True, text=True,
                                 timeout=250, check=False)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_no_other_module_names_a_feature(self):
        """Checks the rooms below the adapters, which have their own signatures."""
        files = [path for room in ("core", "score", "ops", "torch", "tools") for path in (PACKAGE / room).glob("*.py")]
        named = {path.name for path in files if "softcap" in path.read_text()} - {"library.py"}
        self.assertEqual(named, {"features.py", "attention.py", "kvcache.py", "cascade.py"})


if __name__ == "__main__":
    if sys.argv[1:] == ["compare"]:
        (one, plans), (other, others) = calls("cap"), calls("softcap")
        assert plans == others == [0.5, 0.5], (plans, others)
        for x, y in zip(one, other):
            assert torch.equal(x, y)
        sys.exit(0)
    skips.run()
