#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs compute-sanitizer's memcheck, racecheck and synccheck over kernels of every CUDA family on small shapes: random
specs and configs of the numerics test, and single configs that random choices seldom hit.

    python3 tests/bench/cuda/sanitize.py BUILD_DIR --out OUT/sanitizer.json [--only prefill_sm90] [--seeds 2]

Prints a line for each run with a report, then the count. Exit status 1 if there is a report.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import timing  # noqa: E402

TOOLS = ("memcheck", "racecheck", "synccheck")
OPTIONS = {"synccheck": ["--num-cuda-barriers",
                         "65536"]}  # for two grids: one starts while the other ends
TEMPLATES = ("prefill_sm90", "prefill_sm90_fp8", "prefill_sm80", "prefill_sm80_tf32", "prefill_sm89")
FP8 = "dtype=e4m3,head_dim=128,heads=2/2,batch=2,seqlen=400,mask=causal_bottom_right"
SCORED = "dtype=bf16,head_dim=128,heads=4/2,batch=2,seqlen=400,mask=causal_bottom_right"
ALL_SCORES = ",softcap=30,alibi=1,bias=bf16,relative_bias=fp32,sinks=bf16"
WIDE = "dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=2/1,batch=1,seqlen=150,mask=causal_bottom_right"
GRADIENTS = "op=attention_backward," + SCORED
DROPPED = SCORED + ",dropout=0.3"
CACHE = ("op=attention_kvcache,dtype=bf16,head_dim=64,heads=8/2,batch=5,seqlen_q=3,seqlen_kv=300,"
         "mask=causal_bottom_right")
LENGTHS = f",score_mod=@{os.path.relpath(Path(__file__).resolve().with_name('lengths_program.txt'))}"
LATENT = "op=attention_kvcache,dtype=bf16,head_dim_qk=576,head_dim_v=512,v_in_k=1,seqlen_kv=300"
LISTS = "op=attention_backward,dtype=bf16,batch=2,seqlen_q=5,seqlen_kv=300,key_indices=positions,listed_keys=100"


def one_kernel(rows, scheduler, ordered=1):
    """Returns a config of backward_sm90_one_kernel with this many rows per step."""
    return f"key_block_m={rows},q_slots=2,dout_slots=2,section_heads=4,scheduler={scheduler},ordered={ordered}"


# template, problem, knobs that differ from the template's default
CONFIGS = (
    ("prefill_sm90", "dtype=bf16,head_dim=128,heads=14/2,batch=2,seqlen_q=33,seqlen_kv=500", "pack_heads=8"),
    ("prefill_sm90", "dtype=bf16,head_dim=256,heads=6/2,seqlen=200,mask=causal_bottom_right",
     "l2_section_mb=32,pack_heads=4"),
    ("prefill_sm90_fp8", FP8, "transpose_inside=1"),
    ("prefill_sm90_fp8", FP8.replace("head_dim=128", "head_dim=64") + ",accuracy=fast", "transpose_inside=1"),
    ("prefill_sm90_fp8", FP8.replace("head_dim=128", "head_dim=256").replace("seqlen=400", "seqlen=1300"),
     "block_m=128,block_n=128,ping_pong=0,scheduler=2,kv_splits=1,flush_keys=512,o_staging=0,transpose_inside=1"),
    # Block maps, scores, and heads in slices, with default configs.
    *((template, SCORED + field, "") for template in ("prefill_sm90", "prefill_sm80")
      for field in (",documents=1", ",mask_tensor=1,key_lengths=1", ",block_map=hides", ",documents=1,block_map=skips",
                    ALL_SCORES, ",max_logits=1", ",documents=1,max_logits=1")),
    ("block_map_cuda",
     "op=block_map,head_dim=128,heads=4/2,batch=2,seqlen_q=300,seqlen_kv=555,mask_tensor=1,documents=1", ""),
    ("prefill_sm90_fp8", FP8 + ",documents=1,softcap=30", ""),
    ("prefill_sm90", WIDE, ""),
    ("prefill_sm80", WIDE, ""),
    # Score terms by head and distance, computed by idle warps.
    ("prefill_sm90", SCORED + ",alibi=1", ""),
    ("prefill_sm90", SCORED + ",relative_bias=fp32,documents=1", "block_m=128,block_n=64,kv_ring=0"),
    ("prefill_sm90", SCORED.replace("head_dim=128", "head_dim=64") + ",relative_bias=bf16", ""),
    # Gradients with default configs, with separate kernels for dk and dv (head dim 256), and with delta computed by the
    # kernel of dq.
    ("backward_sm90", GRADIENTS, ""),
    ("backward_sm90", GRADIENTS.replace("head_dim=128", "head_dim=256") + ",window=90:0", ""),
    ("backward_sm90", GRADIENTS.replace("causal_bottom_right", "none"), "fold_sums=1"),
    # One kernel for all gradients: halves of dq's columns, and of its rows.
    *(("backward_sm90_one_kernel", GRADIENTS.replace(old, new) + field, one_kernel(rows, scheduler))
      for old, new, field, rows, scheduler in (("", "", "", 64, 0),
                                               ("causal_bottom_right", "none", ",window=90:60", 64, 0),
                                               ("=128", "=64", "", 128, 0), ("", "", "", 64, 2),
                                               ("=128", "=64", "", 128, 2))),
    # Blocks of keys that add to dQ in any order.
    *(("backward_sm90_one_kernel", GRADIENTS.replace("head_dim=128", dims) + field, one_kernel(rows, scheduler, 0))
      for dims, rows, field, scheduler in (("head_dim=128", 64, "", 0), ("head_dim=128", 64, ",window=90:0", 2),
                                           ("head_dim=128", 80, "", 0), ("head_dim=128", 80, "", 2),
                                           ("head_dim=64", 128, "", 0), ("head_dim=64", 128, "", 2),
                                           ("head_dim_qk=32,head_dim_v=64", 128, ",window=90:0", 2),
                                           ("head_dim=128", 64, ",dropout=0.3", 2),
                                           ("head_dim=128", 80, ",dropout=0.3", 2),
                                           ("head_dim=64", 128, ",dropout=0.3", 2))),
    # Blocks of keys that take a part of a group's heads.
    *(("backward_sm90", GRADIENTS.replace("heads=4/2", "heads=6/1").replace("head_dim=128", dims), "split_heads=1")
      for dims in ("head_dim=128", "head_dim=80", "head_dim=256")),
    *(("backward_sm90_one_kernel", GRADIENTS.replace("heads=4/2", "heads=6/1") + field,
       one_kernel(64, scheduler, ordered) + ",split_heads=1")
      for field, scheduler, ordered in (("", 0, 1), (",window=90:0", 2, 0), (",dropout=0.3", 2, 0))),
    # dK and dV from scores stored in the workspace.
    *(("backward_sm90_stored", GRADIENTS.replace("head_dim=128", dims) + field, tiles)
      for dims, field, tiles in (("head_dim=256", "", "block_n=48,k_slots=3,v_slots=1"),
                                 ("head_dim=256", ",window=90:0", "block_n=32,k_slots=3,v_slots=2"),
                                 ("head_dim=192", ",dropout=0.3", "block_n=64"),
                                 ("head_dim=64", ",gradients=qk", "block_n=112"))),
    # Walks along a narrow band, with several masks, windows and head dims.
    *(("backward_sm90_band", "op=attention_backward,dtype=bf16,batch=2," + rest, "")
      for rest in ("head_dim=64,heads=3,seqlen=400,mask=none,window=64:64",
                   "head_dim=64,heads=4,seqlen_q=300,seqlen_kv=420,mask=causal_top_left,window=127:0",
                   "head_dim_qk=40,head_dim_v=56,heads=2,seqlen=200,mask=none,window=3:40")),
    # dQ of padded columns.
    *(("backward_sm90_one_kernel", GRADIENTS.replace("head_dim=128", dims), one_kernel(rows, 2, 0))
      for dims, rows in (("head_dim=96", 80), ("head_dim_qk=80,head_dim_v=64", 96))),
    # Splits of one cluster and of several.
    *(("prefill_sm90", "dtype=bf16,head_dim=128,heads=2/1,batch=1,seqlen_q=70,seqlen_kv=2000,mask=causal_bottom_right",
       f"scheduler=0,l2_section_mb=32,kv_splits={splits}") for splits in (6, 8, 16, 32)),
    ("prefill_sm90", WIDE, "scheduler=0,kv_slots=2,l2_section_mb=32,kv_splits=3"),
    # dQ by a separate warpgroup.
    *(("backward_sm90_one_kernel", GRADIENTS.replace("head_dim=128", dims) + field, one_kernel(64, scheduler))
      for dims, field, scheduler in (("head_dim=64", "", 0), ("head_dim=64", "", 2),
                                     ("head_dim_qk=32,head_dim_v=64", ",window=90:0", 2))),
    # Gradients by mma.sync, with scores, accumulated, and of score tensors.
    ("backward_sm80", GRADIENTS, ""),
    ("backward_sm80", GRADIENTS.replace("head_dim=128", "head_dim=64") + ",softcap=30,alibi=1,documents=1", ""),
    ("backward_sm80", GRADIENTS + ",accumulate=1", ""),
    *(("score_gradient_sm80", f"{GRADIENTS},{field}", "")
      for field in ("bias=bf16,score_gradient=bias,repeats=bh", "bias=fp32,score_gradient=bias,repeats=q",
                    "relative_bias=fp32,score_gradient=relative_bias", "alibi=1,score_gradient=alibi,documents=1",
                    "sinks=fp32,score_gradient=sinks,dropout=0.3")),
    # Gradients over lists of keys: sums in any order, and parts that are joined.
    *(("backward_lists_sm80", LISTS + rest, config)
      for rest, config in ((",head_dim=64,heads=8/2", "heads=16,keys=64,warps=4,blocks_per_sm=2"),
                           (",head_dim_qk=72,head_dim_v=40,heads=20/1", "heads=32,keys=16,warps=4,blocks_per_sm=1"),
                           (",head_dim_qk=576,head_dim_v=512,heads=70/1,v_in_k=1",
                            "heads=64,keys=64,warps=8,blocks_per_sm=1"),
                           (",head_dim=64,heads=64/1", "heads=64,keys=64,warps=8,blocks_per_sm=1,apart=1"),
                           (",head_dim=64,heads=40/2,deterministic=1", "heads=16,keys=32,warps=8,blocks_per_sm=1"))),
    # Dropout, forward and backward.
    ("prefill_sm90", DROPPED, ""),
    ("prefill_sm90", DROPPED.replace("head_dim=128", "head_dim=64") + ",documents=1", ""),
    ("prefill_sm80", DROPPED, ""),
    ("backward_sm80", "op=attention_backward," + DROPPED, ""),
    ("backward_sm90", GRADIENTS + ",dropout=0.3,deterministic=1", ""),
    # Caches: each way of loading, teams and gangs of warps, several parts per item.
    ("decode_sm80", CACHE + ",page_size=16",
     "loads=2,keys=16,warps=8,team=8,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80", CACHE + ",page_size=32",
     "loads=2,keys=32,warps=4,team=1,heads=4,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80", CACHE + ",page_size=3,packed_q=1",
     "loads=1,keys=16,warps=8,team=2,heads=2,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=0"),
    ("decode_sm80", CACHE + ",page_size=3",
     "loads=3,keys=16,warps=8,team=2,heads=2,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=0"),
    ("decode_sm80", CACHE + ",alibi=1,sinks=fp32,window=50:0",
     "loads=0,keys=16,warps=4,team=2,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=0"),
    # 4-bit caches: boxes, chunks, and keys of lists; codes of new keys.
    *(("decode_sm80", CACHE.replace("head_dim=64", "head_dim=128") + rest, config)
      for rest, config in ((",page_size=16,dtype_kv=int4,kv_factors=columns16", ""),
                           (",page_size=3,dtype_kv=e2m1,kv_factors=columns32", ""),
                           (",dtype_kv=int4,kv_factors=columns32",
                            "loads=0,keys=32,warps=8,team=2,heads=4,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=0"))),
    ("append_kv_cuda", "op=append_kv,dtype=bf16,dtype_kv=int4,kv_factors=columns16,head_dim=128,heads=8/2,batch=9,"
     "seqlen_q=3,seqlen_kv=100,page_size=16,rotary=fp32", ""),
    # 8-bit caches: boxes of 128 columns, rows of an odd number of 16-byte units, q in shared memory.
    ("decode_sm80", CACHE.replace("head_dim=64", "dtype_kv=e4m3,head_dim=128") + ",page_size=16",
     "loads=2,keys=16,warps=8,team=8,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80",
     CACHE.replace("head_dim=64,heads=8/2", "dtype_kv=e4m3,head_dim=128,heads=12/6") + ",page_size=1,packed_q=1",
     "loads=3,keys=16,warps=8,team=1,heads=8,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80", CACHE.replace("head_dim=64", "dtype_kv=e5m2,head_dim=80") + ",page_size=3,packed_q=1",
     "loads=1,keys=16,warps=8,team=2,heads=2,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=0"),
    ("decode_sm80", CACHE.replace("head_dim=64", "dtype_kv=e4m3,head_dim=208") + ",alibi=1,sinks=fp32,window=50:0",
     "loads=0,keys=16,warps=4,team=2,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=0"),
    # int8, and factors per key, with each way of loading.
    *(("decode_sm80", CACHE.replace("head_dim=64", "dtype_kv=int8,head_dim=" + dim) + fields,
       f"loads={loads},keys=16,warps=4,team=2,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=0")
      for loads, dim, fields in ((2, "128", ",page_size=16"), (2, "128", ",page_size=16,kv_factors=keys"),
                                 (1, "80", ",page_size=3,packed_q=1,kv_factors=keys"),
                                 (0, "208", ",kv_factors=keys,alibi=1"))),
    # Caches with wgmma: whole tiles and shares, pages smaller than a step, packed rows and keys, scores.
    ("cache_sm90", CACHE + ",page_size=16", "block_m=64,block_n=64,ping_pong=0,scheduler=3,min_tiles=2"),
    ("cache_sm90", CACHE + ",page_size=128", "block_m=128,block_n=96,scheduler=2,row_max=1"),
    ("cache_sm90", CACHE + ",packed_q=1,packed_kv=1", "block_m=128,scheduler=2,kv_slots=3,row_max=1"),
    ("cache_sm90", CACHE + ",alibi=1,sinks=fp32,window=50:0", "block_m=128,scheduler=3,min_tiles=2"),
    # Programs that read the numbers of a request's rows and keys.
    ("decode_sm80", CACHE + ",page_size=16" + LENGTHS,
     "loads=2,keys=16,warps=8,team=8,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80", CACHE + ",page_size=3,packed_q=1" + LENGTHS,
     "loads=1,keys=16,warps=8,team=2,heads=2,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=0"),
    ("cache_sm90", CACHE + ",page_size=128" + LENGTHS, "block_m=128,block_n=96,scheduler=2,row_max=1"),
    ("cache_sm90", CACHE + ",packed_q=1,packed_kv=1" + LENGTHS, "block_m=128,scheduler=2,kv_slots=3,row_max=1"),
    # Wide heads, whose columns four warps share: boxes, cp.async of unequal shares, values in keys.
    ("decode_sm80", CACHE.replace("head_dim=64", "head_dim=512") + ",page_size=16",
     "loads=2,keys=16,warps=8,team=2,heads=1,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=1"),
    ("decode_sm80", CACHE.replace("head_dim=64", "head_dim_qk=320,head_dim_v=272") + ",page_size=3,packed_q=1",
     "loads=0,keys=16,warps=8,team=1,heads=2,kv_slots=2,blocks_per_sm=1,min_tiles=2,waits=0"),
    ("decode_sm80", CACHE.replace("head_dim=64", "head_dim_qk=576,head_dim_v=512") + ",page_size=1,v_in_k=1",
     "loads=0,keys=16,warps=8,team=2,heads=1,kv_slots=3,blocks_per_sm=1,min_tiles=2,waits=0"),
    # Items cut by each request's own length.
    ("decode_sm80", CACHE + ",page_size=16,batch_invariant=1", "loads=2,warps=8,heads=2,kv_slots=2,blocks_per_sm=1"),
    # Latent attention with tiles of 16, 32 and 64 rows; keys by TMA, and gathered.
    *(("mla_sm90", LATENT + field, config)
      for field, config in ((",heads=16/1,batch=3,seqlen_q=2,page_size=16,mask=causal_bottom_right",
                             "scheduler=3,pack_heads=16,min_tiles=1,tile_overhead=1"),
                            (",heads=16/1,batch=3,seqlen_q=2,page_size=16,mask=causal_bottom_right",
                             "rows=16,scheduler=3,pack_heads=16,min_tiles=1,tile_overhead=1"),
                            (",heads=16/1,batch=3,seqlen_q=2,page_size=3,mask=causal_bottom_right",
                             "rows=16,scheduler=3,pack_heads=16,min_tiles=1,tile_overhead=1"),
                            (",heads=64/1,batch=3,seqlen_q=1,page_size=1",
                             "rows=64,scheduler=2,pack_heads=64,min_tiles=2,tile_overhead=1"),
                            (",heads=12/1,batch=3,seqlen_q=2,page_size=64,window=90:0",
                             "rows=32,scheduler=2,pack_heads=16,min_tiles=2,tile_overhead=1"),
                            (",heads=64/1,batch=2,seqlen_q=1", "scheduler=2,pack_heads=64,min_tiles=2,"
                             "tile_overhead=1"))),
    # So many split-KV parts that groups of them are joined first.
    *(("mla_sm90", LATENT.replace("seqlen_kv=300", "seqlen_kv=2000") + ",heads=16/1,batch=1,seqlen_q=1,page_size=64",
       f"rows={rows},scheduler=3,pack_heads=16,min_tiles=1,tile_overhead=1") for rows in (16, 64)),
    # More tiles than SMs, one step each: a tile's last sums are read while the next tile's sums are computed.
    ("mla_sm90", LATENT.replace("seqlen_kv=300", "seqlen_kv=60") + ",heads=64/1,batch=150,seqlen_q=1",
     "scheduler=2,pack_heads=64"),
    # Latent keys of 8 bits, which are converted.
    *(("mla_sm90", LATENT.replace("dtype=bf16", "dtype=bf16,dtype_kv=e4m3") + field, config)
      for field, config in ((",heads=16/1,batch=3,seqlen_q=2,page_size=16,mask=causal_bottom_right",
                             "rows=16,scheduler=3,pack_heads=16,min_tiles=1,tile_overhead=1"),
                            (",heads=12/1,batch=3,seqlen_q=2,page_size=3,window=90:0",
                             "rows=32,scheduler=2,pack_heads=16,min_tiles=2,tile_overhead=1"),
                            (",heads=64/1,batch=3,seqlen_q=1", "scheduler=2,pack_heads=64"),
                            (",heads=16/1,batch=3,seqlen_q=2,key_indices=places,page_size=3,listed_keys=150", ""),
                            (",heads=128/1,batch=3,seqlen_q=2,key_indices=positions,listed_keys=150", ""),
                            (",heads=16/1,batch=3,seqlen_q=2,page_size=16,kv_factors=latent", ""),
                            (",heads=128/1,batch=3,seqlen_q=2,key_indices=positions,listed_keys=150,kv_factors=latent",
                             ""))),
    # Lists of keys: places and positions, entries of -1, fewer heads than rows.
    *(("mla_sm90", LATENT + f",heads={heads},batch=3,seqlen_q=2,key_indices={indices},listed_keys=150", "")
      for heads, indices in (("16/1", "places,page_size=3"), ("128/1", "positions,page_size=64"),
                             ("40/1", "positions"))),
    *(("decode_sm80", CACHE.replace(",mask=causal_bottom_right", "") + f",key_indices={indices},listed_keys=150", "")
      for indices in ("places,page_size=16", "positions,page_size=3,softcap=30", "positions")),
    # Rows appended to a cache, and merges.
    ("append_kv_cuda",
     "op=append_kv,dtype=bf16,dtype_kv=e4m3,head_dim=72,heads=8/2,batch=9,seqlen_q=5,seqlen_kv=100,rotary=bf16,"
     "rotary_interleaved=1,rotary_q=1,packed_q=1,page_size=3", ""),
    ("append_kv_cuda",
     "op=append_kv,dtype=bf16,dtype_kv=int8,head_dim=72,heads=8/2,batch=9,seqlen_q=5,seqlen_kv=100,rotary=bf16,"
     "rotary_q=1,"
     "packed_q=1,page_size=3,kv_factors=made", ""),
    ("merge_cuda", "op=merge,dtype=fp32,dtype_kv=bf16,head_dim=40,heads=3,batch=2,seqlen=77", ""),
    # Choice of keys: more equal scores than candidates fit in 16 bits, rows of several tiles, keys past the last one.
    ("top_k_cuda", "op=top_k,dtype=fp32,heads=1,seqlen_q=9,seqlen_kv=50001,listed_keys=2000", ""),
    ("top_k_cuda", "op=top_k,dtype=bf16,heads=2,seqlen_q=9,seqlen_kv=30001,listed_keys=300", ""),
    ("index_scores_sm80",
     "op=index_scores,dtype=bf16,dtype_o=fp32,head_dim=128,heads=12/1,seqlen=301,mask=causal_bottom_right", ""),
    ("index_scores_sm80", "op=index_scores,dtype=e4m3,dtype_o=fp32,head_dim=64,heads=10/2,seqlen_q=40,seqlen_kv=301",
     ""))


def runs(build, only, seeds):
    """Yields (facts, environment, command) of each run."""
    bin_dir = Path(build) / "bin"
    for template in TEMPLATES:
        for seed in range(1, seeds + 1):
            yield ({"template": template, "seed": seed}, {
                "ATTUNE_NUMERICS_TEMPLATE": template, "ATTUNE_NUMERICS_SEED": str(seed),
                "ATTUNE_NUMERICS_SPECS": "1"}, [
                    bin_dir / "numerics_test", "--gtest_filter=Cuda.EveryTemplateKeepsTheRule"])
    yield {"template": "quantise_cuda", "test": "Cuda.Corners"}, {}, [
        bin_dir / "quantise_test", "--gtest_filter=Cuda.Corners"]
    for template, problem, knobs in CONFIGS:
        yield ({"template": template, "problem": problem, "config": knobs}, {}, [
            bin_dir / "attune", "check", "--target", "cuda", "--store", "", "--template", template, "--problem",
            problem, *(("--config", knobs) if knobs else ())])


def run_one(what, environment, command, tool):
    done = subprocess.run(["compute-sanitizer", "--tool", tool, *OPTIONS.get(tool, ()), *map(str, command)],
                          env={**os.environ, **environment}, capture_output=True, text=True, timeout=570, check=False)
    text = done.stdout + done.stderr
    found = re.findall(r"ERROR SUMMARY: (\d+)|RACECHECK SUMMARY: (\d+) hazard", text)
    errors = sum(int(count) for pair in found for count in pair if count)
    row = {**what, "tool": tool, "errors": errors if found else None, "exit_status": done.returncode}
    if not found or errors or done.returncode:
        row["output"] = "\n".join(
            line for line in text.splitlines() if line.startswith("=====") or "error" in line.lower())[:2000]
        print(row, flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="one template")
    parser.add_argument("--seeds", type=int, default=1, help="random specs per template")
    parser.add_argument("--jobs", type=int, default=8, help="parallel runs on the device")
    parser.add_argument("--problems", default="",
                        help="words separated by commas; keeps runs whose problem or config holds one")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    chosen = [
        run for run in runs(arguments.build, arguments.only, arguments.seeds)
        if arguments.only in ("", run[0]["template"]) and any(
            word in run[0].get("problem", "") + " " + run[0].get("config", "")
            for word in arguments.problems.split(","))]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda job: run_one(*job[0], job[1]), [(run, tool) for run in chosen for tool in TOOLS]))
    bad = [row for row in rows if row["errors"] != 0 or row["exit_status"] != 0]
    print(f"{len(rows)} runs, {len(bad)} with a report")
    if arguments.out:
        timing.write_result(
            arguments.out,
            {"schema": "attune.bench.sanitizer.2", "command": timing.command(), **timing.facts(), "rows": rows})
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
