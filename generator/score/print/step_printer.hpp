// SPDX-License-Identifier: Apache-2.0
// Prints a program for kernels that process keys in steps (step_text in source_text.hpp): the
// functions of SourcePrinter, and those of the near form. The near form of an element takes four
// kinds of nodes from values that are computed once per step or per head:
//
// | node                                       | replaced by                                      |
// |--------------------------------------------|--------------------------------------------------|
// | a float of a position                      | its value at the step's first key + a constant   |
// | a load along the keys of a line            | the value that score_loads read at the step's    |
// |                                            | address                                          |
// | g * tanh(a * score), g and a per head      | an odd polynomial of the score, its coefficients |
// |                                            | per head                                         |
// | tanh of an affine function of the score    | the polynomial of that function                  |
//
// The near form is valid if score_step and score_is_near say so. Lines must have unit stride, have
// even addresses and reach past the step, and arguments of tanh must be small. Two kinds of
// programs cost even less per element (step_forms.cpp):
//
// | program                                      | cost per element                               |
// |----------------------------------------------|------------------------------------------------|
// | the result is such a tanh                    | none: the softmax applies the polynomial       |
// | terms of the result are linear in a position | one multiplication and addition; the rest is   |
// |                                              | computed per row                               |
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/score/analysis/rewrites.hpp"
#include "generator/score/print/source_printer.hpp"

namespace attune::score {

inline constexpr std::string_view kStepParameters =
    "const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row, int batch, int head, "
    "int kv_head,\n"
    "    int q_idx, int kv_idx, int span";
inline constexpr std::string_view kNearParameters =
    "const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row,\n    const "
    "ScoreColumn& on_column, const ScoreStep& on_step, const ScoreLoaded& loaded, float "
    "score, int batch,\n    int head, int kv_head, int q_idx, int kv_idx, int offset";

class StepPrinter : public SourcePrinter {
 public:
  // `hides`: the result of may_hide for the original program. `stages`: a line may come through
  // shared memory.
  StepPrinter(const SteppedProgram& program, const Places& places, bool hides, bool stages);
  bool stages_line() const { return staged_line() >= 0; }
  bool is_tanh() const { return rising_tanh() >= 0 && tanhs_[0].node == program_.root(); }

 private:
  // In the order of the loads' nodes.
  struct Line {
    int node;
    bool is_pair;    // both columns of a pair are read at once
    bool is_dense;   // each row has a line of its own
    bool is_shared;  // the rows of a thread move along it by `row_step`
    int row_step;
  };
  struct Tanh {
    int node;      // the replaced node
    int argument;  // argument of tanh
    int scale;     // g, or -1: 1
    bool is_odd;   // the argument is a multiple of the score
  };

  void find_nodes();
  void find_tanhs();
  // The text of a + b * position; `slope` is empty if b is 0.
  struct Linear {
    std::string base;
    std::string slope;
  };
  struct Term {
    int node;
    bool is_negative;
  };

  std::optional<Linear> linear(int number);
  void add_terms(int number, bool is_negative, std::vector<Term>* terms) const;
  void find_linear_terms();
  std::string sign_statements() const;
  std::string linear_functions();
  std::string tanh_function() const;

  bool is_multiple_of_score(int number) const;
  bool is_affine_in_score(int number) const;
  int rising_tanh() const;
  int staged_line() const;
  bool reads_elements() const;
  bool has_conditions() const { return !lines_.empty() || !tanhs_.empty(); }

  std::string more_members(size_t level) const override;
  std::string more_statements(size_t level) override;
  std::string functions() override;
  std::string constants() const override;
  std::string step_structs() const;
  std::string step_function();
  std::string share_function() const;
  std::string loads_function() const;
  std::string prefetch_function();
  std::string reach_function();
  void bind_near();
  std::vector<bool> near_nodes(const std::vector<int>& roots) const;
  std::vector<bool> near_nodes_at(size_t level, const std::vector<int>& roots);
  // Returns the statements of an element's near form, and the sum of the terms.
  std::string near_element(const std::vector<Term>& terms);
  std::string near_functions();

  bool keeps_units_;
  bool hides_;
  bool stages_;
  std::vector<int> positions_;
  std::vector<int> position_steps_;  // 1 or -1
  std::vector<Line> lines_;
  std::vector<Tanh> tanhs_;
  // For a result with linear and other terms: the other terms, and the sum of the linear terms.
  std::vector<Term> other_terms_;
  Linear linear_sum_;
  std::vector<int> signs_;  // positions whose absolute values are terms, as places in positions_
};

}  // namespace attune::score
