#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of the program as a whole: help with an example for every command, --json everywhere, usage errors.
load contract

commands="doctor devices models tune bench check explain emit compile export pin version"
db_commands="ls show stats verify gc export import merge"

@test "every command's help shows an example and --json" {
  local name
  for name in $commands; do
    attune "$name" --help
    expect 0
    [[ $output == *"Example:"*"attune $name"* && $output == *--json* ]]
  done
  for name in $db_commands; do
    attune db "$name" --help
    expect 0
    [[ $output == *"Example:"*"attune db $name"* && $output == *--json* ]]
  done
}

@test "the program's help lists the commands and the exit codes" {
  attune --help
  expect 0
  local name
  for name in $commands db; do [[ $output == *"  $name "* ]]; done
  [[ $output == *"Exit codes: 0 ok, 1 bad usage"* ]]
}

@test "no command" {
  attune
  refused 1 "no command was given" tune doctor
  attune db
  refused 1 "no command was given" "commands of attune db" verify
}

@test "an unknown command is named, with a suggestion and the list of commands" {
  attune tun
  refused 1 '"tun" is not a command' "did you mean tune?" doctor explain
  attune db shwo
  refused 1 '"shwo"' "did you mean show?" verify
  attune frobnicate --json
  refused 1 '"frobnicate" is not a command; commands of attune are doctor,'
}

@test "--json: an error is JSON on stdout, too" {
  attune explain --problem dtype=fp32 --json
  refused 1 "the problem has no heads"
  attune bench --problem $problem --store "$dir/none.db" --target gpu --json
  refused 1 'target is "gpu"'
}

@test "a problem's parts are separated by commas, causal is a mask, a window has two sides" {
  attune explain --problem "dtype=bf16 head_dim=128 heads=4 seqlen=64"
  refused 1 '"dtype=bf16 head_dim=128 heads=4 seqlen=64"; keys must be separated by commas'
  attune explain --problem "dtype=bf16,head_dim=128,heads=4,seqlen=64,window=128"
  refused 1 "127:0 for 128 causal keys"
  attune tune --dry-run --target cuda --problem dtype=bf16,head_dim=128,heads=4,seqlen=64,mask=causal --problem dtype=bf16,head_dim=64,heads=4,seqlen=64,is_causal=1 --json
  expect 0
  json 'all("mask=causal_bottom_right" in one for one in o["problems"]) and len(o["problems"]) == 2'
  attune explain --problem dtype=bf16,head_dim=128,heads=4,seqlen_q=64,seqlen_kv=65,mask=causal
  refused 1 "mask is causal, with 64 queries and 65 keys" causal_top_left causal_bottom_right
  attune explain --problem dtype=bf16,head_dim=128,heads=4,seqlen=64,mask=none,is_causal=1
  refused 1 "mask and is_causal both set mask"
  attune explain --problem dtype=bf16,head_dim=128,heads=4,seqlen=64,is_causal=yes
  refused 1 'is_causal is "yes"; must be 0 or 1'
}

@test "an expression is not a program, and the error shows a program" {
  attune explain --problem $problem --mask-mod 'kv_idx <= q_idx'
  refused 1 "--mask-mod is \"kv_idx <= q_idx\"" "'return kv_idx <= q_idx;'"
}

@test "--dry-run refuses targets that are not there" {
  for wrong in gpu nonsense cuda:99 cpu:0 cpu:x; do
    attune tune --dry-run --target $wrong --problem $problem
    [ "$status" -ne 0 ] || { echo "$wrong is taken"; return 1; }
    [ -z "$output" ]
  done
  attune tune --dry-run --target cuda --problem $problem
  expect 0
}

@test "--version prints the version, help the help" {
  attune --version
  expect 0
  [[ $output =~ ^attune\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
  attune help
  expect 0
  local whole=$output
  attune --help
  [ "$output" = "$whole" ]
  attune help db show
  expect 0
  [[ $output == *"Example:"*"attune db show"* ]]
}

@test "an expression instead of a program is refused with the missing parts" {
  attune emit --arch sm_80 --problem $problem --mask-mod "kv_idx <= q_idx"
  refused 1 '--mask-mod is "kv_idx <= q_idx", and no file has that name' "'return kv_idx <= q_idx;'"
  attune emit --arch sm_80 --problem $problem --score-mod none.txt
  refused 5 "the program file none.txt cannot be read"
}

@test "an option in place of a value is refused, and no file of its name is written" {
  cd "$dir"
  for words in "tune --trace" "emit --out" "bench --problem" "tune --effort" "db rm --store"; do
    attune $words --json
    refused 1 "${words##* }: --json is an option; must be a value" || return 1
  done
  [ -z "$(find . -name '--*')" ]
}

@test "an unknown option points to the command's own help" {
  attune doctor --frob
  refused 1 '"--frob" is not an option of attune doctor' "attune doctor --help lists the options"
  attune explain --out kernels
  refused 1 '"--out" is not an option of attune explain; attune emit, attune compile and attune report have it'
  attune tune --bugdet 3
  refused 1 '"--bugdet"' "did you mean --budget?" "attune tune --help"
  attune db ls winners
  refused 1 '"winners" was not expected' "attune db ls --help"
}

@test "an option without its value" {
  attune emit --problem
  refused 1 --problem "attune emit --help"
}

@test "attune help problem lists keys, masks and types, and every command that takes a problem points there" {
  local name word
  attune help problem
  expect 0
  for word in "  mask  " causal_top_left causal_bottom_right "  dtype  " bf16 e5m2 "  heads  " Q/KV "  window  " "  rotation  "; do
    [[ $output == *"$word"* ]] || { echo "attune help problem lacks $word"; return 1; }
  done
  for name in tune bench check compile emit explain "db show"; do
    # shellcheck disable=SC2086
    attune $name --help
    expect 0
    [[ $output == *"Keys of a problem: attune help problem"* && $(wc -l <<<"$output") -lt 100 ]]
  done
  for name in tune bench check explain; do
    attune $name --help
    [[ $output == *cpu:THREADS* ]]
  done
}

@test "-V prints the version" {
  attune -V
  expect 0
  [ "$output" = "$(attune --version && echo "$output")" ]
  [[ $output == "attune "[0-9]* ]]
}

@test "bash completes commands and options" {
  attune completion bash
  expect 0
  eval "$output"
  complete_words() {
    COMP_WORDS=(attune "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _attune
    echo "${COMPREPLY[*]}"
  }
  [ "$(complete_words tu)" = tune ]
  [ "$(complete_words db sh)" = show ]
  [[ $(complete_words tune --se) == *"--seqlen"*"--serving"* ]]
  [ "$(complete_words tune --serving --dry)" = --dry-run ]
  [ "$(complete_words tune --effort qu)" = quick ]
  [ "$(complete_words tune --effort = qu)" = quick ]
  [ "$(complete_words emit --arch rtx40)" = "rtx4080 rtx4090" ]
  [ "$(complete_words emit --arch sm_80,l40)" = "sm_80,l40 sm_80,l40s" ]
  [ "$(complete_words tune --as whisp)" = whisper ]
  [ "$(complete_words compile --dtype bf16,fp)" = "bf16,fp32 bf16,fp16" ]
  [[ $(complete_words compile --template prefill_sm9) == *prefill_sm90* ]]
  [ "$(complete_words tune --problem see)" = "" ]
  [[ " $(complete_words tune --problem seq) " == *" seqlen= "* ]]
  [ "$(complete_words tune --problem op = append)" = append_kv ]
  [ "$(complete_words tune --problem op = append_kv,dtype = bf)" = bf16 ]
  [ "$(complete_words tune --problem op = append_kv,page_s)" = append_kv,page_size= ]
  [ "$(complete_words tune --problem op=append_kv,dtype=bf)" = op=append_kv,dtype=bf16 ]  # as zsh has it
  [ "$(complete_words completion f)" = fish ]
  [ "$(complete_words tune --budget 1)" = "" ]  # any text
  attune completion tcsh
  refused 1 tcsh bash zsh fish
}

@test "the completions of zsh and fish and the manual page name every command" {
  local shell name
  for shell in zsh fish man; do
    attune completion $shell
    expect 0
    for name in doctor tune bench explain export completion; do
      [[ $output == *"$name"* ]] || { echo "$shell lacks $name"; return 1; }
    done
  done
  attune completion fish
  [[ $output == *"-l effort -r -a 'quick normal exhaustive'"* && $output == *"-l as -r -a '"*" whisper "* ]]
  attune completion man
  [[ $output != *"serving VALUE"* && $output == *"page\\-size VALUE"* ]]
  if command -v man >/dev/null; then
    attune completion man
    MANWIDTH=80 man --warnings -l <(echo "$output") >"$dir/page" 2>"$dir/warnings"
    grep -q -- --max-batch-tokens "$dir/page"
    [ ! -s "$dir/warnings" ]
  fi
}

@test "spaces after the commas of a problem" {
  attune emit --arch sm_80 --problem "dtype=bf16, head_dim=64, heads=8/2, seqlen=128, mask=causal_top_left"
  expect 0
}

@test "output that cannot be written is an error" {
  [ -e /dev/full ] || skip "no /dev/full here"
  local command
  for command in "version" "version --json" "--version" "--help" "tune --help" "doctor" "doctor --json" "devices" \
    "emit --arch sm_80 --problem ${problem/fp32/bf16}" "emit --json --arch sm_80 --problem ${problem/fp32/bf16}"; do
    status=0
    # shellcheck disable=SC2086
    errors=$("$ATTUNE" $command 2>&1 >/dev/full) || status=$?
    [ "$status" -eq 5 ] && [[ $errors == *"cannot write to stdout: No space left"* ]] ||
      { echo "attune $command > /dev/full: $status $errors"; return 1; }
  done
}

@test "a stderr that takes nothing changes no exit code" {
  [ -e /dev/full ] || skip "no /dev/full here"
  local command
  for command in "1 frobnicate" "5 db ls --store $dir/none.db" "1 explain --problem mask=round"; do
    status=0
    # shellcheck disable=SC2086
    "$ATTUNE" ${command#* } 2>/dev/full || status=$?
    [ "$status" -eq "${command%% *}" ] || { echo "attune ${command#* }, stderr full: $status"; return 1; }
    status=0
    # shellcheck disable=SC2086
    "$ATTUNE" ${command#* } 2>&- || status=$?
    [ "$status" -eq "${command%% *}" ] || { echo "attune ${command#* }, stderr closed: $status"; return 1; }
  done
}

@test "a tune whose stderr takes nothing goes on to its end" {
  [ -e /dev/full ] || skip "no /dev/full here"
  tuned
  status=0
  output=$("$ATTUNE" tune --target cpu --problem $problem --effort quick 2>/dev/full) || status=$?
  expect 0
  [[ $output == *"tuned before"* ]]
}

@test "a file at the limit of files' sizes is an error" {
  status=0
  errors=$(ulimit -f 4; "$ATTUNE" emit --arch sm_80 --problem "${problem/fp32/bf16}" --out "$dir/kernel.cu" 2>&1) || status=$?
  [ "$status" -eq 5 ] && [[ $errors == *"cannot write $dir/kernel.cu: File too large"* ]] || { echo "$status $errors"; return 1; }
  [ -z "$(find "$dir" -name '*.part')" ]
}

@test "a failed write leaves no empty store and no empty folder" {
  tuned
  status=0
  errors=$(ulimit -f 1; "$ATTUNE" db merge "$ATTUNE_STORE" --store "$dir/new.db" 2>&1) || status=$?
  [ "$status" -eq 5 ] && [ ! -e "$dir/new.db" ] || { echo "$status $errors"; return 1; }
  status=0
  errors=$(ulimit -f 1; "$ATTUNE" export "$dir/kernels" 2>&1) || status=$?
  [ "$status" -eq 5 ] && [ ! -e "$dir/kernels" ] || { echo "$status $errors"; return 1; }
}

@test "control characters of a command line and of files do not reach the terminal" {
  attune explain --target cpu --problem $'mask=\x1b]0;title\x07'
  expect 1
  [[ $errors == *'\x1b]0;title\x07'* && $errors != *$'\x1b'* ]]
  attune emit --problem $problem --arch $'sm_\xc2\x9b31m'
  [[ $errors == *'\xc2\x9b'* && $errors != *$'\xc2\x9b'* ]]
}

@test "a budget that is not a decimal number of seconds" {
  local budget
  for budget in -5 nan inf 0x10 0 1e8 1e7h +5 " 5" 5d 5M s 1e-400; do
    attune tune --target cpu --problem $problem --dry-run --budget "$budget"
    refused 1 "--budget is \"$budget\"; must be a time above 0, as in 90, 90s, 10m or 1h" || return 1
  done
  for budget in .5 1e3 2h 90s; do
    attune tune --target cpu --problem $problem --dry-run --budget "$budget"
    expect 0 || return 1
  done
}

@test "an option in a command's place is named" {
  attune --foo
  refused 1 '"--foo" is not an option of attune (attune --help lists the commands)'
  attune --verson
  refused 1 "did you mean --version?"
  attune db --foo
  refused 1 '"--foo" is not an option of attune db'
}
