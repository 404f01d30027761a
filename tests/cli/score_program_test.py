#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Score features and callers' programs through the program `attune`: check, tune, explain, db, bench and emit treat
them as any part of a problem, and nothing but the program's file is new.

Usage: score_program_test.py PROGRAM
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BASE = "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=70,seqlen_kv=90"
SCORE = """// Less for far keys, more for keys of the row's own kind.
// capture kind: int32[2]
// capture gain: fp32[1]
int far = abs(q_idx - kv_idx) - 4;
float bonus = kind[batch][q_idx] == kind[batch][kv_idx] ? gain[head] : 0.0;
return far > 0 ? score - 0.01 * far + bonus : score + bonus;
"""
MASK = "return kv_idx % 7 != 3 || kv_idx > q_idx;\n"


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, ATTUNE_STORE=str(pathlib.Path(folder) / "store/store.db"), ATTUNE_LOCKS=folder)
        score, mask = pathlib.Path(folder) / "score.txt", pathlib.Path(folder) / "mask.txt"
        score.write_text(SCORE)
        mask.write_text(MASK)

        def run(*words, code=0, **variables):
            done = subprocess.run([program, *words], env=dict(environment, **variables), capture_output=True, text=True,
                                  timeout=250, check=False)
            if done.returncode != code:
                sys.exit(f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
            return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

        problems = [
            f"{BASE},mask=none,score_mod=@{score},mask_mod=@{mask}",
            f"{BASE},mask=causal_bottom_right,score_mod=@{score}",
            f"{BASE},softcap=30,alibi=1,bias=bf16,key_lengths=1,window=40:5"]
        for problem in problems:
            about = ("--target", "cpu", "--problem", problem)
            rows = run("check", *about, "--sample", "4", "--json")["rows"]
            assert any(row["template"] == "prefill_cpu" for row in rows), rows
            assert all(row["status"] == "ok" and row["error_max"] <= 1 for row in rows), rows

        about = ("--target", "cpu", "--problem", problems[0])
        run("tune", *about, "--effort", "quick", "--budget", "60", "--json")
        chosen = run("explain", *about, "--json")
        assert chosen["rung"] == "exact" and chosen["template"] == "prefill_cpu", chosen
        row = run("bench", *about, "--time", "0.2", "--json")["rows"][0]
        assert row["flops"] > 0, row
        source = run("emit", "--arch", "cpu", "--problem", problems[0], "--what", "source")
        assert "score_element" in source and "kScored" in source, source
        plain = run("emit", "--arch", "cpu", "--problem", BASE + ",mask=none", "--what", "source")
        assert "kScored = true" not in plain and "score_element" not in plain, plain

        # Options say what @FILE says, and a text may stand in a file's place.
        plain = ("--target", "cpu", "--problem", f"{BASE},mask=none")
        assert run("explain", *plain, "--score-mod", str(score), "--mask-mod", MASK,
                   "--json")["problem"] == chosen["problem"]
        refused = run("explain", *about, "--score-mod", str(score), code=1)
        assert "--score-mod is given" in refused and "must be only one of them" in refused, refused
        assert "score_mod:1:16: 'slops' is not declared" in run("explain", *plain, "--score-mod",
                                                                "return score - slops[head];", code=1)

        # Problems that are valid with a program alone.
        for more, *given in ((",block_map=skips", "--mask-mod", MASK), (",op=attention_backward,score_gradient=load",
                                                                        "--score-mod", str(score))):
            alone = ("--problem", BASE + ",mask=none" + more)
            assert all(
                row["status"] == "ok" for row in run("check", "--target", "cpu", *alone, *given, "--json")["rows"])
            run("emit", "--arch", "cpu", *alone, *given)
            assert more.split(",")[-1] in run("explain", "--target", "cpu", *alone, *given, "--json")["problem"]
            run("check", "--target", "cpu", *alone, code=1)

        # The store knows the texts, and so does what comes out of it. None of these commands is given a program.
        stored = ("--problem", chosen["problem"])
        other = str(pathlib.Path(folder) / "other/store.db")
        lines, bundle = str(pathlib.Path(folder) / "rows.jsonl"), str(pathlib.Path(folder) / "bundle")
        run("db", "export", lines)
        run("db", "import", lines, ATTUNE_STORE=other)
        run("export", bundle)
        for texts in (run("db", "show", *stored), run("emit", "--arch", "cpu", *stored, "--tuned"),
                      run("explain", "--target", "cpu", *stored), run("db", "show", *stored, ATTUNE_STORE=other),
                      run("explain", "--target", "cpu", *stored, ATTUNE_STORE="", ATTUNE_BUNDLE=bundle)):
            assert "Less for far keys" in texts and "kv_idx % 7 != 3" in texts, texts

        # Nor are those that make kernels; a digest that no store knows is bad input to all of them.
        done = run("tune", "--target", "cpu", *stored, "--effort", "quick", "--budget", "60", "--json")
        assert done["shapes"][0]["winner"], done
        assert run("compile", "--arch", "cpu", *stored, "--json")["failed"] == 0
        assert "score_element" in run("emit", "--arch", "cpu", *stored)
        strange = ("--problem", f"{BASE},mask=none,score_mod={'12' * 16}")
        for command in (("tune", "--target", "cpu"), ("compile", "--arch", "cpu"), ("emit", "--arch", "cpu"),
                        ("check", "--target", "cpu")):
            refused = run(*command, *strange, code=1)
            assert "nor has a store that it read; give the program's text (--score-mod FILE)" in refused, refused
            assert "compiled" not in refused, refused

        # A mask program that is a causal mask is one.
        causal = run("emit", "--arch", "cpu", *plain[2:], "--mask-mod",
                     "return kv_idx <= q_idx + seqlen_kv - seqlen_q;")
        assert "score_element" not in causal and "Mask kMask = Mask::kCausalBottomRight" in causal, causal

        # Random kernels, and random operands of one problem with programs.
        done = run("check", "--fuzz", "3", "--seed", "5", "--target", "cpu", "--json")
        assert done["cases"] >= 12 and done["failures"] == 0 and not done["list"], done
        done = run("check", "--fuzz", "5", *plain, "--score-mod", str(score), "--mask-mod", MASK, "--json")
        assert done["cases"] == 5 and done["kernels"] == 1 and done["failures"] == 0, done
        assert "5 cases of 1 kernels (prefill_cpu 1), 0 failed" in run("check", "--fuzz", "5", *plain, "--score-mod",
                                                                       str(score))
        assert "--fuzz is -1; must be at least 0" in run("check", "--fuzz", "-1", *plain, code=1)

        # An equal program in other words has the same winner; another program has none.
        score.write_text(SCORE.replace("int far", "int away").replace("far ", "away ").replace("* far", "* away"))
        assert run("explain", *about, "--json")["rung"] == "exact"
        score.write_text(SCORE.replace("0.01", "0.02"))
        assert run("explain", *about, "--json")["rung"] != "exact"

        score.write_text("return score - slops[head];\n")
        refused = run("explain", *about, code=1)
        assert "score.txt:1:16: 'slops' is not declared" in refused, refused
        score.write_text("// capture x: fp99[1]\nreturn score;\n")
        assert "is not a declaration" in run("explain", *about, code=1)
    print("check, tune, explain, bench, emit: score features and programs pass")


if __name__ == "__main__":
    main()
