// SPDX-License-Identifier: Apache-2.0
// Prints a program as the functions that source_text.hpp lists. Chooses the level of each node and
// the values that each level stores, and writes the functions. step_printer.hpp adds the functions
// for kernels that process keys in steps.
#pragma once

#include <string>
#include <vector>

#include "generator/score/language/program.hpp"
#include "generator/score/print/kernel_writer.hpp"

namespace attune::score {

struct PrintedFunction {
  std::string returns;
  std::string name;
  std::string member_prefix;  // prefix of its members in other functions
  std::string parameters;
};

class SourcePrinter {
 public:
  // Levels, as indices into functions_.
  static constexpr size_t kHead = 0, kRow = 1, kColumn = 2, kElement = 3;

  // For a mask program, the functions' names contain Mask, and there are no constants.
  SourcePrinter(const Program& program, const Places& places);
  virtual ~SourcePrinter() = default;
  std::string text();

 protected:
  const std::vector<Node>& nodes() const { return program_.nodes(); }
  const Node& node(int number) const { return nodes()[static_cast<size_t>(number)]; }
  bool is_leaf(int node) const;
  // Returns the nodes that a function of this level computes, if there is such a function.
  std::vector<bool> nodes_at(size_t level) const;
  // Returns the statements that compute `here`. They name stored values values.<name>.
  std::string statements(size_t level, const std::vector<bool>& here);
  // Ends a level's function: other functions name its members by their prefix, and its locals are
  // written out again.
  void end_function(size_t level, const std::vector<bool>& here);
  std::string function(size_t level);
  std::string members(size_t level) const;

  // Return the declarations of further values that a level stores, "float x;", and their
  // statements, "values.x = ..".
  virtual std::string more_members(size_t) const { return ""; }
  virtual std::string more_statements(size_t) { return ""; }
  virtual std::string constants() const;
  virtual std::string functions();
  // Returns the text with Mask and mask_ in place of Score and score_, for a mask program.
  std::string named(std::string text) const;

  Program program_;
  KernelWriter writer_;
  std::vector<PrintedFunction> functions_;
  std::vector<size_t> level_;    // level per node; a trivial node is written where it is used
  std::vector<bool> is_inline_;  // trivial
  std::vector<bool> is_member_;
  std::vector<std::string> names_;  // of members: v0, v1 ...
  // Per load: the level of its indices except the last, if that level is lower than the load's. A
  // member of that level stores the address of the line. Otherwise kElement.
  std::vector<size_t> line_level_;
  std::vector<std::string> line_names_;  // a0, a1 ...
  int next_name_ = 0;
  int next_line_ = 0;

 private:
  bool is_trivial(int node) const;
  void place_nodes();
  void place_lines();
};

}  // namespace attune::score
