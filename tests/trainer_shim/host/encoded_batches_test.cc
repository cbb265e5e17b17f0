// Batches whose images travel encoded, against the same batches over pixels.
// The pixels are those of the server's decoder.

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/media/image/image.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/trainer_shim/host/assemble_all.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

MadeJpeg Made(uint64_t position, uint32_t image) {
  const auto n = static_cast<uint32_t>(position * 5 + image);
  MadeJpeg made;
  made.width = 9 + n * 7 % 50;
  made.height = 8 + n * 11 % 60;
  made.sampling = static_cast<ChromaSampling>(n % 4);
  made.seed = n;
  return made;
}

std::string GetFile(uint64_t position, uint32_t image) {
  return MakeJpeg(Made(position, image));
}

bool IsEncoded(uint64_t position, uint32_t image) {
  return (position + image) % 3 != 0;
}

bool IsPlaceholder(uint64_t position) { return position % 5 == 0; }

void ListEncoded(v1::StepSchedule* schedule) {
  for (v1::MicroBatchSchedule& columns : *schedule->mutable_micro_batches()) {
    for (int i = 0; i < columns.images_size(); ++i) {
      const uint64_t position = columns.position(i);
      for (uint32_t k = 0; k < columns.images(i); ++k) {
        columns.add_encoded_bytes(
            IsEncoded(position, k) ? GetFile(position, k).size() : 0);
      }
    }
  }
}

// Fills a vision block as the server does.
void FillBlock(const BlockPlan& plan, uint32_t, absl::Span<uint8_t> block) {
  for (uint32_t s = 0; s < plan.samples.size(); ++s) {
    const SampleRecord& record = plan.samples[s].record;
    const uint64_t position = record.position;
    if (IsPlaceholder(position)) MarkPlaceholder(plan, s, block);
    for (uint32_t k = 0; k < record.num_images; ++k) {
      const ImageRecord& image = plan.images[record.first_image + k];
      const absl::Span<uint8_t> data =
          block.subspan(record.payload + image.data, ImageBytes(image));
      const bool encoded = image.encoded_bytes != 0;
      if (IsPlaceholder(position)) {
        std::fill(data.begin(), data.end(), encoded ? 0 : 128);
        continue;
      }
      const MadeJpeg made = Made(position, k);
      const std::string file = MakeJpeg(made);
      if (encoded) {
        ASSERT_EQ(data.size(), file.size());
        std::copy(file.begin(), file.end(), data.begin());
      } else {
        const absl::Status status =
            DecodeResized(file, {ImageFormat::kJpeg, made.width, made.height},
                          image.width, image.height, data);
        ASSERT_TRUE(status.ok()) << status;
      }
    }
  }
}

class EncodedBatchesTest
    : public ::testing::TestWithParam<std::tuple<v1::Delivery, uint32_t>> {
 protected:
  EncodedBatchesTest() {
    job_.delivery = std::get<0>(GetParam());
    job_.vision_dp = job_.language_dp = std::get<1>(GetParam());
  }

  SyntheticJob job_;
};

TEST_P(EncodedBatchesTest, EqualThoseOfPixels) {
  for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
    const auto pixels =
        AssembleAll(job_, v1::MODULE_VISION, type, FillBlock, {});
    const auto encoded =
        AssembleAll(job_, v1::MODULE_VISION, type, FillBlock, ListEncoded);
    bool decoded = false;
    for (uint32_t rank = 0; rank < job_.vision_dp; ++rank) {
      for (uint32_t m = 0; m < job_.micro_batches; ++m) {
        const auto& want = pixels[rank][m];
        const auto& got = encoded[rank][m];
        ASSERT_TRUE(want.ok()) << want.status();
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(ComputeDigest(*got), ComputeDigest(*want));
        ASSERT_EQ(got->samples.size(), want->samples.size());
        for (size_t i = 0; i < got->samples.size(); ++i) {
          EXPECT_EQ(got->samples[i].placeholder, want->samples[i].placeholder);
        }
        EXPECT_EQ(want->decode_time, absl::ZeroDuration());
        decoded |= got->decode_time > absl::ZeroDuration();
      }
    }
    EXPECT_TRUE(decoded);
  }
}

// The rank's dummy image follows the decoded ones.
TEST_P(EncodedBatchesTest, DummyImagesAreNotEncoded) {
  const auto with_dummy = [](v1::StepSchedule* schedule) {
    schedule->mutable_micro_batches(0)->mutable_modules(0)->add_dummy_rank(0);
  };
  const auto pixels = AssembleAll(job_, v1::MODULE_VISION, PixelType::kFloat32,
                                  FillBlock, with_dummy);
  const auto encoded = AssembleAll(job_, v1::MODULE_VISION, PixelType::kFloat32,
                                   FillBlock, [&](v1::StepSchedule* schedule) {
                                     with_dummy(schedule);
                                     ListEncoded(schedule);
                                   });
  ASSERT_TRUE(pixels[0][0].ok() && encoded[0][0].ok());
  EXPECT_TRUE(encoded[0][0]->dummy_image);
  EXPECT_EQ(ComputeDigest(*encoded[0][0]), ComputeDigest(*pixels[0][0]));
}

INSTANTIATE_TEST_SUITE_P(
    Deliveries, EncodedBatchesTest,
    ::testing::Combine(::testing::Values(v1::DELIVERY_EXCHANGE,
                                         v1::DELIVERY_DIRECT,
                                         v1::DELIVERY_HYBRID, v1::DELIVERY_OFF),
                       ::testing::Values(1u, 2u, 4u)));

// An index without a check may let such a file through.
TEST(EncodedBatchesFaultsTest, AFileThatCannotBeDecodedNamesItsPosition) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = 1;
  const auto first_byte = [](uint8_t value) {
    return [value](const BlockPlan& plan, uint32_t rank,
                   absl::Span<uint8_t> block) {
      FillBlock(plan, rank, block);
      for (const PlannedSample& sample : plan.samples) {
        const SampleRecord& record = sample.record;
        if (record.num_images == 0 || IsPlaceholder(record.position)) continue;
        const ImageRecord& image = plan.images[record.first_image];
        if (image.encoded_bytes == 0) continue;
        block[record.payload + image.data] = value;
      }
    };
  };
  const auto got = AssembleAll(job, v1::MODULE_VISION, PixelType::kFloat32,
                               first_byte(0), ListEncoded);
  const absl::Status status = got[0][0].status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("at position "));
  EXPECT_THAT(status.message(), HasSubstr("index --check"));
}

}  // namespace
}  // namespace ballast
