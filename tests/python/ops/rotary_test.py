#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rotary_table(scaling=) against transformers' functions: the rope parameters of every config type that has any, and
further parameters of each rope type. Skips aloud (status 77) without PyTorch or transformers."""
import importlib
import itertools
import os
import pathlib
import unittest

import attune
from skips import without_modules

with without_modules():
    import torch
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

REFUSED = ("dynamic", "longrope", "axial")
POSITIONS = (0, 1, 17, 4095)
DIM = 64  # of heads of configs whose functions transformers keeps with the models


def parts(config):
    yield config
    for name in getattr(config, "sub_configs", None) or {}:
        part = getattr(config, name, None)
        if isinstance(part, transformers.PretrainedConfig):
            yield from parts(part)


def configs():
    """By model type: the default config of every class, and what is in it."""
    found = {}
    for file in sorted((pathlib.Path(transformers.__file__).parent / "models").glob("*/configuration_*.py")):
        try:
            module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
        except Exception:  # its dependencies are not installed
            continue
        for name, one in vars(module).items():
            if isinstance(one, type) and issubclass(
                    one, transformers.PretrainedConfig) and one.__module__ == module.__name__:
                try:
                    made = one()
                except Exception:  # the config has no defaults
                    continue
                for part in parts(made):
                    if getattr(part, "rope_parameters", None):
                        found.setdefault(f"{type(part).__name__} {part.model_type}", part)
    return found


def plain(base, dim):
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)


class RotaryTest(unittest.TestCase):
    def near(self, scaling, layer_type, frequencies, factor, what):
        for position in POSITIONS:
            tables = attune.rotary_table(1, 2 * len(frequencies), scaling=scaling, layer_type=layer_type,
                                         first_position=position, like=torch.zeros(1))
            angles = position * frequencies.double()
            for table, want in zip(tables, (angles.cos() * factor, angles.sin() * factor)):
                self.assertLess((table[0] - want).abs().max().item(), 1e-6 * factor * (1 + position),
                                f"{what} {layer_type} at {position}")

    def one(self, config, layer_type, given, what):
        kind, scaling = given["rope_type"], config.rope_parameters
        if kind in REFUSED:
            with self.assertRaisesRegex(ValueError, f"rope_type '{kind}', whose .*; must be one of default, linear"):
                attune.rotary_table(4, DIM, scaling=scaling, layer_type=layer_type)
        elif kind in ROPE_INIT_FUNCTIONS:
            self.near(
                scaling, layer_type, *ROPE_INIT_FUNCTIONS[kind](
                    config, "cpu", **({} if layer_type is None else {"layer_type": layer_type})), what)
        else:
            self.near(scaling, layer_type, plain(given["rope_theta"], DIM), 1.0, what)
        return kind

    def test_all_configs(self):
        counts = {}
        for what, config in configs().items():
            given = config.rope_parameters
            types = [name for name, value in given.items() if isinstance(value, dict)]
            for layer_type in types or [None]:
                with self.subTest(what, layer_type=layer_type):
                    kind = self.one(config, layer_type, given if layer_type is None else given[layer_type], what)
                    counts[kind, bool(types)] = counts.get((kind, bool(types)), 0) + 1
            for name, value in given.items():
                if types and value is None:
                    with self.assertRaisesRegex(ValueError, f"scaling\\['{name}'\\] is None"):
                        attune.rotary_table(4, DIM, scaling=given, layer_type=name)
        print(sum(counts.values()), "tables:",
              {f"{kind}{' of layers' if nested else ''}": count
               for (kind, nested), count in sorted(counts.items())})
        for kind in ("default", "llama3", "yarn"):
            self.assertIn((kind, False), counts)

    def llama(self, **scaling):
        return transformers.LlamaConfig(hidden_size=256, num_attention_heads=4, max_position_embeddings=65536,
                                        rope_parameters={"rope_theta": 10000.0, **scaling})

    def test_other_parameters(self):
        yarn = {"rope_type": "yarn", "original_max_position_embeddings": 4096}
        cases = [{"rope_type": "linear", "factor": 3.0}, {
            "rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}]
        cases += [{
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 8192} for factor, low, high in ((8.0, 1.0, 4.0), (32.0, 0.125, 0.5))]
        cases += [
            {**yarn, "factor": factor, "truncate": truncate, **more}
            for factor, truncate, more in itertools.product((1.0, 32.0), (True, False), (
                {}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"mscale": 0.7, "mscale_all_dim": 1.0},
                {"attention_factor": 1.5}, {"beta_fast": 1.0}, {"rope_theta": 150000.0, "partial_rotary_factor": 0.5}))]
        cases += [{**yarn, "factor": 8.0, "beta_fast": None, "mscale": None, "attention_factor": None}]
        if "proportional" in ROPE_INIT_FUNCTIONS:
            cases += [{"rope_type": "proportional", "partial_rotary_factor": part, **more} for part in (0.25, 0.3, 1.0)
                      for more in ({}, {"factor": 4.0})]
        for given in cases:
            with self.subTest(given):
                config = self.llama(**given)
                self.near(config.rope_parameters, None, *ROPE_INIT_FUNCTIONS[given["rope_type"]](config, "cpu"), given)

    def test_a_factor_that_is_left_out(self):
        """transformers takes the quotient of lengths, of which the config itself has one."""
        given = {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": None, "original_max_position_embeddings": 4096,
            "max_position_embeddings": 65536}
        for truncate in (True, False):
            want = attune.rotary_table(9, 64, scaling={**given, "factor": 16.0, "truncate": truncate},
                                       like=torch.zeros(1))
            for table, other in zip(
                    attune.rotary_table(9, 64, scaling={**given, "truncate": truncate}, like=torch.zeros(1)), want):
                self.assertTrue(torch.equal(table, other))

    def test_refusals(self):
        nested = {"full_attention": {"rope_type": "default", "rope_theta": 1e4}, "sliding_attention": None}
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
        for scaling, more, error, sentence in (
            (nested, {}, ValueError,
             "tables of layer types and layer_type is None; must be 'full_attention' or 'sliding_attention'"),
            (nested, {"layer_type": "other"}, ValueError, "layer_type is 'other'"), (nested, {
                "layer_type": "sliding_attention"}, ValueError, r"scaling\['sliding_attention'\] is None"), (yarn, {
                    "layer_type": "full_attention"}, ValueError, "scaling has no tables of layer types"), ({
                        "rope_type": "linear"}, {}, ValueError, "rope_type 'linear' and no factor"),
            ({**yarn, "factor": None}, {}, ValueError, "rope_type 'yarn' and no factor"), ({
                "rope_type": "linear",
                "factor": 0.0}, {}, attune.Error, "factor is 0"), ({**yarn, "truncate": "no"}, {}, TypeError,
                                                                   "truncate 'no'; must be True or False"),
            ({**yarn, "truncate": False, "original_max_position_embeddings": 0}, {},
             attune.Error, "original_max_position is 0"), ({**yarn, "beta_fats": 2.0}, {}, ValueError,
                                                           "scaling has 'beta_fats'; must have only rope_type"), ({
                                                               "rope_type": "proportional", "partial_rotary_factor": 1.5
                                                           }, {}, ValueError, "partial_rotary_factor 1.5"), ({
                                                               "rope_type": "other"
                                                           }, {}, ValueError, "rope_type 'other'; must be one of")):
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                attune.rotary_table(4, 64, scaling=scaling, **more)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    unittest.main()
