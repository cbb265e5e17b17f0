#include "server/service/rehearsal.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

// An event that any thread sets and one thread awaits.
class Signal {
 public:
  void Set() {
    MutexLock lock(&mutex_);
    set_ = true;
    changed_.NotifyAll();
  }
  void AwaitAndClear() {
    MutexLock lock(&mutex_);
    while (!set_) changed_.Wait(&mutex_);
    set_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status BuildFirst(Loader* loader, const v1::Role& role) {
  // Shared, since the stream may call after it has been closed here.
  const auto news = std::make_shared<Signal>();
  auto stream = loader->OpenStream(role, 0, 0, 1, [news] { news->Set(); });
  if (absl::IsOutOfRange(stream.status())) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(stream.status());
  while (true) {
    auto block = (*stream)->TryNext();
    if (block.has_value()) return block->status();
    news->AwaitAndClear();
  }
}

}  // namespace

std::vector<v1::Role> RolesToRehearse(const std::vector<v1::Role>& first_ranks,
                                      const v1::Job& job) {
  std::vector<v1::Role> roles = first_ranks;
  for (const int split : job.splits()) {
    if (split == v1::SPLIT_TRAIN) continue;
    for (v1::Role role : first_ranks) {
      role.set_split(static_cast<v1::Split>(split));
      roles.push_back(std::move(role));
    }
  }
  return roles;
}

absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles) {
  for (const v1::Role& role : roles) {
    BALLAST_RETURN_IF_ERROR(Annotate(
        BuildFirst(loader, role),
        absl::StrCat("cannot build the first block of ",
                     SplitWord(role.split()), ModuleName(role.module()),
                     " rank ", role.dp_rank())));
  }
  return absl::OkStatus();
}

}  // namespace ballast
