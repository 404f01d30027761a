// SPDX-License-Identifier: Apache-2.0
// What the tests of the two Hopper families share: the arch and device they ask about, and problems
// of every mask and kind of length.
#pragma once

#include <string>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune::testing {

inline const Arch& hopper() {
  static const Arch arch = parse_arch("sm_90a");
  return arch;
}

inline constexpr DeviceFacts kH200{132, 50ll << 20};

// `dtype`, each of `dims`, every mask and length, each of `options` (texts that begin with a comma,
// or are empty).
inline std::vector<Problem> hopper_problems(const std::string& dtype,
                                            const std::vector<std::string>& dims,
                                            const std::vector<std::string>& options = {""}) {
  std::vector<Problem> all;
  for (const std::string& dim : dims)
    for (const char* mask : {"none", "causal_bottom_right", "causal_top_left,window=128:-"})
      for (const char* lengths : {"seqlen=1", "seqlen=4096", "seqlen_q=256,seqlen_kv=32768"})
        for (const std::string& option : options)
          all.push_back(parse_problem("dtype=" + dtype + ",heads=8/2,batch=2,mask=" + mask + "," +
                                      dim + "," + lengths + option));
  return all;
}

inline std::string text_of(const Problem& p, const Config& c) {
  return to_text(p) + " " + c.to_text();
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

}  // namespace attune::testing
