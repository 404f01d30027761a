#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/vllm/attune_vllm.py behind vLLM's own interface where vLLM is installed, else a double of as much of it as
it uses, against float64: chunks and tokens in one batch, rows of padding, sinks, windows, ALiBi, softcap, 8-bit caches,
shared caches, layouts of caches; on a GPU a captured graph. Skips aloud (status 77) without PyTorch and the device."""
import enum
import pathlib
import sys
import types
import unittest

from caches import expected
from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("name a device of PyTorch: cpu or cuda")


registered = {}


def register_backend(which, path):
    registered[which.name] = path


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


class AttentionType(str, enum.Enum):
    DECODER, ENCODER = "decoder", "encoder"


class MultipleOf:
    def __init__(self, base):
        self.base = base


class Builder:
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.device = device


try:
    from vllm.v1.attention.backends import registry
    registry.register_backend = register_backend
    VLLM = True
except ImportError:
    VLLM = False
    for package in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        module(package)
    module("vllm.v1.attention.backend", AttentionBackend=object, AttentionImpl=object, AttentionMetadata=object,
           AttentionMetadataBuilder=Builder, AttentionType=AttentionType, MultipleOf=MultipleOf,
           AttentionCGSupport=enum.Enum("AttentionCGSupport", "NEVER UNIFORM_BATCH ALWAYS"))
    module("vllm.v1.attention.backends.registry", AttentionBackendEnum=enum.Enum(
        "AttentionBackendEnum", "FLASH_ATTN CUSTOM"), register_backend=register_backend)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "vllm"))
import attune_vllm  # noqa: E402

DTYPE = torch.bfloat16
HEADS, HEADS_KV, D, PAGE, PAGES = 8, 2, 64, 16, 40
LIMIT = 2e-2


def ints(values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


class Step:
    """A batch as the engine gives it: requests with `before` keys in the cache and `new` tokens, then `padding` rows.
    """

    def __init__(self, before, new, padding=0, heads_kv=HEADS_KV, cache_dtype=DTYPE, layout=(0, 2, 1, 3), causal=True):
        """layout: order in memory of the cache's pages, heads, keys of a page and columns; None: vLLM's older shape."""
        self.random = torch.Generator().manual_seed(len(before) + sum(new))
        self.before, self.new = before, new
        self.lengths = [b + n for b, n in zip(before, new)]
        width = -(-max(self.lengths) // PAGE)
        order = torch.randperm(PAGES, generator=self.random)
        self.table = [[int(order[(i * width + j) % PAGES]) for j in range(width)] for i in range(len(before))]
        rows = sum(new)
        self.rows, begins = rows, [0]
        for n in new:
            begins.append(begins[-1] + n)
        draw = lambda *shape: torch.randn(*shape, generator=self.random).to(DEVICE, DTYPE)  # noqa: E731
        self.q, self.k, self.v = draw(rows + padding, HEADS, D), draw(rows + padding, heads_kv, D), draw(
            rows + padding, heads_kv, D)
        old_shape, shape = attune_vllm.AttuneBackend.get_kv_cache_shape(PAGES, PAGE, heads_kv,
                                                                        D), (PAGES, heads_kv, PAGE, 2 * D)
        ordered = old_shape if layout is None else tuple(shape[i] for i in layout)
        narrow = cache_dtype != DTYPE
        self.cache = torch.full(ordered, 0x7F if narrow else float("nan"), dtype=torch.uint8 if narrow else DTYPE,
                                device=DEVICE)
        if layout is not None:
            self.cache = self.cache.permute([layout.index(i) for i in range(4)])
        # [K or V, page, key of the page, head, column], whatever the layout
        places = self.cache.unbind(1) if layout is None else [
            self.cache[..., of].transpose(1, 2) for of in (slice(0, D), slice(D, 2 * D))]
        self.old = draw(2, len(before), max(max(before), 1), heads_kv, D)
        if narrow:
            self.old = self.old.to(cache_dtype).to(DTYPE)
        for request, n in enumerate(before):
            for at in range(n):
                for which in (0, 1):
                    row = self.old[which, request, at]
                    places[which][self.table[request][at // PAGE],
                                  at % PAGE] = row.to(cache_dtype).view(torch.uint8) if narrow else row
        slots = [
            self.table[r][p // PAGE] * PAGE + p % PAGE for r, (b, n) in enumerate(zip(before, new))
            for p in range(b, b + n)]
        self.common = types.SimpleNamespace(num_actual_tokens=rows, slot_mapping=ints(
            slots + [-1] * padding, torch.int64), seq_lens=ints(self.lengths), block_table_tensor=ints(self.table),
                                            query_start_loc=ints(begins), max_query_len=max(new), causal=causal)
        self.begins = begins

    def keys(self, request, cache_dtype=DTYPE):
        """Returns float64 keys and values of a request, new ones as the cache holds them."""
        of = slice(self.begins[request], self.begins[request + 1])
        new = [x[of] if cache_dtype == DTYPE else x[of].to(cache_dtype).to(DTYPE) for x in (self.k, self.v)]
        return [
            torch.cat([self.old[which, request, :self.before[request]], new[which]]).double().cpu().numpy()
            for which in (0, 1)]


LAYER = types.SimpleNamespace(_k_scale=torch.tensor(1.0, device=DEVICE), _v_scale=torch.tensor(1.0, device=DEVICE))
BEFORE, NEW = [40, 0, 17, 63, 0], [1, 33, 3, 1, 1]


def built(heads_kv=HEADS_KV, **keywords):
    return attune_vllm.AttuneImpl(HEADS, D, D**-0.5, heads_kv, **keywords)


def metadata(step):
    return attune_vllm.AttuneMetadataBuilder(None, [], None, DEVICE).build(0, step.common)


class BackendTest(unittest.TestCase):
    def check(self, step, impl, cache_dtype=DTYPE, sinks=None, causal=True, **of_oracle):
        output = torch.full_like(step.q, 7.0)
        got = impl.forward(LAYER, step.q, step.k, step.v, step.cache, metadata(step), output)
        self.assertIs(got, output)
        self.assertTrue((output[step.rows:] == 7).all(), "rows of padding were written")
        for request in range(len(step.new)):
            of = slice(step.begins[request], step.begins[request + 1])
            want, lse = expected(step.q[of].double().cpu().numpy(), *step.keys(request, cache_dtype), causal=causal,
                                 **of_oracle)
            if sinks is not None:
                want *= (1 / (1 + np.exp(sinks[:, None] - lse))).T[:, :, None]
            np.testing.assert_allclose(output[of].double().cpu().numpy(), want, rtol=LIMIT, atol=LIMIT)

    def test_it_registers_itself(self):
        attune_vllm.register()
        self.assertEqual(registered, {"CUSTOM": "attune_vllm.AttuneBackend"})
        backend = attune_vllm.AttuneBackend
        self.assertTrue(
            backend.supports_head_size(80) and not backend.supports_head_size(100) and
            not backend.supports_head_size(512))

    def reason(self, capability=(9, 0), **changed):
        """Asks as vLLM does when it chooses a backend."""
        asked = dict(head_size=64, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=None, use_mla=False,
                     has_sink=False, use_sparse=False, use_mm_prefix=False, device_capability=types.SimpleNamespace(
                         major=capability[0], minor=capability[1]))
        return attune_vllm.AttuneBackend.supports_combination(**{**asked, **changed})

    def test_caches_that_a_device_does_not_serve_are_refused_where_a_backend_is_chosen(self):
        for served in (dict(), dict(kv_cache_dtype=None), dict(kv_cache_dtype="bfloat16"), dict(capability=(8, 0)),
                       dict(capability=(8, 9), kv_cache_dtype="fp8"), dict(kv_cache_dtype="fp8_e5m2",
                                                                           capability=(12, 0)), dict(head_size=72)):
            self.assertIsNone(self.reason(**served))
        for name in ("fp8", "fp8_e4m3", "fp8_e5m2"):
            for capability in ((8, 0), (8, 6)):
                self.assertRegex(
                    self.reason(capability, kv_cache_dtype=name),
                    rf"kv_cache_dtype is {name} on compute capability 8\.{capability[1]}; .* from 8\.9 on")
        self.assertRegex(self.reason(head_size=72, kv_cache_dtype="fp8"), "head_size is 72 with kv_cache_dtype fp8")
        self.assertRegex(self.reason(kv_cache_dtype="float16"),
                         "kv_cache_dtype is float16 and the model's dtype torch.bfloat16; must be the same")

    @unittest.skipUnless(VLLM, "vLLM is not installed")
    def test_vllm_chooses_it(self):
        from vllm.platforms.interface import DeviceCapability
        from vllm.v1.attention.selector import AttentionSelectorConfig

        def reasons(capability=(9, 0), **changed):
            config = AttentionSelectorConfig(
                **{**dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16), **changed})
            return attune_vllm.AttuneBackend.validate_configuration(device_capability=DeviceCapability(*capability),
                                                                    **config._asdict())

        for served in (dict(), dict(has_sink=True), dict(has_sliding_window=True), dict(use_non_causal=True),
                       dict(kv_cache_dtype="fp8"), dict(capability=(8, 0))):
            self.assertEqual(reasons(**served), [])
        for refused in (dict(capability=(8, 0), kv_cache_dtype="fp8"), dict(use_mla=True), dict(use_dcp=True),
                        dict(use_batch_invariant=True), dict(attn_type="encoder_only"), dict(use_mm_prefix=True),
                        dict(use_rswa=True)):
            self.assertEqual(len(reasons(**refused)), 1, refused)

    def test_chunks_and_tokens_in_one_batch(self):
        self.check(Step(BEFORE, NEW, padding=5), built())

    def test_layouts_of_caches(self):
        for layout in (None, (0, 1, 2, 3), (1, 0, 2, 3)):
            self.check(Step(BEFORE, NEW, layout=layout), built())
            self.check(Step(BEFORE, NEW, layout=layout, cache_dtype=torch.float8_e4m3fn), built(kv_cache_dtype="fp8"),
                       cache_dtype=torch.float8_e4m3fn)
        self.check(Step(BEFORE, NEW, heads_kv=1), built(heads_kv=1))

    def test_block_sizes_are_asked_with_and_without_the_cache(self):
        for given in ((), (None,), (object(),)):
            self.assertEqual([size.base for size in attune_vllm.AttuneBackend.get_supported_kernel_block_sizes(*given)],
                             [8])

    def test_rows_that_see_later_keys(self):
        """Drafts of several tokens at once; windows look both ways then."""
        self.assertTrue(attune_vllm.AttuneBackend.supports_sliding_window() and
                        attune_vllm.AttuneBackend.supports_non_causal())
        step = Step(BEFORE, NEW, causal=False)
        self.check(step, built(), causal=False)
        self.check(step, built(sliding_window=6), causal=False, window=(5, 5))
        with self.assertRaisesRegex(NotImplementedError, "causal is a tensor, one for each request"):
            metadata(Step(BEFORE, NEW, causal=torch.ones(5, dtype=torch.bool)))

    def test_scores(self):
        step = Step(BEFORE, NEW)
        self.check(step, built(sliding_window=20), window=(19, 0))
        self.check(step, built(logits_soft_cap=5.0), softcap=5.0)
        slopes = [2.0**-(i + 1) for i in range(HEADS)]
        self.check(step, built(alibi_slopes=slopes), slopes=slopes)
        sinks = torch.linspace(-1, 2, HEADS)
        self.check(step, built(sinks=sinks.to(DEVICE)), sinks=sinks.double().numpy())

    def test_caches_of_8_bits(self):
        for name, dtype in (("fp8", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)):
            self.check(Step(BEFORE, NEW, cache_dtype=dtype), built(kv_cache_dtype=name), cache_dtype=dtype)

    def test_a_layer_that_shares_a_cache_writes_nothing(self):
        step = Step(BEFORE, NEW)
        self.check(step, built())
        before = step.cache.clone()
        q = step.q.clone()
        step.k, own = torch.full_like(step.k, 9.0), step.k
        output = torch.empty_like(q)
        built(kv_sharing_target_layer_name="0").forward(LAYER, q, step.k, step.v, step.cache, metadata(step), output)
        self.assertTrue(torch.equal(step.cache.nan_to_num(), before.nan_to_num()))
        step.k = own

    def test_a_run_that_measures_memory(self):
        step = Step([3], [1])
        self.assertFalse(built().forward(LAYER, step.q, step.k, step.v, step.cache, None,
                                         torch.ones_like(step.q)).any())

    def test_what_it_does_not_serve_is_refused(self):
        for keywords, message in ((dict(attn_type=AttentionType.ENCODER), "attn_type"), (dict(some_new_field=3),
                                                                                         "some_new_field is 3")):
            with self.assertRaisesRegex(NotImplementedError, message):
                built(**keywords)
        step = Step([3], [1])
        with self.assertRaisesRegex(NotImplementedError, "output_scale"):
            built().forward(LAYER, step.q, step.k, step.v, step.cache, metadata(step), step.q,
                            output_scale=torch.ones(1))

    def test_tables_are_exchanged(self):
        step = Step(BEFORE, NEW)
        builder = attune_vllm.AttuneMetadataBuilder(None, [], None, DEVICE)
        first = builder.build(0, step.common)
        other = builder.update_block_table(first, step.common.block_table_tensor + 0, step.common.slot_mapping)
        self.assertIsNot(other.lists["page_table"], first.lists["page_table"])
        self.assertIs(first.lists["page_table"], step.common.block_table_tensor)

    @unittest.skipUnless(DEVICE == "cuda", "graphs are of CUDA")
    def test_a_captured_step_follows_lengths(self):
        step, impl = Step([40, 1, 17], [1, 1, 1]), built()
        output, given = torch.empty_like(step.q), metadata(step)
        run = lambda: impl.forward(LAYER, step.q, step.k, step.v, step.cache, given, output)  # noqa: E731
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        step.common.seq_lens.copy_(ints([31, 1, 10]))
        slots = [step.table[r][p // PAGE] * PAGE + p % PAGE for r, p in enumerate((30, 0, 9))]
        step.common.slot_mapping.copy_(ints(slots, torch.int64))
        graph.replay()
        for request, before in enumerate((30, 0, 9)):
            keys = [
                torch.cat([step.old[w, request, :before], x[request:request + 1]]).double().cpu().numpy()
                for w, x in ((0, step.k), (1, step.v))]
            want = expected(step.q[request:request + 1].double().cpu().numpy(), *keys, causal=True)[0]
            np.testing.assert_allclose(output[request:request + 1].double().cpu().numpy(), want, rtol=LIMIT, atol=LIMIT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
