// SPDX-License-Identifier: Apache-2.0
// Includes sm90/rules.hpp for families/backward, which names this file.
#pragma once

#include "generator/families/prefill/sm90/rules.hpp"
