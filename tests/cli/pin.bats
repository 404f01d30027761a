#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune pin`, ATTUNE_PIN and ATTUNE_SITE_STORES.
load contract

@test "pin writes a file that runs, and check says so" {
  tuned
  attune pin "$dir/site.pin" --json
  expect 0
  json 'o["pins"] == 1 and o["devices"] == 1 and o["stale"] == 0 and len(o["digest"]) == 64'
  attune pin --check "$dir/site.pin" --target cpu --store "$ATTUNE_STORE" --json
  expect 0
  json 'o["pins"] == o["pins_here"] == 1 and not o["faults"] and not o["differences"]'
  [[ $(tail -1 "$dir/site.pin") == sha256\ * ]]
  attune pin -
  [ "$output" = "$(<"$dir/site.pin")" ]
  export ATTUNE_PIN=$dir/site.pin
  attune explain --target cpu --problem $problem --json
  json 'o["rung"] == "pinned" and o["settings"]["pin"].endswith("site.pin") and o["expected_time_s"] is None'
  attune doctor --json
  json 'any(v["name"] == "ATTUNE_PIN" and "1 pins" in str(v) for v in o["environment"])' || { echo "$output" | grep -A4 ATTUNE_PIN; false; }
}

@test "an edited, truncated or foreign pin file is refused" {
  tuned
  attune pin "$dir/site.pin"
  expect 0
  sed -i '2s/better\|default/worse/' "$dir/site.pin"
  ATTUNE_PIN=$dir/site.pin attune explain --target cpu --problem $problem
  refused 1 "site.pin: line 2"
  attune pin --check "$dir/site.pin"
  refused 1 "site.pin: line 2"
  head -1 "$dir/site.pin" >"$dir/cut.pin"
  attune pin --check "$dir/cut.pin"
  refused 1 "line 2: is missing"
  attune pin --check "$dir/none.pin"
  refused 5 "none.pin cannot be read"
}

@test "check reports where the store would pin another kernel" {
  tuned
  attune pin "$dir/site.pin"
  expect 0
  attune tune --target cpu --problem op=quantise,dtype=fp32,dtype_o=e4m3,heads=2,seqlen=1,head_dim=16 --effort quick
  expect 0
  attune pin --check "$dir/site.pin" --target cpu --store "$ATTUNE_STORE"
  expect 5
  [[ $output == *"only in the store: op=quantise"* ]]
}

@test "an empty store has nothing to pin" {
  mkdir -m 700 "$dir/store"
  attune pin "$dir/site.pin"
  [ "$status" -ne 0 ]
  [ ! -e "$dir/site.pin" ]
}

@test "a site's store is read, and never written" {
  tuned
  mkdir -m 700 "$dir/site"
  mv "$ATTUNE_STORE" "$dir/site/store.db"
  before=$(sha256sum "$dir/site/store.db")
  export ATTUNE_SITE_STORES=$dir/site/store.db
  attune bench --target cpu --problem $problem --no-standard --time 0.1 --json
  expect 0
  json 'o["rows"][0]["rung"] == "exact"'
  [ "$(sha256sum "$dir/site/store.db")" = "$before" ]
  attune explain --target cpu --problem $problem
  [[ $output == *"store      $dir/site/store.db"* ]]
  ATTUNE_SITE_STORES= attune explain --target cpu --problem $problem --json
  json 'o["rung"] == "default_config"'
}

@test "shards divide the problems, and report faults" {
  need_cpu_target
  attune tune "$models/Llama-3.1-8B/config.json" --target cpu --shard 1/3 --dry-run --json
  expect 0
  json 'len(o["problems"]) > 0'
  [[ $errors == *"attune: shard 1 of 3: "* ]]
  attune tune --problem $problem --target cpu --shard 3/3 --dry-run
  refused 1 '--shard is "3/3"; must be I/N'
  attune tune --problem $problem --target cpu --shard env --dry-run
  refused 1 "none of RANK"
  attune tune --problem $problem --target cpu --replicate 2 --dry-run
  refused 1 "--replicate is given without --shard"
  attune tune --problem $problem --target cpu --shard 0/2 --replicate 3 --dry-run
  refused 1 "--replicate is 3"
}

@test "a shard without problems ends well" {
  need_cpu_target
  for i in 0 1; do
    attune tune --problem op=quantise,dtype=fp32,dtype_o=e4m3,heads=2,seqlen=1,head_dim=16 --target cpu:1 --effort quick --shard $i/2
    expect 0
  done
}

@test "options of pin that nothing would read" {
  attune pin "$dir/site.pin" --target cpu
  refused 1 "--target is given without --check"
  attune pin - --json
  refused 1 "--json is given, and FILE is -"
  attune pin --check "$dir/site.pin" --template prefill_cpu
  refused 1 "--template is given with --check and without --store"
  attune pin --check "$dir/site.pin" --device 0123
  refused 1 "--device is given with --check and without --store"
}
