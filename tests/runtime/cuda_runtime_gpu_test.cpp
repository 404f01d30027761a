// SPDX-License-Identifier: Apache-2.0
// Parts of the runtime that need a GPU: graph capture and replay, streams, foreign contexts,
// offsets past 2^31 elements, layouts that TMA refuses, cubins of another arch, long sequences.
// Numerics of the templates are tested in tests/templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>
#include <thread>

#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine.hpp"

namespace attune {
namespace {

using cuda::kSuccess;
using ::testing::HasSubstr;

// Device memory that is freed with the test; filled with random moderate bf16 values, or NaN.
class Buffer {
 public:
  Buffer(const Device& device, int64_t bytes)
      : device_(device), memory_(static_cast<char*>(device.allocate(bytes))) {}
  ~Buffer() { device_.release(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* get() const { return memory_; }

 private:
  const Device& device_;
  char* memory_;
};

std::vector<uint16_t> random_bf16(int64_t count, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    const float real = static_cast<float>(static_cast<int32_t>(state) >> 8) / (1 << 22);  // -2 .. 2
    value = static_cast<uint16_t>(std::bit_cast<uint32_t>(real) >> 16);
  }
  return values;
}

float to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

class CudaRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    driver_ = cuda::open_driver(&why);
    if (!driver_) GTEST_SKIP() << why;
    context_ = cuda::CudaContext::open(*driver_, 0);
    current_.emplace(*context_);  // the tests' driver calls need a current context
    device_ = open_device("cuda");
    if (device_->archs().empty())
      GTEST_SKIP() << "attune compiles nothing for " << device_->identity().arch;
    EngineOptions options;
    options.use_store = false;
    engine_ = std::make_unique<Engine>(device_, options);
  }

  template <class FunctionType>
  FunctionType* entry(const char* name) const {
    auto* const found = reinterpret_cast<FunctionType*>(driver_->symbol(name));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  cuda::Stream make_stream() const {
    cuda::Stream stream = nullptr;
    constexpr unsigned kNonBlocking = 1;
    EXPECT_EQ(entry<int(cuda::Stream*, unsigned)>("cuStreamCreate")(&stream, kNonBlocking),
              kSuccess);
    return stream;
  }
  void wait(cuda::Stream stream) const {
    EXPECT_EQ(entry<int(cuda::Stream)>("cuStreamSynchronize")(stream), kSuccess);
  }
  void destroy(cuda::Stream stream) const {
    entry<int(cuda::Stream)>("cuStreamDestroy_v2")(stream);
  }

  // Operands of a bf16 problem in device memory, with a workspace for `plan`.
  struct Call {
    Call(const Device& device, const Problem& p)
        : q_count(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_qk),
          kv_count(p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim_qk),
          memory(device, 2 * (2 * q_count + 2 * kv_count) + 1024),
          operands(contiguous_operands(p, memory.get(), memory.get() + 2 * q_count,
                                       memory.get() + 2 * (q_count + kv_count),
                                       memory.get() + 2 * (q_count + 2 * kv_count), nullptr)) {
      const std::vector<uint16_t> host = random_bf16(q_count + 2 * kv_count, 1);
      device.copy_to_device(memory.get(), host.data(), 2 * (q_count + 2 * kv_count));
      poison(device);
    }
    void poison(const Device& device) const {
      device.fill(operands.o.data, 255, 2 * q_count, nullptr);  // NaN
      device.synchronize();
    }
    std::vector<uint16_t> output(const Device& device) const {
      device.synchronize();
      std::vector<uint16_t> o(static_cast<size_t>(q_count));
      device.copy_to_host(o.data(), operands.o.data, 2 * q_count);
      return o;
    }
    int64_t q_count, kv_count;
    Buffer memory;
    Operands operands;
  };

  struct Workspace {
    Workspace(const Device& device, const Plan& plan) : buffer(device, plan.workspace_bytes() + 1) {
      init_workspace(plan, buffer.get(), plan.workspace_bytes(), nullptr);
      device.synchronize();
    }
    Buffer buffer;
  };

  std::vector<uint16_t> output_of(const Plan& plan, const Call& call,
                                  cuda::Stream stream = nullptr) const {
    const Workspace workspace(*device_, plan);
    call.poison(*device_);
    run(plan, call.operands, workspace.buffer.get(), plan.workspace_bytes(), stream);
    return call.output(*device_);
  }
  static double worst_difference(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double difference = std::fabs(to_float(a[i]) - to_float(b[i]));
      worst = difference <= worst ? worst : difference;  // NaN wins
    }
    return worst;
  }

  const cuda::DriverTable* driver_ = nullptr;
  std::shared_ptr<const cuda::CudaContext> context_;
  std::optional<cuda::ContextScope> current_;
  std::shared_ptr<const Device> device_;
  std::unique_ptr<Engine> engine_;
  const Problem problem_ = parse_problem(
      "dtype=bf16,head_dim=128,heads=8/2,batch=2,seqlen=384,mask=causal_bottom_right");
};

TEST_F(CudaRuntime, IdentityOfARealDeviceIsComplete) {
  const DeviceIdentity& identity = device_->identity();
  EXPECT_GT(identity.sm_count, 0);
  EXPECT_GE(identity.shared_bytes_per_block, 48 << 10);
  EXPECT_GE(identity.registers_per_sm, 32768);
  EXPECT_GT(identity.l2_bytes, 1 << 18);
  EXPECT_GT(identity.memory_bus_bits, 0);
  EXPECT_FALSE(identity.conditions.driver.empty());
  EXPECT_GE(device_->sm_clock_mhz(), 0);
  EXPECT_EQ(device_->conditions().driver, identity.conditions.driver);
  EXPECT_GE(device_->conditions().power_limit_w, 0);
}

TEST_F(CudaRuntime, AGraphReplaysWhatWasCaptured) {
  const auto plan = engine_->plan(problem_);
  const Call call(*device_, problem_);
  const std::vector<uint16_t> eager = output_of(*plan, call);
  const Workspace workspace(*device_, *plan);
  const cuda::Stream stream = make_stream();
  void *graph = nullptr, *executable = nullptr;
  constexpr int kThreadLocal = 1;
  ASSERT_EQ(entry<int(cuda::Stream, int)>("cuStreamBeginCapture_v2")(stream, kThreadLocal),
            kSuccess);
  run(*plan, call.operands, workspace.buffer.get(), plan->workspace_bytes(), stream);
  ASSERT_EQ(entry<int(cuda::Stream, void**)>("cuStreamEndCapture")(stream, &graph), kSuccess);
  ASSERT_EQ(entry<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(
                &executable, graph, 0),
            kSuccess);
  for (int replay = 0; replay < 3; ++replay) {
    call.poison(*device_);
    ASSERT_EQ(entry<int(void*, cuda::Stream)>("cuGraphLaunch")(executable, stream), kSuccess);
    wait(stream);
    EXPECT_EQ(worst_difference(call.output(*device_), eager), 0) << "replay " << replay;
  }
  entry<int(void*)>("cuGraphExecDestroy")(executable);
  entry<int(void*)>("cuGraphDestroy")(graph);
  destroy(stream);
}

TEST_F(CudaRuntime, AFreshKernelMayBeCapturedAtItsFirstLaunch) {
  Problem other = problem_;
  other.head_dim_qk = other.head_dim_v = 96;
  const auto plan = engine_->plan(other);  // loaded, never launched
  const Call call(*device_, other);
  const Workspace workspace(*device_, *plan);
  const cuda::Stream stream = make_stream();
  void* graph = nullptr;
  constexpr int kGlobal = 0;
  ASSERT_EQ(entry<int(cuda::Stream, int)>("cuStreamBeginCapture_v2")(stream, kGlobal), kSuccess);
  EXPECT_NO_THROW(
      run(*plan, call.operands, workspace.buffer.get(), plan->workspace_bytes(), stream));
  ASSERT_EQ(entry<int(cuda::Stream, void**)>("cuStreamEndCapture")(stream, &graph), kSuccess);
  entry<int(void*)>("cuGraphDestroy")(graph);
  destroy(stream);
}

TEST_F(CudaRuntime, AnyStreamAndAnyThreadGiveTheSame) {
  const auto plan = engine_->plan(problem_);
  const Call call(*device_, problem_);
  const std::vector<uint16_t> want = output_of(*plan, call);
  const cuda::Stream stream = make_stream();
  EXPECT_EQ(worst_difference(output_of(*plan, call, stream), want), 0);
  std::vector<uint16_t> from_thread;
  std::thread([&] {
    from_thread = output_of(*plan, call, stream);
  }).join();  // a thread where no context is current
  EXPECT_EQ(worst_difference(from_thread, want), 0);
  destroy(stream);
}

TEST_F(CudaRuntime, TheCallersContextIsUsed) {
  const Call reference_call(*device_, problem_);
  const std::vector<uint16_t> want = output_of(*engine_->plan(problem_), reference_call);
  cuda::Context own = nullptr, popped = nullptr;
  ASSERT_EQ(entry<int(cuda::Context*, unsigned, int)>("cuCtxCreate_v2")(&own, 0, 0), kSuccess);
  {
    const auto context = cuda::CudaContext::open(*driver_, -1);
    ASSERT_EQ(context->handle(), own);
    auto device = std::make_shared<cuda::CudaDevice>(context);
    EngineOptions options;
    options.use_store = false;
    Engine engine(device, options);
    const auto plan = engine.plan(problem_);
    const Call call(*device, problem_);
    Buffer workspace(*device, plan->workspace_bytes() + 1);
    init_workspace(*plan, workspace.get(), plan->workspace_bytes(), nullptr);
    run(*plan, call.operands, workspace.get(), plan->workspace_bytes(), nullptr);
    EXPECT_EQ(worst_difference(call.output(*device), want), 0);
  }
  driver_->cuCtxPopCurrent(&popped);
  entry<int(cuda::Context)>("cuCtxDestroy_v2")(own);
}

TEST_F(CudaRuntime, OffsetsPast2To31ElementsAreRight) {
  Problem far = problem_;
  far.seqlen_q = far.seqlen_kv = 200;
  constexpr int64_t kStride = (int64_t{1} << 31) + (1 << 20);  // elements between the two batches
  const int64_t span = 2 * (kStride + (1 << 20));              // bytes of one operand
  std::vector<std::unique_ptr<Buffer>> buffers;
  try {
    for (int i = 0; i < 4; ++i) buffers.push_back(std::make_unique<Buffer>(*device_, span));
  } catch (const Error& error) {
    GTEST_SKIP() << "needs " << 4 * span << " bytes of device memory: " << error.what();
  }
  Operands operands = contiguous_operands(far, buffers[0]->get(), buffers[1]->get(),
                                          buffers[2]->get(), buffers[3]->get(), nullptr);
  const int64_t rows_bytes = 2 * 200 * 8 * 128;
  int seed = 1;
  for (OperandView* view : {&operands.q, &operands.k, &operands.v}) {
    const std::vector<uint16_t> host = random_bf16(200 * 8 * 128, static_cast<uint32_t>(seed++));
    view->batch_stride = kStride;
    for (int64_t batch = 0; batch < 2; ++batch)  // both batches hold equal data
      device_->copy_to_device(static_cast<char*>(view->data) + 2 * batch * kStride, host.data(),
                              rows_bytes);
  }
  operands.o.batch_stride = kStride;
  Operands broadcast = operands;  // repeated with the family that uses no tensor maps
  broadcast.k.batch_stride = broadcast.v.batch_stride = 0;
  for (const Operands* call : {&operands, &broadcast}) {
    device_->fill(operands.o.data, 255, span, nullptr);
    const auto plan = engine_->plan(far, call);
    const Workspace workspace(*device_, *plan);
    run(*plan, *call, workspace.buffer.get(), plan->workspace_bytes(), nullptr);
    device_->synchronize();
    std::vector<uint16_t> first(200 * 8 * 128), second(first.size());
    device_->copy_to_host(first.data(), operands.o.data, rows_bytes);
    device_->copy_to_host(second.data(), static_cast<char*>(operands.o.data) + 2 * kStride,
                          rows_bytes);
    EXPECT_FALSE(std::isnan(to_float(first[5]))) << plan->kernel_template->name();
    EXPECT_EQ(worst_difference(first, second), 0) << plan->kernel_template->name();
  }
}

TEST_F(CudaRuntime, ALayoutThatTmaRefusesGivesTheSameNumbers) {
  const Call call(*device_, problem_);
  Operands repeated = call.operands;
  repeated.k.batch_stride = repeated.v.batch_stride = 0;
  const auto plan = engine_->plan(problem_, &repeated);
  EXPECT_TRUE(plan->launch.main().tensor_maps.empty());
  const Workspace workspace(*device_, *plan);
  run(*plan, repeated, workspace.buffer.get(), plan->workspace_bytes(), nullptr);
  const std::vector<uint16_t> got = call.output(*device_);
  const int64_t batch_bytes = call.kv_count;  // bf16: half the elements, two bytes each
  for (const OperandView* view : {&call.operands.k, &call.operands.v}) {
    std::vector<char> first(static_cast<size_t>(batch_bytes));
    device_->copy_to_host(first.data(), view->data, batch_bytes);
    device_->copy_to_device(static_cast<char*>(view->data) + batch_bytes, first.data(),
                            batch_bytes);
  }
  EXPECT_LT(worst_difference(output_of(*engine_->plan(problem_), call), got), 0.04);
}

TEST_F(CudaRuntime, ACubinOfAnotherArchIsRefused) {
  const auto plan = engine_->plan(problem_);
  const KernelSpec spec = spec_of(problem_);
  const KernelTemplate& any = *plan->kernel_template;
  const std::string other = device_->identity().arch == "sm_80" ? "sm_90" : "sm_80";
  for (const KernelTemplate* candidate : {&any, &template_by_name("prefill_sm80")}) {
    const Arch arch = parse_arch(other);
    if (candidate->refuses(spec, arch)) continue;
    const Config config =
        candidate->default_config(spec, arch, shape_of(problem_), typical_device(arch).facts);
    const KernelImage image =
        device_->compiler().compile(render(*candidate, spec, arch, config), arch);
    try {
      device_->load(image, spec, candidate->structure(spec, config));
      ADD_FAILURE() << "a cubin for " << other << " was loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("another arch"));
    }
    return;
  }
  FAIL() << "no template serves " << other;
}

TEST_F(CudaRuntime, AQuarterOfAMillionTokensRun) {
  const Problem longest =
      parse_problem("dtype=bf16,head_dim=128,heads=32/8,seqlen=262144,mask=causal_bottom_right");
  const auto plan = engine_->plan(longest);
  EXPECT_LT(plan->workspace_bytes(), int64_t{1} << 30) << "memory must stay linear in the tokens";
  const Workspace workspace(*device_, *plan);
  const int64_t rows = longest.seqlen_q * 128, bytes = 2 * rows;
  try {
    Buffer q(*device_, 32 * bytes), k(*device_, 8 * bytes), v(*device_, 8 * bytes),
        o(*device_, 32 * bytes);
    device_->fill(q.get(), 0, 32 * bytes,
                  nullptr);  // equal scores: each output is the mean of the values seen so far
    device_->fill(k.get(), 0, 8 * bytes, nullptr);
    device_->fill(v.get(), 0x3f, 8 * bytes, nullptr);  // 0x3f3f, about 0.746
    device_->fill(o.get(), 255, 32 * bytes, nullptr);
    run(*plan, contiguous_operands(longest, q.get(), k.get(), v.get(), o.get(), nullptr),
        workspace.buffer.get(), plan->workspace_bytes(), nullptr);
    device_->synchronize();
    for (const int64_t element : {int64_t{0}, 16 * rows + 77, 32 * rows - 1}) {
      uint16_t value = 0;
      device_->copy_to_host(&value, o.get() + 2 * element, 2);
      EXPECT_NEAR(to_float(value), to_float(0x3f3f), 0.004) << "element " << element;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    GTEST_SKIP() << "too little device memory: " << error.what();
  }
}

}  // namespace
}  // namespace attune
