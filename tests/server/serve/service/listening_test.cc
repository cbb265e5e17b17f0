#include "server/serve/service/listening.h"


#include <atomic>
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

absl::Status Check(const std::string& address, bool tls, bool tokens,
                   bool insecure) {
  v1::Security security;
  if (tls) security.mutable_tls()->set_client_ca("ca.pem");
  if (tokens) security.set_tokens_file("tokens");
  security.set_insecure(insecure);
  return CheckListen(address, security);
}

TEST(ListenAddressTest, RefusesToServeOtherMachinesUnsecured) {
  for (const char* address : {"unix:/run/a.sock", "127.0.0.1:0", "127.1.2.3:70",
                              "localhost:7070", "[::1]:7"}) {
    EXPECT_TRUE(Check(address, false, false, false).ok()) << address;
  }
  for (const char* address :
       {"0.0.0.0:7070", "[::]:7070", "node1:7070", "127.0.0.1.example:7070"}) {
    const absl::Status status = Check(address, false, false, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("serve.listen"), HasSubstr(address),
                      HasSubstr("security.tls"), HasSubstr("insecure")));
    EXPECT_TRUE(Check(address, false, false, true).ok()) << address;
    EXPECT_TRUE(Check(address, true, false, false).ok()) << address;
  }
  for (const char* address : {"", "unix:", "7070", ":7070"}) {
    EXPECT_EQ(Check(address, true, false, true).code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(ListenAddressTest, TokensNeedTlsOrASocket) {
  EXPECT_TRUE(Check("unix:/run/a.sock", false, true, false).ok());
  EXPECT_TRUE(Check("127.0.0.1:0", true, true, false).ok());
  for (const bool insecure : {false, true}) {
    EXPECT_FALSE(Check("127.0.0.1:0", false, true, insecure).ok());
    EXPECT_FALSE(Check("0.0.0.0:0", false, true, insecure).ok());
  }
}

}  // namespace
}  // namespace ballast
