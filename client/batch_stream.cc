#include "client/batch_stream.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/buffer_pool.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_view.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {

std::string DescribeBlock(uint64_t step, uint32_t micro_batch) {
  return absl::StrCat("step ", step, " micro-batch ", micro_batch);
}

absl::StatusOr<uint32_t> CheckBlockHeader(const FetchedBlock& block,
                                          const FetchRequest& wanted,
                                          absl::string_view where) {
  const absl::StatusOr<BlockHeader> header = ReadBlockHeader(block.bytes());
  if (!header.ok()) {
    BALLAST_RETURN_IF_ERROR(CheckIntact(block));
    return absl::InternalError(
        absl::StrCat(where, ": ", header.status().message(),
                     "; is the server of another version?"));
  }
  if (header->step != wanted.step ||
      header->micro_batch != wanted.micro_batch ||
      header->micro_batches <= header->micro_batch) {
    return absl::InternalError(absl::StrCat(
        where, ": the block's header says ",
        DescribeBlock(header->step, header->micro_batch), " of ",
        header->micro_batches, " micro-batches; the server is at fault"));
  }
  const auto split = static_cast<v1::Split>(header->split);
  if (split != wanted.role.split()) {
    return absl::InternalError(absl::StrCat(
        where, ": the block's header says split ", SplitName(split),
        ", wanted ", SplitName(wanted.role.split())));
  }
  return header->micro_batches;
}

namespace {

absl::Status Cancelled() {
  return absl::CancelledError("the batch stream was cancelled");
}

std::string ShortText(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(1)));
}

absl::Status CheckOptions(const BatchStream::Options& options) {
  const FetchRequest& request = options.request;
  if (request.steps > UINT64_MAX - request.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch stream: ", request.steps, " steps from step ",
                     request.step, " on pass the last step"));
  }
  if (options.servers.empty() || options.max_queued < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch stream: servers are ", options.servers.size(),
                     " and max_queued is ", options.max_queued,
                     ", wanted at least 1 of each"));
  }
  return CheckFailoverOptions(options.failover);
}

// Interval at which the guard checks a server that may hang.
absl::Duration GuardPeriod(const FailoverOptions& options) {
  return std::min(options.silent_after, options.slow_after) / 8;
}

class ThreadedBatchStream final : public BatchStream {
 public:
  ThreadedBatchStream(Connect connect, Options options)
      : connect_(std::move(connect)),
        options_(std::move(options)),
        end_step_(options_.request.step + options_.request.steps),
        held_(std::make_shared<HeldBytes>(options_.request.max_bytes)),
        position_(options_.request),
        sleeper_(options_.clock->NewSleeper()),
        failover_(options_.servers, options_.failover),
        guard_sleeper_(options_.clock->NewSleeper()),
        hang_timer_(failover_.silent_after(), failover_.slow_after()) {
    position_.held = held_;
  }

  absl::Status Start() {
    BALLAST_ASSIGN_OR_RETURN(thread_,
                             StartThread("fetch batches", [this] { Run(); }));
    if (GuardPeriod(options_.failover) < absl::InfiniteDuration()) {
      BALLAST_ASSIGN_OR_RETURN(
          guard_, StartThread("watch a server", [this] { Guard(); }));
    }
    return absl::OkStatus();
  }

  ~ThreadedBatchStream() override {
    Cancel();
    if (thread_.joinable()) thread_.join();
    guard_sleeper_->Wake();
    if (guard_.joinable()) guard_.join();
  }

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() override;
  absl::Status FetchAgain(std::unique_ptr<FetchedBlock> block) override;
  void Cancel() override { CancelAndTake(); }
  std::vector<std::unique_ptr<FetchedBlock>> CancelAndTake() override;
  bool HasBlock() override {
    MutexLock lock(&mutex_);
    return !queue_.empty();
  }

 private:
  struct Position {
    uint64_t step;
    uint32_t micro_batch;
  };

  void Run();    // the thread that fetches
  void Guard();  // a thread that ends a Fetch from a server that hangs
  // Moves position_ back to the block that FetchAgain requested, if it did.
  bool MoveBack();
  // Returns the error that the stream ends with.
  absl::Status FetchAll();
  // Connects at position_ and fetches until an error.
  absl::Status FetchFromPosition();
  // Calls Fetch while the guard watches. Errors: the fetcher's;
  // DEADLINE_EXCEEDED (the guard's).
  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch(BatchFetcher* fetcher);
  // Lets Cancel, FetchAgain and the guard reach the fetcher. False after Cancel
  // or FetchAgain.
  bool SetFetcher(std::shared_ptr<BatchFetcher> fetcher);
  // Checks that it is the block at position_, or the next one there of the
  // share, to which position_ then moves; returns the number of micro-batches
  // of its step. UNAVAILABLE: it was overwritten.
  absl::StatusOr<uint32_t> CheckOrder(const FetchedBlock& block);
  void MoveTo(uint64_t step, uint32_t micro_batch);
  void MovePosition(uint32_t micro_batches);
  bool AtEnd() const {
    return options_.request.steps > 0 && position_.step == end_step_;
  }
  // Blocks while the queue is full. False after Cancel or FetchAgain.
  bool Push(std::unique_ptr<FetchedBlock> block);
  // For the log.
  std::string RankName() const {
    const v1::Role& role = options_.request.role;
    return absl::StrCat(SplitWord(role.split()), ModuleName(role.module()),
                        " rank ", role.dp_rank());
  }
  std::string DescribePosition() const {
    return DescribeBlock(position_.step, position_.micro_batch);
  }

  const Connect connect_;
  const Options options_;
  const uint64_t end_step_;
  const std::shared_ptr<HeldBytes> held_;
  OverwriteCount overwrites_;  // used by the consumer only
  // The position to fetch next. Used by the thread only.
  FetchRequest position_;
  const std::unique_ptr<Sleeper> sleeper_;
  Failover failover_;  // used by the thread only
  // The first failure since the last block. Used by the thread only.
  absl::Time failing_since_ = absl::InfiniteFuture();
  const std::unique_ptr<Sleeper> guard_sleeper_;

  Mutex mutex_;
  CondVar changed_;
  // Shared only so that Cancel and the guard reach it without holding mutex_.
  std::shared_ptr<BatchFetcher> fetcher_ ABSL_GUARDED_BY(mutex_);
  // State of the Fetch in progress.
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;
  HangTimer hang_timer_ ABSL_GUARDED_BY(mutex_);
  absl::Status hang_ ABSL_GUARDED_BY(mutex_);  // why the guard ended it
  // The position that the thread must return to.
  std::optional<Position> again_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<FetchedBlock>> queue_ ABSL_GUARDED_BY(mutex_);
  // OK while the thread fetches.
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
  std::thread guard_;
};

absl::StatusOr<std::unique_ptr<FetchedBlock>> ThreadedBatchStream::Next() {
  while (true) {
    BALLAST_RETURN_IF_ERROR(overwrites_.status());
    std::unique_ptr<FetchedBlock> block;
    {
      MutexLock lock(&mutex_);
      while (!cancelled_ && queue_.empty() && (end_.ok() || again_)) {
        changed_.Wait(&mutex_);
      }
      if (cancelled_) return Cancelled();
      if (queue_.empty()) return end_;
      block = std::move(queue_.front());
      queue_.pop_front();
      // Only a full queue has a thread that waits for room. Waking that thread
      // after it has fetched all blocks would cost each Next a context switch.
      if (static_cast<int>(queue_.size()) == options_.max_queued - 1) {
        changed_.NotifyAll();
      }
    }
    if (block->intact()) return block;
    BALLAST_RETURN_IF_ERROR(FetchAgain(std::move(block)));
  }
}

absl::Status ThreadedBatchStream::FetchAgain(
    std::unique_ptr<FetchedBlock> block) {
  BALLAST_RETURN_IF_ERROR(overwrites_.Note(*block));
  LogWarning(RankName(), ": ",
             DescribeBlock(block->step(), block->micro_batch()),
             " was overwritten in shared memory before it was used (was this "
             "process stopped for long?); fetching it again");
  std::shared_ptr<BatchFetcher> fetcher;
  std::deque<std::unique_ptr<FetchedBlock>> dropped;  // outside the lock
  {
    MutexLock lock(&mutex_);
    again_ = Position{block->step(), block->micro_batch()};
    fetcher = fetcher_;
    dropped.swap(queue_);
    changed_.NotifyAll();
  }
  if (fetcher != nullptr) fetcher->Cancel();
  return absl::OkStatus();
}

bool ThreadedBatchStream::MoveBack() {
  MutexLock lock(&mutex_);
  if (!again_.has_value()) return false;
  MoveTo(again_->step, again_->micro_batch);
  again_.reset();
  return true;
}

std::vector<std::unique_ptr<FetchedBlock>>
ThreadedBatchStream::CancelAndTake() {
  std::shared_ptr<BatchFetcher> fetcher;
  std::deque<std::unique_ptr<FetchedBlock>> taken;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    fetcher = fetcher_;
    taken.swap(queue_);
    changed_.NotifyAll();
  }
  if (fetcher != nullptr) fetcher->Cancel();
  sleeper_->Wake();
  held_->Cancel();
  return {std::make_move_iterator(taken.begin()),
          std::make_move_iterator(taken.end())};
}

void ThreadedBatchStream::Run() {
  while (true) {
    const absl::Status end = FetchAll();
    MutexLock lock(&mutex_);
    end_ = end;
    changed_.NotifyAll();
    while (!cancelled_ && !again_.has_value()) changed_.Wait(&mutex_);
    if (cancelled_) return;
    end_ = absl::OkStatus();
  }
}

absl::Status ThreadedBatchStream::FetchAll() {
  while (true) {
    MoveBack();
    absl::Status status = FetchFromPosition();
    SetFetcher(nullptr);
    if (MoveBack()) continue;
    if (AtEnd()) {
      return absl::OutOfRangeError(absl::StrCat(
          "the stream ended before step ", end_step_, ", after the ",
          options_.request.steps, " steps that were asked for"));
    }
    if (absl::IsOutOfRange(status) && options_.request.share.has_value()) {
      return status;  // the rest of the steps is other servers'
    }
    if (absl::IsOutOfRange(status)) {
      status = absl::InternalError(
          absl::StrCat("the stream ended early, before ", DescribePosition(),
                       ": ", status.message()));
    }
    if (options_.one_attempt) return status;
    const size_t failed = failover_.server();
    const std::string name = failover_.name();
    const absl::Time now = options_.clock->Now();
    failing_since_ = std::min(failing_since_, now);
    const absl::StatusOr<absl::Duration> wait =
        failover_.OnFailure(now, status);
    if (!wait.ok() && wait.status() == status) return status;
    if (!wait.ok()) {
      return Annotate(wait.status(),
                      absl::StrCat("gave up at ", DescribePosition()));
    }
    const std::string in = *wait > absl::ZeroDuration()
                               ? absl::StrCat(" in ", ShortText(*wait))
                               : "";
    LogWarning(
        RankName(), ": ", name, " failed at ", DescribePosition(), ": ",
        status.message(),
        failover_.server() == failed
            ? absl::StrCat("; asking it again", in,
                           ", and going on there once it is served again")
            : absl::StrCat("; going on there", in, " with ", failover_.name()));
    if (*wait > absl::ZeroDuration() && !sleeper_->Sleep(*wait)) {
      return Cancelled();
    }
  }
}

absl::Status ThreadedBatchStream::FetchFromPosition() {
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<BatchFetcher> fetcher,
                           connect_(failover_.server(), position_));
  if (!SetFetcher(fetcher)) return Cancelled();
  while (true) {
    // The end must come even if the caller keeps its blocks.
    if (!AtEnd() && !held_->AwaitRoom()) return Cancelled();
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<FetchedBlock> block,
                             Fetch(fetcher.get()));
    BALLAST_ASSIGN_OR_RETURN(const uint32_t micro_batches, CheckOrder(*block));
    if (failing_since_ != absl::InfiniteFuture()) {
      LogInfo(RankName(), ": ", failover_.name(), " serves ",
              DescribePosition(), ", ",
              ShortText(options_.clock->Now() - failing_since_),
              " after the failure");
      failing_since_ = absl::InfiniteFuture();
    }
    if (!Push(std::move(block))) return Cancelled();
    MovePosition(micro_batches);
    failover_.OnProgress();
  }
}

absl::StatusOr<std::unique_ptr<FetchedBlock>> ThreadedBatchStream::Fetch(
    BatchFetcher* fetcher) {
  {
    MutexLock lock(&mutex_);
    hang_timer_ = HangTimer(failover_.silent_after(), failover_.slow_after());
    hang_timer_.Start(options_.clock->Now());
    fetching_ = true;
  }
  absl::StatusOr<std::unique_ptr<FetchedBlock>> block = fetcher->Fetch();
  MutexLock lock(&mutex_);
  fetching_ = false;
  if (absl::IsCancelled(block.status()) && !hang_.ok()) return hang_;
  return block;
}

void ThreadedBatchStream::Guard() {
  while (guard_sleeper_->Sleep(GuardPeriod(options_.failover))) {
    std::shared_ptr<BatchFetcher> hung;
    {
      MutexLock lock(&mutex_);
      if (!fetching_ || !hang_.ok()) continue;
      HangTimer::Wait wait;
      wait.bytes = fetcher_->bytes_received();
      // A block that has begun has credit for all of its bytes.
      wait.may_send =
          !fetcher_->waits_for_client() && (wait.bytes > 0 || held_->MaySend());
      hang_ = hang_timer_.Check(options_.clock->Now(), wait);
      if (!hang_.ok()) hung = fetcher_;
    }
    if (hung != nullptr) hung->Cancel();
  }
}

bool ThreadedBatchStream::SetFetcher(std::shared_ptr<BatchFetcher> fetcher) {
  MutexLock lock(&mutex_);
  if (cancelled_ || (fetcher != nullptr && again_.has_value())) return false;
  hang_ = absl::OkStatus();
  // The previous one is destroyed after the lock is released.
  fetcher_.swap(fetcher);
  return true;
}

absl::StatusOr<uint32_t> ThreadedBatchStream::CheckOrder(
    const FetchedBlock& block) {
  const std::optional<BlockShare>& share = options_.request.share;
  const auto is_later = [&] {
    return std::pair(block.step(), block.micro_batch()) >
               std::pair(position_.step, position_.micro_batch) &&
           (options_.request.steps == 0 || block.step() < end_step_);
  };
  if (share.has_value() && !AtEnd() && is_later() &&
      share->Owns(block.step(), block.micro_batch())) {
    MoveTo(block.step(), block.micro_batch());
  }
  if (AtEnd() || block.step() != position_.step ||
      block.micro_batch() != position_.micro_batch ||
      (share.has_value() && !share->Owns(block.step(), block.micro_batch()))) {
    return absl::InternalError(absl::StrCat(
        "blocks came out of order: ",
        DescribeBlock(block.step(), block.micro_batch()), ", wanted ",
        DescribePosition(),
        share.has_value() ? " or a later one of the server's share; is it of a "
                            "version that does not spread?"
                          : "; the server is at fault"));
  }
  return CheckBlockHeader(block, position_, DescribePosition());
}

void ThreadedBatchStream::MoveTo(uint64_t step, uint32_t micro_batch) {
  position_.step = step;
  position_.micro_batch = micro_batch;
  // 0 would mean no end.
  position_.steps =
      options_.request.steps == 0 ? 0 : std::max<uint64_t>(end_step_ - step, 1);
}

void ThreadedBatchStream::MovePosition(uint32_t micro_batches) {
  if (position_.micro_batch + 1 < micro_batches) {
    ++position_.micro_batch;
  } else {
    MoveTo(position_.step + 1, 0);
  }
}

bool ThreadedBatchStream::Push(std::unique_ptr<FetchedBlock> block) {
  MutexLock lock(&mutex_);
  while (!cancelled_ && !again_.has_value() &&
         static_cast<int>(queue_.size()) >= options_.max_queued) {
    changed_.Wait(&mutex_);
  }
  if (cancelled_ || again_.has_value()) return false;
  queue_.push_back(std::move(block));
  changed_.NotifyAll();
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchStream>> BatchStream::Create(
    Connect connect, Options options) {
  BALLAST_RETURN_IF_ERROR(CheckOptions(options));
  auto stream = std::make_unique<ThreadedBatchStream>(std::move(connect),
                                                      std::move(options));
  BALLAST_RETURN_IF_ERROR(stream->Start());
  return stream;
}

void HangTimer::Start(absl::Time now) {
  may_send_since_ = now;
  last_byte_ = now;
  bytes_ = 0;
}

absl::Status HangTimer::Check(absl::Time now, const Wait& wait) {
  if (!wait.may_send) {
    Start(now);
    return absl::OkStatus();
  }
  if (wait.bytes != bytes_) {
    bytes_ = wait.bytes;
    last_byte_ = now;
  }
  if (now - last_byte_ >= silent_after_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "sent no byte for ", absl::FormatDuration(now - last_byte_), " (after ",
        bytes_,
        " bytes of the block) though it was granted credit; does it "
        "hang, or its disk?"));
  }
  if (now - may_send_since_ >= slow_after_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "has sent ", bytes_, " bytes of the block and not all of it in ",
        absl::FormatDuration(now - may_send_since_), "; is it overloaded?"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
