# SPDX-License-Identifier: Apache-2.0
"""Times decoding over caches (op attention_kvcache) against peers: same tensors, interleaved, one process, captured
graphs.

    python3 tests/bench/cuda/decode.py --problems               problems for attune tune, one a line
    python3 tests/bench/cuda/decode.py --store FILE --out OUT/decode.json [--only "b32"] [--peers cudnn,flash3]

A case has several copies of its cache, together more than twice the L2. The calls of a graph take the copies in turn,
so every call reads from memory. TB/s count K and V of the requests' keys once. Peers, where their packages are
installed: PyTorch's SDPA on cuDNN (contiguous caches of full length), PyTorch's FlashAttention-2 (packed prompts),
FlashAttention-3's flash_attn_with_kvcache, and FlashInfer's wrappers (flashinfer_peer.py; the host time of plan() is
plan_us). Results are compared with attune's before anything is timed.
"""
import argparse
import itertools
import json
import math
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import flashinfer_peer  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402

MEMORY_RATE = 4.5e12  # bytes/s that an H200 reads at best, the divisor of "bytes_us"
NIBBLES, COLUMNS_OF_FACTOR = ("int4", "e2m1"), 16  # dtypes of 4 bits; columns that share a factor


@dataclass(frozen=True)
class Case:
    name: str
    lengths: tuple  # number of keys per request
    heads: int = 32
    heads_kv: int = 8
    rows: int = 1
    page: int = 0  # 0: slots
    head_dim: int = 128
    dtype_kv: str = ""  # a dtype of 8 or 4 bits; empty: q's dtype
    by_key: bool = False  # one factor per key and head
    packed: bool = False  # packed prompts, with as many rows as keys
    head_dim_v: int = 0  # latent attention: V is the first columns of K; 0: head_dim
    shared: bool = False  # all requests use the first request's pages

    @property
    def longest(self):
        return max(self.lengths)

    @property
    def bytes(self):
        of_column = 0.5 + 1 / COLUMNS_OF_FACTOR if self.dtype_kv in NIBBLES else 1 if self.dtype_kv else 2
        return int(sum(self.lengths) * self.heads_kv * self.head_dim * (1 if self.head_dim_v else 2) * of_column)

    @property
    def flops(self):
        """Returns the operations on visible keys: row i of a request sees all keys up to its own."""
        rows = self.lengths if self.packed else (self.rows,) * len(self.lengths)
        return sum(n * k - n * (n - 1) / 2
                   for n, k in zip(rows, self.lengths)) * self.heads * (self.head_dim +
                                                                        (self.head_dim_v or self.head_dim)) * 2

    @property
    def problem(self):
        return (
            f"op=attention_kvcache,"
            f"dtype=bf16{self.dtype_kv and ',dtype_kv=' + self.dtype_kv}{self.by_key * ',kv_factors=keys'}"
            f"{f',kv_factors=columns{COLUMNS_OF_FACTOR}' if self.dtype_kv in NIBBLES else ''},"
            f"{f'head_dim_qk={self.head_dim},head_dim_v={self.head_dim_v}' if self.head_dim_v else ''}"
            f"{'' if self.head_dim_v else f'head_dim={self.head_dim}'},"
            f"heads={self.heads}/{self.heads_kv},batch={len(self.lengths)},"
            f"seqlen_q={self.longest if self.packed else self.rows},seqlen_kv={self.longest},"
            f"mask={'causal_bottom_right' if self.rows > 1 or self.packed else 'none'}" +
            (f",page_size={self.page}" if self.page else "") + (",packed_q=1,packed_kv=1" if self.packed else "") +
            (",v_in_k=1" if self.head_dim_v else ""))


def all_cases():
    """Returns all cases: the eleven points of a grid of batch and length, then pages, ragged batches, several tokens
    and other ratios of heads."""
    grid = [(1, 1024), (1, 8192), (1, 32768), (1, 131072), (8, 1024), (8, 8192), (8, 32768), (32, 1024), (32, 8192),
            (128, 1024), (128, 8192)]
    cases = [Case(f"b{b} kv{n}", (n,) * b) for b, n in grid]
    cases += [Case(f"b32 kv8192 page{page}", (8192,) * 32, page=page) for page in (64, 16, 1)]
    cases += [
        Case("17 x 8192", (8192, ) * 17),
        Case("1 x 65536, 31 x 4096", (65536, ) + (4096, ) * 31, page=16),
        Case("8 tokens b8 kv8192 64/8", (8192, ) * 8, 64, rows=8),
        Case("8 tokens b8 kv32768 64/8", (32768, ) * 8, 64, rows=8),
        Case("b64 kv4096 28/4", (4096, ) * 64, 28, 4)]
    cases += [
        Case("chunk 256 b1 kv32768 8/1", (32768, ), 8, 1, 256, 16),
        Case("chunk 1024 b1 kv32768 8/1", (32768, ), 8, 1, 1024, 16),
        Case("chunk 512 b4 kv8192 32/8", (8192, ) * 4, 32, 8, 512, 16),
        Case("prompts 2 x 4096 32/8", (4096, ) * 2, 32, 8, 4096, 16)]
    cases += [
        Case(f"b{b} kv{n} page16 {dtype_kv or 'bf16'}", (n, ) * b, page=16, dtype_kv=dtype_kv)
        for b, n in ((32, 8192), (8, 32768)) for dtype_kv in ("", "e4m3", "int8", *NIBBLES)]
    cases += [
        Case(f"b{b} kv{n} page16 {dtype_kv} keys", (n, ) * b, page=16, dtype_kv=dtype_kv, by_key=True)
        for b, n in ((32, 8192), (8, 32768)) for dtype_kv in ("e4m3", "int8")]
    cases += [Case(f"latent b{b} kv{n} {heads}/1", (n,) * b, heads, 1, page=64, head_dim=576, head_dim_v=512)
              for b, n, heads in ((128, 4096, 128), (16, 32768, 16), (32, 4096, 16), (1, 32768, 16), (16, 16384, 32))]
    cases.append(
        Case("latent b64 kv8192 16/1 on the same pages", (8192, ) * 64, 16, 1, page=64, head_dim=576, head_dim_v=512,
             shared=True))
    return cases + [Case("prompts 64 x 16..8192 32/8", prompts(), packed=True)]


def prompts():
    """Returns 64 lengths from 16 to 8192, evenly spaced in their logarithm, shuffled."""
    lengths = [round(16 * 512 ** (i / 63)) for i in range(64)]
    random.Random(1).shuffle(lengths)
    return tuple(lengths)


class Sets:
    """Copies of a case's tensors; take() returns them in turn."""

    def __init__(self, case, device="cuda", l2=None):
        batch, size = len(case.lengths), case.page or (sum(case.lengths) if case.packed else case.longest)
        pages = sum(-(-n // size) for n in case.lengths) if case.page else 1 if case.packed else batch
        shape = (pages, size, case.heads_kv, case.head_dim)
        l2 = l2 or torch.cuda.get_device_properties(0).L2_cache_size
        count = max(1, -(-2 * l2 // case.bytes)) + 1 if case.bytes < 2 * l2 else 1
        self.begins = torch.tensor([0, *itertools.accumulate(case.lengths)], device=device, dtype=torch.int32)
        self.q = torch.randn(*((sum(case.lengths), ) if case.packed else (batch, case.rows)), case.heads, case.head_dim,
                             device=device, dtype=torch.bfloat16)
        shape = shape[1:] if case.packed else shape
        self.groups = [{}] * count
        if case.dtype_kv in NIBBLES:
            self._draw_nibbles(case, shape, count, device)
            self._place(case, pages, batch, device)
            return
        dtype_kv = {"": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
                    "int8": torch.int8}[case.dtype_kv]
        unit = 32 if case.dtype_kv == "int8" else 1  # int8 data whose factors give normal numbers
        self.caches = [
            tuple((torch.randn(shape, device=device, dtype=torch.bfloat16) * unit).to(dtype_kv) for _ in "kv")
            for _ in range(count)]
        self.factors = [
            torch.full(shape[:-1], 1 / unit, device=device) if case.by_key else 1 / unit for _ in range(count)]
        if case.head_dim_v:
            self.caches = [(k, k[..., :case.head_dim_v]) for k, _ in self.caches]
        self._place(case, pages, batch, device)

    def _draw_nibbles(self, case, shape, count, device):
        """Draws codes, and factors that make values near N(0,1). The keys of a head are adjacent in factors."""
        pages, size, heads, columns = shape
        draw = lambda *of: torch.randint(0, 256, of, device=device, dtype=torch.uint8)
        self.caches = [tuple(draw(pages, size, heads, columns // 2) for _ in "kv") for _ in range(count)]
        self.factors = [0.25] * count
        self.groups = [{
            f"{x}_factors": (draw(pages, heads, size, columns // COLUMNS_OF_FACTOR) % 16 + 0x30).view(
                torch.float8_e4m3fn).transpose(1, 2)
            for x in "kv"} for _ in range(count)]

    def _place(self, case, pages, batch, device):
        self.lengths = torch.tensor(case.lengths, device=device, dtype=torch.int32)
        self.table = None
        if case.page:
            order = torch.randperm(pages, device=device).int()
            self.table = torch.zeros(batch, -(-case.longest // case.page), device=device, dtype=torch.int32)
            at = 0
            for request, n in enumerate(case.lengths):
                used = -(-n // case.page)
                self.table[request, :used] = order[at:at + used]
                at += used
            if case.shared:
                self.table[:] = self.table[0]
        self.number = 0

    def take(self):
        self.number = (self.number + 1) % len(self.caches)
        return self.caches[self.number]


def ours(case, sets, context):
    out = torch.empty(*sets.q.shape[:-1], case.head_dim_v or case.head_dim, device="cuda", dtype=sets.q.dtype)
    given = {"page_table": sets.table, "seqlen_kv": case.longest} if case.page else {}
    if case.packed:
        given = {"q_begins": sets.begins, "seqlen_q": case.longest, "kv_begins": sets.begins, "seqlen_kv": case.longest}

    def run():
        k, v = sets.take()
        causal = case.rows > 1 or case.packed
        if case.dtype_kv:
            given["k_scale"] = given["v_scale"] = sets.factors[sets.number]
        if sets.groups[sets.number]:
            given.update(sets.groups[sets.number], dtype_kv=case.dtype_kv)
        return attune.attention_kvcache(sets.q, k, v, None if case.packed else sets.lengths, is_causal=causal, out=out,
                                        context=context, **given)
    return run


def cudnn(case, sets):
    """Returns runners of SDPA over contiguous caches, in which all requests have one length."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
    if case.page or case.dtype_kv or len(set(case.lengths)) > 1:
        return None
    options = {"attn_mask": causal_lower_right(case.rows, case.longest)} if case.rows > 1 else {}

    def run():
        k, v = sets.take()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            found = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (sets.q, k, v)),
                                                                     enable_gqa=True, **options)
        return found.transpose(1, 2)
    return run


def flash3(case, sets):
    from fa3_fwd_interface import flash_attn_varlen_func, flash_attn_with_kvcache
    if case.dtype_kv:
        return None
    if case.packed:
        return lambda: flash_attn_varlen_func(sets.q, *sets.take(), sets.begins, sets.begins, case.longest, case.
                                              longest, causal=True)

    def run():
        k, v = sets.take()
        return flash_attn_with_kvcache(sets.q, k, v, cache_seqlens=sets.lengths, page_table=sets.table, causal=case.rows
                                       > 1)
    return run


def flash2(case, sets):
    """Returns a runner of PyTorch's FlashAttention-2 over packed prompts."""
    if not case.packed:
        return None

    def run():
        k, v = sets.take()
        return torch.ops.aten._flash_attention_forward(sets.q, k, v, sets.begins, sets.begins, case.longest,
                                                       case.longest, 0.0, True, False)[0]
    return run


PEERS = {
    "cudnn": cudnn, "flash2": flash2, "flash3": flash3, "flashinfer_fa2": flashinfer_peer.fa2,
    "flashinfer_fa3": flashinfer_peer.fa3}


def sampler(run, sets, sample_us):
    """Like timing.graph_sampler, for graphs whose calls use every copy of the cache equally often."""
    with torch.cuda.stream(timing.stream()):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    count = len(sets.caches)
    first = timing.capture(run, count)
    timing.replay_us(first, count)
    launches = count * max(
        1, min(timing.MAX_LAUNCHES // count, round(sample_us / max(timing.replay_us(first, count) * count, 1e-3))))
    graph = timing.capture(run, launches)
    timing.replay_us(graph, launches)
    return lambda: timing.replay_us(graph, launches)


def agreeing(case, sets, runners, failures):
    """Returns the runners without peers whose results differ from attune's. Adds these peers to `failures`, which make
    main() end with status 1."""
    results = {}
    for name, run in runners.items():
        sets.number = 0
        results[name] = run().float().clone()
    for name, found in results.items():
        difference = peers.distance(results["attune"], found)
        if not difference < 0.01:
            failures.append({
                "case": case.name, "peer": name, "error": f"attune and it differ by {difference:.3g} of the norm",
                "differs": True})
    wrong = {row["peer"] for row in failures if row["case"] == case.name and row.get("differs")}
    return {name: run for name, run in runners.items() if name == "attune" or name not in wrong}


def run_case(case, context, arguments, rng, failures):
    sets = Sets(case)
    runners = {"attune": ours(case, sets, context)}
    for name in arguments.peers:
        try:
            run = PEERS[name](case, sets)
            if run is not None:
                run()
                runners[name] = run
            torch.cuda.synchronize()
        except Exception as error:  # a peer's failure is reported; the run goes on
            failures.append({"case": case.name, "peer": name, "error": timing.first_line(error)})
    runners = agreeing(case, sets, runners, failures)
    plan_us = {name: timing.enqueue_us(run.plan)
               for name, run in runners.items()
               if hasattr(run, "plan")}  # before the captures, which keep a plan's tensors
    timings = timing.interleaved_us({name: sampler(run, sets, arguments.sample_us)
                                     for name, run in runners.items()}, arguments.rounds, rng)
    us = {name: row["median_us"] for name, row in timings.items()}
    best = min((value for name, value in us.items() if name != "attune"), default=None)
    plan = context.plan(case.problem)
    return {
        "case": case.name, "problem": case.problem, "bytes": case.bytes, "bytes_us": case.bytes / MEMORY_RATE * 1e6,
        "flops": case.flops, "timings": timings, "tb_per_s": {
            name: case.bytes / value / 1e6
            for name, value in us.items()}, "tflops": {name: case.flops / value / 1e6
                                                       for name, value in us.items()}, "over_best_peer": best and
        best / us["attune"], "plan_us": plan_us, "copies": len(sets.caches), "plan": {
            "template": plan.kernel_template, "config": plan.config, "rung": plan.rung}}


def summary(rows):
    """Returns geometric means of ratios: the grid over the best peer per point, pages over the best peer on slots, and
    8-bit caches over 16-bit ones."""
    grid, us = {case.name
                for case in all_cases()[:11]}, {
                    row["case"]: {name: row["timings"][name]["median_us"]
                                  for name in row["timings"]}
                    for row in rows}
    ratios = [row["over_best_peer"] for row in rows if row["case"] in grid and row["over_best_peer"]]
    slots = min((value for name, value in us.get("b32 kv8192", {}).items() if name != "attune"), default=None)
    paged = {case: us[case] for case in (f"b32 kv8192 page{page}" for page in (64, 16, 1)) if slots and case in us}
    of_bf16 = {
        case: case.partition("page16 ")[0] + "page16 bf16"
        for case in us if case.endswith((" e4m3", " int8", " keys", *NIBBLES))}
    eight = {case: (us[wide], us[case]) for case, wide in of_bf16.items() if wide in us}
    return {
        "points": len(ratios),
        "geomean_over_best_peer": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
        "worst_over_best_peer": min(ratios, default=None), "pages_over_best_peer_on_slots": {
            case: {name: slots / value
                   for name, value in row.items()}
            for case, row in paged.items()}, "8_bits_over_bf16": {
                case: {name: wide[name] / narrow[name]
                       for name in narrow if name in wide}
                for case, (wide, narrow) in eight.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", action="store_true")
    parser.add_argument("--store", default=None)
    parser.add_argument("--only", default="", help="substrings of cases' names, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    chosen = [case for case in all_cases() if any(part in case.name for part in arguments.only.split(","))]
    if arguments.problems:
        print("\n".join(dict.fromkeys(case.problem for case in chosen)))
        return
    asked = [name for name in arguments.peers.split(",") if name]
    missing = peers.missing(asked)
    arguments.peers = [name for name in asked if name not in missing]
    for reason in missing.values():
        print(f"{reason}: not measured")
    torch.manual_seed(1)
    rng, rows, failures = random.Random(1), [], []
    context = attune.Context(target="cuda", store=arguments.store or "")
    facts = {
        "command": timing.command(), **timing.facts(), "peers": peers.versions(arguments.peers),
        "missing_peers": missing}
    for case in chosen:
        rows.append(run_case(case, context, arguments, rng, failures))
        row = rows[-1]
        print(
            f"{case.name:28s} {row['plan']['config']:70s} " + "  ".join(
                f"{name} {row['timings'][name]['median_us']:.1f} us {row['tb_per_s'][name]:.2f} TB/s "
                f"{row['tflops'][name]:.0f} TFLOP/s"
                for name in row["timings"]), flush=True)
        if arguments.out:  # after each case: a run that is cut short keeps what it has
            timing.write_result(arguments.out, {**facts, "summary": summary(rows), "failures": failures, "rows": rows})
        torch.cuda.empty_cache()
    print(json.dumps(summary(rows)))
    wrong = [f"{row['case']}, {row['peer']}: {row['error']}" for row in failures if row.get("differs")]
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
