// SPDX-License-Identifier: Apache-2.0
// Makes a relocatable ELF object and a header from a bundle, so that a program can link its kernels
// in and looks for no file at run time. Used by bundle_output.cpp.
#pragma once

#include <string>
#include <string_view>

namespace attune::cli {

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
