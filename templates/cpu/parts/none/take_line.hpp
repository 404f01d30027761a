// SPDX-License-Identifier: Apache-2.0
// References, which have no vectors: they take no adjacent elements at once.
#pragma once

#include "shared/none/take_line.h"
