// SPDX-License-Identifier: Apache-2.0
// A system that grants few threads, for tests: pthread_create of this program fails from the given
// call on, as under RLIMIT_NPROC or a container's pids.max, for every user and at a known place.
#pragma once

namespace attune::testing {

class ThreadLimit {
 public:
  explicit ThreadLimit(int granted);  // so many calls succeed from now on
  ~ThreadLimit();                     // all succeed again
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  int refused() const;  // calls that failed so far
};

}  // namespace attune::testing
