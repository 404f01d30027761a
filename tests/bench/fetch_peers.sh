#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the peers' packages as wheels on a machine with a registry, for a GPU machine without one (x86-64 Linux with PyTorch).
#   tests/bench/fetch_peers.sh DIR [PYTHON_VERSION]
# On the GPU machine: python3 -m pip install --no-index --no-deps --target SITE DIR/*.whl
# A --target folder reads no .pth files: also put SITE/nvidia_cutlass_dsl/dsl_packages on PYTHONPATH.
# fa3-fwd has 27 MB. flash-attn-4 needs the other packages (100 MB) and compiles its kernels at their first call.
# flashinfer-python (8 MB) needs only apache-tvm-ffi of these packages for the calls timed here, and nvcc and ninja on the GPU machine.
# Its dependencies click, einops, ninja, nvidia-ml-py, packaging, requests, tabulate and tqdm are not fetched.
set -euo pipefail
dir=$1 python=${2:-3.12}
platforms=()
for glibc in 17 24 27 28 34 35; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
for package in fa3-fwd==0.0.3 flash-attn-4==4.0.0b36 nvidia-cutlass-dsl==4.8.1 nvidia-cutlass-dsl-libs-base==4.8.1 \
  nvidia-cutlass-dsl-libs-core==4.8.1 nvidia-cutlass-dsl-libs-cu13==4.8.1 quack-kernels==0.6.5 apache-tvm-ffi==0.1.15.post2 \
  torch-c-dlpack-ext==0.1.5 einops==0.8.2 flashinfer-python==0.6.3; do
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$python" --implementation cp \
    "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$dir" "$package"
done
