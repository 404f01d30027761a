# SPDX-License-Identifier: Apache-2.0
"""Builds small models of the installed transformers release and records what their attention functions are called
with. Used by installed_models_test.py. A model keeps the kind of its default config (spans of layers, ratio of heads,
features), with small sizes, so that it is built and run in a fraction of a second."""
import contextlib
import importlib
import inspect
import signal
import unittest.mock

import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ROWS, WINDOW, LAYERS, HEADS, HIDDEN, VOCABULARY = 48, 8, 8, 4, 64, 128
calls = []


def record(module, query, key, value, attention_mask=None, scaling=None, is_causal=None, **given):
    """Stands in for an attention function: keeps its arguments, and gives zeros of the right shape."""
    sinks = any(one is not None for one in (given.get("s_aux"), given.get("sinks"), getattr(module, "sinks", None)))
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", False)
    rows, keys = query.shape[-2], key.shape[-2]
    if attention_mask is None:
        seen = torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows) if causal and rows > 1 else None
        bias = False
    else:
        mask = torch.as_tensor(attention_mask)[0, 0]
        bias = mask.dtype != torch.bool and bool(((mask != 0) & (mask > -1e4)).any())
        seen = mask if mask.dtype == torch.bool else mask > -1e4
        seen = seen.expand(rows, keys)
    bias = bias or given.get("position_bias") is not None
    calls.append(
        dict(name=type(module).__name__, heads=(query.shape[1], key.shape[1]), dims=(query.shape[3], value.shape[3]),
             rows=rows, keys=keys, scale=scaling, softcap=given.get("softcap") or 0.0, sinks=sinks, bias=bias,
             seen=seen))
    return query.new_zeros(query.shape[0], rows, query.shape[1], value.shape[3]), None


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Stands in for torch's function, which some models call themselves."""
    module = torch.nn.Module()
    out, _ = record(module, query, key, value, attn_mask, scale or query.shape[-1]**-0.5, is_causal)
    return out.transpose(1, 2)


def softmax(input, dim=-1, *args, **given):
    """Stands in for torch's function in models whose attention is their own: keeps heads, and which scores are hidden.
    """
    scores = input[None] if input.dim() == 3 and len(input) == HEADS else input  # of one batch entry
    if scores.dim() == 4 and scores.shape[-2] > 1:
        calls.append(
            dict(name="softmax", heads=(scores.shape[1], None), dims=None, rows=scores.shape[2], keys=scores.shape[3],
                 scale=None, softcap=None, sinks=None, bias=None, seen=scores[0, 0] > -1e4))
    return torch.zeros_like(input) + 1 / input.shape[-1]


def register():
    ALL_ATTENTION_FUNCTIONS.register("recorder", record)
    ALL_MASK_ATTENTION_FUNCTIONS.register(
        "recorder", lambda *args, **given: sdpa_mask(*args, **{**given, "allow_is_causal_skip": False}))


def _scaled(ratio_of, heads, value):
    """Returns a number of KV heads that keeps its ratio to the query heads."""
    if not isinstance(value, int):
        return value
    return max(1, heads * value // ratio_of) if value <= ratio_of else heads


SMALL = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 256, "n_positions": 256, "n_ctx": 256, "max_seq_len": 256,
    "sliding_window": WINDOW, "attention_chunk_size": WINDOW, "local_attention": WINDOW,
    "attention_window_size": WINDOW,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "qk_head_dim": 24, "head_dim": 16, "global_head_dim": 32, "attention_head_dim": 16, "kv_channels": 16, "d_kv": 16,
    "n_group": 1, "topk_group": 1, "num_expert_group": 1, "num_experts_per_tok": 2, "num_experts_per_token": 2,
    "moe_topk": 2, "top_k_experts": 2, "moe_k": 2, "index_topk": ROWS, "index_n_heads": 4, "index_head_dim": 16,
    "window_size": 32, "max_source_positions": 32, "max_target_positions": 64, "image_size": 32, "patch_size": 8,
    "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": VOCABULARY, "mamba_chunk_size": 16,
    "chunk_size": 16,
}
HIDDEN_NAMES = ("hidden_size", "n_embd", "d_model", "embed_dim", "dim", "embedding_size", "hidden_dim")
HEAD_NAMES = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads",
              "decoder_attention_heads")
KV_NAMES = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_query_groups", "swa_num_key_value_heads",
            "num_global_key_value_heads", "encoder_num_key_value_heads", "decoder_num_key_value_heads")
LAYER_NAMES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers", "decoder_layers",
               "num_encoder_layers", "num_decoder_layers")
WIDE_NAMES = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner", "moe_intermediate_size", "d_ff", "mlp_dim",
              "shared_expert_intermediate_size", "intermediate_size_mlp", "encoder_ffn_dim", "decoder_ffn_dim",
              "expert_ffn_hidden_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
              "moe_ffn_hidden_size", "ffn_intermediate_size", "block_ff_dim")
EXPERT_NAMES = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")


def small(config, layers=LAYERS, changes=None):
    """Returns the fields of a config with small sizes."""
    fields = config.to_dict()
    count = next((fields[name] for name in LAYER_NAMES if isinstance(fields.get(name), int)), 0)
    heads = next((fields[name] for name in HEAD_NAMES if isinstance(fields.get(name), int)), 0)
    kept = _kept_layers(fields, min(count, layers))
    latent = fields.get("kv_lora_rank") and fields.get("qk_rope_head_dim")
    result = {}
    for name, value in fields.items():
        if name in ("transformers_version", "architectures", "id2label", "label2id"):
            continue
        number = isinstance(value, int) and not isinstance(value, bool)
        if name in LAYER_NAMES and number:
            value = min(value, kept)
        elif name == "head_dim" and latent:  # of the rotated part
            value = SMALL["qk_rope_head_dim"]
        elif name in HIDDEN_NAMES and number:
            value = HIDDEN
        elif name in HEAD_NAMES and number:
            value = HEADS
        elif name in KV_NAMES and number:
            value = _scaled(heads, HEADS, value)
        elif name in WIDE_NAMES and number:
            value = 32
        elif name in EXPERT_NAMES and number and value > 0:
            value = 4
        elif name == "head_dim" and value is None:
            value = SMALL["head_dim"]
        elif name in SMALL and number and value > 0:
            value = SMALL[name]
        elif name.endswith("_token_id") or name.endswith("_token_index"):
            value = value % 100 if number else value
        elif isinstance(value, list) and count > 0 and len(value) == count and kept < count:
            value = value[:kept]
        elif name == "per_layer_config" and isinstance(value, dict):
            value = {
                layer: {
                    inner: SMALL.get(inner, one) * (2 if inner == "head_dim" else 1) if inner in SMALL else _scaled(
                        heads, HEADS, one) if inner in KV_NAMES else HEADS if inner in HEAD_NAMES else one
                    for inner, one in each.items()}
                for layer, each in value.items() if int(layer) < kept}
        elif name == "rope_parameters" and isinstance(value, dict):
            pairs = (SMALL["qk_rope_head_dim"] if latent else SMALL["head_dim"]) // 2
            value = _small_rope(value, pairs, "_vl" in config.model_type or "omni" in config.model_type)
        result[name] = value
    result.update(changes or {})
    return result


def _kept_layers(fields, layers):
    """Returns how many of the first layers to keep: the last one kept is like the last of all."""
    words = fields.get("layer_types")
    if not isinstance(words, list) or len(words) <= layers:
        return layers
    return next((count for count in range(layers, 1, -1) if words[count - 1] == words[-1]), layers)


def _small_rope(rope, pairs, has_sections):
    """`pairs`: rotated pairs of a head, which the sections of a multimodal rotation share."""
    if "rope_type" not in rope:
        return {
            name: _small_rope(one, pairs, has_sections) if isinstance(one, dict) else one
            for name, one in rope.items()}
    rope = dict(rope)
    if isinstance(rope.get("mrope_section"), list) or has_sections:
        pairs = int(pairs * (rope.get("partial_rotary_factor") or 1))
        rope["mrope_section"] = [pairs - 2 * (pairs // 4), pairs // 4, pairs // 4]
    return rope


def model_class(config):
    """Returns the class that runs this config: the one for causal text if there is one, else the plainest."""
    from transformers.models.auto import modeling_auto as auto
    module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    names = [
        mapping.get(config.model_type) for mapping in (
            auto.MODEL_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)]
    names = [one if isinstance(one, str) else one[0] for one in names if one]
    found = [getattr(module, name) for name in names if hasattr(module, name)]
    if not found:
        found = [
            one for _, one in inspect.getmembers(module, inspect.isclass)
            if issubclass(one, transformers.PreTrainedModel) and one.__module__ == module.__name__ and
            getattr(one, "config_class", None) is type(config) and not one.__name__.endswith("PreTrainedModel")]
    if not found:
        raise LookupError(f"no class for {type(config).__name__}")
    return min(found, key=lambda one: "For" in one.__name__)


def inputs(model, config):
    """Yields keywords to try for a forward pass."""
    tokens = torch.arange(ROWS)[None] % 90 + 5
    takes = inspect.signature(model.forward).parameters
    if "input_ids" in takes:
        if "decoder_input_ids" in takes:
            yield dict(input_ids=tokens, decoder_input_ids=tokens[:, :ROWS // 2])
        if "attention_mask" in takes:
            yield dict(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
        if "use_cache" in takes or "kwargs" in takes:
            yield dict(input_ids=tokens, use_cache=False)
            yield dict(input_ids=tokens, use_cache=True)
        yield dict(input_ids=tokens)
    if "grid_thw" in takes:  # images as lists of patches
        first = next(iter(takes))
        patch = config.patch_size * config.patch_size * getattr(config, "temporal_patch_size", 1)
        for width in (patch * getattr(config, "in_channels", 3), patch * 3, HIDDEN):
            yield {first: torch.randn(64, width), "grid_thw": torch.tensor([[1, 8, 8]])}
    if "inputs_embeds" in takes:
        yield dict(inputs_embeds=torch.randn(1, ROWS, HIDDEN))
    size, channels = getattr(config, "image_size", 32), getattr(config, "num_channels", 3)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    if "pixel_values" in takes:
        yield dict(pixel_values=torch.randn(1, channels, height, width))


class TooLate(Exception):
    pass


@contextlib.contextmanager
def at_most(seconds):
    """Raises TooLate in a block that takes longer."""
    def late(*_):
        raise TooLate(f"it takes more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def recorded(config):
    """Runs the model of this config. Returns its calls, and the error that ended it early, if any."""
    found, error = [], None
    for implementation in ("recorder", "eager"):
        config._attn_implementation = implementation
        torch.manual_seed(1)
        try:
            model = model_class(config)(config).eval()
        except KeyError as one:  # a model that chooses its layers by the name
            error = one
            continue
        for module in model.modules():
            if isinstance(module, transformers.PreTrainedModel):
                module.config._attn_implementation_internal = implementation
        with contextlib.ExitStack() as patches:
            patches.enter_context(
                unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention", scaled_dot_product_attention))
            if implementation == "eager":
                for name in ("torch.nn.functional.softmax", "torch.softmax"):
                    patches.enter_context(unittest.mock.patch(name, softmax))
            found, error = _calls(model, config)
        if found:
            break
    return found, error


def _calls(model, config):
    error = None
    for given in inputs(model, config):
        calls.clear()
        try:
            with torch.no_grad():
                model(**given)
            return list(calls), None
        except Exception as one:  # of any kind: another call may work
            error = one
    return list(calls), error or RuntimeError("no known inputs")
