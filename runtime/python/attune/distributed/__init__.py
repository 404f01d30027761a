# SPDX-License-Identifier: Apache-2.0
"""Attention over one sequence that is spread over several devices, with torch.distributed (examples/guide/
distributed.md). Each rank holds some tokens of the sequence, and every rank calls attention().

    import attune.distributed as ad
    group = ad.Group()                                            # a ProcessGroup; by default all ranks
    layout = group.layout(65536, mask="causal")
    ids, positions = layout.shard(ids), layout.positions()
    o = ad.attention(q, k, v, group=group, layout=layout, mask="causal")    # q, k, v: this rank's tokens"""
from .attention import attention, explain, verify
from .cache_layout import CacheLayout, Step
from .decode import append_kv, attention_kvcache
from .group import Group, GroupError
from .layout import Layout


def enable(model, group, *, sum_gradients=True):
    """Spreads the sequence of a transformers model over the ranks of a group, in all later calls. Returns the model.

    model: a decoder of transformers whose layers call an attention implementation, with equal parameters on all ranks.
    Every rank calls it, and model.generate(), with the same whole inputs. Each computes its own tokens.
    With labels the loss is that of the whole sequence, and logits are this rank's; without, logits are whole.
    sum_gradients: True adds gradients of parameters over the ranks at the end of each backward, so that each rank has
    those of the whole loss. Give False to a trainer that adds them itself.
    generate() keeps a prompt's keys on the ranks that computed them, and deals new ones out in turn. Sampling needs
    equal seeds on all ranks. Forwards outside generate() need two tokens a rank, or a cache.
    Dropout of attention draws its seeds on rank 0, and drops what one rank would.
    Raises ValueError for what a group does not serve, by name: padding, dropout over a cache, masks that are neither
    causal nor windows, position biases, output_attentions. Needs transformers with cache layers (4.56 or later)."""
    from .models import spread
    return spread(model, group, bool(sum_gradients))


__all__ = ["CacheLayout", "Group", "GroupError", "Layout", "Step", "append_kv", "attention", "attention_kvcache",
           "enable", "explain", "verify"]
