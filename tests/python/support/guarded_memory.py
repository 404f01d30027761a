# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays with parts in inaccessible memory: reading these parts ends the process."""
import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it from 3.13 on
_protect = ctypes.CDLL(None, use_errno=True).mprotect


class Guarded:
    """`size` zero bytes, which use memory only when written. Closed memory stays closed."""

    def __init__(self, size):
        self.size = -(-size // PAGE) * PAGE
        self.memory = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def close_bytes(self, first, count):
        """Makes [first, first + count), in whole pages of the machine, unreadable and unwritable."""
        begin, end = -(-first // PAGE) * PAGE, (first + count) // PAGE * PAGE
        if end > begin and _protect(ctypes.c_void_p(self.address + begin), ctypes.c_size_t(end - begin), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, shape, dtype, offset=0, strides=None):
        """Returns an array over this memory from byte `offset`; strides in bytes."""
        return np.ndarray(shape, dtype, buffer=self.memory, offset=offset, strides=strides)


def before_a_guard(values):
    """Returns a copy of `values` that ends at inaccessible memory, and the owner of the memory."""
    values = np.ascontiguousarray(values)
    room = -(-values.nbytes // PAGE) * PAGE
    owner = Guarded(room + PAGE)
    owner.close_bytes(room, PAGE)
    made = owner.array(values.shape, values.dtype, room - values.nbytes)
    made[...] = values
    return made, owner
