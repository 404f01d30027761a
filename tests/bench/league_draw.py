# SPDX-License-Identifier: Apache-2.0
"""Draws the league's points: layers of the model table of `attune models`, with random lengths and batches.
league.py times the points; league_strata.py has the kinds and their strata.

A draw depends on nothing but the seed, the layers and the device: random.Random's floats are the same in all versions
of Python. Nobody can tune for a draw before the commit exists, since the seed is a hash of the commit and the date.
"""
import concurrent.futures
import dataclasses
import hashlib
import json
import random
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
FEATURES = ("softcap", "alibi", "bias", "relative_bias", "sinks")  # fields of a problem that change scores
OTHERS = ("key_lengths", "documents", "prefix", "chunk", "mask_tensor", "score_mod", "mask_mod", "block_map")
PARTS = (1, 1, 2, 4, 8)  # GPUs that share a decoder's heads
LEAST_WIDTH = 2048  # columns of all query heads; narrower models run on one GPU
TRIES = 20000  # per point, before the draw fails


@dataclass(frozen=True)
class Layer:
    """One kind of attention layer of a model, without batch."""
    model: str
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int  # equal to head_dim in most models
    causal: bool
    window_left: int = -1
    window_right: int = 0
    features: tuple = ()  # names of FEATURES
    softcap: float = 0.0
    lengths: tuple = ()  # (queries, keys) that the table gives for the layer

    @property
    def group(self):
        return self.heads_q // self.heads_kv

    def part(self, gpus):
        """Returns the layer of one of several GPUs; the layer itself if it is narrow or the GPUs do not divide it."""
        heads_kv = max(1, self.heads_kv // gpus)
        divides = self.heads_q % gpus == 0 and 0 in (self.heads_kv % gpus, gpus % self.heads_kv)
        if self.heads_q * self.head_dim < LEAST_WIDTH or not divides or self.heads_q // gpus % heads_kv:
            return self
        return dataclasses.replace(self, heads_q=self.heads_q // gpus, heads_kv=heads_kv)


@dataclass(frozen=True)
class Limits:
    """A drawn point needs no more than this. The rates are rough: they bound the draw and appear in no result."""
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: float
    seconds: float = 0.02

    def hold(self, point):
        return (max(point.flops / self.flops_per_s, point.bytes / self.bytes_per_s) <= self.seconds and
                point.memory <= self.memory_bytes)


LIMITS = {"cuda": Limits(5e14, 4e12, 24 * 2**30), "cpu": Limits(1e11, 1e10, 2**30)}


@dataclass(frozen=True)
class Point:
    """A drawn problem. `case` has the keywords of the Case of the script that times this kind. flops and bytes are
    estimates of the work; memory is the size of all operands in bytes."""
    name: str
    kind: str
    stratum: str
    model: str
    case: dict
    flops: float = field(default=0.0, compare=False)
    bytes: float = field(default=0.0, compare=False)
    memory: float = field(default=0.0, compare=False)


def layer_of(model, text):
    """Returns the layer of a problem's text; None for other ops and for masks that the league does not draw."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.get("op", "attention") != "attention" or any(name in fields for name in OTHERS):
        return None
    heads_q, _, heads_kv = fields["heads"].partition("/")
    dim = fields.get("head_dim_qk") or fields["head_dim"]
    left, _, right = fields.get("window", "-1:0").partition(":")
    window = (int(left) if left.lstrip("-").isdigit() else -1, int(right) if right.isdigit() else 0)
    queries = int(fields.get("seqlen_q") or fields["seqlen"])
    return Layer(
        model, int(heads_q), int(heads_kv or heads_q), int(dim), int(fields.get("head_dim_v", dim)),
        fields.get("mask", "none").startswith("causal"), *window, tuple(name for name in FEATURES if name in fields),
        float(fields.get("softcap", 0)), ((queries, int(fields.get("seqlen_kv") or queries)), ))


def merged(layers):
    """Returns each layer once, with the lengths of all its problems."""
    found = {}
    for layer in layers:
        found.setdefault(dataclasses.replace(layer, lengths=()), []).extend(layer.lengths)
    return [dataclasses.replace(layer, lengths=tuple(sorted(set(lengths)))) for layer, lengths in found.items()]


def problems_of(program, path):
    """Returns the problems that attune reads from a config; none if it refuses the config."""
    done = subprocess.run([program, "tune", str(path), "--dry-run", "--json", "--target", "cuda", "--dtype", "bf16"],
                          capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout)["problems"] if done.returncode == 0 else []


def layers_of_table(program, types=None):
    """Returns the layers of all types of `attune models`, in their order, and of the configs in examples/models.

    A config states the defaults of its type, which the table has. `types` takes some types alone.
    Raises RuntimeError if the program does not list its models."""
    listed = subprocess.run([program, "models", "--json"], capture_output=True, text=True, timeout=60, check=False)
    if listed.returncode:
        raise RuntimeError(f"{program} models: {listed.stderr.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        configs = {}
        for row in json.loads(listed.stdout)["models"]:
            if row["tuned"] and (types is None or row["type"] in types):
                key = "_class_name" if row["reading"] == "diffusers network" else "model_type"
                path = Path(folder) / row["type"] / "config.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps({key: row["type"], **row["defaults"]}), encoding="utf-8")
                configs[row["type"]] = path
        for path in sorted(EXAMPLES.glob("*/config.json")) if types is None else ():
            configs[path.parent.name] = path
        with concurrent.futures.ThreadPoolExecutor() as pool:
            texts = list(pool.map(lambda path: problems_of(program, path), configs.values()))
    layers = [layer_of(model, text) for model, found in zip(configs, texts) for text in found]
    return merged(layer for layer in layers if layer is not None)


def seed_of(commit, date):
    """Returns the seed of a commit's draw on a date (2026-11-30): SHA-256 of both, as hexadecimal digits."""
    return hashlib.sha256(f"{commit} {date}".encode()).hexdigest()


def generator(seed, *words):
    """Returns random numbers for one use of a seed, independent of its other uses."""
    return random.Random(int(hashlib.sha256(" ".join((seed, *words)).encode()).hexdigest(), 16))


def pick(rng, items):
    return items[int(rng.random() * len(items))]


def log_uniform(rng, low, high):
    """Returns an integer from low to high whose logarithm is uniform."""
    return min(high, max(low, round(low * (high / low)**rng.random())))


def length(rng, low, high):
    """Returns a length, log-uniform. Every second length above 256 is a multiple of 128, as training has them."""
    n, whole = log_uniform(rng, low, high), rng.random() < 0.5
    return max(low, n - n % 128) if whole and n >= 256 else n


def pick_layer(rng, layers, fits):
    """Returns a layer that fits, of a model that is picked first: a model of many layers counts once."""
    models = {}
    for layer in layers:
        if fits(layer):
            models.setdefault(layer.model, []).append(layer)
    return pick(rng, pick(rng, list(models.values()))) if models else None


def draw(kind, strata, layers, count, seed, limits):
    """Returns `count` points of a kind, divided evenly over its strata. No problem is drawn twice.

    A stratum has a name, fits(layer) and make(rng, layer), which returns a Point or None. Raises ValueError if a
    stratum has no layer, or no point within the limits."""
    points, seen = [], set()
    for number in range(count):
        stratum = strata[number % len(strata)]
        rng = generator(seed, kind, stratum.name, str(number // len(strata)))
        for _ in range(TRIES):
            layer = pick_layer(rng, layers, stratum.fits)
            if layer is None:
                raise ValueError(f"{kind}, {stratum.name}: no layer of the model table fits")
            point = stratum.make(rng, layer)
            if point is not None and limits.hold(point) and repr(point.case) not in seen:
                break
        else:
            raise ValueError(f"{kind}, {stratum.name}: no point within the limits in {TRIES} tries")
        seen.add(repr(point.case))
        name = f"{stratum.name} {number // len(strata) + 1}"
        case = {"name": f"{kind} {name}", **point.case}
        points.append(dataclasses.replace(point, name=name, kind=kind, stratum=stratum.name, case=case))
    return points
