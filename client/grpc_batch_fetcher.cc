#include "client/grpc_batch_fetcher.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/buffer_pool.h"
#include "client/pull_stream.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// State shared by a fetcher and its blocks, which may outlive it.
class Connection {
 public:
  Connection(PullChannel* channel, const FetchRequest& request,
             const PullLanes& lanes, BufferPools* pools)
      : held_(request.held != nullptr
                  ? request.held
                  : std::make_shared<HeldBytes>(request.max_bytes)),
        number_(held_->NextFetcher()),
        // More than the outstanding blocks need, to allow for holes between
        // them.
        pool_(pools->Take(std::min(request.max_bytes, UINT64_MAX / 2) / 4 * 5)),
        stream_(PullStream::Open(channel, First(request, lanes))) {}

  static v1::PullRequest First(const FetchRequest& request,
                               const PullLanes& lanes) {
    v1::PullRequest first = OpenRequest(request);
    if (lanes.count() > 1) {
      first.mutable_open()->set_lanes(lanes.count());
      first.mutable_open()->set_ticket(lanes.ticket());
    }
    return first;
  }

  PullStream& stream() { return *stream_; }
  BufferPool& pool() { return *pool_; }

  // Largest block that the server may begin. The server cannot be ahead of
  // this: it learns of a block's end after we do.
  uint64_t Allowance() { return held_->Allowance(); }
  // The share of a complete block.
  HeldBytes::Share Hold(uint64_t bytes) {
    return HeldBytes::Share(held_, number_, bytes);
  }

 private:
  const std::shared_ptr<HeldBytes> held_;
  const uint64_t number_;  // of the fetcher in held_
  const std::shared_ptr<BufferPool> pool_;
  const std::unique_ptr<PullStream> stream_;
};

// A block that came in chunks.
class StreamedBlock final : public FetchedBlock {
 public:
  StreamedBlock(AssembledBlock block, std::shared_ptr<Connection> connection)
      : block_(std::move(block)),
        connection_(std::move(connection)),
        share_(connection_->Hold(block_.bytes)) {}
  ~StreamedBlock() override {
    connection_->pool().Return(std::move(block_.buffer));
    share_.Release();  // first: the server may use the grant at once
    connection_->stream().Grant(block_.bytes);
  }

  uint64_t step() const override { return block_.step; }
  uint32_t micro_batch() const override { return block_.micro_batch; }
  absl::Span<const uint8_t> bytes() const override {
    return block_.buffer.bytes;
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return connection_->pool().GetRegion(block_.buffer);
  }

 private:
  AssembledBlock block_;
  const std::shared_ptr<Connection> connection_;
  HeldBytes::Share share_;
};

// A block in the server's arena.
class SharedBlock final : public FetchedBlock {
 public:
  SharedBlock(const v1::PullResponse::Shared& shared,
              absl::Span<const uint8_t> bytes,
              std::shared_ptr<const ArenaMapping> arena,
              std::shared_ptr<Connection> connection)
      : step_(shared.step()),
        micro_batch_(shared.micro_batch()),
        generation_(shared.generation()),
        bytes_(bytes),
        stamp_(arena->stamp(shared.offset())),
        arena_(std::move(arena)),
        connection_(std::move(connection)),
        share_(connection_->Hold(bytes_.size())) {
    connection_->stream().Lend();
  }
  ~SharedBlock() override {
    share_.Release();  // first: the server may use the grant at once
    connection_->stream().Return(generation_);
  }

  uint64_t step() const override { return step_; }
  uint32_t micro_batch() const override { return micro_batch_; }
  absl::Span<const uint8_t> bytes() const override { return bytes_; }
  bool intact() const override { return StampHolds(stamp_, generation_); }
  bool may_be_overwritten() const override { return true; }
  std::shared_ptr<const MemoryRegion> region() const override { return arena_; }

 private:
  const uint64_t step_;
  const uint32_t micro_batch_;
  const uint64_t generation_;
  const absl::Span<const uint8_t> bytes_;
  const ArenaStamp* const stamp_;
  const std::shared_ptr<const ArenaMapping> arena_;
  const std::shared_ptr<Connection> connection_;
  HeldBytes::Share share_;
};

class GrpcBatchFetcher final : public BatchFetcher {
 public:
  GrpcBatchFetcher(std::shared_ptr<PullChannel> channel,
                   const FetchRequest& request, const std::string& address,
                   std::shared_ptr<ArenaCache> arenas, BufferPools* pools)
      : context_(absl::StrCat("server ", address)),
        max_block_bytes_(request.max_block_bytes),
        verify_shared_memory_(request.verify_shared_memory),
        arenas_(std::move(arenas)),
        channel_(std::move(channel)),
        lanes_(channel_->lanes()),
        connection_(std::make_shared<Connection>(channel_.get(), request,
                                                 lanes_, pools)),
        assembler_(request.max_block_bytes, &connection_->pool()) {}

  ~GrpcBatchFetcher() override {
    Cancel();
    connection_->stream().AwaitDoneUnlessLent();
  }

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    if (!end_.ok()) return end_;
    absl::StatusOr<std::unique_ptr<FetchedBlock>> block = Receive();
    if (!block.ok()) {
      end_ = Annotate(block.status(), context_);
      Cancel();
      return end_;
    }
    received_.store(0, std::memory_order_relaxed);
    return block;
  }

  void Cancel() override {
    connection_->stream().Cancel();
    lanes_.Cancel();
  }

  uint64_t bytes_received() const override {
    return received_.load(std::memory_order_relaxed);
  }

 private:
  // The next message, from the lane that carries it.
  absl::Status Read(grpc::ByteBuffer* bytes);
  absl::Status OnBegin(const v1::PullResponse::Begin& begin);
  // Reads until a block is complete.
  absl::StatusOr<std::unique_ptr<FetchedBlock>> Receive();
  // Maps the arena that the server offers, and reports the result to the
  // server.
  absl::Status OnArena(const v1::PullResponse::Arena& arena);
  absl::StatusOr<std::unique_ptr<FetchedBlock>> OnShared(
      const v1::PullResponse::Shared& shared);
  absl::Status CheckSharedSize(const v1::PullResponse::Shared& shared,
                               const std::string& name) const;

  const std::string context_;
  const uint64_t max_block_bytes_;
  const bool verify_shared_memory_;
  const std::shared_ptr<ArenaCache> arenas_;
  const std::shared_ptr<PullChannel> channel_;
  PullLanes lanes_;
  uint64_t chunks_ = 0;  // so far
  const std::shared_ptr<Connection> connection_;
  BlockAssembler assembler_;
  std::shared_ptr<const ArenaMapping> arena_;
  bool offered_ = false;  // the server has offered its arena
  std::atomic<uint64_t> received_ = 0;
  // The error that ended the fetcher.
  absl::Status end_;
};

absl::Status GrpcBatchFetcher::Read(grpc::ByteBuffer* bytes) {
  const uint64_t lane = chunks_ % lanes_.count();
  if (!assembler_.in_block() || !lanes_.open() || lane == 0) {
    return connection_->stream().Read(bytes);
  }
  return lanes_.Read(lane, bytes);
}

absl::Status GrpcBatchFetcher::OnBegin(const v1::PullResponse::Begin& begin) {
  BALLAST_RETURN_IF_ERROR(assembler_.Begin(begin, connection_->Allowance()));
  const uint32_t lanes = std::max(begin.lanes(), 1u);
  if ((lanes != 1 && lanes != lanes_.count()) ||
      (chunks_ > 0 && (lanes > 1) != lanes_.open())) {
    return absl::InternalError(absl::StrCat("the server sends over ", lanes,
                                            " lanes, wanted ", lanes_.count(),
                                            " or 1, and no change"));
  }
  if (lanes > 1 && !lanes_.open()) {
    lanes_.Open(channel_->LanesTo(connection_->stream().peer()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FetchedBlock>> GrpcBatchFetcher::Receive() {
  while (true) {
    grpc::ByteBuffer bytes;
    const absl::Status read = Read(&bytes);
    if (absl::IsOutOfRange(read) && assembler_.in_block()) {
      return absl::InternalError(absl::StrCat(
          "the server ended the stream within ", assembler_.Describe()));
    }
    BALLAST_RETURN_IF_ERROR(read);
    received_.fetch_add(bytes.Length(), std::memory_order_relaxed);
    BALLAST_ASSIGN_OR_RETURN(const PullMessage next,
                             DecodeResponse(std::move(bytes)));
    if (next.is_chunk) {
      BALLAST_RETURN_IF_ERROR(assembler_.AddChunk(next.chunk));
      ++chunks_;
      if (!assembler_.complete()) continue;
      return std::make_unique<StreamedBlock>(assembler_.Take(), connection_);
    }
    if (assembler_.in_block() && !next.message.has_begin()) {
      return absl::InternalError(absl::StrCat(
          "the server sent something else within ", assembler_.Describe()));
    }
    switch (next.message.message_case()) {
      case v1::PullResponse::kBegin:
        BALLAST_RETURN_IF_ERROR(OnBegin(next.message.begin()));
        break;
      case v1::PullResponse::kArena:
        BALLAST_RETURN_IF_ERROR(OnArena(next.message.arena()));
        break;
      case v1::PullResponse::kShared:
        return OnShared(next.message.shared());
      case v1::PullResponse::kEnd: {
        const v1::PullResponse::End& end = next.message.end();
        if (end.code() == 0) {
          return absl::OutOfRangeError("the server has ended the stream");
        }
        return absl::Status(static_cast<absl::StatusCode>(end.code()),
                            end.message());
      }
      default:
        return absl::InternalError(
            "the server sent an empty or unknown PullResponse");
    }
  }
}

absl::Status GrpcBatchFetcher::OnArena(const v1::PullResponse::Arena& arena) {
  if (std::exchange(offered_, true)) {
    return absl::InternalError("the server offered its arena twice");
  }
  arena_ = arenas_->Get(context_, arena.path(), arena.bytes(), arena.id());
  connection_->stream().SendMapped(arena_ == nullptr ? "" : arena_->nonce());
  return absl::OkStatus();
}

absl::Status GrpcBatchFetcher::CheckSharedSize(
    const v1::PullResponse::Shared& shared, const std::string& name) const {
  if (shared.bytes() == 0 || shared.bytes() > max_block_bytes_) {
    return absl::InternalError(
        absl::StrCat("the server announced ", shared.bytes(), " bytes for ",
                     name, ", wanted 1 to ", max_block_bytes_));
  }
  const uint64_t allowance = connection_->Allowance();
  if (shared.bytes() > allowance) {
    return absl::InternalError(
        absl::StrCat("the server lent ", name, " of ", shared.bytes(),
                     " bytes without the credit for it, which is ", allowance));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FetchedBlock>> GrpcBatchFetcher::OnShared(
    const v1::PullResponse::Shared& shared) {
  const std::string name = absl::StrCat("step ", shared.step(), " micro-batch ",
                                        shared.micro_batch());
  if (arena_ == nullptr) {
    return absl::InternalError(absl::StrCat("the server lent ", name,
                                            " of an arena that is not mapped"));
  }
  BALLAST_RETURN_IF_ERROR(CheckSharedSize(shared, name));
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                           arena_->Block(shared.offset(), shared.bytes()));
  auto block =
      std::make_unique<SharedBlock>(shared, bytes, arena_, connection_);
  if (verify_shared_memory_) {
    const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
    if (checksum != shared.checksum()) {
      BALLAST_RETURN_IF_ERROR(CheckIntact(*block));
      return absl::DataLossError(absl::StrFormat(
          "%s has checksum %016x in shared memory, wanted %016x", name,
          checksum, shared.checksum()));
    }
  }
  return block;
}

}  // namespace

std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    std::shared_ptr<PullChannel> channel, const FetchRequest& request,
    const std::string& address, std::shared_ptr<ArenaCache> arenas,
    BufferPools* pools) {
  return std::make_unique<GrpcBatchFetcher>(std::move(channel), request,
                                            address, std::move(arenas), pools);
}

}  // namespace ballast
