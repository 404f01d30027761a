#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Turns a fresh Debian or Ubuntu machine into one with tuned attention kernels. Installs missing packages, builds the program,
# tunes the attention of Llama-3.1-8B (on the GPU if a driver answers, else on the CPU), and compares tuned, default and
# standard attention. ATTUNE_BUILD_DIR names the build tree, ATTUNE_STORE the database.
set -euo pipefail
cd "$(dirname "$0")/.."
source examples/packages.sh

build=${ATTUNE_BUILD_DIR:-build/quickstart}
model=examples/models/Llama-3.1-8B/config.json

step() { printf '\n== %s\n' "$*"; }

step "Packages"
cpu=ON
# Unquoted on purpose: each word is a package.
# shellcheck disable=SC2086
if ! attune_install $attune_build_packages $attune_cpu_packages; then
  attune_install $attune_build_packages
  cpu=OFF
  echo "Continuing without the CPU target; this needs a GPU."
fi

step "Build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTUNE_TESTS=OFF -DATTUNE_BENCH=OFF -DATTUNE_CPU=$cpu \
  --log-level=WARNING
quiet=(-- --quiet)
[ -t 1 ] && quiet=()
cmake --build "$build" --parallel "$(nproc)" "${quiet[@]}"  # everything: cmake --install needs it
attune=$build/bin/attune

# On a GPU the workload is the model's default set; on a CPU, lengths that two cores finish within a minute.
if nvidia-smi -L >/dev/null 2>&1; then
  attune_find_nvrtc "$build" || true
  workload=()
else
  workload=(--target cpu --dtype fp32 --seqlen 512,1024)
fi

step "Check of this machine"
"$attune" doctor || [ $? -eq 4 ]

step "Tune: the kernels of $model, made and measured here"
if [ ${#workload[@]} -eq 0 ]; then
  "$attune" tune "$model"
else
  "$attune" tune "$model" "${workload[@]}" --effort quick --budget 40
fi || [ $? -eq 6 ]  # 6: the budget ended first; measured results are kept

step "Bench: tuned against default against standard attention"
"$attune" bench "$model" "${workload[@]}"

cat <<END

From now on every program on this machine that uses attune finds these tuned kernels, with no compiler at run time.
A gain of 1.00x is a good result: no kernel was faster than the default that attune uses without tuning. Next:
  cmake --install $build --prefix ~/.local && export PATH=~/.local/bin:\$PATH
  $attune explain --problem dtype=fp32,head_dim=128,heads=32/8,seqlen=1024,mask=causal_bottom_right
  $attune db ls                        # trials, their speed and their certainty
  $attune tune --help                  # your own model or problems
  bash tests/run.sh                    # all tests
  examples/guide/README.md             # the guide: Python, C, C++, serving, training, shipping
END
