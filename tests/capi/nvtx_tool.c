/* SPDX-License-Identifier: Apache-2.0
 * An injection library for NVTX ($NVTX_INJECTION64_PATH): counts the ranges of the domain "attune"
 * and prints the counts and the last range's name when the process ends.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

static char own, other; /* domains */
static int ranges, open_ranges;
static char last[200];

static nvtxDomainHandle_t NVTX_API domain_create(const char* name) {
  return (nvtxDomainHandle_t)(strcmp(name, "attune") == 0 ? &own : &other);
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if ((void*)domain != &own) return -1;
  ++ranges;
  snprintf(last, sizeof last, "%s", range->message.ascii);
  return open_ranges++;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
  return (void*)domain == &own ? --open_ranges : -1;
}

__attribute__((destructor)) static void say(void) {
  printf("nvtx: %d ranges of attune, %d open, such as %s\n", ranges, open_ranges, last);
  fflush(stdout);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const NvtxExportTableCallbacks* const callbacks =
      (const NvtxExportTableCallbacks*)table_of(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable core = 0;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core, &size))
    return 0;
  if (size <= NVTX_CBID_CORE2_DomainRangePop) return 0;
  *core[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  *core[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *core[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
