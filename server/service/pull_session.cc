#include "server/service/pull_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/fingerprint.h"
#include "proto/transport.h"

namespace ballast {

bool CreditWindow::MayBegin(uint64_t bytes) const {
  return held_ == 0 || (held_ <= allowance_ && bytes <= allowance_ - held_);
}

absl::Status CreditWindow::Return(uint64_t bytes) {
  if (bytes > held_) {
    return absl::InvalidArgumentError(
        absl::StrCat("PullRequest.credit.bytes is ", bytes, ", more than the ",
                     held_, " bytes of blocks that the client holds"));
  }
  held_ -= bytes;
  return absl::OkStatus();
}

absl::Status PullSession::OnRequest(const v1::PullRequest& request) {
  switch (request.message_case()) {
    case v1::PullRequest::kOpen:
      return OnOpen(request.open());
    case v1::PullRequest::kCredit:
      if (!open_.has_value()) {
        return absl::InvalidArgumentError(
            "PullRequest.credit came before PullRequest.open");
      }
      return credit_.Return(request.credit().bytes());
    case v1::PullRequest::kMapped:
    case v1::PullRequest::kStop:
    case v1::PullRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "PullRequest holds neither open nor credit");
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
  open_ = open;
  credit_ = CreditWindow(open.credit());
  return absl::OkStatus();
}

bool PullSession::NextMessage(v1::PullResponse* message) {
  if (block_ == nullptr) return false;
  const absl::Span<const uint8_t> bytes = block_->bytes();
  if (!begun_) {
    if (!credit_.MayBegin(bytes.size())) return false;
    credit_.Begin(bytes.size());
    begun_ = true;
    sent_ = 0;
    v1::PullResponse::Begin* begin = message->mutable_begin();
    begin->set_step(block_->id().step);
    begin->set_micro_batch(block_->id().micro_batch);
    begin->set_bytes(bytes.size());
    begin->set_checksum(block_->checksum());
    return true;
  }
  const uint64_t length = std::min(kMaxChunkBytes, bytes.size() - sent_);
  message->mutable_chunk()->set_data(bytes.data() + sent_, length);
  sent_ += length;
  if (sent_ == bytes.size()) {
    block_.reset();
    begun_ = false;
  }
  return true;
}

bool PullSession::WaitsForCredit() const {
  return block_ != nullptr && !begun_ &&
         !credit_.MayBegin(block_->bytes().size());
}

}  // namespace ballast
