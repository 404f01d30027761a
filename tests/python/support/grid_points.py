# SPDX-License-Identifier: Apache-2.0
"""Points of the published grids (published_grids.py) on attune's functions: the call, its expected result in float64,
and the choices that its kernel is compiled for. Used by published_grids_test.py and signatures_test.py."""
import functools
import random
import zlib

import torch

import attune
import attune.flash
import attune.sdpa
import published_grids as grids
from attune.score.dropout import drawn_seed

SDPA = ("SDPA_CPU", "SDPA_CPU_MASK", "SDPA_FLASH", "SDPA_EFFICIENT", "SDPA_EFFICIENT_MASK")
FLASH = ("FLASH_2", "FLASH_2_PACKED", "FLASH_4")
TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 2.5e-2,
             torch.float16: 4e-3}  # tolerance of o, whose elements are about 1 or less
LONGEST = 2048           # longest dropout masks that are cached
MOST_SCORES = 1 << 25    # per step of the reference: several tensors of 256 MB
SHORTEST_WINDOW = 203    # windows are shorter than that


def draw(*shape, device, dtype=torch.float32, seed=0):
    generator = torch.Generator(device).manual_seed(zlib.crc32(repr((shape, seed)).encode()))
    return torch.randn(*shape, generator=generator, device=device).to(dtype)


@functools.lru_cache(maxsize=None)
def points_of(name):
    return list(grids.points(getattr(grids, name)))


def kernel_of(name, index):
    """Returns the choices that select a point's kernel, without lengths and batch: equal for points of one kernel."""
    p = points_of(name)[index]
    flash = name in FLASH
    mask = ("bool" if p["bool_mask"] else "float") if "mask_shape" in p else None
    diagonal = ("bottom_right" if flash else "top_left") if p.get("causal") else None
    return (p["dtype"], p["head_dim"], p.get("head_dim_v") or
            p["head_dim"], p.get("kind", "mha"), diagonal, p.get("local", False), p.get(
                "softcap", 0.0), p.get("alibi", False), p.get("sink", False), p.get("dropout_p", 0.0), mask)


def reference(q, k, v, **rest):
    """Computes grids.reference() by parts of the batch and of the heads, which fit into memory together with other
    processes."""
    batch, rows, heads = q.shape[:3]
    if batch * heads == 1 or batch * heads * rows * k.shape[1] <= MOST_SCORES:
        return grids.reference(q, k, v, **rest)
    of_heads, count = batch == 1, heads if batch == 1 else batch
    if of_heads:
        k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, v))
    halves = [_part(q, k, v, rest, of_heads, part) for part in (slice(0, count // 2), slice(count // 2, count))]
    return torch.cat([o for o, _ in halves], 2 if of_heads else 0), torch.cat([lse for _, lse in halves],
                                                                              1 if of_heads else 0)


def _part(q, k, v, rest, of_heads, part):
    axis = 1 if of_heads else 0
    cut = lambda x, at: x if x.shape[at] == 1 else x[(slice(None),) * at + (part,)]
    of_part = {}
    for name, x in rest.items():
        if isinstance(x, torch.Tensor):
            if name == "sinks":
                x = cut(x, 0) if of_heads else x
            elif name == "alibi":
                x = cut(x, axis)
            elif x.dim() == 4:  # masks, biases and dropout masks, [batch, num_heads, seqlen_q, seqlen_kv]
                x = cut(x, axis)
        of_part[name] = x
    return reference(*(x[:, :, part] if of_heads else x[part] for x in (q, k, v)), **of_part)


class Wrong(AssertionError):
    """Raised if a point's result is wrong."""


def compare(got, want, dtype):
    if got.shape != want.shape:
        raise Wrong(f"o has shape {tuple(got.shape)} and not {tuple(want.shape)}")
    if got.isnan().any().item():
        raise Wrong("o has NaN")
    error = (got.double() - want).abs().max().item() if got.numel() else 0
    limit = TOLERANCE[dtype] * max(1, want.abs().max().item() if want.numel() else 0)
    if not error < limit:
        raise Wrong(f"o is off by {error:.3g}, at most {limit:.3g} is accepted")


def compare_lse(lse, want):
    if not torch.equal(lse == -torch.inf, want == -torch.inf):
        raise Wrong("lse is -inf in other rows")
    error = (lse.double() - want).nan_to_num(0, 0, 0).abs().max().item() if lse.numel() else 0
    if not error < 2e-2:
        raise Wrong(f"lse is off by {error:.3g}, at most 0.02 is accepted")


class Points:
    """Checks points on one device. keeps_masks: caches dropout masks between points."""

    def __init__(self, device, keeps_masks=False):
        self.device, self.keeps_masks = device, keeps_masks
        self.kept_of = functools.lru_cache(maxsize=8)(self._mask)  # making a mask on the host takes half a second

    def check(self, name, index):
        """Checks one point. Raises Wrong, or the call's own error."""
        point = points_of(name)[index]
        (self._check_flash if name in FLASH else self._check_sdpa)(point, kernel_of(name, index))

    def draw(self, *shape, **rest):
        return draw(*shape, device=self.device, **rest)

    def _mask(self, batch, heads, rows, keys, dropout_p):
        """Returns the places kept by the seed that dropped() draws."""
        torch.manual_seed(9)
        q = torch.empty(0, device=self.device)
        return attune.dropout_mask((batch, heads, rows, keys), dropout_p, drawn_seed(q), like=q)

    def _dropped(self, call, q, keys, dropout_p):
        """Returns a call's result for q [batch, seqlen_q, num_heads, head_dim], and dropout's factors of its weights.
        """
        if not dropout_p:
            return call(), None
        torch.manual_seed(9)
        result = call()
        batch, rows, heads = q.shape[:3]
        if self.keeps_masks and max(rows, keys) <= LONGEST:  # shorter calls use the beginning of the mask
            keep = self.kept_of(batch, heads, LONGEST, LONGEST, dropout_p)[:, :, :rows, :keys]
        else:
            keep = self._mask(batch, heads, rows, keys, dropout_p)
        return result, keep / (1 - attune.dropout_rate(dropout_p))

    def _check_sdpa(self, p, _):
        """Runs PyTorch's published parameters on scaled_dot_product_attention, [batch, num_heads, seqlen, head_dim]."""
        dtype, rows = p["dtype"], p["seqlen_q"]
        keys, heads, causal = p.get("seqlen_kv", rows), p.get("heads", 4), p.get("causal", False)
        x = self.draw(p["batch"], rows, 3, heads, p["head_dim"], dtype=dtype) if keys == rows else None
        q, k, v = x.unbind(2) if keys == rows else (self.draw(p["batch"], length, heads, p["head_dim"], dtype=dtype,
                                                              seed=i) for i, length in enumerate((rows, keys, keys)))
        scale = 1 / p["head_dim"] if p.get("scale") else None
        mask, features = None, {}
        if "mask_shape" in p:
            extents = {"b": p["batch"], "h": heads, "q": rows, "k": keys, "1": 1}
            mask = self.draw(*(extents[axis] for axis in p["mask_shape"]), dtype=dtype)
            mask = mask > 0 if p["bool_mask"] else mask
            features = {"seen": mask} if p["bool_mask"] else {"bias": mask}
        call = lambda: attune.sdpa.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                                                mask, p.get("dropout_p", 0.0), causal, scale)
        if dtype == torch.float64:
            return self._refused(call)
        seen = features.pop("seen", grids.visible(rows, keys, "top_left" if causal else None, device=self.device))
        o, kept = self._dropped(call, q, keys, p.get("dropout_p", 0.0))
        compare(o.transpose(1, 2), reference(q, k, v, seen=seen, scale=scale, kept=kept, **features)[0], dtype)

    def _refused(self, call):
        try:
            call()
        except ValueError as error:
            if "is float64, and attune computes in fp32 at most" in str(error):
                return
            raise
        raise Wrong("float64 is not refused")

    def _check_flash(self, p, kernel):
        """Runs FlashAttention's published parameters on flash_attn_func, [batch, seqlen, num_heads, head_dim]. Its
        tests draw a window per point. Here windows are drawn per kernel, since kernels have them compiled in."""
        batch, heads, dtype = (4, 6, p["dtype"]) if grids.size_of(p) <= 1 << 21 else (2, 6, p["dtype"])
        rows, keys = p.get("lengths") or (p["seqlen_q"], p["seqlen_q"])
        heads_kv = {"mha": heads, "mqa": 1, "gqa": 2}[p.get("kind", "mha")]
        head_dim_v = p.get("head_dim_v") or p["head_dim"]
        q = self.draw(batch, rows, heads, p["head_dim"], dtype=dtype)
        kv = self.draw(batch, keys, 2, heads_kv, p["head_dim"], dtype=dtype, seed=1)
        k, v = kv.unbind(2)
        v = v if head_dim_v == p["head_dim"] else self.draw(batch, keys, heads_kv, head_dim_v, dtype=dtype, seed=2)
        pick = random.Random(repr(kernel))
        window = (pick.randrange(SHORTEST_WINDOW), pick.randrange(SHORTEST_WINDOW)) if p["local"] else (-1, -1)
        slopes = self.draw(batch, heads, seed=3).abs() * 0.3 if p.get("alibi") else None
        sinks = self.draw(heads, dtype=dtype, seed=4) if p.get("sink") else None
        choices = dict(dropout_p=p.get("dropout_p", 0.0), causal=p["causal"], window_size=window, alibi_slopes=slopes,
                       return_attn_probs=True, softcap=p.get("softcap", 0.0))
        if "kind" not in p:  # packed
            qkv = self.draw(batch, rows, 3, heads, p["head_dim"], dtype=dtype)
            q, k, v = qkv.unbind(2)
            call = lambda: attune.flash.flash_attn_qkvpacked_func(qkv, **choices)
        elif p.get("kvpacked"):
            call = lambda: attune.flash.flash_attn_kvpacked_func(q, kv, **choices)
        else:
            call = lambda: attune.flash.flash_attn_func(q, k, v, learnable_sink=sinks, **choices)
        (o, lse, probabilities), kept = self._dropped(call, q, keys, choices["dropout_p"])
        seen = grids.visible(rows, keys, "bottom_right" if p["causal"] else None, window, self.device)
        want, want_lse = reference(q, k, v, seen=seen, softcap=p.get("softcap"), alibi=slopes, sinks=sinks, kept=kept)
        if isinstance(probabilities, torch.Tensor) and probabilities.numel():
            raise Wrong("flash_attn_func gives probabilities")
        compare(o, want, dtype)
        compare_lse(lse, want_lse)
