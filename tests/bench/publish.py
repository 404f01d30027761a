# SPDX-License-Identifier: Apache-2.0
"""Writes results: one row a line, four significant digits.

    python3 tests/bench/publish.py TOPIC PART FILE [--commit HASH]

puts a benchmark's result (its --out FILE) into tests/bench/results/TOPIC.json as the part PART, and replaces an older
part of that name. A published part keeps device, date, commit, versions and command. A row keeps [median, lowest,
highest] of each time in us, ratios and the config.

Fields that follow from others are left out: speeds (`flops` or `bytes` over the median), and default configs (given by
the commit). `knobs` holds, for each template, the most frequent value of each knob in the part; a row's config holds
the knobs that differ from it. Rows are lists under their `columns`. A dot in a column's name separates a group from a
name in it; load() returns rows as the benchmark wrote them. The topic league takes a file of league.py, with all runs.

    python3 tests/bench/publish.py sanitizer FILE

puts the counts of sanitize.py into the table tests/bench/results/sanitizer.json: a line for each program of the run.
"""
import argparse
import collections
import json
import re
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
DERIVED = {"bytes_us", "tuned_is_default", "missing_peers", "schema"}
SPEEDS = {"tflops", "gflops", "tb_per_s", "gb_per_s"}  # left out of rows that have flops or bytes
DERIVED_OF_ROWS = DERIVED | {"rmse", "over_twin", "rungs"}  # fp8_error.py: they follow from `relative`
NOTES = [
    "racecheck follows the one lane of a warp that arrives at a barrier. It reports shared memory that a warp hands on "
    "behind a __syncwarp, words of cache_sm90 and mla_sm90 that tell tiles, and L2 and delta of backward_sm90. It also "
    "reports values that teams of decode_sm80 join, if other groups of warps share the columns of a head.",
    "Where every lane arrived, the read-after-write reports were gone. memcheck, synccheck and results are clean "
    "either way."]
TOOLS = ("memcheck", "racecheck", "synccheck")


def commit():
    """Returns the short hash of the tree's commit; None if git does not know it."""
    found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                           check=False)
    return found.stdout.strip() or None


def rounded(value):
    """Returns value with numbers of four significant digits. JSON has no NaN: unmeasured values become null."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    if not isinstance(value, float):
        return value
    if value != value:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def has_rows(value):
    if isinstance(value, dict):
        return is_table(value) or any(has_rows(one) for one in value.values())
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def is_table(value):
    return isinstance(value, dict) and value.keys() == {"columns", "rows"}


def compact_json(value):
    """Returns JSON in which each row of a list, and each group of facts, has a line."""
    def line(one):
        return json.dumps(one, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    if is_table(value):
        return f'{{"columns":{line(value["columns"])},"rows":[\n' + ",\n".join(map(line, value["rows"])) + "\n]}"
    if not has_rows(value):
        return line(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(compact_json, value)) + "\n]"
    facts = {key: one for key, one in value.items() if not isinstance(one, (dict, list))}
    parts = [line(facts)[1:-1]] if facts else []
    parts += [f"{line(key)}:{compact_json(one)}" for key, one in value.items() if key not in facts]
    return "{\n" + ",\n".join(parts) + "\n}"


def write(path, result):
    """Replaces the file atomically: an interrupted run leaves the older file in place."""
    part = Path(str(path) + ".part")
    part.write_text(compact_json(rounded(result)) + "\n")
    part.replace(path)


def write_result(path, result):
    """Writes a benchmark's result, with the commit of the tree."""
    write(path, {"commit": commit(), **result})


def is_timing(value):
    return isinstance(value, dict) and "median_us" in value and "min_us" in value


def is_plan(value):
    return isinstance(value, dict) and "config" in value and "rung" in value


def knobs_of(config):
    return dict(knob.split("=", 1) for knob in config.split(",") if knob)


def usual_knobs(configs):
    """Returns the most frequent value of each knob of some configs of one template."""
    values = {}
    for config in configs:
        for knob, value in knobs_of(config).items():
            values.setdefault(knob, []).append(value)
    return {knob: statistics.mode(found) for knob, found in values.items()}


def shorter_problem(text):
    """Returns the problem's text with one number for equal lengths or equal numbers of heads."""
    text = re.sub(r"seqlen_q=(\d+),seqlen_kv=\1(?!\d)", r"seqlen=\1", text)
    return re.sub(r"heads=(\d+)/\1(?!\d)", r"heads=\1", text)


def grouped(failures):
    """Returns each error of each peer once, with its number of cases and without folders."""
    counts = collections.Counter((one["peer"], re.sub(r"\S*/", "", one["error"])) for one in failures)
    return [{"peer": peer, "error": error, "cases": count} for (peer, error), count in counts.items()]


class Shortener:
    """Leaves out fields that follow from others; collects facts that the part states once."""
    def __init__(self, result):
        self.samples, self.host, self.rungs, self.configs = set(), {}, set(), {}
        self.collect(result)
        self.usual = {template: usual_knobs(configs) for template, configs in self.configs.items()}

    def collect(self, value):
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            self.collect(one)
        if isinstance(value, dict) and "same_config" in value and "configs" in value:
            self.configs.setdefault("", []).extend(value["configs"].values())
        if is_timing(value):
            self.samples.add(value.get("samples", 0))
        if is_plan(value):
            self.rungs.add(value["rung"])
            self.configs.setdefault(value.get("template", ""), []).append(value["config"])

    def plan(self, plan):
        template = plan.get("template", "")
        usual = self.usual[template]
        left = [f"{knob}={value}" for knob, value in knobs_of(plan["config"]).items() if usual.get(knob) != value]
        left += [f"{knob}=" for knob in usual if knob not in knobs_of(plan["config"])]
        return " ".join(filter(None, (template, ",".join(left))))

    def field(self, key, value):
        if key == "plans":
            return {name: plan for name, plan in value.items() if name != "default"}
        if key == "extra_bytes":
            return {name: count for name, count in value.items() if count}
        if key == "configs":  # in results of compare_stores.py
            plans = {name: {"config": config} for name, config in value.items()}
            return {"both": self.plan(plans["first"])} if value["first"] == value["second"] else {
                name: self.plan(plan) for name, plan in plans.items()}
        if key == "failures":
            return grouped(value)
        if key == "problem":
            return shorter_problem(value)
        if key == "timings":
            for name, timing in value.items():
                if "enqueue_us" in timing:
                    self.host.setdefault(name, []).append(timing["enqueue_us"])
        return value

    def short(self, value, in_rows=False):
        if is_timing(value):
            return [value[key] for key in ("median_us", "min_us", "max_us") if key in value]
        if is_plan(value):
            return self.plan(value)
        if isinstance(value, list):
            return [self.short(one, True) for one in value]
        if not isinstance(value, dict):
            return value
        left_out = (DERIVED_OF_ROWS if in_rows else DERIVED) | (SPEEDS if {"flops", "bytes"} & value.keys() else set())
        fields = {key: self.short(self.field(key, one), in_rows) for key, one in value.items()
                  if key not in left_out and one is not None}
        return {key: one for key, one in fields.items() if one not in ({}, [])}


def published(result, of_commit):
    """Returns the published part of a benchmark's result."""
    shortener = Shortener(result)
    short = shortener.short(result)
    if "driver" in short:
        short["driver"] = short["driver"].split("\n")[0]
    facts = {"commit": short.pop("commit", None) or of_commit}
    if max(shortener.samples, default=0):
        facts["samples"] = max(shortener.samples)
    if shortener.rungs:
        facts["rungs"] = ", ".join(sorted(shortener.rungs))
    if shortener.host:
        facts["host_us"] = {name: statistics.median(costs) for name, costs in shortener.host.items()}
    usual = {template: ",".join(map("=".join, knobs.items())) for template, knobs in shortener.usual.items() if knobs}
    return {**facts, **({"knobs": usual} if usual else {}), **tables(short)}


def flat(row, path=()):
    """Yields (path of keys joined by points, value) for each value of a row."""
    for key, value in row.items():
        if isinstance(value, dict) and value:
            yield from flat(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


def tables(value):
    """Returns value with each list of rows as columns and lists."""
    if isinstance(value, dict):
        return {key: tables(one) for key, one in value.items()}
    if not has_rows(value) or any(map(has_rows, value)) or len(value) == 1:
        return [tables(one) for one in value] if isinstance(value, list) else value
    rows = [dict(flat(row)) for row in value]
    counts = collections.Counter(name for row in rows for name in row)
    columns = sorted(counts, key=lambda name: -counts[name])  # so that rows can drop missing values at their end
    return {"columns": columns, "rows": [
        [row.get(name) for name in columns[:1 + max(i for i, name in enumerate(columns) if name in row)]]
        for row in rows]}


def untabled(value):
    """The inverse of tables()."""
    if isinstance(value, list):
        return [untabled(one) for one in value]
    if not isinstance(value, dict):
        return value
    if not is_table(value):
        return {key: untabled(one) for key, one in value.items()}
    rows = []
    for values in value["rows"]:
        rows.append(row := {})
        for name, one in zip(value["columns"], values):
            if one is not None:
                *groups, last = name.split(".")
                group = row
                for key in groups:
                    group = group.setdefault(key, {})
                group[last] = one
    return rows


def load(topic, part=None):
    """Returns a part of a published file; without a name, {name: part} for all parts."""
    parts = untabled(json.loads((RESULTS / f"{topic}.json").read_text()))
    return parts if part is None else parts[part]


def publish(topic, part, result, of_commit=None):
    path = RESULTS / f"{topic}.json"
    parts = json.loads(path.read_text()) if path.exists() else {}
    parts[part] = published(result, of_commit or commit())
    write(path, parts)


def sanitizer_rows(result, of_commit):
    """Returns a row per program of a run of sanitize.py: its runs per tool, and per tool the runs with a report."""
    rows = {}
    for row in result["rows"]:
        found = rows.setdefault(row["template"], {"program": row["template"], "runs": 0, **dict.fromkeys(TOOLS, 0)})
        found["runs"] += row["tool"] == TOOLS[0]
        found[row["tool"]] += row["errors"] != 0 or row["exit_status"] != 0
    words = result["command"].split(" --", 1)[1].split(" --out ")[0] if " --" in result["command"] else ""
    words = re.sub(r"(^|--| --)jobs \d+", "", words)
    facts = {"device": result["device"], "date": result["date"][:10], "commit": result.get("commit") or of_commit,
             "arguments": "--" + words if words else ""}
    return [{**row, **facts} for row in rows.values()]


def publish_sanitizer(result, of_commit=None):
    path = RESULTS / "sanitizer.json"
    rows = untabled(json.loads(path.read_text()))["programs"] if path.exists() else []
    new = sanitizer_rows(result, of_commit or commit())

    def same(row, other):
        return all(row[key] == other[key] for key in ("program", "device", "arguments"))

    rows = [row for row in rows if not any(same(row, other) for other in new)] + new
    rows.sort(key=lambda row: (row["program"], row["date"], row["arguments"]))
    write(path, {"command": "tests/bench/cuda/sanitize.py BUILD ARGUMENTS --out FILE",
                 "driver": result["driver"].split()[0], "counts": "runs of each tool; of these with a report",
                 "notes": NOTES, "programs": tables(rows)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("part", nargs="?", help="not for the sanitizer's table")
    parser.add_argument("file")
    parser.add_argument("--commit", help="the measured commit, if the result does not name it")
    given = parser.parse_args()
    result = json.loads(Path(given.file).read_text())
    if given.topic == "sanitizer":
        publish_sanitizer(result, given.commit)
    elif given.part is None:
        parser.error("PART is missing; must be given except for the topic sanitizer")
    elif given.topic == "league":
        import league_record  # which imports this module
        league_record.publish_part(given.part, result)
    else:
        publish(given.topic, given.part, result, given.commit)


if __name__ == "__main__":
    main()
