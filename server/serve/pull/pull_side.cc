#include "server/serve/pull/pull_side.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {

namespace {

using Client = v1::GetStatusResponse::Client;
using std::chrono::steady_clock;

// "vision rank 3", "valid vision rank 3"
std::string Describe(const v1::PullRequest::Open& open) {
  return absl::StrCat(SplitWord(open.role().split()),
                      ModuleName(open.role().module()), " rank ",
                      open.role().dp_rank());
}

// The share that a Pull asks for; nullopt: all blocks.
std::optional<BlockShare> ShareOf(const v1::PullRequest::Open& open) {
  if (!open.has_share()) return std::nullopt;
  BlockShare share;
  share.stride = open.share().stride();
  share.offset = open.share().offset();
  for (const v1::PullRequest::Share::Part& part : open.share().parts()) {
    share.parts.push_back(
        {part.first(), part.last(), part.step(), part.micro_batch()});
  }
  return share;
}

}  // namespace

void PullMeter::Opened(const v1::PullRequest::Open& open) {
  client_.role = open.role();
  client_.step = open.step();
  client_.micro_batch = open.micro_batch();
  client_.state = Client::STATE_WAITS_FOR_BLOCK;
  client_.since = steady_clock::now();
  if (board_ != nullptr) {
    entry_ = std::make_unique<ClientBoard::Entry>(board_, client_);
  }
}

void PullMeter::Enter(ClientBoard::State state, Time now) {
  if (client_.state != state) client_.since = now;
  client_.state = state;
  if (entry_ != nullptr) entry_->Set(client_);
}

void PullMeter::WaitsForBlock(uint64_t held) {
  client_.held_bytes = held;
  const Time now = steady_clock::now();
  if (!waits_since_.has_value()) waits_since_ = now;
  Enter(Client::STATE_WAITS_FOR_BLOCK, now);
}

void PullMeter::GotBlock(const BlockId& block) {
  built_ = steady_clock::now();
  if (instruments_ != nullptr) {
    instruments_->wait.Record(waits_since_.has_value()
                                  ? absl::FromChrono(built_ - *waits_since_)
                                  : absl::ZeroDuration());
  }
  waits_since_.reset();
  client_.step = block.step;
  client_.micro_batch = block.micro_batch;
}

void PullMeter::HoldsBack(uint64_t held) {
  client_.held_bytes = held;
  Enter(Client::STATE_HOLDS_BACK, steady_clock::now());
}

void PullMeter::Sends(const v1::PullResponse& message, uint64_t held) {
  client_.held_bytes = held;
  if (!message.has_begin() && !message.has_shared()) return;
  const Time now = steady_clock::now();
  sent_since_ = now;
  client_.shared_memory = message.has_shared();
  ++client_.blocks;
  Enter(Client::STATE_SENDING, now);
  if (instruments_ == nullptr) return;
  instruments_->hold_back.Record(absl::FromChrono(now - built_));
  if (message.has_shared()) {
    instruments_->blocks_shared.Add();
    instruments_->bytes_shared.Add(message.shared().bytes());
  } else {
    instruments_->blocks_streamed.Add();
    instruments_->bytes_streamed.Add(message.begin().bytes());
  }
}

void PullMeter::Wrote(bool whole_block) {
  if (!whole_block || !sent_since_.has_value()) return;
  if (instruments_ != nullptr) {
    instruments_->send.Record(Stopwatch::Since(*sent_since_));
  }
  sent_since_.reset();
}

void PullSide::OnRequest(const absl::StatusOr<v1::PullRequest>& request) {
  MutexLock lock(&mutex_);
  if (ended_) return;
  absl::Status status = request.ok() ? Take(*request) : request.status();
  if (!status.ok()) {
    End(std::move(status));
    return;
  }
  Advance();
}

void PullSide::OnClientFinished() {
  MutexLock lock(&mutex_);
  client_has_finished_ = true;
  Advance();
}

absl::Status PullSide::Take(const v1::PullRequest& request) {
  BALLAST_RETURN_IF_ERROR(session_.OnRequest(request));
  if (session_.end().has_value() && pending_.has_value() &&
      pending_->block != nullptr) {
    pending_.reset();  // The client no longer wants it.
  }
  if (stream_ != nullptr || session_.end().has_value()) {
    return absl::OkStatus();
  }
  return OpenStream();
}

absl::Status PullSide::OpenStream() {
  const v1::PullRequest::Open& open = *session_.open();
  if (session_.lanes() > 1) {
    has_ticket_ = context_.lanes.Add(open.ticket(), weak_from_this());
    if (!has_ticket_) {
      return absl::InvalidArgumentError(
          "PullRequest.open.ticket belongs to another Pull");
    }
    lanes_.resize(session_.lanes());
  }
  BALLAST_ASSIGN_OR_RETURN(
      stream_, context_.loader->OpenStream(
                   open.role(), open.step(), open.micro_batch(), open.steps(),
                   [weak = weak_from_this()] {
                     const auto pull = weak.lock();
                     if (pull == nullptr) return;
                     MutexLock lock(&pull->mutex_);
                     pull->OnStreamNews();
                   },
                   ShareOf(open)));
  meter_.Opened(open);
  LogDebug(Describe(open), " of ", client_, " pulls from step ", open.step(),
           " micro-batch ", open.micro_batch());
  return absl::OkStatus();
}

void PullSide::OnStreamNews() {
  if (stream_ != nullptr) {
    absl::Status status = stream_->status();
    if (absl::IsAborted(status)) End(std::move(status));
  }
  Advance();
}

void PullSide::Advance() {
  // With lanes, a message may be sent while the Pull's own call is writing.
  while (!ended_ && (!lanes_[0].busy || session_.lanes() > 1)) {
    absl::Status refused = context_.refusal->status();
    if (!refused.ok()) {
      meter_.Failed();
      End(std::move(refused));
      return;
    }
    if (!pending_.has_value()) {
      pending_ = session_.NextMessage();
      if (pending_.has_value()) {
        meter_.Sends(pending_->message, session_.held());
      }
    }
    if (pending_.has_value()) {
      if (!SendPending()) return;
      continue;
    }
    if (session_.end().has_value()) {
      if (session_.lent() == 0 || client_has_finished_) {
        End(*session_.end());
      } else {
        Linger();
      }
      return;
    }
    if (stream_ == nullptr) return;
    if (session_.WaitsForClient()) {
      HoldBack();
      return;
    }
    if (!TakeBlock()) return;
  }
}

bool PullSide::TakeBlock() {
  auto next = stream_->TryNext();
  if (!next.has_value()) {
    meter_.WaitsForBlock(session_.held());
    return false;
  }
  if (next->ok()) {
    meter_.GotBlock((**next)->id());
    session_.OnBlock(**std::move(next));
    return true;
  }
  // OUT_OF_RANGE: everything requested has been sent.
  absl::Status status =
      absl::IsOutOfRange(next->status()) ? absl::OkStatus() : next->status();
  if (!status.ok()) meter_.Failed();
  // A draining server does not wait for lent blocks. A server that cannot read
  // a sample must: the client still reads the blocks before it.
  if (context_.loader->draining()) {
    End(std::move(status));
    return false;
  }
  session_.OnEnd(std::move(status));
  return true;
}

void PullSide::HoldBack() {
  meter_.HoldsBack(session_.held());
  absl::Status status = stream_->status();
  if (!status.ok()) {
    End(std::move(status));
  } else if (client_has_finished_) {
    End(absl::InvalidArgumentError(
        "the client ended its side, and its credit does not cover the next "
        "block, or it has not said whether it mapped the arena"));
  }
}

bool PullSide::SendPending() {
  Lane& lane = lanes_[pending_->lane];
  if (lane.call == nullptr || lane.busy) return false;
  lane.busy = true;
  lane.call->Write(EncodeResponse(*std::exchange(pending_, {})));
  return true;
}

bool PullSide::AllIsWritten() const {
  if (session_.MidBlock() || pending_.has_value()) return false;
  return std::none_of(lanes_.begin(), lanes_.end(),
                      [](const Lane& lane) { return lane.busy; });
}

void PullSide::Linger() {
  stream_.reset();
  meter_.Ended();
  EndLanes(1, *session_.end());
  if (std::exchange(lingers_, true)) return;
  context_.calls->End();
}

void PullSide::End(absl::Status status) {
  if (std::exchange(ended_, true)) return;
  stream_.reset();
  meter_.Ended();
  pending_.reset();
  if (session_.open() != nullptr) {
    LogDebug("the pull of ", Describe(*session_.open()), " of ", client_,
             " ends: ", status.ok() ? "all is sent" : status.ToString());
  }
  EndLanes(0, status);
}

void PullSide::EndLanes(size_t first, const absl::Status& status) {
  for (size_t i = first; i < lanes_.size(); ++i) {
    if (lanes_[i].call == nullptr) continue;
    std::exchange(lanes_[i].call, nullptr)->End(status);
  }
}

bool PullSide::OnDone() {
  MutexLock lock(&mutex_);
  End(absl::CancelledError("the client left"));
  if (has_ticket_) context_.lanes.Remove(session_.open()->ticket());
  return !lingers_;
}

absl::Status PullSide::AddLane(uint32_t lane, PullReactor* call) {
  MutexLock lock(&mutex_);
  if (ended_ || lingers_) {
    return absl::UnavailableError("the Pull of this lane has ended");
  }
  if (lane == 0 || lane >= lanes_.size() || lanes_[lane].call != nullptr) {
    return absl::NotFoundError(absl::StrCat("PullRequest.join.lane is ", lane,
                                            ", wanted 1 to ", lanes_.size() - 1,
                                            ", each once"));
  }
  lanes_[lane].call = call;
  Advance();
  return absl::OkStatus();
}

void PullSide::OnLaneWritten(uint32_t lane) {
  MutexLock lock(&mutex_);
  lanes_[lane].busy = false;
  meter_.Wrote(AllIsWritten());
  Advance();
}

void PullSide::OnLaneGone(uint32_t lane, const PullReactor* call) {
  MutexLock lock(&mutex_);
  if (lane >= lanes_.size() || lanes_[lane].call != call) return;
  lanes_[lane].call = nullptr;
  End(absl::CancelledError(absl::StrCat("the client left lane ", lane)));
}

}  // namespace ballast
