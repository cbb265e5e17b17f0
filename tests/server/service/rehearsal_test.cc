#include "server/service/rehearsal.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RehearsalTest : public ::testing::Test {
 protected:
  RehearsalTest() {
    auto builder = std::make_unique<FakeSampleBuilder>();
    builder_ = builder.get();
    auto loader =
        Loader::Create(config_, 4, scheduler_.get(), std::move(builder));
    EXPECT_TRUE(loader.ok()) << loader.status();
    loader_ = *std::move(loader);
  }

  static v1::Role Role(v1::Module module, uint32_t rank) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    return role;
  }

  // Steps of 16 samples in micro-batches of 8, dp 2.
  const v1::Config config_ = JobConfig(2, 2, 16, 8);
  const FakeSourceIndex index_{FormulaSamples(97)};
  const std::unique_ptr<Scheduler> scheduler_ =
      *Scheduler::Create(config_, {&index_});
  FakeSampleBuilder* builder_ = nullptr;
  std::shared_ptr<Loader> loader_;
};

TEST_F(RehearsalTest, BuildsTheFirstBlocksAndReleasesThem) {
  const absl::Status status =
      Rehearse(loader_.get(),
               {Role(v1::MODULE_VISION, 0), Role(v1::MODULE_LANGUAGE, 1)});
  EXPECT_TRUE(status.ok()) << status;
  // Half of micro-batch 0 for each role; nothing beyond it is awaited.
  EXPECT_GE(builder_->builds(), 8u);
  EXPECT_LT(*builder_->begun().begin(), 8u);
  EXPECT_EQ(loader_->open_streams(), 0u);
}

TEST_F(RehearsalTest, WaitsUntilTheBlocksAreBuilt) {
  builder_->ShutGate();
  std::atomic<bool> done = false;
  std::thread thread([&] {
    EXPECT_TRUE(Rehearse(loader_.get(), {Role(v1::MODULE_VISION, 0)}).ok());
    done = true;
  });
  builder_->AwaitWorking(1);
  EXPECT_FALSE(done);
  builder_->OpenGate();
  thread.join();
}

TEST_F(RehearsalTest, NamesTheBlockThatCannotBeBuilt) {
  for (uint64_t position = 0; position < 8; ++position) {
    builder_->FailAt(position);
  }
  const absl::Status status =
      Rehearse(loader_.get(), {Role(v1::MODULE_LANGUAGE, 1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the first block of language rank 1: "),
                    HasSubstr("told to fail")));
}

}  // namespace
}  // namespace ballast
