// SPDX-License-Identifier: Apache-2.0
// The ladder: returns the (template, config) pairs that serve a problem on this device, best choice
// first. It is a pure function of the known winners, so tests need no device. The engine takes the
// first choice whose image it can get, and Plan::explain reports it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/engine_options.hpp"

namespace attune {

struct Choice {
  Family family;
  KernelSpec spec;  // to compile: the problem's spec, or the winner's if both give equal results
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

// The distance in octaves beyond which a winner is not chosen: the default config, which a rule
// computes from the shape, is then the better guess. For policy kDefault only.
inline constexpr double kFarOctaves = 3.0;

// True if the times of a winner are valid for this device. False for a winner of another kind of
// device, which a bundle may have, and for a winner of another number of CPU threads.
bool measured_on(const WinnerRecord& winner, const DeviceIdentity& device);

// Returns the spec without mask and window, the key of a family. Specs with different masks may
// mean the same for a shape, so climb gets the rows of a whole family.
KernelSpec family_of(const KernelSpec& spec);

// Tells if a kernel may be compiled whose image is in no bundle and no store.
enum class Compiling { kAllowed, kNever };

struct LadderRules {
  Policy policy = Policy::kDefault;
  Compiling compiling = Compiling::kAllowed;
  // A winner is stale if its template's digest has another revision. With another digest of the
  // same revision, only its timings are old.
  std::function<std::string(const KernelTemplate&)> digest_of = template_digest;
  // If true, a pin for the exact shape is the only choice, and climb throws kNotTuned if this pin
  // cannot run here.
  bool pins_bind = false;
};

// Returns the choices for a problem. `serving`: the templates that serve the canonical problem on
// this device. `winners`: rows of the problem's family, most trusted layer first. A row is used if
// the problem, made canonical with the row's lengths, is the problem for which the row was tuned
// (generator/core/problem/visibility.hpp). For instance, a window that hides nothing at 2048 keys
// finds the winners without a window at 2048 keys. Rows of other thread counts come after rows of
// this device: this shape or its bucket, nearest count first. If nothing may be compiled, three
// more choices come before the reference, because only their images may exist: the defaults of a
// typical device of the arch, the default config of the problem as asked, then far winners.
Ladder climb(const Problem& asked, const Serving& serving, const std::vector<WinnerRecord>& winners,
             const DeviceIdentity& device, const LadderRules& rules);

}  // namespace attune
