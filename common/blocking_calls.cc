#include "common/blocking_calls.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/threads.h"

namespace ballast {

// Shared with the threads, which may outlive the object.
struct BlockingCalls::State {
  struct Task {
    std::function<void()> call;
    std::unique_ptr<Sleeper> caller;
    bool begun = false;
    bool done = false;
    bool given_up = false;
  };

  explicit State(size_t max_stuck) : max_stuck(max_stuck) {}
  const size_t max_stuck;
  Mutex mutex;
  CondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  size_t idle ABSL_GUARDED_BY(mutex) = 0;
  size_t stuck ABSL_GUARDED_BY(mutex) = 0;
  std::deque<std::shared_ptr<Task>> tasks ABSL_GUARDED_BY(mutex);
};

BlockingCalls::BlockingCalls(size_t max_stuck, Clock* clock)
    : clock_(clock), state_(std::make_shared<State>(max_stuck)) {}

BlockingCalls::~BlockingCalls() {
  MutexLock lock(&state_->mutex);
  state_->stopping = true;
  state_->changed.NotifyAll();
}

absl::Status BlockingCalls::Run(std::function<void()> call,
                                absl::Duration timeout) {
  auto task = std::make_shared<State::Task>();
  task->call = std::move(call);
  task->caller = clock_->NewSleeper();
  {
    MutexLock lock(&state_->mutex);
    if (state_->stuck >= state_->max_stuck) {
      return absl::ResourceExhaustedError(absl::StrCat(
          state_->stuck, " calls have not returned, which is the most"));
    }
    if (state_->idle <= state_->tasks.size()) {
      BALLAST_ASSIGN_OR_RETURN(
          std::thread thread,
          StartThread("call", [state = state_] { Work(state); }));
      thread.detach();
    }
    state_->tasks.push_back(task);
  }
  // Not under the lock: waking a thread takes long if its core sleeps, and all
  // callers would wait for it.
  state_->changed.NotifyOne();
  // Wakes when the call has returned.
  task->caller->Sleep(timeout);
  MutexLock lock(&state_->mutex);
  if (task->done) return absl::OkStatus();
  task->given_up = true;
  auto& tasks = state_->tasks;
  if (task->begun) {
    ++state_->stuck;
  } else {
    tasks.erase(std::find(tasks.begin(), tasks.end(), task));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
}

size_t BlockingCalls::stuck() const {
  MutexLock lock(&state_->mutex);
  return state_->stuck;
}

void BlockingCalls::Work(const std::shared_ptr<State>& state) {
  while (true) {
    std::shared_ptr<State::Task> task;
    {
      MutexLock lock(&state->mutex);
      ++state->idle;
      while (state->tasks.empty() && !state->stopping) {
        state->changed.Wait(&state->mutex);
      }
      --state->idle;
      if (state->tasks.empty()) return;
      task = std::move(state->tasks.front());
      state->tasks.pop_front();
      task->begun = true;
    }
    task->call();
    task->call = nullptr;  // destroyed outside the lock, since it may own much
    {
      MutexLock lock(&state->mutex);
      task->done = true;
      if (task->given_up) --state->stuck;
    }
    task->caller->Wake();
  }
}

}  // namespace ballast
