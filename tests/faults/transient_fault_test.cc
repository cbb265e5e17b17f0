// I/O errors and stale handles under running servers: no sample is lost or
// replaced, and the servers recover by themselves.

#include <errno.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/ballastctl/query_client.h"
#include "tests/fakes/faulty_files.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {
namespace {

constexpr uint32_t kSamples = 24;
constexpr uint64_t kSteps = kSamples / 4;

class TransientFaultTest : public ::testing::Test {
 protected:
  TransientFaultTest() {
    EXPECT_TRUE(WriteFormulaDataset(folder_ + "/docs-0.tar", kSamples).ok());
    TestJob job;
    job.batch = "global: 4, micro: 4";
    job.serve = ", prefetch_steps: 0, max_bad_samples: 0";
    job.more = "order: {shuffle: false}\n";
    cluster_ = StartCluster(ParseJob(job, folder_));
  }
  ~TransientFaultTest() override { HealFiles(); }

  // Digests of the batches of pass number `epoch` through the file, keyed by
  // step of the pass, micro-batch, module and rank.
  using Digests =
      std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, std::string>;
  Digests Run(uint64_t epoch) {
    Digests digests;
    const auto got = cluster_->RunRanks(epoch * kSteps, kSteps);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return digests;
    for (const auto& [key, batch] : *got) {
      auto in_pass = key;
      std::get<0>(in_pass) -= epoch * kSteps;
      digests[in_pass] = ComputeDigest(batch);
      for (const PackedSample& sample : batch.samples) {
        EXPECT_FALSE(sample.placeholder) << sample.name;
      }
    }
    return digests;
  }

  int BadSamples() {
    const auto status = QueryClient(cluster_->addresses()[0]).GetStatus();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->bad_samples_size() : -1;
  }

  const std::string folder_ = TestFolder();
  std::unique_ptr<TestCluster> cluster_;
};

TEST_F(TransientFaultTest, IoErrorsNeverBecomePlaceholders) {
  const Digests before = Run(0);
  ASSERT_FALSE(before.empty());
  // More failures than one sample's retries, so that streams end too.
  FailReads("docs-0.tar", EIO, 25);
  EXPECT_EQ(Run(1), before);
  EXPECT_EQ(FailedReads(), 25u);
  EXPECT_EQ(BadSamples(), 0);
}

TEST_F(TransientFaultTest, ReopensAStaleHandle) {
  const Digests before = Run(0);
  ASSERT_FALSE(before.empty());
  const uint64_t failed = FailedReads();
  MakeHandlesStale("docs-0.tar");
  EXPECT_EQ(Run(1), before);
  EXPECT_GT(FailedReads(), failed);
  EXPECT_EQ(BadSamples(), 0);
}

}  // namespace
}  // namespace ballast
