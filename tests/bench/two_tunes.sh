#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how repeatable a tune is: tunes 32 problems twice, each time from an empty store, and times both choices interleaved.
# Needs a CUDA device and PyTorch; takes about four minutes.
#   tests/bench/two_tunes.sh BUILD_DIR OUT_DIR
# Writes OUT_DIR/tune_first.json, OUT_DIR/tune_second.json and OUT_DIR/two_tunes.json. ATTUNE_EFFORT changes the effort.
set -euo pipefail
build=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
export ATTUNE_LIBRARY=${ATTUNE_LIBRARY:-$build/lib/libattune.so}
stores=$(mktemp -d)
problems=()
while read -r problem; do problems+=(--problem "$problem"); done < <(python3 "$here/cases.py" repeat)
for run in first second; do
  SECONDS=0
  "$build/bin/attune" tune --json --store "$stores/$run.db" --target cuda --effort "${ATTUNE_EFFORT:-normal}" "${problems[@]}" \
    > "$out/tune_$run.json" || [ $? -eq 6 ]  # 6: a shape kept its default when the budget ended
  echo "tuned $((${#problems[@]} / 2)) problems in $SECONDS s"
done
python3 "$here/cuda/compare_stores.py" --first "$stores/first.db" --second "$stores/second.db" --set repeat --out "$out/two_tunes.json"
