#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune explain`: rung, reason, and why not another template; compiles nothing.
load contract

@test "untuned: the default config, and why other templates do not serve" {
  need_cpu_target
  attune explain --target cpu --problem $problem --json
  expect 0
  json 'o["rung"] == "default_config" and o["template"] == "prefill_cpu" and o["winner"] is None'
  json 'any(t["name"] == "prefill_sm80" and not t["serves"] and t["reason"] for t in o["templates"])'
}

@test "templates of the op and target are listed, in columns, and all by --all" {
  need_cpu_target
  local lines
  attune explain --target cpu --problem op=attention_backward,$problem
  expect 0
  lines=${output#*Templates:}
  [[ $lines == *"backward_reference_cpu serves this"* && $lines == *"backward_cpu           serves this"* && $lines == *"(--all lists them)"* ]]
  [[ $lines != *sm90* && $lines != *"this template serves prefill"* && $output != *"not taken"* ]]
  attune explain --target cpu --problem op=attention_backward,$problem --all
  lines=${output#*Templates:}
  [[ $lines == *sm90* && $lines == *"this template serves prefill"* && $lines != *"(--all"* ]]
}

@test "explain names the device whose facts count" {
  need_cpu_target
  attune explain --target cpu:3 --problem $problem
  expect 0
  [[ $output == *"device     "*", 3 threads"* ]]
}

@test "on a GPU of a kind that attune never ran on, explain says so" {
  pretend_gpu 8 9
  attune explain --target cuda --problem ${problem/fp32/bf16}
  expect 0
  [[ $output == *"warning    attune has run on Hopper GPUs only"*"arch sm_89"* ]]
  attune explain --target cuda "$models/Llama-3.1-8B/config.json" --json
  expect 0
  json 'any("never on a GPU of arch sm_89" in n for n in o["notes"])'
  pretend_gpu 9 0
  attune explain --target cuda --problem ${problem/fp32/bf16} --json
  expect 0
  json 'not o["warnings"]'
}

@test "tuned: exact for the shape, nearest for another" {
  tuned
  attune explain --target cpu --problem $problem
  expect 0
  [[ $output == *"exact"* ]]
  attune explain --target cpu --problem ${problem/seqlen=128/seqlen=200} --json
  json 'o["rung"] in ("bucket", "nearest", "default_config") and o["why"]'
}

@test "policy strict refuses problems that are not tuned" {
  need_cpu_target
  attune explain --target cpu --problem $problem --policy strict
  refused 2 tuned
}

@test "the policy of the environment counts, unless --policy is given" {
  need_cpu_target
  export ATTUNE_POLICY=strict
  attune explain --target cpu --problem $problem
  refused 2 "policy strict"
  attune explain --target cpu --problem $problem --policy default --json
  expect 0
  json 'o["rung"] == "default_config" and o["settings"]["policy"] == "default"'
  ATTUNE_POLICY=tune_on_miss attune explain --target cpu --problem $problem
  refused 1 "ATTUNE_POLICY" "must be default, nearest or strict"
}

@test "no_jit: kernels that would need compiling are not promised" {
  need_cpu_target
  ATTUNE_NO_JIT=1 attune explain --target cpu --problem $problem
  refused 4 no_jit
}

@test "--arch explains for a GPU that is not here" {
  local p=dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal
  attune explain --problem $p --arch h100
  expect 0
  [[ $output == *"kernel     prefill_sm90 for sm_90a"* && $output == *"NVIDIA H100, which is not here (132 multi"* ]]
  local name
  for name in sm_90 sm_90a gh200; do
    attune explain --problem $p --arch $name --json
    expect 0
    json 'o["template"] == "prefill_sm90" and o["arch"] == "sm_90a" and o["rung"] == "default_config"'
  done
  attune explain --problem $p --arch a100 --json
  json 'o["template"] == "prefill_sm80" and o["arch"] == "sm_80"'
  attune explain "$models/Gemma-2-9B" --arch l4
  expect 0
  [[ $output == *"prefill_sm8"* ]]
  attune explain --problem $p --arch znver4
  refused 1 'arch is "znver4"'
  attune explain --problem $p --arch cpu:znver4
  refused 1 "--arch is cpu:znver4; must be the arch of a GPU"
}

@test "--arch takes names of GPUs: those of one arch have their own limits, and similar names are suggested" {
  local p=dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal gpu
  attune explain --problem $p --arch l4
  expect 0
  [[ $output == *" for sm_89"* && $output == *"NVIDIA L4, which is not here (58 multi"* ]]
  attune explain --problem $p --arch l40s
  [[ $output == *" for sm_89"* && $output == *"NVIDIA L40S, which is not here (142 multi"* ]]
  for gpu in rtx4090 "RTX 4090" "NVIDIA GeForce RTX 4090"; do
    attune explain --problem $p --arch "$gpu"
    [[ $output == *" for sm_89"* && $output == *"RTX 4090, which is not here (128 multi"* ]]
  done
  attune explain --problem $p --arch a10
  [[ $output == *" for sm_86"* && $output == *"NVIDIA A10, which is not here (72 multi"* ]]
  attune explain --problem $p --arch l40z
  refused 1 'arch is "l40z"; must be sm_75 ... sm_121' "did you mean l40 or l40s?"
  attune explain --problem $p --arch rtx4091
  refused 1 'arch is "rtx4091"' "rtx4090"
  attune emit --problem $p --arch sm90
  refused 1 'arch is "sm90"' "sm_90"
}

@test "options of a model together with --problem" {
  attune explain --target cpu --problem $problem --seqlen 99
  refused 1 "--seqlen is given without MODEL"
}

@test "a damaged image of a bundle is seen: in the lines, in the JSON, on stderr" {
  tuned
  attune export "$dir/kernels"
  expect 0
  printf x >>"$(ls "$dir"/kernels/*.o)"
  export ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels
  attune explain --target cpu --problem $problem
  expect 0
  [[ $output == *"SHA-256 differs"* && $output == *"bundle     $dir/kernels"* ]]
  [ "$(grep -c "SHA-256 differs" "$dir/errors")" -eq 1 ]
  attune explain --target cpu --problem $problem --json
  json 'any("SHA-256 differs" in w for w in o["warnings"]) and o["rung"] == "exact" and not o["compiled"]'
  ATTUNE_NO_JIT=1 attune explain --target cpu --problem $problem
  expect 4
  [[ ${errors##*$'\n'} == *"SHA-256 differs"* ]]
}

@test "a store that is not a database is reported" {
  need_cpu_target
  mkdir -p -m 700 "${ATTUNE_STORE%/*}"
  echo "no database" >"$ATTUNE_STORE"
  chmod 600 "$ATTUNE_STORE"
  attune explain --target cpu --problem $problem
  expect 0
  [[ $output == *"warning    "*"$ATTUNE_STORE"* ]]
  [ "$(grep -c "$ATTUNE_STORE" "$dir/errors")" -eq 1 ]
  ATTUNE_LOG=error attune explain --target cpu --problem $problem
  expect 0
  [ -z "$errors" ]
}

@test "a problem that nothing serves here" {
  need_cpu_target
  attune explain --target cpu --problem dtype=e5m2,head_dim=64,heads=4,seqlen=64
  refused 2 "dtype_q is e5m2" e4m3
  attune explain --target cpu --problem dtype=fp32,head_dim=64,heads=4,seqlen_q=1,seqlen_kv=2100000000,window=2000000000:-
  refused 2 "window_left is 2000000000"
}

@test "a problem without its length is refused, not taken as empty" {
  attune explain --target cpu --problem dtype=fp32,head_dim=64,heads=4
  refused 1 "no seqlen_q" "seqlen=N"
  attune explain --target cpu --problem dtype=fp32,head_dim=64,head_dim=32,heads=4,seqlen=8
  refused 1 "head_dim is in the problem twice"
}

@test "another form of the tuned problem finds its winner and explains it" {
  tuned
  local asked=${problem/causal_bottom_right/causal_top_left}
  attune explain --target cpu --problem $asked,window=2000000000:-
  expect 0
  [[ $output == *"exact"* && $output == *"the same   "*mask=causal_bottom_right* ]]
  attune explain --target cpu --problem $asked --json
  json 'o["rung"] == "exact" and "causal_top_left" in o["problem"] and "causal_bottom_right" in o["same_as"]'
}

@test "a winner tuned with another thread count serves, and explain says so" {
  tuned
  local cores
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)  # which nproc would count by; attune does not
  local threads=$((cores + 1))
  attune explain --target cpu:$threads --problem $problem --json
  expect 0
  json 'o["rung"] == "nearest" and "tuned for '$cores' threads, this is '$threads'" in o["why"]'
  json 'o["expected_time_s"] is None'
  attune explain --target cpu:$threads --problem $problem --policy strict
  refused 2 "tuned for $cores thread" "this is $threads: this shape, which policy nearest takes"
  attune db ls --json
  json 'o["winners"][0]["threads"] == '$cores
}

@test "unknown policy" {
  attune explain --target cpu --problem $problem --policy fastest
  refused 1 --policy fastest
}

@test "a newer store is read but said so" {
  tuned
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("pragma user_version = 9999")
connection.commit()
END
  attune explain --target cpu --problem $problem
  expect 0
  attune tune --target cpu --problem $problem
  refused 5 9999
}

@test "a model: every problem by kind of layer, with its rung" {
  need_cpu_target
  attune explain "$models/Gemma-2-9B" --target cpu --dtype fp32 --seqlen 64
  expect 0
  [[ $output == *"causal, window 4096: 21 layers"* && $output == *"default_config, prefill_cpu"* ]]
  [[ $output == *"window 4095:- softcap=50"* && $output != *"not supported"* ]]
  attune explain "$models/Gemma-2-9B" --target cpu --dtype fp32 --seqlen 64 --json
  json 'len(o["problems"]) == 2 and all(p["rung"] == "default_config" for p in o["problems"])'
  json 'o["layer_kinds"][0]["not_supported"] == [] and o["notes"] == []'
  attune explain "$models/Gemma-2-9B" --target cpu --problem $problem
  refused 1 MODEL --problem
  attune explain --target cpu
  refused 1 MODEL --problem
}

@test "tuned: the runner-up with its distance, and the work a second" {
  tuned
  attune explain --target cpu --problem $problem --json
  expect 0
  json 'o["runner_up"]["config"] != o["config"] and o["runner_up"]["distance"] > -1 and o["nearest_key"] is None'
  json 'o["roofline"]["flops"] > 0 and o["roofline"]["share"] is None and o["occupancy"] is None'
  attune explain --target cpu --problem $problem
  [[ $output == *"runner-up  "*" %: prefill_cpu block_m="* && $output == *"GFLOP/s"*"the peak of this device"* ]]
}

@test "a noisy time is marked, hands out no expectation, and a faster runner-up is explained" {
  tuned
  spread 0.5 "$ATTUNE_STORE"
  "${PYTHON:-python3}" -c 'import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as store:
    store.execute("UPDATE trial SET median_us = median_us / 10 WHERE config <> (SELECT config FROM winner)")
    store.execute("UPDATE winner SET why = ?", ("tie of 4, default kept",))' "$ATTUNE_STORE"
  attune explain --target cpu --problem $problem --json
  expect 0
  json 'o["winner"]["tuned"]["noisy"] and o["winner"]["default"]["noisy"]'
  json 'o["expected_time_s"] is None and o["roofline"] is None and o["rung"] == "exact"'
  json 'o["runner_up"]["distance"] < 0 and o["runner_up"]["why_not"] == "tie of 4, default kept"'
  attune explain --target cpu --problem $problem
  [[ $output == *"timing     "*", noisy)"*"measures it anew"* ]]
  [[ $output == *"runner-up  "*"its median is lower, but it does not win: tie of 4, default kept"* ]]
  attune db show --problem $problem
  [[ $output == *" .. "*" noisy"* ]]
  attune db show --problem $problem --json
  json 'all(one["timing"]["noisy"] for one in o["trials"] if one["is_winner"])'
}

@test "a miss: the nearest tuned key, and each field that differs" {
  tuned
  attune explain --target cpu --problem ${problem/head_dim=64/head_dim=128} --json
  expect 0
  json 'o["rung"] == "default_config" and o["nearest_key"]["differs"] == ["head_dim is 64, here 128"] and o["runner_up"] is None'
  attune explain --target cpu:3 --problem ${problem/head_dim=64/head_dim=128}
  [[ $output == *"nearest    "*"head_dim=64"* && $output == *"differs    head_dim is 64, here 128"* && $output == *"differs    the device is "* ]]
}

@test "a missing --store is reported, and not created" {
  need_cpu_target
  for command in "explain" "check" "bench --time 0.05 --no-standard"; do
    attune $command --target cpu --problem $problem --store "$dir/missing.db"
    expect 0
    [[ $errors == *"there is no store at $dir/missing.db, so no kernel counts as tuned"* ]]
    [ ! -e "$dir/missing.db" ]
  done
}

@test "a missing site store is reported" {
  need_cpu_target
  ATTUNE_SITE_STORES=$dir/nowhere/store.db attune explain --target cpu --problem $problem
  expect 0
  [[ $errors == *"AT102: "*"ATTUNE_SITE_STORES or the program names the store $dir/nowhere/store.db, but there is none"* ]]
  ATTUNE_SITE_STORES= attune explain --target cpu --problem $problem
  [[ $errors != *AT102* ]]
}
