# SPDX-License-Identifier: Apache-2.0
"""The score stage: programs made from Python functions, biases, masks, sinks, dropout, and maps of blocks.

May import core. Start with scores.py, which turns keywords of attention() into operands; programs.py and trace.py
make programs of the score language."""
