// SPDX-License-Identifier: Apache-2.0
// An outside program in C++, through attune.hpp.
#include <attune/attune.hpp>
#include <cstdio>

int main() {
  const attune::Problem problem("dtype=bf16,head_dim=64,heads=8/2,seqlen=512");
  std::printf("attune %s\n", attune_version());
  return problem.num_heads_kv == 2 ? 0 : 1;
}
