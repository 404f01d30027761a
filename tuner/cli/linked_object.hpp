// SPDX-License-Identifier: Apache-2.0
// A bundle as a relocatable ELF object, with a header beside it, so that a program links its kernels
// in: nothing is looked for at run time. Used by bundle_output.cpp.
#pragma once

#include <string>
#include <string_view>

namespace attune::cli {

// ELF64 for this machine's kind of CPU. .rodata holds the bytes as the symbol `name` (64-byte
// aligned), and their number as `name`_bytes, a uint64_t. The same bytes for the same input.
std::string object_of(std::string_view bytes, const std::string& name);

// Declares both symbols, and name_bundle(), which makes an attune_memory_bundle of them. `kernels`:
// what stands inside, one a line, for the comment.
std::string header_of(const std::string& name, const std::string& kernels);

// The file's name without folder and ending. Throws kInvalidArgument unless it is a name in C.
std::string symbol_name(const std::string& file);

}  // namespace attune::cli
