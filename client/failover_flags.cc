#include "client/failover_flags.h"

#include <cstdint>

#include "absl/time/time.h"
#include "common/option_types.h"

namespace ballast {
namespace {

constexpr uint64_t kMostSeconds = 1'000'000;

}  // namespace

void AddFailoverFlags(CLI::App* app, FailoverOptions* options) {
  WholeNumber(app->add_option_function<uint64_t>(
                     "--wait-for-server",
                     [options](uint64_t seconds) {
                       options->start_patience = absl::Seconds(seconds);
                     },
                     "seconds to wait at the start for the first server to "
                     "answer")
                  ->default_str("0"),
              0, kMostSeconds);
  WholeNumber(app->add_option_function<uint64_t>(
                     "--hang-after",
                     [options](uint64_t seconds) {
                       options->silent_after = absl::Seconds(seconds);
                       options->slow_after = 4 * options->silent_after;
                     },
                     "seconds without a byte from a server that may send, then "
                     "the next one goes on; four times that for a block")
                  ->default_str("30"),
              1, kMostSeconds);
  WholeNumber(app->add_option_function<uint64_t>(
                     "--give-up-after",
                     [options](uint64_t seconds) {
                       options->patience = absl::Seconds(seconds);
                     },
                     "seconds without anything from any server, then the run "
                     "ends")
                  ->default_str("300"),
              1, kMostSeconds);
}

}  // namespace ballast
