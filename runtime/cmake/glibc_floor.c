/* SPDX-License-Identifier: Apache-2.0
 * Functions of glibc that version 2.28 lacks and that code built with newer headers and archives
 * (libstdc++.a, LLVM's) calls. They use only what 2.28 has. glibc_floor.sh puts this file into
 * wheels for manylinux_2_28; nothing else uses it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <time.h>

/* glibc 2.32: true if atomic operations may be plain ones. False is always correct. */
char __libc_single_threaded = 0;

/* Stores the realtime of a time on the given clock, from the time that is left. Returns 0 or
 * EINVAL. */
static int to_realtime(clockid_t clock, const struct timespec* until, struct timespec* here) {
  struct timespec there;
  if (clock_gettime(clock, &there) != 0 || clock_gettime(CLOCK_REALTIME, here) != 0) return EINVAL;
  here->tv_sec += until->tv_sec - there.tv_sec;
  here->tv_nsec += until->tv_nsec - there.tv_nsec;
  if (here->tv_nsec < 0) here->tv_nsec += 1000000000, --here->tv_sec;
  if (here->tv_nsec >= 1000000000) here->tv_nsec -= 1000000000, ++here->tv_sec;
  return 0;
}

/* glibc 2.30, for std::condition_variable. Waits by the realtime clock. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec here;
  const int error = to_realtime(clock, until, &here);
  return error != 0 ? error : pthread_cond_timedwait(condition, mutex, &here);
}

/* glibc 2.30, for std::timed_mutex. Waits by the realtime clock. */
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  struct timespec here;
  const int error = to_realtime(clock, until, &here);
  return error != 0 ? error : pthread_mutex_timedlock(mutex, &here);
}

/* glibc 2.36, for std::random_device. */
uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) continue;
  return value;
}

/* glibc 2.33. Returns the numbers of mallinfo, which wrap at 2 GiB. LLVM uses them in reports of
 * memory. */
struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo small = mallinfo();
  struct mallinfo2 wide = {0};
  wide.arena = (unsigned)small.arena, wide.hblkhd = (unsigned)small.hblkhd;
  wide.uordblks = (unsigned)small.uordblks, wide.fordblks = (unsigned)small.fordblks;
  return wide;
}
