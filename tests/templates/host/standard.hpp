// SPDX-License-Identifier: Apache-2.0
// The standard headers of host kernels and of their tests. host_kernel.py precompiles them.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>
