# SPDX-License-Identifier: Apache-2.0
"""Times the CUDA driver's launch, called from Python through ctypes: an empty kernel with as many bytes of parameters
as attune's Hopper kernel, on the current context's default stream. No call that launches costs less. Used by
python_overhead.py."""
import ctypes

PARAMETERS = (192, 128, 128, 128, 128)  # bytes: AttentionArgs, and tensor maps of q, k, v and o
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_PTX = """.version 7.8
.target sm_80
.address_size 64
.visible .entry nothing(%s)
{
  ret;
}
"""


class _Attribute(ctypes.Structure):  # CUlaunchAttribute
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15)]


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
                ("num_attributes", ctypes.c_uint)]


def _check(status, call):
    if status != 0:
        raise OSError(f"{call} gives {status}")


def _empty_kernel(driver):
    text = _PTX % ", ".join(f".param .align {64 if size % 64 == 0 else 8} .b8 p{i}[{size}]"
                            for i, size in enumerate(PARAMETERS))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), text.encode()), "cuModuleLoadData")
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"), "cuModuleGetFunction")
    return function


def runners():
    """Returns runners by name: a launch with programmatic serialization, as attune's kernels have (the grid may start
    while the previous one ends), a launch without it, and an empty call with as many arguments, which measures ctypes
    itself. All hold the GIL, like the C module."""
    driver, libc = ctypes.PyDLL("libcuda.so.1"), ctypes.PyDLL(None)
    function = _empty_kernel(driver)
    memory = (ctypes.c_char * sum(PARAMETERS))()
    places = [ctypes.addressof(memory) + sum(PARAMETERS[:i]) for i in range(len(PARAMETERS))]
    parameters = (ctypes.c_void_p * len(places))(*places)
    attribute = _Attribute(_EARLY, 0, 1)
    configs = [_Config((8, 1, 1), (384, 1, 1), 0, None, ctypes.pointer(attribute), count) for count in (1, 0)]
    launch, nothing = driver.cuLaunchKernelEx, libc.memccpy  # copies no bytes
    early, late, aim = ctypes.c_void_p(ctypes.addressof(configs[0])), ctypes.c_void_p(ctypes.addressof(
        configs[1])), ctypes.c_void_p(ctypes.addressof(parameters))
    keep = (memory, parameters, attribute, configs)
    for config in (early, late):
        _check(launch(config, function, aim, None), "cuLaunchKernelEx")
    return {
        "driver launch": lambda keep=keep: launch(early, function, aim, None),
        "driver launch, not early": lambda: launch(late, function, aim, None),
        "ctypes call, four arguments": lambda: nothing(early, function, aim, None)}


def launch_us(costs):
    """Returns the driver's own cost, from the costs of runners()."""
    return costs["driver launch"] - costs["ctypes call, four arguments"]
