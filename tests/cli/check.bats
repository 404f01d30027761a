#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune check`: numerics against the oracle.
load contract

@test "check holds the runtime's choice against the oracle" {
  need_cpu_target
  attune check --target cpu --problem $problem --json
  expect 0
  json 'o["schema"] == "attune.check/1" and len(o["rows"]) == 1'
  json 'o["rows"][0]["status"] == "ok" and 0 < o["rows"][0]["error_max"] <= 1 and 0 < o["rows"][0]["error_mean"] <= 1'
}

@test "check runs the image that a call runs, and compiles none where compiling is forbidden" {
  need_cpu_target
  attune compile --problem $problem --arch cpu --out "$dir/app"
  expect 0
  export ATTUNE_NO_JIT=1
  ATTUNE_BUNDLE="$dir/app" attune check --target cpu --problem $problem --json
  expect 0
  json 'o["rows"][0]["status"] == "ok" and "bundle" in o["rows"][0]["image_from"]'
  printf 'xyz' | dd of="$(ls "$dir"/app/*.o)" bs=1 seek=500 conv=notrunc 2>/dev/null
  ATTUNE_BUNDLE="$dir/app" attune check --target cpu --problem $problem
  expect 4
  [[ "$errors" == *"SHA-256 differs"* ]]
  attune check --target cpu --problem $problem --sample 2
  refused 4 "ATTUNE_NO_JIT is set"
  unset ATTUNE_NO_JIT
  attune check --target cpu --problem $problem --sample 2 --config block_m=32
  refused 1 "--config excludes --sample"
  attune check --target cpu --fuzz 1 --seqlen 64
  refused 1 "--seqlen is given with --fuzz, but no problem is"
}

@test "check looks at the problem as calls have it" {
  need_cpu_target
  attune check --target cpu --problem dtype=fp32,head_dim=32,heads=2,seqlen=32,window=100:100 --json
  expect 0
  json '"window" not in o["rows"][0]["problem"]'
}

@test "check --sample takes random configs of the space, the same for the same seed" {
  need_cpu_target
  attune check --target cpu --problem dtype=bf16,head_dim=40,heads=3/1,seqlen_q=33,seqlen_kv=65,mask=none --sample 4 --seed 7 --json
  expect 0
  # Processors with bf16 products have another template, of which as many are taken.
  json 'sum(r["template"] == "prefill_cpu" for r in o["rows"]) == 4 and all(r["status"] == "ok" for r in o["rows"])'
  local first=$output
  attune check --target cpu --problem dtype=bf16,head_dim=40,heads=3/1,seqlen_q=33,seqlen_kv=65,mask=none --sample 4 --seed 7 --json
  [ "$first" = "$output" ]
}

@test "8-bit operands: both modes, factors, V transposed, whole and in slices" {
  need_cpu_target
  attune check --target cpu --sample 2 --json \
    --problem dtype=e4m3,head_dim=64,heads=4/2,batch=2,seqlen_q=40,seqlen_kv=100,mask=causal_bottom_right,scale_block=16 \
    --problem dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=72,heads=4/2,batch=2,seqlen=1500,mask=causal_top_left,scale_block_q=48,accuracy=fast \
    --problem dtype=e4m3,head_dim=64,heads=8/2,seqlen=1200,window=300:10,scale_block=128,v_layout=transposed
  expect 0
  json 'len(o["rows"]) == 6 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "rows that see no key" {
  need_cpu_target
  attune check --target cpu --problem dtype=fp32,head_dim=64,heads=2,seqlen_q=64,seqlen_kv=16,mask=causal_bottom_right
  expect 0
}

@test "check --config takes any config" {
  need_cpu_target
  attune check --target cpu --problem $problem --config block_n=128 --json
  expect 0
  json '"block_n=128" in o["rows"][0]["config"]'
}

@test "unknown knob" {
  need_cpu_target
  attune check --target cpu --problem $problem --config frob=1
  refused 1 '"frob"'
}

@test "a template that does not serve this" {
  need_cpu_target
  attune check --target cpu --problem $problem --template prefill_sm80
  refused 2 prefill_sm80
}

@test "a negative sample" {
  attune check --target cpu --problem $problem --sample -3
  refused 1 --sample -3
}

@test "random operands of tables without distances, which positions do not move" {
  need_cpu_target
  attune check --target cpu --fuzz 24 --problem dtype=fp32,head_dim=32,heads=2,batch=1,seqlen=0,mask=none,relative_bias=fp32 --json
  expect 0
  json 'o["cases"] == 24 and o["failures"] == 0'
}

@test "gradients of random problems" {
  need_cpu_target
  attune check --target cpu --fuzz 6 --training --seed 3 --json
  expect 0
  json 'o["cases"] > 3 and o["failures"] == 0 and set(o["templates"]) <= {"backward_cpu", "backward_reference_cpu"}'
  attune check --target cpu --fuzz 2 --training --template backward_sm80
  refused 2 "no template backward_sm80 serves gradients"
  attune check --target cpu --fuzz 2 --training --problem $problem
  refused 1 "--fuzz and --training are given with a problem"
  attune check --target cpu --fuzz 2 --dropout 0.1
  refused 1 "--dropout is given with --fuzz"
}

@test "random problems of other ops, each failure with its command" {
  need_cpu_target
  local op
  for op in attention_kvcache append_kv top_k index_scores attention_backward; do
    attune check --target cpu --fuzz 5 --op $op --seed 4 --json
    expect 0
    json 'o["cases"] + o["passed_over"] == 5 and o["failures"] == 0'
  done
  attune check --target cpu --fuzz 2 --op merge
  refused 1 "--op is merge; must be one of prefill, attention_kvcache, append_kv, top_k, index_scores, attention_backward"
  attune check --target cpu --op top_k --problem $problem
  refused 1 "--op is top_k; must be given with --fuzz alone"
}

@test "gradients of a fixed order are compared with a second run" {
  need_cpu_target
  attune check --target cpu --sample 3 --problem op=attention_backward,deterministic=1,dtype=bf16,head_dim=40,heads=4/2,seqlen_q=33,seqlen_kv=65,mask=causal_bottom_right --json
  expect 0
  json 'len(o["rows"]) == 3 and all(r["status"] == "ok" for r in o["rows"])'
}

@test "a problem beyond this machine's memory is named" {
  need_cpu_target
  local vast=dtype=fp32,head_dim=64,heads=32,batch=2000000,seqlen=200
  attune check --target cpu --problem $vast
  expect 4
  [[ $errors == *"the operands of dtype=fp32,head_dim=64,heads=32/32,batch=2000000,seqlen=200,mask=none take more memory than is free: cannot allocate"* ]]
  attune tune --target cpu --problem $vast --effort quick --budget 30 --json
  expect 4
  json '"take more memory than is free" in o["shapes"][0]["note"]'
}

@test "--dropout that no problem takes" {
  need_cpu_target
  attune check --target cpu --training --dropout 0.1 --problem dtype=e4m3,head_dim=64,heads=2,seqlen=64
  refused 1 "--dropout is given, but no problem takes it: 8-bit problems have no dropout"
  attune check --target cpu --training --dropout 0.1 --problem ${problem/seqlen/dropout=0.2,seqlen}
  refused 1 "--dropout is given"
}

@test "a problem whose operands a problem before has written" {
  need_cpu_target
  local append=op=append_kv,head_dim=64,heads=2,batch=1,seqlen_q=1,seqlen_kv=64,page_size=16,num_pages=20
  for dtype in fp32 bf16; do
    attune check --target cpu --problem dtype=$dtype,head_dim=64,heads=4/2,seqlen=100,mask=none --problem $append,dtype=$dtype \
      --problem dtype=$dtype,head_dim=64,heads=4/2,seqlen=100,mask=causal_bottom_right \
      --problem op=attention_kvcache,dtype=$dtype,head_dim=64,heads=4/2,batch=2,seqlen_q=1,seqlen_kv=70,page_size=16 \
      --problem op=merge,dtype=$dtype,head_dim=64,heads=4,batch=1,seqlen=20 --json
    expect 0
    json 'len(o["rows"]) == 5'
  done
}

@test "problems that only the reference serves are reported with each template's reason and no advice to tune" {
  need_cpu_target
  attune check --target cpu --problem op=attention_backward,dtype=fp32,head_dim=64,heads=2,seqlen=64,mask=none,alibi=1,score_gradient=alibi
  expect 0
  [[ $errors == *"only the slow reference kernel serves attention_backward fp32 "*"(backward_cpu: score_gradient is alibi; this template serves gradients of q, k and v only)"* ]]
  [[ $errors == *"tuning changes nothing"* && $errors != *"attune tune"* ]]
}
