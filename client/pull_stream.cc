#include "client/pull_stream.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "proto/block/block_view.h"
#include "proto/loader_service.pb.h"
#include "proto/transport.h"

namespace ballast {

namespace {

// Limit of messages that wait for Read; one more may be in flight.
constexpr size_t kReadAhead = 2;

}  // namespace

v1::PullRequest OpenRequest(const FetchRequest& request) {
  v1::PullRequest first;
  v1::PullRequest::Open& open = *first.mutable_open();
  *open.mutable_role() = request.role;
  open.set_step(request.step);
  open.set_micro_batch(request.micro_batch);
  open.set_steps(request.steps);
  open.set_fingerprint(request.fingerprint);
  open.set_credit(request.max_bytes);
  open.set_accepts_arena(request.accept_shared_memory);
  open.set_skips_shared_checksum(!request.verify_shared_memory);
  if (request.share.has_value()) {
    v1::PullRequest::Share& share = *open.mutable_share();
    share.set_stride(request.share->stride);
    share.set_offset(request.share->offset);
    for (const SharePart& part : request.share->parts) {
      v1::PullRequest::Share::Part& to = *share.add_parts();
      to.set_first(part.first);
      to.set_last(part.last);
      to.set_step(part.step);
      to.set_micro_batch(part.micro_batch);
    }
  }
  return first;
}

// gRPC never runs a reaction inside the call that starts its operation, so
// operations are started, and the hold is removed, under mutex_.

std::unique_ptr<PullStream> PullStream::Open(PullChannel* channel,
                                             const v1::PullRequest& first) {
  std::unique_ptr<PullStream> stream(new PullStream);
  MutexLock lock(&stream->mutex_);
  stream->rpc_ = channel->Prepare(stream.get());
  stream->SendRequest(first);
  stream->AddHold();  // until Close
  stream->StartCall();
  return stream;
}

PullStream::~PullStream() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  BreakOff();
  while (!done_) changed_.Wait(&mutex_);
}

absl::Status PullStream::Read(grpc::ByteBuffer* message) {
  MutexLock lock(&mutex_);
  ReadAhead();
  in_read_ = true;
  while (received_.empty() && !read_all_ && !cancelled_) {
    Write();
    changed_.Wait(&mutex_);
  }
  in_read_ = false;
  Write();
  // The read in progress may outlast this.
  if (cancelled_) return EndStatus();
  if (!received_.empty()) {
    message->Swap(&received_.front());
    received_.pop_front();
    ReadAhead();
    return absl::OkStatus();
  }
  Close();
  while (!done_) changed_.Wait(&mutex_);
  return EndStatus();
}

void PullStream::Grant(uint64_t bytes) {
  MutexLock lock(&mutex_);
  credit_ += bytes;
  WriteOrHandOver();
}

void PullStream::SendMapped(const std::string& nonce) {
  MutexLock lock(&mutex_);
  mapped_ = nonce;
  Write();
}

void PullStream::Lend() {
  MutexLock lock(&mutex_);
  ++lent_;
}

void PullStream::Return(uint64_t generation) {
  MutexLock lock(&mutex_);
  --lent_;
  if (cancelled_ && lent_ == 0) {
    BreakOff();
    return;
  }
  returned_.push_back(generation);
  WriteOrHandOver();
}

void PullStream::Cancel() {
  MutexLock lock(&mutex_);
  if (done_ || cancelled_) return;
  cancelled_ = true;
  changed_.NotifyAll();
  if (lent_ == 0) {
    BreakOff();
  } else {
    stop_ = true;
    Write();
  }
}

void PullStream::AwaitDoneUnlessLent() {
  MutexLock lock(&mutex_);
  while (!done_ && lent_ == 0) changed_.Wait(&mutex_);
}

void PullStream::OnReadDone(bool ok) {
  MutexLock lock(&mutex_);
  reading_ = false;
  read_all_ = !ok;
  if (ok) {
    received_.emplace_back().Swap(&response_);
    ReadAhead();
  }
  changed_.NotifyAll();
}

void PullStream::ReadAhead() {
  if (reading_ || read_all_ || closed_ || received_.size() >= kReadAhead)
    return;
  reading_ = true;
  StartRead(&response_);
}

void PullStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (ok) Write();
}

void PullStream::OnDone(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  status_ = FromGrpcStatus(status);
  done_ = true;
  changed_.NotifyAll();
}

void PullStream::WriteOrHandOver() {
  if (in_read_) {
    changed_.NotifyAll();
  } else {
    Write();
  }
}

void PullStream::Write() {
  if (writing_ || closed_) return;
  v1::PullRequest request;
  if (mapped_.has_value()) {
    request.mutable_mapped()->set_nonce(*std::exchange(mapped_, {}));
  } else if (credit_ > 0 || !returned_.empty()) {
    v1::PullRequest::Credit& credit = *request.mutable_credit();
    credit.set_bytes(std::exchange(credit_, 0));
    credit.mutable_blocks()->Add(returned_.begin(), returned_.end());
    returned_.clear();
  } else if (std::exchange(stop_, false)) {
    request.mutable_stop();
  } else {
    return;
  }
  SendRequest(request);
}

void PullStream::SendRequest(const v1::PullRequest& request) {
  request_ = EncodeRequest(request);
  writing_ = true;
  StartWrite(&request_);
}

void PullStream::Close() {
  if (closed_) return;
  closed_ = true;
  RemoveHold();
}

void PullStream::BreakOff() {
  if (!done_) rpc_->Cancel();
  Close();
}

absl::Status PullStream::EndStatus() const {
  if (cancelled_) return absl::CancelledError("the pull was cancelled");
  if (status_.ok()) {
    return absl::OutOfRangeError("the server has ended the stream");
  }
  // A server that shuts down cancels its calls; Cancel was not called here.
  if (status_.code() == absl::StatusCode::kCancelled) {
    return absl::UnavailableError(
        absl::StrCat("the server cancelled the pull: ", status_.message()));
  }
  return status_;
}

namespace {

std::string RandomTicket() {
  std::random_device random;  // the system's, not a generator with a seed
  std::string ticket;
  while (ticket.size() < kLaneTicketBytes) {
    ticket.push_back(static_cast<char>(random()));
  }
  return ticket;
}

}  // namespace

PullLanes::PullLanes(uint32_t count)
    : count_(count), ticket_(count == 1 ? "" : RandomTicket()) {}

void PullLanes::Open(
    const std::vector<std::shared_ptr<PullChannel>>& channels) {
  opened_ = true;
  MutexLock lock(&mutex_);
  if (cancelled_) return;
  for (const auto& channel : channels) {
    v1::PullRequest first;
    first.mutable_join()->set_ticket(ticket_);
    first.mutable_join()->set_lane(streams_.size() + 1);
    streams_.push_back(PullStream::Open(channel.get(), first));
  }
}

absl::Status PullLanes::Read(uint32_t lane, grpc::ByteBuffer* message) {
  PullStream* stream = nullptr;
  {
    MutexLock lock(&mutex_);
    if (streams_.empty()) return absl::CancelledError("the pull was cancelled");
    stream = streams_[lane - 1].get();
  }
  const absl::Status status = stream->Read(message);
  // The server was started anew since the Pull was opened, which has ended,
  // too. A new Pull may succeed.
  if (absl::IsNotFound(status)) {
    return absl::UnavailableError(absl::StrCat(
        "lane ", lane,
        " joined a server that does not know the pull: ", status.message()));
  }
  return status;
}

void PullLanes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  for (const auto& stream : streams_) stream->Cancel();
}

namespace {

absl::Span<const uint8_t> GetBytes(const grpc::Slice& slice) {
  return {slice.begin(), slice.size()};
}

// The first bytes of `slices`, up to the longest framing of a chunk.
std::vector<uint8_t> FirstBytes(const std::vector<grpc::Slice>& slices) {
  std::vector<uint8_t> first;
  for (const grpc::Slice& slice : slices) {
    const auto bytes =
        GetBytes(slice).subspan(0, kMaxChunkPrefix - first.size());
    first.insert(first.end(), bytes.begin(), bytes.end());
    if (first.size() == kMaxChunkPrefix) break;
  }
  return first;
}

}  // namespace

absl::StatusOr<PullMessage> DecodeResponse(grpc::ByteBuffer bytes) {
  PullMessage decoded;
  const absl::Status malformed =
      absl::InternalError("the server sent a message that is no PullResponse");
  if (!bytes.Dump(&decoded.slices).ok()) return malformed;
  std::optional<size_t> prefix =
      ReadChunkPrefix(FirstBytes(decoded.slices), bytes.Length());
  if (prefix.has_value()) {
    decoded.is_chunk = true;
    for (const grpc::Slice& slice : decoded.slices) {
      const size_t skipped = std::min(*prefix, slice.size());
      *prefix -= skipped;
      if (skipped < slice.size()) {
        decoded.chunk.push_back(GetBytes(slice).subspan(skipped));
      }
    }
    return decoded;
  }
  decoded.slices.clear();
  if (!grpc::SerializationTraits<v1::PullResponse>::Deserialize(
           &bytes, &decoded.message)
           .ok()) {
    return malformed;
  }
  if (decoded.message.has_chunk()) {
    // A valid framing, but not the one that this project's servers use.
    decoded.is_chunk = true;
    decoded.parsed_chunk =
        std::make_unique<v1::PullResponse>(std::move(decoded.message));
    const std::string& data = decoded.parsed_chunk->chunk().data();
    decoded.chunk.emplace_back(reinterpret_cast<const uint8_t*>(data.data()),
                               data.size());
  }
  return decoded;
}

grpc::ByteBuffer EncodeRequest(const v1::PullRequest& request) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<v1::PullRequest>::Serialize(request, &bytes, &own);
  return bytes;
}

}  // namespace ballast
