#ifndef BALLAST_TESTS_CLIENT_BALLASTCTL_BALLASTCTL_FIXTURE_H_
#define BALLAST_TESTS_CLIENT_BALLASTCTL_BALLASTCTL_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "proto/block/block_plan.h"
#include "proto/block/block_view.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

inline constexpr uint64_t kStep = 5;

// A scripted server, and the commands run against it.
class BallastctlTest : public ::testing::Test {
 protected:
  BallastctlTest() {
    v1::AttachResponse attach;
    attach.set_server("a.sock");
    attach.mutable_fingerprint()->set_hash(kSyntheticFingerprint);
    *attach.mutable_job() = SyntheticJobMessage(job_);
    attach.mutable_job()->mutable_model()->set_profile("qwen2_vl");
    geometry_ = {attach.job().model().patch(),
                 attach.job().model().position_axes()};
    server_->SetAttach(attach);
    server_->SetSchedule(
        [job = job_](uint64_t step) { return SyntheticSchedule(job, step); });
  }

  // The block that the schedule describes; all payload bytes are 7.
  std::vector<uint8_t> Block(uint64_t step, uint32_t micro_batch) {
    auto plan = PlanBlock(SyntheticSchedule(job_, step), micro_batch, role_,
                          job_.delivery, geometry_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<uint8_t> block(plan->bytes(), 7);
    WriteBlockTables(*plan, absl::MakeSpan(block));
    MarkPlaceholder(*plan, 0, absl::MakeSpan(block));
    return block;
  }

  FakeLoaderServer::PullScript ServeSteps(uint64_t steps) {
    return [this, steps](FakePull* pull) {
      for (uint64_t s = kStep; s < kStep + steps; ++s) {
        for (uint32_t m = 0; m < MicroBatchesOf(job_, s); ++m) {
          pull->SendBlock(s, m, Block(s, m));
        }
      }
      return absl::OkStatus();
    };
  }

  absl::Status Pull(uint64_t steps, bool as_json) {
    PullOptions options;
    options.role = role_;
    options.step = kStep;
    options.steps = steps;
    options.json = as_json;
    out_.str("");
    options.failover.silent_after = absl::InfiniteDuration();
    options.failover.slow_after = absl::InfiniteDuration();
    LoaderClient* const servers[] = {client_.get()};
    return PullBatches(servers, options, &clock_, &out_);
  }

  // `ballastctl status` with one snapshot, so without rates.
  absl::Status Status(bool as_json) {
    StatusOptions options;
    options.interval = absl::ZeroDuration();
    options.json = as_json;
    return PrintStatus(client_.get(), &metrics_, options, &clock_, &out_);
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    return lines;
  }

  // Step 5 has three micro-batches and step 6 one.
  SyntheticJob job_ = {.dynamic = true};
  v1::Role role_ = [] {
    v1::Role role;
    role.set_module(v1::MODULE_VISION);
    role.set_dp_rank(1);
    return role;
  }();
  BlockGeometry geometry_;
  ManualClock clock_;
  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
  QueryClient metrics_{server_->address()};
  std::ostringstream out_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_CLIENT_BALLASTCTL_BALLASTCTL_FIXTURE_H_
