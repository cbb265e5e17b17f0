#include "server/image/png.h"

#include <png.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// Over libpng's push reader: it hands out every row that the bytes at hand
// complete, so that, as in Pillow, a file is good when all its rows are, and
// what is cut or broken after them does not matter.
class PngDecoder {
 public:
  PngDecoder() = default;
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  absl::StatusOr<RgbImage> Decode(absl::string_view bytes,
                                  const ImageHeader& header) {
    image_.width = header.width;
    image_.height = header.height;
    image_.pixels.resize(size_t{header.width} * header.height * 3);
    const bool read = Read(bytes);
    if (rows_left_ == 0) return std::move(image_);
    return absl::InvalidArgumentError(
        read ? std::string("PNG is truncated: rows are missing")
             : absl::StrCat("PNG is damaged: ", message_));
  }

 private:
  static PngDecoder* From(png_structp png) {
    return static_cast<PngDecoder*>(png_get_error_ptr(png));
  }

  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    PngDecoder* decoder = From(png);
    std::snprintf(decoder->message_, sizeof(decoder->message_), "%s", message);
    png_longjmp(png, 1);
  }

  static void OnWarning(png_structp, png_const_charp) {}

  static void OnInfo(png_structp png, png_infop info) {
    From(png)->StartRows(info);
  }

  static void OnRow(png_structp png, png_bytep row, png_uint_32 y, int pass) {
    From(png)->PutRow(row, y, pass);
  }

  // Everything that may longjmp. It has no local that needs a destructor.
  bool Read(absl::string_view bytes) {
    png_ =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      std::snprintf(message_, sizeof(message_), "libpng cannot start");
      return false;
    }
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_progressive_read_fn(png_, this, OnInfo, OnRow, nullptr);
    // The number of pixels is bounded already, and a chunk by the file.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, 0);
    // Of all chunks only those that carry the picture are looked into;
    // transparency does not change the colours.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER,
                                reinterpret_cast<png_const_bytep>("tRNS"), 1);
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
    if (png_get_image_width(png_, info) != image_.width ||
        png_get_image_height(png_, info) != image_.height) {
      png_error(png_, "its size is not the header's");
    }
    // From here on Pillow looks at no checksum, but a fault of the compressed
    // data, which libpng calls benign, is an error.
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    png_set_benign_errors(png_, 0);

    interlaced_ = png_get_interlace_type(png_, info) != PNG_INTERLACE_NONE;
    grey16_ = png_get_bit_depth(png_, info) == 16 &&
              png_get_color_type(png_, info) == PNG_COLOR_TYPE_GRAY;
    if (!grey16_) {
      png_set_expand(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
    }
    png_read_update_info(png_, info);
    if (png_get_rowbytes(png_, info) !=
        size_t{image_.width} * (grey16_ ? 2 : 3)) {
      png_error(png_, "unexpected row size");
    }
    rows_left_ = image_.height;
    if (!interlaced_) return;
    rows_left_ = 0;
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      if (PNG_PASS_COLS(image_.width, pass) == 0) continue;
      rows_left_ += PNG_PASS_ROWS(image_.height, pass);
    }
  }

  // `row` is row `y` of the pass, of the image where there are no passes.
  void PutRow(const uint8_t* row, uint32_t y, int pass) {
    size_t first = 0;
    size_t step = 1;
    size_t count = image_.width;
    if (interlaced_) {
      first = PNG_PASS_START_COL(pass);
      step = PNG_PASS_COL_OFFSET(pass);
      count = PNG_PASS_COLS(image_.width, pass);
      y = PNG_ROW_FROM_PASS_ROW(y, pass);
    }
    if (row == nullptr || y >= image_.height || rows_left_ == 0) return;
    uint8_t* out =
        image_.pixels.data() + (y * size_t{image_.width} + first) * 3;
    for (size_t i = 0; i < count; ++i, out += step * 3) {
      if (grey16_) {
        // Pillow clips 16-bit grey where it takes the high byte of colour; see
        // docs/decisions/0006.
        out[0] = out[1] = out[2] = row[2 * i] == 0 ? row[2 * i + 1] : 255;
      } else {
        out[0] = row[3 * i];
        out[1] = row[3 * i + 1];
        out[2] = row[3 * i + 2];
      }
    }
    --rows_left_;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  RgbImage image_;
  bool interlaced_ = false;
  bool grey16_ = false;
  uint64_t rows_left_ = UINT64_MAX;  // of all passes; unknown before OnInfo
  char message_[128] = "";
};

}  // namespace

absl::StatusOr<RgbImage> DecodePng(absl::string_view bytes,
                                   const ImageHeader& header) {
  return PngDecoder().Decode(bytes, header);
}

}  // namespace ballast
