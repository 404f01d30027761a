# SPDX-License-Identifier: Apache-2.0
"""The benchmark cases, by set. A case is one problem in attune's text form plus what peers need to run it.
`python3 cases.py grid models` prints the problems of those sets, one a line.

Sets: grid (d 64/128/256 x full/causal x 512..16384, batch * seqlen = 16384, heads * head_dim = 2048), head_dims (head
dims between them, at two lengths), models, windows, chunked, rows (one query row a sequence).
"""
import dataclasses
import sys
from dataclasses import dataclass

SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Case:
    name: str
    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    causal: bool = False
    window_left: int = -1
    dtype: str = "bf16"
    window_right: int = 0  # used with window_left, and 0 under a causal mask
    head_dim_v: int = 0  # 0: head_dim

    @property
    def width_v(self) -> int:
        return self.head_dim_v or self.head_dim

    @property
    def problem(self) -> str:
        dims = f"head_dim_qk={self.head_dim},head_dim_v={self.head_dim_v}" if self.head_dim_v else (
            f"head_dim={self.head_dim}")
        text = (f"dtype={self.dtype},{dims},heads={self.heads_q}/{self.heads_kv},batch={self.batch},"
                f"seqlen_q={self.seqlen_q},seqlen_kv={self.seqlen_kv},"
                f"mask={'causal_bottom_right' if self.causal else 'none'}")
        return text + (f",window={self.window_left}:{self.window_right}" if self.window_left >= 0 else "")

    @property
    def visible_elements(self) -> int:
        """Returns the number of visible (row, column) pairs of one head of one sequence."""
        offset = self.seqlen_kv - self.seqlen_q
        if not self.causal and self.window_left < 0:
            return self.seqlen_q * self.seqlen_kv
        total = 0
        for row in range(self.seqlen_q):
            last = min(self.seqlen_kv - 1, row + offset + self.window_right)
            first = max(0, row + offset - self.window_left) if self.window_left >= 0 else 0
            total += max(0, last - first + 1)
        return total

    @property
    def flops(self) -> float:
        return 2.0 * (self.head_dim + self.width_v) * self.visible_elements * self.batch * self.heads_q


def squares(dims, seqlens):
    return [Case(f"d{d} {'causal' if causal else 'full'} {s}", 16384 // s, s, s, 2048 // d, 2048 // d, d, causal)
            for d in dims for causal in (False, True) for s in seqlens]


def grid():
    return squares((64, 128, 256), SEQLENS)


def head_dims():
    return squares((80, 96, 112, 160, 192), (2048, 8192))


def models():
    cases = []
    for s in (2048, 8192):
        cases += [Case(f"llama8b gqa4 causal {s}", 2, s, s, 32, 8, 128, True),
                  Case(f"llama70b gqa8 causal {s}", 1, s, s, 64, 8, 128, True),
                  Case(f"mqa gemma d256 causal {s}", 2, s, s, 8, 1, 256, True)]
    cases += [Case("bert-base 512 full", 32, 512, 512, 12, 12, 64),
              Case("vit-L 577 full", 64, 577, 577, 16, 16, 64),
              Case("sd cross 4096x77", 8, 4096, 77, 10, 10, 64)]
    return cases


def windows():
    return [Case(f"window 1024 d128 {s}", 2 if s < 32768 else 1, s, s, 32, 8, 128, True, 1024)
            for s in (2048, 8192, 32768)] + \
           [Case(f"window 128 d64 {s}", 2 if s < 32768 else 1, s, s, 64, 64, 64, True, 128) for s in (8192, 32768)]


def chunked():
    return [Case("256 queries over 32768", 1, 256, 32768, 8, 1, 128, True),
            Case("1024 queries over 32768", 1, 1024, 32768, 8, 1, 128, True),
            Case("512 queries over 8192 batch 4", 4, 512, 8192, 32, 8, 128, True)]


def rows():
    return [Case("1 query over 8192 gqa7 batch 16", 16, 1, 8192, 28, 4, 128)]


def repeat():
    """Returns the problems on which two tunes from empty stores are compared: grid shapes, and Llama-3.1-8B's."""
    llama = [(1, 512), (1, 1024), (1, 2048), (1, 4096), (1, 8192), (1, 16384), (4, 2048), (8, 1024)]
    return squares((64, 128, 256), (512, 2048, 4096, 8192)) + \
           [Case(f"llama8b causal {s} batch {batch}", batch, s, s, 32, 8, 128, True) for batch, s in llama]


FP8_MODES = ("accurate", "fast")


def fp8():
    """Returns the grid, then the grid with e4m3 operands in both modes; timed by fp8.py."""
    return grid() + [dataclasses.replace(case, dtype=f"e4m3,accuracy={mode}") for mode in FP8_MODES for case in grid()]


SETS = {
    "grid": grid, "head_dims": head_dims, "models": models, "windows": windows, "chunked": chunked, "rows": rows,
    "repeat": repeat}  # the sets that attention.py times

if __name__ == "__main__":
    print("\n".join(case.problem for name in sys.argv[1:] for case in {**SETS, "fp8": fp8}[name]()))
