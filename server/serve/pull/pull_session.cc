#include "server/serve/pull/pull_session.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/block/block_view.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/spread.h"
#include "proto/transport.h"

namespace ballast {

bool CreditWindow::MayBegin(uint64_t bytes) const {
  return held() == 0 || (held() <= allowance_ && bytes <= allowance_ - held());
}

absl::Status CreditWindow::Return(uint64_t bytes) {
  if (bytes > sent_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PullRequest.credit.bytes is ", bytes, ", more than the ", sent_,
        " bytes of blocks that the client was sent and holds"));
  }
  sent_ -= bytes;
  return absl::OkStatus();
}

absl::Status PullSession::OnRequest(const v1::PullRequest& request) {
  if (request.message_case() == v1::PullRequest::MESSAGE_NOT_SET) {
    return absl::InvalidArgumentError("PullRequest holds no message");
  }
  if (request.has_open()) return OnOpen(request.open());
  if (!open_.has_value()) {
    return absl::InvalidArgumentError(
        "PullRequest.open did not come before the client's other messages");
  }
  switch (request.message_case()) {
    case v1::PullRequest::kCredit:
      return OnCredit(request.credit());
    case v1::PullRequest::kMapped:
      return OnMapped(request.mapped());
    case v1::PullRequest::kJoin:
      return absl::InvalidArgumentError(
          "PullRequest.join came after PullRequest.open");
    default:  // Stop
      block_.reset();
      begun_ = false;
      if (!end_.has_value()) end_ = absl::OkStatus();
      end_is_owed_ = false;
      return absl::OkStatus();
  }
}

absl::Status PullSession::OnOpen(const v1::PullRequest::Open& open) {
  if (open_.has_value()) {
    return absl::InvalidArgumentError("PullRequest.open came twice");
  }
  if (open.fingerprint().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("PullRequest.open.fingerprint is empty; wanted ",
                     server_.hash(), ", as Attach answers"));
  }
  v1::Fingerprint client;
  client.set_hash(open.fingerprint());
  BALLAST_RETURN_IF_ERROR(
      CheckSameFingerprint(server_, "the server", client, "the client"));
  if (open.lanes() > kMaxLanes ||
      (open.lanes() > 1 && open.ticket().size() != kLaneTicketBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PullRequest.open.lanes is ", open.lanes(), " and the ticket has ",
        open.ticket().size(), " bytes; wanted at most ", kMaxLanes,
        " lanes, and with more than one a ticket of ", kLaneTicketBytes));
  }
  if (open.has_share() &&
      (open.share().parts().empty() ||
       open.share().parts_size() > static_cast<int>(BlockShare::kMaxParts))) {
    return absl::InvalidArgumentError(
        absl::StrCat("PullRequest.open.share has ", open.share().parts_size(),
                     " parts, wanted 1 to ", BlockShare::kMaxParts));
  }
  lanes_ = std::max(open.lanes(), 1u);
  open_ = open;
  credit_ = CreditWindow(open.credit());
  if (arena_ != nullptr && open.accepts_arena()) {
    handshake_ = Handshake::kToOffer;
  }
  return absl::OkStatus();
}

absl::Status PullSession::OnCredit(const v1::PullRequest::Credit& credit) {
  for (const uint64_t generation : credit.blocks()) {
    const auto lent = lent_.find(generation);
    if (lent == lent_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("PullRequest.credit.blocks names ", generation,
                       ", which is no block that the client holds"));
    }
    credit_.ReturnLent(lent->second->bytes().size());
    lent_.erase(lent);
  }
  return credit_.Return(credit.bytes());
}

absl::Status PullSession::OnMapped(const v1::PullRequest::Mapped& mapped) {
  if (handshake_ != Handshake::kOffered) {
    return absl::InvalidArgumentError(
        "PullRequest.mapped came without a PullResponse.arena before it");
  }
  if (!mapped.nonce().empty() && mapped.nonce() != arena_->nonce) {
    return absl::InvalidArgumentError(
        absl::StrCat("PullRequest.mapped.nonce is not the one of ",
                     arena_->path, "; has the client mapped another file?"));
  }
  handshake_ = Handshake::kDone;
  mapped_ = !mapped.nonce().empty();
  return absl::OkStatus();
}

bool PullSession::WantsBlock() const {
  return open_.has_value() && !end_.has_value() && block_ == nullptr &&
         handshake_ != Handshake::kToOffer && handshake_ != Handshake::kOffered;
}

std::optional<OutgoingMessage> PullSession::NextMessage() {
  OutgoingMessage next;
  if (handshake_ == Handshake::kToOffer) {
    v1::PullResponse::Arena& arena = *next.message.mutable_arena();
    arena.set_path(arena_->path);
    arena.set_bytes(arena_->bytes);
    arena.set_id(arena_->id);
    handshake_ = Handshake::kOffered;
    return next;
  }
  if (end_is_owed_) {
    next.message.mutable_end()->set_code(static_cast<uint32_t>(end_->code()));
    next.message.mutable_end()->set_message(std::string(end_->message()));
    end_is_owed_ = false;
    return next;
  }
  if (block_ == nullptr || WaitsForClient()) return std::nullopt;
  if (!begun_) {
    if (mapped_ && block_->place().has_value()) {
      next.message = LendBlock();
      return next;
    }
    credit_.Begin(block_->bytes().size());
    begun_ = true;
    sent_ = 0;
    v1::PullResponse::Begin& begin = *next.message.mutable_begin();
    begin.set_step(block_->id().step);
    begin.set_micro_batch(block_->id().micro_batch);
    begin.set_bytes(block_->bytes().size());
    begin.set_checksum(block_->checksum());
    if (lanes_ > 1) begin.set_lanes(lanes_);
    return next;
  }
  next.chunk = block_->bytes().subspan(sent_, kMaxChunkBytes);
  sent_ += next.chunk.size();
  next.block = block_;
  next.lane = next_lane_;
  next_lane_ = (next_lane_ + 1) % lanes_;
  if (sent_ == block_->bytes().size()) {
    block_.reset();
    begun_ = false;
  }
  return next;
}

v1::PullResponse PullSession::LendBlock() {
  v1::PullResponse message;
  v1::PullResponse::Shared& shared = *message.mutable_shared();
  shared.set_step(block_->id().step);
  shared.set_micro_batch(block_->id().micro_batch);
  shared.set_bytes(block_->bytes().size());
  if (!open_->skips_shared_checksum()) shared.set_checksum(block_->checksum());
  shared.set_offset(block_->place()->offset);
  shared.set_generation(block_->place()->generation);
  credit_.Lend(block_->bytes().size());
  block_->Lend();
  lent_[shared.generation()] = std::move(block_);
  return message;
}

bool PullSession::WaitsForClient() const {
  if (handshake_ == Handshake::kOffered) return true;
  return block_ != nullptr && !begun_ &&
         !credit_.MayBegin(block_->bytes().size());
}

void PullSession::OnEnd(absl::Status status) {
  end_ = std::move(status);
  end_is_owed_ = !lent_.empty();
}

namespace {

using Holder = std::shared_ptr<const Block>;

// The bytes of `block`, which is held until gRPC destroys the slice.
grpc::Slice GetSlice(Holder block, absl::Span<const uint8_t> bytes) {
  return grpc::Slice(
      const_cast<uint8_t*>(bytes.data()), bytes.size(),
      [](void* holder) { delete static_cast<Holder*>(holder); },
      new Holder(std::move(block)));
}

}  // namespace

grpc::ByteBuffer EncodeResponse(OutgoingMessage message) {
  if (message.block == nullptr) {
    grpc::ByteBuffer bytes;
    bool own = false;
    grpc::SerializationTraits<v1::PullResponse>::Serialize(message.message,
                                                           &bytes, &own);
    return bytes;
  }
  const grpc::Slice slices[] = {
      grpc::Slice(ChunkPrefix(message.chunk.size())),
      GetSlice(std::move(message.block), message.chunk)};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<v1::PullRequest> DecodeRequest(grpc::ByteBuffer bytes) {
  v1::PullRequest request;
  if (!grpc::SerializationTraits<v1::PullRequest>::Deserialize(&bytes, &request)
           .ok()) {
    return absl::InvalidArgumentError(
        "the client sent a message that is not a PullRequest");
  }
  return request;
}

}  // namespace ballast
