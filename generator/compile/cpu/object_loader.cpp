// SPDX-License-Identifier: Apache-2.0
// Loads object code into this process as runnable code; see CpuToolchain::load. Maps each kernel
// once: memory is written, then made executable, never both.

#include <elf.h>
#include <fmt/format.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "generator/compile/cpu/elf_link.hpp"
#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;

// Conversions of fp16 that the compiler calls on x86 CPUs without F16C. The ABI passes and returns
// an fp16 in the low bits of xmm0.
float extend_half(__m128 half) {
  return from_fp16(static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_castps_si128(half))));
}
__m128 truncate_to_half(float value) { return _mm_castsi128_ps(_mm_cvtsi32_si128(to_fp16(value))); }

// Asks the system, once, to save the tiles of AMX for this process: it does not by default. Child
// processes inherit the answer.
void ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
  static const int error =
      ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  if (error != 0)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the system does not let this process use AMX, which the kernel needs "
                            "(arch_prctl): {}",
                            ::strerror(error)));
}
#else
constexpr uint16_t kMachine = EM_AARCH64;
void ask_for_tiles() {}
#endif

// Returns the functions that kernels may call: those that compilers call implicitly, and two for
// reference_cpu.
std::span<const LibraryFunction> library_functions() {
  const auto address = [](auto* function) { return reinterpret_cast<uint64_t>(function); };
  static const LibraryFunction functions[] = {
    {"memcpy", address(&::memcpy)},
    {"memmove", address(&::memmove)},
    {"memset", address(&::memset)},
    {"expf", address(static_cast<float (*)(float)>(&::expf))},
    {"logf", address(static_cast<float (*)(float)>(&::logf))},
#if defined(__x86_64__)
    {"__extendhfsf2", address(&extend_half)},
    {"__truncsfhf2", address(&truncate_to_half)},
#endif
  };
  return functions;
}

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(bytes) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error(ErrorCode::kOutOfMemory, fmt::format("cannot map {} bytes for code", bytes));
    memory_ = static_cast<char*>(memory);
  }
  ~Mapping() { ::munmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* memory() const { return memory_; }
  void protect(const LinkedObject::Segment& segment, int protection) const {
    if (segment.size > 0 && ::mprotect(memory_ + segment.begin, segment.size, protection) != 0)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("the system does not let this process run code that it loads: {}",
                              ::strerror(errno)));
  }

 private:
  const size_t bytes_;
  char* memory_;
};

class LoadedObject final : public HostKernel {
 public:
  LoadedObject(const LinkedObject& linked, const std::vector<std::string>& entries)
      : mapping_(linked.bytes()) {
    char* const memory = mapping_.memory();
    for (const std::string& entry : entries)
      functions_.push_back(reinterpret_cast<Function>(memory + linked.function(entry)));
    linked.write(memory, reinterpret_cast<uint64_t>(memory));
    __builtin___clear_cache(memory, memory + linked.bytes());
    mapping_.protect(linked.segment(LinkedObject::kCode), PROT_READ | PROT_EXEC);
    mapping_.protect(linked.segment(LinkedObject::kConstants), PROT_READ);
  }
  Function function(size_t entry) const override { return functions_.at(entry); }

 private:
  const Mapping mapping_;
  std::vector<Function> functions_;
};

}  // namespace

std::unique_ptr<HostKernel> CpuToolchain::load(std::string_view object,
                                               const std::vector<std::string>& entries) const {
  try {
    const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const LinkedObject linked(object, kMachine, library_functions(), page_bytes);
    static_cast<void>(linked.function(entries.at(0)));
    if (linked.defines("attune_needs_tiles")) ask_for_tiles();  // templates/cpu/parts/tile_need.hpp
    return std::make_unique<LoadedObject>(linked, entries);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(error.code(),
                fmt::format("object is not code for this machine with the entry \"{}\": {}",
                            entries.at(0), error.what()));
  }
}

}  // namespace attune
