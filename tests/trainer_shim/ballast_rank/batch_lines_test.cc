#include "trainer_shim/ballast_rank/report.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(BatchLineTest, NamesEveryKey) {
  PackedBatch batch;
  batch.step = 7;
  batch.micro_batch = 1;
  batch.role.set_module(v1::MODULE_LANGUAGE);
  batch.role.set_dp_rank(3);
  batch.samples.resize(2);
  batch.samples[0].name = "docs:5";
  batch.samples[1].name = "chat:9";
  batch.samples[1].placeholder = true;
  batch.totals.tokens = 10;
  batch.totals.padded_tokens = 12;
  batch.totals.images = 2;
  batch.totals.patches = 80;
  batch.bytes_read = 4096;
  batch.bytes_moved = 256;
  EXPECT_EQ(BatchLine(batch, absl::Milliseconds(2.5)),
            "{\"step\":7,\"micro_batch\":1,\"module\":\"language\","
            "\"dp_rank\":3,\"samples\":[\"docs:5\",\"chat:9\"],"
            "\"placeholders\":1,\"tokens\":10,\"padded_tokens\":12,"
            "\"images\":2,\"patches\":80,\"digest\":\"" +
                ComputeDigest(batch) +
                "\",\"bytes_read\":4096,\"bytes_moved\":256,"
                "\"next_ms\":2.5}");
}

TEST(BatchLineTest, NamesThePlaceOnlyIfAnyRankIsNotZero) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("_rank\":0,\"pp_rank"),
            std::string::npos);
  batch.place.cp_rank = 3;
  EXPECT_NE(
      BatchLine(batch, {}).find("\"tp_rank\":0,\"pp_rank\":0,\"cp_rank\":3"),
      std::string::npos);
}

TEST(BatchLineTest, NamesADummyImageOnlyIfThereIsOne) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("dummy_image"), std::string::npos);
  batch.dummy_image = true;
  EXPECT_NE(BatchLine(batch, {}).find("\"dummy_image\":true"),
            std::string::npos);
}

TEST(BatchLineTest, CountsVideosOnlyIfThereAreAny) {
  PackedBatch batch;
  EXPECT_EQ(BatchLine(batch, {}).find("videos"), std::string::npos);
  batch.totals.videos = 3;
  EXPECT_NE(BatchLine(batch, {}).find("\"videos\":3"), std::string::npos);
}

TEST(InterleavedLinesTest, OrderDoesNotDependOnRanksPace) {
  std::ostringstream out;
  InterleavedLines lines(3, &out);
  lines.Add(2, "c1");
  lines.Add(1, "b1");
  lines.Add(2, "c2");
  EXPECT_EQ(out.str(), "");
  lines.Add(0, "a1");
  EXPECT_EQ(out.str(), "a1\nb1\nc1\n");
  lines.Add(0, "a2");
  lines.Add(1, "b2");
  EXPECT_EQ(out.str(), "a1\nb1\nc1\na2\nb2\nc2\n");
}

}  // namespace
}  // namespace ballast
