#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The op attention_kvcache under every command that takes a problem.
load contract

pages=op=kvcache,dtype=bf16,head_dim=64,heads=8/2,batch=6,seqlen_q=2,seqlen_kv=300,page_size=16,mask=causal_bottom_right
slots=op=attention_kvcache,dtype=fp32,head_dim=40,heads=7/1,batch=5,seqlen_q=1,seqlen_kv=333
packed=op=kvcache,dtype=fp16,head_dim_qk=96,head_dim_v=64,heads=4,batch=7,seqlen_q=5,seqlen_kv=90,page_size=3,packed_q=1,mask=causal_bottom_right
keys=op=kvcache,dtype=bf16,head_dim=64,heads=8/2,batch=6,seqlen_q=9,seqlen_kv=130,packed_q=1,packed_kv=1,mask=causal_bottom_right
latent=op=kvcache,dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,batch=3,seqlen_q=2,seqlen_kv=200,page_size=64,mask=causal_bottom_right
scored=op=kvcache,dtype=bf16,head_dim=64,heads=8/2,batch=4,seqlen_q=3,seqlen_kv=200,window=40:0,alibi=1,softcap=20,sinks=fp32

@test "check holds o and lse against float64" {
  need_cpu_target
  attune check --target cpu:3 --problem $pages --problem $slots --problem $packed --problem $keys --problem $scored --sample 2 --json
  expect 0
  json 'len(o["rows"]) == 10 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "latent attention: values that are the first columns of keys" {
  need_cpu_target
  attune check --target cpu:3 --problem $latent,v_in_k=1 --problem ${latent/bf16/fp16},batch_invariant=1 --problem ${latent/heads=16/heads=128},v_in_k=1 --sample 2 --json
  expect 0
  json 'len(o["rows"]) == 5 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune check --target cpu:3 --problem $latent --problem ${latent/head_dim_qk=576,head_dim_v=512/head_dim=512},dtype_kv=e4m3 --json
  expect 0
  attune emit --arch sm_90a --what source --problem ${latent/head_dim_v=512/head_dim_v=504}
  refused 2 "cache_sm90: head_dim_qk is 576" "mla_sm90: v_in_k is 0" "decode_sm80: head_dim_v is 504"
  attune explain --target cpu --problem ${latent/head_dim_qk=576/head_dim_qk=448},v_in_k=1
  refused 1 "v_in_k is 1 and head_dim_v is 512; must be at most 448"
  need_nvrtc
  attune emit --arch sm_90a --what resources --json --problem $latent,v_in_k=1
  expect 0
  json 'o["template"] == "mla_sm90" and o["spill_store_bytes"] == 0'
  for arch in sm_80 sm_86 sm_89 sm_120; do
    attune emit --arch $arch --what resources --json --problem ${latent/page_size=64/page_size=1},v_in_k=1
    expect 0
    json 'o["template"] == "decode_sm80" and o["spill_store_bytes"] == 0'
  done
}

@test "groups and head dims that no tile of rows or vectors divides" {
  need_cpu_target
  problems=()
  for case in bf16,head_dim=24,heads=5/1 bf16,head_dim=72,heads=6/1 bf16,head_dim=200,heads=7/1 fp32,head_dim=72,heads=3/1 fp32,head_dim=128,heads=2/2 fp16,head_dim=40,heads=12/1; do
    problems+=(--problem "op=kvcache,batch=3,seqlen_q=2,seqlen_kv=301,page_size=7,mask=causal_bottom_right,dtype=$case")
  done
  attune check --target cpu:2 "${problems[@]}" --json
  expect 0
  json 'len(o["rows"]) == 6 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "bits of a request may be its own" {
  need_cpu_target
  attune check --target cpu:3 --problem ${pages/seqlen_kv=300/seqlen_kv=3000},batch_invariant=1 --problem $packed,batch_invariant=1 --problem $keys,batch_invariant=1 --problem $scored,batch_invariant=1 --json
  expect 0
  json 'len(o["rows"]) == 4 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune explain --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,batch_invariant=1
  refused 1 "batch_invariant is 1" "op prefill"
}

@test "caches of 8 bits have a factor for each head" {
  need_cpu_target
  attune check --target cpu:2 --problem ${pages/bf16/bf16,dtype_kv=e4m3} --problem ${packed/fp16/fp16,dtype_kv=e5m2} --problem ${keys/bf16/bf16,dtype_kv=e5m2} --problem ${scored/bf16/bf16,dtype_kv=e4m3} --sample 2 --json
  expect 0
  json 'len(o["rows"]) == 8 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune explain --problem ${slots/fp32/fp32,dtype_kv=e4m3}
  refused 2 "dtype_kv is e4m3 and dtype_q is fp32" "with bf16 and fp16, k and v may be e4m3, e5m2, int8, int4 or e2m1"
  attune explain --problem ${pages/bf16/bf16,dtype_kv=fp16}
  refused 2 "dtype_kv is fp16 and dtype_q is bf16"
  attune emit --arch sm_80 --problem ${pages/bf16/bf16,dtype_kv=e4m3}
  refused 2 "decode_sm80: dtype_kv is e4m3" "sm_89"
}

@test "caches of int8, and factors of keys" {
  need_cpu_target
  attune check --target cpu:2 --problem ${pages/bf16/bf16,dtype_kv=int8} --problem ${packed/fp16/fp16,dtype_kv=int8,kv_factors=keys} --problem ${keys/bf16/bf16,dtype_kv=e5m2,kv_factors=keys} --problem ${scored/bf16/bf16,dtype_kv=e4m3,kv_factors=keys} --json
  expect 0
  json 'len(o["rows"]) == 4 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune emit --arch sm_80 --problem ${pages/bf16/bf16,dtype_kv=int8,kv_factors=keys}
  expect 0
  attune explain --problem dtype=e4m3,dtype_kv=int8,head_dim=64,heads=8,seqlen=64
  refused 1 "dtype_kv is int8" "op prefill has no cache"
  attune explain --problem ${pages},kv_factors=keys
  refused 1 "kv_factors is keys and dtype_kv is bf16" "must be heads"
  attune explain --problem ${pages/bf16/bf16,dtype_kv=int8},kv_factors=made
  refused 1 "kv_factors is made" "must be heads or keys"
  attune explain --problem ${pages/bf16/bf16,dtype_kv=int8},kv_factors=rows
  refused 1 'kv_factors is "rows"' "heads, keys, made, latent, columns16 or columns32"
  attune explain --problem op=quantise,dtype=bf16,dtype_o=int8,head_dim=64,heads=8,seqlen=64
  refused 2 "dtype_o is int8" "e4m3 or e5m2"
}

@test "caches of 4 bits have factors for groups of columns" {
  need_cpu_target
  int4=dtype_kv=int4,kv_factors=columns16 e2m1=dtype_kv=e2m1,kv_factors=columns32
  attune check --target cpu:2 --problem ${pages/bf16/bf16,$int4} --problem ${packed/fp16/fp16,$e2m1} --problem ${keys/bf16/bf16,$e2m1} --problem ${scored/bf16/bf16,$int4} \
    --problem op=append_kv,dtype=bf16,$int4,head_dim=64,heads=4/2,batch=3,seqlen_q=5,seqlen_kv=70,page_size=3,rotary=fp32 \
    --problem op=append_kv,dtype=fp16,$e2m1,head_dim_qk=96,head_dim_v=32,heads=4/2,batch=3,seqlen_q=5,seqlen_kv=70,packed_q=1 --json
  expect 0
  json 'len(o["rows"]) == 6 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune emit --arch sm_80 --problem ${pages/bf16/bf16,$int4}
  expect 0
  attune explain --problem ${pages/bf16/bf16,dtype_kv=int4}
  refused 1 "dtype_kv is int4 and kv_factors is heads" "must be columns16 or columns32"
  attune explain --problem ${pages/bf16/bf16,dtype_kv=int8},kv_factors=columns16
  refused 1 "kv_factors is columns16 and dtype_kv is int8" "only 4-bit caches"
  attune explain --problem ${latent/bf16/bf16,$e2m1},v_in_k=1
  refused 1 "dtype_kv is e2m1 and v_in_k is 1" "must be 0"
  attune explain --problem op=attention_kvcache,dtype=bf16,$int4,head_dim=80,heads=8,seqlen=64
  refused 1 "head_dim_qk is 80 and dtype_kv is int4" "multiple of 32"
  attune explain --problem dtype=bf16,dtype_kv=e2m1,head_dim=64,heads=8,seqlen=64
  refused 1 "dtype_kv is e2m1" "op prefill has no cache"
  attune emit --arch sm_90a --problem op=attention_kvcache,dtype=bf16,$int4,head_dim=512,heads=8,seqlen=64
  refused 2 "decode_sm80: dtype_kv is int4, head_dim_qk 512 and head_dim_v 512" "up to 256 and 192" "cache_sm90: dtype_kv is int4"
}

@test "latent caches of 8 bits: factors beside them or in their rows" {
  need_cpu_target
  narrow=${latent/bf16/bf16,dtype_kv=e4m3},v_in_k=1
  attune check --target cpu:2 --problem $narrow --problem $narrow,kv_factors=keys --problem $narrow,kv_factors=latent \
    --problem ${narrow/mask=causal_bottom_right/key_indices=places},kv_factors=latent,listed_keys=70 --json
  expect 0
  json 'len(o["rows"]) == 4 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune explain --target cpu --problem ${narrow/bf16/fp16},kv_factors=latent
  refused 1 "kv_factors is latent, dtype_q fp16" "must be with bf16, e4m3, 1 and 512"
}

@test "a program sees positions" {
  need_cpu_target
  attune check --target cpu:2 --problem $slots --mask-mod "return q_idx - kv_idx < 20;" --json
  expect 0
  json 'o["rows"][0]["status"] == "ok"'
}

@test "a program sees the rows and keys of its request" {
  need_cpu_target
  attune check --target cpu:2 --problem $pages --problem $slots --problem $packed --problem $keys --problem $pages,batch_invariant=1 --problem ${latent/bf16/fp16},v_in_k=1 \
    --problem ${packed/fp16/fp16,dtype_kv=int8,kv_factors=keys} --score-mod "return score * log2(float(seqlen_kv + 2)) - 0.125 * float(seqlen_q);" \
    --mask-mod "return kv_idx + 9 * seqlen_q >= seqlen_kv || q_idx - kv_idx > 30;" --json
  expect 0
  json 'len(o["rows"]) == 7 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "tune finds a winner, and bench times it" {
  need_cpu_target
  attune tune --target cpu --problem $slots --effort quick --budget 60 --json
  expect 0
  attune explain --target cpu --problem $slots --json
  json 'o["template"] == "decode_cpu" and o["rung"] == "exact"'
  attune bench --target cpu --problem $slots --time 0.2 --no-standard --json
  expect 0
  json 'o["rows"][0]["flops"] > 0'
}

@test "rows see the keys that their lists name" {
  need_cpu_target
  local -A whole
  for name in pages packed keys latent; do whole[$name]=${!name/causal_bottom_right/none}; done
  lists=${whole[pages]},key_indices=positions,listed_keys=40
  attune check --target cpu:2 --problem $lists --problem ${whole[pages]},key_indices=places,listed_keys=70 --problem ${whole[packed]},key_indices=positions,listed_keys=33 \
    --problem ${whole[keys]},key_indices=positions --problem ${slots},key_indices=places,listed_keys=9,sinks=fp32 --problem $lists,batch_invariant=1,alibi=1,softcap=20 \
    --problem ${whole[latent]/bf16/fp16},v_in_k=1,key_indices=positions,listed_keys=64 --problem ${whole[packed]/fp16/fp16,dtype_kv=int8,kv_factors=keys},key_indices=places,listed_keys=50 --json
  expect 0
  json 'len(o["rows"]) == 8 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
  attune explain --problem $pages,key_indices=positions
  refused 1 "key_indices is positions, mask is causal_bottom_right" "must be mask none"
  attune explain --problem $lists,window=5:0
  refused 1 "the window is 5:0"
  attune explain --problem ${whole[pages]},key_indices=places,alibi=1
  refused 1 "key_indices is places and alibi is given" "must be positions"
  attune explain --problem ${whole[keys]},key_indices=places
  refused 1 "key_indices is places and packed_kv is 1"
  attune explain --problem ${pages},listed_keys=5
  refused 1 "listed_keys is 5 and key_indices is none"
  attune explain --problem $lists,block_map=hides
  refused 1 "block_map is given"
  attune explain --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,key_indices=positions
  refused 1 "key_indices is positions; op prefill does not take lists of keys"
  attune explain --problem op=append_kv,dtype=bf16,head_dim=64,heads=8,seqlen=64,key_indices=positions
  refused 1 "op append_kv does not take lists of keys"
  attune explain --problem ${pages},key_indices=keys
  refused 1 'key_indices is "keys"' "none, positions or places"
}

@test "arguments that the op does not have are refused by name" {
  attune explain --problem $slots,bias=fp32
  refused 1 "bias is given" "kv_lengths"
  attune explain --problem ${slots},packed_kv=1,page_size=4
  refused 1 "packed_kv is 1 and page_size is 4"
  attune explain --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,packed_kv=1
  refused 1 "packed_kv is 1"
  attune explain --problem ${slots},mask=causal_top_left
  refused 1 "causal_top_left" "causal_bottom_right"
  attune explain --problem ${slots/fp32/e4m3}
  refused 2 "e4m3" "bf16, fp16"
  attune explain --problem $slots,page_size=-1
  refused 1 "page_size is -1"
  attune explain --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,page_size=16
  refused 1 "page_size is 16" "op prefill has no cache"
  attune explain --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,packed_q=1
  refused 1 "packed_q is 1"
}

@test "emit shows the family that a call takes, by its rows" {
  need_nvrtc
  local problem=op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen_kv=4096
  attune emit --arch sm_90a --what resources --json --problem $problem,seqlen_q=1
  json 'o["template"] == "decode_sm80"'
  attune emit --arch sm_90a --what resources --json --problem $problem,seqlen_q=512,mask=causal_bottom_right
  json 'o["template"] == "cache_sm90"'
}
