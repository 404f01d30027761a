// SPDX-License-Identifier: Apache-2.0
// See recorded_launch.hpp.
#include "tests/bench/host/recorded_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace attune::bench {
namespace {

using cuda::Function;
using cuda::Result;
using cuda::Stream;

// cuda.h: cuLaunchKernel, cuFuncGetParamInfo and the constants of its `extra`.
using LaunchKernel = Result (*)(Function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, Stream, void**, void**);
using ParameterInfo = Result (*)(Function, size_t index, size_t* offset, size_t* bytes);
void* const kEnd = nullptr;
void* const kBufferPointer = reinterpret_cast<void*>(1);
void* const kBufferBytes = reinterpret_cast<void*>(2);

// Returns the PTX, which every driver compiles, of a kernel that returns at once.
std::string empty_kernel(const std::vector<size_t>& sizes) {
  std::string parameters;
  for (size_t i = 0; i < sizes.size(); ++i)
    parameters += fmt::format("{}.param .align {} .b8 p{}[{}]", i ? ", " : "",
                              sizes[i] % 64 == 0 ? 64 : 8, i, sizes[i]);
  return fmt::format(
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry nothing({})\n{{\n  "
      "ret;\n}}\n",
      parameters);
}

Function load_empty_kernel(const cuda::DriverTable& driver, const std::vector<size_t>& sizes,
                           unsigned shared_bytes) {
  cuda::Module module = nullptr;
  Function function = nullptr;
  const std::string text = empty_kernel(sizes);
  if (driver.cuModuleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr) != cuda::kSuccess ||
      driver.cuModuleGetFunction(&function, module, "nothing") != cuda::kSuccess ||
      driver.cuFuncSetAttribute(function, cuda::kFuncMaxDynamicShared,
                                static_cast<int>(shared_bytes)) != cuda::kSuccess)
    return nullptr;
  return function;
}

// The parameters in one block, at the kernel's offsets.
struct Block {
  std::vector<char> bytes;
  size_t size = 0;
  void* extra[5] = {};
};

std::shared_ptr<Block> block_of(const cuda::DriverTable& driver, const RecordedLaunch& launch) {
  const auto info = reinterpret_cast<ParameterInfo>(driver.symbol("cuFuncGetParamInfo"));
  if (info == nullptr) return nullptr;
  const auto block = std::make_shared<Block>();
  for (size_t i = 0; i < launch.sizes().size(); ++i) {
    size_t offset = 0, bytes = 0;
    if (info(launch.function(), i, &offset, &bytes) != cuda::kSuccess) return nullptr;
    block->bytes.resize(offset + bytes);
    std::memcpy(block->bytes.data() + offset, launch.parameters()[i],
                std::min(bytes, launch.sizes()[i]));
  }
  block->size = block->bytes.size();
  void* const words[] = {kBufferPointer, block->bytes.data(), kBufferBytes, &block->size, kEnd};
  std::copy(std::begin(words), std::end(words), block->extra);
  return block;
}

void add_old_entry(const cuda::DriverTable& driver, const RecordedLaunch& launch,
                   std::vector<LaunchForm>* forms) {
  const auto entry = reinterpret_cast<LaunchKernel>(driver.symbol("cuLaunchKernel"));
  if (entry == nullptr) return;
  forms->push_back({"cuLaunchKernel, which has no attributes", [launch, entry] {
                      const cuda::LaunchConfig c = launch.config();
                      return entry(launch.function(), c.grid_x, c.grid_y, c.grid_z, c.block_x,
                                   c.block_y, c.block_z, c.shared_bytes, c.stream,
                                   launch.parameters(), nullptr);
                    }});
}

}  // namespace

RecordedLaunch::RecordedLaunch(const cuda::LaunchConfig& config, Function function,
                               void* const* parameters, const std::vector<size_t>& sizes)
    : config_(config),
      attributes_(config.attributes, config.attributes + config.num_attributes),
      function_(function),
      sizes_(sizes),
      parameters_(std::make_shared<Parameters>()) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto& bytes = parameters_->bytes.emplace_back((sizes[i] + sizeof(cuda::TensorMap) - 1) /
                                                  sizeof(cuda::TensorMap));
    std::memcpy(bytes.data(), parameters[i], sizes[i]);
    parameters_->addresses.push_back(bytes.data());
  }
  parameters_->addresses.push_back(nullptr);
}

cuda::LaunchConfig RecordedLaunch::config() const {
  cuda::LaunchConfig config = config_;
  config.attributes = const_cast<cuda::LaunchAttribute*>(attributes_.data());
  config.num_attributes = static_cast<unsigned>(attributes_.size());
  return config;
}

Result RecordedLaunch::repeat(const cuda::DriverTable& driver, Function function) const {
  const cuda::LaunchConfig again = config();
  return driver.cuLaunchKernelEx(&again, function ? function : function_, parameters(), nullptr);
}

RecordedLaunch RecordedLaunch::without_early() const {
  RecordedLaunch late = *this;
  std::erase_if(late.attributes_, [](const cuda::LaunchAttribute& attribute) {
    return attribute.id == cuda::kLaunchProgrammaticSerialization;
  });
  return late;
}

bool RecordedLaunch::is_early() const {
  return std::any_of(attributes_.begin(), attributes_.end(), [](const auto& attribute) {
    return attribute.id == cuda::kLaunchProgrammaticSerialization;
  });
}

std::vector<LaunchForm> launch_forms(const cuda::DriverTable& driver,
                                     const RecordedLaunch& launch) {
  std::vector<LaunchForm> forms{
      {"cuLaunchKernelEx, the same launch", [&driver, launch] { return launch.repeat(driver); }}};
  const RecordedLaunch late = launch.without_early();
  if (launch.is_early())
    forms.push_back(
        {"cuLaunchKernelEx, not early", [&driver, late] { return late.repeat(driver); }});
  if (launch.config().num_attributes == (launch.is_early() ? 1u : 0u))
    add_old_entry(driver, late, &forms);
  const unsigned shared = launch.config().shared_bytes;
  if (const auto block = block_of(driver, launch))
    forms.push_back({"cuLaunchKernelEx, parameters in one block", [&driver, launch, block] {
                       const cuda::LaunchConfig config = launch.config();
                       return driver.cuLaunchKernelEx(&config, launch.function(), nullptr,
                                                      block->extra);
                     }});
  if (Function const empty = load_empty_kernel(driver, launch.sizes(), shared)) {
    forms.push_back({"cuLaunchKernelEx, an empty kernel with as many parameters",
                     [&driver, launch, empty] { return launch.repeat(driver, empty); }});
    if (launch.is_early())
      forms.push_back({"cuLaunchKernelEx, that kernel, not early",
                       [&driver, late, empty] { return late.repeat(driver, empty); }});
  }
  if (Function const empty = load_empty_kernel(driver, {}, shared))
    forms.push_back({"cuLaunchKernelEx, an empty kernel without parameters, not early",
                     [&driver, late, empty] { return late.repeat(driver, empty); }});
  forms.push_back({"cuCtxGetCurrent", [&driver] {
                     cuda::Context current = nullptr;
                     return driver.cuCtxGetCurrent(&current);
                   }});
  if (driver.cuStreamIsCapturing)
    forms.push_back({"cuStreamIsCapturing", [&driver, launch] {
                       int status = 0;
                       return driver.cuStreamIsCapturing(launch.config().stream, &status);
                     }});
  return forms;
}

}  // namespace attune::bench
