#include "server/serve/monitor/balance_board.h"

#include <future>

#include <gtest/gtest.h>

#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

// A change of the job may alter a step that nobody has reached.
TEST(BalanceBoardTest, ABalanceThatIsLookedAtIsNotKept) {
  const v1::Config config = JobConfig(2, 2, 16, 8);
  const FakeSourceIndex index{FormulaSamples(97)};
  const std::unique_ptr<Scheduler> scheduler = *Scheduler::Create(
      config, std::vector<const SourceIndex*>(config.sources_size(), &index));
  ManualClock clock;
  const std::shared_ptr<Loader> loader =
      *Loader::Create(config, 4, scheduler.get(),
                      std::make_unique<FakeSampleBuilder>(), &clock);
  const auto board =
      BalanceBoard::Create(loader.get(), *FindServersOfRanks(config),
                           GetGeometry(scheduler->job()));
  std::promise<absl::Status> answered;
  board->Get(3, [&](absl::StatusOr<BalanceBoard::Shared> balance) {
    answered.set_value(balance.status());
  });
  const absl::Status status = answered.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(board->Find(3), nullptr);
}

}  // namespace
}  // namespace ballast
