// SPDX-License-Identifier: Apache-2.0
// Rows of 8-bit latent caches that hold their own factors (kv_factors=latent). With 576 columns of
// K, 512 of them V, these are the 656 bytes of FlashMLA:
//
// | bytes                         | what                                                        |
// |-------------------------------|-------------------------------------------------------------|
// | head_dim_v                    | the columns of V, e4m3                                      |
// | head_dim_v / 128 * 4          | fp32: a factor for every 128 of these columns               |
// | 2 * (head_dim_qk -            | the other columns of K, bf16                                |
// | head_dim_v)                   |                                                             |
#pragma once

namespace attune {

constexpr int kLatentFactorColumns = 128;

// Returns where the columns of 16 bits begin, in bytes.
constexpr int latent_rest_at(int head_dim_v) {
  return head_dim_v + head_dim_v / kLatentFactorColumns * 4;
}
// Returns the bytes of a row. They are a multiple of 16 if head_dim_v is a multiple of 512, and the
// other columns are a multiple of 8.
constexpr int latent_row_bytes(int head_dim_qk, int head_dim_v) {
  return latent_rest_at(head_dim_v) + 2 * (head_dim_qk - head_dim_v);
}

}  // namespace attune
