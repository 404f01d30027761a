// SPDX-License-Identifier: Apache-2.0
// The CUDA device, kernel and tensor maps over a stub driver: contexts, launch configuration,
// errors, caching. No GPU.
#include "runtime/cuda/cuda_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "runtime/cuda/cuda_kernel.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "tests/runtime/structure_of.hpp"
#include "tests/runtime/stub_driver.hpp"
#include "tests/support/error_text.hpp"

namespace attune::cuda {
namespace {

using ::testing::ElementsAre;
using testing::error_text;
using ::testing::HasSubstr;
using testing::stub_calls;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stub_calls = {};
    stub_calls.current = testing::stub_primary();
  }
  std::shared_ptr<const CudaContext> context() { return CudaContext::open(driver_, 0); }
  std::unique_ptr<LoadedKernel> kernel(const LaunchPlan& plan) {
    KernelImage image;
    image.bytes = "cubin";
    return CudaDevice(context()).load(image, spec_, testing::structure_of(plan));
  }

  KernelArguments args_{};
  const DriverTable driver_ = testing::stub_driver();
  const Problem problem_ = parse_problem("dtype=bf16,head_dim=128,heads=8/2,batch=2,seqlen=512");
  const KernelSpec spec_ = spec_of(problem_);
};

TEST_F(CudaDeviceTest, IdentityIsReadFromTheDriver) {
  const CudaDevice device(context());
  EXPECT_EQ(device.identity().arch, "sm_90");
  EXPECT_EQ(device.identity().sm_count, 132);
  EXPECT_EQ(device.identity().slice, "MIG 1g.18gb");
  EXPECT_EQ(device.archs().front().name(), "sm_90a");
  EXPECT_EQ(device.ordinal(), 0);
}

TEST_F(CudaDeviceTest, CodeRunsOnLaterMinorVersionsOfItsMajor) {
  const auto names = [](int capability) {
    std::vector<std::string> all;
    for (const Arch& arch : runnable_archs(capability)) all.push_back(arch.name());
    return all;
  };
  EXPECT_THAT(names(90), ElementsAre("sm_90a", "sm_90"));
  EXPECT_THAT(names(89), ElementsAre("sm_89", "sm_86", "sm_80"));
  EXPECT_THAT(names(87), ElementsAre("sm_86", "sm_80"));
  EXPECT_THAT(names(75), ElementsAre("sm_75"));
  EXPECT_THAT(names(121), ElementsAre("sm_121", "sm_120"));
  EXPECT_THAT(names(103), ElementsAre("sm_103", "sm_100")) << "B300";
  EXPECT_THAT(names(110), ElementsAre("sm_110")) << "Thor";
  EXPECT_TRUE(names(70).empty());
}

TEST_F(CudaDeviceTest, ACurrentContextIsUsedUnchanged) {
  stub_calls.current = reinterpret_cast<Context>(0x7777);
  EXPECT_EQ(context()->handle(), stub_calls.current);
  EXPECT_EQ(stub_calls.retains, 0);
}

TEST_F(CudaDeviceTest, WithoutACurrentContextThePrimaryOneIsRetainedAndReleased) {
  stub_calls.current = nullptr;
  { EXPECT_EQ(context()->handle(), testing::stub_primary()); }
  EXPECT_EQ(stub_calls.retains, 1);
  EXPECT_EQ(stub_calls.releases, 1);
}

TEST_F(CudaDeviceTest, OrdinalsThatDoNotExistAreNamed) {
  stub_calls.current = nullptr;
  EXPECT_THAT(error_text([&] { CudaContext::open(driver_, 3); }, ErrorCode::kInvalidArgument),
              HasSubstr("cuda:3 does not exist; this machine has 1"));
}

TEST_F(CudaDeviceTest, LaunchPassesTheConfiguration) {
  LaunchPlan plan;
  plan.main().grid_x = 132;
  plan.main().grid_y = 2;
  plan.main().threads = 384;
  plan.main().shared_bytes = 200000;
  plan.main().cluster = 2;
  const auto kernel = this->kernel(plan);
  EXPECT_EQ(stub_calls.shared_allowed, 200000);
  EXPECT_EQ(kernel->info().registers, 100 + kFuncRegisters);
  KernelArguments args{};
  args.seqlen_q = 77;
  kernel->launch(plan, args, reinterpret_cast<StreamHandle>(0x55));
  EXPECT_EQ(stub_calls.last_config.grid_x, 132u);
  EXPECT_EQ(stub_calls.last_config.grid_y, 2u);
  EXPECT_EQ(stub_calls.last_config.block_x, 384u);
  EXPECT_EQ(stub_calls.last_config.shared_bytes, 200000u);
  EXPECT_EQ(stub_calls.last_config.stream, reinterpret_cast<Stream>(0x55));
  EXPECT_EQ(stub_calls.last_cluster, 2u);
  EXPECT_EQ(stub_calls.last_args.seqlen_q, 77);
}

TEST_F(CudaDeviceTest, AKernelThatDoesNotFitIsRefusedWhenLoaded) {
  LaunchPlan plan;
  plan.main().threads = 512;
  stub_calls.max_threads = 384;
  EXPECT_THAT(error_text([&] { kernel(plan); }, ErrorCode::kDriver),
              HasSubstr("allow 384 threads a block here; the plan has 512"));
  EXPECT_EQ(stub_calls.unloads, 1);
}

TEST_F(CudaDeviceTest, ALaunchFromAThreadWithoutContextPushesAndPopsTheDevicesContext) {
  const auto kernel = this->kernel({});
  stub_calls.current = nullptr;
  kernel->launch({}, args_, nullptr);
  EXPECT_EQ(stub_calls.pushes, 1);
  EXPECT_EQ(stub_calls.pops, 1);
}

TEST_F(CudaDeviceTest, TensorMapsAreEncodedOncePerOperand) {
  LaunchPlan plan;
  plan.main().tensor_maps = {{Operand::kQ, 64, 64, 128},
                             {Operand::kK, 64, 128, 128},
                             {Operand::kV, 64, 128, 128},
                             {Operand::kO, 64, 64, 128}};
  const auto kernel = this->kernel(plan);
  KernelArguments args{};
  args.batch = 2, args.seqlen_q = args.seqlen_kv = 512, args.num_heads_q = 8, args.num_heads_kv = 2;
  args.q = args.k = args.v =
      args.o = {reinterpret_cast<void*>(0x10000), 512 * 8 * 128, 8 * 128, 128};
  args.k.data = reinterpret_cast<void*>(0x20000), args.v.data = reinterpret_cast<void*>(0x30000),
  args.o.data = reinterpret_cast<void*>(0x40000);
  for (int i = 0; i < 10; ++i) kernel->launch(plan, args, nullptr);
  EXPECT_EQ(stub_calls.encodes, 4);
  args.q.data = reinterpret_cast<void*>(0x50000);
  const int before = stub_calls.encodes;
  kernel->launch(plan, args, nullptr);
  EXPECT_EQ(stub_calls.encodes, before + 1) << "another address must be encoded";
}

TEST_F(CudaDeviceTest, TensorMapKeysHoldTheOperandsGeometry) {
  KernelArguments args{};
  KernelSpec spec;
  args.batch = 1, args.seqlen_q = 100, args.seqlen_kv = 0, args.num_heads_q = 8,
  args.num_heads_kv = 2;
  args.q = {reinterpret_cast<void*>(0x10000), 3, 8 * 128, 128};
  args.k = {nullptr, 0, 2 * 128, 128};
  const TensorMapKey q = tensor_map_key({Operand::kQ, 64, 64, 128}, spec, {}, args);
  EXPECT_THAT(q.dims, ElementsAre(128, 100, 8, 1));
  EXPECT_THAT(q.strides, ElementsAre(2048, 256, 256)) << "the stride of a single batch is replaced";
  EXPECT_EQ(q.dtype, kMapBf16);
  EXPECT_EQ(q.swizzle, 3);
  EXPECT_THAT(q.box, ElementsAre(64, 64, 1, 1));
  EXPECT_THAT(tensor_map_key({Operand::kQ, 64, 16, 128, 4}, spec, {}, args).box,
              ElementsAre(64, 16, 4, 1));
  const TensorMapKey k = tensor_map_key({Operand::kK, 64, 128, 0}, spec, {}, args);
  EXPECT_EQ(k.dims[1], 1u) << "TMA takes no extent of 0";
  EXPECT_EQ(k.address, args.q.data);
  EXPECT_EQ(k.swizzle, 0);
}

// A kernel without keys still waits for the bytes of a box of keys, so TMA must read some memory.
TEST_F(CudaDeviceTest, TensorMapsOfEmptyOperandsHaveOneElementOfAnotherOperand) {
  KernelArguments args{};
  args.batch = 3, args.seqlen_q = 100, args.num_heads_q = 8, args.num_heads_kv = 2;
  args.q = {reinterpret_cast<void*>(0x10000), 100 * 8 * 128, 8 * 128, 128};
  args.k = args.v = {reinterpret_cast<void*>(0x2ff00), 0, 7, 1};
  KernelSpec transposed;
  transposed.fp8.v_layout = VLayout::kTransposed;
  for (const Operand operand : {Operand::kK, Operand::kV}) {
    for (const KernelSpec& spec : {KernelSpec{}, transposed}) {
      const TensorMapKey key = tensor_map_key({operand, 64, 128, 128}, spec, {}, args);
      EXPECT_EQ(key.address, args.q.data);
      EXPECT_THAT(key.dims, ElementsAre(1, 1, 1, 1));
      EXPECT_THAT(key.strides, ElementsAre(16, 16, 16));
      EXPECT_EQ(key.box[1], 128u) << "a box has the same bytes as for other operands";
    }
  }
  KernelSpec paged;
  paged.cache.page_size = 16;
  TensorMapPlan of_pages{Operand::kK, 64, 128, 128};
  of_pages.of_pages = true;
  EXPECT_THAT(tensor_map_key(of_pages, paged, {}, args).dims, ElementsAre(1, 1, 1, 1));
  args.cache.num_pages = 5;
  EXPECT_THAT(tensor_map_key(of_pages, paged, {}, args).dims, ElementsAre(128, 16, 2, 5));
  std::swap(args.seqlen_q, args.seqlen_kv);  // gradients of keys that no row sees
  args.q = {nullptr, 0, 8 * 128, 128};
  args.k = {reinterpret_cast<void*>(0x20000), 100 * 2 * 128, 2 * 128, 128};
  const TensorMapKey q = tensor_map_key({Operand::kQ, 64, 64, 128}, KernelSpec{}, {}, args);
  EXPECT_EQ(q.address, args.k.data);
  EXPECT_THAT(q.dims, ElementsAre(1, 1, 1, 1));
}

TEST_F(CudaDeviceTest, TensorMapsCoverWorkspaceTensorsAndTransposedV) {
  KernelArguments args{};
  args.batch = 2, args.seqlen_q = 64, args.seqlen_kv = 100, args.num_heads_q = 8;
  args.num_heads_kv = 2;
  args.workspace = reinterpret_cast<void*>(0x100000);
  args.v = {reinterpret_cast<void*>(0x30000), 2 * 128 * 112, 112, 128 * 112};
  const KernelSpec spec =
      spec_of(parse_problem("dtype=e4m3,head_dim=128,heads=8/2,batch=2,seqlen=64"));
  const TensorMapPlan from_workspace{Workspace{1}, 128, 128, 128};
  const std::vector<PlacedTensor> workspace{
      {}, {{"v_transposed", Dtype::kE4m3}, {112, 128, 2, 2}, 512}};
  const TensorMapKey v = tensor_map_key(from_workspace, spec, workspace, args);
  EXPECT_EQ(v.address, reinterpret_cast<void*>(0x100200));
  EXPECT_THAT(v.dims, ElementsAre(112, 128, 2, 2));
  EXPECT_THAT(v.strides, ElementsAre(112, 128 * 112, 2 * 128 * 112));
  EXPECT_EQ(v.dtype, kMapUint8);
  KernelSpec given = spec;
  given.fp8.v_layout = VLayout::kTransposed;
  const TensorMapKey own = tensor_map_key({Operand::kV, 128, 128, 128}, given, {}, args);
  EXPECT_EQ(own.address, args.v.data);
  EXPECT_THAT(own.dims, ElementsAre(100, 128, 2, 2));
  EXPECT_THAT(own.strides, ElementsAre(112, 128 * 112, 2 * 128 * 112));
}

// Any step can be the main one: here the second of three, whose registers info() returns.
TEST_F(CudaDeviceTest, EveryStepOfAPlanIsLaunchedInOrderWithItsOwnTiles) {
  LaunchPlan plan;
  plan.steps.resize(3);
  plan.main_step = 1;
  plan.steps[0].entry = "first";
  plan.steps[0].num_tiles = 7;
  plan.steps[2].entry = "last";
  plan.steps[2].grid_x = 5;
  plan.steps[2].num_tiles = 9;
  plan.steps[2].early = true;
  const auto kernel = this->kernel(plan);
  EXPECT_EQ(stub_calls.main_function, testing::stub_function(1));
  kernel->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.launches, 3);
  EXPECT_THAT(stub_calls.entries, ElementsAre("first", "attune_kernel", "last"));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stub_calls.launched[i], testing::stub_function(i));
  EXPECT_THAT(std::vector<int>(stub_calls.num_tiles, stub_calls.num_tiles + 3),
              ElementsAre(7, 0, 9));
  EXPECT_EQ(stub_calls.last_config.grid_x, 5u);
  EXPECT_EQ(stub_calls.last_attribute, kLaunchProgrammaticSerialization);
}

// A cubin for sm_80 also runs on sm_90. It has no griddepcontrol, so with an early start it would
// read data that the previous grid still writes.
TEST_F(CudaDeviceTest, CodeOfEarlierArchsDoesNotStartEarly) {
  LaunchPlan plan;
  plan.main().early = true;
  stub_calls.binary_version = 80;
  kernel(plan)->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.last_attribute, 0);
  stub_calls.binary_version = 90;
  kernel(plan)->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.last_attribute, kLaunchProgrammaticSerialization);
}

TEST_F(CudaDeviceTest, StepsWithoutBlocksAreNotLaunched) {
  LaunchPlan plan;
  plan.steps.resize(3);
  plan.steps[0].entry = "first";
  plan.steps[1].grid_x = 0;
  plan.steps[2].entry = "last";
  const auto kernel = this->kernel(plan);
  kernel->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.launches, 2);
  EXPECT_EQ(stub_calls.launched[0], testing::stub_function(0));
  EXPECT_EQ(stub_calls.launched[1], testing::stub_function(2));
}

TEST_F(CudaDeviceTest, EachArgumentPartIsASeparateParameter) {
  LaunchPlan plan;
  plan.main().parts = {ArgumentPart::kBase, ArgumentPart::kScales};
  plan.main().tensor_maps = {{Operand::kQ}};
  const auto kernel = this->kernel(plan);
  args_.q = args_.k = args_.v = args_.o = {reinterpret_cast<void*>(0x10000), 1, 128, 1};
  kernel->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.last_parameters[0], static_cast<AttentionArgs*>(&args_));
  EXPECT_EQ(stub_calls.last_parameters[1], &args_.scales);
  plan.main().parts = {ArgumentPart::kBase};
  this->kernel(plan)->launch(plan, args_, nullptr);
  EXPECT_NE(stub_calls.last_parameters[1], &args_.scales) << "a tensor map follows the base";
}

// Only the size of a kernel's parameters limits the number of tensor maps. Loading refuses more.
TEST_F(CudaDeviceTest, TensorMapsAreLimitedByTheParametersAlone) {
  LaunchPlan plan;
  plan.main().tensor_maps.assign(30, {Operand::kQ});
  args_.q = {reinterpret_cast<void*>(0x10000), 1, 128, 1};
  this->kernel(plan)->launch(plan, args_, nullptr);
  EXPECT_EQ(stub_calls.launches, 1);
  plan.main().tensor_maps.push_back({Operand::kQ});
  EXPECT_THAT(error_text([&] { this->kernel(plan); }, ErrorCode::kInternal),
              HasSubstr("1 argument parts and 31 tensor maps, 4224 bytes; at most 4096"));
}

TEST_F(CudaDeviceTest, ErrorsCarryTheCallAndTheDriversWords) {
  const auto kernel = this->kernel({});
  stub_calls.next_launch = 700;
  EXPECT_THAT(error_text([&] { kernel->launch({}, args_, nullptr); }, ErrorCode::kDriver),
              HasSubstr("cuLaunchKernelEx failed: CUDA_ERROR_STUB (700: as the test wants)"));
  stub_calls.next_load = kNoBinaryForGpu;
  EXPECT_THAT(error_text([&] { this->kernel({}); }, ErrorCode::kInvalidArgument),
              HasSubstr("another arch"));
  stub_calls.next_load = kOutOfMemory;
  error_text([&] { this->kernel({}); }, ErrorCode::kOutOfMemory);
}

TEST_F(CudaDeviceTest, HostObjectsAreRefused) {
  KernelImage image;
  image.format = ImageFormat::kHostObject;
  EXPECT_THAT(error_text([&] { CudaDevice(context()).load(image, spec_, {}); },
                         ErrorCode::kInvalidArgument),
              HasSubstr("loads cubins"));
}

TEST_F(CudaDeviceTest, AKernelOutlivesItsDevice) {
  stub_calls.current = nullptr;
  std::unique_ptr<LoadedKernel> kernel = this->kernel({});
  EXPECT_EQ(stub_calls.releases, 0);
  kernel.reset();
  EXPECT_EQ(stub_calls.unloads, 1);
  EXPECT_EQ(stub_calls.releases, 1);
}

TEST(DriverTable, WithoutADriverTheErrorExplainsWhy) {
  std::string why;
  if (open_driver(&why))
    GTEST_SKIP() << "this machine has a driver: " << driver_version(*open_driver());
  EXPECT_THAT(why, ::testing::AnyOf(HasSubstr("libcuda.so.1"), HasSubstr("driver")));
}

}  // namespace
}  // namespace attune::cuda
