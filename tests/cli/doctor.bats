#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune doctor`: never crashes, says what is missing, what that costs and how to get it.
load contract

@test "doctor names driver, NVRTC, CPU target and store" {
  attune doctor
  [ "$status" -eq 0 ] || [ "$status" -eq 4 ]
  for name in driver nvrtc cpu_target store; do [[ $output == *" $name "* ]]; done
}

@test "doctor --json agrees with its exit code" {
  attune doctor --json
  json 'o["schema"] == "attune.doctor/1" and o["ready"] == ('"$status"' == 0)'
  json 'o["store_path"].endswith("store/store.db") and o["store_found"]'
}

@test "doctor does not make the store" {
  attune doctor
  [ ! -e "$ATTUNE_STORE" ]
}

@test "without NVRTC: what it costs and how to get it" {
  ATTUNE_NVRTC=$dir/none.so attune doctor --json
  json 'not o["nvrtc_found"] or "none.so" not in o["nvrtc"]'
  ATTUNE_NVRTC=$dir/none.so attune doctor
  [[ $output == *"found    nvrtc"* || $output == *"pip install nvidia-cuda-nvrtc"* ]]
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

@test "a store that is no database" {
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
