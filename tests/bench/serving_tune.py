# SPDX-License-Identifier: Apache-2.0
"""Tunes what an engine calls for models (`attune tune MODEL --serving`), each from an empty store, and prints how much
tuning gains over the default configs.

    python3 tests/bench/serving_tune.py BUILD_DIR/bin/attune --out FILE [--models Llama-3.1-8B,...] [--target cuda]
        [--effort normal] [--budget SECONDS for each model]

A row has the medians of the tune's final race: default and tuned config, timed in turns. `gain` is default over tuned;
it is 1 where the default won. A model's `time_s` is the whole tune, compiling included.
"""
import argparse
import datetime
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
SERVED = "Llama-3.1-8B,Qwen3-30B-A3B,gpt-oss-20b,DeepSeek-V3"
PARTIAL = 6  # exit code: the budget ended


def tuned(arguments, model, store):
    words = [
        arguments.attune, "tune", str(MODELS / model), "--serving", "--json", "--target", arguments.target, "--effort",
        arguments.effort, "--store", store]
    if arguments.budget:
        words += ["--budget", str(arguments.budget)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, PARTIAL):
        raise SystemExit(f"{model}: `{' '.join(words)}` ended with {done.returncode}")
    return json.loads(done.stdout)


def row_of(shape):
    winner = shape["winner"]
    if winner is None:
        return {"problem": shape["problem"], "note": shape["note"]}
    if not winner["default"]["time_s"]:
        return {"problem": shape["problem"], "note": "the default config does not work"}
    default, best = winner["default"]["time_s"] * 1e6, winner["tuned"]["time_s"] * 1e6
    return {
        "problem": shape["problem"], "default_us": default, "tuned_us": best, "gain": default / best,
        "template": winner["template"], "config": winner["config"], "time_s": shape["time_s"],
        "trials": shape["trials"]}


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(answer):
    rows = [row_of(shape) for shape in answer["shapes"]]
    gains = [row["gain"] for row in rows if "gain" in row]
    return {
        "problems": len(rows), "untuned": len(rows) - len(gains), "time_s": answer["time_s"],
        "budget_s": answer["budget_s"], "compiled": answer["compiled"], "complete": not answer["partial"],
        "gain_geomean": geomean(gains) if gains else None, "gain_lowest": min(gains, default=None), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attune")
    parser.add_argument("--out", required=True)
    parser.add_argument("--models", default=SERVED)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--budget", type=int)
    arguments = parser.parse_args()
    result = {
        "command": "tests/bench/serving_tune.py", "effort": arguments.effort,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "models": {}}
    for model in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            answer = tuned(arguments, model, f"{folder}/store.db")
        found = result["models"][model] = summary(answer)
        result.update(device=answer["device"]["name"], driver=answer["device"]["driver"])
        Path(arguments.out).write_text(json.dumps(result, indent=1))
        gains = "nothing tuned" if not found["gain_geomean"] else (
            f"gain {found['gain_geomean']:.3f}, lowest {found['gain_lowest']:.3f}")
        print(f"{model}: {found['problems']} problems in {found['time_s']:.0f} s "
              f"({found['time_s'] / max(found['problems'], 1):.1f} s each), {gains}", flush=True)
        for row in found["rows"]:
            print("   " + (f"{row['gain']:.3f} {row['tuned_us']:9.1f} us {row['time_s']:5.1f} s {row['problem']} "
                           f"{row['config']}" if "gain" in row else f"{row['problem']}: {row['note']}"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
