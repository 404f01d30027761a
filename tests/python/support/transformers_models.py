# SPDX-License-Identifier: Apache-2.0
"""Tiny models of real architectures with random weights, whose attention differs. Used by transformers_test.py. A
window, chunk or prompt is chosen so that rows stand on both sides of it."""
from collections import namedtuple

import torch
import transformers

VOCABULARY, ROWS, WINDOW = 97, 40, 12

# kind: "decoder", "encoder", "image", "audio" (encoder and decoder) or "text to text". reference: what attune is
# compared with.
Model = namedtuple("Model", "name kind build reference")


def _sizes(**given):
    return {
        **dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
               vocab_size=VOCABULARY, pad_token_id=0, max_position_embeddings=256),
        **given}


def _decoder(name, reference="sdpa", config=None, model=None, **given):
    def build():
        kind = getattr(transformers, (config or f"{name}Config"))
        return getattr(transformers, (model or f"{name}ForCausalLM"))(kind(**_sizes(**given)))
    return Model(name, "decoder", build, reference)


def _gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=256, vocab_size=VOCABULARY, pad_token_id=0))


def _t5():
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, vocab_size=VOCABULARY,
                              pad_token_id=0, decoder_start_token_id=0, tie_word_embeddings=False))


def _whisper():
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                   decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                                   vocab_size=VOCABULARY, num_mel_bins=16, max_source_positions=30,
                                   max_target_positions=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
                                   decoder_start_token_id=2, suppress_tokens=None, begin_suppress_tokens=None))


def _bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**_sizes()))


def _modernbert():
    return transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(**_sizes(local_attention=WINDOW, global_attn_every_n_layers=2, bos_token_id=1,
                                               eos_token_id=2, cls_token_id=1, sep_token_id=2)))


def _vit():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                               image_size=32, patch_size=8))


_LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}

MODELS = (
    _decoder("Llama", num_key_value_heads=2),
    _decoder("Mistral", num_key_value_heads=2, sliding_window=WINDOW),
    _decoder("Qwen2", num_key_value_heads=1, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    _decoder("Qwen3", num_key_value_heads=2, head_dim=32, use_sliding_window=True, sliding_window=WINDOW,
             max_window_layers=1),
    _decoder("Gemma2", "eager", num_key_value_heads=2, head_dim=16, sliding_window=WINDOW, query_pre_attn_scalar=16,
             attn_logit_softcapping=2.0, **_LAYERS),
    _decoder("Gemma3", "sdpa", "Gemma3TextConfig", num_key_value_heads=2, head_dim=16, sliding_window=WINDOW,
             **_LAYERS),
    _decoder("GptOss", "eager", num_key_value_heads=2, head_dim=16, sliding_window=WINDOW, num_local_experts=4,
             num_experts_per_tok=2, **_LAYERS),
    _decoder("Llama4", "sdpa", "Llama4TextConfig", num_key_value_heads=2, head_dim=16, attention_chunk_size=WINDOW,
             num_local_experts=2, intermediate_size_mlp=96, interleave_moe_layer_step=1, no_rope_layers=[1, 0]),
    _decoder("Phi3", num_key_value_heads=2, sliding_window=WINDOW, bos_token_id=1, eos_token_id=2),
    _decoder("OPT", ffn_dim=96, word_embed_proj_dim=64),
    _decoder("DeepseekV3", num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8,
             qk_nope_head_dim=16, v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
             moe_intermediate_size=32, first_k_dense_replace=1),
    Model("GPT2", "decoder", _gpt2, "sdpa"),
    Model("Bert", "encoder", _bert, "sdpa"),
    Model("ModernBert", "encoder", _modernbert, "sdpa"),
    Model("ViT", "image", _vit, "sdpa"),
    Model("Whisper", "audio", _whisper, "sdpa"),
    Model("T5", "text to text", _t5, "sdpa"),
)


def with_scores_that_differ(model):
    """Returns the model with larger random weights, so that its scores differ."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.mul_(3)
            elif "sinks" in name:
                weights.normal_()
    return model


def tokens(batch=2, rows=ROWS, seed=3):
    return torch.randint(3, VOCABULARY, (batch, rows), generator=torch.Generator().manual_seed(seed))


def padding(side, batch=2, rows=ROWS, hidden=9):
    """Returns a mask, 1 for tokens. The last sequence lacks tokens on this side; "holes" hides tokens in both
    sequences."""
    mask = torch.ones(batch, rows, dtype=torch.long)
    if side == "left":
        mask[-1, :hidden] = 0
    elif side == "right":
        mask[-1, rows - hidden:] = 0
    elif side == "both":
        mask[-1, :hidden // 2], mask[-1, rows - hidden:] = 0, 0
    elif side == "holes":
        mask[-1, hidden:hidden + 5], mask[0, 3] = 0, 0
    return mask


def inputs(model, side=None):
    """Returns keywords of a forward pass, and the rows of its logits to compare."""
    mask = None if side is None else padding(side)
    kept = slice(None) if mask is None else mask.bool()
    if model.kind == "image":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))}, slice(None)
    if model.kind == "audio":
        features = torch.randn(2, 16, 60, generator=torch.Generator().manual_seed(3))
        return {
            "input_features": features, "decoder_input_ids": tokens(),
            **({} if mask is None else {"decoder_attention_mask": mask})}, kept
    if model.kind == "text to text":
        return {
            "input_ids": tokens(), "decoder_input_ids": tokens(rows=21, seed=4),
            **({} if mask is None else {"attention_mask": mask})}, slice(None)
    return {"input_ids": tokens(), **({} if mask is None else {"attention_mask": mask})}, kept
