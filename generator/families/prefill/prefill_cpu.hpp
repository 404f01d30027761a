// SPDX-License-Identifier: Apache-2.0
// Includes families/served.hpp for families/backward, which names this file.
#pragma once

#include "generator/families/served.hpp"
