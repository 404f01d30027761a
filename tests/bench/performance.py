# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of speed from tests/bench/results: README.md's, between its markers, and performance.md's.

    python3 tests/bench/performance.py           writes README.md, examples/guide/performance.md and forward.svg
    python3 tests/bench/performance.py --check   exit status 1 if one of them is not what the results give
"""
import math
import sys
from pathlib import Path

from publish import RESULTS, load

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- performance:begin -->\n", "<!-- performance:end -->"
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)
NAMES = {
    "cudnn": "cuDNN", "flash2": "FlashAttention-2", "flash3": "FlashAttention-3", "flash4": "FlashAttention-4",
    "flex": "FlexAttention", "flashinfer_fa2": "FlashInfer", "flashinfer_fa3": "FlashInfer"}


def geomean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def lowest(ratios):
    """Returns the lowest ratio, rounded down: a slower point never reads as equal."""
    return f"{math.floor(100 * min(ratios) + 1e-9) / 100:.2f}"


def listed(names):
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def peers_of(result):
    """Returns the peers with a time at one or more points."""
    return [name for name in NAMES if any(name in row["timings"] for row in result["rows"])]


def peers_text(result):
    return listed(NAMES[name] for name in peers_of(result))


def device(result):
    return result.get("device", result.get("processor", "")).replace("NVIDIA ", "").replace(" 80GB HBM3", "").replace(
        "(R)", "").replace(" Processor", "")


def where(result):
    return f"{device(result)}, {result['date'][:10]}"


def speed(row, name):
    """Returns TFLOP/s of visible elements."""
    return row["flops"] / row["timings"][name][0] / 1e6


def ratios(result, ratio="over_best_peer", chosen=lambda row: True):
    return [row[ratio] for row in result["rows"] if ratio in row and chosen(row)]


def of_cases(*starts):
    return lambda row: row["case"].startswith(starts)


def table(*lines):
    """Returns a table of lines of cells; the first line is the head."""
    head, *rows = lines
    return [f"| {' | '.join(map(str, one))} |" for one in (head, ["---"] * len(head), *rows)]


def compared(label, points, *more):
    """Returns the cells of a comparison: label, points, geomean, lowest."""
    return (label, len(points), f"{geomean(points):.2f}", lowest(points), *more)


def short(number):
    """Returns x with three significant digits."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def command_of(result):
    """Returns the command of a part, with today's path of its script."""
    script, space, words = result["command"].partition(" ")
    found = next((ROOT / "tests/bench").rglob(Path(script).name))
    return found.relative_to(ROOT).as_posix() + space + words


def source(topic, part, text, command):
    """Returns the line under a heading: device, date, baseline, units, command, and where all numbers are."""
    result = load(topic, part)
    state = "default configs" if result.get("rungs") == "default_config" else "tuned"
    return [f"{where(result)}, {state}. {text} Repeat: `{command}`. All numbers: {link(topic)}, part `{part}`.", ""]


def link(topic):
    return f"[{topic}.json](../../tests/bench/results/{topic}.json)"


def grid_table(grid, cell):
    rows = {row["case"]: row for row in grid["rows"]}
    return table(("head_dim, mask", *SEQLENS), *(
        (f"{dim} {mask}", *(cell(rows[f"d{dim} {mask} {s}"]) for s in SEQLENS))
        for dim in (64, 128, 256) for mask in ("full", "causal")))


# The peer without which a kind's ratios say little.
STRONGEST = {"gradients": "flash4", "gradients_deterministic": "flash4", "serving": "flashinfer_fa2"}


def newest_drawn(kind):
    """Returns the newest run of the league that timed this kind beside its strongest peer, and its result."""
    for run in reversed(load("league", "h200")["runs"]):
        rows = run["kinds"].get(kind, {}).get("rows", [])
        peers = [run["calls"][row["call"] - 1]["facts"]["peers"] for row in rows if "call" in row]
        if peers and all(STRONGEST.get(kind, "cudnn") in names for names in peers):
            return run, run["kinds"][kind]
    return None, None


def league():
    """Returns the league: for each kind its newest run, a line each for tuned and default configs."""
    result, lines = load("league", "h200"), []
    for kind in dict.fromkeys(kind for run in result["runs"] for kind in run["kinds"]):
        run, found = newest_drawn(kind)
        drawn = found["summary"]["drawn"] + found["left"]
        for state in ("tuned", "default"):
            part = found["summary"].get(state)
            if part:
                lines.append((kind.replace("_", " "), state, f"{part['points']} of {drawn}", f"{part['geomean']:.2f}",
                              lowest([part["quantile_5"]]), lowest([part["lowest"]]), len(part["below_1"]),
                              f"{run['commit'][:8]}, {run['date']}"))
    return [
        "## Drawn problems",
        f"{where(result)}. Problems are drawn from the model table by a seed that follows from the commit, so that "
        "nobody tunes to them. Speed over the best of cuDNN, FlashAttention-2, -3 and -4 and FlashInfer; FlexAttention "
        "where none of these serves the problem. Each kind has its newest run beside all of these. Repeat: "
        "`python3 tests/bench/league.py ATTUNE --tune normal --defaults --out FILE`. All numbers: "
        f"{link('league')}, part `h200`.",
        "",
        *table(("kind", "configs", "points", "geomean", "5 % quantile", "lowest", "below 1", "commit, date"), *lines),
        ""]


def forward():
    grid = load("forward", "grid")

    def cell(row):
        tuned = speed(row, "tuned")
        return f"**{tuned:.0f}** / {tuned / row['tuned_over_best_peer']:.0f}"

    sets = [("the table's shapes", "grid"), ("the same on an H100", "grid_h100"), ("model shapes", "models"),
            ("head dims 80 to 192", "head_dims"), ("chunks of prompts", "chunked"), ("sliding windows", "windows"),
            ("one query row, 7 heads a key head", "rows"), ("mma.sync kernels alone", "sm80_grid")]
    results = [(label, load("forward", part)) for label, part in sets]
    standard = min(ratios(load("forward", "grid_standard"), "over_standard"))
    return [
        "## Forward",
        *source("forward", "grid", "bf16, batch x seqlen 16384, heads x head_dim 2048. TFLOP/s of visible elements: "
                f"**attune** / the best of {peers_text(grid)}.", "tests/bench/run_gpu.sh BUILD OUT grid"),
        *grid_table(grid, cell), "",
        "Speed over the best peer at each point. Repeat: `tests/bench/run_gpu.sh BUILD OUT SET`, for each part. "
        f"PyTorch's matmul, softmax, matmul takes at least {math.floor(10 * standard) / 10} times as long as attune. "
        f"Default configs reach {1 / grid['summary']['geomean_over_default']:.3f} of the tuned speed.", "",
        *table(("shapes", "points", "geomean", "lowest", "peers", "device, date"), *(
            compared(label, ratios(result, "tuned_over_best_peer"), peers_text(result), where(result))
            for label, result in results)), ""]


def in_grid(start):
    """Returns a filter for the gradient grid: head dims that begin with `start`, at 1024, 2048, 4096 and 16384."""
    return lambda row: row["case"].startswith(start) and not row["case"].endswith(" 8192")


def backward():
    result = load("backward", "backward")
    grid = ratios(result, chosen=in_grid("d"))
    labels = [("head_dim 64", in_grid("d64")), ("head_dim 128", in_grid("d128")), ("head_dim 256", in_grid("d256")),
              ("head_dim 256, 8192", lambda row: of_cases("d256")(row) and not in_grid("d")(row)),
              ("32 query heads, 8 key heads, 8192", of_cases("gqa")),
              ("windows of 128 and 1024, 8192", of_cases("window"))]

    def line(label, chosen):
        in_order = ratios(result, "over_deterministic_peer", chosen)
        free = compared(label, ratios(result, chosen=chosen))
        return (*free, f"{geomean(in_order):.2f}", lowest(in_order))

    return [
        "## Gradients",
        *source("backward", "backward", f"bf16. Speed over the best of {peers_text(result)}. "
                f"README has the {len(grid)} points of the three head dims, full and causal, at 1024, 2048, 4096 and "
                f"16384 tokens: {geomean(grid):.2f}, lowest {lowest(grid)}.",
                "tests/bench/run_gpu.sh BUILD OUT backward"),
        *table(("shapes", "points", "geomean", "lowest", "deterministic", "lowest"),
               *(line(*one) for one in labels)), ""]


def one_token(row):
    """True for the eleven points of one token over contiguous caches, 32 query heads and 8 key heads."""
    return row["case"].startswith(("b1 ", "b8 ", "b32 ", "b128 ")) and len(row["case"].split()) == 2


def in_pages(row):
    """True for the points of one token over pages of 16 and of 64 keys."""
    return row["case"].endswith((" page64", " page16"))


def caches():
    result = load("decode", "decode")
    groups = [
        ("decode, contiguous: 1 to 128 requests, 1k to 131k keys", one_token),
        ("decode: pages of 64 and of 16 keys", in_pages),
        ("decode: pages of one key", lambda row: row["case"].endswith(" page1")),
        ("decode: a request of 65536 keys, 31 of 4096", of_cases("1 x")),
        ("decode: e4m3 caches", lambda row: row["case"].endswith(" e4m3")),
        ("8 tokens of 8 requests, 64 query heads", of_cases("8 tokens")),
        ("chunks of 256 to 1024 tokens, pages of 16", of_cases("chunk")),
        ("prompts end to end", of_cases("prompts")),
        ("latent: 128 heads, 128 requests of 4096 keys", of_cases("latent b128")),
        ("latent: 16 heads", of_cases("latent b16", "latent b32"))]

    def line(label, chosen):
        row = next(filter(chosen, result["rows"]))
        peer = min((name for name in NAMES if name in row["timings"]), key=lambda name: row["timings"][name][0])
        return compared(label, ratios(result, chosen=chosen), short(row["timings"]["attune"][0]),
                        f"{NAMES[peer]} {short(row['timings'][peer][0])}")

    return [
        "## Decode, chunks and latent",
        *source("decode", "decode", f"bf16, head_dim 128 (latent 576, 512 of them V). Speed over the best of "
                f"{peers_text(result)}; FlashInfer's plan is not timed.", "tests/bench/run_gpu.sh BUILD OUT decode"),
        *table(("shapes", "points", "geomean", "lowest", "attune, us, first point", "best peer, us"),
               *(line(*one) for one in groups)), ""]


def over_flash3(result, mode, dim=""):
    return [row["timings"]["flash3"][0] / row["timings"][mode][0] for row in result["rows"]
            if "flash3" in row["timings"] and row["case"].startswith(dim)]


def fp8():
    result, error = load("fp8", "fp8"), load("fp8", "fp8_error")["summary"]["over_twin"]

    def line(dim):
        longest = next(row for row in result["rows"] if row["case"] == f"d{dim} full 16384")
        speeds = [f"{speed(longest, name):.0f}" for name in ("accurate", "fast", "bf16")]
        over = [over_flash3(result, mode, f"d{dim} ") for mode in ("accurate", "fast")]
        return (dim, *speeds, *(text for points in over for text in (f"{geomean(points):.2f}", lowest(points))))

    return [
        "## FP8",
        *source("fp8", "fp8", "e4m3, the forward shapes. TFLOP/s at 16384, full; speed over FlashAttention-3's e4m3 at "
                "12 points. The transposition of V counts. RMS error over a kernel with one factor a tensor: "
                f"{error['normal']['head']:.2f} on N(0,1), {error['outliers']['head, rotated']:.2f} with outliers and "
                "a rotation.", "tests/bench/run_gpu.sh BUILD OUT fp8`, `tests/bench/cuda/fp8_error.py --device cuda"),
        *table(("head_dim", "accurate", "fast", "bf16", "accurate over", "lowest", "fast over", "lowest"),
               *map(line, (64, 128, 256))), ""]


SCORES = (("softcap", ("softcap",)), ("ALiBi", ("alibi",)), ("bias of each head", ("bias",)),
          ("relative bias", ("relative",)), ("sinks", ("sinks",)), ("documents", ("documents",)),
          ("causal as a program or a map", ("causal",)), ("block-sparse", ("block-sparse",)),
          ("window of 1024", ("window",)))


def scores():
    result = load("scores", "scores")

    def line(label, starts):
        rows = list(filter(of_cases(*starts), result["rows"]))
        share = [row["share_of_plain"] for row in rows if "share_of_plain" in row]
        flex = [row["timings"]["flex"][0] / row["timings"].get("with", row["timings"]["plain"])[0]
                for row in rows if "flex" in row["timings"]]
        cells = [(f"{geomean(one):.2f}", lowest(one)) if one else ("-", "-") for one in (share, flex)]
        return (label, len(rows), *cells[0], *cells[1])

    return [
        "## Windows and scores",
        *source("scores", "scores", "bf16, 512 to 32768 tokens. TFLOP/s of visible elements as a share of attune's "
                "plain attention; speed over FlexAttention. A dash: not measured, or FlexAttention refused it.",
                "tests/bench/run_gpu.sh BUILD OUT scores"),
        *table(("score", "points", "share", "lowest", "over FlexAttention", "lowest"), *(line(*one) for one in SCORES)),
        ""]


def training():
    dropout = load("train", "dropout")

    def line(passed, dim):
        rows = [row for row in dropout["rows"] if row["pass"] == passed and f"head_dim={dim}," in row["problem"]]
        share, over = [row["share"]["attune"] for row in rows], [row["over_flash2_with_dropout"] for row in rows]
        cells = [text for points in (share, over) for text in (f"{geomean(points):.2f}", lowest(points))]
        return (f"{passed}, head_dim {dim}", *cells)

    def steps(part):
        return listed(f"{model['model'].upper()} {model['speed']:.2f}" for model in load("train", part)["models"])

    return [
        "## Dropout and training",
        *source("train", "dropout", f"A training step of small models as a CUDA graph over PyTorch's SDPA: "
                f"{steps('train_captured')}; with dropout {steps('train_dropout_captured')} (default configs, "
                "`tests/bench/models/train.py --captured`). The table: bf16, 4096 tokens, rate 0.1; share of the "
                "speed without dropout; speed over FlashAttention-2 with dropout.",
                "tests/bench/run_gpu.sh BUILD OUT dropout"),
        *table(("pass", "share", "lowest", "over FlashAttention-2", "lowest"),
               *(line(passed, dim) for passed in ("forward", "backward") for dim in (64, 128))), ""]


def cpu():
    def runs(part, label):
        result = load("cpu", part)
        ratio = "over_torch" if part == "cpu_backward" else "tuned_over_torch"
        return [compared(f"{label}, {result['dtype']}", ratios(run, ratio), run["threads"], where(result))
                for run in result["results"]]

    decode = load("cpu", "cpu_decode")
    share = [row["share_of_copy"] for row in decode["rows"]]
    return [
        "## CPU",
        "Speed over PyTorch's SDPA with the same threads, default configs. PyTorch's bf16 uses the Xeon's AMX, attune "
        "does not. "
        f"Decoding reads K and V at {lowest(share)} to {max(share):.2f} of a copy's rate ({where(decode)}). "
        "Repeat: `tests/bench/cpu/cpu_sdpa.py`, `cpu_backward.py`, `cpu_decode.py`. All numbers: " + link("cpu") + ".",
        "",
        *table(("what", "points", "geomean", "lowest", "threads", "device, date"), *runs("cpu", "forward"),
               *runs("cpu_xeon", "forward"), *runs("cpu_xeon_fp16", "forward"), *runs("cpu_xeon_bf16", "forward"),
               *runs("cpu_backward", "gradients")), ""]


def host():
    calls, first = load("host", "python_overhead"), load("host", "host_costs")
    cuda, store = load("host", "compile_time_cuda"), load("host", "long_store")
    names = [("attention", "`attune.attention(q, k, v)`"), ("attention, out", "the same with `out=`"),
             ("torch.ops", "`torch.ops.attune.attention`"), ("attune.sdpa", "`attune.sdpa`"),
             ("torch.sdpa", "PyTorch's SDPA"), ("torch.add", "`torch.add`"),
             ("the driver's launch", "the driver's launch")]
    return [
        "## Host",
        f"{where(calls)}, {calls['library']}. Time of a known call on the host in us, median. "
        f"Repeat: `{command_of(calls)}`. All numbers: {link('host')}.", "",
        *table(("call", "us"), *(
            (label, f"{calls['costs'][name]['module, loop'][0]:.1f}") for name, label in names)), "",
        f"- First launch of a stored kernel in a new process: {first['first_launch']['median_ms']:.1f} ms "
        f"({where(first)}, `bench_first_launch cuda`).",
        f"- Compiling a kernel with NVRTC: median {cuda['median_s']:.2f} s, 95th percentile {cuda['p95_s']:.2f} s, one "
        f"core ({cuda['machine'].split(' (')[0]}, {cuda['date']}, `bench_compile_time`).",
        f"- A store of {store['winners']} winners opens in {1e3 * store['open_context_s']:.1f} ms; its first plan "
        f"takes {store['first_plan_s']:.2f} s ({where(store)}, `{command_of(store)}`)."]


def page():
    grid = load("forward", "grid")
    peers = {**grid["peers"], **load("decode", "decode")["peers"]}
    versions = dict.fromkeys(version for version in peers.values() if not version.startswith("torch "))
    return "\n".join([
        "# Performance <!-- written by tests/bench/performance.py from tests/bench/results -->", "",
        "A ratio above 1 means that attune is faster; the lowest point is rounded down. On GPUs all libraries run as "
        "CUDA graphs, in turns, in one process, on the same tensors ([how](../../tests/bench/README.md)): "
        f"driver {grid['driver']}, CUDA {grid['cuda']}, PyTorch {grid['torch']}, cuDNN {grid['cudnn']}, "
        f"{', '.join(versions)}.", "",
        *league(), *forward(), *backward(), *caches(), *fp8(), *scores(), *training(), *cpu(), *host()]) + "\n"


def readme_table():
    """Returns README's table: ten rows."""
    decode, gradients = load("decode", "decode"), load("backward", "backward")
    grid, windows, fp8_result = load("forward", "grid"), load("forward", "windows"), load("fp8", "fp8")
    epyc, amx = load("cpu", "cpu"), load("cpu", "cpu_xeon_bf16")
    drawn = newest_drawn("gradients")[1]["summary"]["default"]
    one_key = lowest(ratios(decode, chosen=lambda row: row["case"].endswith(" page1")))

    def over_torch(result):
        return [ratio for run in result["results"] for ratio in ratios(run, "tuned_over_torch")]

    def threads(result):
        return listed(str(run["threads"]) for run in result["results"])

    def line(what, points, peers, result, more=""):
        return what, f"{geomean(points):.2f}", lowest(points) + more, peers, where(result)

    return "\n".join(table(
        ("what", "over the best peer (geomean)", "lowest point", "peers", "device, date"),
        line("Forward", ratios(grid, "tuned_over_best_peer"), "cuDNN, FlashAttention", grid),
        line("Gradients", ratios(gradients, chosen=in_grid("d")), "cuDNN, FlashAttention", gradients,
             f"; of {drawn['points']} drawn problems, default configs: {lowest([drawn['lowest']])}"),
        line("Decode, contiguous cache", ratios(decode, chosen=one_token), "cuDNN, FlashAttention, FlashInfer",
             decode),
        line("Decode, pages", ratios(decode, chosen=in_pages), "FlashInfer", decode,
             f"; pages of one key {one_key}"),
        line("Chunks", ratios(decode, chosen=of_cases("chunk")), "FlashInfer", decode),
        line("Latent", ratios(decode, chosen=of_cases("latent")), "FlashInfer", decode),
        line("FP8", over_flash3(fp8_result, "accurate"), "FlashAttention", fp8_result),
        line("Windows", ratios(windows, "tuned_over_best_peer"), "FlashAttention, FlexAttention", windows),
        *(line(f"CPU, {result['dtype']}, {threads(result)} threads{note}", over_torch(result), "PyTorch", result)
          for result, note in ((epyc, ""), (amx, " (PyTorch uses AMX)"))))) + "\n"


def put_between(readme, text):
    head, rest = readme.split(BEGIN)
    return head + BEGIN + text + END + rest.split(END, 1)[1]


COLOURS = {
    "tuned": "#c0392b", "cudnn": "#2e7d32", "flash3": "#8e24aa", "flash2": "#1565c0", "flash4": "#00838f",
    "flex": "#ef6c00"}


def polyline(rows, name, x0, y0, width, height, top):
    points = []
    for index, row in enumerate(rows):
        if name in row["timings"]:
            x = x0 + index * width / (len(rows) - 1)
            points.append(f"{x:.0f},{y0 + height * (1 - speed(row, name) / top):.1f}")
    return f'<polyline class="{name}" points="{" ".join(points)}"/>'


def plot(grid):
    """Six panels (head_dim x mask), TFLOP/s over seqlen, as plain SVG."""
    rows = {row["case"]: row for row in grid["rows"]}
    present = [name for name in COLOURS if name == "tuned" or name in peers_of(grid)]
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
    parts.append(f'<text x="45" y="468">TFLOP/s, {where(grid)}</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    readme = ROOT / "README.md"
    wanted = {
        readme: put_between(readme.read_text(), readme_table()), ROOT / "examples/guide/performance.md": page(),
        RESULTS / "forward.svg": plot(load("forward", "grid"))}
    if "--check" in sys.argv:
        stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        sys.exit(f"{', '.join(stale)} differ from tests/bench/results; run tests/bench/performance.py" if stale else 0)
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
