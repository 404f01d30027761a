# SPDX-License-Identifier: Apache-2.0
"""A thread that hinders all others. Used by quick_test.py and quick_gpu_test.py."""
import contextlib
import ctypes
import threading


@contextlib.contextmanager
def gil_held_elsewhere(holds=True):
    """A scope in which another thread keeps the GIL for half a millisecond at a time, as extensions do that never give
    it back in between."""
    sleep, stop = ctypes.PyDLL(None).usleep, threading.Event()

    def keep():
        while not stop.is_set():
            sleep(500)

    thread = threading.Thread(target=keep)
    if holds:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if holds:
            thread.join()
