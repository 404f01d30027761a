# SPDX-License-Identifier: Apache-2.0
"""A forward pass over a paged cache, with FlashAttention's functions and the layers of a transformers model. Used by
engine.py and graphs.py."""
import dataclasses

import torch
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

TYPES = ("llama", "qwen2", "qwen3")


@dataclasses.dataclass
class Batch:
    """Rows of several requests, end to end. All lists are tensors on the model's device."""
    tokens: torch.Tensor  # int64 [rows]
    positions: torch.Tensor  # int64 [rows]
    slots: torch.Tensor  # int64 [rows], page * page_size + key: where a row's key is written
    lengths: torch.Tensor  # int32 [batch], keys of each request, the new ones included
    table: torch.Tensor  # int32 [batch, pages]
    begins: torch.Tensor = None  # int32 [batch + 1], the first row of each request; None: one row for each
    longest: tuple = (1, 1)  # most rows and most keys of a request


class Model:
    """A Llama or Qwen of transformers, with a cache of its own."""

    def __init__(self, model, num_pages, page_size):
        config = model.config
        window = getattr(config, "sliding_window", None)
        if config.model_type not in TYPES or window:
            raise ValueError(f"model is {config.model_type} with sliding_window {window}; must be one of "
                             f"{', '.join(TYPES)}, without a window")
        self.layers, self.body, self.head = model.model.layers, model.model, model.lm_head
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device, self.page_size, self.num_pages = model.device, page_size, num_pages
        shape = (len(self.layers), 2, num_pages, page_size, config.num_key_value_heads, self.head_dim)
        self.cache = torch.zeros(shape, dtype=model.dtype, device=model.device)

    @torch.inference_mode()
    def hidden(self, batch):
        """Writes the keys of all rows into the cache. Returns the last hidden states [rows, hidden_size]."""
        x = self.body.embed_tokens(batch.tokens)
        cos, sin = (table[0] for table in self.body.rotary_emb(x[None], batch.positions[None]))
        for layer, cache in zip(self.layers, self.cache):
            x = x + layer.self_attn.o_proj(self._attended(layer.self_attn, layer.input_layernorm(x), cache, cos, sin,
                                                          batch))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.body.norm(x)

    @torch.inference_mode()
    def logits(self, hidden):
        return self.head(hidden)

    def _attended(self, attention, x, cache, cos, sin, batch):
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim))
                   for project in (attention.q_proj, attention.k_proj, attention.v_proj))
        if hasattr(attention, "q_norm"):  # Qwen3
            q, k = attention.q_norm(q), attention.k_norm(k)
        q, k = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1)
        for pages, rows in zip(cache, (k, v)):
            pages.flatten(0, 1).index_copy_(0, batch.slots, rows)
        if batch.begins is None:
            return flash_attn_with_kvcache(q[:, None], *cache, cache_seqlens=batch.lengths, block_table=batch.table,
                                           softmax_scale=attention.scaling, causal=True)[:, 0].flatten(1)
        ends = torch.nn.functional.pad(batch.lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return flash_attn_varlen_func(q, *cache, batch.begins, ends, *batch.longest, softmax_scale=attention.scaling,
                                      causal=True, block_table=batch.table).flatten(1)
