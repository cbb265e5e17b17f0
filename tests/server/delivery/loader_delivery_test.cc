// Roles that request direct delivery although the configuration has another.

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/block/block_view.h"
#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class LoaderDeliveryTest : public LoaderTesting {
 protected:
  static v1::Role RoleOf(v1::Module module, uint32_t rank,
                         v1::Delivery delivery) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    role.set_delivery(delivery);
    return role;
  }

  absl::Status Open(v1::Module module, uint32_t rank, v1::Delivery delivery) {
    return loader_->OpenStream(RoleOf(module, rank, delivery), 0, 0, 0, [] {})
        .status();
  }

  // Returns whether `block` is vision rank 0's under `delivery`.
  bool IsOf(const Block& block, v1::Delivery delivery) {
    const v1::Role role =
        RoleOf(v1::MODULE_VISION, 0, v1::DELIVERY_UNSPECIFIED);
    const auto plan = PlanBlock(
        *scheduler_->Schedule(block.id().step), block.id().micro_batch, role,
        DeliveryRule(delivery), {scheduler_->job().model().patch(), 3});
    return BlockView::Parse(block.bytes())->Matches(*plan).ok();
  }
};

// Alternates the two, so that a block kept from one is not returned for the
// other.
TEST_F(LoaderDeliveryTest, ARoleGetsTheRequestedDelivery) {
  bool differ = false;
  for (int round = 0; round < 2; ++round) {
    BlockingStream natural(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 2);
    BlockingStream direct(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 2,
                          v1::DELIVERY_DIRECT);
    for (int i = 0; i < 4; ++i) {
      const auto as_configured = natural.Next();
      const auto as_asked = direct.Next();
      ASSERT_TRUE(as_configured.ok()) << as_configured.status();
      ASSERT_TRUE(as_asked.ok()) << as_asked.status();
      EXPECT_TRUE(IsOf(**as_configured, v1::DELIVERY_EXCHANGE));
      EXPECT_TRUE(IsOf(**as_asked, v1::DELIVERY_DIRECT));
      differ |= !IsOf(**as_asked, v1::DELIVERY_EXCHANGE);
    }
  }
  EXPECT_TRUE(differ) << "the schedule moves nothing: the test shows nothing";
}

TEST_F(LoaderDeliveryTest, RanksOfAModuleMustRequestTheSameDelivery) {
  auto direct = std::make_unique<BlockingStream>(
      loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0, v1::DELIVERY_DIRECT);
  const absl::Status refused =
      Open(v1::MODULE_VISION, 1, v1::DELIVERY_UNSPECIFIED);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("vision rank 0"));
  EXPECT_THAT(refused.message(), HasSubstr("rank 1 exchanges"));
  EXPECT_TRUE(Open(v1::MODULE_VISION, 1, v1::DELIVERY_DIRECT).ok());
  EXPECT_TRUE(Open(v1::MODULE_LANGUAGE, 1, v1::DELIVERY_UNSPECIFIED).ok());

  direct.reset();
  BlockingStream natural(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 0);
  EXPECT_EQ(Open(v1::MODULE_VISION, 0, v1::DELIVERY_DIRECT).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LoaderDeliveryTest, RequestingTheConfiguredDeliveryHasNoEffect) {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  config.mutable_balance()->set_delivery(v1::DELIVERY_DIRECT);
  Start(config);
  BlockingStream silent(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  EXPECT_TRUE(Open(v1::MODULE_VISION, 1, v1::DELIVERY_DIRECT).ok());
}

TEST_F(LoaderDeliveryTest, RefusesAnyOtherDelivery) {
  const absl::Status refused =
      Open(v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("DELIVERY_EXCHANGE"));
}

}  // namespace
}  // namespace ballast
