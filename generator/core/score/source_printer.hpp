// SPDX-License-Identifier: Apache-2.0
// Prints a program as the functions that source_text.hpp names: which node stands at which level, what each level keeps, and the text
// of each function. step_printer.hpp adds what a loop of steps takes.
#pragma once

#include <string>
#include <vector>

#include "generator/core/score/kernel_writer.hpp"
#include "generator/core/score/program.hpp"

namespace attune::score {

struct PrintedFunction {
  std::string returns;
  std::string name;
  std::string member_prefix;  // how its members are called elsewhere
  std::string parameters;
};

class SourcePrinter {
 public:
  // Levels, as places of functions_.
  static constexpr size_t kHead = 0, kRow = 1, kColumn = 2, kElement = 3;

  // A mask program's functions are named after it, and it has no constants.
  SourcePrinter(const Program& program, const Places& places);
  virtual ~SourcePrinter() = default;
  std::string text();

 protected:
  const std::vector<Node>& nodes() const { return program_.nodes(); }
  const Node& node(int number) const { return nodes()[static_cast<size_t>(number)]; }
  bool is_leaf(int node) const;
  // Nodes that a function of this level computes, if it computes any.
  std::vector<bool> nodes_at(size_t level) const;
  // The statements that compute `here`; what is kept is called values.<name> behind them.
  std::string statements(size_t level, const std::vector<bool>& here);
  // From here on, members are called as other functions see them, and locals are written out.
  void end_function(size_t level, const std::vector<bool>& here);
  std::string function(size_t level);
  std::string members(size_t level) const;

  // What a level keeps beside its members and lines, and how it is computed: "float x;", "values.x = ..".
  virtual std::string more_members(size_t) const { return ""; }
  virtual std::string more_statements(size_t) { return ""; }
  virtual std::string constants() const;
  virtual std::string functions();
  // Of a mask program: with Mask and mask_ for Score and score_.
  std::string named(std::string text) const;

  Program program_;
  KernelWriter writer_;
  std::vector<PrintedFunction> functions_;
  std::vector<size_t> level_;    // of each node; a trivial one is written where it is used
  std::vector<bool> is_inline_;  // trivial
  std::vector<bool> is_member_;
  std::vector<std::string> names_;  // of members: v0, v1..
  // Of loads whose indices but the last are of a lower level: that level, where the address of its line is a member. Else kElement.
  std::vector<size_t> line_level_;
  std::vector<std::string> line_names_;  // a0, a1..
  int next_name_ = 0;
  int next_line_ = 0;

 private:
  bool is_trivial(int node) const;
  void place_nodes();
  void place_lines();
};

}  // namespace attune::score
