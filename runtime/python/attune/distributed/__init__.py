# SPDX-License-Identifier: Apache-2.0
"""Attention over one sequence that is spread over several devices, with torch.distributed (examples/guide/
distributed.md). Each rank holds some tokens of the sequence, and every rank calls attention().

    import attune.distributed as ad
    group = ad.Group()                                            # a ProcessGroup; by default all ranks
    layout = group.layout(65536, mask="causal")
    ids, positions = layout.shard(ids), layout.positions()
    o = ad.attention(q, k, v, group=group, layout=layout, mask="causal")    # q, k, v: this rank's tokens"""
from .attention import attention, explain, verify
from .group import Group, GroupError
from .layout import Layout

__all__ = ["Group", "GroupError", "Layout", "attention", "explain", "verify"]
