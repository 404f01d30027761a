#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libattune.so alone, without the plugin and without LLVM in the process: kernels of bundles and stores load and run.
# Usage: no_plugin_test.sh SOURCE_DIR ATTUNE LIBATTUNE
set -euo pipefail
source=$1 attune=$2 library=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset ATTUNE_BUNDLE ATTUNE_PIN ATTUNE_SITE_STORES ATTUNE_CAPTURE ATTUNE_CPU_PLUGIN LD_LIBRARY_PATH
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache
problem=dtype=fp32,head_dim=64,heads=8/2,seqlen=512,mask=causal_bottom_right
store=$scratch/store.db

# tune exits with a nonzero status if its budget ends the search, hence "|| true".
"$attune" tune --target cpu:2 --problem "$problem" --budget 5 --effort quick --store "$store" >"$scratch/log" 2>&1 || true
if grep -q 'no CPU kernel can be compiled here' "$scratch/log"; then
  echo "SKIP: no kernel can be compiled for this test"
  exit 77
fi
ATTUNE_STORE=$store "$attune" export "$scratch/kernels.attune" >/dev/null
mkdir "$scratch/alone"
cp "$library" "$scratch/alone/libattune.so"
cp "$(dirname "$library")"/_attune*.so "$scratch/alone/"  # Python's module, which does not need the plugin
ln -s libattune.so "$scratch/alone/$(basename "$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')")" 2>/dev/null || true

python=(env "PYTHONPATH=$source/runtime/python" "ATTUNE_LIBRARY=$scratch/alone/libattune.so" PYTHONDONTWRITEBYTECODE=1 python3 -c)
ask="import attune, sys
plan = attune.Context(target='cpu:2').plan(sys.argv[1])
print(plan.explain())
text = open('/proc/self/maps').read()
sys.exit('LLVM is in the process' if 'LLVM' in text or 'attune_clang' in text else 0)"
ATTUNE_STORE='' ATTUNE_BUNDLE=$scratch/kernels.attune "${python[@]}" "$ask" "$problem" >"$scratch/out" || { cat "$scratch/out"; exit 1; }
ATTUNE_STORE=$store "${python[@]}" "$ask" "$problem" >"$scratch/out" || { cat "$scratch/out"; exit 1; }
if ATTUNE_STORE='' "${python[@]}" "$ask" "$problem" >"$scratch/out" 2>&1; then
  echo "compiled without the plugin"
  exit 1
fi
grep -q 'no CPU kernel can be compiled here' "$scratch/out"

"${CC:-cc}" -std=c11 -O1 -I"$source/runtime/include" "$source/examples/bundle.c" -L"$scratch/alone" -lattune -lm \
  -Wl,-rpath,"$scratch/alone" -o "$scratch/bundle"
ATTUNE_STORE='' "$scratch/bundle" "$scratch/kernels.attune" | tee "$scratch/out"
grep -q 'bundle' "$scratch/out"
if readelf -d "$library" | grep -i 'NEEDED.*LLVM'; then echo "libattune.so needs LLVM"; exit 1; fi
echo "kernels of a bundle and of a store run without the plugin"
