#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune emit`: prints source without any compiler, PTX and resources with NVRTC, refuses nonsense before work.
load contract

gpu_problem=dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=2048,mask=causal_bottom_right

@test "emit prints one self-contained source for an arch that is not here" {
  attune emit --problem $gpu_problem --arch sm_80
  expect 0
  [[ $output == *attune_kernel* ]]
  [[ $output == *"kHeadDimQk = 128"* ]]
  [[ $output != *'#include "'* ]]
}

# compiles FILE...: runs the command that stands in the file's own head, in its folder.
compiles() {
  local file
  for file in "$@"; do
    (cd "${file%/*}" && bash -euc "$(sed -n 's|^// compile  ||p' "$file")") || { echo "$file does not compile"; return 1; }
  done
}

@test "an emitted CUDA source compiles with nvcc as its head says" {
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || skip "no nvcc on this machine"
  local causal=head_dim=64,heads=4/2,seqlen=512,mask=causal_bottom_right number=0 line
  while read -r line; do
    number=$((number + 1))
    attune emit --problem ${line% *} --arch ${line#* } --out "$dir/kernel$number.cu"
    expect 0
  done <<END
dtype=fp16,$causal sm_75
dtype=bf16,$causal sm_80
dtype=e4m3,$causal sm_89
dtype=bf16,$causal sm_90a
dtype=e4m3,$causal sm_90a
dtype=e4m3,$causal,accuracy=fast,scale_block=64,v_layout=transposed sm_120
dtype=fp32,$causal sm_80
op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,seqlen=512,scale_block=128,rotation=hadamard sm_90a
op=quantise,dtype=fp16,dtype_o=e5m2,head_dim=64,heads=4,seqlen=512,v_layout=transposed sm_80
END
  compiles "$dir"/kernel*.cu
}

@test "an emitted CPU source compiles with clang as its head says" {
  need_cpu_target
  command -v clang++ >/dev/null || skip "no clang++ on this machine"
  attune emit --problem $problem --arch cpu --out "$dir/kernel.cpp"
  expect 0
  compiles "$dir/kernel.cpp" 2> "$dir/errors" || {
    cat "$dir/errors"
    ! grep -Eq "unknown target CPU|_Float16 is not supported" "$dir/errors" || skip "this machine's clang++ is too old: 15 knows _Float16 everywhere"
    return 1
  }
}

@test "an emitted source opens with its problem, config, entry and launch" {
  attune emit --problem $gpu_problem --arch sm_80 --config hold_offsets=1
  expect 0
  local head=${output%%// ----*}
  [[ $head == "// SPDX"*"// prefill_sm80 for sm_80, written by attune "* && $head == *"// problem  $gpu_problem"* ]]
  [[ $head == *"// config   "*hold_offsets=1*"(the default, changed by --config)"* && $head == *"// entry    attune_prefill_sm80_d128"* ]]
  [[ $head == *"// launch   "*" threads, grid "*" bytes of dynamic shared memory"* ]]
}

@test "emit says whose facts it follows where no such device is" {
  attune emit --problem $gpu_problem --arch sm_80
  expect 0
  [[ ${output%%// ----*} == *"// device   NVIDIA A100 (108 multiprocessors, 40 MB of L2, "*"), a typical sm_80 device, because this machine has none"* ]]
  attune emit --problem $gpu_problem --arch sm_121 --json
  json 'o["device"].startswith("NVIDIA GB10 (48 multiprocessors")'
}

@test "emit --config changes the named knob only" {
  attune emit --problem $gpu_problem --arch sm_80 --json
  expect 0
  json 'o["schema"] == "attune.emit/1" and o["template"] == "prefill_sm80" and "block_n=" in o["config"]'
  attune emit --problem $gpu_problem --arch sm_80 --config hold_offsets=1 --json
  expect 0
  json '"hold_offsets=1" in o["config"].split(",") and "kHoldOffsets = 1" in o["text"]'
}

@test "emit --tuned prints the stored winner's kernel and says so" {
  tuned
  attune db show --problem $problem --json
  local winner
  winner=$("${PYTHON:-python3}" -c 'import json, sys; print(json.loads(sys.argv[1])["winners"][0]["config"])' "$output")
  attune emit --tuned --problem $problem --arch cpu
  expect 0
  [[ $output == *"// config   $winner (the winner of 20"* ]]
  attune emit --tuned --problem ${problem/seqlen=128/seqlen=640} --arch cpu
  refused 2 --tuned seqlen=640 "attune db ls"
  attune emit --tuned --problem $gpu_problem --arch sm_80 --store "$dir/none.db"
  refused 2 --tuned none.db
  attune emit --tuned --config block_m=32 --problem $problem --arch cpu
  refused 1 --config
}

@test "emit writes a file for each of several archs" {
  attune emit --problem $gpu_problem --arch sm_80,sm_90a --out "$dir/kernels"
  expect 0
  [ "$(cd "$dir/kernels" && echo *)" = "prefill_sm80_sm_80.cu prefill_sm90_sm_90a.cu" ]
  grep -q "^// compile  nvcc -arch=sm_90a .* prefill_sm90_sm_90a.cu$" "$dir/kernels/prefill_sm90_sm_90a.cu"
  attune emit --problem $gpu_problem --arch sm_80,sm_90a
  refused 1 "2 archs" "--out FOLDER"
  attune emit --problem $gpu_problem --arch all --json
  expect 0
  json '[k["arch"] for k in o["kernels"]][:2] == ["sm_75", "sm_80"] and {"sm_103", "sm_110", "sm_121"} <= {k["arch"] for k in o["kernels"]}'
}

@test "an image goes to files and pipes, not to a terminal" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what image --out "$dir/kernel.cubin"
  expect 0
  [ "$(head -c 4 "$dir/kernel.cubin" | tail -c 3)" = ELF ]
  run_on_terminal 80 emit --problem $gpu_problem --arch sm_80 --what image
  [[ $output == *'--what is "image", and stdout is a terminal'* && $output != *ELF* ]]
}

@test "facts are printed in the words that --problem takes" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what resources
  expect 0
  [[ $output == *"problem              $gpu_problem"* && $output != *dtype_q* ]]
}

@test "emit --out writes the whole file" {
  attune emit --problem $gpu_problem --arch sm_80 --out "$dir/new/kernel.cu"
  expect 0
  [ -z "$output" ]
  grep -q attune_kernel "$dir/new/kernel.cu"
  [ "$(ls "$dir/new")" = kernel.cu ]
}

@test "emit --what resources reports registers and no spills" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what resources --json
  expect 0
  json 'o["fault"] is None and 0 < o["registers"] <= 255 and o["shared_bytes"] > 0 and o["compile_time_s"] > 0'
  json '"registers" in o["compiler_log"] and "\0" not in o["compiler_log"]'
}

@test "emit --what ptx prints PTX for the arch" {
  need_nvrtc
  attune emit --problem $gpu_problem --arch sm_80 --what ptx
  expect 0
  [[ $output == *".target sm_80"* ]]
}

@test "emit --what ptx is refused for a CPU" {
  need_cpu_target
  attune emit --problem $problem --arch cpu --what ptx
  refused 1 ptx "CUDA archs only"
}

@test "unknown arch" {
  attune emit --problem $gpu_problem --arch sm_71
  refused 1 sm_71 sm_80
}

@test "unknown CPU" {
  need_cpu_target
  attune emit --problem ${gpu_problem/bf16/fp32} --arch cpu:nonsense
  refused 1 'arch is "cpu:nonsense", and LLVM has no CPU of this name'
  attune emit --problem ${gpu_problem/bf16/fp32} --arch cpu:x86-64-v3 --out "$dir/a.cpp"
  expect 0
  attune emit --problem ${gpu_problem/bf16/fp32} --arch cpu:neoverse-n1 --out "$dir/b.cpp"
  expect 0
}

@test "unknown knob" {
  attune emit --problem $gpu_problem --arch sm_80 --config tile=64
  refused 1 '"tile"' block_m
}

@test "a knob value outside its list" {
  attune emit --problem $gpu_problem --arch sm_80 --config block_m=17
  refused 1 block_m 17
}

@test "unknown template" {
  attune emit --problem $gpu_problem --arch sm_80 --template prefill_sm99
  refused 1 prefill_sm99 prefill_sm80
}

@test "a template that does not serve the arch" {
  attune emit --problem $gpu_problem --arch sm_75 --template prefill_sm80
  refused 2 prefill_sm80
}

@test "head dim 100" {
  attune emit --problem dtype=bf16,head_dim=100,heads=8,seqlen=64 --arch sm_80
  refused 1 head_dim 100 "a multiple of 8"
}

@test "heads that do not divide" {
  attune emit --problem dtype=bf16,head_dim=64,heads=7/2,seqlen=64 --arch sm_80
  refused 1 7 2
}

@test "negative length" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=-4 --arch sm_80
  refused 1 seqlen -4
}

@test "wrong dtype" {
  attune emit --problem dtype=int2,head_dim=64,heads=8,seqlen=64 --arch sm_80
  refused 1 int2 bf16
}

@test "a scale that is not a number" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,scale=nan --arch sm_80
  refused 1 scale nan
}

@test "an unknown key of a problem" {
  attune emit --problem dtype=bf16,head_dim=64,heads=8,seqlen=64,colour=red --arch sm_80
  refused 1 colour
}

@test "missing --problem" {
  attune emit --arch sm_80
  refused 1 --problem
}

@test "an output that cannot be written" {
  attune emit --problem $gpu_problem --arch sm_80 --out /proc/attune/kernel.cu
  refused 5 /proc/attune
}

@test "emit --out leaves a device and a pipe where they are" {
  ln -s /dev/null "$dir/null"
  attune emit --arch sm_80 --problem ${problem/fp32/bf16} --out "$dir/null"
  expect 0
  [ "$(readlink "$dir/null")" = /dev/null ]
  mkfifo "$dir/pipe"
  cat "$dir/pipe" >"$dir/got" &
  attune emit --arch sm_80 --problem ${problem/fp32/bf16} --out "$dir/pipe"
  expect 0
  [ -p "$dir/pipe" ] || { kill %1; return 1; }
  wait %1
  grep -q attune_kernel "$dir/got"
}

@test "no folder for temporary files" {
  need_cpu_target
  TMPDIR=$dir/none attune emit --arch cpu --problem $problem --html
  refused 5 TMPDIR
}

@test "emit --html is one page, without scripts, of the source beside machine code" {
  need_cpu_target
  attune emit --problem $problem --arch cpu --html --out "$dir/kernel.html"
  expect 0
  grep -q "^<!doctype html>" "$dir/kernel.html"
  grep -q "default-src 'none'" "$dir/kernel.html"
  if grep -niE "<script|https?://|javascript:|/tmp/" "$dir/kernel.html"; then return 1; fi
  grep -q "<dt>problem</dt><dd>dtype=fp32" "$dir/kernel.html"
  grep -q "&lt;" "$dir/kernel.html"
  grep -q 'id="code"' "$dir/kernel.html"
  if command -v objdump > /dev/null; then grep -q "Machine code, by" "$dir/kernel.html"; fi
}

@test "emit --html shows machine code where children are not waited for" {
  need_cpu_target
  command -v objdump > /dev/null || skip "objdump is not here"
  "${PYTHON:-python3}" -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])' \
    "$ATTUNE" emit --problem $problem --arch cpu --html --out "$dir/kernel.html"
  grep -q "Machine code, by objdump" "$dir/kernel.html"
}

@test "emit --html without a disassembler shows PTX, and escapes tags in programs" {
  need_nvrtc
  printf '// scalar script: float\nreturn score<script ? score : score * 0.5;\n' > "$dir/mod"
  PATH=/nowhere attune emit --problem $gpu_problem --score-mod "$dir/mod" --arch sm_80 --html
  expect 0
  local tags="a body dd details dl dt h1 h2 h3 head html li main meta nav pre section style summary title ul"
  [ "$(grep -oE '<[a-zA-Z][a-zA-Z0-9]*' <<< "$output" | tr -d '<' | sort -u | tr '\n' ' ')" = "$tags " ]
  [[ $output == *"PTX (neither nvdisasm"* || $output == *"Machine code, by"* ]]
}
