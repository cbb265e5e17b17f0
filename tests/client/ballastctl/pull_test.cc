// `pull` against a scripted server.
#include <string>
#include <vector>

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "tests/client/ballastctl/ballastctl_fixture.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(BallastctlTest, PullPrintsTheScheduledBlocks) {
  server_->AddPull(ServeSteps(2));
  const absl::Status status = Pull(2, true);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 4);
  for (size_t i = 0; i < lines.size(); ++i) {
    const uint64_t step = kStep + i / 3;
    const uint32_t micro_batch = i % 3;
    const std::vector<uint8_t> block = Block(step, micro_batch);
    const v1::StepSchedule schedule = SyntheticSchedule(job_, step);
    const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
    uint64_t samples = 0, images = 0, tokens = 0, label_tokens = 0;
    for (int s = 0; s < columns.tokens_size(); ++s) {
      if (columns.modules(0).reader(s) != role_.dp_rank()) continue;
      ++samples;
      images += columns.images(s);
      tokens += columns.tokens(s);
      label_tokens += columns.label_tokens(s);
    }
    EXPECT_EQ(
        json::parse(lines[i]),
        (json{{"step", step},
              {"micro_batch", micro_batch},
              {"samples", samples},
              {"images", images},
              {"tokens", tokens},
              {"label_tokens", label_tokens},
              {"bytes", block.size()},
              {"xxh3", absl::StrFormat(
                           "%016x", XXH3_64bits(block.data(), block.size()))},
              {"placeholders", 1},
              {"wait_ms", 0.0}}));
  }
}

TEST_F(BallastctlTest, PullForPeople) {
  server_->AddPull(ServeSteps(1));
  ASSERT_TRUE(Pull(1, false).ok());
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1 + 3);
  EXPECT_THAT(lines[0], HasSubstr("placeholders"));
  EXPECT_EQ(lines[0].size(), lines[1].size());
}

TEST_F(BallastctlTest, PullContinuesWithTheNextServer) {
  server_->AddPull(ServeSteps(2));
  ASSERT_TRUE(Pull(2, true).ok());
  const std::vector<std::string> undisturbed = Lines();

  // The first server dies within step 5, after it has returned the schedule.
  server_->AddPull([this](FakePull* pull) {
    pull->SendBlock(kStep, 0, Block(kStep, 0));
    pull->SendBlock(kStep, 1, Block(kStep, 1));
    return absl::UnavailableError("dies");
  });
  const auto other = FakeLoaderServer::Start();
  other->SetAttach(LoaderClient::Create(server_->address())->Attach({}, {}));
  other->SetSchedule(
      [this](uint64_t step) { return SyntheticSchedule(job_, step); });
  other->AddPull([this](FakePull* pull) {
    EXPECT_EQ(pull->open().step(), kStep);
    EXPECT_EQ(pull->open().micro_batch(), 2u);
    EXPECT_EQ(pull->open().steps(), 2u);
    pull->SendBlock(kStep, 2, Block(kStep, 2));
    pull->SendBlock(kStep + 1, 0, Block(kStep + 1, 0));
    return absl::OkStatus();
  });
  const auto other_client = LoaderClient::Create(other->address());
  LoaderClient* const servers[] = {client_.get(), other_client.get()};
  PullOptions options;
  options.role = role_;
  options.step = kStep;
  options.steps = 2;
  options.json = true;
  out_.str("");
  const absl::Status status = PullBatches(servers, options, &clock_, &out_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Lines(), undisturbed);
}

TEST_F(BallastctlTest, PullRefusesABlockOfAnotherSchedule) {
  server_->AddPull([this](FakePull* pull) {
    std::vector<uint8_t> block = Block(kStep, 0);
    reinterpret_cast<BlockHeader*>(block.data())->micro_batches = 2;
    pull->SendBlock(kStep, 0, block);
    pull->AwaitGone();
    return absl::OkStatus();
  });
  const absl::Status status = Pull(1, true);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("server " + server_->address() +
                        ": step 5 micro-batch 0: block differs from its "
                        "schedule: micro_batches is 2, wanted 3"));
}

TEST_F(BallastctlTest, PullRefusesBytesThatAreNotABlock) {
  server_->AddPull([](FakePull* pull) {
    pull->SendBlock(kStep, 0, std::vector<uint8_t>(500, 1));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(Pull(1, true).message()), HasSubstr("block: magic"));
}

TEST_F(BallastctlTest, PullReportsWhyItWasRefused) {
  server_->SetAttach(absl::InvalidArgumentError("vision has 2 ranks"));
  EXPECT_THAT(std::string(Pull(1, true).message()),
              HasSubstr("vision has 2 ranks"));
}

}  // namespace
}  // namespace ballast
