// SPDX-License-Identifier: Apache-2.0
// Device parts with integer arithmetic only, compiled for the host and compared with brute force:
// the blocks that a mask makes visible, the order of tiles, and the swizzle. One program per mask:
// ATTUNE_TEST_MASK, _LEFT and _RIGHT are compile definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#define __device__
#define __forceinline__ inline

inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }

namespace attune {
using std::max;
using std::min;
}  // namespace attune

#include "templates/shared/attention_enums.h"

namespace attune {
constexpr Mask kMask = Mask::ATTUNE_TEST_MASK;
constexpr int kWindowLeft = ATTUNE_TEST_LEFT;
constexpr int kWindowRight = ATTUNE_TEST_RIGHT;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr int kGqaRatio = 4;
constexpr int kVSlices = 1, kLastVColumn = 0;
constexpr bool kUserScores = true;  // row_blocks() masks rows past the end
constexpr int kHeadDimQk = 128;
constexpr int kHeadDimV = 64;
}  // namespace attune

#include "cuda/backward_sm90/one_kernel/dq_order.cuh"
#include "cuda/mma/shared_tile.cuh"
#include "cuda/mma/tile_copy.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/row_blocks.cuh"
#include "cuda/parts/tile_scheduler.cuh"

namespace attune {
namespace {

// The rules of shared/attention_enums.h, written a second time.
bool visible(const AttentionArgs& args, int row, int column) {
  const long long diagonal = row + (kMask == Mask::kCausalTopLeft
                                        ? 0LL
                                        : static_cast<long long>(args.seqlen_kv) - args.seqlen_q);
  if (column < 0 || column >= args.seqlen_kv) return false;
  if (kMask != Mask::kNone && column > diagonal) return false;
  if (kWindowLeft >= 0 && column < diagonal - kWindowLeft) return false;
  return kWindowRight < 0 || column <= diagonal + kWindowRight;
}

AttentionArgs lengths(int seqlen_q, int seqlen_kv) {
  AttentionArgs args = {};
  args.seqlen_q = seqlen_q;
  args.seqlen_kv = seqlen_kv;
  return args;
}

TEST(MaskPart, ColumnsFollowTheRule) {
  for (const auto& [seqlen_q, seqlen_kv] :
       {std::pair{70, 70}, {33, 90}, {90, 33}, {1, 50}, {50, 1}, {5, 0}}) {
    const AttentionArgs args = lengths(seqlen_q, seqlen_kv);
    for (int row = 0; row < seqlen_q; ++row)
      for (int column = 0; column < seqlen_kv; ++column)
        ASSERT_EQ(visible_keys(args, row).contains(column), visible(args, row, column))
            << row << "," << column << " of " << seqlen_q << "x" << seqlen_kv;
  }
}

template <int kColumns>
void check_blocks(const AttentionArgs& args, int row_begin, int row_end, int origin) {
  const BlockRange range = visible_blocks<kColumns>(args, row_begin, row_end, origin);
  int first = -1, last = -1;
  for (int block = 0; origin + block * kColumns < args.seqlen_kv + kColumns; ++block) {
    const int begin = origin + block * kColumns;
    bool any = false, all = true;
    for (int row = row_begin; row < row_end; ++row)
      for (int column = begin; column < begin + kColumns; ++column)
        (visible(args, row, column) ? any : all) = visible(args, row, column);
    if (any && first < 0) first = block;
    if (any) last = block;
    if (range.contains(block)) {
      ASSERT_EQ(range.needs_mask(block), !all)
          << "block " << block << " rows " << row_begin << ".." << row_end;
    } else {
      ASSERT_FALSE(any) << "block " << block << " is skipped";
    }
  }
  if (first < 0) {  // no work for rows that see nothing
    ASSERT_LE(range.end, range.begin);
  } else {
    ASSERT_EQ(range.begin, first);
    ASSERT_EQ(range.end, last + 1);
  }
}

TEST(MaskPart, BlocksHoldExactlyWhatIsVisible) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const AttentionArgs args =
        lengths(1 + static_cast<int>(random() % 150), static_cast<int>(random() % 200));
    const int row_begin = static_cast<int>(random() % static_cast<unsigned>(args.seqlen_q));
    const int row_end = std::min(args.seqlen_q, row_begin + 1 + static_cast<int>(random() % 64));
    check_blocks<16>(args, row_begin, row_end, 0);
    check_blocks<48>(args, row_begin, row_end, 0);
    check_blocks<48>(args, row_begin, row_end, visible_keys(args, row_begin).first);
  }
}

// Kernels with a user program skip masking only if every row of the block exists and sees all of
// its keys.
TEST(MaskPart, BlocksWithRowsPastTheEndAreMasked) {
  constexpr int kRows = 32, kKeys = 64;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const AttentionArgs args =
        lengths(1 + static_cast<int>(random() % 150), 1 + static_cast<int>(random() % 200));
    for (int first = 0; first < args.seqlen_kv; first += kKeys) {
      const int end = std::min(first + kKeys, args.seqlen_kv);
      const BlockRange blocks = row_blocks<kRows>(args, first, end);
      for (int block = blocks.begin; block < blocks.end; ++block) {
        bool all = (block + 1) * kRows <= args.seqlen_q;
        for (int row = block * kRows; all && row < (block + 1) * kRows; ++row)
          for (int key = first; key < end; ++key) all = all && visible(args, row, key);
        ASSERT_EQ(blocks.needs_mask(block), !all)
            << "keys " << first << " block " << block << " of " << args.seqlen_q << "x"
            << args.seqlen_kv;
      }
    }
  }
}

// A block only waits for a lower block of keys, which takes its turn earlier. Otherwise a kernel
// could wait for ever.
template <int kRows, int kKeys>
void check_turns(const AttentionArgs& args) {
  std::vector<int> added(static_cast<size_t>(args.seqlen_q / kRows + 1));
  for (int key_block = 0; key_block * kKeys < args.seqlen_kv; ++key_block) {
    const int first = key_block * kKeys;
    const BlockRange rows = row_blocks<kRows>(args, first, std::min(first + kKeys, args.seqlen_kv));
    for (int block = rows.begin; block < rows.end; ++block) {
      const int turn = dq_turn<kRows, kKeys>(args, key_block, block);
      ASSERT_EQ(turn, added[static_cast<size_t>(block)]++)
          << "keys " << first << " rows " << block * kRows << " of " << args.seqlen_q << "x"
          << args.seqlen_kv;
    }
  }
}

TEST(DqTurnPart, BlocksOfKeysTakeTurnsOneAfterTheOther) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const AttentionArgs args =
        lengths(static_cast<int>(random() % 700), static_cast<int>(random() % 700));
    check_turns<64, 128>(args);
    check_turns<128, 128>(args);
    check_turns<4, 8>(args);
    check_turns<8, 4>(args);
  }
}

TEST(MaskPart, LongSequencesDoNotOverflow) {
  const AttentionArgs args = lengths(64, 2147400000);
  const BlockRange range = visible_blocks<64>(args, 0, 64);
  const int last = visible_keys(args, 63).last;
  ASSERT_TRUE(visible(args, 63, last));
  EXPECT_FALSE(visible(args, 63, last + 1));
  EXPECT_EQ(range.end, last / 64 + 1);
  EXPECT_EQ(range.begin, visible_keys(args, 0).first / 64);
}

template <int kOrder>
void check_order(int batch, int heads, int seqlen_q, int seqlen_kv) {
  AttentionArgs args = lengths(seqlen_q, seqlen_kv);
  args.batch = batch;
  args.num_heads_q = heads;
  const TileScheduler<kOrder, 64, 1 << 20> tile_at(args);
  const int row_blocks = (seqlen_q + 63) / 64;
  std::set<std::tuple<int, int, int>> seen;
  for (int i = 0; i < batch * heads * row_blocks; ++i) {
    const Tile tile = tile_at(i);
    ASSERT_TRUE(tile.row_block >= 0 && tile.row_block < row_blocks && tile.head >= 0 &&
                tile.head < heads && tile.batch >= 0 && tile.batch < batch);
    seen.insert({tile.row_block, tile.head, tile.batch});
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(batch * heads * row_blocks));
  EXPECT_EQ(tile_at(0).row_block, kOrder == kRowsFirst ? 0 : row_blocks - 1)
      << "the longest tile starts first";
}

TEST(TileSchedulerPart, GivesEveryTileOnce) {
  for (const auto& [batch, heads, seqlen] :
       {std::tuple{1, 4, 64}, {3, 8, 1000}, {2, 12, 4096}, {5, 4, 1}}) {
    check_order<kRowsFirst>(batch, heads, seqlen, seqlen);
    check_order<kLongestFirst>(batch, heads, seqlen, seqlen);
    check_order<kSectionsLongestFirst>(batch, heads, seqlen, 4000);
    check_order<kSectionsLongestFirst>(batch, heads, seqlen, 0);
  }
}

// ldmatrix reads the same chunk of 8 rows at once: they must fall into 8 different groups of 16
// bytes.
template <int kHeadDim, int kElementBytes>
void check_swizzle() {
  using Shared = SharedTile<kHeadDim, kElementBytes>;
  static_assert(Shared::kRowBytes >= kHeadDim * kElementBytes && Shared::kRowBytes % 32 == 0);
  std::set<unsigned> all;
  for (int row = 0; row < 16; ++row)
    for (int chunk = 0; chunk < Shared::kChunks; ++chunk) all.insert(Shared::offset(row, chunk));
  EXPECT_EQ(all.size(), 16U * Shared::kChunks) << "two chunks share a place";
  EXPECT_LE(*all.rbegin(), 16U * Shared::kRowBytes - 16);
  for (int first = 0; first < 16; first += 8)
    for (int chunk = 0; chunk < Shared::kChunks; ++chunk) {
      std::set<unsigned> groups;
      for (int row = first; row < first + 8; ++row)
        groups.insert(Shared::offset(row, chunk) / 16 % 8);
      EXPECT_EQ(groups.size(), 8U)
          << "bank conflict at head dim " << kHeadDim << " chunk " << chunk;
    }
  for (int row = 0; row < 16; ++row)
    for (int chunk = 0; chunk < Shared::kChunks; ++chunk)
      EXPECT_EQ(Shared::chunk(1024 + Shared::offset(row, 0), chunk),
                1024 + Shared::offset(row, chunk));
  for (int row = 0; row < 16; ++row)
    for (int pair = 0; pair < Shared::kChunks / 2; ++pair)
      for (int half = 0; half < 2; ++half)
        EXPECT_EQ(Shared::chunk_pair(1024 + Shared::offset(row, half), pair),
                  1024 + Shared::offset(row, 2 * pair + half));
}

template <int... kEighths>
void check_swizzles(std::integer_sequence<int, kEighths...>) {
  (check_swizzle<8 * (kEighths + 2), 2>(), ...);
  (check_swizzle<8 * (kEighths + 2), 1>(), ...);
}

TEST(SharedTilePart, NoHeadDimHasBankConflicts) {
  check_swizzles(std::make_integer_sequence<int, 31>());
}  // 16, 24, ... 256

// Two adjacent n8 tiles of S give a thread four consecutive keys: columns 2c, 2c + 1 of the first
// hold 4c, 4c + 1 of their 16, those of the second 4c + 2, 4c + 3.
TEST(TileCopyPart, QuarteredRowsAreConsecutiveKeys) {
  for (int group = 0; group < 4; ++group)
    for (int c = 0; c < 4; ++c)
      for (int tile = 0; tile < 2; ++tile)
        for (int e = 0; e < 2; ++e)
          EXPECT_EQ(quartered_row(group * 16 + tile * 8 + 2 * c + e),
                    group * 16 + 4 * c + 2 * tile + e);
}

template <int kRowsPerPass>
void check_passes() {
  for (int place = 0; place < kRowsPerPass; ++place)
    for (int pass = 0; pass < 8; ++pass)
      EXPECT_EQ(quartered_row(place) + quartered_rows_to<kRowsPerPass>(pass),
                quartered_row(place + pass * kRowsPerPass))
          << place << " pass " << pass << " of " << kRowsPerPass;
}

TEST(TileCopyPart, PassesStayQuartered) {
  check_passes<8>();
  check_passes<16>();
  check_passes<32>();
  check_passes<64>();
}

}  // namespace
}  // namespace attune
