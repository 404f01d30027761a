#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a page, one after the other in one namespace: page_test.py PAGE [MODULE...]. Skips aloud (status 77) without
the modules or the CPU target."""
import importlib
import re
import sys
from pathlib import Path

import attune

page, *modules = sys.argv[1:]
try:
    for module in modules:
        importlib.import_module(module)
    attune.Context("cpu", store="")
except (ImportError, attune.Error) as error:
    print(f"SKIP: {error}")
    sys.exit(77)
text = Path(page).read_text(encoding="utf-8")
blocks = [(text.count("\n", 0, found.start(1)), found.group(1))
          for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]
if not blocks:
    sys.exit(f"{page} has no Python block")
scope = {"__name__": "page"}
for line, block in blocks:
    exec(compile("\n" * line + block, page, "exec"), scope)  # errors name the page's own lines
print(f"{len(blocks)} blocks of {Path(page).name} ran")
