#include "server/media/image/crop_maker.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image/row_sink.h"
#include "server/sample/data_fault.h"

namespace ballast {

namespace {

constexpr size_t kPixelBytes = 3;

RgbImage NewImage(uint32_t height, uint32_t width) {
  return {width, height,
          std::vector<uint8_t>(size_t{height} * width * kPixelBytes)};
}

uint8_t* PixelAt(RgbImage& image, uint32_t y, uint32_t x) {
  return image.pixels.data() + (size_t{y} * image.width + x) * kPixelBytes;
}

const uint8_t* PixelAt(const RgbImage& image, uint32_t y, uint32_t x) {
  return image.pixels.data() + (size_t{y} * image.width + x) * kPixelBytes;
}

RgbImage Part(const RgbImage& image, const PixelRect& rect) {
  RgbImage part = NewImage(rect.height, rect.width);
  for (uint32_t y = 0; y < rect.height; ++y) {
    std::memcpy(PixelAt(part, y, 0), PixelAt(image, rect.top + y, rect.left),
                size_t{rect.width} * kPixelBytes);
  }
  return part;
}

bool IsWithin(const PixelRect& rect, uint32_t height, uint32_t width) {
  return uint64_t{rect.top} + rect.height <= height &&
         uint64_t{rect.left} + rect.width <= width;
}

RgbImage Place(const RgbImage& image, const PlanStage& stage) {
  RgbImage canvas = NewImage(stage.height, stage.width);
  for (size_t i = 0; i < canvas.pixels.size(); i += kPixelBytes) {
    std::memcpy(&canvas.pixels[i], stage.background.data(), kPixelBytes);
  }
  for (uint32_t y = 0; y < image.height; ++y) {
    std::memcpy(PixelAt(canvas, stage.place.top + y, stage.place.left),
                PixelAt(image, y, 0), size_t{image.width} * kPixelBytes);
  }
  return canvas;
}

absl::StatusOr<RgbImage> PlaceOnCanvas(const RgbImage& source,
                                       const PlanStage& stage,
                                       const Resampling& resampling) {
  const uint64_t pixels = uint64_t{stage.height} * stage.width;
  if (pixels > kMaxImagePixels) {
    return DataFaultError(absl::StrCat(
        "would be resized or padded to ", stage.width, "x", stage.height,
        " pixels; at most ", kMaxImagePixels, " are made"));
  }
  if (!IsWithin(stage.from, source.height, source.width) ||
      !IsWithin(stage.place, stage.height, stage.width)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", source.width, "x", source.height,
                     " pixels does not fit its plan"));
  }
  const bool whole =
      stage.from.height == source.height && stage.from.width == source.width;
  const RgbImage part = whole ? RgbImage() : Part(source, stage.from);
  RgbImage resized = NewImage(stage.place.height, stage.place.width);
  BALLAST_RETURN_IF_ERROR(Resize(whole ? source : part, resampling,
                                 resized.width, resized.height,
                                 absl::MakeSpan(resized.pixels)));
  if (resized.height == stage.height && resized.width == stage.width) {
    return resized;
  }
  return Place(resized, stage);
}

}  // namespace

uint64_t CropBytes(const ImagePlan& plan, const Resampling& resampling) {
  const auto bytes = [](uint64_t height, uint64_t width) {
    return height * width * kPixelBytes;
  };
  uint64_t total = 0;
  for (const PlanStage& stage : plan.stages) {
    // The part that is resized, the resized part, and the canvas.
    total +=
        bytes(stage.from.height, stage.from.width) +
        bytes(stage.place.height, stage.place.width) +
        bytes(stage.height, stage.width) +
        bytes(stage.crop.height, stage.crop.width) * stage.rows *
            stage.columns +
        ResizeSink::MostBytes(resampling, stage.from.width, stage.from.height,
                              stage.place.width, stage.place.height);
  }
  return total;
}

absl::StatusOr<std::vector<RgbImage>> MakeCrops(const RgbImage& image,
                                                const ImagePlan& plan,
                                                const Resampling& resampling) {
  std::vector<RgbImage> crops;
  std::vector<RgbImage> canvases;
  for (const PlanStage& stage : plan.stages) {
    const RgbImage& source = stage.source == PlanStage::kDecodedImage
                                 ? image
                                 : canvases[stage.source];
    BALLAST_ASSIGN_OR_RETURN(RgbImage canvas,
                             PlaceOnCanvas(source, stage, resampling));
    for (uint32_t i = 0; i < stage.rows * stage.columns; ++i) {
      PixelRect rect = stage.crop;
      rect.top += i / stage.columns * rect.height;
      rect.left += i % stage.columns * rect.width;
      crops.push_back(Part(canvas, rect));
    }
    canvases.push_back(std::move(canvas));
  }
  return crops;
}

namespace {

absl::Status WriteRows(const RgbRows& picture, RowSink* sink) {
  BALLAST_RETURN_IF_ERROR(sink->Begin(picture.width, picture.height));
  const size_t bytes = size_t{picture.width} * kChannels;
  for (uint32_t y = 0; y < picture.height;) {
    const absl::Span<uint8_t* const> rows = sink->NextRows();
    for (uint8_t* row : rows) {
      std::memcpy(row, picture.rows + size_t{picture.stride} * y++, bytes);
    }
    sink->RowsDone(rows.size());
  }
  return sink->Finish();
}

}  // namespace

absl::Status FrameResizer::Resize(const RgbRows& picture,
                                  Orientation orientation,
                                  const Resampling& resampling, uint32_t width,
                                  uint32_t height, absl::Span<uint8_t> out) {
  if (picture.width == 0 || picture.height == 0 || width == 0 || height == 0 ||
      uint64_t{width} * height * kChannels != out.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resizing ", picture.width, "x", picture.height, " pixels to ", width,
        "x", height, " in ", out.size(), " bytes; a pixel takes ", kChannels));
  }
  const bool swaps = SwapsSides(orientation);
  const uint32_t turned_width = swaps ? picture.height : picture.width;
  const uint32_t turned_height = swaps ? picture.width : picture.height;
  ImageSink plain(out.data());
  std::optional<ResizeSink> resizing;
  RowSink* sink = &plain;
  if (width != turned_width || height != turned_height) {
    sink = &resizing.emplace(width, height, resampling, out, &arena_, &tables_);
  }
  OrientingSink turning(orientation, &arena_, sink);
  const absl::Status status =
      WriteRows(picture, orientation == kUpright ? sink : &turning);
  arena_.Reset();
  return status;
}

}  // namespace ballast
