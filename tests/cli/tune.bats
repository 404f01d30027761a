#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune tune`: finds and stores a winner, resumes, keeps its budget and what was measured; refuses nonsense.
load contract

quick() { attune tune --target cpu --effort quick "$@"; }

@test "tune stores a winner that is never slower than the default" {
  need_cpu_target
  quick --problem $problem --budget 120 --json
  expect 0
  json 'o["schema"] == "attune.tune/1" and o["stored"] and len(o["shapes"]) == 1'
  json '0 < o["shapes"][0]["winner"]["tuned"]["time_s"] <= o["shapes"][0]["winner"]["default"]["hi_s"]'
  json 'o["shapes"][0]["complete"] and o["shapes"][0]["measured"] > 3'
  json 'o["shapes"][0]["winner"]["created"].startswith("20")'
  [ "$(stat -c %a "$ATTUNE_STORE")" = 600 ]
}

@test "without a terminal tune prints one line per finished shape" {
  need_cpu_target
  quick --problem $problem --seqlen 16,24 --budget 60 --json
  expect 0
  [ "$(grep -vc "this machine is busy" "$dir/errors")" -eq 2 ]
  [[ $errors == *"1/2 "*" tried"*"2/2 "*" tried"* ]]
  spread 0.02 "$ATTUNE_STORE" && quick --problem $problem --seqlen 16,24 --budget 60 --json
  [[ $errors == *"1/2 "*"tuned before"*"2/2 "*"tuned before"* ]]
}

@test "the default budget ends a tune with exit code 0, and the help states it" {
  need_cpu_target
  quick --problem ${problem/seqlen=128/seqlen=1024} --json
  expect 0
  json 'o["shapes"][0]["winner"] and o["budget_s"] == 10'
  attune tune --help
  [[ $(tr -s ' \n' ' ' <<<"$output") == *"quick 10 s, normal 11 s"*"7 s"*"exhaustive 3600 s"* ]]
}

@test "the same command goes on until the search is done, then says tuned before" {
  need_cpu_target
  local last=0 now tries=0
  until quick --problem $problem --budget 4 --json && json 'o["shapes"][0]["already_tuned"] or o["shapes"][0]["complete"] and o["shapes"][0]["noisy"]'; do
    json 'o["shapes"][0]["winner"] and (o["shapes"][0]["complete"] or "budget" in o["shapes"][0]["note"])'
    json '(0 if o["shapes"][0]["complete"] else 6) == '$status
    now=$(grep -o '"trials": [0-9]*' <<<"$output" | grep -o '[0-9]*')
    [ "$now" -ge "$last" ]
    last=$now
    [ $((tries += 1)) -lt 40 ]
  done
  expect 0
  json 'o["shapes"][0]["trials"] == '$last' or o["shapes"][0]["noisy"]'
}

@test "a second tune finds it done" {
  need_cpu_target
  quick --problem $problem --budget 120
  expect 0
  spread 0.02 "$ATTUNE_STORE" && quick --problem $problem --json
  expect 0
  json 'o["shapes"][0]["already_tuned"] and o["shapes"][0]["measured"] == 0 and not o["shapes"][0]["noisy"]'
}

@test "tune --dtype e4m3 --accuracy fast tunes that mode alone" {
  need_cpu_target
  quick --problem $problem --dtype e4m3 --accuracy fast --budget 60 --json
  expect 0
  json '"accuracy=fast" in o["shapes"][0]["problem"] and o["stored"]'
  attune explain --target cpu --problem dtype=e4m3,head_dim=64,heads=4/2,seqlen=128,mask=causal_bottom_right,accuracy=fast --json
  json 'o["rung"] == "exact"'
  attune explain --target cpu --problem dtype=e4m3,head_dim=64,heads=4/2,seqlen=128,mask=causal_bottom_right --json
  json 'o["rung"] == "default_config"'
}

@test "options of 8-bit operands without any" {
  attune tune --target cpu --problem $problem --dtype bf16 --accuracy fast
  refused 1 --accuracy e4m3
  attune tune --target cpu --problem $problem --dtype e4m3 --accuracy exact
  refused 1 '"exact"' "accurate or fast"
}

# num_trials: prints the trials that `attune db stats` counts, or 0 before there is a store.
num_trials() { { "$ATTUNE" db stats --json 2>/dev/null || true; } | grep -o '"trials": [0-9]*' | grep -o '[0-9]*' || echo 0; }

# start_tune ARGUMENT...: starts a long tune in the background and returns when it measures. $pid is its process.
# Its types are several: where kernels were compiled before, a short search ends within seconds.
start_tune() {
  local before tries=0
  before=$(num_trials)
  "$ATTUNE" tune --target cpu --effort exhaustive --problem $problem --seqlen 256 --dtype fp32,bf16,fp16 "$@" >"$dir/out" 2>"$dir/errors" &
  pid=$!
  until [ "$(num_trials)" -gt "$((before + 2))" ]; do
    sleep 0.2
    [ $((tries += 1)) -lt 300 ]
  done
}

# A failed test leaves no tune behind, not even a stopped one.
teardown() { [ -z "${pid:-}" ] || kill -KILL $pid 2>/dev/null || true; }

# says FILE TEXT: waits until the file has the text.
says() {
  local tries=0
  until grep -qF "$2" "$1" 2>/dev/null; do
    sleep 0.1
    [ $((tries += 1)) -lt 300 ]
  done
}

# ended: waits for $pid; $status, $output and $errors as after attune.
ended() {
  status=0
  wait $pid || status=$?
  output=$(<"$dir/out")
  errors=$(<"$dir/errors")
}

@test "Ctrl-C keeps everything measured, and the next tune goes on from there" {
  need_cpu_target
  start_tune --json
  kill -INT $pid
  ended
  expect 130
  json 'o["interrupted"] and o["shapes"][0]["measured"] > 0'
  attune db stats --json
  json 'o["trials"] > 2'
  quick --problem ${problem/seqlen=128/seqlen=256} --budget 4 --json
  json 'o["shapes"][0]["reused"] > 0'
}

@test "SIGTERM and a hang-up keep everything measured, as Ctrl-C does" {
  need_cpu_target
  for signal in TERM HUP; do
    start_tune --json
    kill -$signal $pid
    ended
    expect $((128 + $(kill -l $signal)))
    json 'o["interrupted"] and o["stored"] and sum(shape["measured"] for shape in o["shapes"]) > 0'
  done
}

@test "a worker that hangs does not outlast the budget by more than the stated grace" {
  need_cpu_target
  start_tune --budget 10 --json
  kill -STOP "$(pgrep -P $pid)"
  SECONDS=0
  ended
  within 25
  [ -z "${ATTUNE_TEST_TIMING:-}" ] || json 'o["time_s"] < 10 + 5 + 3'
  ! pgrep -P $pid
}

@test "Ctrl-C does not wait for a worker that hangs" {
  need_cpu_target
  start_tune --json
  kill -STOP "$(pgrep -P $pid)"
  SECONDS=0
  kill -INT $pid
  ended
  within 10
  expect 130
  json 'o["interrupted"]'
}

@test "two tunes on one device do not measure at the same time" {
  need_cpu_target
  start_tune --json
  local first=$pid
  kill -STOP $first  # it keeps the device until it is killed, however fast or busy this machine is
  "$ATTUNE" tune --target cpu --effort quick --budget 300 --problem $problem --json >"$dir/second" 2>"$dir/said" &
  local second=$!
  pid+=" $second"
  says "$dir/said" "waiting for pid"
  [[ $(<"$dir/said") == *"waiting for pid $first ("*"tune --target cpu"*") of user "*" which measures on cpu"* ]]
  sleep 1
  [ ! -s "$dir/second" ]
  [ -z "$(pgrep -P $second)" ]
  kill -INT $second
  status=0
  wait $second || status=$?
  output=$(<"$dir/second")
  expect 130
  json 'o["interrupted"] and o["shapes"] == []'
  [ "$(grep -vc "this machine is busy" "$dir/said")" -eq 1 ]
  "$ATTUNE" bench --target cpu --problem $problem --time 0.1 --no-standard --json >"$dir/second" 2>"$dir/said" &
  second=$!
  says "$dir/said" "waiting for pid $first"
  kill -KILL $first
  wait $second
  output=$(<"$dir/second")
  json 'len(o["rows"]) == 1'
}

@test "nothing that could be measured is exit code 4" {
  need_cpu_target
  [ "$(id -u)" -eq 0 ] || skip "only root can become a user without processes"
  command -v setpriv >/dev/null || skip "setpriv is not here"
  local own
  own=$(mktemp -d)
  chown 61234 "$own"
  status=0
  output=$(setpriv --reuid 61234 --clear-groups prlimit --nproc=1 env ATTUNE_LOCKS="$own" ATTUNE_STORE="$own/store.db" \
    "$ATTUNE" tune --target cpu:1 --problem $problem --budget 5 --json 2>"$dir/errors") || status=$?
  errors=$(<"$dir/errors")
  rm -r "$own"
  expect 4
  json '"cannot start" in o["shapes"][0]["note"] and o["shapes"][0]["trials"] == 0'
}

@test "a budget that ends early gives exit code 6 and is kept" {
  need_cpu_target
  SECONDS=0
  attune tune --target cpu --effort exhaustive --problem ${problem/seqlen=128/seqlen=2048} --budget 3 --json
  expect 6
  within 17
  json 'o["budget_s"] == 3 and not o["shapes"][0]["complete"]'
}

@test "a model's config.json with lists of lengths, batches and types" {
  need_cpu_target
  quick "$models/Llama-3.1-8B/config.json" --seqlen 64,96 --batch 1 --dtype fp32 --budget 120 --json
  [ "$status" -eq 0 ] || expect 6
  json 'len(o["shapes"]) == 2 and all("heads=32/8" in s["problem"] and "head_dim=128" in s["problem"] for s in o["shapes"])'
}

@test "--dry-run shows a model's problems by kind of layer and measures nothing" {
  attune tune "$models/Gemma-2-9B" --target cuda --dry-run
  expect 0
  [[ $output == *"Gemma-2-9B: 14 problems"* && $output == *"causal, window 4096: 21 layers"* ]]
  [[ $output == *"bf16 d256 16/8 heads, 1 x 512 causal window 4095:- softcap=50"* ]]
  [ "$(awk '{ print length }' <<<"$output" | sort -n | tail -1)" -le 80 ]
  [ ! -e "$ATTUNE_STORE" ]
  attune tune "$models/Gemma-2-9B" --target cuda --dry-run --json
  expect 0
  json 'o["dry_run"] and len(o["problems"]) == 14 and len(o["layer_kinds"]) == 2'
  json 'o["layer_kinds"][1]["layers"] == 21 and len(o["notes"]) == 1 and "--serving" in o["notes"][0]'
  json 'all("softcap=50" in p for p in o["layer_kinds"][1]["problems"])'
}

@test "--serving shows what an engine calls, and how many shapes that are" {
  local llama=$models/Llama-3.1-8B/config.json
  attune tune "$llama" --serving --target cuda --dry-run
  expect 0
  [[ $output == *"attention_kvcache bf16 d128 32/8 heads, 8 x 1x8192 causal pages of 16"* ]]
  [[ $output == *"append_kv bf16 d128 32/8 heads"*"rotary"* && $errors != *"--serving tunes those"* ]]
  [ "$(awk '{ print length }' <<<"$output" | sort -n | tail -1)" -le 100 ]
  attune tune "$llama" --serving --target cuda --dry-run --json --kv-dtype e4m3 --batch 4 --kv-lengths 512,2048 --page-size 32
  expect 0
  json 'o["num_shapes"] == len(o["problems"]) and o["budget_s"] > 0'
  json 'sum("seqlen_q=1," in p and "attention_kvcache" in p and "packed_q" not in p for p in o["problems"]) == 2'
  json 'all("dtype_kv=e4m3" in p and "page_size=32" in p for p in o["problems"] if "packed_kv" not in p)'
  attune tune "$llama" --serving --target cuda --dry-run --json --kv-dtype int4 --batch 4 --kv-lengths 512
  expect 0
  json 'any("dtype_kv=int4" in p and "kv_factors=columns32" in p and "op=append_kv" in p for p in o["problems"])'
  attune tune "$llama" --target cuda --dry-run
  [[ $output == *"8 shapes to tune: up to 60 s with --effort normal"* ]]
}

@test "--serving and its options where they do not fit" {
  local llama=$models/Llama-3.1-8B/config.json
  attune tune "$models/BERT-base" --serving --target cuda --dry-run
  refused 1 --serving "has no decoder whose caches"
  attune tune "$llama" --kv-lengths 1024 --target cuda --dry-run
  refused 1 "--kv-lengths is given without --serving"
  attune tune "$llama" --serving --kv-lengths 0 --target cuda --dry-run
  refused 1 '--kv-lengths is "0"'
  attune tune "$llama" --serving --seqlen 512 --target cuda --dry-run
  refused 1 "--seqlen is given with --serving; must be --kv-lengths and --max-batch-tokens"
  attune tune "$llama" --serving --kv-dtype nonsense --target cuda --dry-run
  refused 1 '--kv-dtype: dtype is "nonsense"'
  attune tune "$llama" --serving --tensor-parallel 3 --target cuda --dry-run
  refused 1 "--tensor-parallel is 3" "32"
  attune tune "$llama" --serving --training --target cuda --dry-run
  refused 1 "--serving and --training are given"
  attune tune --problem $problem --serving --target cpu --dry-run
  refused 1 "--serving is given without MODEL"
}

@test "--serving tunes on a CPU" {
  need_cpu_target
  printf '{"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "rope_theta": 1e4}' >"$dir/config.json"
  quick "$dir/config.json" --serving --batch 1 --kv-lengths 64 --max-batch-tokens 16 --dtype fp32 --budget 200 --json
  [ "$status" -eq 0 ] || expect 6
  json 'len(o["shapes"]) >= 6 and all(s["winner"] for s in o["shapes"])'
  attune explain --target cpu --problem op=attention_kvcache,dtype=fp32,head_dim=32,heads=4/2,batch=1,seqlen_q=1,seqlen_kv=64,page_size=16 --json
  json 'o["rung"] == "exact"'
}

@test "unsupported problems are reported in a tune's text and --json" {
  need_cpu_target
  mkdir "$dir/esm"
  echo '{"model_type": "esm", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "position_embedding_type": "relative_key"}' >"$dir/esm/config.json"
  attune tune "$dir/esm" --target cuda --dry-run
  expect 0
  [[ $output == *"not supported, tuned without it: positions relative_key"* && $errors == *"both directions: positions relative_key"* ]]
  quick "$dir/esm" --seqlen 64 --batch 1 --dtype fp32 --budget 60 --json
  [ "$status" -eq 0 ] || expect 6
  json 'o["notes"] and "relative_key" in o["layer_kinds"][0]["not_supported"][0]'
}

@test "--padded tunes a model's encoders for batches with padding" {
  attune tune "$models/BERT-base" --target cuda --dry-run --padded
  expect 0
  [[ $output == *"x 512 key_lengths=1"* && $errors != *padded* ]]
  attune tune "$models/BERT-base" --target cuda --dry-run
  [[ $output != *key_lengths* && $errors == *"--padded tunes for batches with padding"* ]]
}

@test "a model by its name in the Hugging Face cache" {
  local snapshot=$dir/hub/models--meta-llama--Llama-3.1-8B/snapshots/abc
  mkdir -p "$snapshot" "$dir/hub/models--meta-llama--Llama-3.1-8B/refs"
  cp "$models/Llama-3.1-8B/config.json" "$snapshot"
  printf abc >"$dir/hub/models--meta-llama--Llama-3.1-8B/refs/main"
  HF_HUB_CACHE=$dir/hub attune tune meta-llama/Llama-3.1-8B --target cuda --dry-run
  expect 0
  [[ $output == "Llama-3.1-8B: 8 problems"* ]]
  HF_HUB_CACHE=$dir/hub attune tune meta-llama/Llama-3.1-70B --target cuda --dry-run
  refused 5 meta-llama/Llama-3.1-70B "is not in the Hugging Face cache" "attune downloads nothing"
}

@test "an unknown model type" {
  printf '{"model_type": "new", "hidden_size": 512, "num_attention_heads": 8, "alibi_slopes": true}' >"$dir/config.json"
  attune tune "$dir" --target cpu --dry-run
  refused 1 'model_type is "new"' '"alibi_slopes"' "give --problem instead" --as
  attune tune "$dir" --target cpu --dry-run --as llama
  expect 0
  [[ $errors == *'"alibi_slopes" is not known for this type of model, so attune did not read it'* ]]
}

@test "a config.json that nests deeply or holds a number beyond doubles" {
  "${PYTHON:-python3}" -c 'print("{\"model_type\": \"llama\", \"num_attention_heads\": " + "[" * 100000 + "]" * 100000 + "}")' >"$dir/config.json"
  attune tune "$dir/config.json" --target cpu
  refused 1 "JSON nests deeper than 64 levels"
  printf '{"model_type": "llama", "num_attention_heads": 1e400}' >"$dir/config.json"
  attune tune "$dir/config.json" --target cpu
  refused 1 1e400
}

@test "no problem at all" {
  attune tune --target cpu
  refused 1 --problem --captured
}

@test "a missing config.json" {
  attune tune "$dir/none/config.json" --target cpu
  refused 5 "$dir/none/config.json"
}

@test "a malformed config.json" {
  printf '{"num_attention_heads": 32,\n "hidden_size": }' >"$dir/config.json"
  attune tune "$dir/config.json" --target cpu
  refused 1 "$dir/config.json"
}

@test "a config.json without attention" {
  printf '{"model_type": "llama"}' >"$dir/config.json"
  attune tune "$dir/config.json" --target cpu
  refused 1 config.json
}

@test "head dim 100" {
  attune tune --target cpu --problem dtype=fp32,head_dim=100,heads=4,seqlen=64
  refused 1 head_dim 100 "a multiple of 8"
}

@test "heads that do not divide" {
  attune tune --target cpu --problem dtype=fp32,head_dim=64,heads=7/2,seqlen=64
  refused 1 7 2
}

@test "a negative length in a list" {
  attune tune --target cpu --problem $problem --seqlen 128,-5
  refused 1 --seqlen -5
}

@test "a wrong dtype in a list" {
  attune tune --target cpu --problem $problem --dtype fp32,int4
  refused 1 int4
}

@test "--trace reports when kernels were compiled, checked and timed" {
  need_cpu_target
  quick --problem $problem --budget 60 --trace "$dir/trace.json" --json
  expect 0
  python3 -c 'import json, sys
spans = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
assert {e["cat"] for e in spans} == {"shape", "open", "compile", "check", "time", "final"} and all(e["dur"] >= 0 for e in spans), spans
assert any("block_m=" in e["name"] and e["args"]["template"] == "prefill_cpu" for e in spans if e["cat"] == "compile")' "$dir/trace.json"
  rm "$ATTUNE_STORE"
  quick --problem $problem --trace "$dir/trace.json/none"  # refused before anything is measured
  refused 5 "trace.json/none"
  attune db stats --json && json 'o["trials"] == 0'
}

@test "an unknown effort" {
  attune tune --target cpu --problem $problem --effort huge
  refused 1 --effort huge quick
}

@test "a budget that is not a time" {
  attune tune --target cpu --problem $problem --budget soon
  refused 1 --budget soon 10m
}

@test "an unknown target" {
  attune tune --target tpu --problem $problem
  refused 1 tpu cpu
}

@test "a GPU target on a machine without GPUs" {
  has_gpu && skip "a GPU is here"
  attune tune --target cuda --problem ${problem/fp32/bf16}
  refused 4 libcuda
}

@test "a store that cannot be made" {
  need_cpu_target
  attune tune --target cpu --problem $problem --store /proc/attune/store.db
  refused 5 /proc/attune
}

@test "a store that others may write" {
  need_cpu_target
  mkdir -p "$dir/store"
  touch "$ATTUNE_STORE"
  chmod 666 "$ATTUNE_STORE"
  attune tune --target cpu --problem $problem
  refused 5 "$ATTUNE_STORE"
}

@test "--verify repeats the finals and reports flips and regret" {
  need_cpu_target
  quick --problem $problem --budget 120 --verify 2 --json
  expect 0
  json 'len(o["verify"]) == 1 and o["verify"][0]["repeats"] == 2'
  json '0 <= o["verify"][0]["flips"] <= 2 and 0 <= o["verify"][0]["mean_regret"] <= o["verify"][0]["max_regret"] < 10'
}

@test "more compilers than any machine runs" {
  attune tune --target cpu --problem $problem --jobs 100000
  refused 1 --jobs 100000 1024
}

@test "more threads than any CPU target takes" {
  attune tune --target cpu:40000 --problem $problem
  refused 1 cpu:40000 1024
}

@test "a negative --verify" {
  attune tune --target cpu --problem $problem --verify -1
  refused 1 --verify -1
}
