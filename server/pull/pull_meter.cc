#include "server/pull/pull_meter.h"

namespace ballast {

using Client = v1::GetStatusResponse::Client;
using std::chrono::steady_clock;

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

}  // namespace ballast
