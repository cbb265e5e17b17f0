#include "server/image/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <vector>

// After <cstdio>: it uses FILE without including it.
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// A progressive file of a few bytes a scan can ask for any number of passes
// over the image. Encoders write about ten.
constexpr int kMaxScans = 100;

struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void OnError(j_common_ptr info) {
  auto* error = reinterpret_cast<ErrorManager*>(info->err);
  (*error->base.format_message)(info, error->message);
  std::longjmp(error->jump, 1);
}

// Pillow takes what libjpeg only warns of.
void IgnoreMessage(j_common_ptr) {}

void LimitScans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMaxScans) return;
  auto* error = reinterpret_cast<ErrorManager*>(info->err);
  std::snprintf(error->message, sizeof(error->message), "more than %d scans",
                kMaxScans);
  std::longjmp(error->jump, 1);
}

// The source is one buffer that is never refilled: at its end libjpeg suspends
// instead of inventing an end of image, which tells a truncated file from one
// that is merely damaged. Pillow does the same.
void DoNothing(j_decompress_ptr) {}

boolean Suspend(j_decompress_ptr) { return FALSE; }

void SkipBytes(j_decompress_ptr info, long count) {
  jpeg_source_mgr* source = info->src;
  const size_t skipped = count <= 0 ? 0
                                    : std::min(static_cast<size_t>(count),
                                               source->bytes_in_buffer);
  source->next_input_byte += skipped;
  source->bytes_in_buffer -= skipped;
}

// Pillow takes every CMYK file as Adobe's, inverted: what libjpeg gives is 255
// minus the ink. Then its own CMYK to RGB: 255 - k, less c's share of it.
void InvertedCmykToRgb(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const int white = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * white + 128;
      rgb[c] = static_cast<uint8_t>(white - ((product + (product >> 8)) >> 8));
    }
  }
}

class JpegDecoder {
 public:
  explicit JpegDecoder(absl::string_view bytes) {
    info_.err = jpeg_std_error(&error_.base);
    error_.base.error_exit = OnError;
    error_.base.output_message = IgnoreMessage;
    source_.init_source = DoNothing;
    source_.fill_input_buffer = Suspend;
    source_.skip_input_data = SkipBytes;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = DoNothing;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    progress_.progress_monitor = LimitScans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  absl::StatusOr<RgbImage> Decode(const ImageHeader& header) {
    RgbImage image{header.width, header.height, {}};
    switch (Run(image)) {
      case Outcome::kDone:
        return image;
      case Outcome::kOtherSize:
        return absl::InvalidArgumentError(
            absl::StrCat("JPEG has frame headers of different sizes, one of ",
                         header.width, "x", header.height, " and one of ",
                         info_.image_width, "x", info_.image_height));
      case Outcome::kTruncated:
        return absl::InvalidArgumentError("JPEG is truncated");
      case Outcome::kError:
        break;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("JPEG is damaged: ", error_.message));
  }

 private:
  enum class Outcome { kDone, kTruncated, kOtherSize, kError };

  // Everything that may longjmp. It has no local that needs a destructor.
  Outcome Run(RgbImage& image) {
    if (setjmp(error_.jump)) return Outcome::kError;
    jpeg_create_decompress(&info_);
    info_.src = &source_;
    info_.progress = &progress_;
    int header = JPEG_SUSPENDED;
    do {
      header = jpeg_read_header(&info_, FALSE);
    } while (header == JPEG_HEADER_TABLES_ONLY);
    if (header == JPEG_SUSPENDED) return Outcome::kTruncated;
    if (info_.image_width != image.width ||
        info_.image_height != image.height) {
      return Outcome::kOtherSize;
    }
    const bool cmyk = info_.num_components == 4;
    info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    if (!jpeg_start_decompress(&info_)) return Outcome::kTruncated;

    const size_t stride = size_t{image.width} * 3;
    image.pixels.resize(stride * image.height);
    if (cmyk) cmyk_row_.resize(size_t{image.width} * 4);
    while (info_.output_scanline < info_.output_height) {
      uint8_t* out = image.pixels.data() + info_.output_scanline * stride;
      JSAMPROW row = cmyk ? cmyk_row_.data() : out;
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) {
        return Outcome::kTruncated;
      }
      if (cmyk) InvertedCmykToRgb(row, image.width, out);
    }
    // Suspends where the end-of-image marker is missing; all rows are there.
    jpeg_finish_decompress(&info_);
    return Outcome::kDone;
  }

  ErrorManager error_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
  std::vector<uint8_t> cmyk_row_;
};

}  // namespace

absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view bytes,
                                    const ImageHeader& header) {
  return JpegDecoder(bytes).Decode(header);
}

}  // namespace ballast
