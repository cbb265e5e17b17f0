#include "client/failover_flags.h"

#include <cstdint>

#include "absl/time/time.h"

namespace ballast {
namespace {

constexpr uint64_t kMostSeconds = 1'000'000;

}  // namespace

void AddFailoverFlags(Command* command, FailoverOptions* options) {
  command
      ->AddWholeNumber(
          "--wait-for-server",
          [options](uint64_t seconds) {
            options->start_patience = absl::Seconds(seconds);
          },
          "seconds to wait at the start for the first server to "
          "answer",
          0, kMostSeconds)
      .ShowDefault("60");
  command
      ->AddWholeNumber(
          "--hang-after",
          [options](uint64_t seconds) {
            options->silent_after = absl::Seconds(seconds);
            options->slow_after = 4 * options->silent_after;
          },
          "seconds without a byte from a server that may send, then "
          "the next one goes on; four times that for a block",
          1, kMostSeconds)
      .ShowDefault("30");
  command
      ->AddWholeNumber(
          "--give-up-after",
          [options](uint64_t seconds) {
            options->patience = absl::Seconds(seconds);
          },
          "seconds without anything from any server, then the run "
          "ends",
          1, kMostSeconds)
      .ShowDefault("300");
}

}  // namespace ballast
