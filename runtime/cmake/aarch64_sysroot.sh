#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks packages for ARM64 and what they need into a folder, from this Debian's or Ubuntu's archive: by default the libraries and
# headers that attune links, for aarch64.cmake. Nothing is installed and no root is needed.
#   runtime/cmake/aarch64_sysroot.sh FOLDER [PACKAGE...]
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- libsqlite3-dev libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libsodium-dev zlib1g-dev libzstd-dev \
  llvm-19-dev libclang-19-dev
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{lists,archives}/partial
touch "$scratch/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1 -o APT::Sandbox::User=
     -o "Dir::State=$scratch" -o "Dir::State::status=$scratch/status" -o "Dir::Cache=$scratch")
"${apt[@]}" update
"${apt[@]}" install --yes --no-install-recommends --download-only "$@"
for package in "$scratch"/archives/*.deb; do dpkg -x "$package" "$folder"; done
