#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of the program as a whole: help with an example for every command, --json everywhere, usage errors.
load contract

commands="doctor devices tune bench check explain emit compile export version"
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
  refused 1 subcommand
}

@test "unknown command" {
  attune tun
  refused 1 tun
}

@test "unknown option" {
  attune doctor --frob
  refused 1 --frob
}

@test "an option without its value" {
  attune emit --problem
  refused 1 --problem
}
