// SPDX-License-Identifier: Apache-2.0
// The four functions of libzstd's frozen interface that bundles need; see bundle_file.hpp.
#include "runtime/bundles/bundle_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kLevel = 19;  // slow to write, as fast to read as others

// The functions as zstd.h declares them.
struct Library {
  size_t (*compress)(void* to, size_t capacity, const void* from, size_t bytes, int level);
  size_t (*compress_bound)(size_t bytes);
  size_t (*decompress)(void* to, size_t capacity, const void* from, size_t bytes);
  unsigned (*is_error)(size_t result);
};

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

std::optional<Library> open_zstd() {
  Library found;
  void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library || !find(library, "ZSTD_compress", &found.compress) ||
      !find(library, "ZSTD_compressBound", &found.compress_bound) ||
      !find(library, "ZSTD_decompress", &found.decompress) ||
      !find(library, "ZSTD_isError", &found.is_error))
    return std::nullopt;
  return found;
}

// Returns nullptr if the library is not found. The next call searches again, because memory may
// have been short.
const Library* zstd() {
  static std::mutex mutex;
  static std::optional<Library> opened;
  const std::lock_guard lock(mutex);
  if (!opened) opened = open_zstd();
  return opened ? &*opened : nullptr;
}

const Library& usable() {
  std::string why;
  if (!zstd_is_here(&why)) throw Error(ErrorCode::kUnsupported, why);
  return *zstd();
}

}  // namespace

bool zstd_is_here(std::string* why) {
  const bool is_here = zstd() != nullptr;
  if (!is_here && why)
    *why = "images packed by Zstandard need libzstd.so.1, which is not found (package libzstd1)";
  return is_here;
}

std::string zstd_packed(std::string_view bytes) {
  const Library& library = usable();
  std::string packed(library.compress_bound(bytes.size()), '\0');
  const size_t size =
      library.compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  if (library.is_error(size)) throw Error(ErrorCode::kInternal, "ZSTD_compress fails");
  packed.resize(size);
  return packed;
}

std::string zstd_unpacked(std::string_view packed, size_t bytes) {
  const Library& library = usable();
  std::string whole(bytes, '\0');
  if (library.decompress(whole.data(), bytes, packed.data(), packed.size()) != bytes)
    throw Error(ErrorCode::kIo,
                fmt::format("{} packed bytes do not unpack to {} bytes", packed.size(), bytes));
  return whole;
}

}  // namespace attune
