// SPDX-License-Identifier: Apache-2.0
// The ladder: the (template, config) pairs that serve a problem here, best choice first, as a pure
// function of the known winners. The engine takes the first choice whose image it can get, and
// Plan::explain reports it. Tested without any device.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "generator/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/policy.hpp"

namespace attune {

struct Choice {
  Family family;
  KernelSpec spec;  // to compile: the problem's, or the winner's if both mean the same here
  Config config;
  Rung rung = Rung::kDefaultConfig;
  std::string why;
  double distance = 0;
  std::optional<WinnerRecord> winner;
};

struct Ladder {
  std::vector<Choice> choices;           // best first; empty only when the policy allows nothing
  std::vector<std::string> passed_over;  // winners that were not taken, with the reason
};

// Returns the distance of two shapes in octaves (factors of two): Euclidean over log2 of
// batch * num_heads_q, seqlen_q and seqlen_kv.
double shape_distance(const Shape& a, const Shape& b);

// The distance beyond which the default config, which a rule chooses for the shape, is the better
// guess. For policy kDefault only.
inline constexpr double kFarOctaves = 3.0;

// True if the times of a winner mean something on this device. False for a winner of a bundle that
// was exported from another kind of device, and for one of another number of CPU threads.
bool measured_on(const WinnerRecord& winner, const DeviceIdentity& device);

// Returns the spec without mask and window. Winners with equal results are one family, from which
// climb takes its rows.
KernelSpec family_of(const KernelSpec& spec);

// Says if a kernel that no bundle and no store holds may be compiled.
enum class Compiling { kAllowed, kNever };

struct LadderRules {
  Policy policy = Policy::kDefault;
  Compiling compiling = Compiling::kAllowed;
  // A winner is stale if the digest of its template has changed.
  std::function<std::string(const KernelTemplate&)> digest_of = template_digest;
  // A pin for the exact shape is the only choice; climb throws kNotTuned if it cannot be taken.
  bool pins_bind = false;
};

// Returns the choices for a problem. `serving`: the templates that serve the canonical problem on
// this device. `winners`: rows of the problem's family, most trusted layer first. A row counts if
// it was tuned for the problem that the canonical problem is at the row's lengths
// (generator/core/visibility.hpp): a window that hides nothing at 2048 keys finds the plain winners
// of 2048 keys. Rows of other thread counts come after rows of this device: this shape or its
// bucket, nearest count first. If nothing may be compiled, more choices come before the reference,
// because only their images may exist: the defaults of a typical device of the arch, the default
// config of the problem as asked, then far winners.
Ladder climb(const Problem& asked, const Serving& serving, const std::vector<WinnerRecord>& winners,
             const DeviceIdentity& device, const LadderRules& rules);

}  // namespace attune
