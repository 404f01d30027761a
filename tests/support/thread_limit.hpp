// SPDX-License-Identifier: Apache-2.0
// Simulates a system that grants few threads: pthread_create of this program fails from a given
// call on, as under RLIMIT_NPROC or a container's pids.max, but for every user and at a known
// place.
#pragma once

namespace attune::testing {

class ThreadLimit {
 public:
  explicit ThreadLimit(int granted);  // as many calls succeed from now on
  ~ThreadLimit();                     // all calls succeed again
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  int refused() const;  // calls that have failed so far
};

}  // namespace attune::testing
