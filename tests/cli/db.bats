#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune db`: reading, upkeep and exchange of stores.
load contract

@test "ls and show report the trials, their times and the reasons" {
  tuned
  attune db ls --json
  expect 0
  json 'len(o["winners"]) == 1 and o["winners"][0]["template"] == "prefill_cpu" and o["winners"][0]["why"]'
  attune db show --problem $problem --json
  expect 0
  json 'len(o["trials"]) > 3 and sum(t["is_default"] for t in o["trials"]) == 1'
  json 'all(t["timing"]["samples"] > 0 for t in o["trials"] if t["status"] == "ok")'
  attune db show --problem $problem
  expect 0
  [[ $output == *"(default)"* && $output == *"95 % interval"* && $output == *"winner  "* ]]
  local head=${output%%Explored*}
  [[ $head == *"Final race of 20"*"over default"*"winner  "* && $head == *"(default)"* ]]
}

@test "show --limit leaves rows of exploring out and counts them" {
  tuned
  attune db show --problem $problem
  expect 0
  local all
  all=$(wc -l <<<"$output")
  attune db show --problem $problem --limit 1
  expect 0
  [[ $output == *" more rows; all are shown without --limit"* && $output == *"Final race of"* ]]
  [ "$(wc -l <<<"$output")" -lt "$all" ]
  attune db show --problem $problem --limit=-1
  refused 1 "--limit is -1; must be at least 0"
}

@test "show puts the final first, marks the winner, and compares within a race" {
  tuned
  attune db show --problem $problem --json
  expect 0
  json '[t["is_winner"] for t in o["trials"]].count(True) == 1 and o["trials"][0]["in_final"]'
  json 'next(t for t in o["trials"] if t["is_winner"])["config"] == o["winners"][0]["config"]'
  json 'all(t["created"] == o["winners"][0]["created"] for t in o["trials"] if t["in_final"])'
  json 'any(t["is_default"] and t["in_final"] for t in o["trials"])'
  json 'sorted(o["trials"], key=lambda t: (t["status"] != "ok", not t["in_final"], -t["round"])) == o["trials"]'
  json 'len({t["created"] for t in o["trials"] if t["round"] > 0}) == len({t["round"] for t in o["trials"] if t["round"] > 0})'
  # Times of other races do not matter: a trial that was explored in a quieter moment still comes after the final.
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("update trial set median_us = 0.5, lo_us = 0.4, hi_us = 0.6, created = '2020-01-01T00:00:00.000Z' "
                   "where id = (select max(id) from trial where is_default = 0 and config <> (select config from winner))")
connection.commit()
END
  attune db show --problem $problem --json
  json 'o["trials"][0]["in_final"] and [t["timing"]["time_s"] for t in o["trials"] if t["round"] == 1] == [5e-07]'
}

@test "ls --template and --device filter" {
  tuned
  attune db ls --template prefill_sm80 --json
  expect 0
  json 'o["winners"] == []'
  attune db ls --template nope
  refused 2 '--template is "nope", which neither this version of attune nor' prefill_sm80 prefill_cpu
  attune db show --problem $problem --template nope
  refused 2 '--template is "nope"'
  attune db ls --device ffffffff --json
  json 'o["winners"] == []'
}

@test "stats counts and verify is content" {
  tuned
  attune db stats --json
  expect 0
  json 'o["winners"] == 1 and o["problems"] == 1 and o["trials"] > 3 and o["images"] > 0 and o["schema_version"] > 0'
  attune db verify --json
  expect 0
  json 'o["sound"] and o["problems"] == []'
}

@test "stats print gauges for Prometheus" {
  tuned
  attune db stats --prom
  expect 0
  [[ $output == *'# TYPE attune_store_trials gauge'* ]]
  [[ $output == *'attune_store_winners{store="'*'",device="'*'",template="prefill_cpu",pinned="0"} 1'* ]]
  # every line is a comment or a name with labels and a number
  ! grep -vE '^# (HELP|TYPE) attune_store_[a-z_]+ .+|^attune_store_[a-z_]+\{([a-z]+="([^"\\]|\\.)*",?)+\} [0-9]+$' <<< "$output"
  attune db stats --prom --json
  refused 1 "--json excludes --prom"
}

@test "verify finds an altered image" {
  tuned
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
table, column = next((table, info[1])
                     for (table,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall()
                     for info in connection.execute(f"pragma table_info({table})") if info[2] == "BLOB")
connection.execute(f"update {table} set {column} = zeroblob(100)")
connection.commit()
END
  attune db verify --json
  expect 5
  json 'not o["sound"] and len(o["problems"]) > 0'
}

@test "rows go out as lines and into another store unchanged" {
  tuned
  attune db export "$dir/rows.jsonl" --json
  expect 0
  json 'o["winners"] == 1 and o["trials"] > 3'
  attune db import "$dir/rows.jsonl" --store "$dir/other/store.db" --json
  expect 0
  json 'o["added"] > 4 and o["replaced"] == 0'
  attune db export "$dir/again.jsonl" --store "$dir/other/store.db"
  expect 0
  cmp "$dir/rows.jsonl" "$dir/again.jsonl"
}

@test "import --dry-run changes nothing" {
  tuned
  attune db export "$dir/rows.jsonl"
  attune db import "$dir/rows.jsonl" --store "$dir/other/store.db" --dry-run --json
  expect 0
  json 'o["dry_run"] and o["added"] > 4 and all(s["what"].startswith("dtype=fp32,head_dim=64,heads=4/2,batch=1,") for s in o["steps"])'
  [ ! -e "$dir/other" ]
}

@test "merge takes slices with images; twice is once" {
  tuned
  attune db export "$dir/slice.db" --json
  expect 0
  json 'o["images"] > 0'
  attune db merge "$dir/slice.db" --store "$dir/other/store.db" --dry-run
  expect 0
  [[ $output == *"of the rows are images: code"* ]]
  attune db merge "$dir/slice.db" --store "$dir/other/store.db" --json
  expect 0
  json 'o["added"] > 4 and o["images"] > 0'
  attune db merge "$dir/slice.db" --store "$dir/other/store.db" --json
  json 'o["added"] == 0 and o["replaced"] == 0 and o["kept"] > 4'
  attune export "$dir/kernels" --store "$dir/other/store.db"
  expect 0
}

@test "gc keeps rows in use" {
  tuned
  attune db gc --json
  expect 0
  json 'o["winners"] == 0'
  attune db ls --json
  json 'len(o["winners"]) == 1'
}

@test "gc --max-size deletes the oldest kernels, which are compiled again, and no winner" {
  tuned
  attune db stats --json
  json 'o["images"] > 0'
  attune db gc --max-size 1G --json
  expect 0
  json 'o["images"] == 0'
  attune db gc --max-size 1k --json
  expect 0
  json 'o["images"] > 0 and o["winners"] == 0 and o["trials"] == 0'
  [[ $errors == *"trials, winners and pinned kernels stay"* ]]
  attune explain --target cpu --problem $problem --json
  json 'o["rung"] == "exact"'
  for size in 0 -1 5X 1e99G; do
    attune db gc --max-size "$size"
    refused 1 "--max-size is \"$size\"; must be a size such as 500M or 2G"
  done
}

@test "rm deletes only the named rows" {
  tuned
  local other=${problem/seqlen=128/seqlen=32}
  attune tune --target cpu --problem $other --effort quick --budget 20
  expect 0
  attune db rm --json
  refused 1 "give one or more of --problem, --device, --template and --older-than"
  attune db rm --older-than 1
  refused 2 "has no trial or winner that the options select"
  attune db rm --problem $other --dry-run --json
  expect 0
  json 'o["winners"] == 1 and o["trials"] > 0 and o["dry_run"]'
  attune db rm --problem ${other/causal_bottom_right/causal_top_left} --json  # in another form
  expect 0
  json 'o["winners"] == 1 and o["trials"] > 0 and not o["dry_run"]'
  attune db ls --json
  json 'len(o["winners"]) == 1'
  attune explain --target cpu --problem $problem --json
  json 'o["rung"] == "exact"'
  attune db show --problem $other
  refused 2 seqlen
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for table in ("trial", "winner"):
    connection.execute(f"update {table} set created = '2020' || substr(created, 5)")
connection.commit()
END
  attune db rm --older-than 365 --device nothing
  refused 2 "has no trial or winner that the options select"
  attune db rm --older-than 365
  expect 0
  [[ $output == "deleted "*" trials, 1 winners and "*" images" ]]
  attune db verify
  expect 0
}

@test "a store below a folder that may not be entered is not said to be missing" {
  attune db ls --store "$dir/$(printf 'x%.0s' {1..300}).db"
  refused 5 "File name too long"
}

@test "no store" {
  for name in ls stats verify gc "rm --older-than 1"; do
    attune db $name
    refused 5 "$ATTUNE_STORE" "attune tune"
  done
  [ ! -e "$ATTUNE_STORE" ]
}

@test "a problem that was never tuned" {
  tuned
  attune db show --problem ${problem/seqlen=128/seqlen=77}
  refused 2 seqlen=77
}

@test "a store written by a newer version: read, but not written" {
  tuned
  attune db export "$dir/rows.jsonl"
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("pragma user_version = 9999")
connection.commit()
END
  attune db gc
  refused 5 9999
  attune db import "$dir/rows.jsonl"
  refused 5 9999
}

@test "gc leaves a damaged store alone, and nothing is written over a store" {
  tuned
  cp "$ATTUNE_STORE" "$dir/damaged.db"
  cp "$ATTUNE_STORE" "$dir/whole.db"
  head -c 512 /dev/zero | tr '\0' '\377' | dd of="$dir/damaged.db" bs=1 seek=4096 conv=notrunc 2>/dev/null
  cp "$dir/damaged.db" "$dir/before.db"
  attune db gc --store "$dir/damaged.db"
  expect 5
  [[ "$errors" == *"the store is damaged, and nothing of it was deleted"* ]]
  cmp "$dir/damaged.db" "$dir/before.db"
  cp "$dir/whole.db" "$dir/before.db"
  attune report --store "$dir/whole.db" --out "$dir/whole.db"
  refused 1 "it is a store"
  attune pin "$dir/whole.db" --store "$dir/whole.db"
  refused 1 "it is a store"
  cmp "$dir/whole.db" "$dir/before.db"
}

@test "a damaged line is refused before anything is stored" {
  tuned
  attune db export "$dir/rows.jsonl"
  echo '{"kind": "trial", "spec"' >>"$dir/rows.jsonl"
  attune db import "$dir/rows.jsonl" --store "$dir/other/store.db"
  refused 1 rows.jsonl
  [ ! -e "$dir/other/store.db" ]
}

@test "a file that was cut off, or is empty, is refused before anything is stored" {
  tuned
  attune db export "$dir/rows.jsonl"
  head -n 3 "$dir/rows.jsonl" >"$dir/cut.jsonl"
  attune db import "$dir/cut.jsonl" --store "$dir/other/store.db"
  refused 1 cut.jsonl "cut off"
  : >"$dir/empty.jsonl"
  attune db import "$dir/empty.jsonl" --store "$dir/other/store.db"
  refused 1 empty.jsonl "is empty"
  [ ! -e "$dir/other/store.db" ]
}

@test "rows that cannot be written are an error" {
  tuned
  [ -e /dev/full ] || skip "no /dev/full here"
  local command
  for command in "db export -" "db ls" "db show --problem $problem" "db stats" "db ls --json"; do
    status=0
    # shellcheck disable=SC2086
    errors=$("$ATTUNE" $command 2>&1 >/dev/full) || status=$?
    [ "$status" -eq 5 ] && [[ $errors == *"cannot write to stdout"* ]] || { echo "$command: $status $errors"; return 1; }
  done
}

@test "control characters in a store do not reach the terminal" {
  tuned
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("update winner set why = ?", ("fast\x1b]0;owned\x07\u009b31m\n",))
connection.execute("update trial set reason = ?, status = 4", ("\x1b[2J",))
connection.commit()
END
  local command
  for command in "db ls" "db show --problem $problem" "db show --json --problem $problem" "explain --target cpu --problem $problem"; do
    # shellcheck disable=SC2086
    attune $command
    expect 0
    [[ $output$errors != *$'\x1b'* && $output$errors != *$'\x07'* && $output$errors != *$'\xc2\x9b'* ]] || { echo "$command: $output"; return 1; }
  done
}

@test "an export with an unknown file ending" {
  tuned
  attune db export "$dir/rows.xml"
  refused 1 rows.xml .jsonl
}

@test "a file that does not exist" {
  attune db import "$dir/none.jsonl"
  refused 5 none.jsonl
}
