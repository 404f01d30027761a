# SPDX-License-Identifier: Apache-2.0
"""Times attention with scores, masks and wide heads against the same attention without them: same tensors, interleaved,
one process.

    python3 tests/bench/cuda/scores.py --problems FOLDER       problems for attune tune, one a line; writes programs as
        files into FOLDER
    python3 tests/bench/cuda/scores.py --store FILE --out OUT/scores.json [--only softcap] [--peers flex,flash4]

Every runner is a captured graph. Prints microseconds, TFLOP/s of visible elements, and the share of plain attention's
speed: TFLOP/s of the case over TFLOP/s of the same case without the feature. A peer's output is compared with attune's
before anything is timed. A peer that differs or fails is listed in the case under "refused" and not timed.
"""
import argparse
import dataclasses
import json
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402

DOCUMENTS = 11
BLOCK_ROWS, BLOCK_KEYS, KEPT = 128, 128, 0.1  # the block-sparse case
SAME_DOCUMENT = "return ids[batch][q_idx] == ids[batch][kv_idx];"
SEEN_BLOCK = f"return seen[q_idx / {BLOCK_ROWS}][kv_idx / {BLOCK_KEYS}] != 0;"
CAUSAL = "return kv_idx <= q_idx + shift;"  # a per-call number keeps it from becoming the built-in mask


@dataclass(frozen=True)
class Case:
    """`feature` is a key of FEATURES, or empty for a case without one. `twin` has fields that the problem without the
    feature has instead."""
    name: str
    feature: str
    head_dim: int
    heads: tuple
    seqlen: int
    batch: int = 1
    causal: bool = False
    window: int = -1
    head_dim_v: int = 0
    value: float = 0.0
    twin_causal: bool = None
    built_in: str = ""  # the built-in form of a program's feature, timed with it

    @property
    def plain(self):
        causal = self.causal if self.twin_causal is None else self.twin_causal
        return dataclasses.replace(self, name=f"{self.name}, plain", feature="", causal=causal)

    @property
    def width_v(self):
        return self.head_dim_v or self.head_dim

    def problem(self, folder):
        text = (
            f"dtype=bf16,head_dim_qk={self.head_dim},head_dim_v={self.width_v},heads={self.heads[0]}/{self.heads[1]},"
            f"batch={self.batch},"
            f"seqlen={self.seqlen},mask={'causal_bottom_right' if self.causal else 'none'}")
        if self.window >= 0:
            text += f",window={self.window}:0"
        return text + (FEATURES[self.feature].field(self, folder) if self.feature else "")


def documents_of(case):
    """Returns document ids, all documents of one length; equal for every batch entry."""
    ids = torch.arange(case.seqlen, device="cuda") * DOCUMENTS // case.seqlen
    return ids.to(torch.int32).expand(case.batch, -1).contiguous()


def blocks_of(case):
    """Returns a block list: a random tenth of the blocks, and the diagonal."""
    generator = torch.Generator().manual_seed(7)
    seen = torch.rand(case.seqlen // BLOCK_ROWS, case.seqlen // BLOCK_KEYS, generator=generator) < KEPT
    seen.fill_diagonal_(True)
    return seen.to(torch.uint8).cuda()


@dataclass(frozen=True)
class Feature:
    """`field` is the feature's part of the problem text, `given` the keywords of attention(), `visible` the visible
    elements per head if mask and window do not determine them."""
    field: object
    given: object
    visible: object = None


def program(name):
    """Returns the problem field of a mask program that print_problems() writes into the folder."""
    return lambda _case, folder: f",mask_mod=@{Path(folder) / f'{name}.txt'}"


def causal_mod():
    return attune.mask_mod(CAUSAL, shift=0)


def map_of(case, **masks):
    """Returns a block map of the case's masks, which reads only the shapes of q and k."""
    q, k = (torch.empty(case.batch, case.seqlen, heads, case.head_dim, device="cuda", dtype=torch.bfloat16)
            for heads in case.heads)
    return attune.block_map.build(q, k, **masks)


def document_elements(case):
    return sum(n * (n + 1) // 2 for n in torch.bincount(documents_of(case)[0]).tolist())


FEATURES = {
    "softcap": Feature(lambda case, _: f",softcap={case.value:g}", lambda case: {"softcap": case.value}),
    "alibi": Feature(
        lambda case, _: ",alibi=1", lambda case: {
            "alibi_slopes": torch.tensor(attune.alibi_slopes(case.heads[0]), dtype=torch.float32, device="cuda")}),
    "bias": Feature(
        lambda case, _: ",bias=bf16", lambda case: {
            "bias": torch.randn(1, case.heads[0], case.seqlen, case.seqlen, device="cuda", dtype=torch.bfloat16)}),
    "relative_bias": Feature(
        lambda case, _: ",relative_bias=fp32",
        lambda case: {"relative_bias": torch.randn(case.heads[0], 2 * case.seqlen - 1, device="cuda")}),
    "sinks": Feature(lambda case, _: ",sinks=bf16",
                     lambda case: {"sinks": torch.randn(case.heads[0], device="cuda", dtype=torch.bfloat16)}),
    "documents": Feature(lambda case, _: ",documents=1", lambda case: {"documents": documents_of(case)},
                         document_elements),
    "documents as a program": Feature(program("documents"),
                                      lambda case: {"mask_mod": attune.mask_mod(SAME_DOCUMENT, ids=documents_of(case))},
                                      document_elements),
    "causal as a program": Feature(program("causal"), lambda case: {"mask_mod": attune.mask_mod(CAUSAL, shift=0)},
                                   lambda case: case.seqlen * (case.seqlen + 1) // 2),
    "documents by a map": Feature(
        lambda *_: ",documents=1,block_map=skips",
        lambda case: {"documents": documents_of(case), "block_map": map_of(case, documents=documents_of(case))},
        document_elements),
    "causal by a map": Feature(
        lambda case, folder: program("causal")(case, folder) + ",block_map=skips",
        lambda case: {"mask_mod": causal_mod(), "block_map": map_of(case, mask_mod=causal_mod())},
        lambda case: case.seqlen * (case.seqlen + 1) // 2),
    "block list": Feature(
        lambda *_: ",block_map=hides", lambda case: {
            "block_map": attune.block_map.from_blocks(
                blocks_of(case)[None, None], BLOCK_ROWS, BLOCK_KEYS, case.seqlen, case.seqlen)},
        lambda case: int(blocks_of(case).sum()) * BLOCK_ROWS * BLOCK_KEYS),
    "block-sparse": Feature(program("blocks"),
                            lambda case: {"mask_mod": attune.mask_mod(SEEN_BLOCK, seen=blocks_of(case))},
                            lambda case: int(blocks_of(case).sum()) * BLOCK_ROWS * BLOCK_KEYS), }
PROGRAMS = {
    "documents": ("capture ids: int32[2]", SAME_DOCUMENT), "causal": ("scalar shift: int", CAUSAL),
    "blocks": ("capture seen: uint8[2]", SEEN_BLOCK)}

CASES = (
    Case("softcap d64 full 2048", "softcap", 64, (32, 32), 2048, 8, value=50.0),
    Case("softcap d128 causal 8192", "softcap", 128, (16, 16), 8192, 2, True, value=50.0),
    Case("softcap d256 16/8 causal 8192", "softcap", 256, (16, 8), 8192, 1, True, value=50.0),
    Case("alibi d128 causal 8192", "alibi", 128, (16, 16), 8192, 2, True),
    Case("bias d128 full 4096", "bias", 128, (32, 32), 4096),
    Case("relative bias d64 full 512", "relative_bias", 64, (16, 16), 512, 32),
    Case("relative bias d64 full 2048", "relative_bias", 64, (16, 16), 2048, 4),
    Case("sinks d64 64/8 causal 8192", "sinks", 64, (64, 8), 8192, 1, True),
    Case("sinks d64 64/8 window 128 8192", "sinks", 64, (64, 8), 8192, 1, True, 127),
    Case("documents d128 causal 16384", "documents", 128, (32, 32), 16384, 1, True),
    Case("documents as a program d128 causal 16384", "documents as a program", 128, (32, 32), 16384, 1, True,
         built_in="documents"),
    Case("causal as a program d128 8192", "causal as a program", 128, (8, 8), 8192, 8, twin_causal=True),
    Case("documents by a map d128 causal 16384", "documents by a map", 128, (32, 32), 16384, 1, True),
    Case("causal by a map d128 8192", "causal by a map", 128, (8, 8), 8192, 8, twin_causal=True),
    Case("block-sparse d128 32768", "block-sparse", 128, (16, 16), 32768),
    Case("block-sparse of a list d128 32768", "block list", 128, (16, 16), 32768),
    *(Case(f"window 1024 d64 64/8 {s}", "", 64, (64, 8), s, 2, True, 1023) for s in (2048, 4096, 8192, 16384, 32768)),
    *(Case(f"d192/128 128 heads causal {s}", "", 192, (128, 128), s, 1, True, head_dim_v=128)
      for s in (2048, 4096, 8192)),
    Case("d512 32/4 causal 8192", "", 512, (32, 4), 8192, 1, True),
)


def visible(case):
    """Returns the visible elements per head."""
    counted = FEATURES[case.feature].visible if case.feature else None
    if counted:
        return counted(case)
    if not case.causal:
        return case.seqlen * case.seqlen
    left = case.window if case.window >= 0 else case.seqlen
    return sum(min(row, left) + 1 for row in range(case.seqlen))


def flops(case):
    return 2.0 * (case.head_dim + case.width_v) * visible(case) * case.batch * case.heads[0]


def tensors_of(case):
    """Returns the keywords of attention() for the case's feature."""
    return dict(FEATURES[case.feature].given(case)) if case.feature else {}


def attune_runner(context, case, given, q, k, v, o):
    given = dict(given)
    if case.causal:
        given["mask"] = "causal_bottom_right"
    if case.window >= 0:
        given["window"] = (case.window, 0)
    plan = attune.prepare(attune.attention, q, k, v, out=o, context=context, **given)
    return plan, lambda: attune.attention(q, k, v, out=o, context=context, **given)


def map_us(run, kernel="_map_blocks"):
    """Returns the time of one kernel of a call, the median of the profiler's times. By default that is the kernel that
    builds a mask program's block map before the attention kernel; `kernel` names another one."""
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    times = sorted(event.device_time_total for event in profile.events() if kernel in event.name)
    return times[len(times) // 2] if times else None


# Largest norm of the difference over the norm of the peer's output. Both round P and O to bf16 in different orders.
MOST_APART = 0.02


def peer_runners(case, given, q, k, v, o, names):
    """Returns peers' runners by name, and the errors of peers without one. `o` is attune's output."""
    made, refused = {}, {}
    for name in names:
        try:
            run = PEERS[name](case, given, q, k, v)
            if run is None:
                continue
            apart = peers.distance(o, peers.as_bshd(name, run()))
            if not apart < MOST_APART:
                raise ValueError(f"its output is {apart:.3g} of its norm apart")
        except Exception as error:  # a peer's limits do not end the run
            refused[name] = timing.first_line(error)
            continue
        made[name] = run
    return made, refused


def run_case(case, context, arguments, rng):
    def draw(heads, width):
        return torch.randn(case.batch, case.seqlen, heads, width, device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(case.heads[0], case.head_dim), draw(case.heads[1], case.head_dim), draw(case.heads[1], case.width_v)
    o = draw(case.heads[0], case.width_v)
    torch.cuda.synchronize()
    of = {"with": case, "plain": case.plain} if case.feature else {"plain": case}
    if case.built_in:
        of["built in"] = dataclasses.replace(case, feature=case.built_in)
    plans, runners, given = {}, {}, tensors_of(case)
    with torch.cuda.stream(timing.stream()):
        for label, which in of.items():
            plans[label], runners[label] = attune_runner(context, which, given if which is case else tensors_of(which),
                                                         q, k, v, o)
        runners["with" if case.feature else "plain"]()
        made, refused = peer_runners(case, given, q, k, v, o, arguments.peers)
        runners.update(made)
    samplers = {name: timing.graph_sampler(run, arguments.sample_us) for name, run in runners.items()}
    samples = timing.interleaved_samples(samplers, arguments.rounds, rng)
    timings = timing.medians_us(samples)
    work = {name: flops(case.plain if name == "plain" and case.feature else case) for name in timings}
    tflops = {name: work[name] / row["median_us"] / 1e6 for name, row in timings.items()}
    row = {
        "case": case.name, "problem": case.problem(""), "flops": work, "timings": timings, "tflops": tflops, "plans": {
            label: {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}
            for label, plan in plans.items()}}
    if refused:
        row["refused"] = refused
    made = map_us(runners["with"]) if case.feature else None
    if made is not None:
        row["map_us"] = made
    if case.feature.endswith("by a map"):
        row["build_us"] = map_us(lambda: FEATURES[case.feature].given(case), "attune_block_map")
    if case.built_in:
        row["share_of_built_in"] = tflops["with"] / tflops["built in"]
    if case.feature:
        row["share_of_plain"] = tflops["with"] / tflops["plain"]
        row["time_over_plain"] = timings["with"]["median_us"] / timings["plain"]["median_us"]
    return row


def flash4(case, tensors, q, k, v):
    from flash_attn.cute import flash_attn_func
    if case.feature not in ("softcap", "sinks", "") or case.head_dim > 256:
        return None
    window = (case.window, 0) if case.window >= 0 else (None, None)
    given = {"softcap": case.value} if case.feature == "softcap" else {}
    if case.feature == "sinks":
        given["learnable_sink"] = tensors["sinks"]
    return lambda: flash_attn_func(q, k, v, causal=case.causal and case.window < 0, window_size=window, **given)


def flex(case, given, q, k, v):
    """Builds FlexAttention with softcap, ALiBi, bias, tables and masks as its score and mask functions."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.reset()
    scores = {"softcap": lambda s, b, h, i, j: case.value * torch.tanh(s / case.value),
              "alibi": lambda s, b, h, i, j: s - given["alibi_slopes"][h] * (i - j).abs(),
              "bias": lambda s, b, h, i, j: s + given["bias"][0, h, i, j],
              "relative_bias": lambda s, b, h, i, j: s + given["relative_bias"][h, j - i + case.seqlen - 1]}
    ids = documents_of(case)[0] if case.feature.startswith("documents") else None
    seen = blocks_of(case) if case.feature in ("block-sparse", "block list") else None

    def shown(b, h, i, j):
        inside = i >= j if case.causal or case.feature.startswith("causal") else j >= 0
        if case.window >= 0:
            inside = inside & (i - j <= case.window)
        if ids is not None:
            inside = inside & (ids[i] == ids[j])
        return inside & (seen[i // BLOCK_ROWS, j // BLOCK_KEYS] != 0) if seen is not None else inside

    if case.feature == "sinks" or case.head_dim > 256:
        return None
    masked = case.causal or ids is not None or seen is not None or case.feature.startswith("causal")
    mask = create_block_mask(shown, None, None, case.seqlen, case.seqlen, device="cuda",
                             _compile=True) if masked else None
    compiled = torch.compile(flex_attention, dynamic=False)
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    return lambda: compiled(qt, kt, vt, score_mod=scores.get(case.feature), block_mask=mask, enable_gqa=case.heads[0] !=
                            case.heads[1])


def cudnn(case, tensors, q, k, v):
    if case.feature not in ("", "bias") or case.window >= 0 or case.head_dim > 256:
        return None
    given = {"attn_mask": tensors["bias"]} if case.feature else {"is_causal": case.causal}
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        with peers.sdpa_kernel(peers.SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, enable_gqa=case.heads[0]
                                                                    != case.heads[1], **given)
    return run


PEERS = {"flash4": flash4, "flex": flex, "cudnn": cudnn}


def print_problems(folder, chosen):
    for name, (declared, text) in PROGRAMS.items():
        (Path(folder) / f"{name}.txt").write_text(f"// {declared}\n{text}\n", encoding="utf-8")
    print("\n".join(
        dict.fromkeys(
            which.problem(folder) for case in chosen for which in ((case, case.plain) if case.feature else (case, )))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=None, help="a folder for programs; print the problems and exit")
    parser.add_argument("--store", default=None)
    parser.add_argument("--only", default="", help="substrings of cases' names, separated by commas")
    parser.add_argument("--peers", default="", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    chosen = [case for case in CASES if any(part in case.name for part in arguments.only.split(","))]
    if arguments.problems:
        print_problems(arguments.problems, chosen)
        return
    asked = [name for name in arguments.peers.split(",") if name]
    missing = peers.missing(asked)
    arguments.peers = [name for name in asked if name not in missing]
    torch.manual_seed(1)
    rng = random.Random(1)
    context = attune.Context(target="cuda", store=arguments.store)
    facts = {
        "schema": "attune.bench.scores.1", "command": timing.command(), **timing.facts(), "attune": attune.version(),
        "peers": peers.versions(arguments.peers), "missing_peers": missing}
    rows, failures = [], []
    for case in chosen:
        try:
            rows.append(run_case(case, context, arguments, rng))
        except Exception as error:  # a failed case is reported; the run goes on
            failures.append({"case": case.name, "error": timing.first_line(error)})
            print(f"{case.name:44s} failed: {failures[-1]['error'][:160]}", flush=True)
            continue
        row = rows[-1]
        print(
            f"{case.name:44s} " +
            "  ".join(f"{name} {row['timings'][name]['median_us']:9.1f} us {row['tflops'][name]:6.0f}"
                      for name in row["timings"]) + (f"  share {row['share_of_plain']:.3f}" if case.feature else "") +
            (f"  of built in {row['share_of_built_in']:.3f}" if case.built_in else "") +
            (f"  map {row['map_us']:.1f} us" if "map_us" in row else "") +
            (f"  built in {row['build_us']:.1f} us" if row.get("build_us") else "") +
            "".join(f"  {name} refused: {why[:80]}" for name, why in row.get("refused", {}).items()) +
            f"  {row['plans'].get('with', row['plans']['plain'])['rung']}", flush=True)
        if arguments.out:
            timing.write_result(arguments.out, {**facts, "failures": failures, "rows": rows})
        torch.cuda.empty_cache()
    if not all(math.isfinite(row["tflops"]["plain"]) for row in rows):
        sys.exit(1)
    print(json.dumps({row["case"]: round(row["share_of_plain"], 3) for row in rows if "share_of_plain" in row}))


if __name__ == "__main__":
    main()
