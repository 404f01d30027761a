#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails unless the constants of each knobs file of templates/ are a legal config of its family. Run by CTest.
  knobs_files_test.py ATTUNE     the program `attune`, which refuses other configs (`emit --config`)
"""
import pathlib
import re
import subprocess
import sys

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"
PREFILL = "head_dim=128,heads=8,seqlen=4096,mask=causal_bottom_right"
BACKWARD = f"op=backward,dtype=fp16,{PREFILL}"
CACHE = ("op=attention_kvcache,dtype=fp16,heads=8/8,batch=4,seqlen_q=1,seqlen_kv=4096,mask=causal_bottom_right,"
         "page_size=16")
CPU = "cpu:x86-64"
# knobs file -> template, arch, and the problem of the file's other constants. None: the family has no knobs
FAMILIES = {
    "cuda/prefill_sm75/prefill_sm75_knobs.cuh": ("prefill_sm75", "sm_75", f"dtype=fp16,{PREFILL}"),
    "cuda/prefill_sm80/prefill_sm80_knobs.cuh": ("prefill_sm80", "sm_80", f"dtype=fp16,{PREFILL}"),
    "cuda/prefill_sm80_tf32/prefill_sm80_tf32_knobs.cuh":
        ("prefill_sm80_tf32", "sm_80", f"dtype=fp32,accuracy=fast,{PREFILL}"),
    "cuda/prefill_sm89/prefill_sm89_knobs.cuh": ("prefill_sm89", "sm_89", f"dtype=e4m3,{PREFILL}"),
    "cuda/prefill_sm90/prefill_sm90_knobs.cuh": ("prefill_sm90", "sm_90a", f"dtype=fp16,{PREFILL}"),
    "cuda/prefill_sm90_fp8/prefill_sm90_fp8_knobs.cuh": ("prefill_sm90_fp8", "sm_90a", f"dtype=e4m3,{PREFILL}"),
    "cuda/cache_sm90/cache_sm90_knobs.cuh": ("cache_sm90", "sm_90a", f"head_dim=128,{CACHE}"),
    "cuda/decode_sm80/decode_sm80_knobs.cuh": ("decode_sm80", "sm_80", f"head_dim=128,{CACHE}"),
    "cuda/backward_sm80/backward_sm80_knobs.cuh": ("backward_sm80", "sm_80", BACKWARD),
    "cuda/backward_lists_sm80/backward_lists_sm80_knobs.cuh":
        ("backward_lists_sm80", "sm_90a", "op=backward,dtype=fp16,head_dim=128,heads=8,seqlen=4096,"
         "key_indices=positions,listed_keys=256"),
    "cuda/backward_sm90/one_kernel/backward_sm90_one_kernel_knobs.cuh":
        ("backward_sm90_one_kernel", "sm_90a", BACKWARD),
    "cuda/backward_sm90/stored/backward_sm90_stored_knobs.cuh": ("backward_sm90_stored", "sm_90a", BACKWARD),
    "cuda/backward_sm90/two_kernels/backward_sm90_knobs.cuh": ("backward_sm90", "sm_90a", BACKWARD),
    "cpu/prefill/prefill_cpu_knobs.hpp": ("prefill_cpu", CPU, f"dtype=fp32,{PREFILL}"),
    "cpu/backward/backward_cpu_knobs.hpp": ("backward_cpu", CPU, f"op=backward,dtype=fp32,{PREFILL}"),
    "cpu/decode/decode_cpu_knobs.hpp":
        ("decode_cpu", CPU, "head_dim=64," + CACHE.replace("fp16", "fp32").replace("8/8", "8/2")),
}


def constants(path):
    """Returns {knob: value} of the integers in a knobs file, named as in configs: kBlockM is block_m."""
    found = re.findall(r"\b(k[A-Z]\w*) = (-?\d+)\b", (TEMPLATES / path).read_text())
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", name[1:]).lower(): int(value) for name, value in found}


def emit(attune, family, *options):
    template, arch, problem = family
    return subprocess.run([attune, "emit", "--problem", problem, "--arch", arch, "--template", template, *options],
                          capture_output=True, text=True)


def fault_of(attune, path, family):
    """Returns why the file is no config of the family, or an empty text."""
    plain = emit(attune, family)
    config = re.search(r"^// config +(\S+)", plain.stdout, re.M)
    if config is None:
        return plain.stderr.strip() or "emit prints no config"
    knobs = [pair.split("=")[0] for pair in config.group(1).split(",")]
    values = constants(path)
    absent = [knob for knob in knobs if knob not in values]
    if absent:
        return f"has no constant for {', '.join(absent)}"
    text = ",".join(f"{knob}={values[knob]}" for knob in knobs)
    given = emit(attune, family, "--config", text)
    return "" if given.returncode == 0 else f"{text}: {given.stderr.strip()}"


def main():
    faults = {path: fault_of(sys.argv[1], path, family) for path, family in FAMILIES.items()}
    for path, fault in faults.items():
        if fault:
            print(f"{path}: {fault}")
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
