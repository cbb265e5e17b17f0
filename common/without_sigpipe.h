#ifndef BALLAST_COMMON_WITHOUT_SIGPIPE_H_
#define BALLAST_COMMON_WITHOUT_SIGPIPE_H_

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace ballast {

// Keeps SIGPIPE from this thread for as long as this lives, and removes one
// that has arrived: for libraries that write to sockets without MSG_NOSIGNAL,
// such as Gloo and OpenSSL. The other end can close at any moment, and the
// signal would end the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now = {};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_WITHOUT_SIGPIPE_H_
