// SPDX-License-Identifier: Apache-2.0
// All launch arguments of kernels, with the parts of lists of keys and of 4-bit caches. On a CPU a
// kernel gets the address of GroupedArguments. Other kernels know only KernelArguments, so their
// text, and stored kernels of earlier versions, stay valid. On a GPU each part is one parameter.
//
// | part   | struct          | who takes it                            |
// |--------|-----------------|-----------------------------------------|
// | lists  | KeyListArgs     | kernels of attention over lists of keys |
// | groups | GroupFactorArgs | kernels over caches of 4 bits           |
#pragma once

#include "shared/kernel_arguments.h"
#include "shared/key_list_args.h"
#include "shared/nibble_rows.h"

namespace attune {

struct ListedArguments : KernelArguments {
  KeyListArgs lists;
};

struct GroupedArguments : ListedArguments {
  GroupFactorArgs groups;
};

}  // namespace attune
