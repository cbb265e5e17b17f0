// A second opinion beside Pillow's vectors: OpenCV's resize, colour conversion
// and turns, which share no code with ours.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>

#include <cstdio>  // jpeglib.h wants it first

#include <jpeglib.h>

#include "absl/strings/str_cat.h"
#include "server/command/draw/canvas.h"
#include "server/media/image/image.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

MadeJpeg Scene(uint32_t width, uint32_t height, ChromaSampling sampling) {
  MadeJpeg made;
  made.width = width;
  made.height = height;
  made.sampling = sampling;
  made.quality = 92;
  return made;
}

// The pixels of an image for OpenCV; valid as long as the image.
cv::Mat MatOfImage(RgbImage* image) {
  KeepOpenCvOnOneThread();
  return cv::Mat(static_cast<int>(image->height),
                 static_cast<int>(image->width), CV_8UC3, image->pixels.data());
}

RgbImage Decode(const std::string& file, bool upright) {
  ImageOptions options;
  options.apply_exif_orientation = upright;
  return ImageDecoder(options).Decode(file).value();
}

// The greatest difference of a value.
double Difference(const cv::Mat& a, const cv::Mat& b) {
  EXPECT_EQ(a.size(), b.size());
  return a.size() == b.size() ? cv::norm(a, b, cv::NORM_INF) : 256;
}

cv::Mat Resized(const RgbImage& source, ResampleFilter filter, int width,
                int height) {
  cv::Mat out(height, width, CV_8UC3);
  const absl::Status status =
      Resize(source, {filter, ResampleLibrary::kPillow12},
             static_cast<uint32_t>(width), static_cast<uint32_t>(height),
             absl::MakeSpan(out.data, out.total() * 3));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Whole blocks of pixels: the mean, however it is computed. Ours rounds after
// each of two passes.
TEST(OpenCvTest, BoxIsTheMeanOfAnArea) {
  RgbImage image =
      Decode(MakeJpeg(Scene(360, 240, ChromaSampling::k444)), false);
  for (const int by : {2, 3, 4, 5, 8}) {
    cv::Mat theirs;
    cv::resize(MatOfImage(&image), theirs, {360 / by, 240 / by}, 0, 0,
               cv::INTER_AREA);
    EXPECT_LE(
        Difference(Resized(image, ResampleFilter::kBox, 360 / by, 240 / by),
                   theirs),
        1)
        << by;
  }
}

// Where it does not shrink, antialiasing is plain interpolation.
TEST(OpenCvTest, BilinearEnlargesByInterpolation) {
  RgbImage image =
      Decode(MakeJpeg(Scene(101, 67, ChromaSampling::k420)), false);
  for (const auto& [width, height] :
       {std::pair(101, 67), std::pair(202, 134), std::pair(150, 300),
        std::pair(977, 68)}) {
    cv::Mat theirs;
    cv::resize(MatOfImage(&image), theirs, {width, height}, 0, 0,
               cv::INTER_LINEAR_EXACT);
    EXPECT_LE(
        Difference(Resized(image, ResampleFilter::kBilinear, width, height),
                   theirs),
        1)
        << width << "x" << height;
  }
}

// The luma and chroma of each pixel, as libjpeg upsamples them, in the order Y,
// Cr, Cb.
cv::Mat ReadYCrCb(const std::string& file) {
  jpeg_decompress_struct info;
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()),
               file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_YCbCr;
  jpeg_start_decompress(&info);
  cv::Mat pixels(static_cast<int>(info.output_height),
                 static_cast<int>(info.output_width), CV_8UC3);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.ptr(static_cast<int>(info.output_scanline));
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  cv::Mat swapped(pixels.size(), CV_8UC3);
  cv::mixChannels(pixels, swapped, {0, 0, 1, 2, 2, 1});
  return swapped;
}

TEST(OpenCvTest, ColoursAreThoseOfTheFormula) {
  for (const ChromaSampling sampling :
       {ChromaSampling::k444, ChromaSampling::k422, ChromaSampling::k420}) {
    const std::string file = MakeJpeg(Scene(123, 77, sampling));
    RgbImage image = Decode(file, false);
    KeepOpenCvOnOneThread();
    cv::Mat theirs;
    cv::cvtColor(ReadYCrCb(file), theirs, cv::COLOR_YCrCb2RGB);
    // Both round sums of rounded products.
    EXPECT_LE(Difference(MatOfImage(&image), theirs), 1)
        << static_cast<int>(sampling);
  }
}

// The file with an EXIF block that names the orientation.
std::string WithOrientation(const std::string& jpeg, int orientation) {
  const char exif[] = {
      'E',  'x', 'i', 'f', 0, 0, 'I', 'I', '*',
      0,    8,   0,   0,   0,  // a header
      1,    0,                 // one entry:
      0x12, 1,   3,   0,   1, 0, 0,   0,   static_cast<char>(orientation),
      0,    0,   0,   0,   0, 0, 0};
  const std::string block(exif, sizeof(exif));
  const size_t length = block.size() + 2;
  return absl::StrCat(jpeg.substr(0, 2), "\xff\xe1",
                      std::string(1, static_cast<char>(length >> 8)),
                      std::string(1, static_cast<char>(length)), block,
                      jpeg.substr(2));
}

TEST(OpenCvTest, OrientationsAreTurnsAndMirrors) {
  const std::string jpeg = MakeJpeg(Scene(83, 51, ChromaSampling::k420));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = WithOrientation(jpeg, orientation);
    RgbImage stored = Decode(file, false);
    RgbImage upright = Decode(file, true);
    const cv::Mat from = MatOfImage(&stored);
    cv::Mat theirs = from.clone();
    switch (orientation) {
      case 2:
        cv::flip(from, theirs, 1);
        break;
      case 3:
        cv::rotate(from, theirs, cv::ROTATE_180);
        break;
      case 4:
        cv::flip(from, theirs, 0);
        break;
      case 5:
        cv::transpose(from, theirs);
        break;
      case 6:
        cv::rotate(from, theirs, cv::ROTATE_90_CLOCKWISE);
        break;
      case 7:
        cv::rotate(from, theirs, cv::ROTATE_180);
        cv::transpose(theirs.clone(), theirs);
        break;
      case 8:
        cv::rotate(from, theirs, cv::ROTATE_90_COUNTERCLOCKWISE);
    }
    EXPECT_EQ(Difference(MatOfImage(&upright), theirs), 0) << orientation;
  }
}

}  // namespace
}  // namespace ballast
