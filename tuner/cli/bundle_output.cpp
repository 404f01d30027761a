// SPDX-License-Identifier: Apache-2.0
// What a bundle took in, in words; see bundle_output.hpp.
#include "tuner/cli/bundle_output.hpp"

#include <fmt/format.h>

namespace attune::cli {

std::string bundle_change_text(const BundleChange& change) {
  std::string text;
  if (change.kept > 0)
    text += fmt::format("{} other kernels of the bundle there stay\n", change.kept);
  if (change.unnamed > 0)
    text += fmt::format(
        "{} image files there are of former kernels; delete them when no program runs that opened "
        "the former bundle\n",
        change.unnamed);
  return text;
}

}  // namespace attune::cli
