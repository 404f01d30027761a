/* SPDX-License-Identifier: Apache-2.0
 * An outside program: asks for the version and describes a problem.
 */
#include <attune/attune.h>
#include <stdio.h>

int main(void) {
  attune_problem problem;
  printf("attune %s\n", attune_version());
  if (attune_problem_parse("dtype=bf16,head_dim=64,heads=8/2,seqlen=512", &problem) != ATTUNE_OK)
    return 1;
  return problem.num_heads_kv == 2 &&
                 attune_problem_parse("dtype=bf15", &problem) == ATTUNE_INVALID_ARGUMENT
             ? 0
             : 1;
}
