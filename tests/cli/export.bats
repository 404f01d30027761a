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

@test "a name that ends like a file's is a bundle's, an object's or refused" {
  tuned
  attune export "$dir/kernels.zip"
  refused 1 "the output is $dir/kernels.zip; must be NAME.attune, NAME.o or a folder"
  [ ! -e "$dir/kernels.zip" ]
  mkdir "$dir/kernels.d"
  for folder in kernels-0.3 kernels.d kernels.zip/; do
    attune export "$dir/$folder"
    expect 0
    [ -f "$dir/$folder/manifest.json" ]
  done
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

@test "one file serves as a folder does, with the same bytes each time" {
  tuned
  attune export "$dir/kernels.attune" --json
  expect 0
  json 'o["kernels"] == 1 and o["kept"] == 0'
  attune export "$dir/again.attune"
  expect 0
  cmp "$dir/kernels.attune" "$dir/again.attune"
  export ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels.attune ATTUNE_NO_JIT=1
  attune bench --target cpu --problem $problem --no-standard --time 0.1 --json
  expect 0
  json 'o["rows"][0]["rung"] == "exact"'
  truncate -s -1 "$dir/kernels.attune"
  attune explain --target cpu --problem $problem
  refused 5 "kernels.attune" "says that it has" "it was cut off"
  truncate -s 50 "$dir/kernels.attune"
  attune explain --target cpu --problem $problem
  refused 5 "kernels.attune" "it was cut off"
  ATTUNE_BUNDLE=$dir/nosuch.attune attune explain --target cpu --problem $problem
  refused 5 "nosuch.attune is named as a bundle, and there is no such file or folder"
}

@test "packed images: smaller, the same bytes each time, and they serve" {
  tuned
  attune export "$dir/plain.attune"
  attune export "$dir/kernels.attune" --zstd
  [[ $errors != *libzstd.so.1* ]] || skip "no libzstd here"
  expect 0
  attune export "$dir/again.attune" --zstd
  cmp "$dir/kernels.attune" "$dir/again.attune"
  [ "$(stat -c %s "$dir/kernels.attune")" -lt "$(stat -c %s "$dir/plain.attune")" ]
  attune export "$dir/folder" --zstd
  refused 1 "must be NAME.attune or NAME.o"
  export ATTUNE_STORE= ATTUNE_BUNDLE=$dir/kernels.attune ATTUNE_NO_JIT=1
  attune bench --target cpu --problem $problem --no-standard --time 0.1 --json
  expect 0
  json 'o["rows"][0]["rung"] == "exact"'
}

@test "only the requested problems are exported" {
  tuned
  attune export "$dir/a.attune" --only ${problem/seqlen=128/seqlen=4096} --json
  expect 0
  json 'o["kernels"] == 1'
  attune export "$dir/b.attune" --only ${problem/head_dim=64/head_dim=128}
  refused 2 "has no tuned kernel for --only ${problem/head_dim=64/head_dim=128} with these options"
  attune export "$dir/b.attune" --only $problem --only ${problem/heads=4/heads=8}
  refused 2 "has no tuned kernel for --only ${problem/heads=4/heads=8} with these options"
  attune export "$dir/b.attune" --only $problem --template none
  refused 2 '--template is "none", which neither this version of attune nor'
  attune export "$dir/b.attune" --only "$models/Llama-3.1-8B/config.json"
  [ "$status" -eq 2 ]
  attune export "$dir/b.attune" --only "$models/none.json"
  [ "$status" -eq 5 ] || [ "$status" -eq 1 ]
  [ ! -e "$dir/b.attune" ]
}

@test "only captured problems of a program are exported" {
  tuned
  ATTUNE_CAPTURE=$dir/asked.jsonl attune bench --target cpu --problem ${problem/seqlen=128/seqlen=64} --no-standard --time 0.1
  expect 0
  attune export "$dir/a.attune" --captured "$dir/asked.jsonl" --json
  expect 0
  json 'o["kernels"] == 1'
  sed -i 's/head_dim=64/head_dim=128/' "$dir/asked.jsonl"
  attune export "$dir/b.attune" --captured "$dir/asked.jsonl"
  refused 2 "has no tuned kernel for --captured $dir/asked.jsonl with these options"
  attune export "$dir/b.attune" --captured "$dir/asked.jsonl" --only $problem
  refused 2 "has no tuned kernel for --captured $dir/asked.jsonl with these options"
  attune export "$dir/b.attune" --captured "$dir/none.jsonl"
  refused 5 "none.jsonl"
}

@test "an object is linked into a C program that runs alone" {
  need_cpu_target
  command -v cc || skip "no C compiler here"
  cd "$dir"
  attune compile --arch cpu --problem dtype=fp32,head_dim=64,heads=4/2,seqlen=128 --out my_kernels.o
  expect 0
  cp my_kernels.o first.o
  attune compile --arch cpu --problem dtype=fp32,head_dim=64,heads=4/2,seqlen=128 --out my_kernels.o
  cmp my_kernels.o first.o
  lib=${ATTUNE%/bin/attune}/lib
  cc -std=c11 -Wall -Wextra -Werror -Wl,--fatal-warnings -I "$ATTUNE_SOURCE/runtime/include" -I . "$ATTUNE_SOURCE/examples/linked.c" \
    my_kernels.o -L "$lib" -lattune -lm -Wl,-rpath,"$lib" -o linked
  c++ -std=c++17 -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Werror -fsyntax-only -I "$ATTUNE_SOURCE/runtime/include" -x c++ my_kernels.h
  [ "$(nm -C my_kernels.o | awk '{print $3}' | tr '\n' ' ')" = "my_kernels my_kernels_bytes " ]
  rm my_kernels.o
  ATTUNE_STORE= ATTUNE_BUNDLE= HOME=$dir run ./linked
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"from linked kernels, greatest error"* ]]
}

@test "an object of cubins is linked into a program that runs on the driver alone" {
  need_nvrtc
  command -v cc || skip "no C compiler here"
  cd "$dir"
  local arch=sm_90a lib=${ATTUNE%/bin/attune}/lib
  ! has_gpu || arch=auto
  attune compile --arch $arch --problem dtype=fp16,head_dim=64,heads=4/2,seqlen=256,mask=causal_bottom_right --out my_kernels.o
  expect 0
  cc -std=c11 -Wall -Wextra -Werror -I "$ATTUNE_SOURCE/runtime/include" -I . "$ATTUNE_SOURCE/tests/cli/linked_gpu.c" my_kernels.o \
    -L "$lib" -lattune -ldl -Wl,-rpath,"$lib" -o linked_gpu
  has_gpu || skip "no GPU here: linked, and not run"
  rm my_kernels.o
  ATTUNE_STORE= ATTUNE_BUNDLE= ATTUNE_NVRTC=/nowhere HOME=$dir run ./linked_gpu
  echo "$output"
  [ "$status" -eq 0 ]
  [[ $output == *"from linked cubins, 0 of"* ]]
}

@test "an object needs a name in C" {
  need_cpu_target
  attune compile --arch cpu --problem $problem --out "$dir/my-kernels.o"
  refused 1 "my-kernels.o" "C identifier"
  attune compile --arch cpu --problem $problem --out "$dir/int.o"
  refused 1 "int.o" "not a keyword"
}
