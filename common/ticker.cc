#include "common/ticker.h"

#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<Ticker>> Ticker::Start(
    absl::string_view purpose, Period period, std::function<void()> tick,
    Clock* clock) {
  std::unique_ptr<Ticker> ticker(
      new Ticker(std::move(period), std::move(tick), clock));
  try {
    ticker->thread_ = std::thread([t = ticker.get()] {
      while (t->sleeper_->Sleep(t->period_())) t->tick_();
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to ", purpose, ": ", error.what()));
  }
  return ticker;
}

Ticker::Ticker(Period period, std::function<void()> tick, Clock* clock)
    : period_(std::move(period)),
      tick_(std::move(tick)),
      sleeper_(clock->NewSleeper()) {}

Ticker::~Ticker() {
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
}

}  // namespace ballast
