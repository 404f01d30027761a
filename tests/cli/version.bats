#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune version`.
load contract

@test "version prints a number and the templates" {
  attune version
  expect 0
  [[ $output =~ ^attune\ [0-9]+\.[0-9]+\.[0-9]+ && $output == *prefill_sm80* ]]
}

@test "version --json has one digest for each template" {
  attune version --json
  expect 0
  json 'o["schema"] == "attune.version/1" and all(len(t["digest"].split(".")[1]) == 32 for t in o["templates"])'
  json 'all(t["digest"].startswith("r") and int(t["digest"][1:].split(".")[0]) >= 1 for t in o["templates"])'
  json 'len({t["name"] for t in o["templates"]}) == len(o["templates"]) > 2'
}
