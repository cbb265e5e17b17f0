#include "tests/fakes/fake_batch_fetcher.h"

#include <algorithm>
#include <utility>

#include "client/buffer_pool.h"
#include "common/aligned_buffer.h"

namespace ballast {

class FakeBatchServer::Block final : public FetchedBlock {
 public:
  // Block number `number` of all delivered blocks. `held` is the connection's
  // part of state->held; `share` counts the block in the stream's account.
  Block(const FakeBlock& block, int number, std::shared_ptr<State> state,
        std::shared_ptr<uint64_t> held, std::unique_ptr<HeldBytes::Share> share)
      : number_(number),
        intact_(block.intact),
        share_(std::move(share)),
        step_(block.step),
        micro_batch_(block.micro_batch),
        buffer_(*AlignedBuffer::Create(block.bytes.size())),
        state_(std::move(state)),
        held_(std::move(held)) {
    std::copy(block.bytes.begin(), block.bytes.end(), buffer_.bytes().begin());
  }
  ~Block() override {
    MutexLock lock(&state_->mutex);
    state_->held -= buffer_.size();
    *held_ -= buffer_.size();
    state_->changed.NotifyAll();
  }

  bool intact() const override {
    MutexLock lock(&state_->mutex);
    return intact_ && number_ > state_->overwritten;
  }
  uint64_t step() const override { return step_; }
  uint32_t micro_batch() const override { return micro_batch_; }
  absl::Span<const uint8_t> bytes() const override { return buffer_.bytes(); }

 private:
  const int number_;
  const bool intact_;
  const std::unique_ptr<HeldBytes::Share> share_;
  const uint64_t step_;
  const uint32_t micro_batch_;
  AlignedBuffer buffer_;
  const std::shared_ptr<State> state_;
  const std::shared_ptr<uint64_t> held_;
};

class FakeBatchServer::Fetcher final : public BatchFetcher {
 public:
  Fetcher(std::vector<FakeEvent> script, const FetchRequest& request,
          std::shared_ptr<State> state)
      : script_(std::move(script)),
        max_bytes_(request.max_bytes),
        account_(request.held),
        number_(account_->NextFetcher()),
        state_(std::move(state)) {}

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    State& state = *state_;
    MutexLock lock(&state.mutex);
    state.fetching.insert(this);
    state.changed.NotifyAll();
    while (!cancelled_ && !Ready()) state.changed.Wait(&state.mutex);
    state.fetching.erase(this);
    if (cancelled_) return absl::CancelledError("fake fetcher cancelled");
    const FakeEvent& event = script_[next_];
    if (const auto* status = std::get_if<absl::Status>(&event)) return *status;
    ++next_;
    const FakeBlock& block = std::get<FakeBlock>(event);
    *held_ += block.bytes.size();
    state.held += block.bytes.size();
    state.most_held = std::max(state.most_held, state.held);
    ++state.delivered;
    state.changed.NotifyAll();
    return std::make_unique<Block>(block, state.delivered, state_, held_,
                                   std::make_unique<HeldBytes::Share>(
                                       account_, number_, block.bytes.size()));
  }

  void Cancel() override {
    MutexLock lock(&state_->mutex);
    cancelled_ = true;
    state_->changed.NotifyAll();
  }

  // True if Fetch would not block. Requires state_->mutex.
  bool Ready() const {
    if (next_ == script_.size()) return false;
    const auto* block = std::get_if<FakeBlock>(&script_[next_]);
    return block == nullptr || *held_ == 0 ||
           *held_ + block->bytes.size() <= max_bytes_;
  }

 private:
  const std::vector<FakeEvent> script_;
  const uint64_t max_bytes_;
  const std::shared_ptr<HeldBytes> account_;
  const uint64_t number_;
  const std::shared_ptr<State> state_;
  // Guarded by state_->mutex.
  const std::shared_ptr<uint64_t> held_ = std::make_shared<uint64_t>(0);
  size_t next_ = 0;
  bool cancelled_ = false;
};

void FakeBatchServer::AddConnection(std::vector<FakeEvent> script) {
  MutexLock lock(&state_->mutex);
  state_->scripts.push_back(std::move(script));
}

void FakeBatchServer::AddFailedConnection(absl::Status status) {
  MutexLock lock(&state_->mutex);
  state_->scripts.push_back(std::move(status));
}

BatchStream::Connect FakeBatchServer::connect() {
  return [state = state_](size_t server, const FetchRequest& request)
             -> absl::StatusOr<std::unique_ptr<BatchFetcher>> {
    MutexLock lock(&state->mutex);
    state->requests.push_back(request);
    state->servers.push_back(server);
    if (state->scripts.empty()) {
      return absl::InternalError("no script for this connection");
    }
    auto script = std::move(state->scripts.front());
    state->scripts.pop_front();
    if (auto* status = std::get_if<absl::Status>(&script)) return *status;
    return std::make_unique<Fetcher>(
        std::get<std::vector<FakeEvent>>(std::move(script)), request, state);
  };
}

std::vector<FetchRequest> FakeBatchServer::requests() const {
  MutexLock lock(&state_->mutex);
  return state_->requests;
}

std::vector<size_t> FakeBatchServer::servers() const {
  MutexLock lock(&state_->mutex);
  return state_->servers;
}

uint64_t FakeBatchServer::held_bytes() const {
  MutexLock lock(&state_->mutex);
  return state_->held;
}

uint64_t FakeBatchServer::most_held_bytes() const {
  MutexLock lock(&state_->mutex);
  return state_->most_held;
}

void FakeBatchServer::OverwriteBlocks() {
  MutexLock lock(&state_->mutex);
  state_->overwritten = state_->delivered;
}

int FakeBatchServer::delivered() const {
  MutexLock lock(&state_->mutex);
  return state_->delivered;
}

void FakeBatchServer::AwaitDelivered(int blocks) {
  MutexLock lock(&state_->mutex);
  while (state_->delivered < blocks) state_->changed.Wait(&state_->mutex);
}

void FakeBatchServer::AwaitBlockedFetch() {
  MutexLock lock(&state_->mutex);
  while (
      std::none_of(state_->fetching.begin(), state_->fetching.end(),
                   [](const Fetcher* fetcher) { return !fetcher->Ready(); })) {
    state_->changed.Wait(&state_->mutex);
  }
}

}  // namespace ballast
