# SPDX-License-Identifier: Apache-2.0
"""Parts of group.py that decode with caches spread over the ranks: times of one step, and checks against one GPU. Each
rank draws the whole cache and keeps its own keys."""
import torch

import attune
import attune.distributed as ad

HEAD_DIM, PAGE, BLOCK = 128, 16, 16


class Spread:
    """Requests of given lengths: whole slots as one GPU has them, and this rank's pages with `room` keys a request."""

    def __init__(self, group, lengths, heads, kv_heads, rows=1, dtype=torch.bfloat16):
        draw = lambda seed, *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=torch.Generator(
            device="cuda").manual_seed(seed))
        self.layout, batch, longest = group.cache_layout(BLOCK), len(lengths), max(lengths)
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        self.q = draw(1, batch, rows, heads, HEAD_DIM)
        self.k, self.v = (draw(seed, batch, longest, kv_heads, HEAD_DIM).to(dtype) for seed in (2, 3))
        pages = -(-self.layout.most(longest) // PAGE)
        self.table = torch.randperm(batch * pages, dtype=torch.int32, device="cuda").reshape(batch, pages)
        mine = self.layout.position_of(torch.arange(pages * PAGE, device="cuda")).clamp(max=longest - 1)
        self.mine = [self.paged(x[:, mine]) for x in (self.k, self.v)]

    def paged(self, x):
        pages = x.new_empty((self.table.numel(), PAGE, *x.shape[2:]))
        pages[self.table.flatten().long()] = x.unflatten(1, (-1, PAGE)).flatten(0, 1)
        return pages

    def step(self):
        return self.layout.step(self.lengths, page_table=self.table)

    def run(self, step=None, **choices):
        return ad.attention_kvcache(self.q, *self.mine, step=step or self.step(), **choices)

    def alone(self, **choices):
        return attune.attention_kvcache(self.q, self.k, self.v, self.lengths, **choices)


def captured(run):
    """Returns (graph, its result) of a call that ran before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


def times(timed, host_us, difference, seqlen, heads, kv_heads):
    """Yields times of a step of one request, and of 32 requests of an eighth of the keys, captured and not."""
    group = ad.Group()
    for name, lengths in (("one request", [seqlen]), ("32 requests", [seqlen // 8] * 32)):
        case = Spread(group, lengths, heads, kv_heads)
        attune.prepare(attune.attention_kvcache, case.q, case.k, case.v, case.lengths)
        one, _ = captured(case.alone)
        yield f"{name}: one GPU, graph, ms", timed(one.replay, 20)
        yield f"{name}: error", difference(case.run(), case.alone())
        step = case.step()
        yield f"{name}: eager, ms", timed(lambda: case.run(step), 20)
        yield f"{name}: host, us", host_us(lambda: case.run(step))
        graph, _ = captured(lambda: case.run(step))
        yield f"{name}: graph, ms", timed(graph.replay, 20)
        ten, _ = captured(lambda: [case.run(step) for _ in range(10)])
        yield f"{name}: graph of 10 layers, ms each", timed(ten.replay, 20) / 10
        del case, one, graph, ten
    yield "world", group.world


def checks(difference, heads, kv_heads):
    """Yields errors over the largest value, against one GPU."""
    group = ad.Group()
    lengths = [0, 1, 17, 40, 3000, 4096]
    sinks = torch.linspace(-1, 3, heads, device="cuda")
    for rows in (1, 3):
        case = Spread(group, lengths, heads, kv_heads, rows)
        for name, choices in (("plain", {}), ("causal", {"mask": "causal"}), ("sinks", {"sinks": sinks}),
                              ("window", {"mask": "causal", "window": (700, None)}), ("softcap", {"softcap": 20.0})):
            yield f"decode, {rows} rows, {name}", difference(case.run(**choices), case.alone(**choices))
    narrow = Spread(group, lengths, heads, kv_heads, dtype=torch.float8_e4m3fn)
    yield "decode, e4m3", difference(narrow.run(k_scale=0.5, v_scale=2.0), narrow.alone(k_scale=0.5, v_scale=2.0))
    case = Spread(group, lengths, heads, kv_heads)
    case.run()
    graph, o = captured(lambda: case.run(case.step()))  # the step is inside: the graph follows new lengths
    for number, changed in enumerate(([9, 0, 300, 4096, 1, 2], [4096] * 6)):
        case.lengths.copy_(torch.tensor(changed, dtype=torch.int32))
        graph.replay()
        yield f"decode, replay {number} with other lengths", difference(o, case.alone())
