// Whole jobs whose images travel encoded, from tar files to packed batches:
// equal to the byte to those of jobs whose images the servers decode.

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/fakes/test_cluster.h"
#include "tests/integration/encoded_job.h"
#include "tests/integration/resized_models.h"
#include "trainer_shim/batch_info.h"

namespace ballast {
namespace {

constexpr uint64_t kEncodedSteps = 3;

// Numbers of a vision job's owned images by how they travelled, and of its
// placeholders.
struct Counts {
  uint64_t encoded = 0;
  uint64_t pixels = 0;
  uint64_t placeholders = 0;
};

TestCluster::Batches RunSteps(const TestCluster& cluster, uint64_t step = 0,
                              const TrainerPlace& place = {}) {
  auto batches = cluster.RunRanks(step, kEncodedSteps, {}, place);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return batches.ok() ? *std::move(batches) : TestCluster::Batches();
}

Counts ExpectEqual(const TestCluster::Batches& encoded,
                   const TestCluster::Batches& pixels) {
  Counts counts;
  EXPECT_FALSE(pixels.empty());
  EXPECT_EQ(encoded.size(), pixels.size());
  for (const auto& [key, want] : pixels) {
    const auto found = encoded.find(key);
    if (found == encoded.end()) {
      ADD_FAILURE() << "no batch of step " << want.step;
      continue;
    }
    const PackedBatch& got = found->second;
    EXPECT_EQ(ComputeDigest(got), ComputeDigest(want))
        << "step " << want.step << " micro-batch " << want.micro_batch
        << " module " << want.role.module() << " rank " << want.role.dp_rank();
    EXPECT_EQ(got.samples.size(), want.samples.size());
    for (size_t i = 0; i < want.samples.size(); ++i) {
      EXPECT_EQ(got.samples[i].name, want.samples[i].name);
      EXPECT_EQ(got.samples[i].placeholder, want.samples[i].placeholder);
      counts.placeholders += want.samples[i].placeholder;
    }
    EXPECT_TRUE(
        want.schedule->micro_batches(want.micro_batch).encoded_bytes().empty());
    const auto& column =
        got.schedule->micro_batches(got.micro_batch).encoded_bytes();
    for (const uint32_t bytes : column) {
      (bytes != 0 ? counts.encoded : counts.pixels) += 1;
    }
  }
  return counts;
}

Counts ExpectSameBatches(const EncodedJob& job, const std::string& directory) {
  const auto device =
      TestCluster::Start(GetConfig(job, directory, "device"), job.servers);
  const auto host =
      TestCluster::Start(GetConfig(job, directory, "host"), job.servers);
  if (!device.ok() || !host.ok()) {
    ADD_FAILURE() << device.status() << host.status();
    return {};
  }
  return ExpectEqual(RunSteps(**device), RunSteps(**host));
}

class EncodedImagesTest
    : public ::testing::TestWithParam<
          std::tuple<std::tuple<uint32_t, uint32_t>, const char*>> {};

TEST_P(EncodedImagesTest, SameBatchesAsDecodedOnTheHost) {
  EncodedJob job;
  std::tie(job.vision_dp, job.language_dp) = std::get<0>(GetParam());
  job.delivery = std::get<1>(GetParam());
  job.servers = job.vision_dp % 2 == 0 ? 2 : 1;
  const Counts counts = ExpectSameBatches(job, MixedJpegs());
  EXPECT_GT(counts.encoded, 0u);
  EXPECT_GT(counts.pixels, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, EncodedImagesTest,
    ::testing::Combine(
        ::testing::Values(std::make_tuple(1u, 1u), std::make_tuple(2u, 2u),
                          std::make_tuple(4u, 2u)),
        ::testing::Values("off", "direct", "exchange", "hybrid")));

// Servers decode the images that are not in the share, to the same bytes.
TEST(EncodedImagesTest, SharesOfTheImages) {
  uint64_t before = 0;
  for (const char* share : {"0", "0.3", "0.7", "1"}) {
    for (const char* delivery : {"direct", "exchange", "hybrid"}) {
      SCOPED_TRACE(absl::StrCat(share, " ", delivery));
      EncodedJob job;
      job.vision_dp = 4;
      job.language_dp = 2;
      job.servers = 2;
      job.delivery = delivery;
      const auto host = GetConfig(job, MixedJpegs(), "host");
      const auto device = GetConfig(
          job, MixedJpegs(), absl::StrCat("device, device_share: ", share));
      const auto shared = TestCluster::Start(device, job.servers);
      const auto pixels = TestCluster::Start(host, job.servers);
      ASSERT_TRUE(shared.ok() && pixels.ok())
          << shared.status() << pixels.status();
      const Counts counts = ExpectEqual(RunSteps(**shared), RunSteps(**pixels));
      if (share == absl::string_view("0")) {
        EXPECT_EQ(counts.encoded, 0u);
      } else if (delivery == absl::string_view("direct")) {
        EXPECT_GT(counts.encoded, before);
        before = counts.encoded;
      }
    }
  }
}

TEST(EncodedImagesTest, OtherResizes) {
  for (const std::string& model : ResizedModels()) {
    SCOPED_TRACE(model);
    EncodedJob job;
    job.vision_dp = job.language_dp = 2;
    job.model = model;
    EXPECT_GT(ExpectSameBatches(job, MixedJpegs()).encoded, 0u);
  }
}

TEST(EncodedImagesTest, DamagedFiles) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  const Counts counts = ExpectSameBatches(job, DamagedJpegs());
  EXPECT_GT(counts.encoded, 0u);
  EXPECT_GT(counts.pixels, 0u);
  EXPECT_GT(counts.placeholders, 0u);
}

TEST(EncodedImagesTest, DummyImagesAndRanksWithoutImages) {
  EncodedJob job;
  job.vision_dp = 4;
  job.language_dp = 2;
  job.balance = ", align_images: true";
  EXPECT_GT(ExpectSameBatches(job, FewJpegs()).encoded, 0u);
}

TEST(EncodedImagesTest, ScheduledPacking) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  job.more = "packing: {mode: scheduled, max_tokens_per_rank: 4096}\n";
  EXPECT_GT(ExpectSameBatches(job, MixedJpegs()).encoded, 0u);
}

TEST(EncodedImagesTest, Windows) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  job.balance = ", scope: window, window: 2";
  EXPECT_GT(ExpectSameBatches(job, MixedJpegs()).encoded, 0u);
}

TEST(EncodedImagesTest, TensorAndContextPeers) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  job.layout = ", tp: 2, cp: 2";
  const auto device =
      TestCluster::Start(GetConfig(job, MixedJpegs(), "device"));
  const auto host = TestCluster::Start(GetConfig(job, MixedJpegs(), "host"));
  ASSERT_TRUE(device.ok() && host.ok()) << device.status() << host.status();
  for (uint32_t tp = 0; tp < 2; ++tp) {
    for (uint32_t cp = 0; cp < 2; ++cp) {
      TrainerPlace place;
      place.tp_rank = tp;
      place.cp_rank = cp;
      ExpectEqual(RunSteps(**device, 0, place), RunSteps(**host, 0, place));
    }
  }
}

// Flips a bit of every larger JPEG in the tar, behind the bytes that an index
// without checks covers, and keeps the tar's length and time.
void ChangeFiles(const std::string& path) {
  struct stat before = {};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes(before.st_size, 0);
  file.read(bytes.data(), bytes.size());
  constexpr size_t kBlock = 512;
  int changed = 0;
  for (size_t at = 0; at + kBlock <= bytes.size() && bytes[at] != 0;) {
    const std::string name = bytes.c_str() + at;
    const size_t size = std::stoull(bytes.substr(at + 124, 11), nullptr, 8);
    at += kBlock;
    if (absl::EndsWith(name, ".jpg") && size > 6000) {
      file.seekp(at + 5000);
      file.put(static_cast<char>(bytes[at + 5000] ^ 0x10));
      ++changed;
    }
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
  file.close();
  EXPECT_GT(changed, 5);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// Each changed sample is a placeholder in both modes.
TEST(EncodedImagesTest, FilesThatChangeAfterIndexing) {
  const std::string directory = DatasetDirectory("changing", {});
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  const auto device = TestCluster::Start(GetConfig(job, directory, "device"));
  const auto host = TestCluster::Start(GetConfig(job, directory, "host"));
  ASSERT_TRUE(device.ok() && host.ok()) << device.status() << host.status();
  ChangeFiles(directory + "/docs-0.tar");
  const Counts counts =
      ExpectEqual(RunSteps(**device, 40), RunSteps(**host, 40));
  EXPECT_GT(counts.encoded, 0u);
  EXPECT_GT(counts.placeholders, 0u);
}

}  // namespace
}  // namespace ballast
