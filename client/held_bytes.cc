#include "client/held_bytes.h"

#include <algorithm>
#include <utility>

namespace ballast {

HeldBytes::Share::Share(std::shared_ptr<HeldBytes> account, uint64_t fetcher,
                        uint64_t bytes)
    : account_(std::move(account)), fetcher_(fetcher), bytes_(bytes) {
  MutexLock lock(&account_->mutex_);
  account_->held_ += bytes_;
  if (fetcher_ == account_->fetcher_) account_->held_of_fetcher_ += bytes_;
  account_->largest_block_ = std::max(account_->largest_block_, bytes_);
}

void HeldBytes::Share::Release() {
  const std::shared_ptr<HeldBytes> account = std::move(account_);
  if (account == nullptr) return;
  MutexLock lock(&account->mutex_);
  account->held_ -= bytes_;
  if (fetcher_ == account->fetcher_) account->held_of_fetcher_ -= bytes_;
  account->changed_.NotifyAll();
}

uint64_t HeldBytes::NextFetcher() {
  MutexLock lock(&mutex_);
  held_of_fetcher_ = 0;
  return ++fetcher_;
}

uint64_t HeldBytes::Allowance() {
  MutexLock lock(&mutex_);
  return AllowanceLocked();
}

bool HeldBytes::MaySend() {
  MutexLock lock(&mutex_);
  return largest_block_ <= AllowanceLocked();
}

bool HeldBytes::AwaitRoom() {
  MutexLock lock(&mutex_);
  while (!cancelled_ && held_ != held_of_fetcher_ && held_ >= max_bytes_) {
    changed_.Wait(&mutex_);
  }
  return !cancelled_;
}

void HeldBytes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

uint64_t HeldBytes::AllowanceLocked() const {
  if (held_of_fetcher_ == 0) return UINT64_MAX;
  return held_of_fetcher_ < max_bytes_ ? max_bytes_ - held_of_fetcher_ : 0;
}

}  // namespace ballast
