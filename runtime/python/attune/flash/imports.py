# SPDX-License-Identifier: Apache-2.0
"""install(): programs that import FlashAttention get attune's functions. Each module of FlashAttention that attune
serves is a line of _MODULES. Names that attune lacks raise an error that says what to use instead."""
import importlib
import importlib.util
import sys
import types

# A release with these calls. To programs that take releases up to 2.8.3 and need its compiled module, as Transformer
# Engine does, this is a later one.
VERSION = "2.8.3+attune"
_TWO = ("flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
        "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache")
_THREE = ("flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
          "flash_attn_with_kvcache", "get_scheduler_metadata")
_HALVES = ("_flash_attn_backward", "_flash_attn_forward", "_flash_attn_varlen_backward", "_flash_attn_varlen_forward",
           "_wrapped_flash_attn_backward", "_wrapped_flash_attn_forward", "_wrapped_flash_attn_varlen_backward",
           "_wrapped_flash_attn_varlen_forward")
_FOUR = ("flash_attn_combine", "flash_attn_func", "flash_attn_varlen_func")

# FlashAttention's module -> pairs of attune's module and the names that it serves there
_MODULES = {
    "flash_attn": (("attune.flash", _TWO),),
    "flash_attn.flash_attn_interface": (("attune.flash", _TWO), ("attune.flash.halves", _HALVES)),
    "flash_attn.bert_padding": (("attune.flash.rows", ("index_first_axis", "index_put_first_axis", "pad_input",
                                                       "unpad_input")),),
    "flash_attn.layers": (),
    "flash_attn.layers.rotary": (("attune.flash.rotary", ("apply_rotary_emb", "apply_rotary_emb_func")),),
    "flash_attn.ops": (),
    "flash_attn.ops.triton": (),
    "flash_attn.ops.triton.rotary": (("attune.flash.rotary", ("apply_rotary",)),),
    "flash_attn.cute": (("attune.flash.cute", _FOUR),),
    "flash_attn.cute.interface": (("attune.flash.cute", _FOUR),),
    "flash_attn_interface": (("attune.flash.version_3", _THREE),),
    "flash_attn_3": (),
    "flash_attn_3.flash_attn_interface": (("attune.flash.version_3", _THREE),)}
_TOPS = tuple(name for name in _MODULES if "." not in name)
_FOREIGN = {"flash_attn.bert_padding": ("einops", ("rearrange", "repeat"))}  # names that programs import from there

# Part of a name that attune lacks -> what to use instead; the first that fits.
_INSTEAD = {
    "_backward": "attune.attention_backward() is the backward by itself",
    "_forward": "attune.attention(return_lse=True) is the forward by itself",
    "cross_entropy": "use torch.nn.functional.cross_entropy()",
    "losses": "use torch.nn.functional.cross_entropy()",
    "rms_norm": "use torch.nn.functional.rms_norm()",
    "layer_norm": "use torch.nn.functional.layer_norm()",
    "RotaryEmbedding": "use apply_rotary_emb() of flash_attn.layers.rotary, with tables of attune.rotary_table()",
    "apply_rotary": "use apply_rotary_emb() of flash_attn.layers.rotary",
    "concatenated_sequences": "give flash_attn_varlen_func() the begins of sequences (cu_seqlens)",
    "sparse": "attune.attention(block_map=) skips blocks",
    "unpadded": "use flash_attn_varlen_func()"}


def _names(module):
    return tuple(name for _, names in _MODULES[module] for name in names)


def _refusal(module, name):
    """Returns the sentence for a name of a module that attune does not serve."""
    for part, instead in _INSTEAD.items():
        if part in name:
            return f"attune does not serve {module}.{name}; {instead}"
    served = ", ".join(_names(module) or (inner for inner in _MODULES
                                          if inner.startswith(f"{module}.") and _names(inner)))
    return f"attune does not serve {module}.{name}; it serves {served} of {module}"


class _Module(types.ModuleType):
    """A module of FlashAttention with attune's functions."""

    def __getattr__(self, name):
        inner = f"{self.__name__}.{name}"
        if inner in _MODULES:
            return importlib.import_module(inner)
        package, names = _FOREIGN.get(self.__name__, ("", ()))
        if name in names:
            return getattr(importlib.import_module(package), name)
        if name.startswith("__"):  # Python and its tools ask for these
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise AttributeError(_refusal(self.__name__, name))


_IMPORT = "_find_and_load_unlocked"  # importlib's function that imports, and does more than look for a spec


def _importlib_callers():
    """Returns the names of importlib's functions that called the finder."""
    frame, names = sys._getframe(2), set()
    while frame and frame.f_globals.get("__name__") == "importlib._bootstrap":
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


class _Finder:
    """Finds the modules of _MODULES, and the metadata of the distribution flash-attn."""

    def find_spec(self, name, path=None, target=None):
        if name in _MODULES:  # all are packages, so that `from flash_attn import NAME` asks here for NAME
            return importlib.util.spec_from_loader(name, self, origin=__file__, is_package=True)
        parent, _, last = name.rpartition(".")
        callers = _importlib_callers()
        if parent in _MODULES and last not in _FOREIGN.get(parent, ("", ()))[1] and _IMPORT in callers:
            # Python replaces the error of `from PARENT import LAST` by a sentence of its own if it has that name.
            raise ModuleNotFoundError(_refusal(parent, last), name=None if "_handle_fromlist" in callers else name)
        return None  # importlib.util.find_spec() has no error, but None, for a module that is not there

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        for source, names in _MODULES[module.__name__]:
            found = importlib.import_module(source)
            module.__dict__.update({name: getattr(found, name) for name in names})
        module.__all__, module.__file__ = list(_names(module.__name__)), __file__
        if module.__name__ in _TOPS:
            module.__version__ = VERSION if module.__name__ == "flash_attn" else "3.0.0+attune"

    def find_distributions(self, context):
        """Yields metadata for importlib.metadata."""
        name = getattr(context, "name", None)
        if name is None or name.lower().replace("_", "-").replace(".", "-") == "flash-attn":
            yield _distribution()


def _distribution():
    import importlib.metadata
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: flash-attn\nVersion: {VERSION}\n"
                    "Summary: attune under the name of FlashAttention, by attune.flash.install()\n",
        "top_level.txt": "flash_attn\n"}

    class Distribution(importlib.metadata.Distribution):
        def read_text(self, filename):
            return texts.get(filename)

        def locate_file(self, path):
            raise FileNotFoundError(f"{path}: attune.flash.install() makes flash-attn; it has no files")

    return Distribution()


class Installed:
    """The result of install(): `served` has a tuple of names for each module. Its repr is a table of them."""

    def __init__(self):
        self.served = {module: _names(module) for module in _MODULES if _names(module)}

    def __repr__(self):
        lines = [f"  {module}: {', '.join(names)}" for module, names in self.served.items()]
        return "\n".join(["attune serves imports of", *lines])


_finder, _installed = _Finder(), Installed()


def install():
    """Makes flash_attn and flash_attn_interface lead to attune, for all imports of this process from now on. Returns an
    object that lists what attune serves.

    Call it before the program imports an engine, transformers or diffusers, which look for FlashAttention once. Worker
    processes that are spawned need their own call; those that are forked do not.
    flash_attn has version 2's signatures, with attune's additional keywords. flash_attn_interface and
    flash_attn_3.flash_attn_interface have version 3's, flash_attn.cute version 4's. `served` of the result lists all.
    Any other name below these modules raises AttributeError or ModuleNotFoundError, which says what to use instead.

    importlib.util.find_spec() finds the modules, and returns None for others below them. importlib.metadata has a
    distribution flash-attn, of version "2.8.3+attune". So transformers' is_flash_attn_2_available() is true where
    PyTorch has CUDA. Its attn_implementation="flash_attention_2" runs on attune, and so does diffusers' backend
    "flash". There are no distributions flash-attn-3 and flash-attn-4: programs that find these import parts of
    FlashAttention that attune does not have. So transformers refuses "flash_attention_3" and "flash_attention_4"; use
    attune.register_transformers() instead.

    An installed FlashAttention that nothing has imported yet is hidden. If it is imported, RuntimeError is raised. A
    second call changes nothing. uninstall() undoes the first."""
    if _finder in sys.meta_path:
        return _installed
    for name in _MODULES:  # also parts that a failed import left behind
        if name not in sys.modules:
            continue
        loaded = sys.modules[name]
        if loaded is None:
            raise RuntimeError(f"sys.modules[{name!r}] is None, which blocks its import; delete the entry first")
        raise RuntimeError(
            f"{name} is imported from {getattr(loaded, '__file__', None) or 'elsewhere'}; attune.flash.install() must "
            f"be called before anything imports it")
    sys.meta_path.insert(0, _finder)
    importlib.invalidate_caches()
    return _installed


def uninstall():
    """Undoes install(): later imports find an installed FlashAttention, or nothing. Functions that programs have
    imported stay attune's. Does nothing without install()."""
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
        del sys.modules[name]
