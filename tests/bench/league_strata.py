# SPDX-License-Identifier: Apache-2.0
"""The league's kinds of work and their strata, for league_draw.draw(). A stratum says which layers of the model table
it takes, and how it draws lengths, batches, pages and rows for one of them.

    forward, gradients, gradients_deterministic    fields of cases.Case
    e4m3_accurate, e4m3_fast                       fields of cases.Case, whose operands become e4m3
    serving                                        fields of cuda/decode.py's Case
    scores                                         fields of cuda/scores.py's Case
On a CPU each kind has a dtype at its end (forward_fp32); decode_fp32 has fields of cases.Case and a page size.
Both kinds of gradients have the same points.
"""
from dataclasses import dataclass

from league_draw import PARTS, Point, length, log_uniform, pick

CPU_DTYPES = ("fp32", "bf16", "fp16")
CUDA_DTYPES = ("bf16", "bf16", "bf16", "fp16")
USUAL_DIMS = (64, 128, 256)
PAGES = tuple(2**n for n in range(9))
MOST_REQUESTS = 512
SCORE_FEATURES = ("softcap", "alibi", "bias", "relative_bias", "sinks", "documents")


@dataclass(frozen=True)
class Stratum:
    name: str
    fits: object  # fits(layer)
    make: object  # make(rng, layer) -> Point or None


def pairs(queries, keys, causal, left=-1, right=0):
    """Returns about how many (query, key) pairs are visible in one head of one sequence."""
    seen = queries * keys - queries * (queries - 1) / 2 if causal else queries * keys
    return min(seen, queries * (left + 1 + right)) if left >= 0 else seen


def is_plain(layer):
    return not layer.features and layer.head_dim % 8 == 0 and 16 <= layer.head_dim <= 256 and layer.head_dim_v <= 256


def is_decoder(layer):
    return is_plain(layer) and layer.causal and layer.window_left < 0


def has_usual_dims(layer):
    return layer.head_dim in USUAL_DIMS and layer.head_dim == layer.head_dim_v


def dense_point(layer, batch, queries, keys, gradients=False, dtype="bf16", more=()):
    """Returns the point of a Case of cases.py."""
    causal, left, right = layer.causal, layer.window_left, layer.window_right
    if causal and queries > keys:
        return None
    width = layer.head_dim + layer.head_dim_v
    work = 2.0 * width * pairs(queries, keys, causal, left, right) * batch * layer.heads_q
    elements = batch * width * (queries * layer.heads_q + keys * layer.heads_kv)
    case = {
        "batch": batch, "seqlen_q": queries, "seqlen_kv": keys, "heads_q": layer.heads_q, "heads_kv": layer.heads_kv,
        "head_dim": layer.head_dim, "causal": causal, "window_left": left, "window_right": 0 if causal else right,
        "head_dim_v": 0 if layer.head_dim_v == layer.head_dim else layer.head_dim_v, "dtype": dtype, **dict(more)}
    size = 4 if dtype == "fp32" else 2
    times = (2.5, 3, 4) if gradients else (1, 1, 2)  # work, traffic, memory
    return Point("", "", "", layer.model, case, times[0] * work, times[1] * size * elements, times[2] * size * elements)


def squares(low, high, gradients, dtype="", most=MOST_REQUESTS):
    """Returns make() for as many queries as keys. Without a dtype, one of CUDA_DTYPES is drawn."""
    def make(rng, layer):
        layer, n = layer.part(pick(rng, PARTS)) if layer.causal else layer, length(rng, low, high)
        return dense_point(layer, log_uniform(rng, 1, most), n, n, gradients, dtype or pick(rng, CUDA_DTYPES))
    return make


def few_key_heads(make):
    """Returns make() without points of few query heads a key head, such as those of many GPUs."""
    def made(rng, layer):
        point = make(rng, layer)
        return point if point and point.case["heads_q"] >= 7 * point.case["heads_kv"] else None
    return made


def given_lengths(gradients, dtype="", high=16384, most=MOST_REQUESTS):
    """Returns make() for encoders: every second time with lengths that the model fixes, so far as it fixes some."""
    def make(rng, layer):
        fixed = [one for one in layer.lengths if one[0] != one[1] or one[0] % 64]
        n = length(rng, 32, high)
        queries, keys = pick(rng, fixed) if fixed and rng.random() < 0.5 else (n, n)
        return dense_point(layer, log_uniform(rng, 1, most), queries, keys, gradients, dtype or pick(rng, CUDA_DTYPES))
    return make


def few_rows(low, high, gradients):
    """Returns make() for rows of queries that are the last of their keys."""
    def make(rng, layer):
        rows, keys = log_uniform(rng, low, high), length(rng, 256, 131072)
        return dense_point(layer.part(pick(rng, PARTS)), log_uniform(rng, 1, 64), rows, keys, gradients,
                           pick(rng, CUDA_DTYPES))
    return make


def dense_strata(gradients):
    """Returns the strata of forward passes, or of gradients."""
    long = 32768 if gradients else 131072
    any_length = squares(128, 16384, gradients)
    return [
        Stratum("short", is_decoder, squares(16, 512, gradients)),
        Stratum("middle", is_decoder, squares(512, 4096, gradients)),
        Stratum("long", is_decoder, squares(4096, long, gradients)),
        Stratum("full", lambda layer: is_plain(layer) and not layer.causal and layer.window_left < 0, given_lengths(
            gradients)),
        Stratum("window", lambda layer: is_plain(layer) and layer.window_left >= 0, squares(256, long, gradients)),
        Stratum("rows", is_decoder, few_rows(128 if gradients else 1, 2048, gradients)),
        Stratum("other head dims", lambda layer: is_decoder(layer) and not has_usual_dims(layer), any_length),
        Stratum("few key heads", lambda layer: is_decoder(layer) and layer.group >= 7, few_key_heads(any_length))]


def e4m3_strata():
    """Returns the strata of 8-bit operands, for which no peer has windows."""
    def fits(layer):
        return is_plain(layer) and layer.window_left < 0 and layer.head_dim % 16 == 0 and (
            layer.head_dim == layer.head_dim_v)

    def causal(layer):
        return fits(layer) and layer.causal
    return [
        Stratum("short", causal, squares(128, 1024, False, "bf16")),
        Stratum("middle", causal, squares(1024, 8192, False, "bf16")),
        Stratum("long", causal, squares(8192, 131072, False, "bf16")),
        Stratum("full", lambda layer: fits(layer) and not layer.causal, given_lengths(False, "bf16")),
        Stratum("d256", lambda layer: fits(layer) and layer.head_dim == 256, squares(256, 32768, False, "bf16"))]


def serving_point(layer, lengths, rows=1, page=0, dtype_kv="", by_key=False, packed=False, latent=False):
    """Returns the point of a Case of cuda/decode.py."""
    if not packed and rows > min(lengths):
        return None
    dim, dim_v = (576, 512) if latent else (layer.head_dim, layer.head_dim)
    heads_kv = 1 if latent else layer.heads_kv
    element = 1 if dtype_kv else 2
    cached = sum(lengths) * heads_kv * dim * (1 if latent else 2) * element
    queries = sum(lengths) if packed else rows * len(lengths)
    seen = sum(pairs(n if packed else rows, n, True) for n in lengths)
    slots = 0 if page or packed else max(lengths) * len(lengths) * heads_kv * dim * 2 * element
    case = {
        "lengths": tuple(lengths), "heads": layer.heads_q, "heads_kv": heads_kv, "rows": rows, "page": page,
        "head_dim": dim, "dtype_kv": dtype_kv, "by_key": by_key, "packed": packed, "head_dim_v": dim_v if latent else 0}
    # The copies of a small cache, which fill the L2 twice, and the operands that are made in 16 bits first.
    memory = 3 * max(cached, slots) / element * 2 + 4 * queries * layer.heads_q * (dim + dim_v) + 2**29
    return Point("", "", "", layer.model, case, 2.0 * seen * layer.heads_q * (dim + dim_v),
                 cached + 2.0 * queries * layer.heads_q * (dim + dim_v), memory)


def requests(rng, low, high, most=MOST_REQUESTS, ragged=False, step=1):
    """Returns lengths of keys: one length for all requests, or each its own."""
    count, n = log_uniform(rng, 2 if ragged else 1, most), length(rng, low, high)
    if not ragged:
        return (max(step, n - n % step),) * count
    return tuple(log_uniform(rng, low, n) for _ in range(count)) if n > low else None


def serving(low, high, rows=(1, 1), pages=PAGES, dtypes=("",), most=MOST_REQUESTS, **more):
    """Returns make() for requests over caches. Slots have room for multiples of 16 keys."""
    ragged = more.pop("ragged", False)

    def make(rng, layer):
        layer = layer if more.get("latent") and layer.heads_q > 128 else layer.part(pick(rng, PARTS))
        page, dtype, count = pick(rng, pages), pick(rng, dtypes), log_uniform(rng, *rows)
        lengths = requests(rng, low, high, most, ragged, 1 if page or more.get("packed") else 16)
        by_key = bool(dtype) and rng.random() < 0.25
        return lengths and serving_point(layer, lengths, count, page, dtype, by_key, **more)
    return make


def serving_strata():
    def fits(layer):
        return is_decoder(layer) and layer.head_dim == layer.head_dim_v

    def latent(layer):
        return is_decoder(layer) and (layer.head_dim, layer.head_dim_v) == (192, 128)
    return [
        Stratum("slots", fits, serving(64, 131072, pages=(0, ))), Stratum("pages", fits, serving(64, 131072)),
        Stratum("8-bit pages", fits, serving(64, 131072, dtypes=("e4m3", "e4m3", "int8"))),
        Stratum("ragged", fits, serving(16, 65536, ragged=True, most=256)),
        Stratum("several rows", fits, serving(64, 65536, rows=(2, 16), most=256)),
        Stratum("chunks", fits, serving(512, 131072, rows=(17, 2048), most=32)),
        Stratum("prompts", fits, serving(16, 16384, pages=(0, ), packed=True, ragged=True, most=128)),
        Stratum("latent", latent, serving(128, 65536, pages=(1, 16, 32, 64), latent=True, most=256))]


def score_point(layer, feature, batch, n, wide_v=False):
    """Returns the point of a Case of cuda/scores.py."""
    dim, dim_v = layer.head_dim, layer.head_dim_v
    window = layer.window_left if layer.causal and layer.window_left >= 0 else -1
    case = {
        "feature": feature, "head_dim": dim, "heads": (layer.heads_q, layer.heads_kv), "seqlen": n, "batch": batch,
        "causal": layer.causal, "window": window, "head_dim_v": dim_v if wide_v else 0,
        "value": (layer.softcap or 50.0) if feature == "softcap" else 0.0}
    work = 2.0 * (dim + dim_v) * pairs(n, n, layer.causal, window) * batch * layer.heads_q
    elements = 2.0 * batch * n * (dim + dim_v) * (layer.heads_q + layer.heads_kv)
    bias = 2.0 * layer.heads_q * n * n if feature == "bias" else 0.0
    return Point("", "", "", layer.model, case, work, elements + bias, 3 * (elements + bias))


def with_feature(feature, low=128, high=32768):
    def make(rng, layer):
        layer = layer.part(pick(rng, PARTS)) if layer.causal else layer
        return score_point(layer, feature, log_uniform(rng, 1, 64), length(rng, low, high))
    return make


def score_strata():
    """Returns a stratum per feature: of layers that have it, or of any layer for masks and biases that callers add."""
    def usable(layer):
        return layer.head_dim == layer.head_dim_v and layer.head_dim <= 256 and layer.head_dim % 8 == 0 and (
            layer.causal or layer.window_left < 0)

    def having(feature, windows=False):
        return lambda layer: usable(layer) and feature in layer.features and (layer.window_left >= 0) == windows

    def anything(layer):
        return usable(layer) and not layer.features and layer.window_left < 0

    def wide(rng, layer):
        return score_point(layer, "", log_uniform(rng, 1, 64), length(rng, 128, 16384), wide_v=True)
    return [
        Stratum("softcap", having("softcap"), with_feature("softcap")), Stratum("alibi", having("alibi"), with_feature(
            "alibi")), Stratum("bias", lambda layer: anything(layer) and not layer.causal, with_feature("bias")),
        Stratum("relative bias", having("relative_bias"), with_feature("relative_bias", high=4096)),
        Stratum("sinks", lambda layer: usable(layer) and "sinks" in layer.features, with_feature("sinks")),
        Stratum("documents", lambda layer: anything(layer) and layer.causal, with_feature("documents", low=512)),
        Stratum("window", lambda layer: usable(layer) and not layer.features and layer.window_left >= 0, with_feature(
            "", low=512)),
        Stratum("other width of v", lambda layer: is_decoder(layer) and layer.head_dim != layer.head_dim_v, wide)]


def cpu_decode(dtype):
    def make(rng, layer):
        page = pick(rng, (0, 0, 16, 64))
        keys = length(rng, 64, 32768)
        keys = max(64, keys - keys % 64)
        return dense_point(layer.part(pick(rng, PARTS)), log_uniform(rng, 1, 32), 1, keys, False, dtype,
                           {"page": page, "causal": False}.items())
    return make


def cpu_strata(kind, dtype):
    def square_v(layer):
        return layer.head_dim == layer.head_dim_v

    def decoder(layer):
        return is_decoder(layer) and square_v(layer)
    if kind == "decode":
        return [Stratum("decode", decoder, cpu_decode(dtype)),
                Stratum("few key heads", lambda layer: decoder(layer) and layer.group >= 7, few_key_heads(cpu_decode(
                    dtype)))]
    gradients = kind == "gradients"
    return [
        Stratum("short", decoder, squares(16, 256, gradients, dtype, 16)),
        Stratum("long", decoder, squares(256, 4096, gradients, dtype, 4)),
        Stratum("full", lambda layer: is_plain(layer) and square_v(layer) and not (
            layer.causal or layer.window_left >= 0), squares(32, 2048, gradients, dtype, 16)),
        Stratum("other head dims", lambda layer: decoder(layer) and not has_usual_dims(layer), squares(
            64, 2048, gradients, dtype, 4)),
        Stratum("few key heads", lambda layer: decoder(layer) and layer.group >= 7, few_key_heads(squares(
            64, 2048, gradients, dtype, 4)))]


def kinds_of(device):
    """Returns the strata of each kind of a device, cuda or cpu."""
    if device == "cpu":
        return {f"{kind}_{dtype}": cpu_strata(kind, dtype)
                for kind in ("forward", "gradients", "decode") for dtype in CPU_DTYPES}
    gradients = dense_strata(True)
    return {
        "forward": dense_strata(False), "gradients": gradients, "gradients_deterministic": gradients,
        "serving": serving_strata(), "e4m3_accurate": e4m3_strata(), "e4m3_fast": e4m3_strata(),
        "scores": score_strata()}


def drawn_as(kind):
    """Returns the kind whose random numbers a kind uses: two modes of one work are timed on the same points."""
    return {"gradients_deterministic": "gradients", "e4m3_fast": "e4m3_accurate"}.get(kind, kind)
