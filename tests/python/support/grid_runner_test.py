#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests grid_runner.py with points that only sleep, fail, end their process or hang."""
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

import grid_runner

POINTS = [("even" if i % 2 else "odd", i) for i in range(40)]


def check(name, index):
    """Runs a point of this test."""
    if index == 7:
        raise AssertionError(f"{name} {index} is wrong\nwith more words")
    if index == 11:
        os._exit(5)
    if index == 13:
        raise RuntimeError("the device is lost")
    if index >= 1000:
        pathlib.Path(sys.argv[2]).touch()
        time.sleep(index)
    time.sleep(0.02 if name == "slow" else 0.002)


def is_alive():
    return "device is lost" not in repr(sys.exc_info()[1])


def run_of(points, seconds=30, jobs=3, start=0, kernel_of=lambda name, index: index // 4):
    groups = grid_runner.in_order(points, kernel_of, 5)
    return groups, grid_runner.Run([sys.executable, __file__, "--worker"], groups, seconds, jobs,
                                   start).go(tell=lambda _: None)


class GridRunnerTest(unittest.TestCase):
    def test_orders(self):
        groups = grid_runner.in_order(POINTS, lambda name, index: index // 4, 5)
        self.assertEqual(sorted(point for group in groups for point in group), sorted(POINTS))
        self.assertTrue(all(len({index // 4 for _, index in group}) == 1 for group in groups))
        self.assertEqual(groups, grid_runner.in_order(POINTS, lambda name, index: index // 4, 5))
        self.assertNotEqual(groups, grid_runner.in_order(POINTS, lambda name, index: index // 4, 6))

    def test_each_point_runs_once_and_failures_are_reported(self):
        _, run = run_of(POINTS)
        self.assertEqual((run.ran, run.left(), run.next_start()), (40, 0, None))
        said = dict(run.failures)
        self.assertEqual(sorted(index for _, index in said), [7, 11, 13])
        self.assertRegex(said["even", 7], r"^grid_runner_test.py:\d+ AssertionError: even 7 is wrong$")
        self.assertEqual(said["even", 11], "its process ended with status 5")
        self.assertIn("the device is lost", said["even", 13])
        lines = []
        self.assertEqual(grid_runner.report(run, lambda point: f"repeat {point[0]}:{point[1]}", lines.append), 1)
        self.assertEqual(lines[0].split("  # ")[0], "repeat even:7")
        self.assertEqual(lines[-1], "40 points ran, 0 left, 3 failed")

    def test_a_run_that_ends_early_reports_the_points_left(self):
        points = [("slow", 100 + i) for i in range(400)]
        groups, run = run_of(points, seconds=0.6, jobs=2)
        self.assertEqual(run.ran + run.left(), 400)
        self.assertGreater(run.left(), 0)
        lines = []
        self.assertEqual(grid_runner.report(run, str, lines.append), 0)
        self.assertIn(f"--start {run.next_start()} goes on", lines[-1])
        _, rest = run_of(points, start=run.next_start())
        self.assertEqual(rest.left(), 0)
        self.assertGreaterEqual(run.ran + rest.ran, 400)
        self.assertLessEqual(run.ran + rest.ran, 400 + 2 * max(map(len, groups)))

    def test_a_point_that_hangs_is_ended(self):
        groups = grid_runner.in_order([("slow", 2), ("slow", 3000)], lambda *_: 0, 5)
        with tempfile.TemporaryDirectory() as folder:
            hangs = pathlib.Path(folder) / "hangs"
            run = grid_runner.Run([sys.executable, __file__, "--worker", str(hangs)], groups, 600, 1)

            def end_when_it_hangs():
                while not hangs.exists():
                    time.sleep(0.01)
                run.end = time.monotonic()

            grace, grid_runner.GRACE = grid_runner.GRACE, 0.3
            try:
                threading.Thread(target=end_when_it_hangs, daemon=True).start()
                run.go(tell=lambda _: None)
            finally:
                grid_runner.GRACE = grace
        self.assertEqual(run.failures, [(("slow", 3000), "it did not return")])
        self.assertEqual((run.ran, run.left()), (2, 0))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        grid_runner.work(check, is_alive)
        sys.exit(0)
    unittest.main()
