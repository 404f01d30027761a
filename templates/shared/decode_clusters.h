// SPDX-License-Identifier: Apache-2.0
// Items that are cut alike (decode_partition.h) into parts which blocks of one cluster have: their number divides that of the cluster's blocks, of
// which each is a worker. Where lengths do not allow that, the line is cut as ever.
#pragma once

#include "shared/decode_partition.h"

namespace attune {

ATTUNE_HOST_DEVICE constexpr int largest_power_of_two(int number) {
  int power = 1;
  while (power <= number / 2) power *= 2;
  return power;
}

// Of a range that was taken by DecodeRange::take_alike with these arguments. `cluster`: blocks of one, a power of two.
ATTUNE_HOST_DEVICE constexpr void take_in_clusters(DecodeRange* range, int total, int count,
                                                   int most, int workers, int least_share,
                                                   int cluster) {
  if (count < 1 || count > workers || most < 1) return;
  const int longest = most + range->charge, room = longest / least_share;
  const int wanted = workers / count < room ? workers / count : room;
  const int parts = largest_power_of_two(wanted < cluster ? wanted : cluster);
  const int alike = longest / parts + (longest % parts != 0 ? 1 : 0);
  DecodeRange plain = *range;
  plain.take(total, workers, least_share, range->worker);
  if (parts < 2 || alike > plain.share + plain.share / 8) return;
  range->take(count * alike * parts, workers, alike, range->worker);
  range->even = alike * parts;
}

// Whether all items have their parts in a cluster each.
ATTUNE_HOST_DEVICE constexpr bool are_in_clusters(const DecodeRange& range, int cluster) {
  if (range.even <= 0) return false;
  const int parts = range.even / range.share;
  return parts > 1 && parts <= cluster && cluster % parts == 0;
}

}  // namespace attune
