#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The views of a store against cache/VIEWS.md: each column is described and each described column exists, every query
of the page and of datasette.yml runs, in datasette itself and sqlite3 too where they are installed, and what views say
of a store with known rows is right. Argument: the program attune."""
import contextlib
import importlib.util
import json
import pathlib
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ATTUNE = sys.argv[1]
PAGE = (ROOT / "cache/VIEWS.md").read_text()
FILE = (ROOT / "runtime/share/datasette.yml").read_text()


def make_store(folder, *arguments):
    store = pathlib.Path(folder) / "private/store.db"
    store.parent.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(
        [sys.executable, ROOT / "tests/cli/sample_store.py", "--attune", ATTUNE, "--store", store, *arguments],
        check=True)
    return store


def one(database, sql):
    return database.execute(sql).fetchone()


def check_columns(database):
    described = {}
    for name, text in re.findall(r"^## (v_\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        rows = re.findall(r"^\| (`.*?) \|", text, re.M)
        described[name] = [column for row in rows for column in re.findall(r"`(\w+)`", row)]
    views = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name")]
    assert views == sorted(described), (views, sorted(described))
    for name, columns in described.items():
        there = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        assert sorted(there) == sorted(columns), f"{name}: {sorted(set(there) ^ set(columns))}"
        assert f"      {name}:" in FILE, f"datasette.yml does not know {name}"


def check_queries(database):
    queries = [query for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.M | re.S) for query in block.splitlines()]
    queries += re.findall(r'sql: "(.*)"', FILE)
    assert len(queries) >= 12, queries
    for query in queries:
        database.execute(query).fetchall()


def check_rows(database):
    assert one(database, "SELECT count(*) FROM v_winner") == one(database, "SELECT count(*) FROM winner")
    assert one(database, "SELECT count(*) FROM v_trial") == one(database, "SELECT count(*) FROM trial")
    gain, lo, hi, expected = one(
        database, "SELECT gain, gain_lo, gain_hi, default_median_us / median_us FROM v_winner ORDER BY gain DESC")
    assert gain == expected and lo < gain < hi and gain > 1
    failed = one(database, "SELECT count(*) FROM trial WHERE status <> 0")[0]
    assert failed > 0 and one(database, "SELECT sum(trials), count(*) FROM v_failure") == (failed, 1)
    assert one(database, "SELECT reason FROM v_failure") == ("ptxas spills 128 bytes",)
    assert one(database,
               "SELECT min(to_best), count(*) FILTER (WHERE to_best = 1) FROM v_trial WHERE status = 'ok'") == (1, 6)
    # keys 3 and 5 of six are of an older text, and an older driver; key 0 was measured under another power limit
    digest = one(database, "SELECT max(template_digest) FROM v_trial")[0]
    assert database.execute("SELECT reason, was, now, count(*) FROM v_stale GROUP BY 1, 2").fetchall() == \
        [("power_limit", "600 W", "700 W", 1), ("template", "0" * 32, digest, 2)]
    assert one(database, "SELECT power_limit_w, count(*) FROM v_winner GROUP BY 1") == (600, 1)
    assert one(database, "SELECT min(power_limit_w), max(power_limit_w) FROM v_trial") == (600, 700)
    assert one(database, "SELECT sum(trials) FROM v_knob_effect WHERE knob = 'block_m'") == one(
        database, "SELECT count(*) FROM trial")
    assert one(database, "SELECT count(DISTINCT knob), min(least_to_best) FROM v_knob_effect") == (6, 1)
    count, least = one(database, "SELECT count(*), min(distance) FROM v_runner_up")
    assert count == 6 and least >= 0
    assert one(database, "SELECT count(*) FROM v_flip") == (0,)
    assert one(database, "SELECT sum(noisy), sum(default_noisy) FROM v_winner") == (0, 0)
    database.execute("UPDATE winner SET hi_us = lo_us + 0.21 * median_us WHERE id = 1")
    database.execute("UPDATE trial SET hi_us = lo_us + 0.19 * median_us WHERE id = 1")
    assert one(database, "SELECT sum(noisy), sum(default_noisy) FROM v_winner") == (1, 0)
    assert one(database, "SELECT noisy FROM v_trial WHERE trial_id = 1")[0] in (0, None)


def check_flip(database):
    """Adds the problem with a later toolchain and another config: one flip, whose intervals do not overlap."""
    database.execute(
        "INSERT INTO toolchain SELECT 99, 'later', template_name, 'later', compiler, options FROM toolchain WHERE id = "
        "1"
    )
    columns = [row[1] for row in database.execute("PRAGMA table_info(winner)") if row[1] != "id"]
    new = {
        "toolchain_id": "99", "config": "'block_m=1'", "median_us": "median_us * 2", "lo_us": "median_us * 1.9",
        "hi_us": "median_us * 2.1", "created": "'2027-01-01T00:00:00.000Z'"}
    database.execute(
        f"INSERT INTO winner ({','.join(columns)}) SELECT {','.join(new.get(column, column) for column in columns)} "
        f"FROM winner"
        " WHERE id = 1")
    assert one(database,
               "SELECT to_config, overlap, round(to_median_us / from_median_us) FROM v_flip") == ("block_m=1", 0, 2)
    assert one(database, "SELECT count(*) FROM v_flip") == (1,)
    assert one(database, "SELECT count(*) FROM v_stale WHERE reason = 'template' AND now = 'later'")[0] > 0
    revision = one(database, "SELECT substr(was, 1, instr(was, '.')) FROM v_stale WHERE was LIKE 'r%.%' LIMIT 1")[0]
    database.execute("UPDATE toolchain SET template_digest = ? WHERE id = 99", (revision + "later",))
    reasons = database.execute("SELECT DISTINCT reason, was LIKE ? FROM v_stale WHERE now = ?",
                               (revision + "%", revision + "later")).fetchall()
    assert sorted(reasons) == [("template", 0), ("text", 1)], reasons


def check_damage(database):
    """Checks that texts that are not JSON do not end a query."""
    database.execute("UPDATE trial SET info = 'no json', config = 'a=\"b\",c' WHERE id = 1")
    assert one(database, "SELECT registers FROM v_trial WHERE trial_id = 1") == (None,)
    check_queries(database)


def tool(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True,
                          timeout=120).stdout


def check_tools(store):
    """Runs the page's shell lines, with this store instead of the user's and the file of the tree instead of the
    installed one."""
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]
    commands = {words[0]: words for words in map(shlex.split, lines)}
    assert set(commands) == {"sqlite3", "datasette"}, lines
    places = {"~/.cache/attune/store.db": store, "share/attune/datasette.yml": ROOT / "runtime/share/datasette.yml"}
    if shutil.which("sqlite3"):
        assert "NVIDIA H200" in tool(*[places.get(word, word) for word in commands["sqlite3"]])
    else:
        print("SKIP: no sqlite3 here")
    if importlib.util.find_spec("datasette") is None:
        print("SKIP: no datasette here")
        return
    words = [places.get(word, word) for word in commands["datasette"]][1:]
    for name in re.findall(r"^      (\w+):", FILE, re.M):  # views and canned queries
        page = json.loads(tool(sys.executable, "-m", "datasette", *words, "--get", f"/store/{name}.json"))
        assert page["database"] == "store" and "rows" in page, (name, page)


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(folder, "--keys", "6", "--trials", "20")
        check_tools(store)
        with contextlib.closing(sqlite3.connect(store)) as database:
            database.execute("PRAGMA trusted_schema = 0")
            check_columns(database)
            check_queries(database)
            check_rows(database)
            check_flip(database)
            check_damage(database)
    print("views are as cache/VIEWS.md says")


if __name__ == "__main__":
    main()
