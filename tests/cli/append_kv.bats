#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The op append_kv under every command that takes a problem.
load contract

plain=op=append_kv,dtype=bf16,head_dim=64,heads=8/2,batch=6,seqlen_q=2,seqlen_kv=300,page_size=16
turned=op=append_kv,dtype=fp16,head_dim_qk=80,head_dim_v=64,heads=8/2,batch=6,seqlen_q=7,seqlen_kv=100,rotary=fp16,rotary_dim=20,rotary_q=1
neighbours=op=append_kv,dtype=bf16,head_dim=72,heads=8/2,batch=9,seqlen_q=5,seqlen_kv=100,rotary=bf16,rotary_interleaved=1,rotary_q=1,packed_q=1,page_size=3
scarce=op=append_kv,dtype=fp32,head_dim=128,heads=4/2,batch=9,seqlen_q=50,seqlen_kv=40,packed_q=1,page_size=1,num_pages=70,rotary=fp32

@test "check holds the cache and o against float64, and all that no row goes to" {
  need_cpu_target
  attune check --target cpu:3 --problem $plain --problem $turned --problem $neighbours --problem $scarce --json
  expect 0
  json 'len(o["rows"]) == 4 and all(r["status"] == "ok" and r["error_max"] <= 1 for r in o["rows"]) and o["rows"][1]["error_max"] > 0.5'
}

@test "caches of 8 bits get rounded shares" {
  need_cpu_target
  attune check --target cpu:2 --problem ${plain/bf16/bf16,dtype_kv=e4m3} --problem ${turned/fp16/fp16,dtype_kv=e5m2} --problem ${neighbours/bf16/bf16,dtype_kv=e4m3} --json
  expect 0
  json 'len(o["rows"]) == 3 and all(r["status"] == "ok" and 0.5 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "bench reports the bytes of rows, not of the cache" {
  need_cpu_target
  attune bench --target cpu --problem $plain --time 0.2 --no-standard --json
  expect 0
  json 'o["rows"][0]["flops"] == 0 and o["rows"][0]["bytes"] == 6 * 2 * 2 * 128 * 2 * 2'
}

@test "arguments that do not fit are refused by name" {
  attune explain --problem $plain,rotary_dim=8
  refused 1 "rotary is none" "rotary_dim"
  attune explain --problem $plain,rotary=fp32,rotary_dim=66
  refused 1 "rotary_dim is 66" "from 2 to head_dim_qk (64)"
  attune explain --problem $plain,mask=causal_bottom_right
  refused 1 "mask is causal_bottom_right" "op append_kv has no mask"
  attune explain --problem $plain,softcap=30
  refused 1 "softcap is given" "no score features"
  attune explain --problem ${plain/bf16/bf16,dtype_kv=fp16}
  refused 2 "dtype_kv is fp16 and dtype_q is bf16" "op append_kv"
  attune explain --problem ${plain/op=append_kv,/},rotary=fp32
  refused 1 "op prefill"
}
