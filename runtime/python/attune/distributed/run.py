# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a Plan: moves tensors by the group, and launches on slices (launches.py). Used by attention.py."""
import math
from collections import namedtuple

import torch

from ..core.preparing import noted_plans
from . import invariant as tree
from .features import OF_ROWS
from .launches import attend_all, differentiate_all, with_whole_keys
from .plan import Pass


class Held:
    """A tensor [batch, tokens, heads, x] that holds some tokens and heads of the whole. ranges: its tokens, rising."""

    def __init__(self, tensor, ranges, first_head=0):
        self.tensor, self.ranges, self.first_head = tensor, ranges, first_head

    def slice_of(self, tokens):
        """Returns the tokens' slice, or None if they are not in one range."""
        offset = 0
        for first, end in self.ranges:
            if first <= tokens[0] and tokens[1] <= end:
                return slice(offset + tokens[0] - first, offset + tokens[1] - first)
            offset += end - first
        return None

    def index(self, tokens, heads):
        """Returns the index of these tokens and heads."""
        rows = self.slice_of(tokens)
        if rows is None:
            raise RuntimeError(f"internal error: tokens {tokens} are not in {self.ranges}")
        return slice(None), rows, slice(heads[0] - self.first_head, heads[1] - self.first_head)

    def part(self, tokens, heads):
        """Returns a view of these tokens and heads."""
        return self.tensor[self.index(tokens, heads)]

    def heads(self):
        return self.first_head, self.first_head + self.tensor.shape[2]


def overlaps(ranges, others):
    """Yields the ranges of tokens that are in both."""
    for one in ranges:
        for first, end in others:
            if max(one[0], first) < min(one[1], end):
                yield max(one[0], first), min(one[1], end)


# An exchange sends transfers of `what` from `source` (a Held) to take(transfer, part). width: the last axis.
Item = namedtuple("Item", "what source width take")


class Route:
    """The order of the parts that an exchange of items sends and receives: by ranks.

    sent: pairs of an item's number and an index into its source. coming: pairs of an item's number and a Transfer.
    shapes, sizes: of the parts that come. sent_counts, coming_counts: elements for each rank."""

    def __init__(self, items, sent, coming, world):
        batch = items[0].source.tensor.shape[0]
        shape = lambda number, step: (batch, step.tokens[1] - step.tokens[0], step.heads[1] - step.heads[0],
                                      items[number].width)
        self.what = " and ".join(dict.fromkeys(item.what for item in items))
        self.sent = [(number, items[number].source.index(step.tokens, step.heads)) for number, step in sent]
        self.coming, self.shapes = coming, [shape(*pair) for pair in coming]
        self.sizes = [math.prod(one) for one in self.shapes]
        self.sent_counts, self.coming_counts = [0] * world, [0] * world
        for number, step in sent:
            self.sent_counts[step.target] += math.prod(shape(number, step))
        for size, (_, step) in zip(self.sizes, coming):
            self.coming_counts[step.source] += size


class _Unmoved:
    """A group whose transfers bring memory without values."""

    def __init__(self, group):
        self.rank, self.world = group.rank, group.world

    def swap(self, route, sent, like):
        return [like.new_empty(shape) for shape in route.shapes]


class Run:
    """One call: its plan, and the choices of attention() that all launches share. heads: (of q, of k and v).
    window_left: keys that the problem shows before a row; below 0: all. shapes: of the features' tensors, by name."""

    def __init__(self, group, layout, plan, heads, choices, window_left, shapes, is_causal=False):
        self.group, self.layout, self.plan, self.choices = group, layout, plan, choices
        self.window_left, self.shapes, self.drops = window_left, shapes, "dropout_p" in choices
        self.heads_q, self.heads_kv = heads
        self.is_causal = is_causal
        self._kept = {}  # what calls find once: routes and indices

    def rehearse(self, q, k, v, features, return_lse, training):
        """Compiles what the call launches. Moves nothing and computes nothing."""
        whole, self.group = self.group, _Unmoved(self.group)
        learned = [name for name, x in features.items() if x.requires_grad]
        features = {name: x.detach() for name, x in features.items()}
        try:
            with torch.no_grad(), noted_plans():
                given = [x.detach() for x in (q, k, v)]
                o, lse, kept, features = FORWARD[self.plan.algorithm](self, *given, features, return_lse)
                if training:
                    dlse = torch.empty_like(lse) if return_lse else None
                    BACKWARD[self.plan.algorithm](self, torch.empty_like(o), dlse, kept, features, learned)
        finally:
            self.group = whole

    def my_heads(self):
        """Returns the heads of q, and of k and v, that this rank computes in an exchange."""
        share, ratio = self.heads_q // self.group.world, self.heads_q // self.heads_kv
        first, end = self.group.rank * share, (self.group.rank + 1) * share
        return (first, end), (first // ratio, -(-end // ratio))

    def held(self, x):
        return Held(x, self.layout.mine)

    # ---- Transfers ----

    def _route(self, steps, items):
        """Returns the Route of items. It is kept: calls of one Run differ in their tensors alone."""
        key = id(steps), *((item.what, item.width, item.source.first_head) for item in items)
        if key not in self._kept:
            sent, coming = [], []
            for number, item in enumerate(items):
                for step in steps.transfers:
                    if step.what == item.what:
                        (sent if step.source == self.group.rank else coming).append((number, step))
            sent.sort(key=lambda pair: pair[1].target)
            coming.sort(key=lambda pair: pair[1].source)
            self._kept[key] = Route(items, sent, coming, self.group.world)
        return self._kept[key]

    def move(self, steps, items):
        """Makes the transfers of items in one exchange. All sources have one dtype."""
        if not any(steps.received):
            return
        route = self._route(steps, items)
        sources = [item.source.tensor for item in items]
        sent = [sources[number][place] for number, place in route.sent]
        for (number, step), part in zip(route.coming, self.group.swap(route, sent, sources[0])):
            items[number].take(step, part)

    def _copy_to(self, target):
        """Returns a function that copies a part that came to its place in the target."""
        whole, kept = target.tensor, self._kept

        def copy(step, part):
            key = step, target.first_head, target.ranges
            if key not in kept:
                kept[key] = target.index(step.tokens, step.heads)
            whole[kept[key]] = part
        return copy

    def _own(self, what, source, target):
        """Returns pairs of indices: the tokens of this rank that both hold, in the target and in the source. Kept."""
        key = what, source.first_head, target.first_head, target.ranges
        if key not in self._kept:
            heads = target.heads() if source.tensor.shape[2] > target.tensor.shape[2] else source.heads()
            shared = list(overlaps(self.layout.mine, target.ranges))
            self._kept[key] = [(target.index(tokens, heads), source.index(tokens, heads)) for tokens in shared]
        return self._kept[key]

    def fill(self, steps, whats, tensors, targets):
        """Fills targets (Held) from tensors of this rank's tokens, and from the other ranks. whats: their transfers."""
        items = []
        for what, x, target in zip(whats, tensors, targets):
            source = self.held(x)
            for to, at in self._own((id(steps), what), source, target):
                target.tensor[to] = x[at]
            items.append(Item(what, source, x.shape[3], self._copy_to(target)))
        self.move(steps, items)

    def give_back(self, steps, whats, sources):
        """Returns tensors of this rank's tokens and all heads, from `sources` (Held): all tokens, this rank's heads."""
        made, items = [], []
        for what, source in zip(whats, sources):
            x = source.tensor
            target = self.held(x.new_empty((x.shape[0], self.layout.length, self.heads_q, x.shape[3])))
            for to, at in self._own((id(steps), what), source, target):
                target.tensor[to] = x[at]
            made.append(target.tensor)
            items.append(Item(what, source, x.shape[3], self._copy_to(target)))
        self.move(steps, items)
        return made

    def rows_of_features(self, steps, what, one_head):
        """Returns a pass with the transfers of `what`, as those of "rows". one_head: the tensor has one for all."""
        key = id(steps), what, one_head
        if key not in self._kept:
            moved = [step._replace(what="rows", heads=(0, 1) if one_head else step.heads) for step in steps.transfers
                     if step.what == what]
            self._kept[key] = Pass(steps.received, moved, [], [])
        return self._kept[key]

    def add_up(self, steps, sources, likes, what="dkv"):
        """Returns the gradients of this rank's k and v: contributions of all ranks, added as fp32 in the order of
        ranks. sources: Held, with this rank's contributions. likes: k and v."""
        parts = [[[] for _ in range(self.group.world)] for _ in sources]
        items = []
        for source, like, of_ranks in zip(sources, likes, parts):
            of_ranks[self.group.rank] = [(tokens, source.heads(), source.part(tokens, source.heads()))
                                         for tokens in overlaps(self.layout.mine, source.ranges)]
            take = lambda step, part, of_ranks=of_ranks: of_ranks[step.source].append((step.tokens, step.heads, part))
            items.append(Item(what, source, like.shape[3], take))
        self.move(steps, items)
        totals = []
        for like, of_ranks in zip(likes, parts):
            total = self.held(torch.zeros(like.shape, dtype=torch.float32, device=like.device))
            for tokens, heads, part in (found for of_rank in of_ranks for found in of_rank):
                total.part(tokens, heads).add_(part)
            totals.append(total.tensor.to(like.dtype))
        return totals

    @property
    def tree_order(self):
        """The order of blocks in the tree of sums, a function of the problem alone."""
        return tree.tree_order(len(self.plan.blocks) - 1, self.is_causal)

    def add_up_tree(self, steps, parts, likes):
        """Returns the gradients of this rank's k and v in the order of a tree. parts: Held, with the sums of this
        rank's nodes, dk and dv side by side. likes: k and v."""
        k, v = likes
        borders, order = self.plan.blocks, self.tree_order
        of_ranks = [tree.nodes_of(ranges, borders, order) for ranges in self.layout.ranges]
        width, mine = k.shape[3] + v.shape[3], self.group.rank
        new = lambda: self.held(torch.zeros((*k.shape[:3], width), dtype=torch.float32, device=k.device))
        found = {node: new() for nodes in of_ranks for node in nodes}
        for node, part in zip(of_ranks[mine], parts):
            for tokens in overlaps(self.layout.mine, part.ranges):
                found[node].part(tokens, part.heads()).copy_(part.part(tokens, part.heads()))
        empty, items, moved = Held(new().tensor[:, :0], ()), [], []
        for slot in range(max(map(len, of_ranks))):
            def take(step, part, slot=slot):
                found[of_ranks[step.source][slot]].part(step.tokens, step.heads).copy_(part)
            items.append(Item(f"dkv {slot}", parts[slot] if slot < len(parts) else empty, width, take))
            moved += [step._replace(what=f"dkv {slot}") for step in steps.transfers
                      if step.what == "dkv" and slot < len(of_ranks[step.source])]
        key = id(steps), "tree"
        self.move(self._kept.setdefault(key, Pass(steps.received, moved, [], [])), items)
        root = len(order).bit_length() - 1, 0
        of_node = lambda node: found[node].tensor if node in found else node[0] > 0 or None
        total = tree.add_up(root, of_node)
        total = new().tensor if total is None else total
        return [part.to(like.dtype).contiguous()
                for part, like in zip(total.split([k.shape[3], v.shape[3]], 3), likes)]

    # ---- Launches ----

    def launches(self, steps):
        """Returns the launches of a pass."""
        if not (self.drops and steps.launches):
            return steps.launches
        key = id(steps), "launches"
        if key not in self._kept:
            self._kept[key] = [with_whole_keys(one, self.layout, self.window_left) for one in steps.launches]
        return self._kept[key]


# ---- Gather: keys come to the rows ----


def _with_keys(run, steps, k, v):
    """Returns k and v as Held, with all keys that this rank's launches read."""
    held, launches = [run.held(k), run.held(v)], run.launches(steps)
    if not any(steps.received) and all(held[0].slice_of(launch.keys) for launch in launches):
        return held
    span = (min((launch.keys[0] for launch in launches), default=0),
            max((launch.keys[1] for launch in launches), default=0))
    new = torch.zeros if launches is not steps.launches else torch.empty  # keys that no row sees come from no rank
    targets = [Held(new((x.shape[0], span[1] - span[0], *x.shape[2:]), dtype=x.dtype, device=x.device), (span,))
               for x in (k, v)]
    run.fill(steps, ("kv", "kv"), (k, v), targets)
    return targets


def gather(run, q, k, v, features, return_lse):
    """Returns o, lse, and the tensors and features to keep for the backward."""
    steps = run.plan.forward
    o, lse = attend_all(run, steps, run.held(q), *_with_keys(run, steps, k, v), features)
    return o, lse, (q, k, v, o, lse), features


def gather_backward(run, dout, dlse, kept, features, learned):
    """Returns dq, dk, dv and the gradients of features, those of this rank's rows."""
    q, k, v, o, lse = kept
    steps = run.plan.backward
    keys, values = _with_keys(run, steps, k, v)
    if run.plan.blocks:
        return _invariant_backward(run, steps, dout, run.held(q), keys, values, o, lse, dlse, features, learned, (k, v))
    dq, dk, dv, of_features = differentiate_all(run, run.launches(steps), dout, run.held(q), keys, values, o, lse, dlse,
                                                features, learned, adds=True)
    dk, dv = run.add_up(steps, (Held(dk, keys.ranges), Held(dv, keys.ranges)), (k, v))
    return dq.to(q.dtype), dk, dv, of_features


def _invariant_backward(run, steps, dout, q, keys, values, o, lse, dlse, features, learned, likes):
    """Returns what gather_backward() does, with the same bits for each number of ranks."""
    borders, order, x = run.plan.blocks, run.tree_order, q.tensor
    dq, totals = torch.zeros_like(x, dtype=torch.float32), {
        name: torch.zeros_like(features[name], dtype=torch.float32) for name in learned}

    def of_node(node):  # gradients of k and v in one tensor
        level, index = node
        if level:
            return True
        first, end = (borders[order[index] + side] for side in (0, 1))
        mine = [one for one in run.launches(steps) if first <= one.rows[0] < end]
        if not mine:
            return None
        _, dk, dv, _ = differentiate_all(run, mine, dout, q, keys, values, o, lse, dlse, features, learned, True,
                                         (dq, totals))
        return torch.cat([dk, dv], 3)
    parts = [tree.add_up(node, of_node) for node in tree.nodes_of(run.layout.mine, borders, order)]
    sums = run.add_up_tree(steps, [Held(part, keys.ranges) for part in parts], likes)
    return dq.to(x.dtype), *sums, totals


# ---- Exchange: each rank computes some heads for all rows ----


def _to_heads(run, steps, whats, tensors, all_heads):
    """Returns Held of all tokens and of this rank's heads."""
    whole = ((0, run.layout.seqlen),)
    targets = [Held(x.new_empty((x.shape[0], run.layout.seqlen, heads[1] - heads[0], x.shape[3])), whole, heads[0])
               for x, heads in zip(tensors, all_heads)]
    run.fill(steps, whats, tensors, targets)
    return targets


def _columns(lse):
    """Returns lse [batch, heads, rows] in the axes that transfers have."""
    return lse.transpose(1, 2)[..., None]


def _has_rows(run, name):
    """True if each rank has other rows of a feature's tensor."""
    shape = run.shapes.get(name)
    return name in OF_ROWS and run.group.world > 1 and (shape[2] != 1 or run.layout.length == 1)


def _features_to_heads(run, steps, features):
    """Returns the features, of which tensors of this rank's rows are now of all rows, for this rank's heads."""
    made = dict(features)
    for name in (name for name in features if _has_rows(run, name)):
        x = features[name].transpose(1, 2)  # the axes that transfers have
        one = x.shape[2] == 1
        heads = (0, 1) if one else run.my_heads()[0]
        moved = run.rows_of_features(steps, "q", one)
        made[name] = _to_heads(run, moved, ("rows",), (x,), (heads,))[0].tensor.transpose(1, 2)
    return made


def _features_to_rows(run, steps, found):
    """Returns gradients of features, of which those of all rows are now of this rank's, summed over the heads that the
    tensor has once."""
    made = dict(found)
    for name in (name for name in found if _has_rows(run, name)):
        x, shape = found[name].transpose(1, 2), run.shapes[name]
        one = shape[1] == 1
        source = Held(x, ((0, run.layout.seqlen),), 0 if one else run.my_heads()[0][0])
        like = x.new_empty((shape[0], shape[2], shape[1], shape[3]))
        steps_of_rows = run.rows_of_features(steps, "dq", one)
        made[name] = run.add_up(steps_of_rows, (source,), (like,), "rows")[0].transpose(1, 2)
    return made


def exchange(run, q, k, v, features, return_lse):
    steps, (heads, of_kv) = run.plan.forward, run.my_heads()
    held = _to_heads(run, steps, ("q", "kv", "kv"), (q, k, v), (heads, of_kv, of_kv))
    features = _features_to_heads(run, steps, features)
    o, lse = attend_all(run, steps, *held, features)
    whole = held[0].ranges
    mine = run.give_back(steps, ("o",), (Held(o, whole, heads[0]),))[0]
    of_rows = run.give_back(steps, ("o",), (Held(_columns(lse), whole, heads[0]),))[0] if return_lse else None
    kept = (*(x.tensor for x in held), o, lse)
    return mine, None if of_rows is None else of_rows[..., 0].transpose(1, 2).contiguous(), kept, features


def exchange_backward(run, dout, dlse, kept, features, learned):
    q, k, v, o, lse = kept
    steps, (heads, of_kv), whole = run.plan.backward, run.my_heads(), ((0, run.layout.seqlen),)
    dout = _to_heads(run, steps, ("dout",), (dout,), (heads,))[0].tensor
    if dlse is not None:
        dlse = _to_heads(run, steps, ("dout",), (_columns(dlse),), (heads,))[0].tensor[..., 0].transpose(1, 2)
    repeated = run.heads_kv < run.group.world  # several ranks compute one head of k
    held = (Held(q, whole, heads[0]), Held(k, whole, of_kv[0]), Held(v, whole, of_kv[0]))
    dq, dk, dv, of_features = differentiate_all(run, run.launches(steps), dout, *held, o, lse, dlse, features, learned,
                                                adds=repeated)
    dq = run.give_back(steps, ("dq",), (Held(dq.to(q.dtype), whole, heads[0]),))[0]
    likes = [x.new_empty((x.shape[0], run.layout.length, run.heads_kv, x.shape[3])) for x in (k, v)]
    dk, dv = run.add_up(steps, (Held(dk, whole, of_kv[0]), Held(dv, whole, of_kv[0])), likes)
    return dq, dk, dv, _features_to_rows(run, steps, of_features)


FORWARD = {"gather": gather, "exchange": exchange}
BACKWARD = {"gather": gather_backward, "exchange": exchange_backward}
