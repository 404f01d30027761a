#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random serving traffic (traffic.py) through append_kv() and attention_kvcache(), every result against float64, with
NumPy on the CPU or with PyTorch on the device named by the first argument, where steps are captured graphs:
`soak_test.py [cpu|cuda] [--seconds S] [--seed N] [--steps N]`. Prints the seed of each world, by which it is run again.
Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import argparse
import sys
import time

from library_and_device import DEVICE, torch  # takes the device from the arguments
from traffic import World


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first world; the next has the next")
    parser.add_argument("--steps", type=int, default=150, help="of a world")
    given = parser.parse_args()
    end, seed, total, worlds = time.monotonic() + given.seconds, given.seed, {}, 0
    while worlds == 0 or time.monotonic() < end:
        world = World(seed)
        print(f"seed {seed}: {world}", flush=True)
        step = 0
        try:
            while step < given.steps and (time.monotonic() < end or step < 40):
                world.step()
                step += 1
                if step % 20 == 0:
                    world.check_unused()
            world.check_unused()
        except BaseException:
            print(f"failed in step {step}; again: soak_test.py {DEVICE} --seed {seed} --steps {step + 1} --seconds 600",
                  file=sys.stderr, flush=True)
            raise
        for name, count in world.counts.items():
            total[name] = total.get(name, 0) + count
        worlds, seed = worlds + 1, seed + 1
    print(f"{worlds} worlds: " + ", ".join(f"{name} {count}" for name, count in sorted(total.items())))


if __name__ == "__main__":
    main()
