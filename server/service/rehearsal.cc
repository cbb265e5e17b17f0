#include "server/service/rehearsal.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

// Set from any thread, awaited by one.
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

absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles) {
  for (const v1::Role& role : roles) {
    BALLAST_RETURN_IF_ERROR(Annotate(
        BuildFirst(loader, role),
        absl::StrCat("cannot build the first block of ",
                     ModuleName(role.module()), " rank ", role.dp_rank())));
  }
  return absl::OkStatus();
}

}  // namespace ballast
