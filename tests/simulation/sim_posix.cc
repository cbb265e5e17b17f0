// The threads, mutexes, condition variables, sleeps and clocks of POSIX, as
// SimThreads simulates them while it runs; otherwise those of the C library.
// The definitions here come before the C library's for the whole program,
// libraries included, so nothing that is simulated knows of it.
//
// A mutex is taken and released in its own memory, in the C library's layout,
// so that it may be used before, during and after a simulation.

#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>

#include "absl/time/time.h"
#include "tests/simulation/sim_threads.h"

namespace ballast {
namespace {

// The C library's function. Condition variables have had two layouts: the
// version is that of the current one.
template <typename Function>
Function* Real(Function*, const char* name, const char* version = nullptr) {
  void* found = version == nullptr ? nullptr : dlvsym(RTLD_NEXT, name, version);
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

// No guarded static variable, since guards are among what is replaced.
#define BALLAST_REAL(name, ...)                                   \
  static decltype(&name) real = nullptr;                          \
  if (real == nullptr) {                                          \
    real = ballast::Real(real, #name __VA_OPT__(, ) __VA_ARGS__); \
  }

bool IsRecursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE;
}

// Takes the mutex if it is free, or if its holder may take it again.
bool TryLock(SimThreads* threads, pthread_mutex_t* mutex) {
  const int self = threads->self();
  auto& data = mutex->__data;
  if (data.__lock != 0 && !(IsRecursive(mutex) && data.__owner == self)) {
    return false;
  }
  data.__lock = 1;
  data.__owner = self;
  ++data.__count;
  return true;
}

void Lock(SimThreads* threads, pthread_mutex_t* mutex) {
  threads->MayGiveWay();
  while (!TryLock(threads, mutex)) threads->Wait(mutex);
}

void Unlock(SimThreads* threads, pthread_mutex_t* mutex) {
  auto& data = mutex->__data;
  if (--data.__count > 0) return;
  data.__owner = 0;
  data.__lock = 0;
  threads->NotifyAll(mutex);
  threads->MayGiveWay();
}

// pthread_cond_wait until `deadline`. Now and then it wakes for no reason, as
// POSIX allows.
int WaitFor(SimThreads* threads, pthread_cond_t* cond, pthread_mutex_t* mutex,
            absl::Time deadline) {
  constexpr double kSpurious = 1.0 / 64;
  const bool spurious = threads->random().Chance(kSpurious);
  // Nothing else runs between the release and the wait.
  auto& data = mutex->__data;
  data.__count = 0;
  data.__owner = 0;
  data.__lock = 0;
  threads->NotifyAll(mutex);
  const bool notified =
      spurious ? (threads->MayGiveWay(), true) : threads->Wait(cond, deadline);
  while (!TryLock(threads, mutex)) threads->Wait(mutex);
  return notified ? 0 : ETIMEDOUT;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_mutex_lock);
    return real(mutex);
  }
  Lock(threads, mutex);
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_mutex_trylock);
    return real(mutex);
  }
  threads->MayGiveWay();
  return TryLock(threads, mutex) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_mutex_unlock);
    return real(mutex);
  }
  Unlock(threads, mutex);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_cond_wait, "GLIBC_2.3.2");
    return real(cond, mutex);
  }
  return WaitFor(threads, cond, mutex, absl::InfiniteFuture());
}

int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_cond_timedwait, "GLIBC_2.3.2");
    return real(cond, mutex, deadline);
  }
  return WaitFor(threads, cond, mutex, absl::TimeFromTimespec(*deadline));
}

// All clocks show the same time.
int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                           clockid_t clock, const timespec* deadline) {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_cond_clockwait);
    return real(cond, mutex, clock, deadline);
  }
  return WaitFor(threads, cond, mutex, absl::TimeFromTimespec(*deadline));
}

int pthread_cond_signal(pthread_cond_t* cond) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_cond_signal, "GLIBC_2.3.2");
    return real(cond);
  }
  threads->NotifyOne(cond);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* cond) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_cond_broadcast, "GLIBC_2.3.2");
    return real(cond);
  }
  threads->NotifyAll(cond);
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                   void* (*body)(void*), void* argument) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_create);
    return real(thread, attributes, body, argument);
  }
  *thread = reinterpret_cast<pthread_t>(
      threads->Start(threads->node(), [=] { body(argument); }));
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_join);
    return real(thread, result);
  }
  threads->Join(reinterpret_cast<ballast::SimThread*>(thread));
  if (result != nullptr) *result = nullptr;
  return 0;
}

int pthread_detach(pthread_t thread) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(pthread_detach);
    return real(thread);
  }
  threads->Detach(reinterpret_cast<ballast::SimThread*>(thread));
  return 0;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(clock_gettime);
    return real(clock, time);
  }
  *time = absl::ToTimespec(threads->Now());
  return 0;
}

int nanosleep(const timespec* duration, timespec* left) {
  SimThreads* threads = SimThreads::Current();
  if (threads == nullptr) {
    BALLAST_REAL(nanosleep);
    return real(duration, left);
  }
  threads->SleepUntil(threads->Now() + absl::DurationFromTimespec(*duration));
  return 0;
}

// A thread that gave way while it initialises a static variable would make
// others wait outside the simulation.
int __cxa_guard_acquire(__cxxabiv1::__guard* guard) {
  BALLAST_REAL(__cxa_guard_acquire);
  const int acquired = real(guard);
  SimThreads* threads = SimThreads::Current();
  if (acquired != 0 && threads != nullptr) threads->ForbidGivingWay();
  return acquired;
}
void __cxa_guard_release(__cxxabiv1::__guard* guard) noexcept {
  BALLAST_REAL(__cxa_guard_release);
  SimThreads* threads = SimThreads::Current();
  if (threads != nullptr) threads->AllowGivingWay();
  real(guard);
}

}  // extern "C"

}  // namespace ballast
