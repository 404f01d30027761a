// SPDX-License-Identifier: Apache-2.0
// What the commands that write bundles (export, compile) say about a bundle that was there.
#pragma once

#include <string>

#include "runtime/bundle.hpp"

namespace attune::cli {

// Lines of text; empty when the folder was empty.
std::string bundle_change_text(const BundleChange& change);

}  // namespace attune::cli
