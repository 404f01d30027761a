// SPDX-License-Identifier: Apache-2.0
// Collects events and writes them as JSON; see tune_trace.hpp.
#include "tuner/search/tune_trace.hpp"
#include "generator/core/system/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace attune {
namespace {

constexpr int kProcess = 1;

double microseconds(TuneTrace::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

void TuneTrace::add(std::string kind, std::string name, Clock::time_point begin,
                    Clock::time_point end, Arguments arguments) {
  const std::lock_guard lock(mutex_);
  const int number = static_cast<int>(threads_.size());
  const int thread = threads_.emplace(std::this_thread::get_id(), number).first->second;
  events_.push_back({std::move(kind), std::move(name), begin, end, thread, std::move(arguments)});
}

std::string TuneTrace::json() const {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  Json events = Json::array();
  std::map<int, bool> compiles;  // by thread
  for (const Event& event : events_) compiles[event.thread] |= event.kind == "compile";
  for (const auto& [thread, is_compiler] : compiles)
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", kProcess},
                      {"tid", thread},
                      {"args", {{"name", is_compiler ? "compiler" : "device"}}}});
  std::vector<const Event*> order;
  for (const Event& event : events_) order.push_back(&event);
  std::stable_sort(order.begin(), order.end(),
                   [](const Event* a, const Event* b) { return a->begin < b->begin; });
  for (const Event* event : order) {
    Json arguments = Json::object();
    // several arguments with one key form a list
    for (const auto& [key, value] : event->arguments) {
      if (!arguments.contains(key))
        arguments[key] = value;
      else if (arguments[key].is_array())
        arguments[key].push_back(value);
      else
        arguments[key] = Json::array({arguments[key], value});
    }
    events.push_back({{"name", event->name},
                      {"cat", event->kind},
                      {"ph", "X"},
                      {"ts", microseconds(event->begin - began_)},
                      {"dur", microseconds(event->end - event->begin)},
                      {"pid", kProcess},
                      {"tid", event->thread},
                      {"args", std::move(arguments)}});
  }
  const Json all{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return to_json_text(all) + "\n";
}

}  // namespace attune
