#include "trainer_shim/ballast_rank/report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// What vision ranks have decoded after a round.
JpegEngineCounts DecodedBy(uint32_t rank, int round) {
  JpegEngineCounts decoded;
  if (rank >= 2) return decoded;
  decoded.by_hardware = 3 * (round + 1);
  decoded.by_host = rank * (round + 1);
  decoded.bytes = uint64_t{1} << 20;
  decoded.busy = absl::Milliseconds(3.5);
  return decoded;
}

TEST(ReportTest, SumsPerRankAndModule) {
  v1::StepSchedule schedule;
  auto* columns = schedule.add_micro_batches();
  std::vector<v1::Role> roles;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    auto* loads = columns->add_modules();
    loads->set_module(module);
    const double unit = module == v1::MODULE_VISION ? 1 : 0;
    for (const double load : {300, 100}) loads->add_load_before(unit * load);
    for (const double load : {210, 190}) loads->add_load_after(unit * load);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      roles.emplace_back().set_module(module);
      roles.back().set_dp_rank(rank);
    }
  }
  ManualClock clock;
  Report report(roles, &clock);
  for (int round = 0; round < 2; ++round) {
    for (uint32_t rank = 0; rank < roles.size(); ++rank) {
      PackedBatch batch;
      batch.role = roles[rank];
      batch.totals.samples = 8;
      batch.totals.images = 5 + rank % 2;
      batch.bytes_read = uint64_t{3} << 20;
      batch.bytes_moved = uint64_t{rank} << 19;
      clock.Advance(absl::Milliseconds(100));
      report.Add({rank, &batch, &schedule,
                  absl::Milliseconds(round == 0 ? 999 : 1 + rank),
                  DecodedBy(rank, round)});
    }
  }
  const std::string text = report.ToString(absl::Seconds(2));
  // rank, load before, load after, samples, images, read, moved.
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "vision +0 +600 +420 +16 +10 +6.0 MiB +0.0 MiB"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "vision +1 +200 +380 +16 +12 +6.0 MiB +1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("vision: heaviest rank over mean of a "
                              "micro-batch: 1.500 before, 1.050 after\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("language +1 +0 +0 +16 +12"));
  // Nothing has a cost for the language module, so it has no heaviest rank.
  EXPECT_THAT(text, ::testing::Not(HasSubstr("language: heaviest")));
  // Samples of one module, not of both.
  EXPECT_THAT(text, HasSubstr("32 samples, 22 images in 2.00 s: "
                              "16.0 samples/s, 11.0 images/s\n"));
  // From the fourth batch to the eighth: 11 images and 12 MiB in 0.4 s.
  EXPECT_THAT(text, HasSubstr("the later half, in 0.40 s: 27.5 images/s, "
                              "30.0 MiB/s read; Next took 2.00 ms in the "
                              "median, 3.00 ms at p99, 4.00 ms at most\n"));
  // The last counts of each rank: 12 and 2 images in 7 ms.
  EXPECT_THAT(text, HasSubstr("images that travelled encoded: 12 decoded by "
                              "JPEG engines, 2 by the CPU; 2.0 MiB of files, "
                              "0.50 ms an image\n"));
}

}  // namespace
}  // namespace ballast
