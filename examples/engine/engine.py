# SPDX-License-Identifier: Apache-2.0
"""An inference engine in four short files: a paged cache, shared prefixes, prompts in chunks beside decoding requests,
CUDA graphs. It knows FlashAttention's functions alone. run.py puts attune under their names.

    engine = Engine(model)                      # a Llama or Qwen of transformers
    request = engine.add([1, 5, 9], most=100)   # at any time, also between steps
    while engine.step():
        ...
    print(request.answer)
"""
import collections
import dataclasses

import torch
from graphs import Graphs
from model import Batch, Model
from pages import Pages


@dataclasses.dataclass(eq=False)
class Request:
    """Tokens of a prompt and of its answer, and how many of their keys are in the cache."""
    tokens: list
    prompt: int
    most: int
    stop: int
    pages: list = dataclasses.field(default_factory=list)
    computed: int = 0
    shared: int = 0  # keys that other requests had computed

    @property
    def answer(self):
        return self.tokens[self.prompt:]

    @property
    def is_done(self):
        count = len(self.tokens) - self.prompt
        return count >= self.most or count > 0 and self.tokens[-1] == self.stop

    @property
    def left(self):
        """The number of tokens whose keys are not computed: 1 while it decodes."""
        return len(self.tokens) - self.computed


class Engine:
    """Steps of at most most_rows rows and most_requests requests. Each step gives a row to each request that decodes,
    and the other rows to prompts, in the order in which they came. The most likely token is chosen.

    model: a Llama or Qwen of transformers, without a window. num_pages, page_size: the cache (FlashAttention 2 needs
    multiples of 256). longest: most tokens of a request, prompt and answer. If pages are used up, the youngest request
    loses its own, and is computed once more later."""

    def __init__(self, model, num_pages=256, page_size=256, longest=8192, most_rows=4096, most_requests=64):
        self.pages, self.most_rows, self.most_requests = Pages(num_pages, page_size), most_rows, most_requests
        self.longest = min(longest, num_pages * page_size)
        self.model = Model(model, num_pages + 1, page_size)  # the last page is for padding
        most_pages = -(-self.longest // page_size)
        self.graphs = Graphs(self.model, most_pages, num_pages) if self.model.device.type == "cuda" else self.model
        self.waiting, self.running = collections.deque(), []

    def add(self, tokens, most, stop=-1):
        """Returns a new request: the tokens of a prompt, and the most tokens of its answer, which ends after `stop`."""
        if not tokens or most < 1 or len(tokens) + most > self.longest:
            raise ValueError(f"the request has {len(tokens)} tokens and asks for {most}; both must be at least 1, and "
                             f"together at most {self.longest}")
        request = Request(list(tokens), len(tokens), most, stop)
        self.waiting.append(request)
        return request

    def step(self):
        """Computes one batch, if a request is not done. Returns True if it did."""
        chosen = self._chosen()
        if not chosen:
            return False
        counts = list(chosen.values())
        hidden = (self.graphs if max(counts) == 1 else self.model).hidden(self._batch(chosen))
        last = torch.tensor(counts).cumsum(0).to(hidden.device) - 1
        found = self.model.logits(hidden[last]).argmax(-1).tolist()
        for (request, count), token in zip(chosen.items(), found):
            begin, request.computed = request.computed, request.computed + count
            self.pages.name(request.tokens, request.pages, begin, request.computed)
            if not request.left:
                request.tokens.append(token)
            if request.is_done:
                self.running.remove(request)
                self.pages.give_back(request.pages)
        return True

    def _chosen(self):
        """Returns the number of new rows for each request of the next batch. Running requests are in the order in which
        they came; all but the last decode, because nobody is let in behind a part of a prompt."""
        chosen, left = {}, self.most_rows
        for request in list(self.running):
            count = min(request.left, left)
            if request in self.running and count and self._has_room(request, count):
                chosen[request], left = count, left - count
        while self.waiting and left and len(self.running) < self.most_requests:
            request = self.waiting[0]
            request.pages = self.pages.find(request.tokens)
            request.shared = request.computed = len(request.pages) * self.pages.page_size
            count = min(request.left, left)
            if not self._take(request, count):
                self.pages.give_back(request.pages)
                break
            self.running.append(self.waiting.popleft())
            chosen[request], left = count, left - count
        return chosen

    def _has_room(self, request, count):
        """Takes pages for `count` more keys, from the youngest request if none is free. Returns False if it is that."""
        while not self._take(request, count):
            youngest = self.running.pop()
            self.pages.give_back(youngest.pages)
            youngest.pages, youngest.computed = [], 0
            self.waiting.appendleft(youngest)
            if youngest is request:
                return False
        return True

    def _take(self, request, count):
        """Takes pages for `count` more keys. Returns False, and keeps what it got, if there are too few."""
        while len(request.pages) * self.pages.page_size < request.computed + count:
            page = self.pages.take()
            if page is None:
                return False
            request.pages.append(page)
        return True

    def _batch(self, chosen):
        size, device = self.pages.page_size, self.model.device
        ints = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
        spans = [(request, range(request.computed, request.computed + count)) for request, count in chosen.items()]
        columns = max(len(request.pages) for request in chosen)
        table = [request.pages + [0] * (columns - len(request.pages)) for request in chosen]
        begins = [0]
        for count in chosen.values():
            begins.append(begins[-1] + count)
        return Batch(
            tokens=ints([request.tokens[at] for request, span in spans for at in span]),
            positions=ints([at for _, span in spans for at in span]),
            slots=ints([request.pages[at // size] * size + at % size for request, span in spans for at in span]),
            lengths=ints([span.stop for _, span in spans], torch.int32), table=ints(table, torch.int32),
            begins=None if max(chosen.values()) == 1 else ints(begins, torch.int32),
            longest=(max(chosen.values()), max(span.stop for _, span in spans)))
