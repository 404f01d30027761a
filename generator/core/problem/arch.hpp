// SPDX-License-Identifier: Apache-2.0
// Arch: the target of compiled code, a CUDA compute capability or a CPU, with the limits that a
// search space must respect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune {

enum class Target { kCuda, kCpu };

struct Arch {
  Target target = Target::kCuda;
  int compute_capability = 0;         // 90 for sm_90; 0 on a CPU
  std::string suffix;                 // "a" for sm_90a
  std::string cpu;                    // LLVM cpu name, e.g. "znver4"; empty on CUDA
  std::vector<std::string> features;  // LLVM features ("+avx512f"), sorted; empty on CUDA

  int max_threads_per_block = 1024;
  int max_registers_per_thread = 255;
  int registers_per_sm = 65536;
  int shared_bytes_per_block = 0;  // with opt-in
  int shared_bytes_per_sm = 0;
  int vector_bytes = 0;  // widest SIMD register; CPU only

  std::string name() const;  // "sm_90a" or "cpu:znver4"
  bool has_feature(std::string_view feature) const;
};

// Parses "sm_90", "sm_90a" or "cpu:<llvm cpu name>"; the limits come from public tables. Throws
// kInvalidArgument for unknown names.
Arch parse_arch(std::string_view text);
// Returns the CUDA archs of the compile matrix: sm_75 to sm_121, with sm_90a.
const std::vector<std::string>& known_cuda_archs();

// The instructions of a CPU that multiply bf16.

// True if the CPU has AMX with products of bf16.
inline bool has_bf16_tiles(const Arch& arch) {
  return arch.has_feature("+amx-tile") && arch.has_feature("+amx-bf16");
}
// True if the CPU has AVX512_BF16, and its kernels use registers of 64 bytes.
inline bool has_bf16_pairs(const Arch& arch) {
  return arch.has_feature("+avx512bf16") && arch.vector_bytes == 64;
}

}  // namespace attune
