#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into an empty folder, moves it, and builds an outside project against it: by find_package and by
# pkg-config. Usage: outside_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1
outside=$2/tests/capi/outside
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
mv "$scratch/first" "$scratch/attune" # an installed tree must not know where it was
library=$(dirname "$(find "$scratch/attune" -name libattune.so)")
test -f "$scratch/attune/include/attune/attune.h"
test -f "$scratch/attune/share/attune/python/attune/__init__.py"
test -f "$scratch/attune/share/doc/attune/LICENSE"
"$scratch/attune/bin/attune" version

cmake -S "$outside" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/attune" >"$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
cmake --build "$scratch/build" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
"$scratch/build/outside_c"
"$scratch/build/outside_cpp"
echo "find_package: works"

# Inside another project attune is only configured: building it again would test nothing new. It must not search for
# GTest.
cmake -S "${outside%/*}/inside" -B "$scratch/inside" "-DATTUNE_SOURCE=$2" -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON \
  >"$scratch/inside.log" 2>&1 || { cat "$scratch/inside.log"; exit 1; }
grep -q '^ATTUNE_TESTS:BOOL=OFF' "$scratch/inside/CMakeCache.txt"
echo "add_subdirectory: works, without tests"

export PKG_CONFIG_PATH=$library/pkgconfig
# Word lists on purpose: flags.
# shellcheck disable=SC2046
"${CC:-cc}" -std=c11 -Wall -Werror "$outside/outside.c" $(pkg-config --cflags --libs attune) -o "$scratch/by_pkg_config"
LD_LIBRARY_PATH=$library "$scratch/by_pkg_config"
echo "pkg-config $(pkg-config --modversion attune): works"

if [ -e "$library/libattune_clang.so" ]; then
  # shellcheck disable=SC2046
  "${CC:-cc}" -std=c11 -O1 "$2/examples/prefill.c" $(pkg-config --cflags --libs attune) -lm -o "$scratch/prefill"
  LD_LIBRARY_PATH=$library ATTUNE_STORE=$scratch/store.db "$scratch/prefill" >"$scratch/prefill.log"
  echo "a kernel compiled and run from the installed tree: works"
else
  echo "SKIP: a kernel from the installed tree: this build compiles no CPU kernels."
fi
