# SPDX-License-Identifier: Apache-2.0
"""Times attention with the same bits on any number of GPUs beside that without: the parts "invariant" of group.py."""
import torch
import torch.distributed as dist

import attune.distributed as ad


def groups():
    """Returns a Group of this rank alone, and one of all ranks."""
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return ad.Group(alone[dist.get_rank()]), ad.Group()


def results(group, gradients, seqlen, whole, dout, invariant):
    """Returns o and the gradients of this rank, and functions that compute each of them again."""
    layout = group.layout(seqlen, mask="causal", kind="zigzag")
    mine = [layout.shard(x).requires_grad_() for x in whole]
    run = lambda q, k, v: ad.attention(q, k, v, group=group, layout=layout, mask="causal", algorithm="gather",
                                       deterministic=True, world_invariant=invariant)
    o, again = gradients(run, mine, layout.shard(dout))
    return layout, [o.detach(), *again()], lambda: run(*(x.detach() for x in mine)), again


def times(timed, gradients, seqlen, whole, dout):
    """Yields pairs of a name and a value. equal: 1 if all ranks have the bits of one."""
    alone, group = groups()
    samples = 5 if seqlen > 20000 else 15
    for name, invariant in (("gather", False), ("invariant", True)):
        layout, found, forward, backward = results(group, gradients, seqlen, whole, dout, invariant)
        with torch.no_grad():
            yield f"{name}_forward_ms", timed(forward, samples)
        yield f"{name}_backward_ms", timed(backward, samples)
        if invariant:
            wanted = results(alone, gradients, seqlen, whole, dout, True)[1]
            equal = torch.tensor([all(torch.equal(x, layout.shard(y)) for x, y in zip(found, wanted))], device="cuda",
                                 dtype=torch.int32)
            dist.all_reduce(equal, dist.ReduceOp.MIN)
            yield "equal", equal.item()
