# SPDX-License-Identifier: Apache-2.0
"""Group: the ranks that compute attention together, over a ProcessGroup of torch.distributed. It moves tensors, and
tells all ranks if they disagree."""
import datetime
import hashlib
import itertools
import os

import torch
import torch.distributed as dist

from ..core.library import version
from ..core.problem import mask_name, real, whole, window_sides
from .cache_layout import CacheLayout
from .layout import KINDS, Layout
from .plan import make_plan

_DIGEST_BYTES = 32
_REFUSED = "a call that is refused"  # text of a call on a rank that refuses it
_MOST_AGREED = 1024  # calls that a group remembers
_CHECKS_EACH_CALL = os.environ.get("ATTUNE_CHECK_GROUP", "0") not in ("", "0")


def key_of(x):
    """Returns what the key of a call holds of an argument: a tensor's shape and dtype, or the value."""
    if isinstance(x, torch.Tensor):
        return x.shape, x.dtype
    try:
        hash(x)
    except TypeError:
        return repr(x)
    return x


class GroupError(RuntimeError):
    """Ranks of a group disagree, or a transfer between them failed. All ranks of the group get it."""


class Group:
    """The ranks of a process group that compute attention together.

    process_group: a torch.distributed.ProcessGroup with any backend (NCCL, gloo), or None for the default group. All
    of its ranks must make the Group, which compares their versions of attune. It starts no process and opens no link.
    timeout_s: how long a rank waits in one transfer for the others; then it raises GroupError. By default as long as
    the process group allows. With NCCL the kernels wait on the device, so the process group itself gets this limit, and
    its watchdog ends the process. After a failed transfer every later call on the group fails with the first cause."""

    def __init__(self, process_group=None, *, timeout_s=None):
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("torch.distributed has no process group; call torch.distributed.init_process_group() "
                               "first, for instance in a program that torchrun starts")
        self.process_group = dist.group.WORLD if process_group is None else process_group
        if self.process_group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("process_group does not contain this rank; make the Group on its members alone")
        self.rank, self.world = dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        self._agreed, self._calls, self._failure = {}, itertools.count(), None
        self._limit = self._limited(timeout_s)
        self.agree(f"version of attune: {version()}")

    def __repr__(self):
        return f"Group(rank={self.rank}, world={self.world}, backend={dist.get_backend(self.process_group)!r})"

    # ---- What ranks agree on ----

    def agree(self, text):
        """Compares a text with the texts of all ranks. Raises GroupError on every rank if one differs, and names the
        ranks and their texts. All ranks of the group must call it."""
        mine = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        all_digests = self.gather_parts(mine, (_DIGEST_BYTES,) * self.world)
        if all(torch.equal(digest, mine) for digest in all_digests):
            return
        raw = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        lengths = [int(length) for length in self.gather_parts(torch.tensor([raw.numel()]), (1,) * self.world)]
        texts = [bytes(part.tolist()).decode() for part in self.gather_parts(raw, lengths)]
        if all(_REFUSED in found for found in texts):
            return  # each rank raises its own refusal
        other = next(rank for rank, found in enumerate(texts) if found != texts[0])
        raise GroupError(f"ranks of the group disagree: rank 0 has {texts[0]}; rank {other} has {texts[other]}; all "
                         "ranks must make the same calls in the same order")

    def agreed(self, key, describe):
        """Returns describe()'s value for a call, after all ranks gave the same text for it. describe: returns (text,
        value), or raises; then every rank raises. Known keys are not compared again, unless ATTUNE_CHECK_GROUP is 1."""
        self.check()
        known = self._agreed.get(key)
        if known is not None and not _CHECKS_EACH_CALL:
            return known
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a CUDA graph is captured, and this call is new to the group, whose ranks must agree on "
                               "the host; make the same call once before the capture")
        try:
            text, value, refusal = *describe(), None
        except Exception as error:  # of any kind: the other ranks wait for this one
            text, value, refusal = "", None, error
        self.settle(text, refusal, f"call {next(self._calls)}: " if _CHECKS_EACH_CALL else "")
        if len(self._agreed) >= _MOST_AGREED:  # on all ranks at the same call
            self._agreed.clear()
        self._agreed[key] = value
        return value

    def settle(self, text, refusal, number=""):
        """Compares texts as agree() does. refusal: the error of a rank that refuses the call, or None. If one rank
        refuses it, every rank raises GroupError with that error's text; if all do, each raises its own."""
        try:
            self.agree(number + (text if refusal is None else f"{_REFUSED} ({refusal})"))
        except GroupError as error:
            raise error from refusal
        if refusal is not None:
            raise refusal

    def _limited(self, timeout_s):
        """Returns the limit of a wait on the host; None if the process group keeps it."""
        if timeout_s is None:
            return None
        limit = real("timeout_s", timeout_s)
        if not 0 < limit < 1e9:
            raise ValueError(f"timeout_s is {timeout_s}; must be above 0 and below 1e9 seconds")
        limit = datetime.timedelta(seconds=limit)
        if dist.get_backend(self.process_group) != "nccl":
            return limit
        dist.distributed_c10d._set_pg_timeout(limit, self.process_group)
        return None

    def check(self):
        """Raises GroupError if a transfer of this group failed before."""
        if self._failure is not None:
            raise GroupError(f"the group failed before: {self._failure}")

    # ---- Transfers ----

    def check_device(self, x):
        """Raises if the backend moves no tensors of x's device."""
        if not x.is_cuda and dist.get_backend(self.process_group) == "nccl":
            raise ValueError(f"q is on {x.device}, and the process group's backend is nccl; must be on a GPU")

    def _transfer(self, what, function, *arguments, **keywords):
        self.check()
        try:
            work = function(*arguments, group=self.process_group, async_op=self._limit is not None, **keywords)
            if self._limit is not None:
                work.wait(self._limit)
        except RuntimeError as error:  # dist.DistBackendError is one
            self._failure = f"rank {self.rank} could not exchange {what} with the others: {error}"
            raise GroupError(self._failure + "; a rank may have ended, or waited longer than the process group allows"
                             ) from error

    def _device(self, x):
        """Returns the device on which the backend takes a tensor: its own if possible."""
        if x.is_cuda or dist.get_backend(self.process_group) != "nccl":
            return x.device
        return torch.device("cuda", torch.cuda.current_device())

    def gather_parts(self, x, lengths):
        """Returns the tensors of all ranks on every rank. lengths: the extents of their first axes; the other axes are
        equal."""
        device, most = self._device(x), max(lengths)
        sent = x.new_zeros((most, *x.shape[1:]), device=device)
        sent[:x.shape[0]] = x
        received = [torch.empty_like(sent) for _ in range(self.world)]
        self._transfer("tensors", dist.all_gather, received, sent)
        return [part[:length].to(x.device) for part, length in zip(received, lengths)]

    def swap(self, route, sent, like):
        """Sends parts to the ranks and returns theirs. route: a Route (run.py). sent: its parts to send. like: a tensor
        with their dtype and device. Every rank must call it."""
        given, received = like.new_empty(sum(route.sent_counts)), like.new_empty(sum(route.coming_counts))
        offset = 0
        for x in sent:
            size = x.numel()
            given[offset:offset + size].view(x.shape).copy_(x)
            offset += size
        size = like.element_size()
        self._transfer(route.what, dist.all_to_all_single, received.view(torch.uint8), given.view(torch.uint8),
                       [count * size for count in route.coming_counts], [count * size for count in route.sent_counts])
        return [part.view(shape) for part, shape in zip(received.split(route.sizes), route.shapes)]

    def gather_states(self, states, mine):
        """Writes the tensors `mine` [1, size] of all ranks into `states` [world, size]. Every rank must call it."""
        self._transfer("partial results", dist.all_gather_into_tensor, states, mine)

    def add_up(self, x):
        """Adds a contiguous tensor over all ranks, in place."""
        self._transfer("sums", dist.all_reduce, x)

    def broadcast(self, x, rank):
        """Writes the contiguous tensor of one rank of the group into those of all ranks."""
        self._transfer("a tensor of one rank", dist.broadcast, x, group_src=rank)

    # ---- Layouts ----

    def cache_layout(self, block):
        """Returns a CacheLayout: the keys that each rank's cache holds, dealt in blocks of `block` keys. Ranks exchange
        nothing. block: at least 1, for instance the page size. A block as large as the room of a rank's cache gives
        each rank one range of positions."""
        return CacheLayout(self, block)

    def layout(self, seqlen, *, mask=None, window=None, documents=None, kind="auto"):
        """Returns a Layout for a sequence of `seqlen` tokens. It is a function of its arguments alone: ranks exchange
        nothing.

        mask, window: as in attention(); they decide how much each token computes. documents: borders of packed
        documents, as cu_seqlens: whole numbers or an int tensor, from 0 to seqlen. Tokens then see keys of their own
        document alone.
        kind: "contiguous": one range a rank. "zigzag": a range and its mirror image, which balances causal masks.
        "balanced": pieces, dealt by the work that masks and documents leave. "auto": one of the three. Borders are at
        multiples of 128 tokens; seqlen is any number, and a rank may hold no token."""
        seqlen = whole("seqlen", seqlen)
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; must be one of {', '.join(KINDS)}")
        if documents is not None:
            documents = tuple(whole("documents", border) for border in (
                documents.tolist() if hasattr(documents, "tolist") else documents))
        left, right = window_sides(window)
        text = f"dtype=bf16,head_dim=64,heads=1,seqlen={seqlen},mask={mask_name(mask, False, seqlen, seqlen)}"
        if left >= 0 or right >= 0:
            text += f",window={'-' if left < 0 else left}:{'-' if right < 0 else right}"
        plan = make_plan(text, self.world, self.rank, kind, "gather", documents)
        return Layout(self, seqlen, documents, plan.layout)
