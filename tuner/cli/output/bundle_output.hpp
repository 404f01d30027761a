// SPDX-License-Identifier: Apache-2.0
// Output of the commands that write kernels (export, compile): its place, and the report on it.
#pragma once

#include <string>
#include <vector>

#include "runtime/bundles/bundle.hpp"

namespace attune::cli {

// "Output: a folder ...", the help of the option or positional word that write_kernels takes.
extern const char* const kOutputHelp;
extern const char* const kZstdHelp;  // help of the flag --zstd

// Writes kernels in the form that the ending of `place` selects. NAME.attune is a bundle in one
// file. NAME.o is an object to link; NAME.h is written next to it. Anything else is a folder; a
// bundle already in it is extended. Throws like write_bundle. Throws kInvalidArgument for an object
// whose name is not valid in C, for --zstd with a folder, and for a new folder whose name ends like
// a file's.
BundleChange write_kernels(const std::string& place, const std::vector<BundledKernel>& kernels,
                           Packing packing);

// Returns lines of text that describe the change; empty if the folder was empty.
std::string bundle_change_text(const BundleChange& change);

}  // namespace attune::cli
