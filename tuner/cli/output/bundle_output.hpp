// SPDX-License-Identifier: Apache-2.0
// Output of the commands that write kernels (export, compile): its place, and the report on it.
#pragma once

#include <string>
#include <string_view>
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

// Makes a relocatable ELF object and a header from a bundle, so that a program can link its kernels
// in and looks for no file at run time. Used by bundle_output.cpp.

// Returns ELF64 for this machine's kind of CPU. Its .rodata holds the bytes as the symbol `name`
// (64-byte aligned), and their number as `name`_bytes, a uint64_t. The result is the same for the
// same input.
std::string object_of(std::string_view bytes, const std::string& name);

// Returns a header that declares both symbols, and name_bundle(), which makes an
// attune_memory_bundle from them. `kernels` lists the contents, one a line, for the comment.
std::string header_of(const std::string& name, const std::string& kernels);

// Returns the file's name without folder and ending. Throws kInvalidArgument if it is not a valid
// name in C.
std::string symbol_name(const std::string& file);

}  // namespace attune::cli
