#include "server/serve/monitor/balance_board.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "common/log.h"
#include "proto/image/engine_jpeg.h"

namespace ballast {

v1::GetStatusResponse::EncodedImages GetEncodedImages(
    const std::string& source, const ImageMarkCounts& counts) {
  v1::GetStatusResponse::EncodedImages images;
  images.set_source(source);
  images.set_images(counts.images);
  images.set_clean(counts.with(ImageCheckResult::kClean));
  images.set_unsound(counts.with(ImageCheckResult::kUnsound));
  images.set_changed(counts.with(ImageCheckResult::kChanged));
  images.set_unchecked(counts.with(ImageCheckResult::kUnchecked));
  for (size_t i = 0; i < counts.refusals.size(); ++i) {
    if (counts.refusals[i] == 0) continue;
    auto* const refusal = images.add_refusals();
    refusal->set_reason(
        i == 0 ? "not judged"
               : std::string(EngineRefusalText(static_cast<EngineRefusal>(i))));
    refusal->set_images(counts.refusals[i]);
  }
  return images;
}

namespace {

uint64_t CountRanks(const v1::StepBalance& balance) {
  uint64_t ranks = 0;
  for (const v1::ModuleBalance& module : balance.modules()) {
    ranks += module.load_after_size();
  }
  return ranks;
}

void Add(const v1::Moved& moved, v1::Moved* sum) {
  sum->set_samples(sum->samples() + moved.samples());
  sum->set_bytes(sum->bytes() + moved.bytes());
}

}  // namespace

std::shared_ptr<BalanceBoard> BalanceBoard::Create(
    Loader* loader, ServersOfRanks servers, const BlockGeometry& geometry,
    uint64_t pack_room) {
  std::shared_ptr<BalanceBoard> board(
      new BalanceBoard(loader, std::move(servers), geometry, pack_room));
  loader->WatchSteps(
      [weak = std::weak_ptr<BalanceBoard>(board)](uint64_t step) {
        const auto board = weak.lock();
        if (board != nullptr) board->OnStep(step);
      });
  return board;
}

BalanceBoard::Shared BalanceBoard::Find(uint64_t step) const {
  MutexLock lock(&mutex_);
  for (const Shared& kept : kept_) {
    if (kept->step() == step) return kept;
  }
  return nullptr;
}

void BalanceBoard::Get(uint64_t step, Answer answer) {
  loader_->PeekSchedule(step, Measure(std::move(answer)));
}

Loader::ScheduleAnswer BalanceBoard::Measure(Answer answer) {
  return [self = shared_from_this(), answer = std::move(answer)](
             const absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>&
                 schedule) {
    if (!schedule.ok()) {
      answer(schedule.status());
      return;
    }
    auto measured = std::make_shared<v1::StepBalance>(
        GetBalance(**schedule, self->servers_, self->geometry_));
    measured->set_pack_room(self->pack_room_ * measured->micro_batches());
    answer(Shared(std::move(measured)));
  };
}

BalanceBoard::Shared BalanceBoard::Current() const {
  MutexLock lock(&mutex_);
  return current_;
}

std::vector<BalanceBoard::Shared> BalanceBoard::History() const {
  MutexLock lock(&mutex_);
  return std::vector<Shared>(history_.begin(), history_.end());
}

std::map<v1::Module, BalanceBoard::Sums> BalanceBoard::sums() const {
  MutexLock lock(&mutex_);
  return sums_;
}

void BalanceBoard::SetListener(std::function<void(uint64_t step)> on_step) {
  MutexLock lock(&mutex_);
  listener_ = std::move(on_step);
}

void BalanceBoard::OnStep(uint64_t step) {
  // Not queued after the watchers' tasks: the sums count every step as fast as
  // ranks take them.
  loader_->GetSchedule(
      step, Measure([this](const absl::StatusOr<Shared>& balance) {
        if (balance.ok()) {
          Reach(*balance);
        } else {
          LogWarning("cannot show the balance: ", balance.status().message());
        }
      }));
}

void BalanceBoard::Reach(const Shared& balance) {
  auto sums_only = std::make_shared<v1::StepBalance>(*balance);
  DropRanks(sums_only.get());
  const std::optional<uint64_t> at = loader_->stats().current_step;
  std::function<void(uint64_t)> listener;
  {
    MutexLock lock(&mutex_);
    Keep(balance);
    // Two workers may come in another order than their steps.
    const bool is_late = current_ != nullptr &&
                         balance->step() < current_->step() &&
                         at.value_or(UINT64_MAX) >= current_->step();
    if (!is_late) {
      current_ = balance;
      // Ranks that restarted at an earlier step go through the same steps
      // again.
      while (!history_.empty() && history_.back()->step() >= balance->step()) {
        history_.pop_back();
      }
      history_.push_back(std::move(sums_only));
      if (history_.size() > kHistory) history_.pop_front();
    }
    for (const v1::ModuleBalance& module : balance->modules()) {
      Sums& sums = sums_[module.module()];
      sums.samples += module.samples();
      sums.bytes += module.bytes();
      Add(module.within_servers(), &sums.within_servers);
      Add(module.between_servers(), &sums.between_servers);
    }
    listener = listener_;
  }
  if (listener != nullptr) listener(balance->step());
}

void BalanceBoard::Keep(const Shared& balance) {
  for (const Shared& kept : kept_) {
    if (kept->step() == balance->step()) return;
  }
  kept_.push_front(balance);
  kept_ranks_ += CountRanks(*balance);
  while (kept_.size() > kKept ||
         (kept_.size() > 1 && kept_ranks_ > kKeptRanks)) {
    kept_ranks_ -= CountRanks(*kept_.back());
    kept_.pop_back();
  }
}

}  // namespace ballast
