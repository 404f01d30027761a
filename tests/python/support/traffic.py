# SPDX-License-Identifier: Apache-2.0
"""Random traffic of a serving engine over a paged cache, with the expected results of each request. Used by
soak_test.py.

A World has one cache. A page belongs to no request, to one, or to several that share a prefix. The steps are those of
an engine. Requests come, some with the prefix of another. Prompts come in pieces. Requests get tokens, sometimes
several of which some are rejected. They leave, or are moved out and come back. Each request has a plain copy of its
keys and values, and every result is compared with float64 over that copy. Unused memory holds NaN, which must stay."""
import attune
from caches import expected, turned
from library_and_device import DEVICE, np, torch
from narrow_values import NARROW, values_of_codes

POISON = 0x7F  # NaN in e4m3 and e5m2
LIMITS = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def on_device(values, dtype):
    if torch is None:
        return np.ascontiguousarray(values, dtype)
    return torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE, getattr(torch, dtype))


def on_host(x):
    return np.asarray(x, np.float64) if isinstance(x, np.ndarray) else x.double().cpu().numpy()


class Request:
    def __init__(self, pages, keys, values, prompt):
        self.pages = pages  # in order; the last may have room
        self.keys, self.values = keys, values  # float64 [length, num_heads_kv, head_dim]
        self.prompt = prompt  # tokens that have not come yet
        self.kept = None  # rows of its pages, if it was moved out

    @property
    def length(self):
        return len(self.keys)


class World:
    def __init__(self, seed, slots=6):
        self.random = random = np.random.default_rng(seed)
        pick = lambda *of: of[random.integers(len(of))]  # noqa: E731
        self.slots, self.page = slots, int(pick(1, 3, 16, 16, 64))
        self.heads, self.heads_kv = pick((8, 2), (6, 1), (7, 1), (4, 4), (12, 2), (32, 4))
        self.d = int(pick(64, 64, 80, 128))
        self.dv = int(pick(self.d, self.d, 64))
        self.narrow = pick(None, None, None, "e4m3", "e5m2", "int8")
        self.by_key = bool(self.narrow and pick(False, True))  # factors per key, computed when keys are appended
        wide = {"": ["float32", "float16"], "cpu": ["float32", "bfloat16"], "cuda": ["float16", "bfloat16"]}[DEVICE]
        self.dtype = pick(*[x for x in wide if not (self.narrow and x == "float32")])
        self.turned = int(pick(0, self.d, self.d // 2))
        self.interleaved = bool(pick(False, True))
        self.window = pick(None, None, (int(random.integers(1, 90)), 0))
        self.room = int(pick(90, 200, 400))
        self.width = -(-self.room // self.page)
        self.free = list(random.permutation(3 * self.width + 2))
        self.count = len(self.free)
        self.users = np.zeros(self.count, int)  # requests that have a page
        self.requests = [None] * slots
        self.outside = []  # requests that were moved out
        self.scales = {}
        if self.narrow:
            shape = (self.count, self.page, self.heads_kv) if self.by_key else (1, self.heads_kv)
            factors = [
                np.full(shape, np.nan, np.float32)
                if self.by_key else random.uniform(0.04, 0.06, shape).astype(np.float32) for _ in range(2)]
            self.factors = [f if torch is None else torch.from_numpy(f).to(DEVICE) for f in factors]
            self.scales = dict(zip(("k_scale", "v_scale"), self.factors))
            if torch is None:
                self.scales["dtype_kv"] = self.narrow
        self.caches = [self.filled((self.count, self.page, self.heads_kv, m)) for m in (self.d, self.dv)]
        self.tables = {}
        if self.turned:
            like = on_device(np.zeros((1, 1)), self.dtype)
            cos, sin = attune.rotary_table(self.room, self.turned, like=like)
            self.tables = dict(cos=cos, sin=sin, interleaved=self.interleaved)
        self.lengths = on_device(np.zeros(slots, np.int32), "int32")  # read by kernels; never moves
        self.table = on_device(np.full((slots, self.width), -1, np.int32), "int32")
        self.captured = {}
        self.counts = {}

    def __str__(self):
        return (
            f"page {self.page}, {self.heads}/{self.heads_kv} heads, d {self.d}/{self.dv}, {self.dtype}, cache "
            f"{self.narrow or self.dtype}{' with factors of keys' * self.by_key}, "
            f"turned {self.turned}{' interleaved' if self.interleaved else ''}, window {self.window}, room {self.room}")

    # The cache.

    def filled(self, shape):
        """Returns a cache filled with NaN."""
        if not self.narrow:
            return on_device(np.full(shape, np.nan), self.dtype)
        codes = np.full(shape, POISON, np.uint8)
        if torch is None:
            return codes.view(np.int8) if self.narrow == "int8" else codes
        return torch.from_numpy(codes).to(DEVICE).view({
            "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8}[self.narrow])

    def bits(self, which):
        """Returns the cache in a type whose rows can be copied and assigned."""
        cache = self.caches[which]
        return cache.view(torch.uint8 if torch is not None else np.uint8) if self.narrow else cache

    def memory(self):
        """Returns the bits of pages, [page, row, ..]."""
        return [self.bits(which) for which in (0, 1)] + (self.factors if self.by_key else [])

    def poison(self, page, first=0):
        for number, held in enumerate(self.memory()):
            held[page, first:] = POISON if self.narrow and number < 2 else float("nan")

    def factors_at(self, which, page, row):
        """Returns factors, [keys, num_heads_kv, 1]."""
        return on_host(self.factors[which][page, row] if self.by_key else self.factors[which])[..., None]

    def take_page(self, slot):
        """Returns a free page for the request of `slot`. If there is none, moves out or ends other requests."""
        while not self.free:
            other = self.random.choice([
                i for i, r in enumerate(self.requests) if r is not None and i not in (slot, self.source)])
            self.move_out(other) if self.random.random() < 0.7 else self.leave(other)
        page = int(self.free.pop())
        self.users[page] = 1
        return page

    def give_back(self, pages):
        for page in pages:
            self.users[page] -= 1
            if self.users[page] == 0:
                self.poison(page)
                self.free.insert(0, page)

    # Events of requests.

    source = None  # request whose prefix is being shared; it is not moved out

    def note(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def come(self, slot):
        """Adds a request, perhaps with the first keys of another. Whole pages are shared; the rows of a partial page
        are copied."""
        prompt = int(self.random.integers(1, self.room // 2))
        others = [i for i, r in enumerate(self.requests) if r is not None and r.length > 1]
        pages, shared = [], 0
        keys, values = np.zeros((0, self.heads_kv, self.d)), np.zeros((0, self.heads_kv, self.dv))
        if others and self.random.random() < 0.6:
            other = self.random.choice(others)
            self.source = other
            of = self.requests[other]
            shared = int(self.random.integers(1, min(of.length, self.room - prompt - 1) + 1))
            pages = list(of.pages[:shared // self.page])
            self.users[pages] += 1
            rest = shared % self.page
            if rest:
                page = self.take_page(slot)
                for held in self.memory():
                    held[page, :rest] = held[of.pages[shared // self.page], :rest]
                pages.append(page)
            keys, values = of.keys[:shared], of.values[:shared]
            self.source = None
            self.note("shared")
        self.requests[slot] = Request(pages, keys, values, prompt)
        self.note("came")

    def leave(self, slot):
        self.give_back(self.requests[slot].pages)
        self.requests[slot] = None
        self.note("left")

    def move_out(self, slot):
        request = self.requests[slot]
        copy = (lambda x: x.copy()) if torch is None else (lambda x: x.clone())
        request.kept = [[copy(held[page]) for held in self.memory()] for page in request.pages]
        self.give_back(request.pages)
        request.pages = []
        self.requests[slot] = None
        self.outside.append(request)
        self.note("moved out")

    def come_back(self, slot):
        request = self.outside.pop(int(self.random.integers(len(self.outside))))
        if len(request.kept) > len(self.free):
            self.outside.append(request)
            return
        for rows in request.kept:
            page = self.take_page(slot)
            for held, kept in zip(self.memory(), rows):
                held[page] = kept
            request.pages.append(page)
        request.kept = None
        self.requests[slot] = request
        self.note("came back")

    # Steps of the engine.

    def make_room(self, rows):
        """Gives pages to new rows {slot: count}. Removes requests from `rows` that were moved out or ended for this."""
        for slot, count in list(rows.items()):
            request = self.requests[slot]
            while request is not None and len(request.pages) * self.page < request.length + count:
                request.pages.append(self.take_page(slot))
        for slot in [slot for slot in rows if self.requests[slot] is None]:
            del rows[slot]

    def show(self, rows):
        """Writes lengths with the new rows, and pages, of requests in `rows`; other slots are empty."""
        lengths, table = np.zeros(self.slots, np.int32), np.full((self.slots, self.width), -1, np.int32)
        for slot, count in rows.items():
            request = self.requests[slot]
            lengths[slot] = request.length + count
            table[slot, :len(request.pages)] = request.pages
        for held, new in ((self.lengths, lengths), (self.table, table)):
            held[...] = new if torch is None else torch.from_numpy(new).to(DEVICE)

    def draw(self, *shape):
        return on_device(self.random.standard_normal(shape), self.dtype)

    def kernels(self, q, k, v, **packed):
        """Appends and attends. Returns q (rotated, if positions are), o and lse."""
        lists = dict(page_table=self.table, **packed)
        makes = {"make_scales": True} if self.by_key else {}
        if self.turned:
            q = attune.append_kv(k, v, *self.caches, self.lengths, q=q, **lists, **self.tables, **self.scales, **makes)
        else:
            attune.append_kv(k, v, *self.caches, self.lengths, **lists, **self.scales, **makes)
        return q, *attune.attention_kvcache(q, *self.caches, self.lengths, is_causal=True, window=self.window,
                                            return_lse=True, **lists, **self.scales)

    def step_alike(self, count):
        """Gives `count` rows to every request whose prompt is complete. On a GPU, a graph captured in the first such
        step runs all later ones."""
        rows = {
            slot: count
            for slot, r in enumerate(self.requests)
            if r is not None and r.prompt == 0 and r.length + count <= self.room}
        if not rows:
            return
        self.make_room(rows)
        self.show(rows)
        shapes = [(self.slots, count, n, m)
                  for n, m in ((self.heads, self.d), (self.heads_kv, self.d), (self.heads_kv, self.dv))]
        new = [self.draw(*shape) for shape in shapes]
        if DEVICE == "cuda":
            result = self.replay(count, new)
        else:
            result = self.kernels(*new)
        q, o, lse = (on_host(x) for x in result)
        given = [on_host(x) for x in new]
        for slot in range(self.slots):
            if slot in rows:
                self.check(slot, count, [x[slot] for x in given], q[slot], o[slot], lse[slot])
            else:
                assert not o[slot].any() and (lse[slot] == -np.inf).all(), "a request without keys has a result"
        self.note(f"{count} rows each")
        if count > 1:
            for slot in rows:
                self.reject(slot, int(self.random.integers(0, count)))

    def replay(self, count, new):
        if count not in self.captured:
            held = [x.clone() for x in new]
            self.kernels(*held)  # plans and workspaces
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self.kernels(*held)
            self.captured[count] = (graph, held, out)
        graph, held, out = self.captured[count]
        for mine, given in zip(held, new):
            mine.copy_(given)
        for x in out[1:]:
            x.fill_(float("nan"))
        graph.replay()
        self.note("graphs")
        return out

    def step_packed(self):
        """Runs one batch of packed rows: pieces of prompts, and tokens."""
        rows = {}
        for slot, request in enumerate(self.requests):
            if request is None or self.random.random() < 0.2:
                continue
            most = min(request.prompt or 1, self.room - request.length)
            if most > 0:
                rows[slot] = int(self.random.integers(1, min(most, 48) + 1))
        if not rows:
            return
        self.make_room(rows)
        self.show(rows)
        counts = np.array([rows.get(slot, 0) for slot in range(self.slots)])
        begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        new = [
            self.draw(begins[-1], n, m)
            for n, m in ((self.heads, self.d), (self.heads_kv, self.d), (self.heads_kv, self.dv))]
        q, o, lse = (on_host(x)
                     for x in self.kernels(*new, q_begins=on_device(begins, "int32"), seqlen_q=int(counts.max())))
        given = [on_host(x) for x in new]
        for slot, count in rows.items():
            of = slice(begins[slot], begins[slot + 1])
            self.check(slot, count, [x[of] for x in given], q[of], o[of], lse[:, of])
            request = self.requests[slot]
            request.prompt = max(0, request.prompt - count)
        self.note("packed")

    def reject(self, slot, count):
        """Removes the last rows. Their keys stay in the cache, or become NaN."""
        request = self.requests[slot]
        if count == 0:
            return
        request.keys, request.values = request.keys[:-count], request.values[:-count]
        pages = -(-request.length // self.page)
        self.give_back(request.pages[pages:])
        del request.pages[pages:]
        if self.random.random() < 0.5 and request.length % self.page:
            self.poison(request.pages[-1], request.length % self.page)
        self.note("rejected")

    # Expected results.

    def turn(self, x, positions):
        if not self.turned:
            return x
        cos, sin = (on_host(self.tables[name])[positions] for name in ("cos", "sin"))
        return turned(x, cos, sin, self.interleaved)

    def check(self, slot, count, given, q, o, lse):
        """Checks that new rows are in the cache, that old rows are unchanged, and o and lse against float64."""
        request, limit = self.requests[slot], LIMITS[self.dtype]
        positions = request.length + np.arange(count)
        np.testing.assert_allclose(q, self.turn(given[0], positions), rtol=limit, atol=limit)
        at = [(request.pages[p // self.page], p % self.page) for p in range(request.length + count)]
        page, row = (np.array(x) for x in zip(*at))
        held = []
        for which, (old, new) in enumerate(((request.keys, self.turn(given[1],
                                                                     positions)), (request.values, given[2]))):
            cache = on_host(self.bits(which)[page, row])
            if self.narrow:
                factors = self.factors_at(which, page, row)
                cache = values_of_codes(self.narrow)[cache.astype(np.uint8)] * factors
            np.testing.assert_array_equal(cache[:request.length], old, "keys or values that were written before")
            step = limit if not self.narrow else limit if self.narrow == "int8" else 2.0**-NARROW[self.narrow][0]
            small = limit if not self.narrow else factors.max() * (0.6 if self.narrow == "int8" else 2.0**-6)
            np.testing.assert_allclose(cache[request.length:], new, rtol=step, atol=small)
            held.append(cache)
        request.keys, request.values = held
        want = expected(q, *held, causal=True, window=self.window or (None, None))
        np.testing.assert_allclose(o, want[0], rtol=2 * limit, atol=2 * limit)
        np.testing.assert_allclose(lse, want[1], rtol=2 * limit, atol=2 * limit)

    def check_unused(self):
        """Checks that no kernel wrote into unused pages, which hold NaN, and that each page has the right number of
        users."""
        users = np.zeros(self.count, int)
        for request in self.requests:
            if request is not None:
                np.add.at(users, request.pages, 1)
        np.testing.assert_array_equal(users, self.users)
        for number, memory in enumerate(self.memory()):
            unused = on_host(memory)[self.users == 0]
            poisoned = unused == POISON if self.narrow and number < 2 else np.isnan(unused)
            assert poisoned.all(), "an unused page was written"

    def step(self):
        chance, empty = self.random.random(), [i for i, r in enumerate(self.requests) if r is None]
        present = [i for i, r in enumerate(self.requests) if r is not None]
        if empty and chance < 0.2:
            slot = empty[self.random.integers(len(empty))]
            self.come_back(slot) if self.outside and self.random.random() < 0.6 else self.come(slot)
        elif present and chance < 0.25:
            self.leave(int(self.random.choice(present)))
        elif present and chance < 0.28:
            self.move_out(int(self.random.choice(present)))
        elif chance < 0.55:
            self.step_packed()
        elif chance < 0.85:
            self.step_alike(1)
        else:
            self.step_alike(3)
        for slot, request in enumerate(self.requests):
            if request is not None and request.length >= self.room:
                self.leave(slot)
