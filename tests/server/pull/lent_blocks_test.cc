// Blocks that a client reads in the server's shared memory while its Pull ends.

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "tests/server/service/loader_service_fixture.h"

namespace ballast {
namespace {

v1::Config ConfigWithArena() {
  v1::Config config = JobConfig(2, 2, 16, 8);
  config.mutable_serve()->set_arena(::testing::TempDir());
  return config;
}

class LentBlocksTest : public LoaderServiceFixture {
 protected:
  LentBlocksTest() : LoaderServiceFixture(ConfigWithArena()) {}

  // Opens a Pull of vision rank 0, maps the arena and gets the first block.
  // `steps` of 0: without an end.
  v1::PullResponse::Shared Borrow(uint64_t steps) {
    v1::PullRequest request;
    v1::PullRequest::Open& open = *request.mutable_open();
    open.mutable_role()->set_module(v1::MODULE_VISION);
    open.set_steps(steps);
    open.set_fingerprint(fingerprint());
    open.set_credit(kPlenty);
    open.set_accepts_arena(true);
    pull_->Write(request);
    v1::PullResponse message;
    EXPECT_TRUE(pull_->Read(&message) && message.has_arena());
    request.mutable_mapped()->set_nonce(loader_->arena()->nonce);
    pull_->Write(request);
    EXPECT_TRUE(pull_->Read(&message) && message.has_shared());
    return message.shared();
  }

  void Return(const v1::PullResponse::Shared& block) {
    v1::PullRequest request;
    request.mutable_credit()->add_blocks(block.generation());
    pull_->Write(request);
  }

  grpc::ClientContext context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::PullRequest, v1::PullResponse>>
      pull_ = stub_->Pull(&context_);
};

// The error is told, and the call stays open for the block: only then does the
// server leave its memory alone.
TEST_F(LentBlocksTest, OutliveATransientFaultOfALaterBlock) {
  for (uint64_t position = 8; position < 16; ++position) {
    builder_->FailAt(position, absl::UnavailableError("Input/output error"));
  }
  const v1::PullResponse::Shared block = Borrow(/*steps=*/1);
  v1::PullResponse message;
  ASSERT_TRUE(pull_->Read(&message));
  ASSERT_TRUE(message.has_end()) << message.DebugString();
  EXPECT_EQ(message.end().code(),
            static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  Return(block);
  EXPECT_FALSE(pull_->Read(&message));
  EXPECT_EQ(pull_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A Pull that has sent all its steps lingers for its blocks, and no drain waits
// for it; this one is never through.
TEST_F(LentBlocksTest, DoNotHoldUpADrain) {
  Borrow(/*steps=*/0);
  loader_->Drain();
  v1::PullResponse message;
  while (pull_->Read(&message)) {
  }
  EXPECT_EQ(pull_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace ballast
