// The kernels' twin for frames of videos against libswscale, as the server
// calls it. A program of its own, since FFmpeg's libraries are linked.
extern "C" {
#include <libavutil/frame.h>
#include <libavutil/pixfmt.h>
}

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "proto/image/engine_jpeg.h"
#include "server/media/video/decoder/frame_decoder.h"
#include "trainer_shim/host/host_image_decoder.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {
namespace {

using video_decoder::RgbConverter;

// A frame of FFmpeg and the same samples as an engine's planes.
class Frame {
 public:
  Frame(uint32_t width, uint32_t height, int matrix, bool is_full,
        AVPixelFormat format = AV_PIX_FMT_YUV420P)
      : frame_(av_frame_alloc()) {
    frame_->width = static_cast<int>(width);
    frame_->height = static_cast<int>(height);
    frame_->format = format;
    frame_->colorspace = static_cast<AVColorSpace>(matrix);
    frame_->color_range = is_full ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    EXPECT_EQ(av_frame_get_buffer(frame_.get(), 0), 0);
    form_ = {width, height, ChromaSampling::kVideo, *GetVideoMatrix(matrix),
             is_full};
    layout_ = LayOutPlanes(form_);
    planes_.resize(layout_.bytes);
  }

  // `of(i)`: the i-th sample of luma; `pair(i)`: the i-th of Cb and Cr.
  template <typename Luma, typename Pair>
  void Fill(const Luma& of, const Pair& pair) {
    uint64_t i = 0;
    for (uint32_t y = 0; y < form_.height; ++y) {
      for (uint32_t x = 0; x < form_.width; ++x, ++i) {
        const uint8_t value = of(x, y, i);
        frame_->data[0][y * frame_->linesize[0] + x] = value;
        planes_[uint64_t{y} * layout_.pitch[0] + x] = value;
      }
    }
    i = 0;
    for (uint32_t y = 0; y < form_.plane_height(1); ++y) {
      for (uint32_t x = 0; x < form_.plane_width(1) / 2; ++x, ++i) {
        for (int c = 0; c < 2; ++c) {
          const uint8_t value = pair(i, c);
          frame_->data[1 + c][y * frame_->linesize[1 + c] + x] = value;
          planes_[layout_.offset[1] + uint64_t{y} * layout_.pitch[1] + 2 * x +
                  c] = value;
        }
      }
    }
  }

  void ExpectLibswscalesRgb() {
    RgbConverter converter;
    ExpectLibswscalesRgb(&converter);
  }

  void ExpectLibswscalesRgb(RgbConverter* converter) {
    const uint32_t bytes = 3 * form_.width;
    const auto stride =
        static_cast<uint32_t>(video_decoder::RowBytes(form_.width));
    std::vector<uint8_t> want(uint64_t{stride} * form_.height +
                              video_decoder::kSlotMargin);
    video_decoder::Fault fault;
    ASSERT_TRUE(converter->Convert(*frame_, want.data(), stride, &fault))
        << fault.reason;
    ResamplePlanner planner;
    const ResampleRequest request = {form_, form_.width, form_.height, 0, 0};
    ASSERT_TRUE(planner.Plan({&request, 1}).ok());
    std::vector<uint8_t> row(bytes);
    for (uint32_t y = 0; y < form_.height; ++y) {
      PlaneRowToRgb(planner.plan().images[0], planes_.data(), y, row.data());
      const uint8_t* of = want.data() + uint64_t{y} * stride;
      if (std::equal(row.begin(), row.end(), of)) continue;
      for (uint32_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(int{row[i]}, int{of[i]})
            << "row " << y << " pixel " << i / 3 << " channel " << i % 3;
      }
    }
  }

 private:
  std::unique_ptr<AVFrame, video_decoder::FreeDecoding> frame_;
  PlaneForm form_;
  PlaneLayout layout_;
  std::vector<uint8_t> planes_;
};

// Every code of a matrix but RGB's, in sizes around those of vectors.
TEST(VideoColoursTest, NoiseOfAllFormsAndSizes) {
  std::mt19937 random(67);
  for (int matrix = 1; matrix <= AVCOL_SPC_CHROMA_DERIVED_CL; ++matrix) {
    for (const bool is_full : {false, true}) {
      for (const auto& [width, height] : {std::pair<uint32_t, uint32_t>{2, 2},
                                          {6, 4},
                                          {16, 16},
                                          {18, 2},
                                          {34, 50},
                                          {65, 32},
                                          {161, 120},
                                          {322, 66}}) {
        SCOPED_TRACE(::testing::Message()
                     << "matrix " << matrix << " full " << is_full << ", "
                     << width << "x" << height);
        Frame frame(width, height, matrix, is_full);
        frame.Fill([&](auto...) { return random(); },
                   [&](auto...) { return random(); });
        frame.ExpectLibswscalesRgb();
      }
    }
  }
}

// Every value of Y, Cb and Cr together, of the commonest matrices.
TEST(VideoColoursTest, EveryColour) {
  constexpr uint32_t kSide = 4096;  // 2^24 pixels
  for (const int matrix : {1, 5}) {
    for (const bool is_full : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << "matrix " << matrix << " full " << is_full);
      Frame frame(kSide, kSide, matrix, is_full);
      // Each pair of chroma has 64 samples, and so 256 pixels.
      frame.Fill(
          [&](uint32_t x, uint32_t y, uint64_t) {
            const uint64_t square = uint64_t{y / 2} * (kSide / 2) + x / 2;
            return square % 64 * 4 + y % 2 * 2 + x % 2;
          },
          [&](uint64_t i, int c) { return c == 0 ? i / 64 : i / 64 >> 8; });
      frame.ExpectLibswscalesRgb();
    }
  }
}

// The old name of the full range.
TEST(VideoColoursTest, FormatsOfFullRange) {
  std::mt19937 random(67);
  for (int matrix = 1; matrix <= AVCOL_SPC_CHROMA_DERIVED_CL; ++matrix) {
    for (const auto& [width, height] :
         {std::pair<uint32_t, uint32_t>{322, 242}, {256, 192}}) {
      SCOPED_TRACE(::testing::Message()
                   << "matrix " << matrix << ", " << width << "x" << height);
      Frame frame(width, height, matrix, true, AV_PIX_FMT_YUVJ420P);
      frame.Fill([&](auto...) { return random(); },
                 [&](auto...) { return random(); });
      frame.ExpectLibswscalesRgb();
    }
  }
}

// Of a video, whose frames one converter converts.
TEST(VideoColoursTest, FramesOfFullRangeOneAfterTheOther) {
  std::mt19937 random(67);
  RgbConverter converter;
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    Frame frame(256, 192, AVCOL_SPC_BT709, true, AV_PIX_FMT_YUVJ420P);
    frame.Fill([&](auto...) { return random(); },
               [&](auto...) { return random(); });
    frame.ExpectLibswscalesRgb(&converter);
  }
}

}  // namespace
}  // namespace ballast
