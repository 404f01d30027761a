# SPDX-License-Identifier: Apache-2.0
"""Decoding steps as CUDA graphs, one for each batch size that is a power of two. Used by engine.py on a GPU."""
import torch
from model import Batch


class Graphs:
    """Runs Model.hidden() for batches of one row a request. Rows of padding write into the page `spare`, which no
    request has."""

    def __init__(self, model, most_pages, spare):
        self.model, self.most_pages, self.spare = model, most_pages, spare
        self.captured = {}

    def hidden(self, batch):
        count = batch.tokens.shape[0]
        size = 1 << (count - 1).bit_length()
        if size not in self.captured:
            self.captured[size] = self._capture(size)
        graph, held, found = self.captured[size]
        for name in ("tokens", "positions", "slots", "lengths"):
            getattr(held, name)[:count] = getattr(batch, name)
        held.slots[count:], held.lengths[count:] = self.spare * self.model.page_size, 1
        held.table[:count, :batch.table.shape[1]] = batch.table
        held.table[count:] = self.spare
        graph.replay()
        return found[:count]

    def _capture(self, size):
        whole = lambda *shape, dtype=torch.int64: torch.zeros(shape, dtype=dtype, device=self.model.device)
        held = Batch(whole(size), whole(size), whole(size), whole(size, dtype=torch.int32),
                     whole(size, self.most_pages, dtype=torch.int32))
        held.slots += self.spare * self.model.page_size
        held.table += self.spare
        held.lengths += 1
        self.model.hidden(held)  # makes the kernels and their memory, which a capture must not
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self.model.hidden(held)
        return graph, held, found
