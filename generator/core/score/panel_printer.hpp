// SPDX-License-Identifier: Apache-2.0
// Prints a program for panels of rows, one a lane of vectors (panel_text in source_text.hpp). Where lanes are rows, elements of a tensor
// along the keys would be gathered one by one. Beside the functions of SourcePrinter there is a near form, which takes such loads from
// what was read along the keys of each row and turned over:
//
// | node                                                | instead                  |
// |-----------------------------------------------------|--------------------------|
// | a load whose last index moves along with the key and | an element of the staged |
// | whose other indices are of a row                    | lines                    |
#pragma once

#include <string>
#include <vector>

#include "generator/core/score/source_printer.hpp"

namespace attune::score {

class PanelPrinter : public SourcePrinter {
 public:
  PanelPrinter(const Program& program, const Places& places);

 private:
  std::string constants() const override;
  std::string functions() override;
  std::string structs() const;
  std::string find_function() const;
  std::string stage_function() const;
  std::string near_function();
  // What the near form computes of each element.
  std::vector<bool> near_nodes() const;

  std::vector<int> lines_;  // nodes
};

}  // namespace attune::score
