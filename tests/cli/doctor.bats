#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune doctor`: never crashes, says what is missing, what that costs and how to get it.
load contract

@test "doctor names driver, NVRTC, CPU target and store" {
  attune doctor
  [ "$status" -eq 0 ] || [ "$status" -eq 4 ]
  for name in driver nvrtc cpu_target store; do [[ $output == *" $name "* ]]; done
}

@test "doctor says how bf16 is multiplied on this CPU" {
  attune doctor
  if grep -qw amx_bf16 /proc/cpuinfo; then want='or by AMX if that won a tuning'
  elif grep -qw avx512_bf16 /proc/cpuinfo; then want='or by AVX512_BF16 if that won a tuning'
  else want='bf16 is multiplied as fp32;'
  fi
  [[ $output == *"cpu_target"*"$want"* ]]
}

@test "doctor --json agrees with its exit code" {
  attune doctor --json
  json 'o["schema"] == "attune.doctor/1" and o["ready"] == ('"$status"' == 0)'
  json 'o["store_path"].endswith("store/store.db") and not o["store_found"]'
}

@test "on a GPU of a kind that attune never ran on, doctor says so" {
  for arch in "7 5" "8 6" "12 0"; do
    pretend_gpu $arch
    attune doctor
    [[ $output == *"found    driver"*"Pretended GPU (sm_${arch/ /})"*"warning: attune has run on Hopper GPUs only"*"arch sm_${arch/ /}"* ]]
  done
  attune doctor --json
  json 'any("never on a GPU of arch sm_120" in w for w in o["warnings"])'
  pretend_gpu 9 0
  attune doctor
  [[ $output == *"found    driver"*"Pretended GPU (sm_90)"* && $output != *"Hopper GPUs only"* ]]
}

@test "doctor does not make the store" {
  attune doctor
  [ ! -e "$ATTUNE_STORE" ]
}

@test "an empty ATTUNE_STORE means no store, and doctor reports nothing missing" {
  ATTUNE_STORE= HOME=$dir attune doctor
  [[ $output == *"found    store       none, because ATTUNE_STORE is empty"* ]]
  ATTUNE_STORE= HOME=$dir attune tune --target cpu --problem $problem
  refused 5 "ATTUNE_STORE is empty" --store
  [ ! -e "$dir/.cache" ]
}

@test "without NVRTC: what it costs and how to get it" {
  ATTUNE_NVRTC=$dir/none.so attune doctor --json
  json 'not o["nvrtc_found"] or "none.so" not in o["nvrtc"]'
  ATTUNE_NVRTC=$dir/none.so attune doctor
  [[ $output == *"found    nvrtc"* || $output == *"pip install nvidia-cuda-nvrtc"* ]]
}

@test "an NVRTC that was named and is not used" {
  export ATTUNE_NVRTC=$dir/none.so
  attune doctor --json
  json 'any(v["name"] == "ATTUNE_NVRTC" and v["state"] == "passed over" and "none.so" in v["detail"] for v in o["environment"])'
  json 'any("none.so, which cannot be used" in w and ("is used instead" in w or "no other" in w) for w in o["warnings"])'
  attune doctor
  [[ $output == *"ATTUNE_NVRTC=$dir/none.so"*"passed over"* ]]
}

@test "an existing store is found" {
  tuned
  attune doctor --json
  json 'o["store_found"] and not any("SHA-256" in w for w in o["warnings"])'
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("update image set bytes = x'00'")
connection.commit()
END
  attune doctor
  [[ $output == *"found    store"*"warning: "*"SHA-256"* ]]
}

@test "variables in force, and their resolved values" {
  tuned
  attune export "$dir/kernels"
  expect 0
  export ATTUNE_BUNDLE=$dir/kernels ATTUNE_POLICY=nearest ATTUNE_NO_JIT= ATTUNE_POLICIES=strict
  attune doctor --json
  json 'o["ready"] and {v["name"]: v["state"] for v in o["environment"]
    if v["name"] in ("ATTUNE_STORE", "ATTUNE_BUNDLE", "ATTUNE_POLICY", "ATTUNE_NO_JIT", "ATTUNE_POLICIES")} == {
    "ATTUNE_STORE": "in force", "ATTUNE_BUNDLE": "in force", "ATTUNE_POLICY": "in force", "ATTUNE_NO_JIT": "passed over",
    "ATTUNE_POLICIES": "passed over"}'
  json '"1 images for 1 tuned shapes" in [v["detail"] for v in o["environment"] if v["name"] == "ATTUNE_BUNDLE"][0]'
  printf x >>"$(ls "$dir"/kernels/*.o)"
  attune doctor
  [[ $output == *"SHA-256 differs"* && $output == *"ATTUNE_POLICIES=strict"*"does not know"* ]]
}

@test "a variable that programs refuse makes doctor say so" {
  for setting in ATTUNE_POLICY=tune_on_miss ATTUNE_NO_JIT=yes ATTUNE_LOG=loud ATTUNE_TRUST=/ "ATTUNE_BUNDLE=$dir/nowhere"; do
    export "${setting?}"
    attune doctor --json
    expect 1
    json "not o['ready'] and any(v['name'] == '${setting%%=*}' and v['state'] == 'refused' for v in o['environment'])"
    unset "${setting%%=*}"
  done
}

@test "folders that are trusted" {
  mkdir -p "$dir/team"
  ATTUNE_TRUST=$dir/team:$dir/none attune doctor --json
  json 'any(v["name"] == "ATTUNE_TRUST" and v["state"] == "in force" and "team: stores and bundles" in v["detail"] and "none: no such folder" in v["detail"]
    for v in o["environment"])'
}

@test "without a driver: doctor says so and costs nothing else" {
  has_gpu && skip "a GPU is here"
  attune doctor
  [[ $output == *"missing  driver"*libcuda* && $output == *"without it: no kernel runs on a GPU"* ]]
}

@test "a store directory that cannot be made" {
  attune doctor --store /proc/attune/store.db
  expect 5
  [[ $output == *"missing  store"* && $output == *ATTUNE_STORE* ]]
}

@test "a store that is not a database" {
  mkdir -p "$dir/store"
  chmod 700 "$dir/store"
  head -c 5000 /dev/zero | tr '\0' x >"$ATTUNE_STORE"
  chmod 600 "$ATTUNE_STORE"
  attune doctor
  expect 5
  [[ $output == *"missing  store"*"$ATTUNE_STORE"* ]]
}

@test "the CPU target is found from any folder and through PATH" {
  need_cpu_target
  cd "$dir"
  PATH=${ATTUNE%/*}:$PATH
  ATTUNE=attune
  attune doctor --json
  json 'o["cpu_target_found"]'
}
