// SPDX-License-Identifier: Apache-2.0
// Tunes one (spec, shape) in steps; see shape_tuner.hpp.
#include "tuner/search/shape_tuner.hpp"

#include <algorithm>
#include <cmath>

#include "cache/winner_rule.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"

namespace attune {
namespace {

constexpr double kNearWinner = 1.01;

}  // namespace

ShapeTuner::ShapeTuner(TuneContext& context, const Problem& problem,
                       std::shared_ptr<SearchSpaces> spaces)
    : context_(context), trials_(context, problem, std::move(spaces)), explorer_(context, trials_) {
  report_.problem = problem;
}

void ShapeTuner::resume(const ShapeReport& earlier) {
  trials_.book().recall(earlier.trials);
  earlier_winner_ = earlier.winner;
}

void ShapeTuner::compile_ahead() {
  const KernelSpec& spec = trials_.task().spaces->spec();
  for (const TuneCandidate& candidate : trials_.unknown(explorer_.first_wave({})))
    context_.pool.submit(spec, candidate);
}

bool ShapeTuner::step(const std::vector<TuneCandidate>& hints, double deadline) {
  const StepTime time{context_.now(), deadline};
  bool goes_on = false;
  guarded([&] {
    if (!begin(hints)) return;
    goes_on = explore(hints, time);
    if (goes_on || context_.stopped()) return;
    was_cut_ = explorer_.was_cut();
    if (was_cut_ && trials_.num_measured() == 0) report_.winner = former_winner();
    if (report_.winner) return;  // no time for new candidates: the stored winner stays valid
    decide(finalists(trials_, context_.plan.finalists), time, !was_cut_);
  });
  report_.seconds += context_.now() - time.began;
  return goes_on;
}

// Starts the tune. Returns false if there is nothing to do.
bool ShapeTuner::begin(const std::vector<TuneCandidate>& hints) {
  if (has_begun_) return true;
  has_begun_ = true;
  if (const auto stored = trials_.book().stored_winner(); stored && is_noisy(*stored))
    trials_.book().forget_noisy();
  const std::vector<TuneCandidate> first = explorer_.first_wave(hints);
  if (first.empty()) {
    report_.note =
        "nothing to tune: only the reference kernel serves this problem here, or --template names "
        "a template that does not serve it";
    report_.complete = true;
    return false;
  }
  trials_.add_known();
  if (report_.winner = settled(); report_.winner) {
    report_.already_tuned = report_.complete = true;
    std::string changed =
        difference(report_.winner->conditions, context_.target.identity().conditions, "{}, now {}");
    if (of_another_text(*report_.winner)) changed = "another text of the template";
    if (!changed.empty()) report_.note = "measured with " + changed + "; --refresh times it again";
    return false;
  }
  explorer_.propose(first);
  return true;
}

bool ShapeTuner::explore(const std::vector<TuneCandidate>& hints, const StepTime& time) {
  std::vector<TuneCandidate> legal = hints;
  std::erase_if(legal,
                [&](const TuneCandidate& hint) { return !trials_.task().spaces->is_legal(hint); });
  explorer_.propose(legal);
  trials_.open();
  return explorer_.wave(time);
}

void ShapeTuner::decide(TrialList contestants, const StepTime& time, bool search_complete) {
  FinalRace final_race(context_, trials_, context_.options.seed);
  final_race.run(std::move(contestants), time);
  was_cut_ = was_cut_ || final_race.was_cut();
  if (context_.stopped()) return;
  report_.winner = final_race.decide(search_complete);
  report_.complete = !was_cut_;
  if (!report_.winner) report_.note = trials_.why_none();
}

// Runs `work`. If the device or the worker is lost for good, this shape ends; measured results
// stay.
template <class Work>
void ShapeTuner::guarded(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    trials_.unload();
    report_.note = error.what();
    report_.error = error.code();
    report_.wait_ended = dynamic_cast<const WaitEnded*>(&error) != nullptr;
  }
}

// Returns the winner of an earlier pass. Otherwise returns the stored winner of an earlier tune if
// it has at least this effort, one of the current toolchains (another text of the same revision of
// the template counts), and a config that is still legal (the digest of a template does not cover
// its rules).
std::optional<WinnerRecord> ShapeTuner::former_winner() const {
  if (earlier_winner_) return earlier_winner_;
  std::optional<WinnerRecord> winner = trials_.book().stored_winner();
  if (!winner || winner->effort < trials_.effort()) return std::nullopt;
  const std::vector<Family>& families = trials_.task().spaces->families();
  const auto is_current = [&](const Family& f) {
    ToolchainIdentity now = context_.target.toolchain(f);
    if (same_revision(now.template_digest, winner->toolchain.template_digest))
      now.template_digest = winner->toolchain.template_digest;
    return now.digest() == winner->toolchain.digest() &&
           trials_.task().spaces->is_legal({f, winner->config, false});
  };
  if (!std::any_of(families.begin(), families.end(), is_current)) return std::nullopt;
  return winner;
}

// True if the winner was timed with another text of its template than the current one.
bool ShapeTuner::of_another_text(const WinnerRecord& winner) const {
  for (const Family& family : trials_.task().spaces->families())
    if (context_.target.toolchain(family).template_name == winner.toolchain.template_name)
      return context_.target.toolchain(family).template_digest != winner.toolchain.template_digest;
  return false;
}

// Returns the stored winner if it is not noisy, its search was complete, and a new search would
// begin with known candidates only. (Hints from other shapes do not count, because they change with
// each tune of those shapes.) With another text of the template all candidates are unknown; the
// winner stays valid then.
std::optional<WinnerRecord> ShapeTuner::settled() const {
  std::optional<WinnerRecord> winner = former_winner();
  if (!winner || !winner->complete || is_noisy(*winner)) return std::nullopt;
  if (!of_another_text(*winner) && !trials_.unknown(explorer_.first_wave({})).empty())
    return std::nullopt;
  return winner;
}

void ShapeTuner::meet(const std::vector<TuneCandidate>& rivals, double deadline) {
  const StepTime time{context_.now(), deadline};
  guarded([&] {
    trials_.add_known();
    explorer_.propose(rivals);
    trials_.open();
    explorer_.try_proposed(time);
    if (context_.stopped() || !comes_near(rivals)) return;
    decide(top_and_default(trials_, *earlier_winner_), time, true);
  });
  report_.complete = true;  // rivals that stay unknown do not make a search incomplete
  was_cut_ = false;
  report_.seconds = context_.now() - time.began;
}

// True if a rival may be as fast as the winner. The winner was timed under load and the rivals were
// not, so the rivals look faster than they are.
bool ShapeTuner::comes_near(const std::vector<TuneCandidate>& rivals) {
  return std::any_of(rivals.begin(), rivals.end(), [&](const TuneCandidate& rival) {
    const Trial& trial = trials_.add(rival);
    return trial.is_timed() &&
           trial.record.timing.lo_us <= earlier_winner_->timing.hi_us * kNearWinner;
  });
}

ShapeReport ShapeTuner::finish() {
  if (was_cut_ && report_.note.empty())
    report_.note = context_.options.budget_s > 0 ? "the budget ended the search"
                                                 : "the default budget ended the search";
  for (Trial* trial : trials_.live()) trials_.drop(*trial);
  report_.trials = trials_.book().sorted();
  report_.measured = trials_.num_measured();
  report_.reused = trials_.num_reused();
  return report_;
}

void ShapeTuner::refresh(double deadline) {
  const StepTime time{context_.now(), deadline};
  const std::optional<WinnerRecord> former = trials_.book().stored_winner();
  if (!former || trials_.task().spaces->families().empty()) {
    report_.note = "not tuned yet: nothing to refresh";
    return;
  }
  trials_.set_effort(former->effort);
  guarded([&] {
    trials_.open();
    decide(top_and_default(trials_, *former), time, former->complete);
  });
  report_.seconds = context_.now() - time.began;
}

WinnerCheck ShapeTuner::verify(int runs) {
  trials_.book().stop_storing();
  WinnerCheck check;
  check.problem = trials_.problem();
  check.winner = trials_.book().stored_winner();
  if (!check.winner) {
    check.note = "not tuned yet: nothing to verify";
    return check;
  }
  const TrialList contenders = top_and_default(trials_, *check.winner);
  for (int run = 0; run < runs && !context_.stopped(); ++run) {
    context_.backend.restart();
    trials_.unload();
    guarded([&] {
      FinalRace final_race(context_, trials_,
                           context_.options.seed + 1 + static_cast<uint64_t>(run));
      trials_.open();
      final_race.run(contenders, {context_.now(), INFINITY});
      if (!context_.stopped()) final_race.add_run(&check);
    });
  }
  if (check.note.empty()) check.note = finish().note;
  return check;
}

}  // namespace attune
