#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks if kernels of the working tree still compile to the same machine code. Needs no GPU. Exit status 0 if they do.
#   bash tests/generator/same_code.sh                  compares golden cases and a sample with tests/golden/sass_digests.txt
#   bash tests/generator/same_code.sh COMMIT [STEP]    compares each default config, or one in STEP, with those of COMMIT
#   bash tests/generator/same_code.sh --texts COMMIT   shows how the rendered texts of golden cases differ from COMMIT's
#   bash tests/generator/same_code.sh --drawn COMMIT [COUNT]  compares COUNT random kernels (default 60) of each CUDA template and arch:
#                                                      any features, programs and configs (drawn_digests.cpp)
# The forms with a COMMIT build it below the build tree. The second form works with any NVRTC and compiles only kernels whose source differs.
# --drawn compiles all its kernels. It builds nothing of COMMIT if only templates differ, and can use one template alone:
# `drawn_digests --templates FOLDER TEMPLATE ARCH FIRST COUNT` prints the digests that it compares.
# ATTUNE_BUILD_DIR names the build tree, as for tests/run.sh.
set -euo pipefail
export LC_ALL=C  # one order for sort and join
cd "$(dirname "$0")/../.."
build=$(realpath "${ATTUNE_BUILD_DIR:-build/tests}")
if [ ! -e "$build/CMakeCache.txt" ]; then
  echo "There is no build tree in $build; 'bash tests/run.sh' makes one." >&2
  exit 2
fi

if [ $# -eq 0 ]; then
  cmake --build "$build" --target compile_matrix_test
  exec "$build/bin/compile_matrix_test" --gtest_filter='CompileMatrix.MachineCodeEqualsTheAcceptedMachineCode'
fi

form=code
if [ "$1" = --texts ] || [ "$1" = --drawn ]; then
  form=${1#--}
  shift
fi
step=${2:-1} count=${2:-60}
other=$build/commit
if ! commit=$(git rev-parse --verify --quiet "$1^{commit}"); then
  echo "git does not know the commit $1: there is nothing to compare with." >&2
  exit 2
fi
# A separate index keeps files that two commits share untouched, so that the next comparison builds little.
mkdir -p "$other/source"
GIT_INDEX_FILE=$other/index git --work-tree="$other/source" read-tree -u --reset "$commit"

# build_commit TARGET: builds a program of tests/generator in COMMIT's tree.
build_commit() {
  if [ ! -e "$other/source/tests/generator/$1.cpp" ]; then
    echo "$commit is from before tests/generator/$1.cpp: it cannot be compared with." >&2
    exit 2
  fi
  [ -e "$other/build/build.ninja" ] ||
    cmake -S "$other/source" -B "$other/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTUNE_TESTS=ON >"$other/cmake.log"
  cmake --build "$other/build" --target "$1"
}

# draw COMMAND...: prints the digests of random kernels of each CUDA template and arch.
draw() {
  "$build/bin/drawn_digests" --list | while read -r template arch; do "$@" "$template" "$arch" 1 "$count" </dev/null; done
}

if [ "$form" = drawn ]; then
  cmake --build "$build" --target drawn_digests kernel_digests
  of_commit=("$build/bin/drawn_digests" --templates "$other/source/templates")
  if ! git diff --quiet "$commit" -- 'generator/*.[ch]pp' 'runtime/*.[ch]pp' 'tuner/*.[ch]pp'; then
    build_commit drawn_digests
    of_commit=("$other/build/bin/drawn_digests")
  fi
  draw "${of_commit[@]}" >"$other/then.drawn"
  draw "$build/bin/drawn_digests" >"$other/now.drawn"
  exec "$build/bin/kernel_digests" compare "$other/then.drawn" "$other/now.drawn"
fi
build_commit kernel_digests
cmake --build "$build" --target kernel_digests

if [ "$form" = texts ]; then
  rm -rf "$other/before" "$other/after"
  "$other/build/bin/kernel_digests" texts "$other/before"
  "$build/bin/kernel_digests" texts "$other/after"
  cd "$other"
  diff -ruN before after
  exit
fi
"$other/build/bin/kernel_digests" sources "$step" | sort >"$other/then.sources"
"$build/bin/kernel_digests" sources "$step" | sort >"$other/now.sources"
# Kernels in both trees whose lines differ.
join -t $'\t' "$other/then.sources" "$other/now.sources" | awk -F '\t' '$2 != $3 { print $1 }' >"$other/keys"
both=$(join -t $'\t' "$other/then.sources" "$other/now.sources" | wc -l)
echo "$both kernels in both; $(wc -l <"$other/keys") of them have another source or default config and are compiled;" \
  "$(($(wc -l <"$other/now.sources") - both)) new, $(($(wc -l <"$other/then.sources") - both)) gone"
[ -s "$other/keys" ] || exit 0
"$other/build/bin/kernel_digests" code <"$other/keys" >"$other/then.code"
"$build/bin/kernel_digests" code <"$other/keys" >"$other/now.code"
"$build/bin/kernel_digests" compare "$other/then.code" "$other/now.code"
