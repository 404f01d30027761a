// SPDX-License-Identifier: Apache-2.0
// NVTX ranges with the headers of NVTX 3; see c_run_range.hpp.
#include "runtime/c_api/c_run_range.hpp"

#if ATTUNE_NVTX
#include <nvtx3/nvToolsExt.h>

#include "runtime/c_api/c_support.hpp"

namespace attune::c_api {
namespace {

// Returns the NVTX domain; null if no tool is attached.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t instance = nvtxDomainCreateA("attune");
  return instance;
}

}  // namespace

bool RunRange::begin(const attune_plan& plan) noexcept {
  if (domain() == nullptr) [[likely]]
    return false;
  try {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = plan.texts().label.c_str();
    nvtxDomainRangePushEx(domain(), &range);
    return true;
  } catch (...) {  // no memory for the label: the run goes on without a range
    return false;
  }
}

void RunRange::end() noexcept { nvtxDomainRangePop(domain()); }

}  // namespace attune::c_api
#endif
