// SPDX-License-Identifier: Apache-2.0
// Draws and checks random gradients; see checked_kernel.hpp.
#include "tuner/cli/commands/checked_kernel.hpp"

#include <random>

#include "generator/core/ops/ops.hpp"
#include "generator/score/features/features.hpp"
#include "tuner/fuzz/draw.hpp"
#include "tuner/fuzz/fuzz.hpp"

namespace attune::cli {
namespace {

// Draws options that gradients have and the forward pass lacks.
void draw_choices(std::mt19937_64* random, Problem* problem) {
  problem->backward.deterministic = (*random)() % 2 == 0;
  Problem more = *problem;
  more.backward.accumulate = (*random)() % 4 == 0;
  if ((*random)() % 3 == 0) more.backward.gradients = static_cast<Gradients>(1 + (*random)() % 6);
  if (testing::is_valid(more)) *problem = more;
}

// Draws a forward problem and returns its gradient problems. Half of the draws combine pairs of
// features in turn; the other half draw a problem that the drawn template serves.
std::vector<Problem> drawn_gradients(const Device& device, std::mt19937_64* random, uint64_t seed,
                                     const std::vector<const KernelTemplate*>& templates) {
  const testing::DrawnKernel drawn = testing::draw_kernel(seed, device, templates);
  Problem forward = (*random)() % 2 == 0
                        ? drawn.problem
                        : testing::random_problem(*random, device, *drawn.kernel_template);
  testing::draw_lengths(*random, drawn.config, &forward);
  const auto of_256 = static_cast<float>((*random)() % 4 == 0 ? 1 + (*random)() % 128 : 0);
  if (!is_8_bit(forward) && forward.dropout == 0) forward.dropout = of_256 / 256;
  std::vector<Problem> problems = gradient_problems(with_built_ins(forward));
  for (Problem& problem : problems) draw_choices(random, &problem);
  return problems;
}

}  // namespace

int check_random_gradients(int count, const RunOptions& run,
                           const std::shared_ptr<const Device>& device) {
  const DeviceTarget target(device);
  const auto templates = testing::fuzzed_templates(*device, "");
  return check_drawn(count, run, device, target, "gradients",
                     [&](uint64_t seed, std::mt19937_64* random) {
                       return drawn_gradients(*device, random, seed, templates);
                     });
}

}  // namespace attune::cli
