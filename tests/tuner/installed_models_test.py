#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every model type of the installed transformers release is read right by `attune tune MODEL`, or refused by a sentence
that names what attune lacks. Two tests: default configs give the outcome that installed_models.json states, and the
problems of small models are what these models call attention with (recorded_attention.py). installed_models.json lists
types that are refused or read with a note by the words that say why; all others must be read whole.

    installed_models_test.py PROGRAM [--all] [TYPE ...]

Without TYPE, the second test takes a sample; --all takes every type. Skips aloud (status 77) without transformers."""
import argparse
import inspect
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

try:
    import recorded_attention as recorder
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
DATA = json.loads((HERE / "installed_models.json").read_text())
EXPECTED = {
    kind: (outcome, words)
    for outcome in ("refused", "noted") for words, kinds in DATA[outcome].items() for kind in kinds.split()}
MATTERS = ("not tuned", "not supported", "not known", "does not tune", "pads it")
SAMPLE = """llama gemma2 gemma4_text gpt_oss qwen3_5_moe_text deepseek_v3 kimi_linear longcat_flash mimo_v2_flash laguna
    bert convbert modernbert bart t5 vit""".split()
WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim")
SECONDS = 60  # for one model
# Not compared: the decoders of three make no causal mask here, a network of images has a causal flag of no effect, and
# cpmant takes all its tokens as a prefix.
OTHERS = ("bigbird_pegasus", "fsmt", "pop2piano", "phi4_multimodal_vision", "cpmant")
options = None


def default_config(kind):
    """Returns the default config of a model type, or None if transformers itself refuses to make it."""
    try:
        return transformers.CONFIG_MAPPING[kind]()
    except Exception as error:  # of any kind: it is transformers' own
        print(f"{kind}: transformers makes no default config: {error}")
        return None


def attune(config, *more):
    """Returns what `attune tune --dry-run --json` prints for a config."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(config if isinstance(config, str) else json.dumps(config))
        file.flush()
        done = subprocess.run([options.program, "tune", file.name, "--dry-run", "--json", "--target", "cuda", *more],
                              capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout.replace(file.name + ": ", ""))


def outcome(result):
    """Returns "refused", "noted" or "read", and what is said of it."""
    if "error" in result:
        return "refused", result["error"]["message"]
    notes = "; ".join(
        note for note in result["notes"] if any(words in note for words in MATTERS) and "--serving" not in note)
    return "noted" if notes else "read", notes


class OutcomeTest(unittest.TestCase):
    def test_default_configs(self):
        for kind in options.types or configuration_auto.CONFIG_MAPPING_NAMES:
            config = default_config(kind)
            if config is None:
                continue
            with self.subTest(kind):
                found, text = outcome(attune(config.to_json_string(), "--dtype", "bf16"))
                self.assertNotIn("not known", text, "add a row to tuner/models/rows_*.cpp")
                expected, words = EXPECTED.get(kind, ("read", ""))
                self.assertEqual(found, expected, f"{text}; is installed_models.json right?")
                self.assertIn(words, text)
                if not config.sub_configs and found != "refused":
                    self.check_defaults(kind, config)

    def check_defaults(self, kind, config):
        """A config that states its width alone is refused, or gives what transformers' own defaults give."""
        whole = json.loads(config.to_json_string())
        part = {name: whole[name] for name in WIDTHS if isinstance(whole.get(name), int)}
        read = attune({"model_type": kind, **part}, "--dtype", "bf16")
        if "error" in read:
            self.assertIn("is missing", read["error"]["message"])
        else:
            expected = attune(whole, "--dtype", "bf16")
            self.assertEqual(read["layer_kinds"], expected["layer_kinds"], "defaults of the row")


class DiffusersTest(unittest.TestCase):
    """A config without fields gives the problems of the class's own defaults."""

    def test_defaults(self):
        try:
            import diffusers
        except ImportError as error:
            self.skipTest(str(error))
        listed = subprocess.run([options.program, "models", "--json"], capture_output=True, text=True).stdout
        names = [one["type"] for one in json.loads(listed)["models"] if one["reading"] == "diffusers network"]
        for name in names:
            with self.subTest(name):
                given = inspect.signature(getattr(diffusers, name).__init__).parameters
                fields = {
                    one.name: one.default for one in given.values()
                    if one.default not in (None, inspect.Parameter.empty) and isinstance(one.default, (int, list, str))}
                if name == "UNet2DConditionModel":
                    fields.update(sample_size=64, down_block_types=given["down_block_types"].default,
                                  block_out_channels=given["block_out_channels"].default)
                whole = attune({"_class_name": name, **fields})
                self.assertNotIn("error", whole)
                if name not in ("UNet2DConditionModel", "SD3Transformer2DModel"):  # these have no defaults
                    self.assertEqual(attune({"_class_name": name})["layer_kinds"], whole["layer_kinds"])


def fields_of(text):
    return dict(part.split("=", 1) for part in text.split(","))


def pair(text):
    first, _, second = text.replace("x", "/").partition("/")
    return int(first), int(second or first)


def expected_seen(problem, rows, keys):
    """Returns which keys each row sees, by a problem's mask, window and chunk."""
    import torch
    row = torch.arange(rows)[:, None] + (keys - rows)
    key = torch.arange(keys)[None]
    seen = torch.ones(rows, keys, dtype=torch.bool)
    if problem.get("mask", "none") != "none" or "prefix" in problem:  # an empty prefix
        seen &= key <= row
    left, _, right = problem.get("window", "-:-").partition(":")
    if left != "-":
        seen &= key >= row - int(left)
    if right != "-":
        seen &= key <= row + int(right)
    if "chunk" in problem:
        seen &= row // int(problem["chunk"]) == key // int(problem["chunk"])
    return seen


def wide(dims):
    return tuple(max(16, -(-one // 8) * 8) for one in dims)


def differences(kind, call):
    """Returns what differs between a kind of layers and a recorded call."""
    import torch
    problem = fields_of(kind["problems"][0])
    dims = (int(problem["head_dim_qk"]), int(problem["head_dim_v"])) if "head_dim_qk" in problem else pair(
        problem["head_dim"])
    found = []
    heads = pair(problem["heads"])
    if heads[0] != call["heads"][0] or call["heads"][1] not in (None, heads[1]):
        found.append(f"heads {problem['heads']}, not {call['heads']}")
    if call["dims"] and dims != wide(call["dims"]):
        found.append(f"head dims {dims}, not {call['dims']}")
    if kind["not_supported"]:
        return found
    scale = float(problem.get("scale", dims[0]**-0.5))
    scaled_before = call["scale"] == 1  # then q has its scale already
    if call["scale"] is not None and not scaled_before and abs(scale - call["scale"]) > 1e-4 * call["scale"]:
        found.append(f"scale {scale}, not {call['scale']}")
    if call["softcap"] is not None and float(problem.get("softcap", 0)) != call["softcap"]:
        found.append(f"softcap {problem.get('softcap')}, not {call['softcap']}")
    for name, has in (("sinks", call["sinks"]), ("bias", call["bias"])):
        stated = problem.get(name, "none") != "none" or name == "bias" and "relative_bias" in problem
        if has is not None and stated != has:
            found.append(f"{name} {problem.get(name)}, not {has}")
    seen = expected_seen(problem, call["rows"], call["keys"])
    other = torch.ones_like(seen) if call["seen"] is None else call["seen"]
    if not torch.equal(seen, other):
        found.append(f"rows see {seen.sum(1).tolist()} keys, not {other.sum(1).tolist()}")
    return found


class RecordedTest(unittest.TestCase):
    """A small model calls attention with the operands of the problems that attune makes from its config."""

    def test_calls(self):
        kinds = options.types or (list(configuration_auto.CONFIG_MAPPING_NAMES) if options.all else SAMPLE)
        counts = dict.fromkeys(("right", "refused", "without calls"), 0)
        for kind in kinds:
            with self.subTest(kind):
                counts[self.compare(kind)] += 1
        print(counts)

    def compare(self, kind):
        start = time.time()
        default = default_config(kind)
        if default is None or default.sub_configs or kind in OTHERS:  # parts are types of their own
            return "without calls"
        fields = recorder.small(default)
        try:
            config = type(default)(**{name: value for name, value in fields.items() if name != "model_type"})
            with recorder.at_most(SECONDS):
                calls, error = recorder.recorded(config)
        except Exception as error_of_model:
            calls, error = [], error_of_model
        if options.all or options.types:
            print(f"{kind}: {len(calls)} calls, {time.time() - start:.1f} s {error or ''}"[:200], flush=True)
        if not calls or error is not None:
            return "without calls"
        result = attune(config.to_json_string(), "--seqlen", str(recorder.ROWS), "--batch", "1", "--dtype", "fp32")
        if EXPECTED.get(kind, ("read",))[0] == "refused":
            return "refused"
        self.assertNotIn("error", result)
        self.check(result, calls)
        return "right"

    def check(self, result, calls):
        kinds = [kind for kind in result["layer_kinds"] if not kind["kind"].endswith("with images")]
        is_whole = not any(note.endswith("is not tuned") for note in result["notes"])
        left = {index: kind["layers"] for index, kind in enumerate(kinds)}
        for call in calls:
            all_differences = [differences(kind, call) if kind["problems"] else ["refused"] for kind in kinds]
            fits = [index for index, found in enumerate(all_differences) if not found]
            if not fits and not is_whole:
                continue
            self.assertTrue(fits, f"{call['name']}: no kind fits: {all_differences}")
            open_kind = next((index for index in fits if left[index]), fits[0])
            left[open_kind] = (left[open_kind] or 1) - 1
        unused = {kinds[index]["kind"]: count for index, count in left.items()
                  if count and not kinds[index]["kind"].endswith("cross-attention")}
        self.assertFalse(unused, "layers that made no call")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("types", nargs="*")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    recorder.register()
    unittest.main(argv=sys.argv[:1])
