#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune emit`: prints source without any compiler, PTX and resources with NVRTC, refuses nonsense before work.
load contract

gpu_problem=dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=2048,mask=causal_bottom_right

@test "emit prints one self-contained source for an arch that is not here" {
  attune emit --problem $gpu_problem --arch sm_80
  expect 0
  [[ $output == *attune_kernel* ]]
  [[ $output == *"kHeadDimQk = 128"* ]]
  [[ $output != *'#include "'* ]]
}

@test "emit --config changes the named knob only" {
  attune emit --problem $gpu_problem --arch sm_80 --json
  expect 0
  json 'o["schema"] == "attune.emit/1" and o["template"] == "prefill_sm80" and "block_n=" in o["config"]'
  attune emit --problem $gpu_problem --arch sm_80 --config hold_offsets=1 --json
  expect 0
  json '"hold_offsets=1" in o["config"].split(",") and "kHoldOffsets = 1" in o["text"]'
}

@test "emit --out writes the whole file" {
  attune emit --problem $gpu_problem --arch sm_80 --out "$dir/new/kernel.cu"
  expect 0
  [ -z "$output" ]
  grep -q attune_kernel "$dir/new/kernel.cu"
  [ "$(ls "$dir/new")" = kernel.cu ]
}

@test "emit --what resources reports registers and no spills" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what resources --json
  expect 0
  json 'o["fault"] is None and 0 < o["registers"] <= 255 and o["shared_bytes"] > 0 and o["compile_time_s"] > 0'
  json '"registers" in o["compiler_log"] and "\0" not in o["compiler_log"]'
}

@test "emit --what ptx prints PTX for the arch" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what ptx
  expect 0
  [[ $output == *".target sm_80"* ]]
}

@test "emit --what ptx is refused for a CPU" {
  need_cpu_target
  attune emit --problem $problem --arch cpu --what ptx
  refused 1 ptx "CUDA archs only"
}

@test "unknown arch" {
  attune emit --problem $gpu_problem --arch sm_71
  refused 1 sm_71 sm_80
}

@test "unknown knob" {
  attune emit --problem $gpu_problem --arch sm_80 --config tile=64
  refused 1 '"tile"' block_m
}

@test "a knob value outside its list" {
  attune emit --problem $gpu_problem --arch sm_80 --config block_m=17
  refused 1 block_m 17
}

@test "unknown template" {
  attune emit --problem $gpu_problem --arch sm_80 --template prefill_sm99
  refused 1 prefill_sm99 prefill_sm80
}

@test "a template that does not serve the arch" {
  attune emit --problem $gpu_problem --arch sm_75 --template prefill_sm80
  refused 2 prefill_sm80
}

@test "head dim 100" {
  attune emit --problem dtype=bf16,head_dim=100,heads=8,seqlen=64 --arch sm_80
  refused 1 head_dim 100 "multiples of 8"
}

@test "heads that do not divide" {
  attune emit --problem dtype=bf16,head_dim=64,heads=7/2,seqlen=64 --arch sm_80
  refused 1 7 2
}

@test "negative length" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=-4 --arch sm_80
  refused 1 seqlen -4
}

@test "wrong dtype" {
  attune emit --problem dtype=int8,head_dim=64,heads=8,seqlen=64 --arch sm_80
  refused 1 int8 bf16
}

@test "a scale that is not a number" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,scale=nan --arch sm_80
  refused 1 scale nan
}

@test "an unknown key of a problem" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,colour=red --arch sm_80
  refused 1 colour
}

@test "missing --problem" {
  attune emit --arch sm_80
  refused 1 --problem
}

@test "an output that cannot be written" {
  attune emit --problem $gpu_problem --arch sm_80 --out /proc/attune/kernel.cu
  refused 5 /proc/attune
}
