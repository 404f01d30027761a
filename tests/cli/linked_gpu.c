/* SPDX-License-Identifier: Apache-2.0
 * examples/linked.c for a GPU, on the driver alone: cubins that are linked in, memory by
 * libcuda.so.1. Built by export.bats with
 *   attune compile --arch auto --out my_kernels.o
 *     --problem dtype=fp16,head_dim=64,heads=4/2,seqlen=256,mask=causal_bottom_right
 * Each value of a head is the number of its KV head. So each result is that number, whatever the
 * weights are.
 */
#include <attune/attune.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "my_kernels.h"

enum { kLength = 256, kHeads = 4, kHeadsKv = 2, kDim = 64 };
#define TEXT "dtype=fp16,head_dim=64,heads=4/2,seqlen=256,mask=causal_bottom_right"
static const unsigned short kHalf[3] = {0x3c00, 0x4000, 0x4200}; /* 1, 2, 3 in fp16 */

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

static void* driver;
/* Calls a function of libcuda that returns 0 where it succeeds. */
#define CUDA(name, parameters, ...)                                       \
  do {                                                                    \
    int(*call) parameters = (int(*) parameters)dlsym(driver, name);       \
    const int failed = call ? call(__VA_ARGS__) : -1;                     \
    if (failed) return fprintf(stderr, "%s gives %d\n", name, failed), 1; \
  } while (0)

int main(void) {
  attune_memory_bundle kernels = my_kernels_bundle();
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cuda:0";
  options.store = "";
  options.no_jit = 1;
  options.memory_bundles = &kernels;
  options.num_memory_bundles = 1;
  attune_context* context;
  check(attune_context_create(&options, &context));
  attune_problem problem;
  check(attune_problem_parse(TEXT, &problem));
  attune_plan* plan;
  check(attune_plan_get(context, &problem, NULL, &plan));
  attune_plan_info info = {.size = sizeof info};
  check(attune_plan_get_info(plan, &info));

  driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* primary;
  CUDA("cuDevicePrimaryCtxRetain", (void**, int), &primary, 0);
  CUDA("cuCtxSetCurrent", (void*), primary);
  static unsigned short host[kLength * kHeads * kDim];
  const int heads[4] = {kHeads, kHeadsKv, kHeadsKv, kHeads}; /* of q, k, v, o */
  unsigned long long device[5];
  for (int operand = 0; operand < 4; ++operand) {
    const size_t count = (size_t)kLength * (size_t)heads[operand] * kDim;
    for (size_t i = 0; i < count; ++i)
      host[i] = operand == 2 ? kHalf[i / kDim % kHeadsKv] : operand == 3 ? 0 : kHalf[i % 3];
    CUDA("cuMemAlloc_v2", (unsigned long long*, size_t), &device[operand], 2 * count);
    CUDA("cuMemcpyHtoD_v2", (unsigned long long, const void*, size_t), device[operand], host,
         2 * count);
  }
  CUDA("cuMemAlloc_v2", (unsigned long long*, size_t), &device[4], info.workspace_bytes + 256);
  void* workspace = (void*)device[4];
  check(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  attune_operands operands;
  check(attune_operands_contiguous(&problem, (void*)device[0], (void*)device[1], (void*)device[2],
                                   (void*)device[3], NULL, &operands));
  check(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  CUDA("cuCtxSynchronize", (void), );
  CUDA("cuMemcpyDtoH_v2", (void*, unsigned long long, size_t), host, device[3], sizeof host);
  int wrong = 0;
  for (int i = 0; i < kLength * kHeads * kDim; ++i)
    wrong += abs(host[i] - kHalf[i / kDim % kHeads / (kHeads / kHeadsKv)]) >
             2; /* units in the last place */
  printf("%s from linked cubins, %d of %d values are wrong\n", info.kernel_template, wrong,
         kLength * kHeads * kDim);
  attune_plan_release(plan);
  attune_context_destroy(context);
  return wrong != 0;
}
