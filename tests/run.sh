#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The one command for all tests: installs what is missing, builds Release, runs everything through CTest. GPU tests skip
# aloud where there is no GPU. Arguments go to ctest (`tests/run.sh -R store`). Prints what was skipped and left out, and counts last.
# Left out unless asked for (CONTRIBUTING.md says what they are): tests labelled full, whole, timing, fresh. Variables:
#   ATTUNE_BUILD_DIR          the build tree
#   ATTUNE_SKIP_LABELS        a pattern of labels to leave out; "none" leaves out nothing
#   ATTUNE_TEST_REQUIREMENTS  a file of Python packages to install for the tests: tests/requirements.txt has all (several GB)
#   ATTUNE_TEST_SKIPS         the skips that do not fail the run: any (default), gpu (tests that need a GPU), none
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

# For the tests that compile CUDA: the version whose machine code tests/golden holds.
attune_find_nvrtc "$build" "$(sed -n 's/^# NVRTC //p' tests/golden/sass_digests.txt)" || echo "SKIP: tests that compile CUDA: there is no NVRTC."
if [ -n "${ATTUNE_TEST_REQUIREMENTS:-}" ]; then
  attune_find_packages "$build" "$ATTUNE_TEST_REQUIREMENTS"
else
  attune_find_numpy "$build" || echo "SKIP: tests of the Python module with numpy."
fi
if ! { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; then
  echo "SKIP: tests labelled gpu: no NVIDIA driver answers on this machine."
fi

# Precompiled headers: ccache takes them only when told that the compiler looks after the rest.
export CCACHE_SLOPPINESS=pch_defines,time_macros
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTUNE_TESTS=ON "-DPython3_EXECUTABLE=$ATTUNE_PYTHON" "${launcher[@]}"
cmake --build "$build" --parallel "$jobs"

# Images that no test of the last week has made (tests/support/kept_images.hpp).
if [ -d "$build/kept/images" ]; then find "$build/kept/images" -type f -mtime +7 -delete; fi

# PyTorch's threads wait for each other in busy loops, which takes the cores from other tests.
export OMP_NUM_THREADS=1
# Scripts that import PyTorch run as forks of one process that has imported it (tests/python/support/warm_start.py).
if [ -d "$build/tests/python" ]; then
  rm -f "$build/tests/python/warm_start.socket"
  server=$PWD/tests/python/support/warm_start.py
  (cd "$build/tests/python" && exec "$ATTUNE_PYTHON" "$server" --serve </dev/null) &
  # shellcheck disable=SC2064
  trap "kill $!" EXIT
fi

# Timings of kernels and of the store want the cores to themselves.
results=$(cd "$build" && pwd)/results.xml
rm -f "$results"
status=0
ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error --timeout 300 --output-junit "$results" \
  --test-output-size-passed 1048576 --test-output-size-failed 1048576 -LE "${ATTUNE_SKIP_LABELS:-^(full|whole|timing|fresh)$}" "$@" || status=$?
[ -e "$results" ] || exit "$status"
python3 tests/summary.py "$build" "$results" --skips "${ATTUNE_TEST_SKIPS:-any}" || exit $((status ? status : 1))
exit "$status"
