// SPDX-License-Identifier: Apache-2.0
// How blocks share the tiles of a call over caches, for cache_sm90 and mla_sm90.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "generator/search_space.hpp"

namespace attune {

// Values of the knob "scheduler", as in cuda/cache_sm90/cache_stream.cuh.
enum CacheScheduler : int64_t { kDrawn = 2, kShared = 3 };

// Returns the rule that min_tiles and tile_overhead have these values, except with equal shares.
inline Constraint only_shares_vary(int64_t min_tiles, int64_t tile_overhead) {
  return {"shares",
          {"scheduler", "min_tiles", "tile_overhead"},
          [=](const Config& c) -> std::optional<std::string> {
            if (c.at("scheduler") == kShared ||
                (c.at("min_tiles") == min_tiles && c.at("tile_overhead") == tile_overhead))
              return std::nullopt;
            return fmt::format(
                "min_tiles is {} and tile_overhead {}; with scheduler 2 they must be {} and {}",
                c.at("min_tiles"), c.at("tile_overhead"), min_tiles, tile_overhead);
          }};
}

}  // namespace attune
