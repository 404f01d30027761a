# SPDX-License-Identifier: Apache-2.0
"""Modules that replace a peer while its own tests run. The peer's names lead to attune's, and its test helpers are
replaced by short ones. A name that attune lacks says so when it is called. Used by session.py, before pytest collects.
"""
import importlib
import importlib.abc
import importlib.util
import pathlib
import sys
import types


class Absent(Exception):
    """A test calls a name that attune does not have."""


class Nothing:
    """A name of the peer that attune does not have. Tests may import it and read attributes. Questions about the device
    return False."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(f"{self._name}.{name}")

    def __call__(self, *args, **choices):
        if self._name.rpartition(".")[2].startswith(("is_", "has_", "can_")):
            return False
        raise Absent(f"attune has no {self._name}")

    def __getitem__(self, key):
        return Nothing(f"{self._name}[{key!r}]")

    def __or__(self, other):
        return self  # as in an annotation

    __ror__ = __or__

    def __repr__(self):
        return self._name


def nothing(name):
    """Returns a replacement for a name. Errors must be classes, because tests catch them."""
    last = name.rpartition(".")[2]
    return type(last, (Exception,), {}) if last.endswith("Error") else Nothing(name)


class StandIn(types.ModuleType):
    """A module that looks its names up in some objects, in order."""

    def __init__(self, name, sources=()):
        super().__init__(name)
        self.__path__, self._sources = [], sources

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            found = source.get(name) if isinstance(source, dict) else getattr(source, name, None)
            if found is not None and not isinstance(found, types.ModuleType):
                return found
        inner = sys.modules.get(f"{self.__name__}.{name}")
        return nothing(f"{self.__name__}.{name}") if inner is None else inner


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules of the peer: with sources for listed names, empty ones for all other names below it."""

    def __init__(self, sources):
        self.sources, self.tops = sources, {name.partition(".")[0] for name in sources}

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self,
                                               is_package=True) if name.partition(".")[0] in self.tops else None

    def create_module(self, spec):
        return StandIn(spec.name, self.sources.get(spec.name, ()))

    def exec_module(self, module):
        pass


def _of_flash_attn2(folder):
    from attune import flash
    private = {"_get_block_size_n": lambda device, head_dim, is_dropout, is_causal: 128, "USE_TRITON_ROCM": False}
    return {
        "flash_attn": (flash, ), "flash_attn.bert_padding": (flash, ),
        "flash_attn.flash_attn_interface": (private, flash), "flash_attn.layers": (),
        "flash_attn.layers.rotary": (flash.rotary, )}


def _of_flash_attn3(folder):
    from attune.flash import version_3
    return {**_of_flash_attn2(folder), "flash_attn_interface": (version_3,)}


def _of_flash_attn4(folder):
    """Its tests import references from a file of the package, which is read from the checkout around the folder."""
    try:
        cute = importlib.import_module("attune.flash.cute")
    except ImportError as error:
        raise SystemExit(
            f"attune.flash.cute, which has the signatures of FlashAttention 4, cannot be imported: {error}") from error
    sources = {
        "flash_attn": (), "flash_attn.cute": (cute, ), "flash_attn.cute.interface": (cute, ), "flash_attn.layers": (),
        "flash_attn.layers.rotary": (importlib.import_module("attune.flash.rotary"),)}
    for parent in pathlib.Path(folder).resolve().parents:
        file = parent / "flash_attn" / "cute" / "testing.py"
        if file.is_file():
            sources["flash_attn.cute.testing"] = (_loaded("peer_testing", file),)
            return sources
    raise SystemExit(
        f"{folder} is not in a checkout with flash_attn/cute/testing.py, whose references the tests import")


def _loaded(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _of_flashinfer(folder):
    from attune import flashinfer
    modules = ("attention", "cascade", "decode", "mla", "page", "prefill", "quantization", "rope")
    device = {
        "get_compute_capability": lambda device: (9, 0), "is_sm90a_supported": lambda device: True,
        "has_flashinfer_jit_cache": lambda: True}
    found = {f"flashinfer.{name}": (importlib.import_module(f"attune.flashinfer.{name}"),) for name in modules}
    return {"flashinfer": (flashinfer,), "flashinfer.utils": (device,), **found}


def _of_transformers(folder):
    import attune
    attune.register_transformers()
    return {}


PEERS = {
    "flash_attn2": _of_flash_attn2, "flash_attn3": _of_flash_attn3, "flash_attn4": _of_flash_attn4,
    "flashinfer": _of_flashinfer, "transformers": _of_transformers}


def put(peer, folder):
    """Makes imports find the stand-ins of a peer. `folder` is the folder of its tests."""
    sources = PEERS[peer](folder)
    sys.meta_path.insert(0, Finder(sources))
    for name in sources:
        importlib.import_module(name)
