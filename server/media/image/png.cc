#include "server/media/image/png.h"

#include <isa-l/igzip_lib.h>
#include <png.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image/png_filters.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr size_t kBlockBytes = size_t{32} << 10;  // of 65,535 that fit one

uint32_t ReadLength(absl::string_view chunk) {
  return png_get_uint_32(reinterpret_cast<png_const_bytep>(chunk.data()));
}

// The payloads of the run of IDAT chunks with which `bytes` begins.
class ImageData {
 public:
  explicit ImageData(absl::string_view bytes) : rest_(bytes) {}

  // The next payload, cut where the file is; empty after the last one.
  absl::string_view Next() {
    while (rest_.size() > 8 && rest_.substr(4, 4) == "IDAT") {
      const uint32_t length = ReadLength(rest_);
      if (length > PNG_UINT_31_MAX) break;
      const absl::string_view payload = rest_.substr(8, length);
      // Name, length and checksum.
      rest_.remove_prefix(std::min<size_t>(rest_.size(), size_t{length} + 12));
      if (!payload.empty()) return payload;
    }
    return {};
  }

 private:
  absl::string_view rest_;
};

// Inflates by ISA-L, in a third of zlib's time. Has no destructor, which
// longjmp would pass over.
class Inflater {
 public:
  // `file`: from the first IDAT on. False: the arena is full.
  bool Begin(absl::string_view file, ScratchArena* arena) {
    data_ = ImageData(file);
    state_ = arena->AllocateArray<inflate_state>(1);
    if (state_ == nullptr) return false;
    isal_inflate_init(state_);
    state_->crc_flag = ISAL_ZLIB;
    return true;
  }

  // Writes `size` bytes, or fewer at the end or at damage. Returns how many.
  size_t Read(uint8_t* out, size_t size) {
    state_->next_out = out;
    state_->avail_out = static_cast<uint32_t>(size);
    // Without input it still writes what it holds.
    for (uint32_t left = 0; left != state_->avail_out && !has_ended();) {
      if (state_->avail_in == 0) {
        const absl::string_view payload = data_.Next();
        // ISA-L does not write through the pointer.
        state_->next_in =
            reinterpret_cast<uint8_t*>(const_cast<char*>(payload.data()));
        state_->avail_in = static_cast<uint32_t>(payload.size());
      }
      left = state_->avail_in == 0 ? state_->avail_out : 0;
      status_ = isal_inflate(state_);
    }
    return size - state_->avail_out;
  }

  // Whether all was read, and has the checksum that follows it.
  bool is_sound() const { return status_ == ISAL_DECOMP_OK && has_ended(); }

 private:
  bool has_ended() const {
    return status_ != ISAL_DECOMP_OK ||
           state_->block_state == ISAL_BLOCK_FINISH;
  }

  ImageData data_{absl::string_view()};
  inflate_state* state_ = nullptr;
  int status_ = ISAL_DECOMP_OK;
};

// The filtered rows of a picture.
struct Rows {
  size_t size = 0;   // of a row, without its filter's type; 0: not known
  size_t pixel = 0;  // bytes of a pixel, 1 if it has fewer bits
};

// `bytes`: a PNG's. Passes of an interlaced picture have rows of other sizes.
Rows RowsOf(absl::string_view bytes, uint32_t width) {
  if (bytes.size() < 29 || bytes[28] != PNG_INTERLACE_NONE) return {};
  const int depth = bytes[24], type = bytes[25];
  if ((type & ~PNG_COLOR_MASK_ALPHA & ~PNG_COLOR_TYPE_PALETTE) != 0 ||
      depth < 1 || depth > 16) {
    return {};
  }
  const int channels =
      (type == PNG_COLOR_TYPE_PALETTE || (type & PNG_COLOR_MASK_COLOR) == 0
           ? 1
           : 3) +
      ((type & PNG_COLOR_MASK_ALPHA) != 0);
  const size_t bits = static_cast<size_t>(channels * depth);
  return {(bits * width + 7) / 8, std::max<size_t>(bits / 8, 1)};
}

// Where the first IDAT begins; the file's size if there is none.
size_t FindImageData(absl::string_view bytes) {
  size_t at = 8;
  while (at + 8 <= bytes.size()) {
    if (bytes.substr(at + 4, 4) == "IDAT") return at;
    const uint32_t length = ReadLength(bytes.substr(at));
    if (length > PNG_UINT_31_MAX) break;
    at += size_t{length} + 12;
  }
  return bytes.size();
}

// Decodes with libpng's push reader, which returns every row that the available
// bytes complete. So, as in Pillow, a file is good if all its rows are; damage
// after them does not matter. What libpng reads is inflated before, and stored
// as it is in blocks that zlib copies.
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
    bool read = Read(bytes, /*inflated=*/true);
    if (rows_left_ > 0 || !is_sound_) read = Read(bytes, /*inflated=*/false);
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
  bool Read(absl::string_view bytes, bool inflated) {
    png_destroy_read_struct(&png_, &info_, nullptr);
    rows_left_ = UINT64_MAX;
    out_of_memory_ = false;
    warnings_ = 0;
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
    const size_t data = inflated ? FindImageData(bytes) : bytes.size();
    Process(bytes.substr(0, data));
    return !inflated || ReadInflated(bytes.substr(data), RowsOf(bytes, width_));
  }

  void Process(absl::string_view bytes) {
    // libpng does not write through the pointer.
    png_process_data(
        png_, info_,
        reinterpret_cast<png_bytep>(const_cast<char*>(bytes.data())),
        bytes.size());
  }

  // `file`: from the first IDAT on.
  bool ReadInflated(absl::string_view file, Rows rows) {
    const size_t stride = rows.size + 1;
    const size_t piece_size =
        std::max(kBlockBytes - kBlockBytes % stride, stride);
    auto* piece = arena_->AllocateArray<uint8_t>(piece_size);
    auto* above = arena_->AllocateArray<uint8_t>(stride);
    Inflater inflater;
    if (piece == nullptr || above == nullptr || !inflater.Begin(file, arena_)) {
      return false;
    }
    std::memset(above, 0, stride);
    // Inflater compares the checksum.
    png_set_option(png_, PNG_IGNORE_ADLER32, PNG_OPTION_ON);
    bool is_first = true;
    for (size_t size = piece_size; size == piece_size && rows_left_ > 0;) {
      size = inflater.Read(piece, piece_size);
      if (rows.size > 0) Unfilter(rows, piece, size, above);
      for (size_t at = 0; at < size; at += kBlockBytes, is_first = false) {
        ProcessStored(piece + at, std::min(size - at, kBlockBytes), is_first);
      }
    }
    inflater.Read(piece, 1);  // the end
    is_sound_ = inflater.is_sound();
    return true;
  }

  // Undoes the filters of the whole rows in `piece`, of `size` bytes. `above`:
  // the row above them, then the last of them. A row of no known filter stays
  // as it is, for libpng to refuse.
  static void Unfilter(Rows rows, uint8_t* piece, size_t size, uint8_t* above) {
    const size_t stride = rows.size + 1;
    const uint8_t* before = above;
    for (; size >= stride; size -= stride, piece += stride) {
      if (ballast::Unfilter(piece[0], rows.pixel, piece + 1, before,
                            rows.size)) {
        piece[0] = PNG_FILTER_VALUE_NONE;
      }
      before = piece + 1;
    }
    if (before != above) std::memcpy(above, before, rows.size);
  }

  // Gives libpng a chunk with a stored block of `size` bytes.
  void ProcessStored(const uint8_t* bytes, size_t size, bool is_first) {
    // Length, name; zlib's header, once; the block's header.
    uint8_t head[15] = {0, 0, 0, 0, 'I', 'D', 'A', 'T', 0x78, 0x01};
    uint8_t* block = head + (is_first ? 10 : 8);
    block[0] = 0;
    for (int i = 0; i < 2; ++i) {
      block[1 + i] = static_cast<uint8_t>(size >> (8 * i));
      block[3 + i] = static_cast<uint8_t>(~size >> (8 * i));
    }
    const size_t head_size = static_cast<size_t>(block + 5 - head);
    png_save_uint_32(head, static_cast<png_uint_32>(head_size - 8 + size));
    Process({reinterpret_cast<const char*>(head), head_size});
    Process({reinterpret_cast<const char*>(bytes), size});
    Process({"\0\0\0\0", 4});  // a checksum, which is not compared
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
      // libpng returns rows in order, and again those of a file read again.
      --rows_left_;
      if (y < rows_put_) return;
      ++rows_put_;
      uint8_t* out = sink_->NextRows()[0];
      if (grey16_ || on_white_) {
        PutPixels(row, width_, 1, out);
      } else {
        std::memcpy(out, row, size_t{width_} * 3);
      }
      sink_->RowsDone(1);
    } else {
      --rows_left_;
      y = PNG_ROW_FROM_PASS_ROW(y, pass);
      if (y >= height_) return;
      PutPixels(row, PNG_PASS_COLS(width_, pass), PNG_PASS_COL_OFFSET(pass),
                canvas_ + (y * size_t{width_} + PNG_PASS_START_COL(pass)) * 3);
    }
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
  Inflater inflater_;
  uint8_t* piece_ = nullptr;   // kPieceBytes
  uint8_t* canvas_ = nullptr;  // interlaced images only
  bool interlaced_ = false;
  bool grey16_ = false;
  bool on_white_ = false;
  uint64_t rows_left_ = UINT64_MAX;  // over all passes; set by OnInfo
  uint32_t rows_put_ = 0;  // into `sink_`; never of an interlaced image
  bool is_sound_ = false;  // what was inflated, to its checksum
  bool out_of_memory_ = false;
  uint64_t warnings_ = 0;
  char message_[128] = "";
};

}  // namespace

absl::Status DecodePng(absl::string_view bytes, uint32_t width, uint32_t height,
                       v1::Model::Transparency transparency,
                       ScratchArena* arena, RowSink* sink, uint64_t* warnings) {
  PngDecoder decoder(width, height, transparency, arena, sink);
  const absl::Status status = decoder.Decode(bytes);
  *warnings = decoder.warnings();
  return status;
}

}  // namespace ballast
