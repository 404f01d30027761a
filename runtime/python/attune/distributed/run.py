# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a Plan: moves tensors by the group, and launches on slices (launches.py). Used by attention.py."""
import torch

from ..core.preparing import noted_plans
from .features import OF_ROWS
from .invariant import invariant_backward
from .launches import attend_all, differentiate_all, with_whole_keys
from .moves import Held, Item, Route, overlaps
from .plan import Pass


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

    def kept(self, key, make):
        """Returns what make() made for this key at the first call."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

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
        moved = lambda: [step._replace(what="rows", heads=(0, 1) if one_head else step.heads)
                         for step in steps.transfers if step.what == what]
        return self.kept((id(steps), what, one_head), lambda: Pass(steps.received, moved(), [], []))

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

    # ---- Launches ----

    def launches(self, steps):
        """Returns the launches of a pass."""
        if not (self.drops and steps.launches):
            return steps.launches
        return self.kept((id(steps), "launches"), lambda: [
            with_whole_keys(one, self.layout, self.window_left) for one in steps.launches])


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
        return invariant_backward(run, steps, dout, run.held(q), keys, values, o, lse, dlse, features, learned, (k, v))
    dq, dk, dv, of_features = differentiate_all(run, run.launches(steps), dout, run.held(q), keys, values, o, lse, dlse,
                                                features, learned, adds=True)
    dk, dv = run.add_up(steps, (Held(dk, keys.ranges), Held(dv, keys.ranges)), (k, v))
    return dq.to(q.dtype), dk, dv, of_features


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
