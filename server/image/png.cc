#include "server/image/png.h"

#include <png.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

// Decodes with libpng's push reader, which returns every row that the available
// bytes complete. So, as in Pillow, a file is good if all its rows are; damage
// after them does not matter.
class PngDecoder {
 public:
  PngDecoder(uint32_t width, uint32_t height, ScratchArena* arena,
             RowSink* sink)
      : width_(width), height_(height), arena_(arena), sink_(sink) {}
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
    // Reads only the chunks that carry the picture; transparency does not
    // change the colours.
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
    if (!grey16_) {
      png_set_expand(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
    }
    png_read_update_info(png_, info);
    if (png_get_rowbytes(png_, info) != size_t{width_} * (grey16_ ? 2 : 3)) {
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

  // `row` is row `y` of the pass, or of the image if it is not interlaced.
  void PutRow(const uint8_t* row, uint32_t y, int pass) {
    if (row == nullptr || rows_left_ == 0) return;
    if (!interlaced_) {
      // libpng returns rows in order.
      uint8_t* out = sink_->NextRows()[0];
      if (grey16_) {
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
      } else {
        out[0] = row[3 * i];
        out[1] = row[3 * i + 1];
        out[2] = row[3 * i + 2];
      }
    }
  }

  const uint32_t width_;
  const uint32_t height_;
  ScratchArena* const arena_;
  RowSink* const sink_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  uint8_t* canvas_ = nullptr;  // interlaced images only
  bool interlaced_ = false;
  bool grey16_ = false;
  uint64_t rows_left_ = UINT64_MAX;  // over all passes; set by OnInfo
  bool out_of_memory_ = false;
  uint64_t warnings_ = 0;
  char message_[128] = "";
};

}  // namespace

absl::Status DecodePng(absl::string_view bytes, uint32_t width, uint32_t height,
                       ScratchArena* arena, RowSink* sink, uint64_t* warnings) {
  PngDecoder decoder(width, height, arena, sink);
  const absl::Status status = decoder.Decode(bytes);
  *warnings = decoder.warnings();
  return status;
}

}  // namespace ballast
