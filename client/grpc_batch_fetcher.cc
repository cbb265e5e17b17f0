#include "client/grpc_batch_fetcher.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/block_assembler.h"
#include "client/buffer_pool.h"
#include "client/pull_stream.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// What a fetcher and its blocks share; blocks may outlive the fetcher.
class Connection {
 public:
  Connection(v1::LoaderService::Stub* stub, const FetchRequest& request)
      : max_bytes_(request.max_bytes),
        // Buffers are up to an eighth larger than their blocks, and some lie
        // free because their size does not fit.
        pool_(std::min(request.max_bytes, UINT64_MAX / 2) / 4 * 5),
        stream_(PullStream::Open(stub, request)) {}

  PullStream& stream() { return *stream_; }
  BufferPool& pool() { return pool_; }

  // How large a block the server may begin. It cannot be ahead of this: it
  // learns of a block's end after we do.
  uint64_t Allowance() {
    MutexLock lock(&mutex_);
    if (held_ == 0) return UINT64_MAX;
    return held_ < max_bytes_ ? max_bytes_ - held_ : 0;
  }

  void Hold(uint64_t bytes) {
    MutexLock lock(&mutex_);
    held_ += bytes;
  }

  void Release(AssembledBlock block) {
    pool_.Return(std::move(block.buffer));
    {
      MutexLock lock(&mutex_);
      held_ -= block.bytes;
    }
    stream_->Grant(block.bytes);
  }

 private:
  const uint64_t max_bytes_;
  BufferPool pool_;
  const std::unique_ptr<PullStream> stream_;
  Mutex mutex_;
  // Bytes of complete blocks that are alive.
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
};

class GrpcBlock final : public FetchedBlock {
 public:
  GrpcBlock(AssembledBlock block, std::shared_ptr<Connection> connection)
      : block_(std::move(block)), connection_(std::move(connection)) {}
  ~GrpcBlock() override { connection_->Release(std::move(block_)); }

  uint64_t step() const override { return block_.step; }
  uint32_t micro_batch() const override { return block_.micro_batch; }
  absl::Span<const uint8_t> bytes() const override {
    return std::as_const(block_.buffer).bytes().subspan(0, block_.bytes);
  }

 private:
  AssembledBlock block_;
  const std::shared_ptr<Connection> connection_;
};

class GrpcBatchFetcher final : public BatchFetcher {
 public:
  GrpcBatchFetcher(v1::LoaderService::Stub* stub, const FetchRequest& request,
                   const std::string& address)
      : context_(absl::StrCat("server ", address)),
        connection_(std::make_shared<Connection>(stub, request)),
        assembler_(request.max_block_bytes, &connection_->pool()) {}

  ~GrpcBatchFetcher() override { connection_->stream().CancelAndWait(); }

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    if (!end_.ok()) return end_;
    end_ = Annotate(Assemble(), context_);
    if (!end_.ok()) {
      connection_->stream().Cancel();
      return end_;
    }
    AssembledBlock block = assembler_.Take();
    received_.store(0, std::memory_order_relaxed);
    connection_->Hold(block.bytes);
    return std::make_unique<GrpcBlock>(std::move(block), connection_);
  }

  void Cancel() override { connection_->stream().Cancel(); }

  uint64_t bytes_received() const override {
    return received_.load(std::memory_order_relaxed);
  }

 private:
  // Reads until a block is complete.
  absl::Status Assemble() {
    while (!assembler_.complete()) {
      const absl::Status read = connection_->stream().Read(&message_);
      if (absl::IsOutOfRange(read) && assembler_.in_block()) {
        return absl::InternalError(absl::StrCat(
            "the server ended the stream within ", assembler_.Describe()));
      }
      BALLAST_RETURN_IF_ERROR(read);
      BALLAST_RETURN_IF_ERROR(
          assembler_.Add(message_, connection_->Allowance()));
      received_.fetch_add(message_.chunk().data().size(),
                          std::memory_order_relaxed);
    }
    return absl::OkStatus();
  }

  const std::string context_;
  const std::shared_ptr<Connection> connection_;
  BlockAssembler assembler_;
  v1::PullResponse message_;
  // Of the block that is being assembled.
  std::atomic<uint64_t> received_{0};
  // The error that ended it.
  absl::Status end_;
};

}  // namespace

std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    v1::LoaderService::Stub* stub, const FetchRequest& request,
    const std::string& address) {
  return std::make_unique<GrpcBatchFetcher>(stub, request, address);
}

}  // namespace ballast
