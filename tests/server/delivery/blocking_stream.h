#ifndef BALLAST_TESTS_SERVER_DELIVERY_BLOCKING_STREAM_H_
#define BALLAST_TESTS_SERVER_DELIVERY_BLOCKING_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/delivery/loader.h"

namespace ballast {

// A stream whose Next blocks.
class BlockingStream {
 public:
  // Aborts if the stream cannot be opened.
  BlockingStream(Loader* loader, v1::Module module, uint32_t dp_rank,
                 uint64_t step, uint32_t micro_batch, uint64_t steps,
                 v1::Delivery delivery = v1::DELIVERY_UNSPECIFIED,
                 v1::Split split = v1::SPLIT_TRAIN) {
    v1::Role role;
    role.set_split(split);
    role.set_delivery(delivery);
    role.set_module(module);
    role.set_dp_rank(dp_rank);
    stream_ =
        *loader->OpenStream(role, step, micro_batch, steps, [signal = signal_] {
          MutexLock lock(&signal->mutex);
          signal->ready = true;
          signal->changed.NotifyAll();
        });
  }

  absl::StatusOr<std::unique_ptr<Block>> Next() {
    while (true) {
      auto next = stream_->TryNext();
      if (next.has_value()) return *std::move(next);
      MutexLock lock(&signal_->mutex);
      while (!signal_->ready) signal_->changed.Wait(&signal_->mutex);
      signal_->ready = false;
    }
  }

  BlockStream* operator->() { return stream_.get(); }

 private:
  struct Signal {
    Mutex mutex;
    CondVar changed;
    bool ready ABSL_GUARDED_BY(mutex) = false;
  };
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::unique_ptr<BlockStream> stream_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_DELIVERY_BLOCKING_STREAM_H_
