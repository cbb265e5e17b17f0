#include "server/config/topology.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Config WithDp(uint32_t vision, uint32_t language) {
  v1::Config config;
  auto& modules = *config.mutable_topology()->mutable_modules();
  if (vision != 0) modules["vision"].set_dp(vision);
  if (language != 0) modules["language"].set_dp(language);
  return config;
}

TEST(Grid, IsTheLeastCommonMultiple) {
  EXPECT_EQ(Grid(WithDp(1, 1).topology()), 1u);
  EXPECT_EQ(Grid(WithDp(1, 2).topology()), 2u);
  EXPECT_EQ(Grid(WithDp(4, 2).topology()), 4u);
  EXPECT_EQ(Grid(WithDp(2, 3).topology()), 6u);
  EXPECT_EQ(Grid(WithDp(0, 8).topology()), 8u);
  EXPECT_EQ(Grid(WithDp(65536, 65535).topology()), 65536u * 65535u);
}

TEST(Modules, VisionComesFirst) {
  EXPECT_THAT(Modules(WithDp(2, 4)),
              ElementsAre(v1::MODULE_VISION, v1::MODULE_LANGUAGE));
  EXPECT_THAT(Modules(WithDp(0, 4)), ElementsAre(v1::MODULE_LANGUAGE));
}

TEST(DpSize, IsZeroForAModuleThatIsNotConfigured) {
  EXPECT_EQ(DpSize(WithDp(2, 4), v1::MODULE_VISION), 2u);
  EXPECT_EQ(DpSize(WithDp(2, 4), v1::MODULE_LANGUAGE), 4u);
  EXPECT_EQ(DpSize(WithDp(0, 4), v1::MODULE_VISION), 0u);
}

// Expected values from Megatron-LM's datasets.
TEST(PackAlign, FollowsContextAndSequenceParallelism) {
  struct Case {
    uint32_t cp, tp;
    bool sequence_parallel;
    uint32_t want;
  };
  for (const Case& c :
       {Case{1, 1, false, 1}, Case{1, 4, false, 1}, Case{1, 4, true, 4},
        Case{2, 4, false, 4}, Case{2, 2, true, 8}, Case{4, 4, true, 32}}) {
    v1::Config config = WithDp(1, 1);
    auto& language =
        (*config.mutable_topology()->mutable_modules())["language"];
    language.set_cp(c.cp);
    language.set_tp(c.tp);
    language.set_sequence_parallel(c.sequence_parallel);
    EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), c.want)
        << c.cp << " " << c.tp << " " << c.sequence_parallel;
    EXPECT_EQ(PackAlign(config, v1::MODULE_VISION), 1u);
    config.mutable_packing()->set_align(16);
    EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), 16u);
  }
}

TEST(FindServerOfRank, FollowsTheListsOfTheServers) {
  v1::Config config = WithDp(4, 2);
  config.mutable_topology()->add_servers();
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_VISION), ElementsAre());
  config.mutable_topology()->clear_servers();
  for (const char* ranks : {"0,3", "1-2"}) {
    auto& server = *config.mutable_topology()->add_servers();
    (*server.mutable_ranks())["vision"] = ranks;
  }
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_VISION),
              ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_LANGUAGE),
              ElementsAre(0, 0));
  (*config.mutable_topology()->mutable_servers(1)->mutable_ranks())["vision"] =
      "1-4";
  EXPECT_EQ(
      FindServerOfRank(config, v1::MODULE_VISION).status(),
      absl::InvalidArgumentError("topology.servers[1].ranks.vision: found "
                                 "rank 4; wanted ranks below 4"));
}

TEST(FindServer, MatchesTheListenAddresses) {
  v1::Config config;
  config.mutable_topology()->add_servers()->set_address("unix:/a");
  EXPECT_EQ(FindServer(config, {"127.0.0.1:0"}).value(), 0u);
  config.mutable_topology()->add_servers()->set_address("node-b:7070");
  EXPECT_EQ(FindServer(config, {"unix:/z", "node-b:7070"}).value(), 1u);

  const absl::Status none = FindServer(config, {"unix:/z"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("unix:/z"), HasSubstr("unix:/a, node-b:7070")));
  EXPECT_EQ(FindServer(config, {"unix:/a", "node-b:7070"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
