# SPDX-License-Identifier: Apache-2.0
"""A thread that delays all others. Used by quick_test.py and quick_gpu_test.py."""
import contextlib
import ctypes
import threading


@contextlib.contextmanager
def gil_held_elsewhere(holds=True):
    """A scope in which another thread holds the GIL for half a millisecond at a time, like an extension that does not
    release it."""
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
