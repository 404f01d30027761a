// SPDX-License-Identifier: Apache-2.0
// ATTUNE_HOST_DEVICE marks functions that host code and kernels call with values known only at run
// time.
#pragma once

#ifdef __CUDACC__
#define ATTUNE_HOST_DEVICE __host__ __device__
#else
#define ATTUNE_HOST_DEVICE
#endif
