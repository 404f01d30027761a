# SPDX-License-Identifier: Apache-2.0
"""attune in JAX, under jit: attention through jax.ffi, with the handlers of jax_ffi.cpp. Forward only. Build and run:

    c++ -std=c++17 -O2 -shared -fPIC jax_ffi.cpp -o libattune_jax.so -I $(python -m attune --includedir) \
        -I $(python -c "import jax; print(jax.ffi.include_dir())") $(python -m attune --library)
    python jax_attention.py ./libattune_jax.so
"""
import ctypes
import functools
import sys

import attune
import jax
import jax.numpy as jnp
import numpy as np

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def register(path):
    library = ctypes.CDLL(path)
    for platform, handler in (("cpu", library.attune_jax_cpu), ("CUDA", library.attune_jax_cuda)):
        jax.ffi.register_ffi_target("attune_attention", jax.ffi.pycapsule(handler), platform=platform)


@functools.lru_cache(maxsize=None)
def workspace_bytes(problem, target):
    """Returns the workspace of a problem when the call is traced. Makes the plan, so that running only looks it up."""
    return attune.Context(target).plan(problem).workspace_bytes


def attention(q, k, v, mask="none"):
    """Returns attention, [batch, seqlen_q, num_heads_q, head_dim].

    q: [batch, seqlen_q, num_heads_q, head_dim]; k and v: [batch, seqlen_kv, num_heads_kv, head_dim]; mask: none,
    causal_top_left or causal_bottom_right."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {x.shape}; must be [batch, seqlen, num_heads, head_dim]")
        if x.dtype.name not in DTYPES or x.dtype != q.dtype:
            raise ValueError(f"{name} is {x.dtype.name}; must be {', '.join(DTYPES)}, the same for q, k and v")
    batch, seqlen_q, heads_q, head_dim = q.shape
    _, seqlen_kv, heads_kv, _ = k.shape
    if k.shape != (batch, seqlen_kv, heads_kv, head_dim) or heads_kv == 0 or heads_q % heads_kv:
        raise ValueError(
            f"k has shape {k.shape} and q {q.shape}; batch and head_dim must be the same, and the heads of k must "
            f"divide the heads of q"
        )
    if v.shape != k.shape:
        raise ValueError(f"v has shape {v.shape} and k {k.shape}; must be the same")
    problem = (
        f"dtype={DTYPES[q.dtype.name]},head_dim={head_dim},heads={heads_q}/{heads_kv},batch={batch},"
        f"seqlen_q={seqlen_q},seqlen_kv={seqlen_kv},mask={mask}")
    room = workspace_bytes(problem, "cpu" if jax.default_backend() == "cpu" else "cuda") + 255
    results = jax.ShapeDtypeStruct(q.shape, q.dtype), jax.ShapeDtypeStruct((room,), jnp.uint8)
    return jax.ffi.ffi_call("attune_attention", results, vmap_method="sequential")(q, k, v, problem=problem)[0]


def main():
    register(sys.argv[1])
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (2, 100, heads, 64)) for key, heads in zip(keys, (8, 2, 2)))
    o = jax.jit(functools.partial(attention, mask="causal_bottom_right"))(q, k, v)
    want = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    error = float(jnp.abs(o - want).max())
    print(f"{jax.default_backend()}: largest difference from jax.nn.dot_product_attention {error:.1e}")
    several = jax.vmap(attention)(*(jnp.stack([x, 2 * x]) for x in (q, k, v)))
    np.testing.assert_allclose(several[1], attention(2 * q, 2 * k, 2 * v), atol=1e-5)
    assert error < (2e-5 if jax.default_backend() == "cpu" else 5e-3)


if __name__ == "__main__":
    main()
