#include "server/media/image/image.h"

#include <png.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image/jpeg.h"
#include "server/media/image/row_sink.h"
#include "server/media/image/strip_resampler.h"
#include "server/media/image/webp.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Decodes with libpng's push reader, which returns every row that the available
// bytes complete. So, as in Pillow, a file is good if all its rows are; damage
// after them does not matter.
class PngDecoder {
 public:
  PngDecoder(uint32_t width, uint32_t height,
             v1::Model::Transparency transparency, ScratchArena* arena,
             RowSink* sink)
      : width_(width),
        height_(height),
        transparency_(transparency),
        arena_(arena),
        sink_(sink) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  absl::Status Decode(absl::string_view bytes) {
    BALLAST_RETURN_IF_ERROR(sink_->Begin(width_, height_));
    const bool read = Read(bytes);
    if (rows_left_ == 0) {
      if (interlaced_) CopyRows(canvas_, width_, height_, sink_);
      return absl::OkStatus();
    }
    if (out_of_memory_) {
      return arena_->Refusal(absl::StrCat(interlaced_ ? "interlaced " : "",
                                          "PNG of ", width_, "x", height_,
                                          " pixels"));
    }
    return DataFaultError(
        read ? std::string("PNG is truncated: rows are missing")
             : absl::StrCat("PNG is damaged: ", message_));
  }

  uint64_t warnings() const { return warnings_; }

 private:
  static PngDecoder* From(png_structp png) {
    return static_cast<PngDecoder*>(png_get_error_ptr(png));
  }

  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    PngDecoder* decoder = From(png);
    std::snprintf(decoder->message_, sizeof(decoder->message_), "%s", message);
    png_longjmp(png, 1);
  }

  static void OnWarning(png_structp png, png_const_charp) {
    ++From(png)->warnings_;
  }

  static png_voidp Allocate(png_structp png, png_alloc_size_t bytes) {
    auto* decoder = static_cast<PngDecoder*>(png_get_mem_ptr(png));
    void* memory = decoder->arena_->Allocate(bytes);
    if (memory == nullptr) decoder->out_of_memory_ = true;
    return memory;
  }

  // Frees nothing: the arena is reset instead.
  static void Free(png_structp, png_voidp) {}

  static void OnInfo(png_structp png, png_infop info) {
    From(png)->StartRows(info);
  }

  static void OnRow(png_structp png, png_bytep row, png_uint_32 y, int pass) {
    From(png)->PutRow(row, y, pass);
  }

  // Makes all calls that may longjmp. Has no local that needs a destructor.
  bool Read(absl::string_view bytes) {
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, OnError,
                                    OnWarning, this, Allocate, Free);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      std::snprintf(message_, sizeof(message_), "libpng cannot start");
      return false;
    }
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_progressive_read_fn(png_, this, OnInfo, OnRow, nullptr);
    // The pixels are already bounded, and a chunk is bounded by the file.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, 0);
    // Reads only the chunks that carry the picture.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    if (transparency_ != v1::Model::TRANSPARENCY_WHITE) {
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER,
                                  reinterpret_cast<png_const_bytep>("tRNS"), 1);
    }
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    // Some encoders declare a smaller window than they use.
    png_set_option(png_, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
    // libpng does not write through the pointer.
    png_process_data(
        png_, info_,
        reinterpret_cast<png_bytep>(const_cast<char*>(bytes.data())),
        bytes.size());
    return true;
  }

  // All chunks before the image data have been read.
  void StartRows(png_infop info) {
    if (png_get_image_width(png_, info) != width_ ||
        png_get_image_height(png_, info) != height_) {
      png_error(png_, "its size is not the header's");
    }
    // From here on Pillow ignores checksums, but treats a fault in the
    // compressed data, which libpng calls benign, as an error.
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    png_set_benign_errors(png_, 0);

    interlaced_ = png_get_interlace_type(png_, info) != PNG_INTERLACE_NONE;
    grey16_ = png_get_bit_depth(png_, info) == 16 &&
              png_get_color_type(png_, info) == PNG_COLOR_TYPE_GRAY;
    on_white_ = !grey16_ && IsOnWhite(info);
    if (!grey16_) {
      png_set_expand(png_);
      png_set_strip_16(png_);
      if (!on_white_) png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
    }
    png_read_update_info(png_, info);
    if (png_get_rowbytes(png_, info) != size_t{width_} * (grey16_     ? 2
                                                          : on_white_ ? 4
                                                                      : 3)) {
      png_error(png_, "unexpected row size");
    }
    rows_left_ = height_;
    if (!interlaced_) return;
    canvas_ = arena_->AllocateArray<uint8_t>(size_t{width_} * height_ * 3);
    if (canvas_ == nullptr) {
      out_of_memory_ = true;
      png_error(png_, "out of memory");
    }
    rows_left_ = 0;
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      if (PNG_PASS_COLS(width_, pass) == 0) continue;
      rows_left_ += PNG_PASS_ROWS(height_, pass);
    }
  }

  // Whether transparent pixels are put on white. Of a single transparent colour
  // the authors of models on white keep RGB as it is, and put grey on white.
  bool IsOnWhite(png_infop info) const {
    const int type = png_get_color_type(png_, info);
    switch (transparency_) {
      case v1::Model::TRANSPARENCY_WHITE_RGBA:
        // Pillow reads 16-bit grey with alpha as RGBA, too.
        return type == PNG_COLOR_TYPE_RGB_ALPHA ||
               (type == PNG_COLOR_TYPE_GRAY_ALPHA &&
                png_get_bit_depth(png_, info) == 16);
      case v1::Model::TRANSPARENCY_WHITE:
        return (type & PNG_COLOR_MASK_ALPHA) != 0 ||
               (type != PNG_COLOR_TYPE_RGB &&
                png_get_valid(png_, info, PNG_INFO_tRNS) != 0);
      default:
        return false;
    }
  }

  // `row` is row `y` of the pass, or of the image if it is not interlaced.
  void PutRow(const uint8_t* row, uint32_t y, int pass) {
    if (row == nullptr || rows_left_ == 0) return;
    if (!interlaced_) {
      // libpng returns rows in order.
      uint8_t* out = sink_->NextRows()[0];
      if (grey16_ || on_white_) {
        PutPixels(row, width_, 1, out);
      } else {
        std::memcpy(out, row, size_t{width_} * 3);
      }
      sink_->RowsDone(1);
    } else {
      y = PNG_ROW_FROM_PASS_ROW(y, pass);
      if (y >= height_) return;
      PutPixels(row, PNG_PASS_COLS(width_, pass), PNG_PASS_COL_OFFSET(pass),
                canvas_ + (y * size_t{width_} + PNG_PASS_START_COL(pass)) * 3);
    }
    --rows_left_;
  }

  // Writes `count` pixels of a row to every `step`th pixel of `out`.
  void PutPixels(const uint8_t* row, size_t count, size_t step, uint8_t* out) {
    for (size_t i = 0; i < count; ++i, out += step * 3) {
      if (grey16_) {
        // Pillow clips 16-bit grey but takes the high byte of colour; see
        // docs/decisions/0006.
        out[0] = out[1] = out[2] = row[2 * i] == 0 ? row[2 * i + 1] : 255;
      } else if (on_white_) {
        PutOnWhite(row + 4 * i, out);
      } else {
        out[0] = row[3 * i];
        out[1] = row[3 * i + 1];
        out[2] = row[3 * i + 2];
      }
    }
  }

  const uint32_t width_;
  const uint32_t height_;
  const v1::Model::Transparency transparency_;
  ScratchArena* const arena_;
  RowSink* const sink_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  uint8_t* canvas_ = nullptr;  // interlaced images only
  bool interlaced_ = false;
  bool grey16_ = false;
  bool on_white_ = false;
  uint64_t rows_left_ = UINT64_MAX;  // over all passes; set by OnInfo
  bool out_of_memory_ = false;
  uint64_t warnings_ = 0;
  char message_[128] = "";
};

// Writes the rows of `bytes`, a PNG of width x height pixels, to `sink`: calls
// Begin, not Finish. Memory, including libpng's and zlib's, comes from `arena`;
// an interlaced image takes 3 bytes per pixel of it. Sets `warnings` to the
// number of faults that were skipped. Errors: INVALID_ARGUMENT (damaged,
// truncated, another size); RESOURCE_EXHAUSTED (the arena's limit); the sink's.
absl::Status DecodePng(absl::string_view bytes, uint32_t width, uint32_t height,
                       v1::Model::Transparency transparency,
                       ScratchArena* arena, RowSink* sink, uint64_t* warnings) {
  PngDecoder decoder(width, height, transparency, arena, sink);
  const absl::Status status = decoder.Decode(bytes);
  *warnings = decoder.warnings();
  return status;
}

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
