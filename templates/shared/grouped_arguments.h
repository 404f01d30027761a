// SPDX-License-Identifier: Apache-2.0
// All launch arguments of kernels, with the part of caches of 4 bits. On a CPU a kernel gets the
// address of GroupedArguments. Other kernels know only KernelArguments or ListedArguments, so their
// text, and stored kernels of earlier versions, stay valid. On a GPU the part is one parameter.
//
// | part   | struct          | who takes it                    |
// |--------|-----------------|---------------------------------|
// | groups | GroupFactorArgs | kernels over caches of 4 bits   |
#pragma once

#include "shared/group_factor_args.h"
#include "shared/listed_arguments.h"

namespace attune {

struct GroupedArguments : ListedArguments {
  GroupFactorArgs groups;
};

}  // namespace attune
