#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune models`: lists the known model types, how each is read, and what is not supported of it.
load contract

@test "models lists types, how they are read and what is left out" {
  attune models
  expect 0
  [[ $output == *"read as"*"not supported"* ]]
  [[ $output == *llama*decoder* && $output == *FluxTransformer2DModel* ]]
  [ "$(grep -c '^mamba2 .*state-space layers and no attention' <<<"$output")" -eq 1 ]
}

@test "models --json has each type once, and tune reads each that it calls tuned" {
  attune models --json
  expect 0
  json 'o["schema"] == "attune.models/1" and len(o["models"]) > 400'
  json 'len({m["type"] for m in o["models"]}) == len(o["models"])'
  json '[m["reading"] for m in o["models"] if m["type"] == "whisper"] == ["sound and decoder"]'
  json '[m["defaults"]["num_attention_heads"] for m in o["models"] if m["type"] == "llama"] == [32]'
  json 'all(m["not_supported"] for m in o["models"] if not m["tuned"])'
  echo '{"model_type": "rwkv", "hidden_size": 4096}' >"$dir/config.json"
  attune tune "$dir/config.json" --target cpu --dry-run
  refused 1 'model_type is "rwkv": it has recurrent layers and no attention, which attune does not tune'
}
