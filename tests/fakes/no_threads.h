#ifndef BALLAST_TESTS_FAKES_NO_THREADS_H_
#define BALLAST_TESTS_FAKES_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace ballast {

// While it lives the system gives this process no thread, as in a container at
// its limit of processes: a thread's stack is larger than any memory.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t endless;
    pthread_attr_init(&endless);
    pthread_attr_setstacksize(&endless, size_t{1} << 60);
    pthread_setattr_default_np(&endless);
    pthread_attr_destroy(&endless);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_NO_THREADS_H_
