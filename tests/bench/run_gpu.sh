#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tunes every benchmark case from an empty store and times it against its peers. Needs a CUDA device and PyTorch.
#   tests/bench/run_gpu.sh BUILD_DIR OUT_DIR [SET...]
# Sets: grid models windows chunked (default: these four), fp8, scores, fp32, backward, decode, serving, dropout.
# Writes OUT_DIR/tune_<set>.json and OUT_DIR/<set>.json. ATTUNE_BENCH_PEERS and ATTUNE_EFFORT change the peers and the effort.
# ATTUNE_BENCH_TEMPLATE times a single family against the peers. ATTUNE_BENCH_STORE keeps the tuned winners for the next call.
set -euo pipefail
build=$1 out=$2
shift 2
sets=("$@")
[ ${#sets[@]} -gt 0 ] || sets=(grid models windows chunked)
here=$(cd "$(dirname "$0")" && pwd)
export ATTUNE_LIBRARY=${ATTUNE_LIBRARY:-$build/lib/libattune.so}
store=${ATTUNE_BENCH_STORE:-$(mktemp -d)/store.db}
for set in "${sets[@]}"; do
  problems=()
  list=("$here/cases.py" "$set")
  [ "$set" != scores ] || list=("$here/cuda/scores.py" --problems "$(mktemp -d)")
  [ "$set" != fp32 ] || list=("$here/cuda/fp32.py" --problems)
  [ "$set" != backward ] || list=("$here/cuda/backward.py" --problems)
  case $set in decode | serving | dropout) list=("$here/cuda/$set.py" --problems) ;; esac
  while read -r problem; do problems+=(--problem "$problem"); done < <(python3 "${list[@]}")
  SECONDS=0
  "$build/bin/attune" tune --json --store "$store" --target cuda --effort "${ATTUNE_EFFORT:-normal}" ${ATTUNE_BENCH_TEMPLATE:+--template "$ATTUNE_BENCH_TEMPLATE"} \
    "${problems[@]}" > "$out/tune_$set.json" || [ $? -eq 6 ]  # 6: a shape kept its default when the budget ended
  echo "tuned $set: $((${#problems[@]} / 2)) problems in $SECONDS s"
  if [ "$set" = scores ]; then
    python3 "$here/cuda/scores.py" --store "$store" ${ATTUNE_BENCH_PEERS:+--peers "$ATTUNE_BENCH_PEERS"} --out "$out/scores.json"
    continue
  fi
  if [ "$set" = fp32 ]; then
    python3 "$here/cuda/fp32.py" --store "$store" --out "$out/fp32.json"
    continue
  fi
  if [ "$set" = backward ] || [ "$set" = decode ]; then
    python3 "$here/cuda/$set.py" --store "$store" ${ATTUNE_BENCH_PEERS:+--peers "$ATTUNE_BENCH_PEERS"} --out "$out/$set.json"
    continue
  fi
  if [ "$set" = dropout ] || [ "$set" = serving ]; then
    python3 "$here/cuda/$set.py" --store "$store" --out "$out/$set.json"
    continue
  fi
  if [ "$set" = fp8 ]; then
    python3 "$here/cuda/fp8.py" --store "$store" --out "$out/fp8.json"
    continue
  fi
  python3 "$here/cuda/attention.py" --set "$set" --store "$store" ${ATTUNE_BENCH_PEERS:+--peers "$ATTUNE_BENCH_PEERS"} \
    ${ATTUNE_BENCH_TEMPLATE:+--tuned-only} --out "$out/$set.json"
done
