#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a folder that the linker uses in place of glibc, so that linked files run with glibc 2.28 or later. It has the interfaces of
# that version's libraries (from Zig, which has all versions; `pip install ziglang`) and, from glibc_floor.c, the functions that newer
# code needs in addition.
#   runtime/cmake/glibc_floor.sh FOLDER [PYTHON [ARCH]]     # ARCH: x86_64 or aarch64; by default this machine's
#   LDFLAGS=-BFOLDER pip wheel .        # x86-64 and aarch64; gcc and GNU ld
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd) python=${2:-python3} arch=${3:-$(uname -m)} here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ZIG_GLOBAL_CACHE_DIR=$scratch/cache ZIG_LOCAL_CACHE_DIR=$scratch/cache

echo 'int main(void) { return 0; }' >"$scratch/empty.c"
"$python" -m ziglang cc -target "$arch-linux-gnu.2.28" "$scratch/empty.c" -o "$scratch/empty" -lm -lpthread -ldl -lrt
find "$scratch/cache" -name 'lib*.so.[0-9]' -exec cp {} "$folder" \;
find "$scratch/cache" -name libc_nonshared.a -exec cp {} "$folder" \;
find "$scratch/cache" -name crt1.o -exec cp {} "$folder/Scrt1.o" \;
compiler=${CC:-cc}
[ "$arch" = "$(uname -m)" ] || compiler=$arch-linux-gnu-gcc
"$compiler" -O2 -fPIC -fvisibility=hidden -c "$here/glibc_floor.c" -o "$scratch/glibc_floor.o"
ar r "$folder/libc_nonshared.a" "$scratch/glibc_floor.o" 2>/dev/null
for library in m pthread dl rt; do ln -sf "$(cd "$folder" && ls lib$library.so.[0-9])" "$folder/lib$library.so"; done
echo "INPUT($folder/libc.so.6 $folder/libc_nonshared.a AS_NEEDED($folder/libpthread.so.0 $folder/libdl.so.2 $folder/libld.so.2))" >"$folder/libc.so"
