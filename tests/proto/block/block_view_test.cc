#include "proto/block/block_view.h"

#include <algorithm>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/loader_service.pb.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class BlockViewTest : public ::testing::Test {
 protected:
  BlockViewTest() {
    const FakeSourceIndex index(FormulaSamples(20));
    const auto scheduler = Scheduler::Create(JobConfig(2, 2, 8, 8), {&index});
    schedule_ = *(*scheduler)->Schedule(0);
    role_.set_module(v1::MODULE_VISION);
    role_.set_dp_rank(1);
    plan_ = *PlanBlock(schedule_, 0, role_, v1::DELIVERY_EXCHANGE, {});
    // uint64_t elements give the alignment that Parse needs.
    storage_.resize(plan_.bytes() / sizeof(uint64_t));
    WriteBlockTables(plan_, bytes());
  }

  absl::Span<uint8_t> bytes() {
    return absl::MakeSpan(reinterpret_cast<uint8_t*>(storage_.data()),
                          plan_.bytes());
  }
  BlockHeader& header() {
    return *reinterpret_cast<BlockHeader*>(bytes().data());
  }
  SampleRecord& sample(uint32_t i) {
    return *reinterpret_cast<SampleRecord*>(
        bytes().data() + header().sample_table + i * sizeof(SampleRecord));
  }
  ImageRecord& image(uint32_t i) {
    return *reinterpret_cast<ImageRecord*>(
        bytes().data() + header().image_table + i * sizeof(ImageRecord));
  }

  v1::StepSchedule schedule_;
  v1::Role role_;
  BlockPlan plan_;
  std::vector<uint64_t> storage_;
};

TEST_F(BlockViewTest, ReadsBackWhatWasPlanned) {
  const auto view = BlockView::Parse(bytes());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->Matches(plan_).ok()) << view->Matches(plan_);
  ASSERT_EQ(view->samples().size(), plan_.samples.size());
  for (size_t i = 0; i < plan_.samples.size(); ++i) {
    const SampleRecord& record = view->samples()[i];
    EXPECT_EQ(record.position, plan_.samples[i].record.position);
    EXPECT_EQ(view->payload(record).size(), record.payload_bytes);
    EXPECT_EQ(view->images(record).size(), record.num_images);
  }
}

TEST_F(BlockViewTest, PlaceholdersStillMatch) {
  MarkPlaceholder(plan_, 2, bytes());
  const auto view = BlockView::Parse(bytes());
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->samples()[2].flags, kSampleIsPlaceholder);
  EXPECT_EQ(view->samples()[1].flags, 0u);
  EXPECT_TRUE(view->Matches(plan_).ok());
}

TEST_F(BlockViewTest, NamesTheFaultyField) {
  const struct {
    std::function<void()> damage;
    const char* message;
  } cases[] = {
      {[&] { header().magic = 1; }, "magic is 1"},
      {[&] { header().version = 9; }, "version is 9, wanted 4"},
      {[&] { header().total_bytes += 8; }, "total_bytes"},
      {[&] { header().sample_table = ~uint64_t{7}; }, "sample_table"},
      {[&] { header().num_samples = ~0u; }, "sample_table"},
      {[&] { header().image_table += 4; }, "image_table"},
      {[&] { header().payload = plan_.bytes() + 1; }, "payload"},
      {[&] { sample(1).payload += 16; }, "sample 1 payload"},
      {[&] { sample(0).payload_bytes = ~uint64_t{0}; }, "sample 0 payload"},
      {[&] { sample(2).first_image = 1000; }, "sample 2 first_image"},
      {[&] { sample(2).first_tokens = 1; }, "sample 2 first_tokens is 1"},
      {[&] {
         header().version = kBlockVersionWithPairs;
         sample(2).first_tokens = sample(2).tokens;
       },
       "wanted 0, or in version 6 fewer than its"},
      {[&] { image(0).height = 1 << 30; }, "image 0 data"},
      {[&] { image(0).encoded_bytes = 1 << 30; }, "image 0 data"},
      {[&] { image(0).data = 8; }, "image 0 data"},
  };
  for (const auto& test_case : cases) {
    WriteBlockTables(plan_, bytes());
    test_case.damage();
    EXPECT_THAT(BlockView::Parse(bytes()).status().message(),
                HasSubstr(test_case.message));
  }
  EXPECT_THAT(BlockView::Parse(bytes().subspan(0, 100)).status().message(),
              HasSubstr("length is 100"));
}

TEST_F(BlockViewTest, RefusesABlockOtherThanPlanned) {
  const struct {
    std::function<void()> damage;
    const char* message;
  } cases[] = {
      {[&] { header().fingerprint[1] ^= 1; }, "fingerprint"},
      {[&] { header().version = kBlockVersionWithFloats; },
       "version is 7, wanted 4"},
      {[&] { header().step = 4; }, "step is 4, wanted 0"},
      {[&] { header().micro_batch = 1; }, "micro_batch is 1, wanted 0"},
      {[&] { header().micro_batches = 3; }, "micro_batches is 3, wanted 1"},
      {[&] { header().module = v1::MODULE_LANGUAGE; }, "module is 2, wanted 1"},
      {[&] { header().dp_rank = 0; }, "dp_rank is 0, wanted 1"},
      {[&] { sample(1).position += 1; }, "position of sample 1"},
      {[&] { sample(1).tokens += 1; }, "position of sample 1 (or its size)"},
      {[&] { image(0).grid_w += 1; }, "image 0"},
      {[&] { image(0).encoded_bytes = 1; }, "image 0"},
  };
  for (const auto& test_case : cases) {
    WriteBlockTables(plan_, bytes());
    test_case.damage();
    const auto view = BlockView::Parse(bytes());
    ASSERT_TRUE(view.ok()) << view.status();
    const absl::Status status = view->Matches(plan_);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(test_case.message));
  }
}

// The block of a rank that reads nothing of a micro-batch.
TEST_F(BlockViewTest, ABlockMayHoldNoSample) {
  for (v1::ModuleSchedule& module :
       *schedule_.mutable_micro_batches(0)->mutable_modules()) {
    for (uint32_t& reader : *module.mutable_reader()) reader = 0;
  }
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    role_.set_module(module);
    plan_ = *PlanBlock(schedule_, 0, role_, v1::DELIVERY_EXCHANGE, {});
    ASSERT_EQ(plan_.bytes(), 256u);  // docs/block.md
    WriteBlockTables(plan_, bytes());
    const auto view = BlockView::Parse(bytes());
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_TRUE(view->samples().empty());
    EXPECT_TRUE(view->images().empty());
    EXPECT_TRUE(view->Matches(plan_).ok()) << view->Matches(plan_);
  }
}

TEST_F(BlockViewTest, ReadsTheHeaderAloneAtAnyAddress) {
  std::vector<uint8_t> moved(bytes().size() + 1);
  std::copy(bytes().begin(), bytes().end(), moved.begin() + 1);
  const auto header = ReadBlockHeader(absl::MakeConstSpan(moved).subspan(1));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->dp_rank, 1u);
  EXPECT_EQ(header->micro_batches, 1u);
  EXPECT_THAT(ReadBlockHeader(bytes().subspan(1)).status().message(),
              HasSubstr("magic"));
  EXPECT_THAT(ReadBlockHeader({}).status().message(), HasSubstr("length is 0"));
}

// Damaged tables may be accepted or refused, but no span leaves the block (asan
// watches the reads).
TEST_F(BlockViewTest, SurvivesRandomDamage) {
  std::mt19937 random(7);
  const uint64_t tables = plan_.header.payload;
  uint64_t sum = 0;
  for (int round = 0; round < 20000; ++round) {
    WriteBlockTables(plan_, bytes());
    for (int flips = 0; flips < 3; ++flips) {
      bytes()[random() % tables] ^= 1 << random() % 8;
    }
    const auto view = BlockView::Parse(bytes());
    if (!view.ok()) continue;
    for (const SampleRecord& record : view->samples()) {
      const auto payload = view->payload(record);
      if (!payload.empty()) sum += payload.front() + payload.back();
      for (const ImageRecord& image : view->images(record)) {
        const uint64_t size = ImageBytes(image);
        if (size > 0) sum += payload[image.data + size - 1];
      }
    }
  }
  EXPECT_EQ(sum, 0u);  // payloads are zero
}

absl::Span<const uint8_t> GetFirst(const std::string& message) {
  return {reinterpret_cast<const uint8_t*>(message.data()),
          std::min(message.size(), kMaxChunkPrefix)};
}

// Protobuf itself is the oracle.
TEST(ChunkWireTest, EqualsProtobufsEncoding) {
  for (const size_t length :
       {1, 2, 60, 124, 125, 126, 127, 128, 129, 130, 16379, 16380, 16381, 16382,
        16383, 16384, 16385, 1 << 20, (1 << 21) + 3}) {
    v1::PullResponse message;
    message.mutable_chunk()->set_data(std::string(length, 'x'));
    const std::string bytes = message.SerializeAsString();
    EXPECT_EQ(ChunkPrefix(length) + message.chunk().data(), bytes);
    EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes), bytes.size()),
              bytes.size() - length)
        << length;
  }
}

TEST(ChunkWireTest, LeavesOtherMessagesToProtobuf) {
  v1::PullResponse message;
  EXPECT_EQ(ReadChunkPrefix({}, 0), std::nullopt);
  message.mutable_begin()->set_step(3);
  std::string bytes = message.SerializeAsString();
  EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes), bytes.size()), std::nullopt);
  message.mutable_chunk();  // without data
  bytes = message.SerializeAsString();
  EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes), bytes.size()), std::nullopt);
  // Bytes after the chunk, or fewer bytes than its length.
  message.mutable_chunk()->set_data("abc");
  bytes = message.SerializeAsString();
  EXPECT_NE(ReadChunkPrefix(GetFirst(bytes), bytes.size()), std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes), bytes.size() - 1), std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes + "\x08\x01"), bytes.size() + 2),
            std::nullopt);
  EXPECT_EQ(ReadChunkPrefix(GetFirst(bytes), UINT64_MAX), std::nullopt);
}

TEST(DataEndTest, WithoutAnEndAllStepsHaveData) {
  const v1::Job job;
  EXPECT_EQ(*StepsWithData(job, 5, 0), 0u);
  EXPECT_EQ(*StepsWithData(job, UINT64_MAX, 7), 7u);
}

TEST(DataEndTest, StepsAreCutAtTheEnd) {
  v1::Job job;
  job.set_end_step(10);
  EXPECT_EQ(*StepsWithData(job, 0, 0), 10u);
  EXPECT_EQ(*StepsWithData(job, 0, 10), 10u);
  EXPECT_EQ(*StepsWithData(job, 4, 5), 5u);
  EXPECT_EQ(*StepsWithData(job, 4, UINT64_MAX), 6u);
  EXPECT_EQ(*StepsWithData(job, 9, 0), 1u);
  for (const uint64_t step : {uint64_t{10}, uint64_t{11}, UINT64_MAX}) {
    const auto none = StepsWithData(job, step, 1);
    EXPECT_EQ(none.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(none.status().message()),
                HasSubstr("the data end before step 10"));
  }
}

}  // namespace
}  // namespace ballast
