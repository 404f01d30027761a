# SPDX-License-Identifier: Apache-2.0
"""attune as an attention backend of vLLM (its interface vllm.v1.attention.backend, as of 0.33; 0.27 has the older shape of caches): decode, several tokens,
chunks of prompts, caches of 16 bits and, from compute capability 8.9 on, of e4m3 and e5m2, on NVIDIA GPUs. Requests' bits depend on the longest of
their batch, so vLLM's batch invariance is not claimed.

    pip install ./examples/vllm                       # beside attune and vllm; brings the entry point vllm.general_plugins
    vllm serve MODEL --attention-backend CUSTOM

vLLM's tables, lengths and slots are given to the kernels as they are and read on the device: no plan is made on the host for a step, and full CUDA
graphs of decoding follow them. A step is two launches: append_kv() writes the new rows, attention_kvcache() attends."""
import attune
import torch
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata,
                                       AttentionMetadataBuilder, AttentionType, MultipleOf)

_E4M3 = ("fp8", "fp8_e4m3")


def register():
    """The entry point: CUSTOM is this backend from now on."""
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
        return [MultipleOf(8)]  # others are served too, but pages of these are read fast

    @staticmethod
    def get_kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size, cache_dtype_str="auto"):
        """What older releases ask: K and V of a page side by side. Newer ones have a shape of their own: see AttuneImpl._caches()."""
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
        """Why not, or None. vLLM asks when it chooses a backend."""
        kv_cache_dtype, capability = kv_cache_dtype or "auto", (device_capability.major, device_capability.minor)
        if kv_cache_dtype.startswith("fp8") and capability < (8, 9):
            return f"kv_cache_dtype is {kv_cache_dtype} on compute capability {capability[0]}.{capability[1]}; attune reads caches of 8-bit floats from 8.9 on"
        if kv_cache_dtype.startswith("fp8") and head_size % 16:
            return f"head_size is {head_size} with kv_cache_dtype {kv_cache_dtype}; rows of 8 bits are multiples of 16 bytes"
        if kv_cache_dtype in ("float16", "bfloat16") and kv_cache_dtype != str(dtype).rpartition(".")[2]:
            return f"kv_cache_dtype is {kv_cache_dtype} and the model's dtype {dtype}; must be the same"
        return None


class AttuneMetadata(AttentionMetadata):
    """What a step's calls are given: vLLM's own tensors."""

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
    # Batches whose requests have as many tokens each: seqlen_q of the capture is that of its replays.
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
        """query: [tokens, num_heads, head_size]; key, value: [tokens, num_kv_heads, head_size] or None; kv_cache: see _caches(). Writes output, as query,
        rows of padding left alone; returns it."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("output_scale is given; attune's backend writes 16 bits")
        if attn_metadata is None:  # a run that measures memory
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
        window = None if self.window is None else (self.window, 0 if causal else self.window
                                                   )  # vLLM's windows look both ways where rows see later keys
        attune.attention_kvcache(q, k_cache, v_cache, out=out, is_causal=causal, window=window, scale=self.scale,
                                 softcap=self.softcap, alibi_slopes=self.alibi_slopes, sinks=self.sinks,
                                 **attn_metadata.lists, **scales)
        return output

    def _caches(self, kv_cache):
        """K and V, [num_blocks, block_size, num_kv_heads, head_size] of any strides, of a cache [num_blocks, num_kv_heads, block_size, head_size of K and then
        of V], or as get_kv_cache_shape() says."""
        if self.kv_cache_dtype.startswith("fp8"):
            kv_cache = kv_cache.view(torch.float8_e4m3fn if self.kv_cache_dtype in _E4M3 else torch.float8_e5m2)
        if kv_cache.dim() == 5:
            return kv_cache.unbind(1)
        return kv_cache.transpose(1, 2).tensor_split([self.head_size], dim=-1)
