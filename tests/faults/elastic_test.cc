// A job that is stopped and resumed with other dp sizes, servers and delivery
// trains on the same data as an undisturbed job, and all ranks see the end of
// the data at the same step.

#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/loader_client.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSamples = 50;
constexpr uint32_t kGlobal = 24;  // divides by every grid below
constexpr uint64_t kSteps = 12;

// The parts of a job that may change between two runs.
struct Layout {
  uint32_t vision = 1, language = 1, micro = kGlobal;
  int servers = 1;
  std::string delivery = "off";
};

std::string Describe(const Layout& layout) {
  return absl::StrCat("vision ", layout.vision, ", language ", layout.language,
                      ", micro ", layout.micro, ", servers ", layout.servers,
                      ", ", layout.delivery);
}

LoadedConfig MakeConfig(const Layout& layout, const std::string& order = "{}",
                        uint32_t global = kGlobal) {
  TestJob job = GridJob(layout.vision, layout.language, layout.delivery);
  job.batch = absl::StrCat("global: ", global, ", micro: ", layout.micro);
  job.more = absl::StrCat("order: ", order, "\n");
  return ParseJob(job, FormulaFolder("elastic", kSamples));
}

template <typename T>
std::string Bytes(absl::Span<const T> values, size_t begin, size_t count) {
  EXPECT_LE(begin + count, values.size());
  if (count == 0) return "";
  return std::string(reinterpret_cast<const char*>(values.data() + begin),
                     count * sizeof(T));
}

// (step, module, position) -> everything that the module gets of the sample.
using Trained = std::map<std::tuple<uint64_t, int, uint64_t>, std::string>;

// Fails if a sample is trained on twice.
void AddBatch(const PackedBatch& batch, Trained* trained) {
  const bool vision = batch.role.module() == v1::MODULE_VISION;
  const size_t row = 3 * 2 * kFormulaPatch * kFormulaPatch;
  size_t image = 0, first_row = 0;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const PackedSample& sample = batch.samples[i];
    std::string content = sample.name;
    if (vision) {
      size_t rows = 0;
      for (uint32_t k = 0; k < FormulaImages(sample.ordinal); ++k, ++image) {
        content += Bytes(batch.Get<int64_t>("image_grid_thw"), 3 * image, 3);
        rows += batch.vision.image_grid_thw[3 * image + 1] *
                batch.vision.image_grid_thw[3 * image + 2];
      }
      content +=
          Bytes(batch.Get<float>("pixel_values"), first_row * row, rows * row);
      first_row += rows;
    } else {
      const size_t begin = batch.text.cu_seqlens_padded[i];
      const size_t tokens =
          batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
      content += Bytes(batch.Get<int64_t>("input_ids"), begin, tokens);
      content += Bytes(batch.Get<int64_t>("labels"), begin, tokens);
    }
    const bool added =
        trained
            ->insert({{batch.step, batch.role.module(), sample.position},
                      std::move(content)})
            .second;
    EXPECT_TRUE(added) << "step " << batch.step << " position "
                       << sample.position << " came twice";
  }
}

// Runs steps `step` to `step + steps - 1` of a job of `layout`. Sets
// `checkpoint` to the job's fingerprint.
void Train(const Layout& layout, uint64_t step, uint64_t steps,
           v1::Fingerprint* checkpoint, Trained* trained) {
  SCOPED_TRACE(Describe(layout));
  const auto cluster = TestCluster::Start(MakeConfig(layout), layout.servers);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto batches = (*cluster)->RunRanks(step, steps, *checkpoint);
  ASSERT_TRUE(batches.ok()) << batches.status();
  for (const auto& [key, batch] : *batches) AddBatch(batch, trained);
  *checkpoint = LoaderClient::Create((*cluster)->addresses()[0])
                    ->Attach({}, {})
                    ->fingerprint();
}

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  // Does not use std::uniform_int_distribution, whose values differ by library.
  uint32_t Below(uint32_t n) { return random_() % n; }

 private:
  std::mt19937 random_;
};

Layout RandomLayout(Dice* dice) {
  constexpr std::pair<uint32_t, uint32_t> kSizes[] = {
      {1, 1}, {2, 2}, {4, 4}, {2, 4}, {4, 2}, {3, 3}, {2, 3}};
  Layout layout;
  std::tie(layout.vision, layout.language) = kSizes[dice->Below(7)];
  layout.delivery =
      std::vector<std::string>{"exchange", "direct", "off"}[dice->Below(3)];
  // Direct delivery needs a single server.
  layout.servers = layout.delivery == "direct" ? 1 : 1 + dice->Below(3);
  const uint32_t grid = std::lcm(layout.vision, layout.language);
  do {
    layout.micro = grid * (1 + dice->Below(kGlobal / grid));
  } while (kGlobal % layout.micro != 0);
  return layout;
}

class ElasticTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(ElasticTest, ResizedRunsTrainOnTheSameData) {
  Trained expected;
  v1::Fingerprint none;
  Train(Layout(), 0, kSteps, &none, &expected);
  ASSERT_EQ(expected.size(), 2 * kSteps * kGlobal);

  Dice dice(GetParam());
  Trained trained;
  v1::Fingerprint checkpoint;
  for (uint64_t step = 0; step < kSteps;) {
    const uint64_t steps = std::min<uint64_t>(1 + dice.Below(4), kSteps - step);
    Train(RandomLayout(&dice), step, steps, &checkpoint, &trained);
    if (HasFatalFailure()) return;
    step += steps;
  }
  ASSERT_EQ(trained.size(), expected.size());
  for (const auto& [key, content] : expected) {
    const auto found = trained.find(key);
    ASSERT_NE(found, trained.end());
    EXPECT_EQ(found->second, content)
        << "step " << std::get<0>(key) << " module " << std::get<1>(key)
        << " position " << std::get<2>(key);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ElasticTest, ::testing::Range(1u, 5u));

TEST(CheckpointTest, RefusesOtherData) {
  Layout layout;
  layout.delivery = "exchange";
  const auto a = TestCluster::Start(MakeConfig(layout));
  const auto b = TestCluster::Start(MakeConfig(layout, "{seed: 9}"));
  ASSERT_TRUE(a.ok() && b.ok());
  const v1::Fingerprint checkpoint =
      LoaderClient::Create((*a)->addresses()[0])->Attach({}, {})->fingerprint();
  const auto run = (*b)->RunRanks(3, 1, checkpoint);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(run.status().message()),
              HasSubstr("order.seed is 1234 in the checkpoint and 9 with"));
}

// 50 samples in steps of 12: four steps an epoch, eight in two.
class DataEndTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DataEndTest, EveryRankStopsBeforeTheSameStep) {
  Layout layout;
  layout.vision = layout.language = 3;
  layout.micro = 6;
  layout.delivery = GetParam();
  for (const uint32_t epochs : {1, 2}) {
    const auto cluster = TestCluster::Start(
        MakeConfig(layout, absl::StrCat("{epochs: ", epochs, "}"), 12));
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const uint64_t end = 4 * epochs;
    for (const uint64_t steps : {uint64_t{0}, uint64_t{100}}) {
      const auto batches = (*cluster)->RunRanks(2, steps);
      ASSERT_TRUE(batches.ok()) << batches.status();
      // Two micro-batches a step on three ranks of two modules.
      EXPECT_EQ(batches->size(), (end - 2) * 2 * 3 * 2);
      for (const auto& [key, batch] : *batches) EXPECT_LT(batch.step, end);
    }
    // Nothing is left, which is no failure.
    const auto nothing = (*cluster)->RunRanks(end, 1);
    ASSERT_TRUE(nothing.ok()) << nothing.status();
    EXPECT_TRUE(nothing->empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Deliveries, DataEndTest,
                         ::testing::Values("exchange", "direct", "off"));

}  // namespace
}  // namespace ballast
