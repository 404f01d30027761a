// SPDX-License-Identifier: Apache-2.0
// Recorded answers of LLVM 19.1.7 (getHostCPUName, getHostCPUFeatures) for given CPUID words: real
// CPUs, CPUs with registers that the operating system does not save, unknown models, and random
// bits. Words are in the order of CpuidWord. Used by cpu_names_test.cpp.
#pragma once

namespace attune::testing {

struct RecordedCpu {
  const char* vendor;
  unsigned words[15];
  const char* name;
  const char* features;  // sorted
};

// clang-format off
inline constexpr RecordedCpu kRecordedCpus[] = {
    {"GenuineIntel", {0xf45, 0x2001, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20000000, 0, 0},
     "nocona",
     "64bit cmov cx16 cx8 fxsr mmx sse sse3"},
    {"GenuineIntel", {0x6f2, 0x2201, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "core2",
     "64bit cmov cx16 cx8 fxsr mmx sahf sse sse3 ssse3"},
    {"GenuineIntel", {0x10676, 0x82201, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "penryn",
     "64bit cmov cx16 cx8 fxsr mmx sahf sse sse3 sse4.1 ssse3"},
    {"GenuineIntel", {0x106a0, 0x982201, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "nehalem",
     "64bit cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse sse3 sse4.1 sse4.2 ssse3"},
    {"GenuineIntel", {0x206c1, 0x982203, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "westmere",
     "64bit cmov crc32 cx16 cx8 fxsr mmx pclmul popcnt sahf sse sse3 sse4.1 sse4.2 ssse3"},
    {"GenuineIntel",
     {0x206d1, 0x1c982203, 0x3808100, 0, 0, 0, 0, 0, 0x1, 0, 0, 0x1, 0x20000000, 0, 0x7},
     "sandybridge",
     "64bit avx cmov crc32 cx16 cx8 fxsr mmx pclmul popcnt sahf sse sse3 sse4.1 sse4.2 ssse3 "
     "xsave xsaveopt"},
    {"GenuineIntel",
     {0x306e5, 0x7c982203, 0x3808100, 0x1, 0, 0, 0, 0, 0x1, 0, 0, 0x1, 0x20000000, 0, 0x7},
     "ivybridge",
     "64bit avx cmov crc32 cx16 cx8 f16c fsgsbase fxsr mmx pclmul popcnt rdrnd sahf sse sse3 "
     "sse4.1 sse4.2 ssse3 xsave xsaveopt"},
    {"GenuineIntel",
     {0x306f0, 0x7cd83203, 0x3808100, 0x529, 0, 0, 0, 0, 0x1, 0, 0, 0x21, 0x20000000, 0, 0x7},
     "haswell",
     "64bit avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx "
     "movbe pclmul popcnt rdrnd sahf sse sse3 sse4.1 sse4.2 ssse3 xsave xsaveopt"},
    {"GenuineIntel",
     {0x406f3, 0x7cd83203, 0x3808100, 0xc0529, 0, 0, 0, 0, 0x1, 0, 0, 0x121, 0x20000000, 0, 0x7},
     "broadwell",
     "64bit adx avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx "
     "movbe pclmul popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3 xsave xsaveopt"},
    {"GenuineIntel",
     {0x506e0, 0x7ed83203, 0x3808100, 0x8c052d, 0, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0, 0x7},
     "skylake",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr "
     "invpcid lzcnt mmx movbe pclmul popcnt prfchw rdrnd rdseed sahf sgx sse sse3 sse4.1 "
     "sse4.2 ssse3 xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x50651, 0x7ed83203, 0x3808100, 0xd18f0529, 0x10, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0xe7},
     "skylake-avx512",
     "64bit adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl bmi bmi2 clflushopt "
     "clwb cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul "
     "pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3 xsave xsavec xsaveopt "
     "xsaves"},
    {"GenuineIntel",
     {0x50656, 0x7ed83203, 0x3808100, 0xd18f0529, 0x10, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0x7},
     "skylake-avx512",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clwb cmov crc32 cx16 cx8 f16c fma fsgsbase "
     "fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 "
     "sse4.2 ssse3 xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x50656, 0x76d83203, 0x3808100, 0xd18f0529, 0x10, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0},
     "skylake-avx512",
     "64bit adx aes bmi bmi2 clflushopt clwb cmov crc32 cx16 cx8 fsgsbase fxsr invpcid lzcnt "
     "mmx movbe pclmul pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3"},
    {"GenuineIntel",
     {0x50651, 0x7ed83203, 0x3808100, 0xd18f0529, 0x810, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0xe7},
     "cascadelake",
     "64bit adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl avx512vnni bmi bmi2 "
     "clflushopt clwb cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr invpcid lzcnt mmx "
     "movbe pclmul pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3 xsave "
     "xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x50653, 0x7ed83203, 0x3808100, 0xd18f0529, 0x810, 0, 0x20, 0, 0xb, 0, 0, 0x121, 0x20000000,
      0, 0xe7},
     "cooperlake",
     "64bit adx aes avx avx2 avx512bf16 avx512bw avx512cd avx512dq avx512f avx512vl avx512vnni "
     "bmi bmi2 clflushopt clwb cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr invpcid "
     "lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3 "
     "xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x706e1, 0x7ed83203, 0x3808100, 0xf0af052d, 0x405f52, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000,
      0, 0xe7},
     "icelake-client",
     "64bit adx aes avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma "
     "avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov "
     "crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe pclmul pku "
     "popcnt prfchw rdpid rdrnd rdseed sahf sgx sha sse sse3 sse4.1 sse4.2 ssse3 vaes "
     "vpclmulqdq xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x606a6, 0x7ed83203, 0x3808100, 0xf1af052d, 0x405f52, 0x40000, 0, 0, 0xb, 0, 0, 0x121,
      0x20000000, 0x200, 0xe7},
     "icelake-server",
     "64bit adx aes avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma "
     "avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb cmov "
     "crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe pclmul "
     "pconfig pku popcnt prfchw rdpid rdrnd rdseed sahf sgx sha sse sse3 sse4.1 sse4.2 ssse3 "
     "vaes vpclmulqdq wbnoinvd xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x806c0, 0x7ed83203, 0x3808100, 0xf1af052d, 0x18c05fd2, 0x100, 0, 0, 0xb, 0, 0x4, 0x121,
      0x20000000, 0, 0xe7},
     "tigerlake",
     "64bit adx aes avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma "
     "avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq bmi bmi2 "
     "clflushopt clwb cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid kl lzcnt "
     "mmx movbe movdir64b movdiri pclmul pku popcnt prfchw rdpid rdrnd rdseed sahf sgx sha "
     "shstk sse sse3 sse4.1 sse4.2 ssse3 vaes vpclmulqdq widekl xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0xa0671, 0x7ed83203, 0x3808100, 0xf0af0529, 0x405f52, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000,
      0, 0xe7},
     "rocketlake",
     "64bit adx aes avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma "
     "avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov "
     "crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe pclmul pku "
     "popcnt prfchw rdpid rdrnd rdseed sahf sha sse sse3 sse4.1 sse4.2 ssse3 vaes vpclmulqdq "
     "xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x90673, 0x66d83203, 0x3808100, 0x218c050d, 0x1a4007b0, 0x44000, 0x400010, 0, 0xb, 0x10, 0x4,
      0x121, 0x20000000, 0, 0},
     "alderlake",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 fsgsbase fxsr gfni "
     "hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku popcnt prfchw "
     "ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 sse4.2 ssse3 "
     "waitpkg widekl"},
    {"GenuineIntel",
     {0xb0670, 0x66d83203, 0x3808100, 0x218c050d, 0x1a4007b0, 0x44000, 0x400010, 0, 0xb, 0x10, 0x4,
      0x121, 0x20000000, 0, 0},
     "alderlake",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 fsgsbase fxsr gfni "
     "hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku popcnt prfchw "
     "ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 sse4.2 ssse3 "
     "waitpkg widekl"},
    {"GenuineIntel",
     {0xa06a6, 0x66d83203, 0x3808100, 0x218c050d, 0x1a4007b0, 0x44000, 0x400010, 0, 0xb, 0x10, 0x4,
      0x121, 0x20000000, 0, 0},
     "alderlake",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 fsgsbase fxsr gfni "
     "hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku popcnt prfchw "
     "ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 sse4.2 ssse3 "
     "waitpkg widekl"},
    {"GenuineIntel",
     {0x806f0, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x30, 0, 0xb, 0x10, 0,
      0x121, 0x20000000, 0x200, 0x600e7},
     "sapphirerapids",
     "64bit adx aes amx-bf16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw "
     "avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 "
     "enqcmd evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri "
     "pclmul pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk "
     "sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes vpclmulqdq waitpkg wbnoinvd xsave "
     "xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x806f3, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x30, 0, 0xb, 0x10, 0,
      0x121, 0x20000000, 0x200, 0x7},
     "sapphirerapids",
     "64bit adx aes avx avx2 avxvnni bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 "
     "enqcmd f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri pclmul "
     "pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse "
     "sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes vpclmulqdq waitpkg wbnoinvd xsave xsavec "
     "xsaveopt xsaves"},
    {"GenuineIntel",
     {0x806f0, 0x76d83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x30, 0, 0xb, 0x10, 0,
      0x121, 0x20000000, 0x200, 0},
     "sapphirerapids",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 enqcmd fsgsbase fxsr "
     "gfni invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku popcnt prfchw ptwrite "
     "rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk "
     "uintr waitpkg wbnoinvd"},
    {"GenuineIntel",
     {0xc06f2, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x30, 0, 0xb, 0x10, 0,
      0x121, 0x20000000, 0x200, 0x600e7},
     "sapphirerapids",
     "64bit adx aes amx-bf16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw "
     "avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 "
     "enqcmd evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri "
     "pclmul pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk "
     "sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes vpclmulqdq waitpkg wbnoinvd xsave "
     "xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0xa06d4, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x200030, 0x4000, 0xb,
      0x10, 0, 0x121, 0x20000000, 0x200, 0x600e7},
     "graniterapids",
     "64bit adx aes amx-bf16 amx-fp16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg "
     "avx512bw avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 "
     "enqcmd evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri "
     "pclmul pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx "
     "sha shstk sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes vpclmulqdq waitpkg wbnoinvd "
     "xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0xa06e6, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x200030, 0x4100, 0xb,
      0x10, 0, 0x121, 0x20000000, 0x200, 0x600e7},
     "graniterapids-d",
     "64bit adx aes amx-bf16 amx-complex amx-fp16 amx-int8 amx-tile avx avx2 avx512bf16 "
     "avx512bitalg avx512bw avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi "
     "avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote clflushopt "
     "clwb cmov crc32 cx16 cx8 enqcmd evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx "
     "movbe movdir64b movdiri pclmul pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd "
     "rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes "
     "vpclmulqdq waitpkg wbnoinvd xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0xa06f2, 0x66d83203, 0x3808100, 0x218c050d, 0x3a4007b0, 0x44020, 0xc00090, 0x30, 0xb, 0x10,
      0x4, 0x121, 0x20000000, 0, 0},
     "sierraforest",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov cmpccxadd crc32 cx16 cx8 enqcmd "
     "fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku "
     "popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 "
     "sse4.2 ssse3 uintr waitpkg widekl"},
    {"GenuineIntel",
     {0xc0651, 0x66d83203, 0x3808100, 0x218c050d, 0x3a4007b0, 0x44020, 0xc00090, 0x30, 0xb, 0x10,
      0x4, 0x121, 0x20000000, 0, 0},
     "arrowlake",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov cmpccxadd crc32 cx16 cx8 enqcmd "
     "fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku "
     "popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk sse sse3 sse4.1 "
     "sse4.2 ssse3 uintr waitpkg widekl"},
    {"GenuineIntel",
     {0xb06d4, 0x66d83203, 0x3808100, 0x218c050d, 0x3a4007b0, 0x44020, 0xc00097, 0x430, 0xb, 0x10,
      0x4, 0x121, 0x20000000, 0, 0},
     "arrowlake-s",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov cmpccxadd crc32 cx16 cx8 enqcmd "
     "fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku "
     "popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha sha512 shstk sm3 sm4 sse "
     "sse3 sse4.1 sse4.2 ssse3 uintr waitpkg widekl"},
    {"GenuineIntel",
     {0xd06d2, 0x66d83203, 0x3808100, 0x218c050d, 0x3a4007b0, 0x44020, 0xc00097, 0xc430, 0xb, 0x10,
      0x4, 0x121, 0x20000000, 0, 0},
     "clearwaterforest",
     "64bit adx aes bmi bmi2 cldemote clflushopt clwb cmov cmpccxadd crc32 cx16 cx8 enqcmd "
     "fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri pclmul pconfig pku "
     "popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha sha512 shstk "
     "sm3 sm4 sse sse3 sse4.1 sse4.2 ssse3 uintr usermsr waitpkg widekl"},
    {"GenuineIntel",
     {0x50671, 0x7ed83203, 0x3808100, 0x100d0529, 0, 0, 0, 0, 0x1, 0, 0, 0x121, 0x20000000, 0,
      0xe7},
     "knl",
     "64bit adx aes avx avx2 avx512cd avx512f bmi bmi2 cmov crc32 cx16 cx8 evex512 f16c fma "
     "fsgsbase fxsr invpcid lzcnt mmx movbe pclmul popcnt prfchw rdrnd rdseed sahf sse sse3 "
     "sse4.1 sse4.2 ssse3 xsave xsaveopt"},
    {"GenuineIntel", {0x106c3, 0x402201, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "bonnell",
     "64bit cmov cx16 cx8 fxsr mmx movbe sahf sse sse3 ssse3"},
    {"GenuineIntel",
     {0x30675, 0x40d82203, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x101, 0x20000000, 0, 0},
     "silvermont",
     "64bit cmov crc32 cx16 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sahf sse sse3 sse4.1 "
     "sse4.2 ssse3"},
    {"GenuineIntel",
     {0x506c1, 0x46d82203, 0x3808100, 0x20840001, 0, 0, 0, 0, 0xb, 0, 0, 0x101, 0x20000000, 0, 0},
     "goldmont",
     "64bit aes clflushopt cmov crc32 cx16 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw "
     "rdrnd rdseed sahf sha sse sse3 sse4.1 sse4.2 ssse3"},
    {"GenuineIntel",
     {0x80661, 0x46d82203, 0x3808100, 0x21840005, 0x400100, 0, 0, 0, 0xb, 0x10, 0, 0x101,
      0x20000000, 0, 0},
     "tremont",
     "64bit aes clflushopt clwb cmov crc32 cx16 cx8 fsgsbase fxsr gfni mmx movbe pclmul popcnt "
     "prfchw ptwrite rdpid rdrnd rdseed sahf sgx sha sse sse3 sse4.1 sse4.2 ssse3"},
    {"AuthenticAMD", {0xf50, 0, 0x7800100, 0, 0, 0, 0, 0, 0, 0, 0, 0x100, 0x20000000, 0, 0},
     "k8",
     "64bit cx8 fxsr mmx prfchw sse sse2"},
    {"AuthenticAMD", {0x60fb3, 0x1, 0x7800100, 0, 0, 0, 0, 0, 0, 0, 0, 0x100, 0x20000000, 0, 0},
     "k8-sse3",
     "64bit cx8 fxsr mmx prfchw sse sse2 sse3"},
    {"AuthenticAMD",
     {0x100f47, 0x802001, 0x7800100, 0, 0, 0, 0, 0, 0, 0, 0, 0x161, 0x20000000, 0, 0},
     "amdfam10",
     "64bit cx16 cx8 fxsr lzcnt mmx popcnt prfchw sahf sse sse2 sse3 sse4a"},
    {"AuthenticAMD",
     {0x500f16, 0x802201, 0x7800100, 0, 0, 0, 0, 0, 0, 0, 0, 0x161, 0x20000000, 0, 0},
     "btver1",
     "64bit cx16 cx8 fxsr lzcnt mmx popcnt prfchw sahf sse sse2 sse3 sse4a ssse3"},
    {"AuthenticAMD",
     {0x600f15, 0x1e982203, 0x7800100, 0, 0, 0, 0, 0, 0, 0, 0, 0x18961, 0x20000000, 0, 0x7},
     "bdver1",
     "64bit aes avx crc32 cx16 cx8 fma4 fxsr lwp lzcnt mmx pclmul popcnt prfchw sahf sse sse2 "
     "sse3 sse4.1 sse4.2 sse4a ssse3 xop xsave"},
    {"AuthenticAMD",
     {0x600f27, 0x3e983203, 0x7800100, 0x8, 0, 0, 0, 0, 0, 0, 0, 0x218961, 0x20000000, 0, 0x7},
     "bdver2",
     "64bit aes avx bmi crc32 cx16 cx8 f16c fma fma4 fxsr lwp lzcnt mmx pclmul popcnt prfchw "
     "sahf sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm xop xsave"},
    {"AuthenticAMD",
     {0x630f07, 0x3e983203, 0x7800100, 0x9, 0, 0, 0, 0, 0x1, 0, 0, 0x218961, 0x20000000, 0, 0x7},
     "bdver3",
     "64bit aes avx bmi crc32 cx16 cx8 f16c fma fma4 fsgsbase fxsr lwp lzcnt mmx pclmul popcnt "
     "prfchw sahf sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm xop xsave xsaveopt"},
    {"AuthenticAMD",
     {0x660f05, 0x7ed83203, 0x7800100, 0x129, 0, 0, 0, 0, 0x1, 0, 0, 0x20218961, 0x20000000, 0,
      0x7},
     "bdver4",
     "64bit aes avx avx2 bmi bmi2 crc32 cx16 cx8 f16c fma fma4 fsgsbase fxsr lwp lzcnt mmx "
     "movbe mwaitx pclmul popcnt prfchw rdrnd sahf sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm "
     "xop xsave xsaveopt"},
    {"AuthenticAMD",
     {0x700f04, 0x3ed02203, 0x7800100, 0x8, 0, 0, 0, 0, 0x1, 0, 0, 0x161, 0x20000000, 0, 0x7},
     "btver2",
     "64bit aes avx bmi crc32 cx16 cx8 f16c fxsr lzcnt mmx movbe pclmul popcnt prfchw sahf sse "
     "sse2 sse3 sse4.2 sse4a ssse3 xsave xsaveopt"},
    {"AuthenticAMD",
     {0x800f13, 0x7ed83203, 0x7800100, 0x208c0129, 0, 0, 0, 0, 0xb, 0, 0, 0x20000161, 0x20000000,
      0x1, 0x7},
     "znver1",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clzero crc32 cx16 cx8 f16c fma fsgsbase fxsr "
     "lzcnt mmx movbe mwaitx pclmul popcnt prfchw rdrnd rdseed sahf sha sse sse2 sse3 sse4.1 "
     "sse4.2 sse4a ssse3 xsave xsavec xsaveopt xsaves"},
    {"AuthenticAMD",
     {0x830f12, 0x7ed83203, 0x7800100, 0x218c0129, 0x400000, 0, 0, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0x7},
     "znver2",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clwb clzero crc32 cx16 cx8 f16c fma fsgsbase "
     "fxsr lzcnt mmx movbe mwaitx pclmul popcnt prfchw rdpid rdpru rdrnd rdseed sahf sha sse "
     "sse2 sse3 sse4.1 sse4.2 sse4a ssse3 wbnoinvd xsave xsavec xsaveopt xsaves"},
    {"AuthenticAMD",
     {0xa00f13, 0x7ed83203, 0x7800100, 0x218c0529, 0x400610, 0, 0, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0x7},
     "znver3",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clwb clzero crc32 cx16 cx8 f16c fma fsgsbase "
     "fxsr invpcid lzcnt mmx movbe mwaitx pclmul pku popcnt prfchw rdpid rdpru rdrnd rdseed "
     "sahf sha sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 vaes vpclmulqdq wbnoinvd xsave xsavec "
     "xsaveopt xsaves"},
    {"AuthenticAMD",
     {0xa10f11, 0x7ed83203, 0x7800100, 0xf1af0529, 0x405fd2, 0, 0x20, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0xe7},
     "znver4",
     "64bit adx aes avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f "
     "avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 "
     "clflushopt clwb clzero crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt "
     "mmx movbe mwaitx pclmul pku popcnt prfchw rdpid rdpru rdrnd rdseed sahf sha shstk sse "
     "sse2 sse3 sse4.1 sse4.2 sse4a ssse3 vaes vpclmulqdq wbnoinvd xsave xsavec xsaveopt "
     "xsaves"},
    {"AuthenticAMD",
     {0xa10f14, 0x7ed83203, 0x7800100, 0xf1af0529, 0x405fd2, 0, 0x20, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0x7},
     "znver4",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clwb clzero crc32 cx16 cx8 f16c fma fsgsbase "
     "fxsr gfni invpcid lzcnt mmx movbe mwaitx pclmul pku popcnt prfchw rdpid rdpru rdrnd "
     "rdseed sahf sha shstk sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 vaes vpclmulqdq wbnoinvd "
     "xsave xsavec xsaveopt xsaves"},
    {"AuthenticAMD",
     {0xa10f17, 0x76d83203, 0x7800100, 0xf1af0529, 0x405fd2, 0, 0x20, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0},
     "znver4",
     "64bit adx aes bmi bmi2 clflushopt clwb clzero crc32 cx16 cx8 fsgsbase fxsr gfni invpcid "
     "lzcnt mmx movbe mwaitx pclmul pku popcnt prfchw rdpid rdpru rdrnd rdseed sahf sha shstk "
     "sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 wbnoinvd"},
    {"AuthenticAMD",
     {0xaa0f05, 0x7ed83203, 0x7800100, 0xf1af0529, 0x405fd2, 0, 0x20, 0, 0xb, 0, 0, 0x20000161,
      0x20000000, 0x211, 0xe7},
     "znver4",
     "64bit adx aes avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f "
     "avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 "
     "clflushopt clwb clzero crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt "
     "mmx movbe mwaitx pclmul pku popcnt prfchw rdpid rdpru rdrnd rdseed sahf sha shstk sse "
     "sse2 sse3 sse4.1 sse4.2 sse4a ssse3 vaes vpclmulqdq wbnoinvd xsave xsavec xsaveopt "
     "xsaves"},
    {"AuthenticAMD",
     {0xb00f27, 0x7ed83203, 0x7800100, 0xf1af0529, 0x18405fd2, 0x100, 0x30, 0x4000, 0xb, 0, 0,
      0x20000161, 0x20000000, 0x211, 0xe7},
     "znver5",
     "64bit adx aes avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f "
     "avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq "
     "avxvnni bmi bmi2 clflushopt clwb clzero crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr "
     "gfni invpcid lzcnt mmx movbe movdir64b movdiri mwaitx pclmul pku popcnt prefetchi prfchw "
     "rdpid rdpru rdrnd rdseed sahf sha shstk sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 vaes "
     "vpclmulqdq wbnoinvd xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0x614, 0x7cd83203, 0x3808100, 0x529, 0, 0, 0, 0, 0x1, 0, 0, 0x21, 0x20000000, 0, 0x7},
     "haswell",
     "64bit avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx "
     "movbe pclmul popcnt rdrnd sahf sse sse3 sse4.1 sse4.2 ssse3 xsave xsaveopt"},
    {"GenuineIntel",
     {0x621, 0x7ed83203, 0x3808100, 0xd18f0529, 0x10, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0xe7},
     "skylake-avx512",
     "64bit adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl bmi bmi2 clflushopt "
     "clwb cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul "
     "pku popcnt prfchw rdrnd rdseed sahf sse sse3 sse4.1 sse4.2 ssse3 xsave xsavec xsaveopt "
     "xsaves"},
    {"GenuineIntel",
     {0x631, 0x46d82203, 0x3808100, 0x20840001, 0, 0, 0, 0, 0xb, 0, 0, 0x101, 0x20000000, 0, 0},
     "goldmont",
     "64bit aes clflushopt cmov crc32 cx16 cx8 fsgsbase fxsr mmx movbe pclmul popcnt prfchw "
     "rdrnd rdseed sahf sha sse sse3 sse4.1 sse4.2 ssse3"},
    {"GenuineIntel",
     {0x646, 0x40d82203, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x101, 0x20000000, 0, 0},
     "silvermont",
     "64bit cmov crc32 cx16 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sahf sse sse3 sse4.1 "
     "sse4.2 ssse3"},
    {"GenuineIntel", {0x662, 0x902000, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "nehalem",
     "64bit cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse sse4.2"},
    {"GenuineIntel",
     {0xf0605, 0x7ed83203, 0x3808100, 0xf1af052d, 0x3a405ff2, 0x3c54020, 0x30, 0, 0xb, 0x10, 0,
      0x121, 0x20000000, 0x200, 0x600e7},
     "icelake-client",
     "64bit adx aes amx-bf16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw "
     "avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl "
     "avx512vnni avx512vpopcntdq avxvnni bmi bmi2 cldemote clflushopt clwb cmov crc32 cx16 cx8 "
     "enqcmd evex512 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri "
     "pclmul pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed sahf serialize sgx sha shstk "
     "sse sse3 sse4.1 sse4.2 ssse3 tsxldtrk uintr vaes vpclmulqdq waitpkg wbnoinvd xsave "
     "xsavec xsaveopt xsaves"},
    {"GenuineIntel", {0xf0612, 0x402201, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0x1, 0x20000000, 0, 0},
     "bonnell",
     "64bit cmov cx16 cx8 fxsr mmx movbe sahf sse sse3 ssse3"},
    {"GenuineIntel",
     {0xf0627, 0x7ed83203, 0x3808100, 0xf0af052d, 0x12, 0, 0, 0, 0xb, 0, 0, 0x121, 0x20000000, 0,
      0xe7},
     "cannonlake",
     "64bit adx aes avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl "
     "bmi bmi2 clflushopt cmov crc32 cx16 cx8 evex512 f16c fma fsgsbase fxsr invpcid lzcnt mmx "
     "movbe pclmul pku popcnt prfchw rdrnd rdseed sahf sgx sha sse sse3 sse4.1 sse4.2 ssse3 "
     "xsave xsavec xsaveopt xsaves"},
    {"HygonGenuine", {0x900f16, 0, 0x3808100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20000000, 0, 0},
     "generic",
     "64bit cmov cx8 fxsr mmx sse"},
    {"HygonGenuine",
     {0x900f00, 0x7ed83203, 0x7800100, 0x208c0129, 0, 0, 0, 0, 0xb, 0, 0, 0x20000161, 0x20000000,
      0x1, 0x7},
     "generic",
     "64bit adx aes avx avx2 bmi bmi2 clflushopt clzero crc32 cx16 cx8 f16c fma fsgsbase fxsr "
     "lzcnt mmx movbe mwaitx pclmul popcnt prfchw rdrnd rdseed sahf sha sse sse2 sse3 sse4.1 "
     "sse4.2 sse4a ssse3 xsave xsavec xsaveopt xsaves"},
    {"GenuineIntel",
     {0xf0637, 0xbb1031d0, 0x13deef86, 0xc3baea9e, 0x8ede0d7a, 0x92b1d3f2, 0xca02135e, 0xe0175057,
      0xd17f9aca, 0x5051c1cc, 0x57124242, 0xb1fee08f, 0x79a54a7b, 0x98289fcd, 0xe7},
     "tigerlake",
     "64bit adx aes avx avx512bw avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2 "
     "avx512vl avx512vnni avx512vp2intersect avxvnni avxvnniint8 bmi cldemote clflushopt clwb "
     "clzero cmov crc32 cx16 cx8 f16c fma fxsr gfni kl lwp mmx movdiri mwaitx pku prefetchi "
     "raoint rdpid rtm sahf serialize sgx sm3 sm4 sse sse4.2 tbm tsxldtrk uintr vpclmulqdq "
     "waitpkg wbnoinvd xsavec xsaves"},
    {"AuthenticAMD",
     {0xa20f14, 0xdc011cdd, 0x74c9df6a, 0x119a72d1, 0xd70820fe, 0x17f5e837, 0xf1d69ed6, 0x4512bd81,
      0x795e8229, 0xb2715945, 0xaa05e11a, 0x10a3d6b2, 0x2f88080b, 0xbb2d420f, 0x600e7},
     "znver3",
     "64bit adx amx-bf16 amx-complex amx-int8 amx-tile avx avx512cd avx512dq avx512fp16 "
     "avx512vbmi avx512vbmi2 avxifma avxvnni avxvnniint16 cldemote clflushopt clwb clzero cmov "
     "cmpccxadd cx8 fma fma4 fsgsbase hreset lwp lzcnt mmx movdir64b pconfig pku rdrnd "
     "serialize shstk sm3 sm4 sse2 sse3 tbm tsxldtrk uintr usermsr waitpkg wbnoinvd xsave "
     "xsaveopt xsaves"},
    {"GenuineIntel",
     {0xf0637, 0x9bf448b3, 0xfe3b890b, 0xae658f33, 0xd269a9a5, 0x72158370, 0x48db40af, 0xb774eb52,
      0x62c33a4f, 0xe3151288, 0xab2cd31e, 0x58d5563d, 0x25c6af07, 0xf0ce5835, 0x7},
     "haswell",
     "64bit aes avx avx2 avxifma avxvnniint8 bmi2 ccmp cf cldemote clzero cmov cmpccxadd crc32 "
     "cx8 egpr fma4 fsgsbase gfni hreset invpcid lzcnt movbe movdir64b ndd pclmul pconfig "
     "popcnt ppx prefetchi push2pop2 raoint rdpid rdpru rdseed rtm sahf sha sha512 shstk sm3 "
     "sm4 sse sse2 sse3 sse4.2 tsxldtrk uintr usermsr waitpkg widekl xsavec xsaveopt xsaves"},
    {"AuthenticAMD",
     {0xa20f17, 0x3b0537e6, 0x9c653938, 0x1df9fd78, 0x7e62aa0a, 0xf17a300, 0x37dc76fb, 0xc4a2eac1,
      0x49952399, 0x211c70cf, 0xbd0561e6, 0x3f63af83, 0x65dc9f50, 0x6415479c, 0x60007},
     "znver3",
     "64bit adx aes amx-int8 amx-tile avx avx2 avxifma avxvnni bmi bmi2 ccmp cf cldemote "
     "clflushopt clwb cmpccxadd cx16 cx8 egpr enqcmd f16c fma fma4 hreset invpcid lwp "
     "movdir64b movdiri mwaitx ndd pclmul pconfig ppx prefetchi prfchw push2pop2 raoint rdpid "
     "rdpru rtm sahf sha512 sm3 sse2 ssse3 tbm tsxldtrk usermsr vaes wbnoinvd widekl xop "
     "xsaveopt xsaves"},
    {"GenuineIntel",
     {0xf0636, 0x3a96fb1a, 0x72fdf202, 0x66d22876, 0x8ca81811, 0x4720771f, 0xe2257159, 0x2305977e,
      0xd1bc52d9, 0x6e36aab0, 0xdd2e1609, 0x8cdb305f, 0x67469a4d, 0xb4d66a3a, 0xe7},
     "tigerlake",
     "64bit aes avx avx2 avx512bitalg avx512bw avx512dq avx512vnni avx512vp2intersect "
     "avxneconvert avxvnni avxvnniint16 avxvnniint8 clflushopt cmov crc32 cx16 f16c fma fma4 "
     "kl mmx movdiri pclmul pku popcnt ptwrite raoint rdpru rtm sahf serialize sgx sha sha512 "
     "sse sse4.2 sse4a ssse3 usermsr wbnoinvd xsaveopt xsaves"},
    {"AuthenticAMD",
     {0xa20f10, 0x5bd86d40, 0xaec6f024, 0xe25a7605, 0x616499c9, 0xf52ddf5d, 0x3b1287ff, 0x26a2c0bd,
      0x153e7c2a, 0x2d1c9af0, 0x26bb7dbd, 0x3b618676, 0xa8948c89, 0x3bbbe9ea, 0x600e7},
     "znver3",
     "64bit adx aes amx-tile avx avx512bf16 avx512bitalg avx512bw avx512dq avx512vbmi2 "
     "avx512vl avx512vnni avx512vp2intersect avxneconvert avxvnni avxvnniint8 ccmp cf cmov "
     "cmpccxadd crc32 cx16 egpr enqcmd fma4 fsgsbase gfni invpcid lwp lzcnt mmx movbe mwaitx "
     "ndd pconfig popcnt ppx prefetchi ptwrite push2pop2 raoint rdpid rdrnd serialize sgx sha "
     "sha512 shstk sm3 sm4 sse sse2 sse4.1 sse4.2 sse4a tbm tsxldtrk usermsr widekl xsavec "
     "xsaves"},
    {"GenuineIntel",
     {0xf0632, 0xdcc28c2e, 0x96d0cc5f, 0x2eae05cf, 0x43435cc5, 0x482c9cbc, 0x10c4759, 0x25430c4e,
      0x6b4013ef, 0x88daf401, 0x5e8766ed, 0x9c1caaf7, 0xb0fbbd11, 0x519088f5, 0x7},
     "goldmont",
     "64bit adx avx avxvnni avxvnniint16 bmi bmi2 cldemote clflushopt clzero cmov fsgsbase "
     "invpcid lwp lzcnt mmx movbe pclmul pconfig popcnt raoint rdpid rdpru rdrnd rdseed sahf "
     "sgx sha sha512 shstk sse sse2 sse4a uintr vpclmulqdq widekl xop xsave xsavec xsaveopt "
     "xsaves"},
    {"AuthenticAMD",
     {0xa20f16, 0xdbf4a8b2, 0x83f73f16, 0xf341e07a, 0x9e1a8ef4, 0xa7abe1c2, 0xad1b72db, 0xbd628881,
      0xdd27a65, 0x74e69a5d, 0xe647cb8f, 0xdef88334, 0xe7ac1491, 0xf3aed0b6, 0x60007},
     "znver3",
     "64bit aes amx-int8 amx-tile avx avx2 avxvnni bmi ccmp cf cldemote clwb cmpccxadd crc32 "
     "cx16 cx8 egpr fxsr lwp lzcnt mmx movbe movdir64b movdiri ndd pclmul pku popcnt ppx "
     "prfchw ptwrite push2pop2 raoint rdpru rdrnd serialize sha sha512 shstk sm3 sse sse4.2 "
     "tbm tsxldtrk usermsr vaes vpclmulqdq waitpkg widekl xsaveopt"},
};
// clang-format on

}  // namespace attune::testing
