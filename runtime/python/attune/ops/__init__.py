# SPDX-License-Identifier: Apache-2.0
"""attune's functions, attention() and the others, and the plans and workspaces by which they run.

May import score and core. Start with attention.py; context.py has Context and Plan, and quick.py is the side of the
C module in Python."""
