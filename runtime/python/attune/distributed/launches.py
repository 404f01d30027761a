# SPDX-License-Identifier: Apache-2.0
"""The calls of attention() and attention_backward() that a rank's schedule launches on slices. Used by run.py."""
from bisect import bisect_right

import torch

from ..ops.attention import attention as attend
from ..ops.backward import attention_backward
from ..ops.padding import is_between
from ..ops.score_gradient import score_gradient
from ..score.dropout import PlacedSeed
from .features import PROGRAMS, SEEDS, index_of, rows_axis, value_of
from .plan import mask_of

_SQUARE = 16  # dropout_p: launches begin at multiples of as many rows


def _moved_score(program, row, key, head):
    """Returns the score_mod of a slice whose first row, key and head are these of the whole."""
    def score_mod(score, batch, h, q_idx, kv_idx):
        return program(score, batch, h + head, q_idx + row, kv_idx + key)
    return score_mod


def _moved_mask(program, row, key, head):
    def mask_mod(batch, h, q_idx, kv_idx):
        return program(batch, h + head, q_idx + row, kv_idx + key)
    return mask_mod


_MOVED = dict(zip(PROGRAMS, (_moved_score, _moved_mask)))


class Part:
    """A launch for some batch entries. batch, rows, keys: slices of the Held tensors. front: rows of zeros that the
    call has before its own. head0, row0: the place of its first head and row in the mask of dropout."""

    def __init__(self, run, launch, q, k, batch, place):
        self.launch, self.batch, self.heads_q, self.seqlen = launch, batch, run.heads_q, run.layout.seqlen
        self.rows, self.keys = q.slice_of(launch.rows), k.slice_of(launch.keys)
        self.front, self.head0, self.row0 = place

    def of_rows(self, x):
        """Returns these rows of x [batch, rows, ..]."""
        found = x[self.batch, self.rows]
        return torch.cat([x.new_zeros((found.shape[0], self.front, *x.shape[2:])), found], 1) if self.front else found

    def of_lse(self, x, before=-torch.inf):
        """Returns these rows of lse or dlse [batch, heads, rows]. Rows of zeros see no key."""
        found = x[self.batch, :, self.rows]
        return torch.nn.functional.pad(found, (self.front, 0), value=before) if self.front else found

    def own(self, x, axis=1):
        """Returns what the call made, without the rows of zeros."""
        return x.narrow(axis, self.front, x.shape[axis] - self.front) if self.front else x


def with_whole_keys(launch, layout, window_left):
    """Returns the launch with all keys from its document's first on, as dropout needs, which counts keys from there."""
    first = document_of(launch, layout)[1]
    if launch.keys[0] == first:
        return launch
    left = launch.left if window_left < 0 else window_left + launch.keys[1] - launch.rows[1]
    return launch._replace(keys=(first, launch.keys[1]), left=left)


def document_of(launch, layout):
    """Returns the number and the first token of the packed document of a launch."""
    borders = layout.documents or (0, layout.seqlen)
    number = bisect_right(borders, launch.rows[0]) - 1
    return number, borders[number]


def _parts(run, launches, q, k):
    """Yields the Parts of launches. Dropout counts the heads of all batch entries, so a launch with some of the heads
    takes one entry. A packed document counts as batch entries of its own."""
    entries = q.tensor.shape[0]
    for launch in launches:
        if not run.drops:
            yield Part(run, launch, q, k, slice(None), (0, 0, 0))
            continue
        number, first = document_of(launch, run.layout)
        row = launch.rows[0] - first
        front = row % _SQUARE
        is_whole = entries == 1 or launch.heads == (0, run.heads_q)
        for entry in range(1 if is_whole else entries):
            head0 = (number * entries + entry) * run.heads_q + launch.heads[0]
            yield Part(run, launch, q, k, slice(None) if is_whole else slice(entry, entry + 1),
                       (front, head0, row - front))


def _options(run, part, features):
    """Returns the keywords of a call."""
    launch = part.launch
    options = {**mask_of(launch), **run.choices}
    options.update({name: value_of(name, x, part) for name, x in features.items() if name not in SEEDS})
    if "documents_q" in options:
        options["documents"] = options.pop("documents_q"), options.pop("documents_kv")
    if run.drops:
        options.update(seed=PlacedSeed(features["seed"], part.head0, part.row0), offset=features["offset"])
    for name, moved in _MOVED.items():
        if name in options:
            options[name] = moved(options[name], launch.rows[0] - part.front, launch.keys[0], launch.heads[0])
    return options


def attend_all(run, steps, q, k, v, features):
    """Returns o and lse of all rows of q, a Held, as k and v are."""
    x = q.tensor
    o = x.new_empty((*x.shape[:3], v.tensor.shape[3]))
    lse = x.new_empty((x.shape[0], x.shape[2], x.shape[1]), dtype=torch.float32)
    for part in _parts(run, run.launches(steps), q, k):
        out = o[part.batch, part.rows]
        found = attend(part.of_rows(x), k.tensor[part.batch, part.keys], v.tensor[part.batch, part.keys],
                       out=None if part.front else out, return_lse=True, **_options(run, part, features))
        if part.front:
            out.copy_(part.own(found[0]))
        lse[part.batch, :, part.rows] = part.own(found[1], 2)
    return o, lse


def _gradients(part, given, sums, adds, options):
    """Adds a call's gradients to sums, or writes them there."""
    dq, *of_keys = sums
    if is_between(*given[1:4]):
        for total, found in zip(sums, attention_backward(*given, **options)):
            total.add_(part.own(found) if total is dq else found)
        return
    made = dq.new_zeros(given[1].shape) if part.front else dq
    attention_backward(*given, out=(made, *of_keys), accumulate=adds, **options)
    if part.front:
        dq.add_(part.own(made))


def _score_gradients(part, given, features, learned, options, totals):
    """Adds a call's gradients of the features in `learned` to totals."""
    for name in learned:
        x = features[name]
        found, axis = score_gradient(name, *given, **options).float(), rows_axis(name, x)
        totals[name][index_of(name, x, part)] += found if axis is None else part.own(found, axis)


def differentiate_all(run, launches, dout, q, k, v, o, lse, dlse, features, learned, adds, into=None):
    """Returns dq, dk, dv, and the gradients of the features in `learned` by name, fp32. adds: keys have several
    launches, or several ranks, and gradients are fp32 sums. into: dq and these gradients, to which launches add."""
    x = q.tensor
    dq, totals = into or (torch.zeros_like(x, dtype=torch.float32 if adds else x.dtype),
                          {name: torch.zeros_like(features[name], dtype=torch.float32) for name in learned})
    made = [dq, *(torch.zeros_like(y, dtype=torch.float32 if adds else y.dtype) for y in (k.tensor, v.tensor))]
    for part in _parts(run, launches, q, k):
        keys = part.batch, part.keys
        given = (part.of_rows(dout), part.of_rows(x), k.tensor[keys], v.tensor[keys], part.of_rows(o),
                 part.of_lse(lse))
        options = dict(dlse=None if dlse is None else part.of_lse(dlse, 0.0), **_options(run, part, features))
        sums = [y[place] for y, place in zip(made, ((part.batch, part.rows), keys, keys))]
        _gradients(part, given, sums, adds, options)
        _score_gradients(part, given, features, learned, options, totals)
    return *made, totals
