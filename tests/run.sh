#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The one command for all tests: installs what is missing, builds Release, runs everything through CTest. GPU tests skip
# aloud where there is no GPU. Arguments go to ctest (`tests/run.sh -R store`). ATTUNE_BUILD_DIR names the build tree. Left out
# unless asked for (CONTRIBUTING.md says what they are): tests labelled full, whole, timing, fresh. All of them: ATTUNE_SKIP_LABELS=none.
set -euo pipefail
cd "$(dirname "$0")/.."
source examples/packages.sh

build=${ATTUNE_BUILD_DIR:-build/tests}
jobs=$(nproc)

# Word lists on purpose: one package a word.
# shellcheck disable=SC2086
if ! attune_install $attune_build_packages $attune_test_packages $attune_cpu_packages; then
  attune_install $attune_build_packages $attune_test_packages
  echo "SKIP: the CPU target and its tests are not built: clang and LLVM 19 are not to be had here."
fi

# shellcheck disable=SC2086
for package in $attune_check_packages; do
  attune_install "$package" || echo "SKIP: what $package checks is not checked."
done

# For the tests that compile CUDA.
attune_find_nvrtc "$build" || echo "SKIP: tests that compile CUDA: there is no NVRTC."
attune_find_numpy "$build" || echo "SKIP: tests of the Python module with numpy."
if ! { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; then
  echo "SKIP: tests labelled gpu: no NVIDIA driver answers on this machine."
fi

# Precompiled headers: ccache takes them only when told that the compiler looks after the rest.
export CCACHE_SLOPPINESS=pch_defines,time_macros
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTUNE_TESTS=ON "-DPython3_EXECUTABLE=$ATTUNE_PYTHON" "${launcher[@]}"
cmake --build "$build" --parallel "$jobs"

# The exit status of ctest is the exit status of this script. Timings of kernels and of the store want the cores to themselves.
exec ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error --timeout 300 -LE "${ATTUNE_SKIP_LABELS:-^(full|whole|timing|fresh)$}" "$@"
