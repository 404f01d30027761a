#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune compile`: kernels for archs that are not here, into a folder or the store.
load contract

@test "compile for the CPU into a folder with a manifest" {
  need_cpu_target
  attune compile --arch cpu --problem $problem --out "$dir/kernels" --json
  expect 0
  json 'o["failed"] == 0 and o["kernels"][0]["image_bytes"] > 1000 and o["kernels"][0]["compile_time_s"] > 0'
  [ "$(ls "$dir/kernels" | wc -l)" -eq 2 ]
  grep -q '"attune_bundle"' "$dir/kernels/manifest.json"
}

@test "the names of GPUs, and sm_90 for Hopper" {
  need_nvrtc
  attune compile --arch sm_90,h100,l40s --problem dtype=bf16,head_dim=64,heads=8,seqlen=1024 --out "$dir/kernels" --json
  expect 0
  json 'sorted({k["arch"] for k in o["kernels"]}) == ["sm_89", "sm_90a"]'
  [[ $errors == *"chosen for NVIDIA L40S (142 multiprocessors"*"of arch sm_89"* ]]
  attune compile --help
  [[ $output == *"sm_90 means sm_90a"* ]]
}

@test "compile into a bundle adds to it" {
  need_nvrtc
  local d64=dtype=bf16,head_dim=64,heads=8,seqlen=1024
  attune compile --arch sm_80,sm_90 --problem $d64 --out "$dir/kernels"
  expect 0
  attune compile --arch sm_80 --problem ${d64/head_dim=64/head_dim=128} --out "$dir/kernels" --json
  expect 0
  json 'o["kept"] == 2 and o["unnamed_files"] == 0'
  attune compile --arch sm_80 --problem $d64 --out "$dir/kernels"
  expect 0
  [[ $output == *"2 other kernels of that bundle are kept"* ]]
  [ "$(grep -c '"sha256"' "$dir/kernels/manifest.json")" -eq 3 ]
  [ "$(ls "$dir"/kernels/*.cubin | wc -l)" -eq 3 ]
}

@test "compile into the store: the next plan takes the image from there" {
  need_cpu_target
  attune compile --arch cpu --problem $problem
  expect 0
  attune db stats --json
  expect 0
  json 'o["images"] == 1'
}

@test "--training --deterministic compiles gradients of equal bits" {
  need_cpu_target
  attune compile --arch cpu --problem $problem --training --deterministic --out "$dir/kernels" --json
  expect 0
  json '[k["problem"].endswith(",deterministic=1") for k in o["kernels"]] == [False, True]'
  attune compile --arch cpu --problem $problem --training --out "$dir/kernels" --json
  json '"deterministic" not in str(o["kernels"])'
  attune compile --arch cpu --problem $problem --deterministic --out "$dir/kernels"
  expect 1
  [[ $errors == *"--deterministic is given without --training"* ]]
  attune compile --help
  [[ $output == *"--deterministic "* ]]
}

@test "shapes that share a kernel are compiled once" {
  need_cpu_target
  attune compile --arch cpu --problem $problem --seqlen 256,512,1024 --out "$dir/kernels" --json
  expect 0
  json 'len({k["config"] for k in o["kernels"]}) == len(o["kernels"]) <= 3'
}

@test "several CUDA archs without a GPU" {
  need_nvrtc
  attune compile --arch sm_80,sm_90 --problem dtype=bf16,head_dim=64,heads=8,seqlen=1024 --out "$dir/kernels" --jobs 2 --json
  expect 0
  json '[k["arch"] for k in o["kernels"]] == ["sm_80", "sm_90a"] and all(k["registers"] > 0 for k in o["kernels"])'
  [ "$(ls "$dir"/kernels/*.cubin | wc -l)" -eq 2 ]
}

@test "compile says whose facts the defaults of an arch that is not here follow" {
  need_nvrtc
  attune compile --arch sm_75 --problem dtype=fp16,head_dim=64,heads=8,seqlen=1024 --out "$dir/kernels" --json
  expect 0
  json 'any("default configs are chosen for NVIDIA T4 (40 multiprocessors" in note for note in o["notes"])'
}

@test "unknown arch" {
  attune compile --arch sm_80,sm_12 --problem $problem --out "$dir/kernels"
  refused 1 sm_12 sm_80
  [ ! -e "$dir/kernels" ]
}

@test "an empty part of a list" {
  attune compile --arch sm_80,,sm_90 --problem $problem --out "$dir/kernels"
  refused 1 --arch sm_80,,sm_90
}

@test "negative jobs" {
  attune compile --arch sm_80 --problem $problem --out "$dir/kernels" --jobs -1
  refused 1 --jobs -1 1024
}

@test "fp32 on a CUDA arch is not supported by the tensor-core families" {
  attune compile --arch sm_80 --template prefill_sm80 --problem $problem --out "$dir/kernels"
  [ "$status" -eq 2 ] || [ "$status" -eq 4 ]
  [ -z "$output" ]
}

@test "an arch without a tensor-core kernel for the type is said" {
  need_nvrtc
  attune compile "$models/Llama-3.1-8B" --seqlen 64 --arch sm_75 --out "$dir/slow" --json
  expect 0
  [[ $errors == *"only the slow reference kernel serves bf16 d128 "*" on sm_75 (prefill_sm75: dtype is bf16; this template serves fp16); --dtype fp16 has a fast kernel"* ]]
  json 'o["kernels"][0]["template"] == "reference_cuda" and any("sm_75" in note for note in o["notes"])'
  attune compile "$models/Llama-3.1-8B" --seqlen 64 --dtype fp16 --arch sm_75 --out "$dir/fast" --json
  expect 0
  json 'o["kernels"][0]["template"] != "reference_cuda" and not any("slow" in note for note in o["notes"])'
}

@test "--zstd without --out" {
  attune compile --arch cpu --problem $problem --zstd
  refused 1 "--zstd is given without --out; must be given with --out"
}

@test "a window beyond all lengths hides nothing, as elsewhere" {
  need_cpu_target
  local plain=${problem/mask=causal_bottom_right/mask=none}
  attune compile --arch cpu --problem $plain,window=2000000000:2000000000 --out "$dir/kernels" --json
  expect 0
  json '["window" in k["problem"] for k in o["kernels"]] == [False]'
  attune compile --arch cpu --problem $plain,window=-:2000000000 --problem $problem,window=2000000000:0 --out "$dir/kernels" --json
  expect 0
  json '["window" in k["problem"] for k in o["kernels"]] == [False, False]'
  attune check --target cpu --problem $plain,window=2000000000:2000000000
  expect 0
  attune compile --arch cpu --problem $plain,window=2147483647:0 --out "$dir/kernels"
  refused 1 "window_left is 2147483647; must be 0 to 2147418111"
}
