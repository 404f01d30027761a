// SPDX-License-Identifier: Apache-2.0
// The ladder: which (template, config) serves a problem here, best choice first, as a pure function
// of the winners known. The engine takes the first choice whose image it can get; Plan::explain
// tells the story. Tested without any device.
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
  KernelSpec spec;  // to compile: the problem's, or the winner's own where both are the same here
  Config config;
  Rung rung = Rung::kDefaultConfig;
  std::string why;
  double distance = 0;
  std::optional<WinnerRecord> winner;
};

struct Ladder {
  std::vector<Choice> choices;           // best first; empty only when the policy allows nothing
  std::vector<std::string> passed_over;  // winners that were not taken, and why
};

// How far two shapes are apart, in octaves: Euclidean over log2 of batch * num_heads_q, seqlen_q
// and seqlen_kv.
double shape_distance(const Shape& a, const Shape& b);

// Beyond this the default config, chosen for the shape by rule, is the better guess (policy
// kDefault only).
inline constexpr double kFarOctaves = 3.0;

// False for a bundle's winner that was exported from another kind of device, and for one of another
// number of CPU threads: its times say little here.
bool measured_on(const WinnerRecord& winner, const DeviceIdentity& device);

// The kind of a winner that its mask and window do not change: climb takes winners of one family.
KernelSpec family_of(const KernelSpec& spec);

// Whether a kernel that no bundle and no store holds may be made.
enum class Compiling { kAllowed, kNever };

struct LadderRules {
  Policy policy = Policy::kDefault;
  Compiling compiling = Compiling::kAllowed;
  // A winner whose template has another digest now is stale.
  std::function<std::string(const KernelTemplate&)> digest_of = template_digest;
  // A pin for the very shape is the only choice; climb throws kNotTuned when it cannot be taken.
  bool pins_bind = false;
};

// `serving`: what serves the canonical problem on this device. `winners`: rows of the problem's
// family, most trusted layer first. A row counts when it was tuned for what the canonical problem
// is at the row's lengths (generator/core/visibility.hpp): a window that hides nothing at 2048 keys
// finds the plain winners of 2048 keys. Rows of other thread counts stand below those of this
// device: this shape or its bucket, nearest count first. Without compiling, the defaults of the
// device that stands for the arch, the default config of the problem as it was asked, then far
// winners, stand before the reference: their images are all there is.
Ladder climb(const Problem& asked, const Serving& serving, const std::vector<WinnerRecord>& winners,
             const DeviceIdentity& device, const LadderRules& rules);

}  // namespace attune
