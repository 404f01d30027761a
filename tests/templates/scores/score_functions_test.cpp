// SPDX-License-Identifier: Apache-2.0
// Printed score programs on real devices: random ones give what evaluate() says, and each function
// is as exact as the header of its target says. Suites Cpu and Cuda, which skips aloud without a
// device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "runtime/cuda/cuda_context.hpp"
#include "runtime/engine/device.hpp"
#include "tests/support/score_bound.hpp"
#include "tests/support/score_source.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

std::vector<ScoreArgs> args_of(std::span<const RandomOperands> operands) {
  std::vector<ScoreArgs> args;
  for (const RandomOperands& one : operands) args.push_back(one.args());
  return args;
}

void count_near(const std::vector<unsigned char>& taken, size_t* near) {
  if (near != nullptr) *near += static_cast<size_t>(std::count(taken.begin(), taken.end(), 1));
}

class Cpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
  }
  auto runner(JobForm form = JobForm::kWhole, size_t* near = nullptr) {
    return [=, this](std::span<const Program> programs, std::span<const RandomOperands> operands,
                     const std::vector<TestPoint>& points) {
      return run(programs, args_of(operands), points, form, near);
    };
  }
  std::vector<float> run(std::span<const Program> programs, const std::vector<ScoreArgs>& args,
                         const std::vector<TestPoint>& points, JobForm form, size_t* near) {
    const Source source{score_job_source(false, programs, form), "score_programs.cpp"};
    const KernelImage image = toolchain_->compiler().compile(source, toolchain_->host_arch());
    EXPECT_EQ(image.log, "");
    std::vector<float> out(programs.size() * points.size());
    std::vector<unsigned char> taken(out.size());
    const ScoreJob job{args.data(), points.data(), static_cast<int>(points.size()), out.data(),
                       taken.data()};
    toolchain_->load(image.bytes, {image.entry})
        ->function()(reinterpret_cast<const KernelArguments*>(&job), 0, 1);
    count_near(taken, near);
    return out;
  }
  const CpuToolchain* toolchain_ = nullptr;
};

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    driver_ = cuda::open_driver(&why);
    if (driver_ == nullptr) GTEST_SKIP() << "no device here: " << why;
    context_ = cuda::CudaContext::open(*driver_, 0);
    current_.emplace(*context_);
    device_ = open_device("cuda");
  }
  void TearDown() override {
    for (const cuda::Address address : allocated_) driver_->cuMemFree(address);
  }
  // Returns a copy in device memory, which lasts until the test ends.
  void* on_device(const void* data, size_t bytes) {
    cuda::Address address = 0;
    check(*driver_, driver_->cuMemAlloc(&address, std::max<size_t>(bytes, 1)), "cuMemAlloc");
    allocated_.push_back(address);
    check(*driver_, driver_->cuMemcpyHtoD(address, data, bytes), "cuMemcpyHtoD");
    return reinterpret_cast<void*>(address);
  }
  template <class T>
  T* on_device(const std::vector<T>& values) {
    return static_cast<T*>(on_device(values.data(), values.size() * sizeof(T)));
  }
  void launch(const KernelImage& image, const ScoreJob& job, size_t num_programs) {
    cuda::Module module = nullptr;
    check(*driver_, driver_->cuModuleLoadDataEx(&module, image.bytes.data(), 0, nullptr, nullptr),
          "cuModuleLoadDataEx");
    cuda::Function function = nullptr;
    check(*driver_, driver_->cuModuleGetFunction(&function, module, image.entry.c_str()),
          "cuModuleGetFunction");
    void* job_there = on_device(&job, sizeof job);
    void* parameters[] = {&job_there};
    const cuda::LaunchConfig config{
        static_cast<unsigned>(num_programs), 1, 1, 128, 1, 1, 0, nullptr, nullptr, 0};
    check(*driver_, driver_->cuLaunchKernelEx(&config, function, parameters, nullptr),
          "cuLaunchKernelEx");
    check(*driver_, driver_->cuCtxSynchronize(), "cuCtxSynchronize");
    driver_->cuModuleUnload(module);
  }
  auto runner(JobForm form = JobForm::kWhole, size_t* near = nullptr) {
    return [=, this](std::span<const Program> programs, std::span<const RandomOperands> operands,
                     const std::vector<TestPoint>& points) {
      return run(programs, operands, points, form, near);
    };
  }
  std::vector<float> run(std::span<const Program> programs,
                         std::span<const RandomOperands> operands,
                         const std::vector<TestPoint>& points, JobForm form, size_t* near) {
    std::vector<ScoreArgs> args = args_of(operands);
    for (size_t p = 0; p < operands.size(); ++p)
      for (size_t c = 0; c < operands[p].bytes().size(); ++c)
        args[p].captures[c].data = on_device(operands[p].bytes()[c]);
    std::vector<float> out(programs.size() * points.size());
    std::vector<unsigned char> taken(out.size());
    const ScoreJob job{on_device(args), on_device(points), static_cast<int>(points.size()),
                       on_device(out), on_device(taken)};
    const Source source{score_job_source(true, programs, form), "score_programs.cu"};
    launch(open_nvrtc_compiler()->compile(source, device_->archs().front()), job, programs.size());
    check(*driver_,
          driver_->cuMemcpyDtoH(out.data(), reinterpret_cast<cuda::Address>(job.out),
                                out.size() * sizeof(float)),
          "cuMemcpyDtoH");
    check(*driver_,
          driver_->cuMemcpyDtoH(taken.data(), reinterpret_cast<cuda::Address>(job.near),
                                taken.size()),
          "cuMemcpyDtoH");
    count_near(taken, near);
    return out;
  }
  const cuda::DriverTable* driver_ = nullptr;
  std::shared_ptr<const cuda::CudaContext> context_;
  std::optional<cuda::ContextScope> current_;
  std::shared_ptr<const Device> device_;
  std::vector<cuda::Address> allocated_;
};

using Run = std::function<std::vector<float>(
    std::span<const Program>, std::span<const RandomOperands>, const std::vector<TestPoint>&)>;

std::vector<TestPoint> random_points(size_t count) {
  std::mt19937_64 random(1);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  std::vector<TestPoint> points(count);
  for (TestPoint& at : points)
    at = {static_cast<float>(below(257) - 128) / 16,
          below(4),
          below(6),
          below(3),
          below(50),
          below(50)};
  return points;
}

// Returns the bound of a launch; a mask program gives the score or -infinity.
Bound expected(const Program& program, const ScoreArgs& args, const TestPoint& at,
               double tanh_error) {
  const Program printed = program.kind() == Kind::kMask ? hide(identity(), program) : program;
  const Point point{at.score,  at.batch,      at.head,        at.kv_head,   at.q_idx,
                    at.kv_idx, args.seqlen_q, args.seqlen_kv, args.head_dim};
  return bound_of(printed, point, loads_of(program, args), tanh_error);
}

// Runs all programs, kProgramsInOneKernel per kernel.
std::vector<float> run_all(const Run& run, std::span<const Program> programs,
                           std::span<const RandomOperands> operands,
                           const std::vector<TestPoint>& points) {
  std::vector<float> all;
  for (size_t first = 0; first < programs.size(); first += kProgramsInOneKernel) {
    const size_t count = std::min(kProgramsInOneKernel, programs.size() - first);
    const std::vector<float> out =
        run(programs.subspan(first, count), operands.subspan(first, count), points);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

// Returns the share of results that are certain.
double expect_programs(const Run& run, std::span<const Program> programs,
                       std::span<const RandomOperands> operands,
                       const std::vector<TestPoint>& points, double tanh_error) {
  const std::vector<float> out = run_all(run, programs, operands, points);
  size_t certain = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t p = i / points.size();
    const TestPoint& at = points[i % points.size()];
    const Bound bound = expected(programs[p], operands[p].args(), at, tanh_error);
    if (!bound.is_certain || std::isnan(bound.value)) continue;
    ++certain;
    const double value = static_cast<double>(out[i]);
    const bool right = value == bound.value || std::fabs(value - bound.value) <= bound.error;
    EXPECT_TRUE(right) << value << " where " << bound.value << " +- " << bound.error
                       << " is expected at score " << at.score << " q_idx " << at.q_idx
                       << " kv_idx " << at.kv_idx << " of\n"
                       << canonical_text(programs[p]) << step_text(programs[p]);
    if (!right) return 0;
  }
  return static_cast<double>(certain) / static_cast<double>(out.size());
}

void expect_random_programs(const Run& run, double tanh_error = 0) {
  std::vector<Program> programs;
  std::vector<RandomOperands> operands;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomProgram random =
        random_program(seed, seed % 4 == 3 ? Kind::kMask : Kind::kScore, seed % 8 == 0 ? 6 : 4);
    programs.push_back(parse(random.text, random.kind, random.declarations, "random"));
    operands.emplace_back(programs.back(), seed);
  }
  EXPECT_GT(expect_programs(run, programs, operands, random_points(64), tanh_error), 0.8);
}

// Programs that the near form is for, each alone and with the others.
constexpr double kNearTanh = 2.4e-5;  // of score_steps.h
const char* const kNearTexts[] = {
    "return 50 * tanh(score / 50);", "return cap * tanh(score / cap);", "return tanh(score);",
    "return -3 * tanh(-(score * 0.5) + lines[head]) + tanh(0.25 * score);",
    "float t = tanh(score / 20); return 2 * t + t * t;",
    "return score - lines[head] * abs(q_idx + seqlen_kv - seqlen_q - kv_idx);",
    "return score + min(abs(kv_idx - q_idx), 7) - 0.5 * max(kv_idx - q_idx + 3, 0);",
    "return (kv_idx <= q_idx ? score : -INFINITY) * 2 + clamp(kv_idx - q_idx, -4, 5);",
    "return score + table[head][kv_idx - q_idx + 64];",
    "return score + table[batch][kv_idx] * 0.5;",
    "float b = dense[batch][head][q_idx][kv_idx]; return b <= 0 ? -INFINITY : score + b;",
    "float b = dense[batch][head][q_idx][kv_idx]; return b <= -0.75 ? -INFINITY : score + b;",
    "return (lines[q_idx] + score) - (abs(q_idx - kv_idx) * lines[head] - (kv_idx - 5) * 0.25);",
    "return score * lines[kv_idx] + dense[0][head][kv_idx][q_idx];",
    "return exp(score * 0.1) + lines[q_idx];",
    "return 30 * tanh((score + dense[batch][head][q_idx][kv_idx]) / 30) - lines[head] * abs(kv_idx "
    "- q_idx);",
    "return min(score, lines[q_idx]) + ids[kv_idx - q_idx + 64];",
    // Programs that read the tensors in another order than the text does.
    "return score - lines[head] * table[0][kv_idx];",
    "return score - table[0][head] * abs(ids[q_idx] - lines[kv_idx]);",
    "return lines[head] * (score * table[0][q_idx]) + dense[0][0][0][kv_idx];",
    "return cap * (score * low) - lines[head] * float(ids[kv_idx]);"};

void expect_near_programs(const std::function<Run(size_t* near)>& runner) {
  std::vector<Program> programs;
  std::vector<RandomOperands> operands;
  for (const CaptureType type : {CaptureType::kFp32, CaptureType::kBf16, CaptureType::kFp16})
    for (const char* text : kNearTexts) {
      const Declarations declared{{{"lines", type, 1},
                                   {"table", type, 2},
                                   {"dense", type, 4},
                                   {"ids", CaptureType::kInt32, 1}},
                                  {{"cap", Type::kFloat}, {"low", Type::kFloat}}};
      programs.push_back(parse(text, Kind::kScore, declared, "near"));
      operands.emplace_back(programs.back(), programs.size());
    }
  std::vector<TestPoint> points = random_points(64);
  for (const float share : {0.1F, 1.0F, 5.0F, 100.0F})  // of the caps
    for (const float cap : {1.0F, -20.0F, 50.0F}) points.push_back({share * cap, 1, 2, 1, 20, 30});
  size_t near = 0;
  EXPECT_GT(expect_programs(runner(&near), programs, operands, points, kNearTanh), 0.8);
  const size_t all = programs.size() * points.size();
  EXPECT_GT(near, all / 4);
  EXPECT_LT(near, all * 19 / 20);
}

// Allowed error of a function of `score` on [low, high]: relative to the result, plus `absolute`.
struct Exactness {
  const char* text;
  double low, high;
  double relative, absolute;
};

double largest_error(const Exactness& e, const Program& program,
                     const std::vector<TestPoint>& points, const float* out) {
  double largest = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    Point point;
    point.score = static_cast<double>(points[i].score);
    if (point.score < e.low || point.score > e.high) continue;
    const double exact = evaluate(program, point, {});
    const double error = std::fabs(static_cast<double>(out[i]) - exact);
    largest = std::max(largest, error / (e.relative * std::fabs(exact) + e.absolute));
  }
  return largest;
}

void expect_exactness(const Run& run, const std::vector<Exactness>& all) {
  std::vector<Program> programs;
  std::vector<RandomOperands> operands;
  for (const Exactness& e : all) {
    programs.push_back(parse(e.text, Kind::kScore, {}, "function"));
    operands.emplace_back(programs.back(), 0);
  }
  std::vector<TestPoint> points;
  for (double x = 1e-6; x < 128; x *= 1.0003)
    for (const double sign : {1.0, -1.0})
      points.push_back({static_cast<float>(sign * x), 0, 0, 0, 0, 0});
  const std::vector<float> out = run(programs, operands, points);
  for (size_t p = 0; p < all.size(); ++p)
    EXPECT_LE(largest_error(all[p], programs[p], points, out.data() + p * points.size()), 1)
        << all[p].text;
}

// Checks results outside the ranges of exactness: infinities, NaN, ends of int.
void expect_ends(const Run& run) {
  const char* texts[] = {"return tanh(score);",  "return sigmoid(score);", "return exp(score);",
                         "return exp2(score);",  "return log(score);",     "return log2(score);",
                         "return floor(score);", "return int(score);",     "return sqrt(score);",
                         "return rsqrt(score);", "return abs(score);"};
  std::vector<Program> programs;
  std::vector<RandomOperands> operands;
  for (const char* text : texts) {
    programs.push_back(parse(text, Kind::kScore, {}, "function"));
    operands.emplace_back(programs.back(), 0);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<TestPoint> points;
  for (const float score :
       {0.0F, -0.0F, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e30F, -1e30F,
        3e9F, -3e9F, 200.0F, -200.0F, 8388609.0F, -8388609.0F, -1.0F})
    points.push_back({score, 0, 0, 0, 0, 0});
  const std::vector<float> out = run(programs, operands, points);
  for (size_t i = 0; i < out.size(); ++i) {
    Point point;
    point.score = static_cast<double>(points[i % points.size()].score);
    const double exact = evaluate(programs[i / points.size()], point, {});
    const double value = static_cast<double>(out[i]);
    // Values that fp32 cannot hold are infinite or 0.
    const double rounded = std::fabs(exact) > 3.4e38 ? std::copysign(HUGE_VAL, exact) : exact;
    EXPECT_TRUE((std::isnan(value) && std::isnan(exact)) || value == rounded ||
                std::fabs(value - rounded) <= 1e-6 * std::fabs(rounded) + 1e-37)
        << texts[i / points.size()] << " of " << point.score << " is " << value << ", not "
        << exact;
  }
}

// score_functions.hpp
const std::vector<Exactness> kCpuExactness = {
    {"return tanh(score);", -128, 128, 6e-7, 0}, {"return sigmoid(score);", -80, 80, 3e-7, 0},
    {"return exp(score);", -80, 80, 3e-7, 0},    {"return exp2(score);", -126, 127, 3e-7, 0},
    {"return log(score);", 0, 128, 3e-7, 0},     {"return log2(score);", 0, 128, 3e-7, 0},
    {"return sqrt(score);", 0, 128, 3e-7, 0},    {"return rsqrt(score);", 0, 128, 3e-7, 0},
    {"return floor(score);", -128, 128, 0, 0},   {"return 1 / score;", -128, 128, 3e-7, 0},
    {"return score / 50;", -128, 128, 3e-7, 0}};
// score_functions.cuh
constexpr double kUlps = 0x1p-22;
const std::vector<Exactness> kCudaExactness = {
    {"return tanh(score);", -128, 128, 8e-7, 0},
    {"return sigmoid(score);", -16, 16, 2 * kUlps + 16 * 0x1p-23, 0},
    {"return exp(score);", -16, 16, kUlps + 16 * 0x1p-23, 0},
    {"return exp(score);", -80, 80, kUlps + 80 * 0x1p-23, 0},
    {"return exp2(score);", -126, 127, kUlps, 0},
    {"return log(score);", 0, 128, kUlps, kUlps},
    {"return log2(score);", 0, 128, kUlps, kUlps},
    {"return sqrt(score);", 0, 128, kUlps, 0},
    {"return rsqrt(score);", 0, 128, kUlps, 0},
    {"return floor(score);", -128, 128, 0, 0},
    {"return 1 / score;", -128, 128, kUlps, 0},
    {"return score / 50;", -128, 128, kUlps, 0}};

TEST_F(Cpu, RandomProgramsGiveWhatEvaluateSays) { expect_random_programs(runner()); }
TEST_F(Cpu, StepsGiveWhatEvaluateSays) {
  expect_random_programs(runner(JobForm::kSteps), kNearTanh);
}
TEST_F(Cpu, NearFormGivesWhatEvaluateSays) {
  expect_near_programs([&](size_t* near) { return runner(JobForm::kSteps, near); });
}
TEST_F(Cpu, FunctionsAreAsExactAsTheirHeaderSays) { expect_exactness(runner(), kCpuExactness); }
TEST_F(Cpu, FunctionsKeepNanAndInfinity) { expect_ends(runner()); }
TEST_F(Cuda, RandomProgramsGiveWhatEvaluateSays) { expect_random_programs(runner()); }
TEST_F(Cuda, StepsGiveWhatEvaluateSays) {
  expect_random_programs(runner(JobForm::kSteps), kNearTanh);
}
TEST_F(Cuda, NearFormGivesWhatEvaluateSays) {
  expect_near_programs([&](size_t* near) { return runner(JobForm::kSteps, near); });
}
TEST_F(Cuda, FunctionsAreAsExactAsTheirHeaderSays) { expect_exactness(runner(), kCudaExactness); }
TEST_F(Cuda, FunctionsKeepNanAndInfinity) { expect_ends(runner()); }

}  // namespace
}  // namespace attune::score
