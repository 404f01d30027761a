#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a page, one after the other in one namespace: page_test.py PAGE.

Skips aloud (status 77) without the CPU target, or without a module among MODULES that the page imports.
"""
import importlib
import re
import sys
from pathlib import Path

import attune
from skips import skip

MODULES = "numpy|torch|transformers"

page = sys.argv[1]
text = Path(page).read_text(encoding="utf-8")
blocks = [(text.count("\n", 0, found.start(1)), found.group(1))
          for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]
if not blocks:
    sys.exit(f"{page} has no Python block")
try:
    for module in re.findall(rf"^(?:import|from) ({MODULES})\b", "".join(block for _, block in blocks), re.M):
        importlib.import_module(module)
    attune.Context("cpu", store="")
except (ImportError, attune.Error) as error:
    skip(error)
scope = {"__name__": "page"}
for line, block in blocks:
    exec(compile("\n" * line + block, page, "exec"), scope)  # errors show line numbers of the page
print(f"{len(blocks)} blocks of {Path(page).name} ran")
