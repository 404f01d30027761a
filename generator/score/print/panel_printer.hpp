// SPDX-License-Identifier: Apache-2.0
// Prints a program for panels of rows, one row per vector lane (panel_text in source_text.hpp).
// With rows in lanes, the elements of a tensor along the keys would need gathers. So there is also
// a near form. It takes such loads from staged lines, which are read along the keys of each row and
// then transposed:
//
// | node                                                 | replaced by              |
// |------------------------------------------------------|--------------------------|
// | a load whose last index moves along with the key and | an element of the staged |
// | whose other indices depend on the row                | lines                    |
#pragma once

#include <string>
#include <vector>

#include "generator/score/print/source_printer.hpp"

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
  // Returns the nodes that the near form computes per element.
  std::vector<bool> near_nodes() const;

  std::vector<int> lines_;  // nodes
};

}  // namespace attune::score
