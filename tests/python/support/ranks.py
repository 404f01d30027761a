# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a test over gloo as forks of this process, which has imported PyTorch, and runs tests in them.
All ranks run the same tests in the same order, and stop at the first that fails."""
import datetime
import os
import pathlib
import sys
import tempfile
import time
import traceback
import unittest

from skips import skip, torch
import torch.distributed as dist

import attune
import attune.distributed as ad


class WithGroups(unittest.TestCase):
    """The tests of one rank, with groups of the whole world and of its first two ranks. All ranks run the same tests in
    the same order."""
    groups = {}  # by the number of ranks; None for a rank outside

    @classmethod
    def setUpClass(cls):
        two = dist.new_group([0, 1])
        cls.groups = {dist.get_world_size(): ad.Group(), 2: ad.Group(two) if dist.get_rank() < 2 else None}


def run_rank(rank, world, folder, tests, limit_s=250):
    """Runs the TestCase `tests` as one rank. limit_s: of any transfer. Returns True if all succeeded."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/start", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=limit_s))
    loaded = unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    return unittest.TextTestRunner(failfast=True, verbosity=2).run(loaded).wasSuccessful()


def fork_rank(rank, world, folder, tests):
    """Returns the process id of a fork that runs the rank. Its output goes to the file log.RANK."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        log = os.open(f"{folder}/log.{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 0 if run_rank(rank, world, folder, tests) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # destroying a broken group may wait


def run_ranks(tests, world, seconds=280, tail=4000):
    """Runs the TestCase `tests` in `world` processes. Returns their exit statuses, minus the signal that ended one, and
    the ends of their outputs."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        children = [fork_rank(rank, world, folder, tests) for rank in range(world)]
        found, until = {}, time.monotonic() + seconds
        while len(found) < world and time.monotonic() < until:
            for child in children:
                ended, status = (0, 0) if child in found else os.waitpid(child, os.WNOHANG)
                if ended:
                    found[child] = os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        for child in children:
            if child not in found:
                os.kill(child, 9)
                os.waitpid(child, 0)
        logs = [pathlib.Path(folder) / f"log.{rank}" for rank in range(world)]
        texts = "\n".join(f"rank {rank}:\n{log.read_text()[-tail:]}" for rank, log in enumerate(logs))
        return [found.get(child, "timed out") for child in children], texts


def main(tests, world, wanted=None, alone=()):
    """Runs the TestCase `tests` in `world` processes, and before it the TestCases of `alone` in this one. wanted: the
    exit statuses of the ranks, all 0 by default. Skips aloud without gloo or the CPU target."""
    if not (dist.is_available() and dist.is_gloo_available()):
        skip("this PyTorch has no gloo")
    try:
        attune.Context("cpu:1")
    except attune.Error as error:
        skip(f"no cpu target: {error}")

    class ProcessesTest(unittest.TestCase):
        def test_all_ranks(self):
            found, texts = run_ranks(tests, world)
            self.assertEqual(found, wanted or [0] * world, texts)
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    suite = unittest.TestSuite(map(load, (*alone, ProcessesTest)))
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
