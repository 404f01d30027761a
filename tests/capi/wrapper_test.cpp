// SPDX-License-Identifier: Apache-2.0
// attune.hpp as C++17: owners, exceptions, and one result that is known without arithmetic.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static_assert(__cplusplus < 202002L, "this test is compiled as C++17");

namespace {

int failures = 0;
#define CHECK(condition) \
  if (!(condition)) ++failures, std::fprintf(stderr, "line %d: failed: %s\n", __LINE__, #condition)

attune::ContextOptions cpu() {
  attune::ContextOptions options;
  options.target = "cpu";
  options.store = "";
  return options;
}

// With all values equal to 2, every output is 2 whatever the scores are.
void runs(const attune::Context& context) {
  const attune::Problem problem("dtype=fp32,head_dim=32,heads=2,seqlen=40");
  const attune::Plan plan = context.plan(problem);
  std::vector<float> memory(4 * 40 * 2 * 32 + 64, 2.0f);
  const auto base = (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64;
  float* const q = reinterpret_cast<float*>(base);
  float* const o = q + 3 * 40 * 2 * 32;
  std::memset(o, 255, sizeof(float) * 40 * 2 * 32);
  void* const workspace = std::aligned_alloc(256, (plan.workspace_bytes() + 256) / 256 * 256);
  plan.init_workspace(workspace, plan.workspace_bytes());
  plan.run(problem.contiguous(q, q + 40 * 2 * 32, q + 2 * 40 * 2 * 32, o), workspace,
           plan.workspace_bytes());
  for (int i = 0; i < 40 * 2 * 32; ++i) CHECK(std::fabs(o[i] - 2) < 1e-5f);
  CHECK(plan.explain().find(plan.info().kernel_template) != std::string::npos);
  CHECK(context.check_problem(problem).find("serves this problem") != std::string::npos);
  std::free(workspace);
}

// With chunks of 20 positions, a granule of 64 rows sees only a part of its keys.
void maps(const attune::Context& context) {
  const attune::Problem problem("dtype=fp32,head_dim=32,heads=2,seqlen=40,chunk=20");
  attune::BlockMap map(problem);
  CHECK(map.bytes() == 16);
  alignas(16) unsigned char granules[16] = {};
  map.data = granules;
  map.build(context, problem, nullptr);
  for (int i = 0; i < 3; ++i) CHECK(granules[i] == 1);
}

void throws(const attune::Context& context) {
  attune::Problem problem;
  problem.head_dim_v = 100;
  try {
    context.plan(problem);
    CHECK(!"an exception");
  } catch (const attune::Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    CHECK(std::strstr(error.what(), "head_dim_v is 100"));
  }
}

}  // namespace

int main() {
  try {
    attune::Plan survivor = [] {
      const attune::Context context(cpu());
      runs(context);
      throws(context);
      maps(context);
      return context.plan(attune::Problem("dtype=fp32,head_dim=32,heads=2,seqlen=40"));
    }();
    CHECK(survivor.info().rung == ATTUNE_RUNG_DEFAULT_CONFIG);  // a plan outlives its context
  } catch (const attune::Error& error) {
    std::printf("SKIP: no CPU target: %s\n", error.what());
    return error.status() == ATTUNE_COMPILE_ERROR ? 77 : 1;
  }
  return failures ? 1 : 0;
}
