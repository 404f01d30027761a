#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's and FlashAttention's published grids of the forward (published_grids.py) on attune.sdpa and attune.flash
against float64. Skips aloud (status 77) without PyTorch or the device.

    published_grids_test.py [cpu | cuda]                                  some small points of each grid
    published_grids_test.py cuda --whole --seconds 400 --jobs 14          all points, kernel by kernel, as many as
        the time gives; says what failed, how
                                                                          many are left and where to go on: --start N
    published_grids_test.py cuda --point FLASH_2:1234                     that one"""
import argparse
import os
import random
import sys
import tempfile
import unittest
import warnings

from skips import torch
import attune
import grid_points
import grid_runner
import published_grids as grids

GRIDS = grid_points.SDPA + grid_points.FLASH
SAMPLE = {"cpu": (1, 1 << 17), "cuda": (12, 1 << 22)}  # points of a grid, and the most scores of a head


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--seconds", type=float, default=400, help="no point begins after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of kernels")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="skip the first N kernels of the order")
    parser.add_argument("--grid", action="append", choices=GRIDS, help="only these grids")
    parser.add_argument("--largest", type=int, default=None, help="skip points with more scores per head")
    parser.add_argument("--store", default=None,
                        help="store that keeps kernels for the next run; default: a temporary one")
    parser.add_argument("--point", default=None, metavar="GRID:INDEX")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class PublishedGridsTest(unittest.TestCase):
    """Some points of each grid, drawn by its name."""
    device = "cpu"

    def test_samples(self):
        points, (most, largest) = grid_points.Points(self.device), SAMPLE[self.device]
        for name in GRIDS:
            small = [i for i, point in enumerate(grid_points.points_of(name)) if grids.size_of(point) <= largest]
            for index in random.Random(name).sample(small, min(most, len(small))):
                with self.subTest(grid=name, index=index, **grid_points.points_of(name)[index]):
                    points.check(name, index)

    def test_references_in_parts(self):
        """grid_points.reference() gives the same result part by part as at once."""
        draw = grid_points.Points(self.device).draw
        q, k, v = draw(3, 5, 4, 16), draw(3, 7, 2, 16, seed=1), draw(3, 7, 2, 16, seed=2)
        rests = ({
            "seen": grids.visible(5, 7, "bottom_right", device=self.device), "alibi": draw(3, 4, seed=3), "sinks": draw(
                4, seed=4), "kept": draw(3, 4, 5, 7)}, {"seen": draw(3, 1, 5, 7) > 0, "bias": draw(1, 4, 5, 7)}, {
                    "bias": draw(3, 4, 1, 7)}, {"bias": draw(5, 7), "softcap": 3.0})
        most, grid_points.MOST_SCORES = grid_points.MOST_SCORES, 1
        try:
            for rest in rests:
                for part, whole in zip(grid_points.reference(q, k, v, **rest), grids.reference(q, k, v, **rest),
                                       strict=True):
                    self.assertTrue(torch.allclose(part, whole, rtol=1e-12, atol=1e-12, equal_nan=True))
        finally:
            grid_points.MOST_SCORES = most

    def test_points_of_one_kernel(self):
        """Many points share a kernel, also of several grids, and each grid's axes are among what tells kernels apart or
        lengths, scales and batches."""
        seen = {}
        for name in ("SDPA_FLASH", "SDPA_EFFICIENT"):
            for index, _ in enumerate(grid_points.points_of(name)):
                seen.setdefault(grid_points.kernel_of(name, index), set()).add(name)
        self.assertEqual(sum(len(names) == 2 for names in seen.values()),
                         7 * 2 * 2 * 2)  # head dims, causal or not, dtypes, dropout of 0 and 0.22
        runtime = {"batch", "seqlen_q", "seqlen_kv", "lengths", "scale", "heads", "mask_shape", "kvpacked"}
        named = {
            "dtype", "head_dim", "head_dim_v", "kind", "causal", "local", "softcap", "alibi", "sink", "dropout_p",
            "bool_mask"}
        for name in GRIDS:
            self.assertLessEqual(set(getattr(grids, name)), runtime | named)


def whole(arguments):
    wanted = [(name, index) for name in arguments.grid or GRIDS
              for index, point in enumerate(grid_points.points_of(name))
              if arguments.largest is None or grids.size_of(point) <= arguments.largest]
    groups = grid_runner.in_order(wanted, grid_points.kernel_of, arguments.seed)
    print(f"{len(wanted)} points of {len(groups)} kernels", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTUNE_STORE"] = arguments.store or os.path.join(folder, "store.db")
        run = grid_runner.Run([sys.executable, __file__, arguments.device, "--worker", "--jobs",
                               str(arguments.jobs)], groups, arguments.seconds, arguments.jobs, arguments.start)
        run.go(tell=lambda line: print(line, flush=True))
    script = os.path.relpath(__file__)
    line_of = lambda point: (f"python3 {script} {arguments.device} --point {point[0]}:{point[1]}  "
                             f"# {grid_points.points_of(point[0])[point[1]]}")
    return grid_runner.report(run, line_of)


def is_alive():
    """True if the device still works: an error of a kernel ends its process."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return True
    except RuntimeError:
        return False


def main():
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("SKIP: PyTorch sees no GPU here")
        return 77
    warnings.filterwarnings("ignore", message="attune copies q, k and v")
    if arguments.worker:
        torch.set_num_threads(1)
        if arguments.device == "cuda":
            torch.cuda.set_per_process_memory_fraction(0.85 / arguments.jobs)
        grid_runner.work(grid_points.Points(arguments.device, arguments.device == "cuda").check, is_alive)
        return 0
    try:
        attune.Context(arguments.device, store="")
    except attune.Error as error:
        print(f"SKIP: {error}")
        return 77
    if arguments.whole:
        return whole(arguments)
    os.environ.setdefault("ATTUNE_STORE", "")
    if arguments.point:
        name, _, index = arguments.point.partition(":")
        grid_points.Points(arguments.device).check(name, int(index))
        print(f"{arguments.point} is right: {grid_points.points_of(name)[int(index)]}")
        return 0
    PublishedGridsTest.device = arguments.device
    return not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
