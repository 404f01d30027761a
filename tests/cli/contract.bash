# SPDX-License-Identifier: Apache-2.0
# Shared by the contract tests (bats `load contract`): a separate store and folder for each test, and checks of JSON,
# exit code and messages. ATTUNE is the program, ATTUNE_SOURCE the source tree.

setup() {
  : "${ATTUNE:?is the program to test}" "${ATTUNE_SOURCE:?is the source tree}"
  dir=$BATS_TEST_TMPDIR
  export ATTUNE_STORE=$dir/store/store.db
  export ATTUNE_LOCKS=$dir  # tests that run at the same time do not wait for each other
  models=$ATTUNE_SOURCE/examples/models
  problem=dtype=fp32,head_dim=64,heads=4/2,batch=1,seqlen=128,mask=causal_bottom_right
}

# attune ARGUMENT...: runs the program; $status, $output (stdout) and $errors (stderr) hold the result.
attune() {
  status=0
  asked_json=
  for word; do [ "$word" != --json ] || asked_json=1; done
  output=$(command "$ATTUNE" "$@" 2>"$dir/errors") || status=$?
  errors=$(<"$dir/errors")
}

# pretend_gpu MAJOR MINOR: the program finds a GPU of this compute capability, with facts of an H100. Nothing runs on it.
pretend_gpu() {
  local name
  mkdir -p "$dir/driver"
  {
    for name in $(sed -n 's/^ *X(cu[A-Za-z0-9]*, "\([A-Za-z0-9_]*\)".*/\1/p' "$ATTUNE_SOURCE/runtime/cuda/driver_table.hpp"); do
      case $name in
        cuDeviceGetCount | cuDeviceGetName | cuDeviceGetAttribute) ;;
        *) echo "int $name(void) { return 0; }" ;;
      esac
    done
    cat <<END
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* name) { return __builtin_strcpy(name, "Pretended GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute) {
  int all[128] = {[16] = 132, [36] = 2619000, [37] = 5120, [38] = 50 << 20, [75] = $1, [76] = $2, [82] = 65536, [97] = 227 << 10};
  return *value = all[attribute], 0;
}
END
  } >"$dir/driver/stub.c"
  cc -shared -fPIC -o "$dir/driver/libcuda.so.1" "$dir/driver/stub.c"
  export LD_LIBRARY_PATH=$dir/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# expect CODE: true if the last run ended with this exit code; otherwise prints its output.
expect() {
  [ "$status" -eq "$1" ] && return 0
  printf 'exit code %s, expected %s\n--- stdout\n%s\n--- stderr\n%s\n' "$status" "$1" "$output" "$errors"
  return 1
}

# within LIMIT: true if at most LIMIT seconds have passed since SECONDS was set to 0. Always true outside the CTest
# entries labelled timing, since a busy machine may be slow.
within() { [ -z "${ATTUNE_TEST_TIMING:-}" ] || [ "$SECONDS" -le "$1" ]; }

# run_on_terminal COLUMNS ARGUMENT...: runs the program on a terminal of that width (stdout and stderr); $output and $status hold
# what it showed and the exit code.
run_on_terminal() {
  status=0
  output=$("${PYTHON:-python3}" - "$ATTUNE" "$@" <<'END'
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[2]), 0, 0))
    os.execv(sys.argv[1], [sys.argv[1], *sys.argv[3:]])
text = b""
try:
    while piece := os.read(terminal, 65536):
        text += piece
except OSError:  # the program has ended
    pass
sys.stdout.buffer.write(text.replace(b"\r\n", b"\n"))
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
END
  ) || status=$?
}

# fits COLUMNS: true if no line in $output of run_on_terminal has more characters. Each version of an overwritten line
# counts.
fits() {
  local widest
  widest=$(printf '%s\n' "$output" | tr '\r' '\n' | LC_ALL=C sed 's/\x1b\[K//g; s/[\x80-\xbf]//g' | awk '{ if (length($0) > most) { most = length($0); line = $0 } } END { print most ": " line }')
  [ "${widest%%:*}" -le "$1" ] || { echo "wider than $1 columns: $widest"; return 1; }
}

# refused CODE TEXT...: true if the run ended with CODE and printed only one sentence to stderr, which contains every
# TEXT. With --json, stdout must hold the same sentence as JSON.
refused() {
  expect "$1" || return 1
  if [ -n "$asked_json" ]; then
    json 'o["schema"] == "attune.error/1" and set(o["error"]) == {"code", "message", "exit_code"} and o["error"]["exit_code"] == '$1 || return 1
    json '"attune: " + o["error"]["message"] == open("'"$dir/errors"'").read().rstrip("\n")' || return 1
    output=
  fi
  shift
  if [ -n "$output" ] || [ "$(wc -l <"$dir/errors")" -ne 1 ]; then
    printf 'expected one line on stderr and nothing on stdout\n--- stdout\n%s\n--- stderr\n%s\n' "$output" "$errors"
    return 1
  fi
  local text
  for text in "$@"; do
    [[ $errors == *"$text"* ]] || { printf 'stderr lacks "%s":\n%s\n' "$text" "$errors"; return 1; }
  done
}

# json EXPRESSION: true when stdout is one JSON object `o` for which the Python expression holds.
json() {
  printf '%s' "$output" | "${PYTHON:-python3}" -c '
import json, sys
text = sys.stdin.read()
o = json.loads(text)
assert o["schema"].startswith("attune."), o.get("schema")
if not eval(sys.argv[1]): sys.exit("false: " + sys.argv[1] + "\n" + text[:2000])' "$1"
}

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }
# Tests skip only if doctor reports the part as missing. So a program that does not run fails its tests.
doctor_says() { "$ATTUNE" doctor --json 2>/dev/null | grep -q "$1"; }
need_cpu_target() { ! doctor_says '"cpu_target_found": false' || skip "libattune_clang cannot be opened: built without LLVM and clang 19"; }
need_nvrtc() { ! doctor_says '"nvrtc_found": false' || skip "no NVRTC on this machine"; }

# spread SHARE STORE: makes the 95 % interval of every stored time this share of its median, as on a quiet or a busy machine.
spread() {
  "${PYTHON:-python3}" - "$@" <<'END'
import sqlite3, sys
half = float(sys.argv[1]) / 2
with sqlite3.connect(sys.argv[2]) as store:
    for table, prefix in (("trial", ""), ("winner", ""), ("winner", "default_")):
        store.execute(f"UPDATE {table} SET {prefix}lo_us = {prefix}median_us * (1 - {half}), {prefix}hi_us = {prefix}median_us * (1 + {half})")
END
}

# Gives the test a store in which $problem is tuned. It is tuned once per bats file.
tuned() {
  need_cpu_target
  local kept=$BATS_FILE_TMPDIR/tuned.db
  if [ ! -e "$kept" ]; then
    attune tune --target cpu --problem $problem --effort quick --budget 120 --store "$BATS_FILE_TMPDIR/tuned/store.db"
    expect 0 || return 1
    spread 0.02 "$BATS_FILE_TMPDIR/tuned/store.db"  # independent of the load of this machine
    mv "$BATS_FILE_TMPDIR/tuned/store.db" "$kept"
  fi
  mkdir -p -m 700 "${ATTUNE_STORE%/*}"
  cp -p "$kept" "$ATTUNE_STORE"
}
