#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/machine.h"
#include "common/threads.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/patchify.h"

// The oracle is the CPU's Patchify, which is tested against the golden values
// of Hugging Face's processor. Comparisons have no tolerance.

namespace ballast {
namespace {

using Grid = std::pair<uint32_t, uint32_t>;

NormaliseTable ClipTable(Normalisation formula) {
  return NormaliseTable({0.48145466, 0.4578275, 0.40821073},
                        {0.26862954, 0.26130258, 0.27577711}, formula);
}

// Images one after the other at multiples of `align` plus `shift` bytes, their
// rows from `first_row` on.
std::vector<PatchifyImage> LayOut(const std::vector<Grid>& grids,
                                  const PatchShape& shape, uint64_t first_row,
                                  uint64_t align, uint64_t shift = 0) {
  std::vector<PatchifyImage> images;
  uint64_t offset = shift;
  uint64_t row = first_row;
  for (const auto& [h, w] : grids) {
    images.push_back({offset, row, h, w, h * shape.patch, w * shape.patch});
    const uint64_t bytes =
        uint64_t{3} * images.back().height * images.back().width;
    offset += (bytes + align - 1) / align * align;
    row += shape.GetRows(h, w);
  }
  return images;
}

uint64_t RowsEnd(const std::vector<PatchifyImage>& images,
                 const PatchShape& shape) {
  const PatchifyImage& last = images.back();
  return last.first_row + shape.GetRows(last.grid_h, last.grid_w);
}

uint64_t PixelsEnd(const std::vector<PatchifyImage>& images) {
  const PatchifyImage& last = images.back();
  return last.pixel_offset + uint64_t{last.frames - 1} * last.frame_stride +
         uint64_t{3} * last.height * last.width;
}

std::vector<uint8_t> RandomBytes(uint64_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count);
  uint64_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  for (; at < count; ++at) bytes[at] = random();
  return bytes;
}

void OnHost(const uint8_t* rgb, const PatchifyImage& image,
            const PatchShape& shape, const NormaliseTable& table, float* out) {
  Patchify(rgb, FrameRun{image.frames, image.frame_stride},
           CropSides{image.grid_h, image.grid_w, image.height, image.width},
           shape, table, out);
}
void OnHost(const uint8_t* rgb, const PatchifyImage& image,
            const PatchShape& shape, const NormaliseTable& table,
            uint16_t* out) {
  PatchifyBfloat16(
      rgb, FrameRun{image.frames, image.frame_stride},
      CropSides{image.grid_h, image.grid_w, image.height, image.width}, shape,
      table, out);
}

template <typename T>
constexpr PixelType kTypeOf = sizeof(T) == 4 ? PixelType::kFloat32
                                             : PixelType::kBfloat16;

// Patchifies `images` on the device and on the host, and compares everything,
// including kMargin rows before and after, which must stay unchanged.
template <typename T>
void ExpectSameAsOnHost(const std::vector<PatchifyImage>& images,
                        const PatchShape& shape, Normalisation formula,
                        PatchifyKernel kernel) {
  constexpr int kFill = 0x5A;
  constexpr uint64_t kMargin = 3;
  const NormaliseTable table = ClipTable(formula);
  const std::vector<uint8_t> pixels = RandomBytes(PixelsEnd(images), 7);
  const uint64_t rows = RowsEnd(images, shape) + kMargin;

  std::vector<T> want(rows * shape.row());
  std::fill_n(reinterpret_cast<uint8_t*>(want.data()), want.size() * sizeof(T),
              kFill);
  EXPECT_TRUE(RunAll(images.size(), Cores(), [&](size_t i) {
                const PatchifyImage& image = images[i];
                OnHost(pixels.data() + image.pixel_offset, image, shape, table,
                       want.data() + image.first_row * shape.row());
                return absl::OkStatus();
              }).ok());

  const CudaPatchifier patchifier = OrDie(CudaPatchifier::Create(shape, table));
  const DeviceBuffer device_pixels = ToDevice(pixels);
  const DeviceBuffer device_images = ToDevice(images);
  const DeviceBuffer out = Filled<T>(want.size(), kFill);
  PatchifyBatch batch;
  batch.pixels = device_pixels.data();
  batch.pixel_bytes = device_pixels.size();
  batch.images = images;
  batch.device_images =
      reinterpret_cast<const PatchifyImage*>(device_images.data());
  batch.out = out.data();
  batch.out_rows = rows;
  batch.tile_h = shape.tile_h;
  batch.tile_w = shape.tile_w;
  batch.type = kTypeOf<T>;
  batch.kernel = kernel;
  const absl::Status status = patchifier.Launch(batch, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<T> got = ToHost<T>(out, 0, want.size());
  if (std::memcmp(got.data(), want.data(), want.size() * sizeof(T)) == 0) {
    return;
  }
  const auto at =
      std::mismatch(reinterpret_cast<const uint8_t*>(got.data()),
                    reinterpret_cast<const uint8_t*>(got.data() + got.size()),
                    reinterpret_cast<const uint8_t*>(want.data()));
  const uint64_t first =
      (at.first - reinterpret_cast<const uint8_t*>(got.data())) / sizeof(T);
  EXPECT_EQ(first, want.size())
      << "row " << first / shape.row() << ", column " << first % shape.row();
}

using Case = std::tuple<PatchShape, Normalisation, PatchifyKernel>;

class PatchifyGpuTest : public ::testing::TestWithParam<Case> {
 protected:
  void Expect(const std::vector<PatchifyImage>& images) {
    const auto& [shape, formula, kernel] = GetParam();
    ExpectSameAsOnHost<float>(images, shape, formula, kernel);
    ExpectSameAsOnHost<uint16_t>(images, shape, formula, kernel);
  }
  const PatchShape& shape() { return std::get<0>(GetParam()); }
};

TEST_P(PatchifyGpuTest, OneToken) {
  const uint32_t m = shape().merge;
  Expect(LayOut({{m, m}}, shape(), 0, 256));
}

TEST_P(PatchifyGpuTest, ImagesOfManySizes) {
  std::mt19937 random(1234);
  for (int round = 0; round < 6; ++round) {
    std::vector<Grid> grids(1 + random() % 40);
    for (auto& [h, w] : grids) {
      h = shape().merge * (1 + random() % 12);
      w = shape().merge * (1 + random() % 12);
    }
    Expect(LayOut(grids, shape(), random() % 9, 256));
  }
}

// smart_resize allows aspect ratios of up to 200.
TEST_P(PatchifyGpuTest, ExtremeGrids) {
  const uint32_t m = shape().merge;
  Expect(LayOut({{m, 200 * m}, {200 * m, m}, {m, m}, {3 * m, 67 * m}}, shape(),
                5, 256));
}

// More than one wave of blocks, several tokens per warp (from 288 tokens for
// each of the device's multiprocessors on; the simple kernel needs fewer), a
// partial last block. With one formula: it does not matter which values are
// written.
TEST_P(PatchifyGpuTest, ManyTokens) {
  if (std::get<1>(GetParam()) != Normalisation::kTorchvision) return;
  const uint32_t m = shape().merge;
  const bool simple = std::get<2>(GetParam()) == PatchifyKernel::kSimple;
  const size_t images = simple || shape().padded_rows != 0 ? 300 : 2700;
  std::vector<Grid> grids(images, Grid{5 * m, 3 * m});
  grids.push_back({m, 3 * m});
  Expect(LayOut(grids, shape(), 1, 256));
}

TEST_P(PatchifyGpuTest, ImagesAtAnyByte) {
  const uint32_t m = shape().merge;
  for (const uint64_t shift : {4, 2, 1}) {
    Expect(LayOut({{3 * m, 2 * m}, {m, 4 * m}}, shape(), 0, 1, shift));
  }
}

// Temporal patches of videos among still images: all frames of a patch, and
// fewer, which the simple kernel takes; frames at any byte.
TEST_P(PatchifyGpuTest, Frames) {
  const uint32_t most = shape().padded_rows != 0 ? 1 : shape().temporal_patch;
  const uint32_t m = shape().merge;
  std::mt19937 random(77);
  for (const uint32_t align : {256, 1}) {
    for (const bool whole : {true, false}) {
      std::vector<Grid> grids(40);
      for (auto& [h, w] : grids) {
        h = m * (1 + random() % 9);
        w = m * (1 + random() % 9);
      }
      grids.resize(whole ? 40 : 7);
      std::vector<PatchifyImage> images = LayOut(grids, shape(), 8, align);
      uint64_t offset = 0;
      for (PatchifyImage& image : images) {
        image.frames =
            whole ? (random() % 3 == 0 ? 1 : most) : 1 + random() % most;
        image.frame_stride =
            (3 * image.height * image.width + align - 1) / align * align;
        image.pixel_offset = offset;
        offset += uint64_t{image.frames} * image.frame_stride;
      }
      Expect(images);
    }
  }
}

std::string GetName(const ::testing::TestParamInfo<Case>& info) {
  const auto& [shape, formula, kernel] = info.param;
  return "Patch" + std::to_string(shape.patch) + "Merge" +
         std::to_string(shape.merge) + "Temporal" +
         std::to_string(shape.temporal_patch) +
         (shape.channels_last ? "Last" : "") +
         (shape.padded_rows != 0 ? "Padded" : "") +
         (formula == Normalisation::kPil           ? "Pil"
          : formula == Normalisation::kTorchvision ? "Torchvision"
                                                   : "Bfloat16") +
         (kernel == PatchifyKernel::kSimple ? "Simple" : "Fastest");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PatchifyGpuTest,
    ::testing::Combine(
        ::testing::Values(PatchShape{14, 2, 2}, PatchShape{16, 2, 2},
                          PatchShape{3, 1, 1}, PatchShape{5, 3, 3},
                          // ERNIE; Kimi, with rows of one patch too; RADIO;
                          // Gemma 4 and SigLIP 2, for any number of patches.
                          PatchShape{14, 2, 1}, PatchShape{14, 1, 1},
                          PatchShape{16, 1, 1}, PatchShape{16, 1, 1, true},
                          PatchShape{14, 1, 1, true},
                          PatchShape{16, 1, 1, true, 240},
                          PatchShape{6, 1, 1, false, 240}),
        ::testing::Values(Normalisation::kTorchvision, Normalisation::kPil,
                          Normalisation::kBfloat16),
        ::testing::Values(PatchifyKernel::kFastest, PatchifyKernel::kSimple)),
    GetName);

// Rows in raster order whose grids are even, which pairs of patches need.
TEST(PatchifyGpuFormsTest, PairsOfPatches) {
  constexpr PatchShape kShape = {14, 1, 1};
  for (const Normalisation formula :
       {Normalisation::kTorchvision, Normalisation::kPil}) {
    for (const uint64_t first_row : {0, 2, 8, 1}) {
      const auto images =
          LayOut({{2, 4}, {64, 62}, {1, 2}, {3, 200}}, kShape, first_row, 256);
      ExpectSameAsOnHost<float>(images, kShape, formula,
                                PatchifyKernel::kFastest);
      ExpectSameAsOnHost<uint16_t>(images, kShape, formula,
                                   PatchifyKernel::kFastest);
    }
  }
}

// Tiles of crops of these heights and widths, from `first_row` on.
void ExpectTiles(const std::vector<Grid>& sides, uint64_t first_row,
                 uint64_t align, uint64_t shift = 0) {
  PatchShape shape;
  for (const auto& [h, w] : sides) {
    shape.tile_h = std::max(shape.tile_h, h);
    shape.tile_w = std::max(shape.tile_w, w);
  }
  std::vector<PatchifyImage> images;
  uint64_t offset = shift;
  for (const auto& [h, w] : sides) {
    images.push_back({offset, first_row + images.size(), 1, 1, h, w});
    offset += (uint64_t{3} * h * w + align - 1) / align * align;
  }
  for (const Normalisation formula :
       {Normalisation::kTorchvision, Normalisation::kPil}) {
    for (const PatchifyKernel kernel :
         {PatchifyKernel::kFastest, PatchifyKernel::kSimple}) {
      ExpectSameAsOnHost<float>(images, shape, formula, kernel);
      ExpectSameAsOnHost<uint16_t>(images, shape, formula, kernel);
    }
  }
}

// The released models' tiles; sides that are no multiple of 4; any byte.
TEST(PatchifyGpuFormsTest, TilesOfOneSize) {
  for (const uint32_t side : {336, 364, 384, 448, 896, 8, 5, 6}) {
    const std::vector<Grid> sides(7, Grid{side, side});
    ExpectTiles(sides, 0, 256);
    ExpectTiles(sides, 3, 1, 1);
  }
  ExpectTiles(std::vector<Grid>(5, Grid{12, 20}), 1, 256);
}

TEST(PatchifyGpuFormsTest, TilesOfManySizes) {
  std::mt19937 random(99);
  for (const uint32_t multiple : {16, 1}) {
    std::vector<Grid> sides(9);
    for (auto& [h, w] : sides) {
      h = multiple * (1 + random() % 30);
      w = multiple * (1 + random() % 30);
    }
    ExpectTiles(sides, 2, 256);
  }
}

// Pixels that no patch covers, as of 384 pixels and patches of 14.
TEST(PatchifyGpuFormsTest, Margins) {
  for (const PatchShape& shape :
       {PatchShape{14, 2, 2}, PatchShape{14, 1, 1}, PatchShape{16, 1, 1},
        PatchShape{16, 1, 1, true, 40}}) {
    for (const uint32_t margin : {6, 4, 12, 16, 1}) {
      std::vector<PatchifyImage> images =
          LayOut({{4, 6}, {2, 2}, {6, 4}}, shape, 0, 256);
      uint64_t offset = 0;
      for (PatchifyImage& image : images) {
        image.height += margin;
        image.width += margin;
        image.pixel_offset = offset;
        offset += uint64_t{3} * image.height * image.width + 255;
        offset -= offset % 256;
      }
      ExpectSameAsOnHost<float>(images, shape, Normalisation::kPil,
                                PatchifyKernel::kFastest);
      ExpectSameAsOnHost<uint16_t>(images, shape, Normalisation::kTorchvision,
                                   PatchifyKernel::kFastest);
    }
  }
}

// Offsets of pixels, of values and of tokens above 32 bits: a first image of 5
// billion values, whose last rows are checked, and a second image.
TEST(PatchifyGpuBigTest, OffsetsPast32Bits) {
  constexpr PatchShape kShape = {14, 2, 2};
  constexpr uint64_t kSeen = 8;  // rows
  // 4,423,680 patches: 2.6 GB of pixels, 10.4 GB of bfloat16 values.
  std::vector<PatchifyImage> images =
      LayOut({{2048, 2160}, {4, 6}}, kShape, 0, 256);
  images[1].pixel_offset += uint64_t{2} << 30;
  const uint64_t last = images[1].pixel_offset;
  ASSERT_GT(last, uint64_t{1} << 32);
  ASSERT_GT(images[1].first_row * kShape.row(), uint64_t{1} << 32);
  const uint64_t pixel_bytes = PixelsEnd(images);

  const NormaliseTable table = ClipTable(Normalisation::kTorchvision);
  const CudaPatchifier patchifier =
      OrDie(CudaPatchifier::Create(kShape, table));
  const DeviceBuffer pixels = Filled<uint8_t>(pixel_bytes, 77);
  const std::vector<uint8_t> rgb = RandomBytes(pixel_bytes - last, 3);
  OrDie(cudaMemcpy(pixels.data() + last, rgb.data(), rgb.size(),
                   cudaMemcpyHostToDevice),
        "copy to the device");
  const DeviceBuffer device_images = ToDevice(images);
  const uint64_t rows = RowsEnd(images, kShape);
  std::vector<uint16_t> want(24 * kShape.row());
  PatchifyBfloat16(rgb.data(), 4, 6, kShape, table, want.data());

  for (const PatchifyKernel kernel :
       {PatchifyKernel::kFastest, PatchifyKernel::kSimple}) {
    const DeviceBuffer out = Filled<uint16_t>(rows * kShape.row(), 0xFF);
    PatchifyBatch batch;
    batch.pixels = pixels.data();
    batch.pixel_bytes = pixel_bytes;
    batch.images = images;
    batch.device_images =
        reinterpret_cast<const PatchifyImage*>(device_images.data());
    batch.out = out.data();
    batch.out_rows = rows;
    batch.kernel = kernel;
    const absl::Status status = patchifier.Launch(batch, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    const uint64_t seen = (images[1].first_row - kSeen) * kShape.row();
    const std::vector<uint16_t> got =
        ToHost<uint16_t>(out, seen, kSeen * kShape.row() + want.size());
    for (uint64_t i = 0; i < kSeen * kShape.row(); ++i) {
      const int c = i % kShape.row() / (2 * 14 * 14);
      ASSERT_EQ(got[i], table.bfloat16s(c)[77]) << i;
    }
    EXPECT_TRUE(std::equal(want.begin(), want.end(),
                           got.begin() + kSeen * kShape.row()));
  }
}

TEST(PatchifyGpuErrorsTest, RefusesArgumentsThatWouldCrashAKernel) {
  constexpr PatchShape kShape = {14, 2, 2};
  const CudaPatchifier patchifier = OrDie(
      CudaPatchifier::Create(kShape, ClipTable(Normalisation::kTorchvision)));
  const std::vector<PatchifyImage> images = LayOut({{2, 2}}, kShape, 0, 256);
  const DeviceBuffer pixels = Filled<uint8_t>(4096, 1);
  const DeviceBuffer device_images = ToDevice(images);
  const DeviceBuffer out = Filled<uint16_t>(5 * kShape.row(), 0);
  PatchifyBatch good;
  good.pixels = pixels.data();
  good.pixel_bytes = pixels.size();
  good.images = images;
  good.device_images =
      reinterpret_cast<const PatchifyImage*>(device_images.data());
  good.out = out.data();
  good.out_rows = 4;
  ASSERT_TRUE(patchifier.Launch(good, nullptr).ok());

  const auto code = [&](auto spoil) {
    PatchifyBatch bad = good;
    spoil(&bad);
    return patchifier.Launch(bad, nullptr).code();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](auto* b) { b->pixels = nullptr; }), kInvalid);
  EXPECT_EQ(code([](auto* b) { b->device_images = nullptr; }), kInvalid);
  EXPECT_EQ(code([](auto* b) { b->out = nullptr; }), kInvalid);
  EXPECT_EQ(code([&](auto* b) { b->out = out.data() + 8; }), kInvalid);
  EXPECT_EQ(code([](auto* b) { b->out_rows = 3; }), kInvalid);
  EXPECT_EQ(code([](auto* b) { b->pixel_bytes = 2351; }), kInvalid);
  EXPECT_EQ(code([](auto* b) { b->images = {}; }), absl::StatusCode::kOk);
  OrDie(cudaDeviceSynchronize(), "wait for the device");
}

}  // namespace
}  // namespace ballast
