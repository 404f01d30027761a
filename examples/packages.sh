# SPDX-License-Identifier: Apache-2.0
# Lists the distribution packages for building and testing, and installs missing ones. Sourced by examples/quickstart.sh
# and tests/run.sh. The names are for Debian 12 and later, and for Ubuntu 24.04 and later.

# To build the library and the program.
attune_build_packages="build-essential cmake ninja-build git pkg-config libsqlite3-dev libfmt-dev libcli11-dev \
nlohmann-json3-dev libxxhash-dev libsodium-dev python3-dev"
# To compile CPU kernels: clang and LLVM in process (LLVM's static parts need zlib and zstd). All else works without them.
attune_cpu_packages="llvm-19-dev libclang-19-dev zlib1g-dev libzstd-dev"
# For the tests only.
attune_test_packages="libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev bats python3 python3-venv"
# Optional: without them, tests skip and say so. Sources are formatted with this version; Chromium draws reports.
attune_check_packages="clang-format-14 clang-tidy chromium"

attune_is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

# attune_install PACKAGE...: installs missing packages with apt-get, or says which ones to install and returns 1.
attune_install() {
  if ! command -v apt-get >/dev/null; then
    echo "This is not a Debian or Ubuntu machine. Install the contents of these packages, then run this again: $*" >&2
    return 1
  fi
  local missing=() package as_root=()
  for package in "$@"; do attune_is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      echo "Neither root nor sudo: run this as an administrator, then this script again:" >&2
      echo "  apt-get install -y ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "Installing: ${missing[*]}"
  "${as_root[@]}" apt-get -qq update
  local unknown=()
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || unknown+=("$package")
  done
  if [ ${#unknown[@]} -gt 0 ]; then
    echo "This distribution has no package named: ${unknown[*]} (known to work: Debian 12, 13; Ubuntu 24.04 with universe)." >&2
    return 1
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# attune_pip_install VENV LOG PACKAGE...: installs Python packages into a virtual environment, and makes it if necessary.
attune_pip_install() {
  local venv=$1 log=$2
  mkdir -p "$(dirname "$venv")"
  { { [ -x "$venv/bin/python" ] || python3 -m venv "$venv"; } &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${@:3}"; } >"$log" 2>&1
}

# attune_find_nvrtc BUILD_DIR [VERSION]: finds NVRTC, which compiles CUDA kernels. Without a CUDA toolkit, installs NVIDIA's wheel,
# of that version or the newest, into a virtual environment under BUILD_DIR and exports ATTUNE_NVRTC. If that fails, says why and
# returns 1.
attune_find_nvrtc() {
  local venv=$1/nvrtc log=$1/nvrtc.log library
  [ -n "${ATTUNE_NVRTC:-}" ] && return 0
  ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so' && return 0
  [ -e /usr/local/cuda/lib64/libnvrtc.so ] && return 0
  attune_install python3 python3-venv || return 1
  if attune_pip_install "$venv" "$log" "nvidia-cuda-nvrtc${2:+==$2}"; then
    library=$(find "$(cd "$venv" && pwd)" -name 'libnvrtc.so.*' -not -name '*alt*' | head -1)
  fi
  if [ -z "${library:-}" ]; then
    echo "No NVRTC here, and its Python wheel could not be installed (see $log)." >&2
    return 1
  fi
  export ATTUNE_NVRTC=$library
  echo "NVRTC: $library"
}

# attune_find_numpy BUILD_DIR: finds numpy, which the tests of the Python module use. If python3 has none, installs it into a
# virtual environment under BUILD_DIR. Exports ATTUNE_PYTHON, the interpreter. If that fails, says why and returns 1.
attune_find_numpy() {
  local venv=$1/numpy log=$1/numpy.log
  export ATTUNE_PYTHON=${ATTUNE_PYTHON:-$(command -v python3)}
  "$ATTUNE_PYTHON" -c 'import numpy' 2>/dev/null && return 0
  if attune_pip_install "$venv" "$log" numpy; then
    ATTUNE_PYTHON=$(cd "$venv" && pwd)/bin/python
  else
    echo "python3 has no numpy here, and it could not be installed (see $log)." >&2
    return 1
  fi
}

# attune_find_packages BUILD_DIR REQUIREMENTS: installs the Python packages of a requirements file into a virtual environment
# under BUILD_DIR. Exports ATTUNE_PYTHON, its interpreter. If that fails, says why and returns 1.
attune_find_packages() {
  local venv=$1/python-packages log=$1/python-packages.log
  if ! attune_pip_install "$venv" "$log" -r "$2"; then
    echo "The packages of $2 could not be installed (see $log):" >&2
    tail -5 "$log" >&2
    return 1
  fi
  ATTUNE_PYTHON=$(cd "$venv" && pwd)/bin/python
  export ATTUNE_PYTHON
}
