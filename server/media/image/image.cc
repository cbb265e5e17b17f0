#include "server/media/image/image.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image/jpeg.h"
#include "server/media/image/png.h"
#include "server/media/image/row_sink.h"
#include "server/media/image/strip_resampler.h"
#include "server/media/image/webp.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Header and orientation of a whole file.
struct Stored {
  ImageHeader header = {};
  Orientation orientation = kUpright;

  uint32_t width() const {
    return SwapsSides(orientation) ? header.height : header.width;
  }
  uint32_t height() const {
    return SwapsSides(orientation) ? header.width : header.height;
  }
};

absl::StatusOr<Stored> ReadStored(absl::string_view bytes,
                                  const ImageOptions& options) {
  Stored stored;
  BALLAST_ASSIGN_OR_RETURN(stored.header, ReadImageHeader(bytes));
  if (options.apply_exif_orientation) {
    BALLAST_ASSIGN_OR_RETURN(stored.orientation,
                             ReadOrientation(bytes, stored.header));
  }
  return stored;
}

// A header that ends early in a complete file is damage.
template <typename T>
absl::StatusOr<T> OfWholeFile(absl::StatusOr<T> read) {
  if (absl::IsOutOfRange(read.status())) {
    return DataFaultError(read.status().message());
  }
  return read;
}

absl::StatusOr<Stored> ReadWholeFile(absl::string_view bytes,
                                     const ImageOptions& options) {
  return OfWholeFile(ReadStored(bytes, options));
}

// The memory for turning a picture and, with `is_kept`, for its pixels.
uint64_t PixelBytes(const Stored& stored, bool is_kept) {
  const uint64_t pixels =
      uint64_t{stored.header.width} * stored.header.height * kChannels;
  return pixels *
         ((stored.orientation == kUpright ? 0 : 1) + (is_kept ? 1 : 0));
}

// Checks the limit: `decoder` (the decoder's memory) plus `more`. Errors: a
// data fault.
absl::StatusOr<uint64_t> WithinLimit(const Stored& stored, uint64_t decoder,
                                     uint64_t more,
                                     const ImageOptions& options) {
  if (decoder + more <= options.max_memory) return decoder + more;
  return DataFaultError(absl::StrCat(
      "decoding an image of ", stored.header.width, "x", stored.header.height,
      " pixels needs ", decoder + more, " bytes of memory; at most ",
      options.max_memory, " are taken for an image"));
}

bool IsOnWhite(const ImageOptions& options) {
  return options.transparency == v1::Model::TRANSPARENCY_WHITE ||
         options.transparency == v1::Model::TRANSPARENCY_WHITE_RGBA;
}

absl::Status CheckOutput(uint32_t width, uint32_t height, size_t bytes) {
  if (width == 0 || height == 0 ||
      uint64_t{width} * height * kChannels != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing to ", width, "x", height, " pixels in ", bytes,
                     " bytes; a pixel takes ", kChannels));
  }
  return absl::OkStatus();
}

}  // namespace

struct ImageDecoder::State {
  explicit State(const ImageOptions& o)
      : options(o), arena(o.max_memory, kKeptMemory), jpeg(&arena) {}

  // Memory that decoding takes; `more` is for resizing, and for a result that
  // is kept.
  absl::StatusOr<uint64_t> Needs(absl::string_view bytes, const Stored& stored,
                                 uint64_t more) const {
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t decoder,
        OfWholeFile(ReadDecoderBytes(bytes, stored.header)));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t needs,
                             WithinLimit(stored, decoder, more, options));
    if (stored.header.format != ImageFormat::kWebp) return needs;
    BALLAST_ASSIGN_OR_RETURN(const uint64_t tables, ReadWebpTableBytes(bytes));
    // Its alpha beside its colours.
    const uint64_t alpha = IsOnWhite(options) ? uint64_t{stored.header.width} *
                                                    stored.header.height
                                              : 0;
    return WithinLimit(stored, decoder + tables + alpha, more, options);
  }

  // Memory that resizing takes.
  uint64_t ResizeBytes(const Stored& stored, uint32_t width,
                       uint32_t height) const {
    if (width == stored.width() && height == stored.height()) return 0;
    return ResizeSink::MostBytes(options.resampling, stored.width(),
                                 stored.height(), width, height);
  }

  // Decodes to `sink` and applies the orientation on the way, in `needs` bytes.
  // Given a size to cover, may decode a JPEG at a smaller scale.
  absl::Status DecodeTo(absl::string_view bytes, const Stored& stored,
                        uint64_t needs, const ImageSize* cover, RowSink* sink) {
    arena.SetLimit(needs);
    OrientingSink turned(stored.orientation, &arena, sink);
    RowSink* to = stored.orientation == kUpright ? sink : &turned;
    absl::Status status = Decode(bytes, stored.header, cover, to);
    if (status.ok()) status = to->Finish();
    // Returns all memory of this image before the next one.
    most_used = std::max(most_used, arena.used());
    jpeg.Release();
    arena.Reset();
    return status;
  }

  absl::Status Decode(absl::string_view bytes, const ImageHeader& header,
                      const ImageSize* cover, RowSink* sink) {
    warnings = 0;
    switch (header.format) {
      case ImageFormat::kJpeg: {
        const absl::Status status =
            jpeg.Decode(bytes, {header.width, header.height}, cover, sink);
        warnings = jpeg.warnings();
        return status;
      }
      case ImageFormat::kPng:
        return DecodePng(bytes, header.width, header.height,
                         options.transparency, &arena, sink, &warnings);
      case ImageFormat::kWebp:
        return DecodeWebp(bytes, header.width, header.height,
                          IsOnWhite(options), &arena, sink);
    }
    return absl::InternalError("unknown image format");
  }

  const ImageOptions options;
  ScratchArena arena;
  TableCache tables;
  JpegDecoder jpeg;
  uint64_t warnings = 0;
  absl::Duration resize_time;
  uint64_t most_used = 0;
};

ImageDecoder::ImageDecoder(const ImageOptions& options)
    : state_(std::make_unique<State>(options)) {}

ImageDecoder::~ImageDecoder() = default;

absl::StatusOr<RgbImage> ImageDecoder::Decode(absl::string_view bytes) {
  BALLAST_ASSIGN_OR_RETURN(const Stored stored,
                           ReadWholeFile(bytes, state_->options));
  BALLAST_ASSIGN_OR_RETURN(
      const uint64_t needs,
      state_->Needs(bytes, stored, PixelBytes(stored, /*is_kept=*/true)));
  RgbImage image{stored.width(), stored.height(), {}};
  image.pixels.resize(size_t{image.width} * image.height * kChannels);
  ImageSink sink(image.pixels.data());
  BALLAST_RETURN_IF_ERROR(
      state_->DecodeTo(bytes, stored, needs, nullptr, &sink));
  return image;
}

absl::StatusOr<uint64_t> ImageDecoder::Needs(absl::string_view bytes,
                                             uint32_t width,
                                             uint32_t height) const {
  BALLAST_ASSIGN_OR_RETURN(const Stored stored,
                           ReadWholeFile(bytes, state_->options));
  const bool is_kept = width == 0 || height == 0;
  const uint64_t resizing =
      is_kept ? 0 : state_->ResizeBytes(stored, width, height);
  return state_->Needs(bytes, stored, PixelBytes(stored, is_kept) + resizing);
}

absl::Status ImageDecoder::DecodeResized(absl::string_view bytes,
                                         const ImageHeader& expected,
                                         uint32_t width, uint32_t height,
                                         absl::Span<uint8_t> out) {
  BALLAST_RETURN_IF_ERROR(CheckOutput(width, height, out.size()));
  BALLAST_ASSIGN_OR_RETURN(const Stored stored,
                           ReadWholeFile(bytes, state_->options));
  if (stored.width() != expected.width || stored.height() != expected.height) {
    return DataFaultError(
        absl::StrCat("image is ", stored.width(), "x", stored.height(),
                     " pixels, not ", expected.width, "x", expected.height,
                     " as when it was indexed; index the source again"));
  }
  BALLAST_ASSIGN_OR_RETURN(
      const uint64_t needs,
      state_->Needs(bytes, stored,
                    PixelBytes(stored, /*is_kept=*/false) +
                        state_->ResizeBytes(stored, width, height)));
  state_->resize_time = absl::ZeroDuration();
  if (width == stored.width() && height == stored.height()) {
    ImageSink sink(out.data());
    return state_->DecodeTo(bytes, stored, needs, nullptr, &sink);
  }
  ResizeSink sink(width, height, state_->options.resampling, out,
                  &state_->arena, &state_->tables);
  ImageSize cover = {width, height};
  if (SwapsSides(stored.orientation)) std::swap(cover.width, cover.height);
  absl::Status status = state_->DecodeTo(
      bytes, stored, needs, state_->options.fast ? &cover : nullptr, &sink);
  state_->resize_time = absl::FromChrono(sink.busy());
  return status;
}

const ImageOptions& ImageDecoder::options() const { return state_->options; }

uint64_t ImageDecoder::warnings() const { return state_->warnings; }

absl::Duration ImageDecoder::resize_time() const { return state_->resize_time; }

ImageDecoder::Memory ImageDecoder::memory() const {
  return {state_->most_used, state_->arena.held() + state_->tables.bytes(),
          state_->arena.system_allocations()};
}

absl::StatusOr<ImageHeader> ReadImageSize(absl::string_view bytes,
                                          const ImageOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const Stored stored, ReadStored(bytes, options));
  const uint64_t more = PixelBytes(stored, /*is_kept=*/false);
  // Only a few images are so large that more of their header matters.
  if (MostDecoderBytes(stored.header) + more > options.max_memory) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t decoder,
                             ReadDecoderBytes(bytes, stored.header));
    BALLAST_RETURN_IF_ERROR(
        WithinLimit(stored, decoder, more, options).status());
  }
  return ImageHeader{stored.header.format, stored.width(), stored.height()};
}

absl::Status DecodeResized(absl::string_view bytes, const ImageHeader& expected,
                           uint32_t width, uint32_t height,
                           absl::Span<uint8_t> out) {
  return ImageDecoder().DecodeResized(bytes, expected, width, height, out);
}

absl::Status Resize(const RgbImage& source, const Resampling& resampling,
                    uint32_t width, uint32_t height, absl::Span<uint8_t> out) {
  BALLAST_RETURN_IF_ERROR(CheckOutput(width, height, out.size()));
  const uint64_t bytes = uint64_t{source.width} * source.height * kChannels;
  if (bytes == 0 || source.pixels.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing an image of ", source.width, "x", source.height,
                     " pixels in ", source.pixels.size(),
                     " bytes; a pixel takes ", kChannels));
  }
  if (width == source.width && height == source.height) {
    std::copy(source.pixels.begin(), source.pixels.end(), out.begin());
    return absl::OkStatus();
  }
  ScratchArena arena(ImageOptions().max_memory, 0);
  TableCache tables;
  ResizeSink sink(width, height, resampling, out, &arena, &tables);
  BALLAST_RETURN_IF_ERROR(sink.Begin(source.width, source.height));
  CopyRows(source.pixels.data(), source.width, source.height, &sink);
  return sink.Finish();
}

}  // namespace ballast
