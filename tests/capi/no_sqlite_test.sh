#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libattune built with ATTUNE_SQLITE=OFF: needs no SQLite, runs a bundle, refuses a store by name.
# Usage: no_sqlite_test.sh BUILD_DIR SOURCE_DIR ATTUNE [CMAKE_OPTION...]
set -euo pipefail
plugins=$1/lib source=$2 attune=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset ATTUNE_BUNDLE ATTUNE_PIN ATTUNE_SITE_STORES
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache ATTUNE_STORE=$scratch/store.db
problem=dtype=fp32,head_dim=64,heads=8/2,seqlen=512,mask=causal_bottom_right

# CMake must not search for SQLite. Building and running need neither LLVM nor the compiling plugin.
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }; }
quietly cmake -S "$source" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DATTUNE_SQLITE=OFF -DATTUNE_CPU=OFF \
  -DATTUNE_BENCH=OFF -DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON "${@:4}"
quietly cmake --build "$scratch/build" --parallel "$(nproc)" --target attune attune_python
library=$scratch/build/lib/libattune.so
if readelf -d "$library" | grep -i 'NEEDED.*sqlite'; then echo "it needs SQLite"; exit 1; fi
if grep -aq 'SQLITE_\|sqlite3_' "$library"; then echo "SQLite is in it"; exit 1; fi
strip -o "$scratch/stripped.so" "$library"
size=$(stat -c %s "$scratch/stripped.so")
echo "without SQLite: $size bytes stripped"
[ "$size" -lt 3000000 ] || { echo "more than 3 MB"; exit 1; }

"${CC:-cc}" -std=c11 -O1 -I"$source/runtime/include" "$source/examples/bundle.c" -L"${library%/*}" -lattune -lm -o "$scratch/bundle"
export LD_LIBRARY_PATH=${library%/*}
must_refuse() { # TEXT COMMAND...: fails with that text on stderr
  if "${@:2}" >"$scratch/out" 2>"$scratch/log"; then echo "not refused: ${*:2}"; exit 1; fi
  grep -q "$1" "$scratch/log" || { cat "$scratch/log"; exit 1; }
}

python=(env "PYTHONPATH=$source/runtime/python" "ATTUNE_LIBRARY=$library" PYTHONDONTWRITEBYTECODE=1 python3 -c)
open_context='import attune; attune.Context(target="cpu")'
if [ ! -e "$plugins/libattune_clang.so" ]; then
  must_refuse 'built without SQLite' "${python[@]}" 'import attune; attune.Context()'
  echo "SKIP: running a bundle: this build compiles no CPU kernels."
  exit 0
fi
quietly env -u LD_LIBRARY_PATH "$attune" compile --arch cpu --problem "$problem" --out "$scratch/kernels"
"$scratch/bundle" "$scratch/kernels" | tee "$scratch/out"
grep -q 'bundle' "$scratch/out"
must_refuse "store $scratch/store.db: this libattune was built without SQLite" "${python[@]}" "$open_context"
unset ATTUNE_STORE
ATTUNE_SITE_STORES=/site.db must_refuse "store /site.db: this libattune was built" "${python[@]}" "$open_context"
"${python[@]}" "$open_context" # no default store, so nothing to refuse
echo "a bundle runs; stores are refused by name"
