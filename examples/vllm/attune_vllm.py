# SPDX-License-Identifier: Apache-2.0
"""attune as an attention backend of vLLM (interface vllm.v1.attention.backend, as of 0.33; 0.27 has the older shape of
caches). It serves decoding, several tokens and chunks of prompts on NVIDIA GPUs. Caches have 16 bits or, from compute
capability 8.9 on, e4m3 and e5m2. The bits of a request's result depend on the longest request of its batch, so the
backend does not claim vLLM's batch invariance.

    pip install ./examples/vllm   # with attune and vllm installed; adds the entry point vllm.general_plugins
    vllm serve MODEL --attention-backend CUSTOM

Kernels read vLLM's tables, lengths and slots on the device. The host makes no plan for a step, and full CUDA graphs of
decoding work with changing lists. A step is two launches: append_kv() writes the new rows, attention_kvcache() attends.
"""
import attune
import torch
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata,
                                       AttentionMetadataBuilder, AttentionType, MultipleOf)

_E4M3 = ("fp8", "fp8_e4m3")


def register():
    """The entry point: makes this backend vLLM's CUSTOM."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    register_backend(AttentionBackendEnum.CUSTOM, f"{AttuneBackend.__module__}.{AttuneBackend.__qualname__}")


class AttuneBackend(AttentionBackend):
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", *_E4M3, "fp8_e5m2"]

    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return AttuneImpl

    @staticmethod
    def get_builder_cls():
        return AttuneMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(8)]  # other sizes work too, but pages of these sizes are read fast

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        """Returns the shape for older releases: K and V of a page side by side. For newer ones see _caches()."""
        return (num_blocks, 2, block_size, num_kv_heads, head_size)

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size % 8 == 0 and 16 <= head_size <= 256

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_compute_capability(cls, capability):
        return (capability.major, capability.minor) >= (8, 0)

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink, use_sparse,
                             use_mm_prefix, device_capability):
        """Returns why the combination is not supported, or None. vLLM calls it when it chooses a backend."""
        kv_cache_dtype, capability = kv_cache_dtype or "auto", (device_capability.major, device_capability.minor)
        if kv_cache_dtype.startswith("fp8") and capability < (8, 9):
            return (f"kv_cache_dtype is {kv_cache_dtype} on compute capability {capability[0]}.{capability[1]}; "
                    f"attune reads caches of 8-bit floats from 8.9 on")
        if kv_cache_dtype.startswith("fp8") and head_size % 16:
            return (f"head_size is {head_size} with kv_cache_dtype {kv_cache_dtype}; "
                    f"must be a multiple of 16, as rows of 8-bit elements are multiples of 16 bytes")
        if kv_cache_dtype in ("float16", "bfloat16") and kv_cache_dtype != str(dtype).rpartition(".")[2]:
            return f"kv_cache_dtype is {kv_cache_dtype} and the model's dtype {dtype}; must be the same"
        return None


class AttuneMetadata(AttentionMetadata):
    """The arguments of a step's calls: vLLM's own tensors."""

    def __init__(self, common):
        if not isinstance(common.causal, bool):
            raise NotImplementedError(
                "causal is a tensor, one for each request; attune's backend takes one bool for all")
        self.num_actual_tokens = common.num_actual_tokens
        self.slot_mapping = common.slot_mapping
        self.lists = dict(kv_lengths=common.seq_lens, page_table=common.block_table_tensor,
                          q_begins=common.query_start_loc, seqlen_q=common.max_query_len)
        self.is_causal = common.causal


class AttuneMetadataBuilder(AttentionMetadataBuilder):
    # For batches with the same number of tokens per request: replays of a capture have its seqlen_q.
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH
    supports_update_block_table = True

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return AttuneMetadata(common_attn_metadata)

    def update_block_table(self, metadata, blk_table, slot_mapping):
        import copy
        made = copy.copy(metadata)
        made.lists = dict(metadata.lists, page_table=blk_table)
        made.slot_mapping = slot_mapping
        return made


class AttuneImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None, **others):
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attn_type is {attn_type}; attune's backend serves decoders")
        for name, value in others.items():
            if value is not None:
                raise NotImplementedError(f"{name} is {value!r}; attune's backend does not know it")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.sinks = sinks
        self.window = None if sliding_window is None else sliding_window - 1
        self.softcap = logits_soft_cap or None

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None,
                output_block_scale=None):
        """Writes output and returns it. query and output: [tokens, num_heads, head_size]; key, value: [tokens,
        num_kv_heads, head_size] or None; kv_cache: see _caches(). Rows of padding stay unwritten."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("output_scale is given; attune's backend writes 16 bits")
        if attn_metadata is None:  # vLLM's run that measures memory
            return output.fill_(0)
        rows = attn_metadata.num_actual_tokens
        q, out, causal = query[:rows], output[:rows], attn_metadata.is_causal
        k_cache, v_cache = self._caches(kv_cache)
        scales = {} if k_cache.dtype == q.dtype else dict(k_scale=layer._k_scale, v_scale=layer._v_scale)
        if key is not None and value is not None and self.kv_sharing_target_layer_name is None:
            attune.append_kv(key[:rows], value[:rows], k_cache, v_cache, row_slots=attn_metadata.slot_mapping[:rows],
                             **scales)
        if self.alibi_slopes is not None and self.alibi_slopes.device != q.device:
            self.alibi_slopes = self.alibi_slopes.to(q.device)
        # vLLM's windows extend to both sides if rows see later keys.
        window = None if self.window is None else (self.window, 0 if causal else self.window)
        attune.attention_kvcache(q, k_cache, v_cache, out=out, is_causal=causal, window=window, scale=self.scale,
                                 softcap=self.softcap, alibi_slopes=self.alibi_slopes, sinks=self.sinks,
                                 **attn_metadata.lists, **scales)
        return output

    def _caches(self, kv_cache):
        """Returns K and V, [num_blocks, block_size, num_kv_heads, head_size] with any strides.

        The cache is [num_blocks, num_kv_heads, block_size, 2 * head_size] with K before V, or has the shape of
        get_kv_cache_shape()."""
        if self.kv_cache_dtype.startswith("fp8"):
            kv_cache = kv_cache.view(torch.float8_e4m3fn if self.kv_cache_dtype in _E4M3 else torch.float8_e5m2)
        if kv_cache.dim() == 5:
            return kv_cache.unbind(1)
        return kv_cache.transpose(1, 2).tensor_split([self.head_size], dim=-1)
