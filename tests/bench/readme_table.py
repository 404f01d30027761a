# SPDX-License-Identifier: Apache-2.0
"""Writes the README's measured tables from tests/bench/results/*.json, between their markers.

    python3 tests/bench/readme_table.py           writes README.md and tests/bench/results/forward.svg
    python3 tests/bench/readme_table.py --check   exit status 1 when either is not what the results give
"""
import math
import sys
from pathlib import Path

import publish

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, FP8_BEGIN = ("<!-- begin generated: tests/bench/readme_table.py -->",
                    "<!-- begin generated: tests/bench/readme_table.py, 8 bits -->")
END = "<!-- end generated -->"
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


NAMES = {
    "cudnn": "cuDNN", "flash2": "FlashAttention-2", "flash3": "FlashAttention-3", "flash4": "FlashAttention-4",
    "flex": "FlexAttention"}


def lowest(ratio):
    """Rounded down: no point that is behind reads as level."""
    return f"{math.floor(100 * ratio) / 100:.2f}"


def load(name):
    topic = "cpu" if name.startswith("cpu") else "fp8" if name.startswith("fp8") else "forward"
    result = publish.load(topic, name)
    for row in result.get("rows", ()):
        if "flops" in row:
            row["tflops"] = {runner: row["flops"] / us[0] / 1e6 for runner, us in row["timings"].items()}
    return result


def listed(names):
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def measured_peers(result):
    """Peers that gave a figure at one point at least."""
    return [name for name in NAMES if any(name in row["tflops"] for row in result["rows"])]


def absent_text(result):
    """Returns which peers the result lacks, in a sentence."""
    absent = [NAMES[name] for name in NAMES if name not in measured_peers(result)]
    return f" Not in this run: {listed(absent)}." if absent else ""


def versions_text(result):
    packages = dict.fromkeys(version for name, version in result["peers"].items()
                             if not version.startswith("torch ") and name in measured_peers(result))
    return f"PyTorch {result['torch']}, cuDNN {result['cudnn']}" + "".join(f", {package}" for package in packages)


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


def cpu_line(cpu):
    runs = [
        f"{run['threads']} thread{'s' if run['threads'] > 1 else ''} {run['summary']['geomean_over_torch']:.2f} times "
        f"(lowest "
        f"{lowest(run['summary']['worst_over_torch'])})" for run in cpu["results"]]
    return (
        f"On a CPU ({cpu['processor']}, {cpu['dtype']}, head_dim 64 and 128, full and causal, 512 to 4096) against "
        f"PyTorch {cpu['torch']} SDPA with the same "
        f"threads: {', '.join(runs)}.")


def xeon_line(fp32, fp16, bf16):
    """An Intel CPU with AMX, which PyTorch uses for 16 bits and attune does not."""
    runs = [f"{result['dtype']} {result['results'][0]['summary']['geomean_over_torch']:.2f} times (lowest "
            f"{lowest(result['results'][0]['summary']['worst_over_torch'])})" for result in (fp32, fp16, bf16)]
    return (
        f" On an {fp32['processor'].replace('(R)', '')} with AMX, 2 threads, not tuned, {fp32['date'][:10]}: "
        f"{', '.join(runs)}; PyTorch's bf16 runs on AMX there, attune has "
        "no kernel for it.")


def over_peers(result, usual=None):
    """The result's summary; names its peers where they are not those of `usual`."""
    summary = result["summary"]
    text = f"{summary['geomean_over_best_peer']:.2f} times, lowest {lowest(summary['worst_over_best_peer'])}"
    if usual is not None and measured_peers(result) != measured_peers(usual):
        text += f" (over {listed(NAMES[name] for name in measured_peers(result))} alone)"
    return text


def text():
    grid, models, chunked, windows, head_dims, sm80 = (load(name) for name in ("grid", "models", "chunked", "windows",
                                                                               "head_dims", "sm80_grid"))
    gemm = ", ".join(f"{speed:.0f}" for speed in grid["summary"]["gemm_8192_tflops"])
    lines = [
        f"TFLOP/s of visible elements, bf16 forward, on one {grid['device']}: **attune, tuned** / the best of "
        f"{listed(NAMES[n] for n in measured_peers(grid))} at that "
        "point, timed as captured graphs in one process on the same tensors, interleaved (batch × seqlen = 16384, "
        "heads × head_dim = 2048):",
        ""]
    lines += grid_table(grid, bf16_cell)
    others = [("model shapes", models), ("head dims 80 to 192", head_dims), ("chunked prefill", chunked),
              ("sliding windows", windows)]
    lines += [
        "", f"Over the best peer, geomean of the table: {over_peers(grid)}; " +
        "; ".join(f"{what} {over_peers(result, grid)}" for what, result in others) +
        f". The mma.sync family alone, against FlashAttention-2 ({sm80['date'][:10]}): {over_peers(sm80)}. An 8192³ "
        f"bf16 product in the same run: {gemm}."
    ]
    if "grid_h100" in publish.load("forward"):
        h100 = load("grid_h100")
        lines[-1] += (
            f" The table's shapes on one {h100['device']}, tuned there: {over_peers(h100)}; over its own default "
            f"configs "
            f"{h100['summary']['geomean_over_default']:.2f} ({grid['summary']['geomean_over_default']:.2f} on the "
            f"{grid['device'].split()[-1]})."
        )
    lines += [
        "",
        cpu_line(load("cpu")) + xeon_line(*(load(name) for name in ("cpu_xeon", "cpu_xeon_fp16", "cpu_xeon_bf16"))), "",
        f"{grid['date'][:10]}, driver {grid['driver']}, CUDA {grid['cuda']}, {versions_text(grid)}.{absent_text(grid)} "
        f"Repeat with "
        "`tests/bench/run_gpu.sh`; all numbers, their spread and what a call costs the host: `tests/bench/results/`.",
        "", "![tuned attune and its peers over sequence length](tests/bench/results/forward.svg)"]
    return "\n".join(lines)


def fp8_text():
    speeds, errors = load("fp8"), load("fp8_error")
    lines = [
        f"TFLOP/s on one {speeds['device']}, tuned, the transposition of V included: **accurate** / fast / attune's "
        f"own bf16 (the shapes of the table above, "
        "interleaved in one process):", ""]
    lines += grid_table(speeds, fp8_cell)
    summary, over_twin = speeds["summary"], errors["summary"]["over_twin"]
    over = {mode: summary[mode]["over_flash3_fp8_d128_d256"] for mode in ("accurate", "fast")}
    lines += [
        "",
        f"Over FlashAttention-3's e4m3 kernels ({speeds['peers']['flash3']}, same tensors, same run), head_dim 128 and "
        f"256: accurate "
        f"{over['accurate']['geomean']:.2f} times (lowest {lowest(over['accurate']['lowest'])}), fast "
        f"{over['fast']['geomean']:.2f} (lowest {lowest(over['fast']['lowest'])}). "
        f"Root mean square error over a kernel with one factor a tensor, accurate: "
        f"{over_twin['normal']['head']:.2f} on N(0,1); with outliers {over_twin['outliers']['head, rotated']:.2f} with "
        f"a factor a head and a rotation, "
        f"{over_twin['outliers']['block, rotated']:.2f} with blocks and a rotation "
        f"([all](tests/bench/results/fp8.json)). {speeds['date'][:10]}, driver {speeds['driver']}; repeat with "
        f"`tests/bench/run_gpu.sh BUILD OUT fp8`."
    ]
    return "\n".join(lines)


def put_between(readme, begin, text):
    head, rest = readme.split(begin)
    return head + begin + "\n" + text + "\n" + END + rest.split(END, 1)[1]


COLOURS = {
    "tuned": "#c0392b", "cudnn": "#2e7d32", "flash3": "#8e24aa", "flash2": "#1565c0", "flash4": "#00838f",
    "flex": "#ef6c00"}


def polyline(rows, name, x0, y0, width, height, top):
    points = []
    for index, row in enumerate(rows):
        if name in row["tflops"]:
            x = x0 + index * width / (len(rows) - 1)
            points.append(f"{x:.0f},{y0 + height * (1 - row['tflops'][name] / top):.1f}")
    return f'<polyline class="{name}" points="{" ".join(points)}"/>'


def plot(grid):
    """Six panels (head_dim x mask), TFLOP/s over seqlen, as plain SVG."""
    rows = {row["case"]: row for row in grid["rows"]}
    present = [name for name in COLOURS if name == "tuned" or name in measured_peers(grid)]
    top, width, height = 900, 240, 150
    style = "".join(f".{name}{{stroke:{COLOURS[name]}}}" for name in present)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="470" font-family="sans-serif" font-size="11">',
        f"<style>polyline{{fill:none;stroke-width:1.5}}line{{stroke:#ddd}}{style}.tuned{{stroke-width:2.5}}</style>",
        '<rect width="900" height="470" fill="white"/>']
    for column, dim in enumerate((64, 128, 256)):
        for line, mask in enumerate(("full", "causal")):
            x0, y0 = 45 + column * 290, 30 + line * 210
            panel = [rows[f"d{dim} {mask} {s}"] for s in SEQLENS]
            parts.append(f'<text x="{x0}" y="{y0 - 8}" font-weight="bold">head_dim {dim}, {mask}</text>')
            for level in (0, 300, 600, 900):
                y = round(y0 + height * (1 - level / top))
                parts.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y}" y2="{y}"/>'
                             f'<text x="{x0 - 28}" y="{y + 4}">{level}</text>')
            for index, seqlen in enumerate(SEQLENS):
                label = str(seqlen) if seqlen < 1024 else f"{seqlen // 1024}k"
                parts.append(f'<text x="{x0 + index * width // 5 - 8}" y="{y0 + height + 15}">{label}</text>')
            parts += [polyline(panel, name, x0, y0, width, height, top) for name in present]
    for index, name in enumerate(present):
        x = 45 + index * 145
        parts.append(f'<polyline class="{name}" points="{x},450 {x + 24},450"/>'
                     f'<text x="{x + 30}" y="454">{NAMES.get(name, "attune, tuned")}</text>')
    parts.append(f'<text x="770" y="454">TFLOP/s, {grid["device"]}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = put_between(put_between(old, BEGIN, text()), FP8_BEGIN, fp8_text())
    picture = plot(load("grid"))
    if "--check" in sys.argv:
        stale = new != old or (RESULTS / "forward.svg").read_text() != picture
        sys.exit("README.md or forward.svg is not what tests/bench/results gives; run tests/bench/readme_table.py"
                 if stale else 0)
    readme.write_text(new)
    (RESULTS / "forward.svg").write_text(picture)


if __name__ == "__main__":
    main()
