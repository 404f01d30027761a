// SPDX-License-Identifier: Apache-2.0
// Where the commands that write kernels (export, compile) put them, and what they say of it.
#pragma once

#include <string>
#include <vector>

#include "runtime/bundle.hpp"

namespace attune::cli {

// "Folder to write: ...", of an option or positional that write_kernels takes.
extern const char* const kOutputHelp;
extern const char* const kZstdHelp;  // of the flag --zstd

// By the ending of `place`: NAME.attune is a bundle of one file; NAME.o an object to link, with
// NAME.h beside it; anything else a folder, where a former bundle is added to. Throws as
// write_bundle, and kInvalidArgument for an object whose name is none in C, for a folder that is to
// be packed, and for a new folder whose name ends like a file's.
BundleChange write_kernels(const std::string& place, const std::vector<BundledKernel>& kernels,
                           Packing packing);

// Lines of text; empty when the folder was empty.
std::string bundle_change_text(const BundleChange& change);

}  // namespace attune::cli
