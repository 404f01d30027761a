// SPDX-License-Identifier: Apache-2.0
// Loading host objects without clang: which objects run and which are refused. A child process
// compiles the objects, so that this process never loads clang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <thread>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string memory_map() {
  std::ifstream maps("/proc/self/maps");
  return {std::istreambuf_iterator<char>(maps), {}};
}

// Compiles `text` in a child and returns the object code, read through a pipe. Empty on failure.
std::string compile_elsewhere(const CpuToolchain& toolchain, const std::string& text,
                              const Arch& arch) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string bytes = toolchain.compiler().compile({text, "sample.cpp"}, arch).bytes;
    const bool written =
        ::write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string object;
  char buffer[4096];
  for (ssize_t count; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    object.append(buffer, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? object : std::string();
}

class ObjectLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
  }
  std::string object(const std::string& body, const std::string& before = "") const {
    return object_for(toolchain_->host_arch(), body, before);
  }
  std::string object_for(const Arch& arch, const std::string& body,
                         const std::string& before = "") const {
    const std::string made = compile_elsewhere(
        *toolchain_,
        before + "extern \"C\" void attune_kernel(int* args, int thread, int threads) { " + body +
            " }\n",
        arch);
    EXPECT_FALSE(made.empty());
    return made;
  }
  int first_int(const HostKernel& kernel, int thread) const {
    KernelArguments args{};
    kernel.function()(&args, thread, 8);
    int value = 0;
    std::memcpy(&value, &args, sizeof value);
    return value;
  }
  std::string refusal(const std::string& bytes, const std::string& entry = "attune_kernel") const {
    return testing::error_text([&] { toolchain_->load(bytes, {entry}); },
                               ErrorCode::kInvalidArgument);
  }
  const CpuToolchain* toolchain_ = nullptr;
};

TEST_F(ObjectLoader, LoadsAndRunsWithoutClang) {
  const std::string bytes = object("*args = 10 * thread + threads;");
  const auto kernel = toolchain_->load(bytes, {"attune_kernel"});
  EXPECT_EQ(first_int(*kernel, 3), 38);
  EXPECT_THAT(memory_map(), Not(HasSubstr("libclang-cpp")));
  EXPECT_THAT(memory_map(), Not(HasSubstr("libLLVM")));
}

TEST_F(ObjectLoader, KernelsWithOneEntryNameLiveSideBySide) {
  const std::string one = object("*args = 1;"), two = object("*args = 2;");
  auto first = toolchain_->load(one, {"attune_kernel"});
  const auto second = toolchain_->load(two, {"attune_kernel"});
  EXPECT_EQ(first_int(*first, 0), 1);
  first.reset();
  EXPECT_EQ(first_int(*second, 0), 2);
}

// One object may hold several steps of a plan. Loading must find each of them.
TEST_F(ObjectLoader, SeveralEntriesOfOneObjectAreFound) {
  const std::string bytes =
      object("*args = 1;", "extern \"C\" void first(int* args, int, int) { *args = 5; }\n");
  const auto kernel = toolchain_->load(bytes, {"first", "attune_kernel"});
  EXPECT_EQ(first_int(*kernel, 0), 5);
  KernelArguments args{};
  kernel->function(1)(&args, 0, 1);
  int value = 0;
  std::memcpy(&value, &args, sizeof value);
  EXPECT_EQ(value, 1);
  EXPECT_THROW(toolchain_->load(bytes, {"attune_kernel", "second"}), Error);
}

TEST_F(ObjectLoader, MemoryFunctionsAndExpfAreThere) {
  const std::string bytes = object(
      "float x[64]; __builtin_memset(x, thread, sizeof(float) * threads * 4);"
      "__builtin_memcpy(args, x, 4 * threads); *args = (int)(1000 * "
      "__builtin_expf((float)thread));");
  EXPECT_EQ(first_int(*toolchain_->load(bytes, {"attune_kernel"}), 1), 2718);
}

#if defined(__x86_64__)
// On a CPU without F16C, code calls the compiler's conversion functions, which the loader provides.
TEST_F(ObjectLoader, ConversionsOfFp16AreThere) {
  Arch oldest = parse_arch("cpu:x86-64");
  oldest.vector_bytes = 16;
  const std::string bytes = object_for(
      oldest,
      "float x; __builtin_memcpy(&x, &thread, 4); const _Float16 narrow = (_Float16)x;"
      "unsigned short bits; __builtin_memcpy(&bits, &narrow, 2);"
      "const float wide = (float)narrow; __builtin_memcpy(args, &wide, 4); args[1] = bits;");
  ASSERT_NE(bytes.find("__truncsfhf2"), std::string::npos);
  const auto kernel = toolchain_->load(bytes, {"attune_kernel"});
  for (const float x :
       {0.0F, -0.0F, 1.0F, -2.5F, 0.1F, 65504.0F, 65519.0F, 65520.0F, 1e30F, 6e-8F, 3e-8F, 2e-8F,
        -6.1e-5F, 1.0009765F, std::numeric_limits<float>::infinity()}) {
    KernelArguments args{};
    int bits = 0, result[2];
    std::memcpy(&bits, &x, sizeof bits);
    kernel->function()(&args, bits, 1);
    std::memcpy(result, &args, sizeof result);
    float wide = 0;
    std::memcpy(&wide, result, sizeof wide);
    EXPECT_EQ(result[1], to_fp16(x)) << x;
    EXPECT_EQ(wide, from_fp16(to_fp16(x))) << x;
  }
}
#endif

// A damaged object is refused or loads, and never ends the process. Its code is not run.
TEST_F(ObjectLoader, DamagedObjectsDoNoHarm) {
  const std::string sound = object(
      "__builtin_memcpy(args, table, 4 * threads); *args += (int)"
      "__builtin_expf((float)thread);",
      "extern \"C\" { int table[9] = {1}; }\n");
  std::mt19937 random(1);
  size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = sound;
    for (unsigned flips = random() % 4 + 1; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << random() % 8);
    refused += refusal(damaged) != "accepted";
  }
  EXPECT_GT(refused, 1000U);
}

TEST_F(ObjectLoader, OtherSymbolsAreRefused) {
  EXPECT_THAT(refusal(object("puts(\"hello\");", "extern \"C\" int puts(const char*);\n")),
              HasSubstr("puts"));
}

TEST_F(ObjectLoader, TheEntryMustBeAFunctionOfTheObject) {
  const std::string bytes = object("__builtin_memcpy(args, table, 4 * threads);",
                                   "extern \"C\" { int table[9] = {1}; }\n");
  EXPECT_EQ(first_int(*toolchain_->load(bytes, {"attune_kernel"}), 0), 1);
  for (const char* function : {"memcpy", "memset", "expf"})
    EXPECT_THAT(refusal(bytes, function), HasSubstr(function));
  EXPECT_THAT(refusal(bytes, "table"), HasSubstr("data, not a function"));
}

TEST_F(ObjectLoader, GarbageIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("attune_kernel"));
  EXPECT_THAT(refusal("not an object at all"), HasSubstr("not code for this machine"));
  const std::string good = object("*args = 1;");
  EXPECT_THAT(refusal(good, "another_kernel"), HasSubstr("another_kernel"));
  std::string foreign = good;
  foreign[18] = static_cast<char>(0xf3);  // e_machine = RISC-V
  foreign[19] = 0;
  EXPECT_THAT(refusal(foreign), HasSubstr("not code for this machine"));
  for (size_t size = 1; size < good.size(); size += good.size() / 50 + 1)
    EXPECT_NE(refusal(good.substr(0, size)), "accepted") << size;
}

TEST_F(ObjectLoader, CodeIsUnmappedWithItsKernel) {
  auto kernel = toolchain_->load(object("*args = 1;"), {"attune_kernel"});
  const auto page = reinterpret_cast<uintptr_t>(kernel->function()) / 4096 * 4096;
  char text[32];
  std::snprintf(text, sizeof text, "%lx-", static_cast<unsigned long>(page));
  EXPECT_THAT(memory_map(), HasSubstr(text));
  kernel.reset();
  EXPECT_THAT(memory_map(), Not(HasSubstr(text)));
}

TEST_F(ObjectLoader, ThreadsLoadAtOnce) {
  const std::string bytes = object("*args = thread;");
  std::vector<std::thread> threads;
  std::vector<int> values(8);
  for (size_t i = 0; i < values.size(); ++i)
    threads.emplace_back([&, i] {
      values[i] = first_int(*toolchain_->load(bytes, {"attune_kernel"}), static_cast<int>(i));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(values, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace attune
