# SPDX-License-Identifier: Apache-2.0
"""Finds libattune.so, and declares attune.h to ctypes. Structs and statuses follow that header. Also loads the C module
_attune (runtime/python/module/), the fast path of calls, if there is one. Used by ops/context.py."""
import ctypes
import importlib.machinery
import importlib.util
import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).parents[1]
MODULE_REVISION = 6  # kRevision of runtime/python/module/module.c
STATUS_NAMES = ("ok", "invalid_argument", "unsupported", "not_tuned", "would_compile", "compile", "driver", "store",
                "out_of_memory", "io", "internal")
RUNG_NAMES = ("pinned", "exact", "bucket", "nearest", "default_config", "reference")


class Error(RuntimeError):
    """A failed call. `status` is one of STATUS_NAMES."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else str(status)


class MemoryBundle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("target", ctypes.c_char_p), ("store", ctypes.c_char_p),
                ("more_stores", ctypes.POINTER(ctypes.c_char_p)), ("num_more_stores", ctypes.c_size_t),
                ("bundles", ctypes.POINTER(ctypes.c_char_p)), ("num_bundles", ctypes.c_size_t),
                ("policy", ctypes.c_int32), ("no_jit", ctypes.c_int32), ("capture_file", ctypes.c_char_p),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p),
                ("nvrtc_folders", ctypes.POINTER(ctypes.c_char_p)), ("num_nvrtc_folders", ctypes.c_size_t),
                ("pin", ctypes.c_char_p), ("memory_bundles", ctypes.POINTER(MemoryBundle)),
                ("num_memory_bundles", ctypes.c_size_t)]


def _part(reserved, *names, first=()):
    """Returns the type of a part of attune_problem."""
    fields = [*first, *((name, ctypes.c_int32) for name in names), ("reserved", ctypes.c_int32 * reserved)]
    return type("Part", (ctypes.Structure, ), {"_fields_": fields})


class Problem(ctypes.Structure):
    """attune_problem. Fields of its parts are attributes too."""
    _anonymous_ = ("scores", "backward", "cache", "append", "quantise")
    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_int32)
          for name in ("op", "dtype", "dtype_kv", "dtype_o", "head_dim_qk", "head_dim_v", "num_heads_q",
                       "num_heads_kv")),
        *((name, ctypes.c_int64) for name in ("batch", "seqlen_q", "seqlen_kv", "window_left", "window_right")),
        ("mask", ctypes.c_int32), ("softmax_scale", ctypes.c_float), ("dropout", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("accuracy", "v_layout", "scale_block_q", "scale_block_kv")),
        ("reserved", ctypes.c_int32 * 7),
        ("scores",
         _part(9, "bias", "relative_bias", "alibi", "mask_tensor", "key_lengths", "documents", "prefix", "chunk",
               "sinks", "block_map", first=(("score_mod", ctypes.c_void_p), ("mask_mod", ctypes.c_void_p),
                                            ("softcap", ctypes.c_float)))),
        ("backward",
         _part(10, "gradients", "score_gradient", "load", "repeats", "accumulate", "deterministic")),
        ("cache",
         _part(8, "page_size", "packed_q", "packed_kv", "batch_invariant", "v_in_k", "kv_factors",
               first=(("num_pages", ctypes.c_int64), ))),
        ("append", _part(8, "rotary", "rotary_dim", "rotary_interleaved", "rotary_q")),
        ("quantise", _part(7, "rotation"))]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("batch_stride", ctypes.c_int64), ("row_stride", ctypes.c_int64),
                ("head_stride", ctypes.c_int64)]


class Scale(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("batch_stride", ctypes.c_int64), ("head_stride", ctypes.c_int64),
                ("block_stride", ctypes.c_int64), ("heads_per_scale", ctypes.c_int32)]


class Capture(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("strides", ctypes.c_int64 * 4),
                ("extents", ctypes.c_int64 * 4)]


class Scalar(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class ProgramCapture(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int32), ("rank", ctypes.c_int32)]


class ProgramScalar(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int32)]


class ProgramDesc(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("text", ctypes.c_char_p), ("kind", ctypes.c_int32),
                ("name", ctypes.c_char_p), ("captures", ctypes.c_void_p), ("num_captures", ctypes.c_size_t),
                ("scalars", ctypes.c_void_p), ("num_scalars", ctypes.c_size_t)]


class ScoreOperands(ctypes.Structure):
    _fields_ = [("captures", ctypes.POINTER(Capture)), ("num_captures", ctypes.c_size_t),
                ("q_position0", ctypes.c_int32), ("kv_position0", ctypes.c_int32), ("scalars", ctypes.POINTER(Scalar)),
                ("num_scalars", ctypes.c_size_t)]


class BlockMapStruct(ctypes.Structure):
    """attune_block_map."""
    _fields_ = [
        ("size", ctypes.c_size_t), ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64)
          for name in ("batch", "num_heads", "seqlen_q", "seqlen_kv", "batch_stride", "head_stride", "row_stride"))]


class GradientOperands(ctypes.Structure):
    """attune_gradient_operands."""
    _fields_ = [("size", ctypes.c_size_t), ("dout", Tensor), ("dq", Tensor), ("dk", Tensor), ("dv", Tensor),
                ("dlse", ctypes.c_void_p), ("dlse_batch_stride", ctypes.c_int64), ("dlse_head_stride", ctypes.c_int64),
                ("dscores", Tensor)]


class DropoutOperands(ctypes.Structure):
    """attune_dropout_operands."""
    _fields_ = [("size", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64),
                *((name, ctypes.c_void_p) for name in ("seed_address", "offset_address", "state"))]


class CacheOperands(ctypes.Structure):
    """attune_cache_operands."""
    _fields_ = [("size", ctypes.c_size_t), ("kv_lengths", ctypes.c_void_p), ("q_begins", ctypes.c_void_p),
                ("page_table", ctypes.c_void_p), ("page_table_stride", ctypes.c_int64), ("slots", ctypes.c_void_p),
                ("kv_begins", ctypes.c_void_p), ("num_pages", ctypes.c_int64)]


class AppendOperands(ctypes.Structure):
    """attune_append_operands."""
    _fields_ = [("size", ctypes.c_size_t), ("k", Tensor), ("v", Tensor), ("cos", Tensor), ("sin", Tensor),
                ("positions", ctypes.c_void_p), ("row_slots", ctypes.c_void_p), ("index_bytes", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("num_rows", ctypes.c_int64), ("num_positions", ctypes.c_int64)]


class Rotary(ctypes.Structure):
    """attune_rotary."""
    _fields_ = [("size", ctypes.c_size_t), ("rotary_dim", ctypes.c_int32), ("scaling", ctypes.c_int32),
                *((name, ctypes.c_float)
                  for name in ("base", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                               "mscale", "mscale_all_dim", "attention_factor")),
                ("original_max_position", ctypes.c_int32), ("frequencies", ctypes.c_void_p)]


class Operands(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor),
                ("lse", ctypes.c_void_p), ("lse_batch_stride", ctypes.c_int64), ("lse_head_stride", ctypes.c_int64),
                ("q_scale", Scale), ("k_scale", Scale), ("v_scale", Scale), ("o_scale", Scale),
                ("scores", ctypes.POINTER(ScoreOperands)), ("block_map", ctypes.POINTER(BlockMapStruct)),
                ("gradients", ctypes.POINTER(GradientOperands)), ("dropout", ctypes.POINTER(DropoutOperands)),
                ("cache", ctypes.POINTER(CacheOperands)), ("append", ctypes.POINTER(AppendOperands))]


class PlanInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rung", ctypes.c_int32), ("registers", ctypes.c_int32),
                ("kernel_template", ctypes.c_char_p), ("arch", ctypes.c_char_p), ("config", ctypes.c_char_p),
                ("expected_us", ctypes.c_double), ("workspace_bytes", ctypes.c_size_t),
                ("shared_bytes", ctypes.c_int64), ("zeroed_bytes", ctypes.c_size_t), ("device_ordinal", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


_SIGNATURES = {
    "attune_last_error": (ctypes.c_char_p, []),
    "attune_version": (ctypes.c_char_p, []),
    "attune_abi_version": (ctypes.c_int32, []),
    "attune_context_options_init_sized": (None, [ctypes.POINTER(ContextOptions), ctypes.c_size_t]),
    "attune_context_create": (ctypes.c_int, [ctypes.POINTER(ContextOptions),
                                             ctypes.POINTER(ctypes.c_void_p)]),
    "attune_context_destroy": (None, [ctypes.c_void_p]),
    "attune_context_reload": (ctypes.c_int, [ctypes.c_void_p]),
    "attune_context_device": (ctypes.c_char_p, [ctypes.c_void_p]),
    "attune_context_pin_digest": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "attune_problem_parse_sized": (ctypes.c_int, [ctypes.c_char_p,
                                                  ctypes.POINTER(Problem), ctypes.c_size_t]),
    "attune_program_parse": (ctypes.c_int, [
        ctypes.POINTER(ProgramDesc),
        ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t]),
    "attune_program_text": (ctypes.c_char_p, [ctypes.c_void_p]),
    "attune_program_nodes": (ctypes.c_char_p, [ctypes.c_void_p]),
    "attune_problem_check": (ctypes.c_int, [ctypes.c_void_p,
                                            ctypes.POINTER(Problem), ctypes.c_char_p, ctypes.c_size_t]),
    "attune_plan_get": (ctypes.c_int, [
        ctypes.c_void_p,
        ctypes.POINTER(Problem),
        ctypes.POINTER(Operands),
        ctypes.POINTER(ctypes.c_void_p)]),
    "attune_plan_release": (None, [ctypes.c_void_p]),
    "attune_plan_get_info": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(PlanInfo)]),
    "attune_plan_explain": (ctypes.c_char_p, [ctypes.c_void_p]),
    "attune_workspace_init": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]),
    "attune_block_map_init_sized": (ctypes.c_int, [
        ctypes.POINTER(Problem), ctypes.POINTER(BlockMapStruct), ctypes.c_size_t]),
    "attune_block_map_build": (ctypes.c_int, [
        ctypes.c_void_p,
        ctypes.POINTER(Problem),
        ctypes.POINTER(ScoreOperands),
        ctypes.POINTER(BlockMapStruct), ctypes.c_void_p]),
    "attune_rotary_init_sized": (None, [ctypes.POINTER(Rotary), ctypes.c_size_t]),
    "attune_rotary_table": (ctypes.c_int, [
        ctypes.POINTER(Rotary), ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]),
    "attune_dropout_rate": (ctypes.c_double, [ctypes.c_float]),
    "attune_dropout_mask": (ctypes.c_int, [
        ctypes.c_float, ctypes.c_uint64, ctypes.c_uint64, *[ctypes.c_int64] * 4, ctypes.c_void_p]),
    "attune_run": (ctypes.c_int, [
        ctypes.c_void_p, ctypes.POINTER(Operands), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]), }
_ABI_VERSION = 2


def _candidates():
    """Yields paths to try: $ATTUNE_LIBRARY alone if it is set; a wheel; an installed tree (<prefix>/share/attune/python
    next to <prefix>/lib*); the loader's own search."""
    if os.environ.get("ATTUNE_LIBRARY"):
        yield os.environ["ATTUNE_LIBRARY"]
        return
    here = PACKAGE.resolve()
    yield str(here / "libattune.so")
    if here.parts[-4:] == ("share", "attune", "python", "attune"):
        yield from sorted(str(path) for path in here.parents[3].glob("lib*/**/libattune.so"))
    yield "libattune.so.2"
    import ctypes.util  # imported late: it imports much
    yield ctypes.util.find_library("attune") or "libattune.so"


def _load():
    tried = []
    for path in _candidates():
        try:
            if os.path.exists(path) and not os.path.isfile(path):  # the loader would wait for a FIFO's other end
                raise OSError(f"{path} is not a regular file")
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise ImportError("libattune.so was not found; set ATTUNE_LIBRARY to its path. Tried: " + "; ".join(tried))


library = _load()
for _name, (_result, _arguments) in _SIGNATURES.items():
    getattr(library, _name).restype = _result
    getattr(library, _name).argtypes = _arguments
if library.attune_abi_version() != _ABI_VERSION:
    raise ImportError(f"libattune.so has ABI version {library.attune_abi_version()}, this module needs {_ABI_VERSION}")


def check(status):
    if status != 0:
        raise Error(status, library.attune_last_error().decode())


def version():
    return library.attune_version().decode()


def _module_paths():
    """Yields paths of the C module: in the package, as in a wheel, or next to libattune.so, as in build trees and
    installations."""
    name = "_attune.abi3.so"
    yield PACKAGE.resolve() / name
    if os.sep in library._name:
        yield pathlib.Path(library._name).absolute().parent / name


def _load_module():
    """Returns the C module for the same libattune.so, or None. Without it everything works through ctypes, more slowly.
    """
    stable = ".abi3.so" in importlib.machinery.EXTENSION_SUFFIXES and "t" not in getattr(sys, "abiflags", "")
    if not stable or os.environ.get("ATTUNE_PYTHON_MODULE") == "0":  # PyPy and free-threaded builds have no stable ABI
        return None
    for path in _module_paths():
        if path.is_file():
            name = "attune._attune"
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            try:
                found = importlib.util.module_from_spec(
                    importlib.util.spec_from_file_location(name, path, loader=loader))
                loader.exec_module(found)
                found.connect(library._handle, check)
            except ImportError:  # built for another interpreter, or one without a GIL
                return None
            return found if found.REVISION == MODULE_REVISION else None
    return None


module = _load_module()
