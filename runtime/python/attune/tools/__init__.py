# SPDX-License-Identifier: Apache-2.0
"""Tools of a running program: tune(), tune_on_first_use() and why().

May import all other rooms. Start with tune.py."""
