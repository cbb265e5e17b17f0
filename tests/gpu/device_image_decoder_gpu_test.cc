// Pixels of encoded images on the GPU against the server's decode and resize.
#include "trainer_shim/cuda/device_image_decoder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/media/image/image.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"

namespace ballast {
namespace {

constexpr int kFill = 0x3C;

// A batch in device memory and the pixels that it must become.
struct Batch {
  std::vector<EncodedImage> images;
  std::vector<uint8_t> want;
  DeviceBuffer out;
};

Batch GetBatch(const std::vector<EngineFile>& files, uint32_t seed) {
  Batch batch;
  uint64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const uint32_t width = 28 * (1 + (seed + 3 * i) % 20);
    const uint32_t height = 28 * (1 + (seed + 5 * i) % 17);
    batch.images.push_back(
        {files[i].bytes, files[i].form, width, height, bytes});
    bytes += (uint64_t{3} * width * height + 255) / 256 * 256;
  }
  batch.want.assign(bytes, kFill);
  ImageDecoder server;
  for (const EncodedImage& image : batch.images) {
    OrDie(server.DecodeResized(
        image.bytes, {ImageFormat::kJpeg, image.form.width, image.form.height},
        image.out_width, image.out_height,
        absl::MakeSpan(batch.want)
            .subspan(image.out,
                     uint64_t{3} * image.out_width * image.out_height)));
  }
  batch.out = Filled<uint8_t>(bytes, kFill);
  return batch;
}

void ExpectPixels(const Batch& batch, const std::vector<EngineFile>& files) {
  const std::vector<uint8_t> got =
      ToHost<uint8_t>(batch.out, 0, batch.want.size());
  for (size_t i = 0; i < batch.images.size(); ++i) {
    const EncodedImage& image = batch.images[i];
    const uint64_t size = uint64_t{3} * image.out_width * image.out_height;
    EXPECT_TRUE(std::equal(got.begin() + image.out,
                           got.begin() + image.out + size,
                           batch.want.begin() + image.out))
        << files[i].name << " to " << image.out_width << "x"
        << image.out_height;
  }
  EXPECT_EQ(got, batch.want);
}

void ExpectServersPixels(const std::vector<EngineFile>& files,
                         const DeviceImageDecoder::Options& options,
                         size_t of_batch) {
  const auto decoder = OrDie(DeviceImageDecoder::Create(options));
  const CudaStream stream = OrDie(CudaStream::Create());
  for (size_t begin = 0; begin < files.size(); begin += of_batch) {
    const std::vector<EngineFile> part(
        files.begin() + begin,
        files.begin() + std::min(files.size(), begin + of_batch));
    const Batch batch = GetBatch(part, static_cast<uint32_t>(begin));
    const auto ticket = decoder->Begin(batch.images, batch.out.data());
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    OrDie(decoder->Finish(*ticket, stream.get()));
    OrDie(stream.Synchronize());
    ExpectPixels(batch, part);
  }
  if (options.hardware == DeviceJpegEngine::Hardware::kIfThere) {
    EXPECT_TRUE(decoder->hardware().ok()) << decoder->hardware();
    EXPECT_EQ(decoder->counts().by_hardware, files.size());
  }
}

TEST(DeviceImageDecoderGpuTest, MadeFilesHaveTheServersPixels) {
  ExpectServersPixels(MadeEngineFiles(), {}, 100);
}

TEST(DeviceImageDecoderGpuTest, TheCorpusHasTheServersPixels) {
  const std::vector<EngineFile> corpus = CorpusEngineFiles();
  if (corpus.empty()) GTEST_SKIP() << NotShared("corpus/images");
  ExpectServersPixels(corpus, {}, 7);
}

TEST(DeviceImageDecoderGpuTest, WithoutEngines) {
  DeviceImageDecoder::Options options;
  options.hardware = DeviceJpegEngine::Hardware::kNever;
  ExpectServersPixels(MadeEngineFiles(), options, 64);
}

// Chunks of one image.
TEST(DeviceImageDecoderGpuTest, InLittleMemory) {
  DeviceImageDecoder::Options options;
  options.engines = 1;
  options.memory = 4096;
  std::vector<EngineFile> files = MadeEngineFiles();
  files.resize(60);
  ExpectServersPixels(files, options, 60);
}

TEST(DeviceImageDecoderGpuTest, SeveralBatchesAtATime) {
  const auto decoder = OrDie(DeviceImageDecoder::Create({}));
  const CudaStream stream = OrDie(CudaStream::Create());
  const std::vector<EngineFile> files = MadeEngineFiles();
  std::vector<Batch> batches;
  std::vector<DeviceImageDecoder::Ticket> tickets;
  for (uint32_t i = 0; i < 6; ++i) batches.push_back(GetBatch(files, i));
  for (const Batch& batch : batches) {
    tickets.push_back(OrDie(decoder->Begin(batch.images, batch.out.data())));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    OrDie(decoder->Finish(tickets[i], stream.get()));
    OrDie(stream.Synchronize());
    ExpectPixels(batches[i], files);
  }
  EXPECT_EQ(decoder->counts().by_hardware + decoder->counts().by_host,
            6 * files.size());
}

TEST(DeviceImageDecoderGpuTest, AnEmptyBatchIsDoneAtOnce) {
  const auto decoder = OrDie(DeviceImageDecoder::Create({}));
  const auto ticket = decoder->Begin({}, nullptr);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_TRUE(decoder->Finish(*ticket, nullptr).ok());
}

TEST(DeviceImageDecoderGpuTest, AFailureStays) {
  DeviceImageDecoder::Options options;
  options.hardware = DeviceJpegEngine::Hardware::kNever;
  const auto decoder = OrDie(DeviceImageDecoder::Create(options));
  const std::string cut = MakeJpeg({.width = 64, .height = 64}).substr(0, 700);
  const EncodedImage image = {cut, {64, 64, ChromaSampling::k420}, 28, 28, 0};
  const DeviceBuffer out = Filled<uint8_t>(28 * 28 * 3, 0);
  const auto ticket = decoder->Begin({&image, 1}, out.data());
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_EQ(decoder->Finish(*ticket, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decoder->Begin({&image, 1}, out.data()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
