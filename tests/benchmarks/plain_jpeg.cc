#include "tests/benchmarks/plain_jpeg.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

// After <cstdio>: it uses FILE without including it.
#include <jpeglib.h>

namespace ballast {
namespace {

constexpr size_t kRows = 16;

}  // namespace

struct PlainJpeg::State {
  jpeg_error_mgr error = {};
  jpeg_decompress_struct info = {};
};

PlainJpeg::PlainJpeg() : state_(std::make_unique<State>()) {
  // libjpeg's own error handler prints and exits.
  state_->info.err = jpeg_std_error(&state_->error);
  jpeg_create_decompress(&state_->info);
}

PlainJpeg::~PlainJpeg() { jpeg_destroy_decompress(&state_->info); }

void PlainJpeg::DecodeRows(absl::string_view bytes) { Decode(bytes, false); }

void PlainJpeg::DecodeWhole(absl::string_view bytes) { Decode(bytes, true); }

void PlainJpeg::Decode(absl::string_view bytes, bool whole) {
  jpeg_decompress_struct& info = state_->info;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()),
               bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  // Rows that begin at multiples of 16 or 32 bytes would be written with
  // non-temporal stores.
  const size_t width = size_t{info.output_width} * 3;
  const size_t stride = whole ? width : (width + 63) / 64 * 64;
  const size_t begin = whole ? 0 : 8;
  pixels_.resize(std::max(
      pixels_.size(), begin + stride * (whole ? info.output_height : kRows)));
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[kRows];
    const size_t first = whole ? info.output_scanline : 0;
    for (size_t i = 0; i < kRows; ++i) {
      const size_t row =
          whole ? std::min<size_t>(first + i, info.output_height - 1) : i;
      rows[i] = pixels_.data() + begin + row * stride;
    }
    jpeg_read_scanlines(&info, rows, kRows);
  }
  jpeg_finish_decompress(&info);
}

}  // namespace ballast
