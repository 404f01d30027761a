/* SPDX-License-Identifier: Apache-2.0
 * A libcuda.so.1 that records how kernels are launched. driver_floor_test.py loads it before
 * driver_floor.py looks for the driver. */
#include <string.h>

/* cuda.h: CUlaunchAttribute, CUlaunchConfig */
struct attribute {
  int id;
  char pad[4];
  char value[64];
};
struct config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const struct attribute* attributes;
  unsigned num_attributes;
};

char attune_stub_text[4096];      /* text of the last module */
int attune_stub_launches[2];      /* by number of attributes */
struct config attune_stub_config; /* of the last launch */
int attune_stub_attribute;        /* first attribute of the last launch, or -1 */

int cuModuleLoadData(void** module, const char* text) {
  strncpy(attune_stub_text, text, sizeof attune_stub_text - 1);
  *module = attune_stub_text;
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return module == attune_stub_text && strcmp(name, "nothing") == 0 ? 0 : 500;
}

int cuLaunchKernelEx(const struct config* config, void* function, void** parameters, void** extra) {
  if (function != attune_stub_text || extra != NULL || config->num_attributes > 1) return 1;
  for (int i = 0; i < 5; ++i) /* as the driver copies them */
    if (*(const volatile char*)parameters[i] != 0) return 1;
  attune_stub_config = *config;
  attune_stub_attribute = config->num_attributes ? config->attributes[0].id : -1;
  ++attune_stub_launches[config->num_attributes];
  return 0;
}
