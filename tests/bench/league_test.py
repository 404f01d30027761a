#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the league on the CPU: seed, draw, estimates, the file's rules, statistics, float64 samples, peers that fail,
and a run in steps. Usage: league_test.py ATTUNE. Skips aloud (status 77) without PyTorch."""
import contextlib
import io
import json
import math
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import torch
except ImportError:
    print("SKIP: PyTorch is not installed.")
    sys.exit(77)

import league
import league_bench
import league_draw
import league_error
import league_points
import league_record
import league_strata
import publish

ATTUNE = sys.argv.pop(1) if len(sys.argv) > 1 else "attune"
SEED = league_draw.seed_of("a" * 40, "2026-11-30")
cuda, cpu = league.device_module("cuda"), league.device_module("cpu")
import backward  # noqa: E402  (these are in the devices' folders)
import cases  # noqa: E402
import decode  # noqa: E402
import scores  # noqa: E402


def layers():
    """Returns the layers of some models, read by attune once."""
    if not hasattr(layers, "found"):
        types = set("""llama gemma qwen2 falcon mistral gemma2 gpt_oss bloom t5 bert vit deepseek_v3 modernbert glm phi
            stablelm FluxTransformer2DModel""".split())
        layers.found = league_draw.layers_of_table(ATTUNE, types)
    return layers.found


def drawn(kind, count=16, seed=SEED, device="cuda"):
    return league_draw.draw(league_strata.drawn_as(kind), league_strata.kinds_of(device)[kind], layers(), count, seed,
                            league_draw.LIMITS[device])


class DrawTest(unittest.TestCase):
    def test_seed(self):
        self.assertEqual(league_draw.seed_of("abc", "2026-11-30"),
                         "a3e94a8938ee7ff99cc9feaf40aef2c6f07dfe64c906bb15a5355817afa430fc")
        numbers = [league_draw.generator(SEED, "forward").random() for _ in range(2)]
        self.assertEqual(numbers[0], numbers[1])
        self.assertNotEqual(numbers[0], league_draw.generator(SEED, "serving").random())

    def test_layers_of_the_table(self):
        found = {}
        for layer in layers():
            found.setdefault(layer.model, []).append(layer)
        self.assertTrue(any(layer.window_left > 0 and layer.causal for layer in found["mistral"]))
        self.assertTrue(all(layer.softcap > 0 and "softcap" in layer.features for layer in found["gemma2"]))
        self.assertTrue(all("sinks" in layer.features for layer in found["gpt_oss"]))
        self.assertTrue(any(not layer.causal and layer.window_left > 0 for layer in found["modernbert"]))
        self.assertTrue(any((layer.head_dim, layer.head_dim_v) == (192, 128) for layer in found["deepseek_v3"]))
        self.assertTrue(any(layer.heads_kv < layer.heads_q for layer in found["falcon"] + found["glm"]))
        self.assertTrue(all(not layer.causal for layer in found["vit"]))

    def test_draw(self):
        for device in ("cuda", "cpu"):
            for kind, strata in league_strata.kinds_of(device).items():
                with self.subTest(kind):
                    points = drawn(kind, 3 * len(strata), device=device)
                    self.assertEqual(points, drawn(kind, 3 * len(strata), device=device))
                    self.assertNotEqual(points, drawn(kind, 3 * len(strata), "0" * 64, device))
                    self.assertEqual(points[:5], drawn(kind, 5, device=device))
                    self.assertEqual({one.stratum for one in points}, {stratum.name for stratum in strata})
                    self.assertTrue(all(league_draw.LIMITS[device].hold(one) for one in points))
                    self.assertEqual(len({repr({**one.case, "name": ""}) for one in points}), len(points))

    def test_gradients_share_their_points(self):
        plain, in_order = drawn("gradients"), drawn("gradients_deterministic")
        self.assertEqual([one.case for one in plain], [one.case for one in in_order])

    def test_lengths_are_log_uniform(self):
        rng = random.Random(1)
        logs = [math.log2(league_draw.log_uniform(rng, 16, 65536)) for _ in range(4000)]
        for quarter in range(4):
            share = sum(4 + 3 * quarter <= one < 7 + 3 * quarter for one in logs) / len(logs)
            self.assertAlmostEqual(share, 0.25, delta=0.03)

    def test_estimates(self):
        for point in drawn("forward", 40) + drawn("gradients", 40):
            case = cases.Case(**point.case)
            exact = case.flops * (2.5 if point.kind == "gradients" else 1)
            self.assertLess(abs(point.flops - exact), 0.5 * exact + 1e6, point)
        for point in drawn("serving", 40):
            case = decode.Case(**point.case)
            self.assertLess(abs(point.flops - case.flops), 0.01 * case.flops + 1, point)
            self.assertGreaterEqual(point.bytes, case.bytes)

    def test_attune_takes_the_problems(self):
        words = []
        for kind in cuda.BUILDERS:
            for point in drawn(kind, 8):
                words += ["--problem", cuda.problem_of({"kind": kind, **vars(point), "kind": kind})]
        for kind in cpu.BUILDERS:
            for point in drawn(kind, 2, device="cpu"):
                words += ["--problem", cpu.problem_of({**vars(point), "kind": kind})]
        for problem in league_points.POINTS:
            words += ["--problem", problem]
        done = subprocess.run([ATTUNE, "tune", "--dry-run", "--json", "--target", "cuda", *words], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout[:300])
        self.assertEqual(len(set(league_points.POINTS)), 40)


def run_of(record, commit="c", date="2026-11-30", options=None, kinds=("forward",)):
    return league_record.open_run(record, commit, date, "seed " + date, "cuda", options or {}, kinds)


def point_of(name, kind="forward"):
    return {"name": name, "kind": kind, "stratum": "short", "model": "llama", "case": {}}


class RecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "league.json"

    def begun(self, names="ab"):
        record = league_record.load(self.path)
        run = run_of(record)
        run["draw"]["forward"] = [point_of(name) for name in names]
        return record, run

    def test_runs_are_added_never_lost(self):
        record, run = self.begun()
        league_record.add(run, point_of("a"), {"failed": "no kernel"})
        league_record.save(self.path, record)
        again = league_record.load(self.path)
        self.assertIs(run_of(again, date="2026-12-01"), again["runs"][0])  # goes on, with its own draw
        self.assertEqual(again["runs"][0]["seed"], "seed 2026-11-30")
        league_record.add(again["runs"][0], point_of("b"), {"over_best_peer": {"default": 1.23456}, "mode": "m"})
        league_record.save(self.path, again)
        repeat = league_record.load(self.path)
        self.assertEqual(run_of(repeat)["number"], 2)
        league_record.save(self.path, repeat)
        self.assertEqual(len(league_record.load(self.path)["runs"]), 2)
        with self.assertRaisesRegex(ValueError, "must keep all runs"):
            league_record.save(self.path, again)
        repeat["runs"][0]["rows"]["forward"].pop(0)
        with self.assertRaisesRegex(ValueError, "rows of forward in run 1"):
            league_record.save(self.path, repeat)

    def test_first_run_counts(self):
        record, first = self.begun("")
        second = run_of(record)
        second["draw"].update(forward=[], gradients=[])
        other = run_of(record, commit="d")
        other["draw"]["forward"] = []
        self.assertTrue(league_record.counts(record, first, "forward"))
        self.assertFalse(league_record.counts(record, second, "forward"))
        self.assertTrue(league_record.counts(record, second, "gradients"))
        self.assertTrue(league_record.counts(record, other, "forward"))
        self.assertIsNot(run_of(record, commit="d", options={"tune": "quick"}), other)

    def test_a_point_that_ends_the_process_fails(self):
        record, run = self.begun()
        self.assertTrue(league_record.begin(run, point_of("a")) and league_record.begin(run, point_of("a")))
        league_record.forget(run, point_of("a"))
        self.assertTrue(league_record.begin(run, point_of("a")))
        self.assertFalse(league_record.begin(run, point_of("a")))
        self.assertEqual(run["rows"]["forward"][0]["failed"], league_record.GONE)
        self.assertEqual([one["name"] for one in league_record.left_of(run, "forward")], ["b"])

    def test_published(self):
        record, run = self.begun()
        timings = {"default": {"median_us": 2.0, "min_us": 1.0, "max_us": 3.0, "samples": 9}}
        for name, more in (("a", {"failed": "no kernel"}), ("b", {
                "over_best_peer": {"default": 1.25}, "mode": "m", "errors": {"default": 0.1}, "timings": timings})):
            league_record.add(run, point_of(name), more)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(publish, "RESULTS", Path(folder)):
            league_record.publish_part("h200", record)
            part = publish.load("league", "h200")
            kind = part["runs"][0]["kinds"]["forward"]
            self.assertEqual((part["commit"], kind["counts"], kind["summary"]["default"]["geomean"]), ("c", True, 1.25))
            self.assertEqual([row["point"] for row in kind["rows"]], ["a", "b"])
            self.assertEqual(kind["rows"][1]["timings"]["default"], [2, 1, 3])
            run_of(record, commit="d")
            league_record.publish_part("h200", record)
            league_record.publish_part("h200", {**record, "runs": record["runs"][:1]})  # the other machine's file
            runs = publish.load("league", "h200")["runs"]
            self.assertEqual(sorted(run["commit"] for run in runs), ["c", "d"])
            first = next(run for run in runs if run["commit"] == "c")
            self.assertEqual(first["kinds"]["forward"]["rows"], kind["rows"])


class StatisticsTest(unittest.TestCase):
    def test_quantile_and_geomean(self):
        values = [index / 10 for index in range(40, -1, -1)]
        self.assertAlmostEqual(league_record.quantile(values, 0.05), 0.2)
        self.assertAlmostEqual(league_record.quantile([1.0, 2.0], 0.05), 1.05)
        self.assertAlmostEqual(league_record.geomean([0.5, 2.0, 8.0]), 2.0)

    def test_summary(self):
        rows = [{"point": f"p{n}", "mode": "m", "over_best_peer": {"tuned": ratio, "default": 1.0},
                 "default_over_tuned": 0.5, "errors": {"tuned": n, "cudnn": 2 * n}}
                for n, ratio in enumerate((0.9, 1.0, 1.2), 1)]
        rows += [{"point": "bad", "failed": "no kernel"}, {"point": "alone", "mode": "m", "over_best_peer": {}}]
        found = league_record.summary(rows, {"a": {"time_s": 2.0}, "b": {"time_s": 4.0, "shape_s": 5.0}})
        self.assertEqual(found["failed"], {"bad": "no kernel"})
        self.assertEqual(found["without_peer"], ["alone"])
        self.assertEqual(found["tuned"]["below_1"], {"p1": 0.9})
        self.assertEqual((found["tuned"]["points"], found["tuned"]["lowest"]), (3, 0.9))
        self.assertAlmostEqual(found["tuned"]["geomean"], (0.9 * 1.2)**(1 / 3))
        self.assertEqual(found["tune_s"], {"problems": 2, "mean": 3.0, "largest": 5.0})
        self.assertEqual(found["errors"]["m"]["cudnn"], {"median": 4, "largest": 6, "points": 3})
        text = "\n".join(league_record.summary_lines("forward", found))
        for words in ("0.900  p1", "bad: no kernel", "1 failed", "default over tuned: geomean 0.500"):
            self.assertIn(words, text)

    def test_slow_points_are_timed_again(self):
        asked = []

        def measure(rounds):
            asked.append(rounds)
            peer = 0.96 if len(asked) == 1 else 1.5
            return {"tuned": [1.0] * rounds, "default": [2.0] * rounds, "a": [peer] * rounds, "b": [3.0] * rounds}
        _, verdict = league_record.judged(measure, ["tuned"], ["a", "b", "gone"], 9)
        self.assertEqual(asked, [9, 5])
        self.assertEqual((verdict["over_best_peer"], verdict["first"]), ({"tuned": 1.5}, {"tuned": 0.96}))
        asked.clear()
        asked.append(0)
        _, verdict = league_record.judged(measure, ["tuned", "default"], ["b"], 9)
        self.assertEqual((asked, verdict["over_best_peer"]), ([0, 9], {"tuned": 3.0, "default": 1.5}))
        self.assertEqual((verdict["default_over_tuned"], verdict["best_peer"]), (0.5, {"tuned": "b", "default": "b"}))

    def test_clock(self):
        times = iter([0, 10, 10, 40, 45, 80])
        clock = league.Clock(100, lambda: next(times))
        self.assertTrue(clock.allows("point", 90))
        with clock.timed("point"):
            pass
        self.assertFalse(clock.allows("point", 0))  # 45 and twice 30 are more than 100
        self.assertTrue(clock.allows("tune", 20))


def bench_of(ours, makers, **more):
    """Returns a bench of runners that return tensors, whose samples are the times that they name."""
    return league_bench.Bench(
        problem="p", mode="m", ours=ours, plans={}, makers=makers, result=lambda name, returned: returned,
        sampler=lambda run: lambda: getattr(run, "us", 1.0), **more)


def returning(value, us=1.0):
    def run():
        return torch.full((4, ), value)
    run.us = us
    return run


def turns(samplers, rounds):
    return {name: [sampler() for _ in range(rounds)] for name, sampler in samplers.items()}


class BenchTest(unittest.TestCase):
    def test_peers_that_fail_are_recorded(self):
        def raising():
            raise RuntimeError("no kernel image\nsecond line")
        sample = mock.Mock(error=lambda result: abs(result[0].item() - 1))
        bench = bench_of({"default": returning(1.0)}, {
            "fast": lambda: returning(1.001, 2.0), "none": lambda: None, "raises": raising,
            "wrong": lambda: returning(3.0), "late": lambda: raising}, sample=sample)
        row = league_bench.measured(bench, turns, 3)
        self.assertEqual(row["over_best_peer"], {"default": 2.0})
        self.assertEqual(set(row["refused"]), {"raises", "wrong", "late"})
        self.assertEqual(row["refused"]["late"], "no kernel image")
        self.assertEqual(set(row["errors"]), {"default", "fast"})

    def test_wrong_results_of_attune_fail(self):
        sample = mock.Mock(error=lambda result: abs(result[0].item() - 1))
        for value in (1.5, math.nan):
            with self.assertRaisesRegex(league_bench.Wrong, "float64"):
                league_bench.measured(bench_of({"default": returning(value)}, {}, sample=sample), turns, 3)
        with self.assertRaisesRegex(league_bench.Wrong, "differ"):
            league_bench.measured(bench_of({"default": returning(1.5)}, {"peer": lambda: returning(1.0)}), turns, 3)

    def test_last_resort(self):
        flex = {"flex": lambda: returning(1.0, 4.0)}
        alone = league_bench.measured(bench_of({"default": returning(1.0)}, {}, last_resort=flex), turns, 3)
        self.assertEqual(alone["best_peer"], {"default": "flex"})
        served = bench_of({"default": returning(1.0)}, {"peer": lambda: returning(1.0, 5.0)}, last_resort=flex)
        self.assertEqual(set(league_bench.measured(served, turns, 3)["timings"]), {"default", "peer"})


class SampleTest(unittest.TestCase):
    def test_gradients(self):
        torch.manual_seed(1)
        case = cases.Case("", 2, 70, 90, 4, 2, 16, True, 30)
        q, k, v, dout = (torch.randn(2, n, h, 16, dtype=torch.float64, requires_grad=True)
                         for n, h in ((70, 4), (90, 2), (90, 2), (70, 4)))
        wide = [x.repeat_interleave(2, 2) for x in (k, v)]
        scores = torch.einsum("bihd,bjhd->bhij", q, wide[0]) / 4
        scores = scores.masked_fill(league_error.hidden(case, range(70), 90, "cpu"), -math.inf)
        o = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), wide[1])
        want = torch.autograd.grad(o, (q, k, v), dout)
        with mock.patch.object(league_error, "CHUNK", 32):
            sample = league_error.GradientSample(case, *(x.detach() for x in (q, k, v, dout)), random.Random(1))
        self.assertLess(sample.error(want), 1e-12)
        self.assertGreater(sample.error((want[0], want[1], want[2] * 1.01)), 0.005)
        dense = league_error.DenseSample(case, *(x.detach() for x in (q, k, v)), random.Random(1))
        self.assertLess(dense.error(o.detach()), 1e-12)

    def test_caches(self):
        for more in ({"page": 16}, {"rows": 5, "page": 8}, {"packed": True}, {"dtype_kv": "int8", "by_key": True},
                     {"head_dim": 96, "head_dim_v": 64, "heads_kv": 1, "page": 4}):
            case = decode.Case("", (40, 17, 64), **{"heads": 4, "heads_kv": 2, "head_dim": 32, **more})
            torch.manual_seed(2)
            sets = decode.Sets(case, "cpu", 1)
            sample = league_error.CacheSample(case, sets, random.Random(3))
            context = cpu.attune.Context("cpu:1", store="")
            sets.number = len(sets.caches) - 1
            with mock.patch.object(torch, "empty", lambda *shape, device, dtype: torch.zeros(shape, dtype=dtype)):
                run = decode.ours(case, sets, context)
            with self.subTest(more):
                self.assertLess(sample.error(run()), 0.01)

    def test_scores(self):
        context = cpu.attune.Context("cpu:1", store="")
        with mock.patch.object(torch.Tensor, "cuda", lambda self: self), mock.patch.object(
                scores.torch, "randn", on_cpu(torch.randn)), mock.patch.object(
                    scores.torch, "arange", on_cpu(torch.arange)), mock.patch.object(
                        scores.torch, "tensor", on_cpu(torch.tensor)):
            for point in drawn("scores", 8):
                case = scores.Case(**{**point.case, "name": "", "seqlen": 48, "batch": 2})
                q, k, v = (torch.randn(2, 48, heads, width).bfloat16() for heads, width in (
                    (case.heads[0], case.head_dim), (case.heads[1], case.head_dim), (case.heads[1], case.width_v)))
                given = scores.tensors_of(case)
                masks = {"is_causal": True} if case.causal else {}
                if case.window >= 0:
                    masks["window"] = (case.window, 0)
                o = cpu.attune.attention(q, k, v, context=context, **given, **masks)
                dense = cases.Case("", 2, 48, 48, *case.heads, case.head_dim, case.causal, case.window)
                terms = league_error.score_terms(case, given)
                sample = league_error.DenseSample(dense, q, k, v, random.Random(3), terms)
                with self.subTest(point.stratum):
                    self.assertLess(sample.error(o), 0.01)


def on_cpu(make):
    return lambda *words, **given: make(*words, **{key: one for key, one in given.items() if key != "device"})


class StepsTest(unittest.TestCase):
    """Whole calls on the CPU, of which each has time for a part alone."""

    def test_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "out.json"
            words = [ATTUNE, "--device", "cpu", "--threads", "1", "--defaults", "--count", "1", "--rounds", "3",
                     "--out", str(path), "--commit", "b" * 40]
            kinds = ["--kinds", "forward_fp32,gradients_bf16,decode_fp16"]
            with mock.patch.object(league_draw, "layers_of_table", lambda program: layers()), mock.patch.object(
                    cpu, "SAMPLE_US", 500), contextlib.redirect_stdout(io.StringIO()) as text:
                self.assertEqual(league.main(words + kinds + ["--budget", "1"]), league.PARTIAL)
                with mock.patch.object(cpu.cpu_decode, "torch_runner", side_effect=RuntimeError("no peer")):
                    self.assertEqual(league.main(words + kinds), 0)
                with mock.patch.object(cpu.attune, "attention_kvcache", side_effect=RuntimeError("no kernel")):
                    self.assertEqual(league.main(words + ["--kinds", "decode_bf16"]), 1)
            record = json.loads(path.read_text())
            run, = record["runs"]
            self.assertEqual(len(run["calls"]), 3)
            for row in run["rows"]["forward_fp32"] + run["rows"]["gradients_bf16"]:
                self.assertGreater(row["over_best_peer"]["default"], 0)
                self.assertLess(row["errors"]["default"], 0.02)
            self.assertEqual(run["rows"]["decode_fp16"][0]["refused"], {"torch": "no peer"})
            self.assertEqual([row["failed"] for row in run["rows"]["decode_bf16"]], ["no kernel"])
            self.assertIn("over the best peer: geomean", text.getvalue())

    def test_tuning(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "out.json"
            run = {"tunes": {}, "options": {"tune": "quick"}}
            problems = ["dtype=fp32,head_dim=32,heads=2,seqlen=64", "dtype=fp32,head_dim=7,heads=2,seqlen=64"]
            with mock.patch.object(league, "TUNED_AT_ONCE", 1):
                self.assertTrue(league.tune(ATTUNE, run, "k", problems, path.with_suffix(".db"), "cpu:1",
                                            league.Clock(None)))
                self.assertFalse(league.tune(ATTUNE, run, "k", problems + ["dtype=fp32,head_dim=16,heads=2,seqlen=64"],
                                             path.with_suffix(".db"), "cpu:1", league.Clock(1)))
            self.assertGreater(run["tunes"]["k"][problems[0]]["time_s"], 0)
            self.assertIn("head_dim", run["tunes"]["k"][problems[1]]["note"])
            league.compile_defaults(ATTUNE, problems[:1], path.with_suffix(".defaults"))
            self.assertTrue(path.with_suffix(".defaults").exists())


if __name__ == "__main__":
    unittest.main()
