// SPDX-License-Identifier: Apache-2.0
// Kernels whose rendered sources are kept in tests/golden: a plain kernel of each family, and
// kernels with each optional feature.
#pragma once

namespace attune {

struct GoldenCase {
  const char* name;
  const char* template_name;
  const char* arch;
  const char* problem;
};

inline constexpr GoldenCase kGoldenCases[] = {
    {"sm90_d128_causal_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm90_d128_packed_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen_q=16,seqlen_kv=8192,mask=causal_bottom_right"},
    {"sm90_d64_full_fp16", "prefill_sm90", "sm_90a", "dtype=fp16,head_dim=64,heads=16,seqlen=4096"},
    {"sm90_d256_window_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=256,heads=16/8,seqlen=8192,mask=causal_bottom_right,window=4096:0"},
    {"sm90_d512_causal_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=512,heads=32/4,seqlen=8192,mask=causal_bottom_right"},
    {"sm80_d576_512_full_bf16", "prefill_sm80", "sm_80",
     "dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,seqlen=1024"},
    {"sm90_fp8_d128_causal", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm90_fp8_d256_blocks_fast", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=256,heads=8,seqlen=8192,accuracy=fast,scale_"
     "block=128,v_layout=transposed"},
    {"backward_sm90_d128_causal", "backward_sm90_one_kernel", "sm_90a",
     "op=attention_backward,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"backward_sm90_d128_parts", "backward_sm90_one_kernel", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=128,heads=32/1,batch=4,seqlen=4096,"
     "mask=causal_bottom_right"},
    {"backward_sm90_d96_parts_sums", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=96,heads=71/1,seqlen=2048,accumulate=1"},
    {"backward_sm90_d256_window", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=fp16,head_dim=256,heads=8,seqlen=4096,window=90:90,gradients=qv"},
    {"backward_sm90_d256_dropout", "backward_sm90_stored", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=256,heads=16/8,seqlen=4096,dropout=0.1"},
    {"backward_lists_sm80_d576x512", "backward_lists_sm80", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=128/1,seqlen_q=4096,"
     "seqlen_kv=32768,v_in_k=1,key_indices=positions,listed_keys=2048"},
    {"backward_lists_sm80_d128", "backward_lists_sm80", "sm_80",
     "op=attention_backward,dtype=fp16,head_dim=128,heads=32/8,seqlen=4096,key_indices=positions,"
     "listed_keys=1024"},
    {"backward_lists_sm80_d64_equal_bits", "backward_lists_sm80", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=64,heads=16/2,seqlen=4096,key_indices=positions,"
     "listed_keys=1024,deterministic=1"},
    {"backward_lists_cpu_d64", "backward_lists_cpu", "cpu:x86-64",
     "op=attention_backward,dtype=fp32,head_dim=64,heads=8/2,seqlen=512,key_indices=positions,"
     "listed_keys=64"},
    {"backward_sm80_d128_causal", "backward_sm80", "sm_80",
     "op=attention_backward,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"backward_sm80_d256_scores", "backward_sm80", "sm_86",
     "op=attention_backward,dtype=fp16,head_dim=256,heads=16,seqlen=4096,softcap=30,documents=1"},
    {"sm90_d128_dropout", "prefill_sm90", "sm_90a",
     "head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right,window=1000:0,dropout=0.1"},
    {"sm80_d64_dropout", "prefill_sm80", "sm_80",
     "dtype=fp16,head_dim=64,heads=16,seqlen=4096,dropout=0.1"},
    {"backward_sm90_d128_dropout", "backward_sm90_one_kernel", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=128,heads=16,seqlen=4096,dropout=0.1"},
    {"backward_sm90_d64_dropout_equal_bits", "backward_sm90", "sm_90a",
     "op=attention_backward,head_dim=64,heads=16,seqlen=4096,dropout=0.1,deterministic=1"},
    {"backward_sm90_d128_sums", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=128,heads=16/4,seqlen=4096,accumulate=1"},
    {"backward_sm90_d64_band", "backward_sm90_band", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=64,heads=32,seqlen=8192,mask=none,window=64:64"},
    {"backward_sm80_d64_dropout", "backward_sm80", "sm_80",
     "op=attention_backward,dtype=fp16,head_dim=64,heads=16,seqlen=4096,softcap=30,dropout=0.1"},
    {"score_gradient_sm80_bias", "score_gradient_sm80", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=64,heads=16,seqlen=4096,bias=bf16,"
     "score_gradient=bias,repeats=bh"},
    {"score_gradient_sm80_table", "score_gradient_sm80", "sm_80",
     "op=attention_backward,dtype=fp16,head_dim=64,heads=12,seqlen=512,relative_bias=fp32,"
     "score_gradient=relative_bias,dropout=0.1"},
    {"sm80_d128_causal_bf16", "prefill_sm80", "sm_80",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm80_d72_full_fp16", "prefill_sm80", "sm_86", "dtype=fp16,head_dim=72,heads=16,seqlen=577"},
    {"sm80_d192_128_window_bf16", "prefill_sm80", "sm_120",
     "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=8,seqlen=1024,window=128:128"},
    {"sm80_tf32_d128_causal", "prefill_sm80_tf32", "sm_80",
     "dtype=fp32,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right,accuracy=fast"},
    {"sm80_tf32_d72_split", "prefill_sm80_tf32", "sm_90a",
     "dtype=fp32,head_dim=72,heads=8,seqlen=1024,accuracy=split"},
    {"sm75_d64_causal_fp16", "prefill_sm75", "sm_75",
     "dtype=fp16,head_dim=64,heads=12,seqlen=512,mask=causal_top_left"},
    {"sm89_d128_causal", "prefill_sm89", "sm_89",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm89_d72_blocks_transposed", "prefill_sm89", "sm_120",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=72,heads=8,seqlen=1024,accuracy=fast,scale_"
     "block_q=64,scale_block_kv=48,v_layout=transposed"},
    {"sm90_d128_max_logits", "prefill_sm90", "sm_90a",
     "head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right,max_logits=1"},
    {"sm80_d128_max_logits", "prefill_sm80", "sm_80",
     "head_dim=128,heads=32/8,seqlen=4096,documents=1,max_logits=1"},
    {"cpu_d64_max_logits", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=12/4,seqlen=512,max_logits=1"},
    {"reference_cuda_d128_bf16", "reference_cuda", "sm_80", "head_dim=128,heads=8/2,seqlen=128"},
    {"cpu_d128_causal_fp32", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=128,heads=32/8,seqlen=2048,mask=causal_bottom_right"},
    {"cpu_d64_full_bf16", "prefill_cpu", "cpu:x86-64", "head_dim=64,heads=12,seqlen=512"},
    {"cpu_d64_dropout_fp32", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=12/4,seqlen=512,dropout=0.1"},
    {"backward_cpu_d64_dropout", "backward_cpu", "cpu:x86-64",
     "op=attention_backward,dtype=fp32,head_dim=64,heads=12/4,seqlen=512,dropout=0.1"},
    {"quantise_cuda_d128_hadamard", "quantise_cuda", "sm_90a",
     "op=quantise,dtype_o=e4m3,head_dim=128,heads=8,seqlen=512,scale_block=128,rotation=hadamard"},
    {"quantise_cpu_d64_transposed", "quantise_cpu", "cpu:x86-64",
     "op=quantise,dtype=fp16,dtype_o=e5m2,head_dim=64,heads=8,seqlen=1024,scale_block=128,v_layout="
     "transposed"},
    {"block_map_cuda_documents", "block_map_cuda", "sm_90a",
     "op=block_map,head_dim=128,heads=32/8,seqlen=4096,documents=1"},
    {"block_map_cpu_prefix", "block_map_cpu", "cpu:x86-64",
     "op=block_map,head_dim=64,heads=8,seqlen=1024,prefix=1"},
    {"decode_sm80_d128_pages", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/"
     "8,batch=32,seqlen_q=1,seqlen_kv=8192,page_size=16"},
    {"decode_sm80_d80_scores", "decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=fp16,head_dim=80,heads=8,batch=4,seqlen_q=2,seqlen_kv=1000,mask="
     "causal_bottom_right,alibi=1,packed_q=1"},
    {"decode_sm80_d128_e4m3", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim=128,heads=32/8,seqlen=4,page_size=16"},
    {"decode_sm80_d128_int8_keys", "decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=bf16,dtype_kv=int8,head_dim=128,heads=32/"
     "8,seqlen=4,page_size=16,kv_factors=keys"},
    {"decode_sm80_d128_int4", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=int4,head_dim=128,heads=32/8,batch=32,seqlen_q=1,"
     "seqlen_kv=8192,page_size=16,kv_factors=columns16"},
    {"decode_sm80_d64_e2m1_lists", "decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=fp16,dtype_kv=e2m1,head_dim=64,heads=32/8,batch=32,seqlen_q=1,"
     "seqlen_kv=8192,page_size=16,kv_factors=columns32,key_indices=positions,listed_keys=2048"},
    {"decode_sm80_d128_lists", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=32,seqlen_q=1,seqlen_kv=8192,"
     "page_size=16,key_indices=positions,listed_keys=2048"},
    {"decode_sm80_d512_pages", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=512,heads=16/2,batch=8,seqlen_q=1,seqlen_kv=32768,"
     "page_size=16"},
    {"decode_sm80_d576x512_values_in_keys", "decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,batch=8,seqlen_q=1,"
     "seqlen_kv=32768,page_size=1,v_in_k=1"},
    {"append_kv_cuda_d64_int8_made", "append_kv_cuda", "sm_90a",
     "op=append_kv,dtype=fp16,dtype_kv=int8,head_dim=64,heads=8/2,seqlen=4,kv_factors=made"},
    {"append_kv_cuda_d128_e2m1", "append_kv_cuda", "sm_90a",
     "op=append_kv,dtype=bf16,dtype_kv=e2m1,head_dim=128,heads=8/2,seqlen=4,kv_factors=columns16"},
    {"decode_cpu_d64_int4", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=bf16,dtype_kv=int4,head_dim=64,heads=8/2,batch=4,seqlen_q=1,"
     "seqlen_kv=1000,kv_factors=columns32"},
    {"cache_sm90_d128_pages", "cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/"
     "8,batch=8,seqlen_q=512,seqlen_kv=8192,mask=causal_bottom_right,page_size=16"},
    {"cache_sm90_d64_packed", "cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=fp16,head_dim=64,heads=8,batch=4,seqlen_q=100,seqlen_kv=1000,"
     "alibi=1,sinks=fp32,packed_q=1,packed_kv=1"},
    {"mla_sm90_d576_pages", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=64/"
     "1,seqlen=8,page_size=8,v_in_k=1"},
    {"mla_sm90_d576_16_rows", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=16/"
     "1,batch=32,seqlen_q=1,seqlen_kv=4096,page_size=64,v_in_k=1"},
    {"mla_sm90_d576_pages_of_1", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=16/"
     "1,batch=32,seqlen_q=1,seqlen_kv=4096,page_size=1,v_in_k=1"},
    {"mla_sm90_d576_lists", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=128/"
     "1,batch=64,seqlen_q=1,seqlen_kv=32768,page_size=64,v_in_k=1,key_indices=positions,"
     "listed_keys=2048"},
    {"mla_sm90_d576_lists_16_rows", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=16/"
     "1,batch=64,seqlen_q=1,seqlen_kv=32768,page_size=1,v_in_k=1,key_indices=positions,"
     "listed_keys=2048"},
    {"mla_sm90_d576_e4m3", "mla_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim_qk=576,head_dim_v=512,heads=128/"
     "1,batch=64,seqlen_q=1,seqlen_kv=32768,page_size=64,v_in_k=1,key_indices=positions,"
     "listed_keys=2048"},
    {"mla_sm90_d576_latent_rows", "mla_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim_qk=576,head_dim_v=512,heads=128/"
     "1,batch=64,seqlen_q=1,seqlen_kv=32768,page_size=64,v_in_k=1,kv_factors=latent,key_indices="
     "places,listed_keys=2048"},
    {"decode_cpu_d576_latent_rows", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim_qk=576,head_dim_v=512,heads=16/"
     "1,batch=4,seqlen_q=1,seqlen_kv=1000,page_size=64,v_in_k=1,kv_factors=latent"},
    {"mla_sm90_d576_e4m3_16_rows", "mla_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim_qk=576,head_dim_v=512,heads=16/"
     "1,batch=32,seqlen_q=1,seqlen_kv=32768,page_size=64,v_in_k=1"},
    {"decode_cpu_d64_fp32", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=fp32,head_dim=64,heads=8/2,batch=4,seqlen_q=1,seqlen_kv=1000"},
    {"decode_cpu_d80_e5m2", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=fp16,dtype_kv=e5m2,head_dim=80,heads=8/2,seqlen=1000"},
    {"append_kv_cuda_d128_pages", "append_kv_cuda", "sm_90a",
     "op=append_kv,head_dim=128,heads=4/2,seqlen=64,page_size=16,rotary=fp32,rotary_q=1"},
    {"merge_cuda_d128_mixed", "merge_cuda", "sm_90a",
     "op=merge,dtype=fp32,dtype_kv=bf16,head_dim=128,heads=32,seqlen=4096"},
    {"merge_cpu_d40_fp16", "merge_cpu", "cpu:x86-64",
     "op=merge,dtype=fp16,head_dim=40,heads=8,seqlen=1024"},
    {"top_k_cuda_fp32", "top_k_cuda", "sm_90a",
     "op=top_k,dtype=fp32,heads=1,seqlen_q=512,seqlen_kv=131072,listed_keys=2048"},
    {"top_k_cpu_bf16_causal", "top_k_cpu", "cpu:x86-64",
     "op=top_k,dtype=bf16,heads=1,seqlen=4096,listed_keys=64,mask=causal_bottom_right"},
    {"index_scores_sm80_d128_bf16", "index_scores_sm80", "sm_80",
     "op=index_scores,dtype=bf16,dtype_o=fp32,head_dim=128,heads=64/1,seqlen=4096,"
     "mask=causal_bottom_right"},
    {"index_scores_sm80_d128_e4m3", "index_scores_sm80", "sm_90a",
     "op=index_scores,dtype=e4m3,dtype_o=fp32,head_dim=128,heads=64/1,seqlen_q=512,"
     "seqlen_kv=131072"},
    {"index_scores_cpu_d64_fp32", "index_scores_cpu", "cpu:x86-64",
     "op=index_scores,dtype=fp32,head_dim=64,heads=8/2,seqlen=512"},
    {"reference_cpu_d64_fp32", "reference_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=4,seqlen=128"},
};

}  // namespace attune
