// SPDX-License-Identifier: Apache-2.0
// The instructions of AMX, each wrapped once. A CPU has eight tile registers of 16 rows of 64
// bytes. A tile of fp32 sums has 16 columns. A tile of bf16 has 32 columns, or 16 columns of pairs.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
#pragma once

namespace attune {

constexpr int kTileRows = 16, kTileRowBytes = 64, kTileBytes = kTileRows * kTileRowBytes;

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  unsigned char palette, start_row, reserved[14];
  unsigned short row_bytes[16];
  unsigned char rows[16];
};

#ifdef __AMX_BF16__

constexpr bool kCpuHasTiles = true;

// Gives every tile its full size. A thread must call this before it uses a tile.
inline void begin_tiles() {
  TileShapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = kTileRowBytes;
    shapes.rows[tile] = kTileRows;
  }
  __builtin_ia32_tile_loadconfig(&shapes);
}
// Frees the tiles, so that the system need not save them when it changes threads.
inline void end_tiles() { __builtin_ia32_tilerelease(); }

template <int kTile>
inline void zero_tile() {
  __builtin_ia32_tilezero(kTile);
}
template <int kTile>
inline void load_tile(const void* from, long long stride) {
  __builtin_ia32_tileloadd64(kTile, from, static_cast<unsigned long>(stride));
}
template <int kTile>
inline void store_tile(void* to, long long stride) {
  __builtin_ia32_tilestored64(kTile, to, static_cast<unsigned long>(stride));
}
// sums[m][n] += a[m][2 k] * b[k][2 n] + a[m][2 k + 1] * b[k][2 n + 1], over all k. Denormals count
// as 0.
template <int kSums, int kA, int kB>
inline void multiply_tiles() {
  __builtin_ia32_tdpbf16ps(kSums, kA, kB);
}

#else  // for editors, and for kernels that use no tiles

constexpr bool kCpuHasTiles = false;

inline void begin_tiles() {}
inline void end_tiles() {}
template <int kTile>
inline void zero_tile() {}
template <int kTile>
inline void load_tile(const void*, long long) {}
template <int kTile>
inline void store_tile(void*, long long) {}
template <int kSums, int kA, int kB>
inline void multiply_tiles() {}

#endif

}  // namespace attune
