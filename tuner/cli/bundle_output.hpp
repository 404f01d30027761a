// SPDX-License-Identifier: Apache-2.0
// Output of the commands that write kernels (export, compile): its place, and the report on it.
#pragma once

#include <string>
#include <vector>

#include "runtime/bundle.hpp"

namespace attune::cli {

// "Folder to write: ...", the help of an option or positional word that write_kernels takes.
extern const char* const kOutputHelp;
extern const char* const kZstdHelp;  // help of the flag --zstd

// Writes kernels in the form that the ending of `place` says. NAME.attune is a bundle of one file;
// NAME.o is an object to link, with NAME.h beside it; anything else is a folder, whose former
// bundle is extended. Throws as write_bundle does, and kInvalidArgument for an object whose name is
// not valid in C, for --zstd with a folder, and for a new folder whose name ends like a file's.
BundleChange write_kernels(const std::string& place, const std::vector<BundledKernel>& kernels,
                           Packing packing);

// Returns lines of text; empty if the folder was empty.
std::string bundle_change_text(const BundleChange& change);

}  // namespace attune::cli
