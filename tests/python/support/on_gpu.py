#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test script if the NVIDIA driver finds a GPU: on_gpu.py SCRIPT [ARGUMENT...]. Otherwise skips aloud (status
77) at once: importing PyTorch and transformers to find that out takes a busy machine half a minute for each script."""
import ctypes
import os
import sys


def devices():
    """Returns how many devices the driver finds; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


if devices() == 0:
    print("SKIP: the NVIDIA driver finds no GPU here")
    sys.exit(77)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
