// Planes of the GPU's JPEG engines against libjpeg's.
#include "trainer_shim/cuda/device_image_decoder.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "trainer_shim/host/host_image_decoder.h"

namespace ballast {
namespace {

using Hardware = DeviceJpegEngine::Hardware;

constexpr int kFill = 0x77;

// Compares the samples of two images' planes, not the padding of their rows.
void ExpectSamePlanes(const EngineFile& file, const uint8_t* got,
                      const uint8_t* want) {
  const PlaneLayout layout = LayOutPlanes(file.form);
  for (int plane = 0; plane < file.form.planes(); ++plane) {
    for (uint32_t y = 0; y < file.form.plane_height(plane); ++y) {
      const uint64_t row =
          layout.offset[plane] + uint64_t{y} * layout.pitch[plane];
      for (uint32_t x = 0; x < file.form.plane_width(plane); ++x) {
        if (got[row + x] == want[row + x]) continue;
        ADD_FAILURE() << file.name << ": plane " << plane << " row " << y
                      << " sample " << x << " is " << int{got[row + x]}
                      << ", wanted " << int{want[row + x]};
        return;
      }
    }
  }
}

// Decodes `files` as one batch and compares every image.
void ExpectLibjpegsPlanes(const std::vector<EngineFile>& files,
                          DeviceJpegEngine* engine) {
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;
  for (const EngineFile& file : files) {
    offsets.push_back(bytes);
    bytes += LayOutPlanes(file.form).bytes;
  }
  const DeviceBuffer device = Filled<uint8_t>(bytes, kFill);
  std::vector<uint8_t> want(bytes, kFill);
  std::vector<EncodedJpeg> on_device;
  std::vector<EncodedJpeg> on_host;
  for (size_t i = 0; i < files.size(); ++i) {
    on_device.push_back(
        {files[i].bytes, files[i].form, device.data() + offsets[i]});
    on_host.push_back(
        {files[i].bytes, files[i].form, want.data() + offsets[i]});
  }
  OrDie(CpuJpegEngine().Decode(on_host));
  const absl::Status status = engine->Decode(on_device);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<uint8_t> got = ToHost<uint8_t>(device, 0, bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    ExpectSamePlanes(files[i], got.data() + offsets[i],
                     want.data() + offsets[i]);
  }
}

void ExpectInBatches(const std::vector<EngineFile>& files, size_t batch,
                     DeviceJpegEngine* engine) {
  for (size_t begin = 0; begin < files.size(); begin += batch) {
    const size_t end = std::min(files.size(), begin + batch);
    ExpectLibjpegsPlanes({files.begin() + begin, files.begin() + end}, engine);
  }
}

TEST(DeviceJpegEngineGpuTest, EnginesMakeLibjpegsPlanes) {
  const auto engine = OrDie(DeviceJpegEngine::Create(Hardware::kIfThere));
  ASSERT_TRUE(engine->hardware().ok()) << engine->hardware();
  const std::vector<EngineFile> made = MadeEngineFiles();
  ExpectInBatches(made, 32, engine.get());
  const std::vector<EngineFile> corpus = CorpusEngineFiles();
  ExpectInBatches(corpus, 5, engine.get());
  const JpegEngineCounts counts = engine->counts();
  std::printf(
      "%zu made files and %zu of the corpus: %d by hardware, %d by "
      "the host\n",
      made.size(), corpus.size(), static_cast<int>(counts.by_hardware),
      static_cast<int>(counts.by_host));
  // Very small pictures may be refused, no others.
  EXPECT_GE(counts.by_hardware, (made.size() + corpus.size()) / 2);
  for (const EngineFile& file : corpus) {
    const uint64_t before = engine->counts().by_hardware;
    ExpectLibjpegsPlanes({file}, engine.get());
    EXPECT_EQ(engine->counts().by_hardware, before + 1) << file.name;
  }
}

TEST(DeviceJpegEngineGpuTest, BatchesOfAnySize) {
  const std::vector<EngineFile> made = MadeEngineFiles();
  const auto engine = OrDie(DeviceJpegEngine::Create(Hardware::kIfThere));
  uint64_t images = 0;
  for (const size_t size : {1, 7, 64, 3, 100}) {
    ExpectLibjpegsPlanes({made.begin(), made.begin() + size}, engine.get());
    images += size;
  }
  EXPECT_TRUE(engine->Decode({}).ok());
  const JpegEngineCounts counts = engine->counts();
  EXPECT_EQ(counts.by_hardware + counts.by_host, images);
}

TEST(DeviceJpegEngineGpuTest, TheHostDecodesWithoutEngines) {
  const auto engine = OrDie(DeviceJpegEngine::Create(Hardware::kNever));
  EXPECT_EQ(engine->hardware().code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<EngineFile> made = MadeEngineFiles();
  ExpectInBatches(made, 50, engine.get());
  EXPECT_EQ(engine->counts().by_host, made.size());
  EXPECT_EQ(engine->counts().by_hardware, 0u);
}

// Sides at their bounds.
TEST(DeviceJpegEngineGpuTest, LargePictures) {
  std::vector<EngineFile> files;
  for (const auto& [width, height] :
       {std::pair<uint32_t, uint32_t>{kMaxEngineSide, 100},
        {200, kMaxEngineSide},
        {kMaxEngineSide, 2048}}) {
    for (const ChromaSampling sampling :
         {ChromaSampling::k420, ChromaSampling::k422, ChromaSampling::k444,
          ChromaSampling::kGrey}) {
      const MadeJpeg made = {
          .width = width, .height = height, .sampling = sampling};
      files.push_back(
          {GetName(made), MakeJpeg(made), {width, height, sampling}});
    }
  }
  const auto engine = OrDie(DeviceJpegEngine::Create(Hardware::kIfThere));
  for (const EngineFile& file : files) {
    const uint64_t before = engine->counts().by_hardware;
    ExpectLibjpegsPlanes({file}, engine.get());
    if (engine->counts().by_hardware == before) {
      std::printf("%s: by the host\n", file.name.c_str());
    }
  }
}

// A file whose end is missing fails on the host and may pass on the engines,
// which must go on working afterwards.
TEST(DeviceJpegEngineGpuTest, DamageEndsNothing) {
  const auto engine = OrDie(DeviceJpegEngine::Create(Hardware::kIfThere));
  const std::vector<EngineFile> made = MadeEngineFiles();
  std::vector<EngineFile> damaged(made.end() - 4, made.end());
  for (EngineFile& file : damaged) {
    file.bytes.resize(file.bytes.size() * 3 / 4);
  }
  const DeviceBuffer device =
      Filled<uint8_t>(LayOutPlanes(damaged[0].form).bytes, kFill);
  for (const EngineFile& file : damaged) {
    if (LayOutPlanes(file.form).bytes > device.size()) continue;
    const EncodedJpeg image = {file.bytes, file.form, device.data()};
    const absl::Status status = engine->Decode({&image, 1});
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
  ExpectInBatches(made, 60, engine.get());
}

}  // namespace
}  // namespace ballast
