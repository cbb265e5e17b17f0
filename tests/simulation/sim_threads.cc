#include "tests/simulation/sim_threads.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 4096;

// One a thread of the system: a thread that a library started itself (Arrow's
// allocator has one) is none of the simulation's.
thread_local SimThreads* current = nullptr;

// Stacks of ended threads, for later ones.
std::vector<void*>& FreeStacks() {
  static auto* const stacks = new std::vector<void*>;
  return *stacks;
}

void* TakeStack() {
  if (!FreeStacks().empty()) {
    void* stack = FreeStacks().back();
    FreeStacks().pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) std::abort();
  mprotect(stack, kGuardBytes, PROT_NONE);
  return stack;
}

}  // namespace

class SimThread {
 public:
  ucontext_t context;
  ucontext_t* back = nullptr;  // the loop's
  void* stack = nullptr;
  int node = 0;
  int number = 0;
  std::function<void()> body;
  bool ended = false;
  bool detached = false;
  uint64_t wait = 0;  // number of its last wait, among all threads
  bool notified = false;
};

SimThreads::SimThreads(const Options& options)
    : options_(options), random_(options.seed) {}

SimThreads::~SimThreads() = default;

SimThreads* SimThreads::Current() { return current; }

absl::Status SimThreads::Run(const Options& options,
                             std::function<void()> body) {
  // Not freed if threads are abandoned, since they refer to it.
  auto* threads = new SimThreads(options);
  current = threads;
  threads->Detach(threads->Start(0, std::move(body)));
  const absl::Status status = threads->Loop();
  current = nullptr;
  if (status.ok()) delete threads;
  return status;
}

absl::Status SimThreads::Loop() {
  ucontext_t loop;
  const absl::Time end = now_ + options_.most_time;
  while (living_ > 0) {
    if (runnable_.empty()) {
      if (timers_.empty()) {
        return absl::InternalError(
            absl::StrCat("deadlock: ", living_, " threads wait for ever"));
      }
      if (timers_.top().time > end) {
        return absl::DeadlineExceededError(absl::StrCat(
            "not over after ", absl::FormatDuration(options_.most_time)));
      }
      now_ = std::max(now_, timers_.top().time);
      const std::function<void()> event = timers_.top().event;
      timers_.pop();
      event();
      continue;
    }
    if (++switches_ > options_.most_switches) {
      return absl::DeadlineExceededError(
          absl::StrCat("not over after ", options_.most_switches, " switches"));
    }
    const size_t next = random_.Below(runnable_.size());
    SimThread* thread = runnable_[next];
    runnable_[next] = runnable_.back();
    runnable_.pop_back();
    if (const auto frozen = frozen_.find(thread->node);
        frozen != frozen_.end()) {
      frozen->second.push_back(thread);
      continue;
    }
    running_ = thread;
    thread->back = &loop;
    swapcontext(&loop, &thread->context);
    running_ = nullptr;
    if (!thread->ended) continue;
    --living_;
    FreeStacks().push_back(std::exchange(thread->stack, nullptr));
    if (thread->detached) {
      delete thread;
    } else {
      NotifyAll(thread);
    }
  }
  return absl::OkStatus();
}

void SimThreads::Main() {
  SimThread* thread = current->running_;
  thread->body();
  thread->body = nullptr;
  thread->ended = true;
  swapcontext(&thread->context, thread->back);
  std::abort();  // an ended thread never runs again
}

SimThread* SimThreads::Start(int node, std::function<void()> body) {
  auto* thread = new SimThread;
  thread->node = node;
  thread->number = ++started_;
  thread->body = std::move(body);
  thread->stack = TakeStack();
  getcontext(&thread->context);
  thread->context.uc_stack.ss_sp = thread->stack;
  thread->context.uc_stack.ss_size = kStackBytes;
  thread->context.uc_link = nullptr;
  makecontext(&thread->context, &SimThreads::Main, 0);
  ++living_;
  MakeRunnable(thread);
  return thread;
}

void SimThreads::Join(SimThread* thread) {
  while (!thread->ended) Wait(thread);
  delete thread;
}

void SimThreads::Detach(SimThread* thread) {
  if (thread->ended) {
    delete thread;
  } else {
    thread->detached = true;
  }
}

void SimThreads::At(absl::Time time, std::function<void()> event) {
  timers_.push({time, timers_made_++, std::move(event)});
}

void SimThreads::GiveWay() {
  SimThread* thread = running_;
  swapcontext(&thread->context, thread->back);
}

void SimThreads::MayGiveWay() {
  if (running_ == nullptr || forbidden_ > 0 ||
      !random_.Chance(options_.switch_chance)) {
    return;
  }
  runnable_.push_back(running_);
  GiveWay();
}

bool SimThreads::Wait(const void* key, absl::Time deadline) {
  if (running_ == nullptr) std::abort();  // an event must not wait
  SimThread* thread = running_;
  thread->notified = false;
  const uint64_t wait = ++waits_;
  thread->wait = wait;
  waiting_[key].push_back(thread);
  if (deadline != absl::InfiniteFuture()) {
    // Time passes while a thread waits, as elsewhere. The thread may have ended
    // by then, and its memory be another's.
    At(std::max(deadline, now_ + absl::Nanoseconds(1)),
       [this, key, thread, wait] {
         const auto found = waiting_.find(key);
         if (found == waiting_.end()) return;
         auto& threads = found->second;
         const auto at = std::find(threads.begin(), threads.end(), thread);
         if (at == threads.end() || thread->wait != wait) return;
         threads.erase(at);
         if (threads.empty()) waiting_.erase(found);
         Wake(thread, false);
       });
  }
  GiveWay();
  return thread->notified;
}

void SimThreads::SleepUntil(absl::Time time) {
  char unique;  // nobody else knows its address
  while (now_ < time) Wait(&unique, time);
}

void SimThreads::NotifyAll(const void* key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::deque<SimThread*> threads = std::move(found->second);
  waiting_.erase(found);
  for (SimThread* thread : threads) Wake(thread, true);
}

void SimThreads::NotifyOne(const void* key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  auto& threads = found->second;
  const auto chosen = threads.begin() + random_.Below(threads.size());
  SimThread* thread = *chosen;
  threads.erase(chosen);
  if (threads.empty()) waiting_.erase(found);
  Wake(thread, true);
}

void SimThreads::Wake(SimThread* thread, bool notified) {
  thread->notified = notified;
  MakeRunnable(thread);
}

void SimThreads::MakeRunnable(SimThread* thread) {
  const auto frozen = frozen_.find(thread->node);
  (frozen == frozen_.end() ? runnable_ : frozen->second).push_back(thread);
}

int SimThreads::node() const {
  return running_ == nullptr ? 0 : running_->node;
}

int SimThreads::self() const {
  return running_ == nullptr ? 0 : running_->number;
}

void SimThreads::SetFrozen(int node, bool frozen) {
  if (frozen) {
    frozen_[node];
    return;
  }
  const auto found = frozen_.find(node);
  if (found == frozen_.end()) return;
  const std::vector<SimThread*> threads = std::move(found->second);
  frozen_.erase(found);
  for (SimThread* thread : threads) runnable_.push_back(thread);
}

bool SimThreads::IsFrozen(int node) const { return frozen_.count(node) > 0; }

}  // namespace ballast
