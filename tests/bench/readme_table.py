# SPDX-License-Identifier: Apache-2.0
"""Writes the README's measured tables from tests/bench/results/*.json, between their markers.

    python3 tests/bench/readme_table.py           writes README.md and tests/bench/results/grid.svg
    python3 tests/bench/readme_table.py --check   exit status 1 when either is not what the results give
"""
import json
import sys
from pathlib import Path

import fa3_ratios

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, FP8_BEGIN = ("<!-- begin generated: tests/bench/readme_table.py -->", "<!-- begin generated: tests/bench/readme_table.py, 8 bits -->")
END = "<!-- end generated -->"
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def best_peer(row):
    return row["tflops"]["tuned"] / row["tuned_over_best_peer"]


def grid_table(grid, cell):
    rows = {row["case"]: row for row in grid["rows"]}
    lines = ["| head_dim, mask | " + " | ".join(str(s) for s in SEQLENS) + " |", "|---|" + "---|" * len(SEQLENS)]
    for dim in (64, 128, 256):
        for mask in ("full", "causal"):
            lines.append(f"| {dim} {mask} | " + " | ".join(cell(rows[f"d{dim} {mask} {s}"]) for s in SEQLENS) + " |")
    return lines


def bf16_cell(row):
    return f"**{row['tflops']['tuned']:.0f}** / {best_peer(row):.0f}"


def fp8_cell(row):
    speeds = row["tflops"]
    return f"**{speeds['accurate']:.0f}** / {speeds['fast']:.0f} / {speeds['bf16']:.0f}"


def over_flash3(row, grid):
    """Tuned over FlashAttention-3 on a window: its figure of another run, scaled by what cuDNN gives now and gave then (causal, 8192)."""
    dim = 128 if "d128" in row["case"] else 64
    now = next(r["tflops"]["cudnn"] for r in grid["rows"] if r["case"] == f"d{dim} causal 8192")
    then = fa3_ratios.GRID[dim, True][0][fa3_ratios.SEQLENS.index(8192)]
    return row["tflops"]["tuned"] / (fa3_ratios.WINDOWS[row["case"]] * now / then)


def cpu_line(cpu):
    runs = [f"{run['threads']} thread{'s' if run['threads'] > 1 else ''} {run['summary']['geomean_over_torch']:.2f} times (lowest "
            f"{run['summary']['worst_over_torch']:.2f})" for run in cpu["results"]]
    return (f"On a CPU ({cpu['processor']}, {cpu['dtype']}, head_dim 64 and 128, full and causal, 512 to 4096) against PyTorch {cpu['torch']} SDPA with the same "
            f"threads: {', '.join(runs)}.")


def text():
    grid, models, chunked, windows, sm80 = (load(name) for name in ("grid", "models", "chunked", "windows", "sm80_grid"))
    names = {"cudnn": "cuDNN", "flash2": "FlashAttention-2", "flash3_ratio": "FlashAttention-3", "flash3": "FlashAttention-3",
             "flex": "FlexAttention"}
    peers = ", ".join(dict.fromkeys(names[n] for row in grid["rows"] for n in row["tflops"] if n in names))
    gemm = ", ".join(f"{speed:.0f}" for speed in grid["summary"]["gemm_8192_tflops"])
    lines = [f"TFLOP/s of visible elements, bf16 forward, on one {grid['device']}: **attune, tuned** / the best of {peers} at that point, "
             "timed in one process on the same tensors, interleaved (batch × seqlen = 16384, heads × head_dim = 2048):", ""]
    lines += grid_table(grid, bf16_cell)
    windows_over = [over_flash3(row, grid) for row in windows["rows"]]
    lines += ["",
              f"Geomean {grid['summary']['geomean_over_best_peer']:.2f} times the best peer, lowest point "
              f"{grid['summary']['worst_over_best_peer']:.2f}; model shapes {models['summary']['geomean_over_best_peer']:.2f}; chunked prefill "
              f"{chunked['summary']['geomean_over_best_peer']:.2f}; sliding windows {min(windows_over):.2f} to {max(windows_over):.2f} times FlashAttention-3. The "
              f"mma.sync family alone, against FlashAttention-2: {sm80['summary']['geomean_over_best_peer']:.2f}, lowest "
              f"{sm80['summary']['worst_over_best_peer']:.2f}. An 8192³ bf16 product in the same run: {gemm}.",
              "",
              cpu_line(load("cpu")),
              "",
              f"{grid['date'][:10]}, driver {grid['driver']}, CUDA {grid['cuda']}, PyTorch {grid['torch']}, cuDNN {grid['cudnn']}. FlashAttention-3 is taken "
              "through its measured ratio to cuDNN, see `tests/bench/fa3_ratios.py`. Repeat with `tests/bench/run_gpu.sh`; all numbers and "
              "their spread: `tests/bench/results/`.",
              "", "![tuned attune and its peers over sequence length](tests/bench/results/grid.svg)"]
    return "\n".join(lines)


def fp8_text():
    speeds, errors = load("fp8"), load("fp8_error")
    lines = [f"TFLOP/s on one {speeds['device']}, tuned, the transposition of V included: **accurate** / fast / attune's own bf16 (the shapes of the table above, "
             "interleaved in one process):", ""]
    lines += grid_table(speeds, fp8_cell)
    summary, over_twin = speeds["summary"], errors["summary"]["over_twin"]
    lines += ["",
              f"Over FlashAttention-3's e4m3 kernels (through their ratio to cuDNN), head_dim 128 and 256: accurate {summary['accurate']['over_flash3_fp8']:.2f} times, "
              f"fast {summary['fast']['over_flash3_fp8']:.2f}. Root mean square error over a kernel with one factor a tensor, accurate: "
              f"{over_twin['normal']['head']:.2f} on N(0,1); with outliers {over_twin['outliers']['head, rotated']:.2f} with a factor a head and a rotation, "
              f"{over_twin['outliers']['block, rotated']:.2f} with blocks and a rotation "
              f"([all](tests/bench/results/fp8_error.json)). {speeds['date'][:10]}, driver {speeds['driver']}; repeat with `tests/bench/run_gpu.sh BUILD OUT fp8`."]
    return "\n".join(lines)


def put_between(readme, begin, text):
    head, rest = readme.split(begin)
    return head + begin + "\n" + text + "\n" + END + rest.split(END, 1)[1]


COLOURS = {"tuned": "#c0392b", "cudnn": "#2e7d32", "flash2": "#1565c0", "flash3_ratio": "#8e24aa", "flash3": "#8e24aa", "flex": "#ef6c00"}


def polyline(rows, name, x0, y0, width, height, top):
    points = []
    for index, row in enumerate(rows):
        if name in row["tflops"]:
            points.append(f"{x0 + index * width / (len(rows) - 1):.1f},{y0 + height * (1 - row['tflops'][name] / top):.1f}")
    return f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="{2.5 if name == "tuned" else 1.5}" points="{" ".join(points)}"/>'


def plot(grid):
    """Six panels (head_dim x mask), TFLOP/s over seqlen, as plain SVG."""
    rows = {row["case"]: row for row in grid["rows"]}
    top, width, height = 900, 240, 150
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="900" height="470" font-family="sans-serif" font-size="11">',
             '<rect width="900" height="470" fill="white"/>']
    for column, dim in enumerate((64, 128, 256)):
        for line, mask in enumerate(("full", "causal")):
            x0, y0 = 45 + column * 290, 30 + line * 210
            panel = [rows[f"d{dim} {mask} {s}"] for s in SEQLENS]
            parts.append(f'<text x="{x0}" y="{y0 - 8}" font-weight="bold">head_dim {dim}, {mask}</text>')
            for level in (0, 300, 600, 900):
                y = y0 + height * (1 - level / top)
                parts.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="{x0 - 28}" y="{y + 4:.1f}">{level}</text>')
            for index, seqlen in enumerate(SEQLENS):
                label = str(seqlen) if seqlen < 1024 else f"{seqlen // 1024}k"
                parts.append(f'<text x="{x0 + index * width / 5 - 8:.1f}" y="{y0 + height + 15}">{label}</text>')
            parts += [polyline(panel, name, x0, y0, width, height, top) for name in COLOURS if any(name in row["tflops"] for row in panel)]
    for index, (name, label) in enumerate((("tuned", "attune, tuned"), ("cudnn", "cuDNN"), ("flash3_ratio", "FlashAttention-3"), ("flash2", "FlashAttention-2"),
                                           ("flex", "FlexAttention"))):
        x = 45 + index * 145
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="450" y2="450" stroke="{COLOURS[name]}" stroke-width="3"/><text x="{x + 30}" y="454">{label}</text>')
    parts.append(f'<text x="770" y="454">TFLOP/s, {grid["device"]}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = put_between(put_between(old, BEGIN, text()), FP8_BEGIN, fp8_text())
    picture = plot(load("grid"))
    if "--check" in sys.argv:
        stale = new != old or (RESULTS / "grid.svg").read_text() != picture
        sys.exit("README.md or grid.svg is not what tests/bench/results gives; run tests/bench/readme_table.py" if stale else 0)
    readme.write_text(new)
    (RESULTS / "grid.svg").write_text(picture)


if __name__ == "__main__":
    main()
