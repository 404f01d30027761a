// SPDX-License-Identifier: Apache-2.0
// Models that consist of several; see model_table.hpp.
// The defaults are the transformers library's (configuration_*.py). Fields that it computes from
// others (head_dim from hidden_size) are left out.
#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

using enum Reading;

// clang-format off
constexpr ModelRow kRows[] = {
// Several models in one.
{.types = "clip", .reading = kParts,
    .parts = "text_config=clip_text_model vision_config=clip_vision_model"},
{.types = "siglip", .reading = kParts,
    .parts = "text_config=siglip_text_model vision_config=siglip_vision_model"},
{.types = "siglip2", .reading = kParts,
    .parts = "text_config=siglip2_text_model vision_config=siglip2_vision_model"},
{.types = "chinese_clip", .reading = kParts,
    .parts = "text_config=bert vision_config=chinese_clip_vision_model"},
{.types = "llava llava_next llava_next_video video_llava vipllava", .reading = kParts,
    .parts = "text_config=llama vision_config=clip_vision_model"},
{.types = "llava_onevision", .reading = kParts,
    .parts = "text_config=qwen2 vision_config=siglip_vision_model"},
{.types = "aya_vision cohere2_vision", .reading = kParts,
    .parts = "text_config=cohere2 vision_config=siglip_vision_model"},
{.types = "gemma3", .reading = kParts, .scores = "image_tokens",
    .parts = "text_config=gemma3_text vision_config=siglip_vision_model"},
{.types = "gemma3n", .reading = kParts,
    .parts = "text_config=gemma3n_text vision_config=gemma3n_vision audio_config=gemma3n_audio"},
{.types = "paligemma", .reading = kParts, .scores = "prefix",
    .parts = "text_config=gemma vision_config=siglip_vision_model"},
{.types = "llama4", .reading = kParts,
    .parts = "text_config=llama4_text vision_config=llama4_vision_model"},
{.types = "mllama", .reading = kParts,
    .parts = "text_config=mllama_text_model vision_config=mllama_vision_model"},
{.types = "mistral3", .reading = kParts, .parts = "text_config=mistral vision_config=pixtral"},
{.types = "idefics2", .reading = kParts,
    .parts = "text_config=mistral vision_config=idefics2_vision"},
{.types = "idefics3", .reading = kParts,
    .parts = "text_config=llama vision_config=idefics3_vision"},
{.types = "smolvlm", .reading = kParts, .parts = "text_config=llama vision_config=smolvlm_vision"},
{.types = "qwen2_vl", .reading = kParts,
    .parts = "text_config=qwen2_vl_text vision_config=qwen2_vl_vision"},
{.types = "qwen2_5_vl", .reading = kParts,
    .parts = "text_config=qwen2_5_vl_text vision_config=qwen2_5_vl_vision"},
{.types = "qwen3_vl", .reading = kParts,
    .parts = "text_config=qwen3_vl_text vision_config=qwen3_vl_vision"},
{.types = "qwen3_vl_moe", .reading = kParts,
    .parts = "text_config=qwen3_vl_moe_text vision_config=qwen3_vl_moe_vision"},
{.types = "glm4v", .reading = kParts, .parts = "text_config=glm4v_text vision_config=glm4v_vision"},
{.types = "internvl", .reading = kParts,
    .parts = "text_config=qwen2 vision_config=internvl_vision"},
{.types = "internvl_chat", .reading = kParts,
    .parts = "llm_config=qwen2 vision_config=intern_vit_6b"},
{.types = "qwen2_audio", .reading = kParts,
    .parts = "text_config=qwen2 audio_config=qwen2_audio_encoder"},
{.types = "aimv2", .reading = kParts, .parts = "text_config=aimv2_text_model "
        "vision_config=aimv2_vision_model"},
{.types = "align", .reading = kParts, .parts = "text_config=align_text_model "
        "vision_config=align_vision_model"},
{.types = "altclip", .reading = kParts, .parts = "text_config=altclip_text_model "
        "vision_config=altclip_vision_model"},
{.types = "apertus1p5", .reading = kParts, .parts = "text_config=apertus1p5_text "
        "audio_config=wavtokenizer_encoder vision_config=apertus1p5_vision_tokenizer"},
{.types = "aria", .reading = kParts, .parts = "text_config=aria_text "
        "vision_config=idefics3_vision"},
{.types = "audioflamingo3", .reading = kParts, .parts = "text_config=qwen2 "
        "audio_config=audioflamingo3_encoder"},
{.types = "blip", .reading = kParts, .parts = "text_config=blip_text_model "
        "vision_config=blip_vision_model"},
{.types = "blip-2", .reading = kParts, .parts = "text_config=opt qformer_config=blip_2_qformer "
        "vision_config=blip_2_vision_model"},
{.types = "blt", .reading = kParts, .parts = "decoder_config=blt_local_decoder "
        "encoder_config=blt_local_encoder global_config=blt_global_transformer "
        "patcher_config=blt_patcher"},
{.types = "bridgetower", .reading = kParts, .parts = "text_config=bridgetower_text_model "
        "vision_config=bridgetower_vision_model"},
{.types = "canary", .reading = kParts, .parts = "decoder_config=canary_decoder "
        "encoder_config=parakeet_encoder"},
{.types = "chmv2", .reading = kParts, .parts = "backbone_config=dinov3_vit"},
{.types = "clap", .reading = kParts, .parts = "text_config=clap_text_model "
        "audio_config=clap_audio_model"},
{.types = "clipseg", .reading = kParts, .parts = "text_config=clipseg_text_model "
        "vision_config=clipseg_vision_model"},
{.types = "clvp", .reading = kParts, .parts = "decoder_config=clvp_decoder "
        "text_config=clvp_encoder speech_config=clvp_encoder"},
{.types = "cohere_compass", .reading = kParts, .parts = "text_config=cohere_compass_text "
        "vision_config=cohere_compass_vision"},
{.types = "colmodernvbert", .reading = kParts, .parts = "vlm_config=modernvbert"},
{.types = "colpali", .reading = kParts, .parts = "vlm_config=paligemma"},
{.types = "colqwen2", .reading = kParts, .parts = "vlm_config=qwen2_vl"},
{.types = "cosmos3_edge", .reading = kParts, .parts = "text_config=cosmos3_edge_text "
        "vision_config=cosmos3_edge_vision"},
{.types = "cosmos3_omni", .reading = kParts, .parts = "text_config=qwen3_vl_text "
        "vision_config=qwen3_vl_vision"},
{.types = "deepseek_ocr2", .reading = kParts, .parts = "text_config=deepseek_ocr2_text "
        "vision_config=deepseek_ocr2_vision"},
{.types = "deepseek_ocr2_vision", .reading = kParts,
    .parts = "encoder_config=deepseek_ocr2_encoder sam_config=deepseek_ocr2_sam_vision_model"},
{.types = "deepseek_vl", .reading = kParts, .parts = "text_config=llama "
        "vision_config=siglip_vision_model"},
{.types = "deepseek_vl_hybrid", .reading = kParts, .parts = "text_config=llama "
        "high_res_vision_config=sam_vision_model vision_config=siglip_vision_model"},
{.types = "depth_anything", .reading = kParts, .parts = "backbone_config=dinov2"},
{.types = "depth_pro", .reading = kParts, .parts = "fov_model_config=dinov2 "
        "image_model_config=dinov2 patch_model_config=dinov2"},
{.types = "dia", .reading = kParts, .parts = "decoder_config=dia_decoder "
        "encoder_config=dia_encoder"},
{.types = "diffusion_gemma", .reading = kParts, .parts = "text_config=diffusion_gemma_text "
        "vision_config=gemma4_vision"},
{.types = "dots3_note", .reading = kParts, .parts = "text_config=dots3_note_text "
        "audio_config=dots3_note_audio_encoder vision_config=dots3_note_vision_encoder"},
{.types = "edgetam", .reading = kParts, .parts = "mask_decoder_config=edgetam_mask_decoder "
        "prompt_encoder_config=edgetam_prompt_encoder vision_config=edgetam_vision_model"},
{.types = "edgetam_video", .reading = kParts,
    .parts = "mask_decoder_config=edgetam_video_mask_decoder "
        "prompt_encoder_config=edgetam_video_prompt_encoder vision_config=sam2_vision_model"},
{.types = "edgetam_vision_model", .reading = kParts, .parts = "backbone_config=timm_wrapper"},
{.types = "embedding_gemma2", .reading = kParts, .parts = "text_config=embedding_gemma2_text"},
{.types = "emu3", .reading = kParts, .parts = "text_config=emu3_text_model vq_config=emu3_vqgan"},
{.types = "encoder-decoder", .reading = kParts, .parts = "decoder=bert encoder=bert"},
{.types = "ernie4_5_vl_moe", .reading = kParts, .parts = "text_config=ernie4_5_vl_moe_text "
        "vision_config=ernie4_5_vl_moe_vision"},
{.types = "exaone4_5", .reading = kParts, .parts = "text_config=exaone4 "
        "vision_config=exaone4_5_vision"},
{.types = "fast_vlm", .reading = kParts, .parts = "text_config=qwen2 vision_config=timm_wrapper"},
{.types = "fastspeech2_conformer_with_hifigan", .reading = kParts,
    .parts = "model_config=fastspeech2_conformer vocoder_config=fastspeech2_conformer_hifigan"},
{.types = "flava", .reading = kParts, .parts = "text_config=flava_text_model "
        "image_codebook_config=flava_image_codebook image_config=flava_image_model "
        "multimodal_config=flava_multimodal_model"},
{.types = "florence2", .reading = kParts, .parts = "text_config=bart "
        "vision_config=florence_vision"},
{.types = "fun_asr_nano", .reading = kParts, .parts = "text_config=qwen3 "
        "audio_config=fun_asr_nano_encoder"},
{.types = "fuyu", .reading = kParts, .parts = "text_config=persimmon"},
{.types = "gemma4", .reading = kParts, .parts = "text_config=gemma4_text"},
{.types = "gemma4_unified", .reading = kParts, .parts = "text_config=gemma4_unified_text"},
{.types = "gemma4_unified_assistant", .reading = kParts,
    .parts = "text_config=gemma4_unified_text"},
{.types = "glm46v", .reading = kParts, .parts = "text_config=glm4v_text "
        "vision_config=glm4v_vision"},
{.types = "glm4v_moe", .reading = kParts, .parts = "text_config=glm4v_moe_text "
        "vision_config=glm4v_moe_vision"},
{.types = "glm5_next", .reading = kParts, .parts = "text_config=glm5_next_text "
        "vision_config=glm5_next_vision"},
{.types = "glm_image", .reading = kParts, .parts = "text_config=glm_image_text "
        "vision_config=glm_image_vision vq_config=glm_image_vqmodel"},
{.types = "glm_ocr", .reading = kParts, .parts = "text_config=glm_ocr_text "
        "vision_config=glm_ocr_vision"},
{.types = "glmasr", .reading = kParts, .parts = "text_config=llama audio_config=glmasr_encoder"},
{.types = "glmga", .reading = kParts, .parts = "text_config=glm4v_text "
        "vision_config=glm4v_vision"},
{.types = "got_ocr2", .reading = kParts, .parts = "text_config=qwen2 "
        "vision_config=got_ocr2_vision"},
{.types = "granite4_vision", .reading = kParts, .parts = "text_config=granite4_vision_text "
        "qformer_config=blip_2_qformer vision_config=clip_vision_model"},
{.types = "granite_docling", .reading = kParts, .parts = "text_config=granite_docling_text "
        "vision_config=granite_docling_vision"},
{.types = "granite_speech", .reading = kParts, .parts = "text_config=granite "
        "encoder_config=granite_speech_encoder projector_config=blip_2_qformer"},
{.types = "granite_speech5_ctc", .reading = kParts,
    .parts = "encoder_config=granite_speech5_encoder"},
{.types = "granite_speech_plus", .reading = kParts, .parts = "text_config=granite "
        "encoder_config=granite_speech_plus_encoder projector_config=blip_2_qformer"},
{.types = "groupvit", .reading = kParts, .parts = "text_config=groupvit_text_model "
        "vision_config=groupvit_vision_model"},
{.types = "higgs_audio_v2_tokenizer", .reading = kParts, .parts = "acoustic_model_config=dac "
        "semantic_model_config=hubert"},
{.types = "hunyuan_vl", .reading = kParts, .parts = "text_config=hunyuan_vl_text "
        "vision_config=hunyuan_vl_vision"},
{.types = "hy_v4_vl", .reading = kParts, .parts = "text_config=hy_v4_vl_text "
        "vision_config=hy_v4_vl_vision"},
{.types = "hyperclovax_vision_v2", .reading = kParts, .parts = "text_config=hyperclovax "
        "vision_config=qwen2_5_vl_vision"},
{.types = "inkling2", .reading = kParts, .parts = "text_config=inkling2_text "
        "vision_config=inkling2_vision"},
{.types = "inkling2_loop", .reading = kParts, .parts = "text_config=inkling2_loop_text "
        "vision_config=inkling2_vision"},
{.types = "inkling_mm_model", .reading = kParts, .parts = "text_config=inkling_text "
        "audio_config=inkling_audio vision_config=inkling_vision"},
{.types = "instructblip", .reading = kParts, .parts = "text_config=opt "
        "qformer_config=instructblip_qformer vision_config=instructblip_vision_model"},
{.types = "instructblipvideo", .reading = kParts, .parts = "text_config=opt "
        "qformer_config=instructblipvideo_qformer vision_config=instructblipvideo_vision_model"},
{.types = "janus", .reading = kParts, .parts = "text_config=llama "
        "vision_config=janus_vision_model vq_config=janus_vqgan"},
{.types = "jev", .reading = kParts, .parts = "text_config=qwen3_5_text"},
{.types = "kimi_k25", .reading = kParts, .parts = "text_config=deepseek_v3 "
        "vision_config=kimi_k25_vision"},
{.types = "kosmos-2", .reading = kParts, .parts = "text_config=kosmos_2_text_model "
        "vision_config=kosmos_2_vision_model"},
{.types = "kosmos-2.5", .reading = kParts, .parts = "text_config=kosmos_2_5_text_model "
        "vision_config=kosmos_2_5_vision_model"},
{.types = "lasr_ctc", .reading = kParts, .parts = "encoder_config=lasr_encoder"},
{.types = "lfm2_vl", .reading = kParts, .parts = "text_config=lfm2 "
        "vision_config=siglip2_vision_model"},
{.types = "lfm3_vl", .reading = kParts, .parts = "text_config=lfm3 vision_config=lfm3_vl_vision"},
{.types = "lighton_ocr", .reading = kParts, .parts = "text_config=qwen3 vision_config=pixtral"},
{.types = "metaclip_2", .reading = kParts, .parts = "text_config=metaclip_2_text_model "
        "vision_config=metaclip_2_vision_model"},
{.types = "minicpm_ocr", .reading = kParts, .parts = "text_config=qwen3_5_text "
        "vision_config=minicpm_ocr_vision"},
{.types = "minicpmv4_6", .reading = kParts, .parts = "text_config=qwen3_5_text "
        "vision_config=minicpmv4_6_vision"},
{.types = "minicpmv4_7", .reading = kParts, .parts = "text_config=qwen3_5_text "
        "vision_config=minicpmv4_7_vision"},
{.types = "minimax_m3_vl", .reading = kParts, .parts = "text_config=minimax_m3_vl_text "
        "vision_config=minimax_m3_vl_vision"},
{.types = "mistral_large4", .reading = kParts, .parts = "text_config=mistral_large4_text "
        "vision_config=pixtral"},
{.types = "modernvbert", .reading = kParts, .parts = "text_config=modernbert "
        "vision_config=siglip_vision_model"},
{.types = "molmo2", .reading = kParts, .parts = "text_config=molmo2_text "
        "adapter_config=molmo2_adapter vision_config=molmo2_vision"},
{.types = "moonshine_streaming", .reading = kParts,
    .parts = "encoder_config=moonshine_streaming_encoder"},
{.types = "moss_transcribe_diarize", .reading = kParts, .parts = "text_config=qwen3 "
        "audio_config=moss_transcribe_diarize_audio"},
{.types = "muse_glimmer", .reading = kParts, .parts = "text_config=muse_glimmer_text "
        "vision_config=muse_glimmer_vision"},
{.types = "muse_spark", .reading = kParts, .parts = "text_config=muse_spark_text "
        "audio_config=muse_spark_audio vision_config=muse_spark_vision"},
{.types = "musicflamingo", .reading = kParts, .parts = "text_config=qwen2 "
        "audio_config=audioflamingo3_encoder"},
{.types = "musicgen", .reading = kParts, .parts = "decoder=musicgen_decoder text_encoder=t5 "
        "audio_encoder=encodec"},
{.types = "musicgen_melody", .reading = kParts, .parts = "decoder=musicgen_melody_decoder "
        "text_encoder=t5 audio_encoder=encodec"},
{.types = "nemo_speechlm", .reading = kParts, .parts = "text_config=nemotron_h "
        "audio_config=nemotron3_5_transcribe_audio "
        "word_timestamp_config=nemotron3_5_transcribe_word_timestamp"},
{.types = "nemotron3_5_asr", .reading = kParts,
    .parts = "encoder_config=nemotron_asr_streaming_encoder"},
{.types = "nemotron3_5_transcribe_audio", .reading = kParts,
    .parts = "asr_config=nemotron3_5_transcribe_asr_audio "
        "diarization_config=nemotron3_diarization"},
{.types = "nemotron3_diarization", .reading = kParts,
    .parts = "audio_config=nemotron3_diarization_audio"},
{.types = "nemotron_asr_streaming", .reading = kParts,
    .parts = "encoder_config=nemotron_asr_streaming_encoder"},
{.types = "nemotron_h_omni", .reading = kParts, .parts = "text_config=nemotron_h "
        "vision_config=radio"},
{.types = "neucodec", .reading = kParts, .parts = "semantic_model_config=wav2vec2-bert"},
{.types = "omniasr", .reading = kParts, .parts = "text_config=llama audio_config=omniasr_audio"},
{.types = "omniasr_ctc", .reading = kParts, .parts = "audio_config=omniasr_audio"},
{.types = "ovis2", .reading = kParts, .parts = "text_config=qwen2 vision_config=ovis2_vision"},
{.types = "owlv2", .reading = kParts, .parts = "text_config=owlv2_text_model "
        "vision_config=owlv2_vision_model"},
{.types = "owlvit", .reading = kParts, .parts = "text_config=owlvit_text_model "
        "vision_config=owlvit_vision_model"},
{.types = "paddleocr_vl", .reading = kParts, .parts = "text_config=paddleocr_vl_text "
        "vision_config=paddleocr_vl_vision"},
{.types = "parakeet_ctc", .reading = kParts, .parts = "encoder_config=parakeet_encoder"},
{.types = "parakeet_rnnt", .reading = kParts, .parts = "encoder_config=parakeet_encoder"},
{.types = "parakeet_tdt", .reading = kParts, .parts = "encoder_config=parakeet_encoder"},
{.types = "pe_audio", .reading = kParts, .parts = "text_config=modernbert "
        "audio_config=pe_audio_encoder"},
{.types = "pe_audio_video", .reading = kParts, .parts = "text_config=modernbert "
        "audio_video_config=pe_audio_video_encoder"},
{.types = "pe_audio_video_encoder", .reading = kParts, .parts = "audio_config=pe_audio_encoder "
        "video_config=pe_video_encoder"},
{.types = "pe_video", .reading = kParts, .parts = "text_config=modernbert "
        "video_config=pe_video_encoder"},
{.types = "perception_lm", .reading = kParts, .parts = "text_config=llama "
        "vision_config=timm_wrapper"},
{.types = "phi4_multimodal", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 3072, "num_hidden_layers": 32,
    "max_position_embeddings": 131072})", .parts = "audio_config=phi4_multimodal_audio "
        "vision_config=phi4_multimodal_vision"},
{.types = "pi0", .reading = kParts, .parts = "vlm_config=paligemma dit_config=gemma"},
{.types = "pix2struct", .reading = kParts, .parts = "text_config=pix2struct_text_model "
        "vision_config=pix2struct_vision_model"},
{.types = "pp_chart2table", .reading = kParts, .parts = "text_config=qwen2 "
        "vision_config=pp_chart2table_vision"},
{.types = "pp_formulanet", .reading = kParts, .parts = "text_config=pp_formulanet_text "
        "vision_config=pp_formulanet_vision"},
{.types = "pp_ocrv5_mobile_rec", .reading = kParts, .parts = "backbone_config=pp_lcnet_v3"},
{.types = "pp_ocrv5_server_rec", .reading = kParts, .parts = "backbone_config=hgnet_v2"},
{.types = "pp_ocrv6_small_rec", .reading = kParts, .parts = "backbone_config=pp_lcnet_v4"},
{.types = "prompt_depth_anything", .reading = kParts, .parts = "backbone_config=dinov2"},
{.types = "qianfan_ocr", .reading = kParts, .parts = "text_config=qwen3 "
        "vision_config=qianfan_ocr_vision"},
{.types = "qwen2_5_omni", .reading = kParts, .parts = "thinker_config=qwen2_5_omni_thinker "
        "talker_config=qwen2_5_omni_talker token2wav_config=qwen2_5_omni_token2wav"},
{.types = "qwen2_5_omni_thinker", .reading = kParts, .parts = "text_config=qwen2_5_omni_text "
        "audio_config=qwen2_5_omni_audio_encoder vision_config=qwen2_5_omni_vision_encoder"},
{.types = "qwen3_5", .reading = kParts, .parts = "text_config=qwen3_5_text "
        "vision_config=qwen3_5_vision"},
{.types = "qwen3_5_moe", .reading = kParts, .parts = "text_config=qwen3_5_moe_text "
        "vision_config=qwen3_5_moe_vision"},
{.types = "qwen3_asr", .reading = kParts, .parts = "text_config=qwen3 "
        "audio_config=qwen3_asr_encoder"},
{.types = "qwen3_omni_moe", .reading = kParts,
    .parts = "thinker_config=qwen3_omni_moe_thinker talker_config=qwen3_omni_moe_talker"},
{.types = "qwen3_omni_moe_thinker", .reading = kParts, .parts = "text_config=qwen3_omni_moe_text "
        "audio_config=qwen3_omni_moe_audio_encoder vision_config=qwen3_omni_moe_vision_encoder"},
{.types = "qwen4_exp", .reading = kParts, .parts = "text_config=qwen4_exp_text "
        "vision_config=qwen4_exp_vision"},
{.types = "sam", .reading = kParts, .parts = "mask_decoder_config=sam_mask_decoder "
        "prompt_encoder_config=sam_prompt_encoder vision_config=sam_vision_model"},
{.types = "sam2", .reading = kParts, .parts = "mask_decoder_config=sam2_mask_decoder "
        "prompt_encoder_config=sam2_prompt_encoder vision_config=sam2_vision_model"},
{.types = "sam2_video", .reading = kParts, .parts = "mask_decoder_config=sam2_video_mask_decoder "
        "prompt_encoder_config=sam2_video_prompt_encoder vision_config=sam2_vision_model"},
{.types = "sam2_vision_model", .reading = kParts, .parts = "backbone_config=sam2_hiera_det_model"},
{.types = "sam3", .reading = kParts, .parts = "text_config=clip_text_model "
        "detr_decoder_config=sam3_detr_decoder detr_encoder_config=sam3_detr_encoder "
        "geometry_encoder_config=sam3_geometry_encoder mask_decoder_config=sam3_mask_decoder "
        "vision_config=sam3_vision_model"},
{.types = "sam3_lite_text", .reading = kParts, .parts = "text_config=sam3_lite_text_text_model "
        "detr_decoder_config=sam3_lite_text_detr_decoder "
        "detr_encoder_config=sam3_lite_text_detr_encoder "
        "geometry_encoder_config=sam3_lite_text_geometry_encoder "
        "mask_decoder_config=sam3_lite_text_mask_decoder vision_config=sam3_vision_model"},
{.types = "sam3_tracker", .reading = kParts,
    .parts = "mask_decoder_config=sam3_tracker_mask_decoder "
        "prompt_encoder_config=sam3_tracker_prompt_encoder vision_config=sam3_vision_model"},
{.types = "sam3_tracker_video", .reading = kParts,
    .parts = "mask_decoder_config=sam3_tracker_video_mask_decoder "
        "prompt_encoder_config=sam3_tracker_video_prompt_encoder vision_config=sam3_vision_model"},
{.types = "sam3_video", .reading = kParts, .parts = "detector_config=sam3 "
        "tracker_config=sam3_tracker_video"},
{.types = "sam3_vision_model", .reading = kParts, .parts = "backbone_config=sam3_vit_model"},
{.types = "sam_hq", .reading = kParts, .parts = "mask_decoder_config=sam_hq_mask_decoder "
        "prompt_encoder_config=sam_hq_prompt_encoder vision_config=sam_hq_vision_model"},
{.types = "shieldgemma2", .reading = kParts, .parts = "text_config=gemma3_text "
        "vision_config=siglip_vision_model"},
{.types = "slanext", .reading = kParts, .parts = "vision_config=slanext_vision"},
{.types = "speech-encoder-decoder", .reading = kParts, .parts = "decoder=bert encoder=wav2vec2"},
{.types = "step3p7", .reading = kParts, .parts = "text_config=step3p5 "
        "vision_config=step3p5_vision"},
{.types = "t5gemma", .reading = kParts, .parts = "decoder=t5_gemma_module "
        "encoder=t5_gemma_module"},
{.types = "t5gemma2", .reading = kParts, .parts = "decoder=t5gemma2_decoder "
        "encoder=t5gemma2_encoder"},
{.types = "t5gemma2_encoder", .reading = kParts, .parts = "text_config=t5gemma2_text "
        "vision_config=siglip_vision_model"},
{.types = "tipsv2", .reading = kParts, .parts = "text_config=tipsv2_text_model "
        "vision_config=tipsv2_vision_model"},
{.types = "tipsv2_dpt", .reading = kParts, .parts = "backbone_config=tipsv2_vision_model"},
{.types = "tvp", .reading = kParts, .parts = "backbone_config=resnet"},
{.types = "ultravbert", .reading = kParts, .parts = "text_config=ultrabert "
        "vision_config=siglip_vision_model"},
{.types = "unlimited_ocr", .reading = kParts, .parts = "text_config=unlimited_ocr_text "
        "vision_config=unlimited_ocr_vision"},
{.types = "unlimited_ocr_vision", .reading = kParts,
    .parts = "encoder_config=unlimited_ocr_vision_encoder "
        "sam_config=unlimited_ocr_sam_vision_model"},
{.types = "vibevoice", .reading = kParts, .parts = "text_config=qwen2 "
        "audio_config=vibevoice_acoustic_tokenizer diffusion_head_config=vibevoice_diffusion "
        "semantic_model_config=vibevoice_acoustic_tokenizer_encoder"},
{.types = "vibevoice_asr", .reading = kParts, .parts = "text_config=qwen2 "
        "acoustic_tokenizer_encoder_config=vibevoice_acoustic_tokenizer_encoder "
        "semantic_tokenizer_encoder_config=vibevoice_acoustic_tokenizer_encoder"},
{.types = "video_llama_3", .reading = kParts, .parts = "text_config=qwen2 "
        "vision_config=video_llama_3_vision"},
{.types = "videoprism", .reading = kParts, .parts = "text_config=videoprism_text_model "
        "vision_config=videoprism_vision_model"},
{.types = "vision-encoder-decoder", .reading = kParts, .parts = "decoder=bert encoder=vit"},
{.types = "vision-text-dual-encoder", .reading = kParts, .parts = "text_config=bert "
        "vision_config=vit"},
{.types = "vitmatte", .reading = kParts, .parts = "backbone_config=vitdet"},
{.types = "vitpose", .reading = kParts, .parts = "backbone_config=vitpose_backbone"},
{.types = "voxtral", .reading = kParts, .parts = "text_config=llama audio_config=voxtral_encoder"},
{.types = "voxtral_realtime", .reading = kParts, .parts = "text_config=voxtral_realtime_text "
        "audio_config=voxtral_realtime_encoder"},
{.types = "xclip", .reading = kParts, .parts = "text_config=xclip_text_model "
        "vision_config=xclip_vision_model"},
{.types = "xcodec", .reading = kParts, .parts = "acoustic_model_config=dac "
        "semantic_model_config=hubert"},
{.types = "xcodec2", .reading = kParts, .parts = "semantic_model_config=wav2vec2-bert"},
{.types = "zoedepth", .reading = kParts, .parts = "backbone_config=beit"},
{.types = "qwen3_omni_moe_talker", .reading = kParts,
    .parts = "text_config=qwen3_omni_moe_talker_text "
        "code_predictor_config=qwen3_omni_moe_talker_code_predictor"},
};
// clang-format on

}  // namespace

std::span<const ModelRow> part_rows() { return kRows; }

}  // namespace attune
