#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a bundle, a packed one and a store, then lets every allocation of the C interface fail over each.
# Usage: alloc_faults_test.sh ATTUNE ALLOC_FAULTS_TEST STEP
set -euo pipefail
attune=$1 program=$2 step=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset ATTUNE_BUNDLE ATTUNE_PIN ATTUNE_SITE_STORES ATTUNE_CAPTURE ATTUNE_LOG
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache ATTUNE_STORE=$scratch/store.db
problem=dtype=fp32,head_dim=32,heads=2,seqlen=32
# tune exits with a nonzero status if its budget ends the search, hence "|| true".
"$attune" tune --target cpu:2 --problem "$problem" --budget 2 --effort quick >"$scratch/log" 2>&1 || true
if grep -q 'no CPU kernel can be compiled here' "$scratch/log"; then
  echo "SKIP: no kernel can be compiled for this test"
  exit 77
fi
"$attune" export "$scratch/kernels.attune" >/dev/null
packed=$scratch/packed.attune
"$attune" export "$packed" --zstd >/dev/null 2>&1 || packed=$scratch/kernels.attune # without libzstd
"$program" "$scratch/kernels.attune" "$packed" "$ATTUNE_STORE" "$step"
