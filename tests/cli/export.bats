#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune export`: a folder that runs without compiler and store; tried with the runtime itself.
load contract

@test "export writes images and a manifest that names the tuned shapes" {
  tuned
  attune export "$dir/kernels" --json
  expect 0
  json 'o["kernels"] == 1 and o["tuned_shapes"] == 1 and o["image_bytes"] > 1000'
  "${PYTHON:-python3}" - "$dir/kernels" <<'END'
import hashlib, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
manifest = json.loads((folder / "manifest.json").read_text())
for kernel in manifest["kernels"]:
    assert hashlib.sha256((folder / kernel["file"]).read_bytes()).hexdigest() == kernel["sha256"]
    assert kernel["winners"]
END
}

@test "an exported folder serves without compiler and store" {
  tuned
  attune export "$dir/kernels"
  expect 0
  export ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels ATTUNE_NO_JIT=1
  attune bench --target cpu --problem $problem --no-standard --time 0.1 --json
  expect 0
  json 'o["rows"][0]["rung"] == "exact"'
}

@test "exporting into a bundle that was compiled keeps its other kernels" {
  tuned
  attune compile --arch cpu --problem ${problem/head_dim=64/head_dim=128} --out "$dir/kernels"
  expect 0
  attune export "$dir/kernels" --json
  expect 0
  json 'o["kernels"] == 1 and o["kept"] == 1'
  attune export "$dir/kernels" --json
  json 'o["kept"] == 1 and o["unnamed_files"] == 0'
}

@test "a bundle that others can write is refused" {
  tuned
  attune export "$dir/kernels"
  expect 0
  chmod 777 "$dir/kernels"
  ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels attune explain --target cpu --problem $problem
  [ "$status" -ne 0 ]
  [[ $errors == *"$dir/kernels has mode 0777, so others can write it"* ]]
}

@test "an altered image is refused" {
  tuned
  attune export "$dir/kernels"
  expect 0
  printf x >>"$(ls "$dir"/kernels/*.o)"
  ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels ATTUNE_NO_JIT=1 attune bench --target cpu --problem $problem --no-standard --time 0.1
  expect 4
}

@test "nothing tuned" {
  need_cpu_target
  attune compile --arch cpu --problem $problem
  attune export "$dir/kernels"
  refused 2 "attune tune"
  [ ! -e "$dir/kernels" ]
}

@test "no store" {
  attune export "$dir/kernels"
  refused 5 "$ATTUNE_STORE"
}

@test "a folder that holds other files" {
  tuned
  mkdir "$dir/kernels"
  echo precious >"$dir/kernels/notes.txt"
  attune export "$dir/kernels"
  refused 1 "$dir/kernels"
  grep -q precious "$dir/kernels/notes.txt"
}
