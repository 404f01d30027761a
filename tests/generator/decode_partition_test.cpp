// SPDX-License-Identifier: Apache-2.0
// The partition of decode work, with random lengths and numbers of workers. Every tile of every
// item must come once, in parts that agree on their number and have separate slots.
#include "templates/shared/layouts/decode_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace attune {
namespace {

struct Line {
  std::vector<DecodeTiles> tiles;  // per request
  int items, tile_overhead, workers, least;
  bool alike = false;   // items may be cut into equal parts
  int least_chunk = 0;  // for items cut by their own lengths alone
  int slack = 4;        // for items cut into equal parts

  int longest() const {
    int most = 0;
    for (const DecodeTiles& one : tiles) most = std::max(most, one.count);
    return most;
  }
  DecodeRange range(int worker) const {
    DecodeRange made{};
    made.tile_overhead = tile_overhead;
    made.items = items;
    made.least_chunk = least_chunk;
    int total = 0;
    for (const DecodeTiles& one : tiles) total += made.cost(one);
    made.take(total, workers, least, worker);
    if (alike)
      made.take_alike(total, items * static_cast<int>(tiles.size()), longest(), workers, least,
                      slack, worker);
    return made;
  }
};

std::vector<DecodePiece> pieces_of(const Line& line, int worker) {
  const DecodeRange range = line.range(worker);
  DecodeWalk walk{0, 0, range.begin};
  std::vector<DecodePiece> pieces;
  DecodePiece piece;
  const auto tiles_of = [&](int request) { return line.tiles[static_cast<size_t>(request)]; };
  while (walk.next(range, static_cast<int>(line.tiles.size()), tiles_of, &piece))
    pieces.push_back(piece);
  return pieces;
}

using Item = std::pair<int, int>;  // request, item of the request

void expect_whole(const Line& line, const Item& item, std::vector<DecodePiece> parts) {
  const DecodeTiles tiles = line.tiles[static_cast<size_t>(item.first)];
  std::sort(parts.begin(), parts.end(),
            [](const DecodePiece& a, const DecodePiece& b) { return a.part < b.part; });
  int next = tiles.count == 0 ? 0 : tiles.first;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].part, static_cast<int>(i));
    EXPECT_EQ(parts[i].parts, static_cast<int>(parts.size()));
    EXPECT_EQ(parts[i].begin, next);
    EXPECT_TRUE(tiles.count == 0 || parts[i].end > parts[i].begin);
    next = parts[i].end;
  }
  EXPECT_EQ(next, tiles.count == 0 ? 0 : tiles.first + tiles.count);
}

void expect_partition(const Line& line) {
  std::map<Item, std::vector<DecodePiece>> found;
  std::set<int> slots;
  for (int worker = 0; worker < line.workers; ++worker)
    for (const DecodePiece& piece : pieces_of(line, worker)) {
      found[{piece.request, piece.item}].push_back(piece);
      if (piece.parts > 1) {
        EXPECT_TRUE(slots.insert(piece.slot).second) << "slot " << piece.slot << " is used twice";
        if (line.least_chunk == 0) {
          EXPECT_EQ(piece.slot / 2, worker);
        }
      }
    }
  EXPECT_EQ(found.size(), line.tiles.size() * static_cast<size_t>(line.items));
  for (const auto& [item, parts] : found) expect_whole(line, item, parts);
}

TEST(DecodePartition, DealsEveryTileOnce) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    Line line{{}, draw(1, 9), draw(1, 8), draw(1, 300), draw(1, 32), draw(0, 1) == 1};
    const int longest = draw(0, 2) == 0 ? 3 : 200, least = draw(0, 1) == 1 ? longest - 2 : 0;
    for (int i = draw(1, line.alike ? 20 : 70); i > 0; --i)
      line.tiles.push_back({draw(0, 5), least == 0 && draw(0, 3) == 0 ? 0 : draw(least, longest)});
    expect_partition(line);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(DecodePartition, CutsByOwnLengthsDealEveryTileOnce) {
  std::mt19937 random(9);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int round = 0; round < 1000; ++round) {
    Line line{{}, draw(1, 9), draw(1, 8), draw(1, 300), draw(1, 32), true, draw(1, 16)};
    for (int i = draw(1, 40); i > 0; --i)
      line.tiles.push_back({draw(0, 5), draw(0, 3) == 0 ? draw(0, 3) : draw(0, 900)});
    expect_partition(line);
    const int most = most_chunks(line.longest(), line.least_chunk);
    for (const DecodeTiles& one : line.tiles)
      EXPECT_LE(decode_chunks(one.count, line.least_chunk), most);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// An item's cuts follow from its own tiles alone.
TEST(DecodePartition, CutsByOwnLengthsIgnoreOtherItems) {
  const auto cuts_of_first = [](const Line& line) {
    std::vector<std::pair<int, int>> cuts;
    for (int worker = 0; worker < line.workers; ++worker)
      for (const DecodePiece& piece : pieces_of(line, worker))
        if (piece.request == 0 && piece.item == 0) cuts.emplace_back(piece.begin, piece.end);
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  };
  for (const int tiles : {1, 16, 17, 300, 512, 513, 5000}) {
    const Line alone{{{2, tiles}}, 1, 4, 132, 8, true, 16};
    const Line beside{{{2, tiles}, {0, 7000}, {1, 3}, {0, 0}}, 3, 4, 48, 8, true, 16};
    EXPECT_EQ(cuts_of_first(alone), cuts_of_first(beside)) << tiles;
    EXPECT_EQ(cuts_of_first(alone).size(), static_cast<size_t>(decode_chunks(tiles, 16)));
    EXPECT_LE(cuts_of_first(alone).size(), static_cast<size_t>(kMostChunks));
  }
}

// All ranges but the last differ by less than a worker's share.
TEST(DecodePartition, SharesAreEqual) {
  const Line line{std::vector<DecodeTiles>(17, DecodeTiles{0, 512}), 8, 4, 132, 8};
  for (int worker = 0; worker < line.workers; ++worker) {
    const DecodeRange range = line.range(worker);
    EXPECT_EQ(range.share, (17 * 8 * 516 + 131) / 132);
    EXPECT_TRUE(range.end - range.begin == range.share || worker >= line.workers - 2);
  }
}

// Sixteen items of nearly equal length over 132 workers: eight parts each, and no worker has parts
// of two items.
TEST(DecodePartition, FewItemsAreCutIntoEqualParts) {
  Line line{{}, 8, 2, 132, 4, true};
  line.tiles = {{0, 256}, {0, 250}};
  for (int worker = 0; worker < line.workers; ++worker) {
    const std::vector<DecodePiece> pieces = pieces_of(line, worker);
    EXPECT_EQ(pieces.size(), worker < 128 ? 1u : 0u) << worker;
    for (const DecodePiece& piece : pieces) EXPECT_EQ(piece.parts, 8);
  }
  EXPECT_EQ(line.range(0).share, (256 + 2 + 7) / 8);
  line.tiles = {{0, 256}, {0, 2}};  // shares would be twice as large
  EXPECT_EQ(line.range(0).even, 0);
  line.tiles = {{0, 262}, {0, 262}};  // 33 positions each, where equal shares are 32
  for (const int slack : {0, 1}) {
    line.slack = slack;
    EXPECT_EQ(line.range(0).even != 0, slack == 1);
  }
}

// A multiprocessor that reads 8 KB per position gets some twenty more positions before it would
// have to end a second piece.
TEST(DecodePartition, SlackCountsBytes) {
  EXPECT_EQ(decode_even_slack(8192), 21);
  EXPECT_EQ(decode_even_slack(4 * 8192), 5);
  EXPECT_EQ(decode_even_slack(1 << 20), 0);
}

TEST(DecodePartition, TilesBeginAtTheOldestKeyOfAWindow) {
  EXPECT_EQ(decode_tiles(100, 1, -1, 16).count, 7);
  EXPECT_EQ(decode_tiles(100, 1, 10, 16).first, (99 - 10) / 16);
  EXPECT_EQ(decode_tiles(100, 20, 10, 16).first, (80 - 10) / 16);
  EXPECT_EQ(decode_tiles(0, 1, 10, 16).count, 0);
  EXPECT_EQ(decode_tiles(5, 8, -1, 16).count, 1);
}

}  // namespace
}  // namespace attune
