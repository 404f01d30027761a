# SPDX-License-Identifier: Apache-2.0
"""Models of published sizes with random weights, and the inputs on which transformers_models.py times them. Numbers are
from each model's config.json. Only `layers` of the layers are kept, which does not change attention's share of a
forward pass.
"""
from dataclasses import dataclass

import torch
import transformers

LENGTHS = ((2048, 4), (4096, 2), (8192, 1))  # prefill: tokens, batch

# The published configs with fewer layers.
LLAMA = dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
             vocab_size=128256, max_position_embeddings=131072)
QWEN = dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, vocab_size=152064,
            max_position_embeddings=32768)
GEMMA = dict(hidden_size=3584, intermediate_size=14336, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
             vocab_size=256000, sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
             query_pre_attn_scalar=256)
GPT_OSS = dict(hidden_size=2880, intermediate_size=2880, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
               vocab_size=201088, sliding_window=128, num_local_experts=32, num_experts_per_tok=4,
               max_position_embeddings=131072)
BERT = dict(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, vocab_size=30522)
VIT = dict(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, image_size=384, patch_size=16)
WHISPER = dict(d_model=1280, encoder_attention_heads=20, decoder_attention_heads=20, encoder_ffn_dim=5120,
               decoder_ffn_dim=5120, num_mel_bins=128, vocab_size=51866, max_source_positions=1500,
               max_target_positions=448)


@dataclass(frozen=True)
class Case:
    """One model at one length. peers: implementations that are timed against attune. padded: the share of padding in
    the last sequences, on the left for decoders and on the right for encoders."""
    model: str
    layers: int
    seqlen: int
    batch: int
    peers: tuple = ("sdpa", "flash_attention_2", "fa3", "fa4")
    padded: float = 0.0

    @property
    def name(self):
        return f"{self.model} {self.seqlen} x {self.batch}{' padded' if self.padded else ''}"


BEYOND_SDPA = ("flash_attention_2", "fa3", "fa4", "flex_attention", "eager")  # softcap, sinks

CASES = (
    *(Case("Llama-3.1-8B", 4, *length) for length in LENGTHS),
    Case("Llama-3.1-8B", 4, 2048, 4, padded=0.25),
    *(Case("Qwen2.5-7B", 4, *length) for length in LENGTHS),
    Case("bert-large", 8, 512, 32),
    Case("bert-large", 8, 512, 32, padded=0.25),
    Case("vit-large-patch16-384", 8, 577, 32),
    Case("whisper-large-v3", 4, 1500, 8),
    *(Case("gemma-2-9b", 4, *length, peers=BEYOND_SDPA) for length in LENGTHS),
    *(Case("gpt-oss-20b", 4, *length, peers=BEYOND_SDPA) for length in LENGTHS),
)


def _decoder(name, config, numbers, **given):
    def build(layers):
        made = getattr(transformers, f"{config}Config")(**numbers, num_hidden_layers=layers, pad_token_id=0,
                                                        bos_token_id=1, eos_token_id=2, **given)
        return getattr(transformers, name)(made)
    return build


def _whisper(layers):
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**WHISPER, encoder_layers=2 * layers, decoder_layers=layers))


BUILD = {
    "Llama-3.1-8B": _decoder("LlamaForCausalLM", "Llama", LLAMA),
    "Qwen2.5-7B": _decoder("Qwen2ForCausalLM", "Qwen2", QWEN),
    "gemma-2-9b": _decoder("Gemma2ForCausalLM", "Gemma2", GEMMA),
    "gpt-oss-20b": _decoder("GptOssForCausalLM", "GptOss", GPT_OSS),
    "bert-large": _decoder("BertModel", "Bert", BERT),
    "vit-large-patch16-384": lambda layers: transformers.ViTModel(
        transformers.ViTConfig(**VIT, num_hidden_layers=layers)),
    "whisper-large-v3": _whisper, }
DECODERS = ("Llama-3.1-8B", "gemma-2-9b", "Qwen2.5-7B", "gpt-oss-20b")


def build(name, layers, dtype, device):
    """Returns a model in eval() with random weights drawn on the device."""
    torch.manual_seed(1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = BUILD[name](layers).eval()
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for which, weights in model.named_parameters():
            if "sinks" in which or (weights.dim() > 1 and "experts" in which):
                weights.normal_(0.0,
                                1.0 if "sinks" in which else 0.02)  # transformers does not initialize these weights
    return model.requires_grad_(False)


def inputs(case, dtype, device):
    """Returns the keywords of a forward pass."""
    torch.manual_seed(2)
    if case.model.startswith("vit"):
        return {
            "pixel_values": torch.randn(case.batch, 3, VIT["image_size"], VIT["image_size"], device=device,
                                        dtype=dtype)}
    if case.model.startswith("whisper"):
        return {
            "input_features": torch.randn(case.batch, WHISPER["num_mel_bins"], 2 * case.seqlen, device=device,
                                          dtype=dtype), "decoder_input_ids": torch.randint(
                                              3, 50000, (case.batch, WHISPER["max_target_positions"]), device=device),
            "use_cache": False}
    given = {"input_ids": torch.randint(3, 30000, (case.batch, case.seqlen), device=device)}
    if case.padded:
        mask = torch.ones_like(given["input_ids"])
        hidden = int(case.seqlen * case.padded)
        mask[case.batch // 2:, :hidden] = 0
        given["attention_mask"] = mask if case.model in DECODERS else mask.flip(1)
    if case.model in DECODERS:
        given.update(use_cache=False, logits_to_keep=1)  # as in the prefill of generate()
    return given
