// Decodes and resizes each image of format BALLAST_FUZZ_FORMAT that is small
// enough to be quick, with and without the `fast` setting and orientation. A
// decoder that has seen all previous inputs and a new one must agree on the
// pixels or on the error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "server/media/image/image.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxPixels = 1 << 18;

ImageOptions Options(bool special) {
  ImageOptions options;
  options.fast = special;
  options.apply_exif_orientation = special;
  options.max_memory = 8 << 20;
  return options;
}

[[noreturn]] void Fail(const absl::Status& used, const absl::Status& fresh) {
  std::cerr << "a used decoder: " << used << "\na new one: " << fresh
            << std::endl;
  std::abort();
}

void Compare(absl::string_view bytes, ImageDecoder& used) {
  const absl::StatusOr<ImageHeader> size = ReadImageSize(bytes, used.options());
  if (!size.ok() || uint64_t{size->width} * size->height > kMaxPixels) return;
  ImageDecoder fresh(used.options());
  // Shrinks along one side and enlarges along the other.
  const uint32_t width = size->width / 3 + 1;
  const uint32_t height = size->height + 3;
  std::vector<uint8_t> a(size_t{width} * height * 3), b(a.size());
  const absl::Status status_a =
      used.DecodeResized(bytes, *size, width, height, absl::MakeSpan(a));
  const absl::Status status_b =
      fresh.DecodeResized(bytes, *size, width, height, absl::MakeSpan(b));
  if (status_a != status_b || (status_a.ok() && a != b)) {
    Fail(status_a, status_b);
  }
  const absl::StatusOr<RgbImage> image_a = used.Decode(bytes);
  const absl::StatusOr<RgbImage> image_b = fresh.Decode(bytes);
  if (image_a.status() != image_b.status() ||
      (image_a.ok() && image_a->pixels != image_b->pixels)) {
    Fail(image_a.status(), image_b.status());
  }
}

void DecodeTwice(absl::string_view bytes) {
  static auto& exact = *new ImageDecoder(Options(false));
  static auto& special = *new ImageDecoder(Options(true));
  const absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
  if (!header.ok() || header->format != ImageFormat::BALLAST_FUZZ_FORMAT)
    return;
  Compare(bytes, exact);
  Compare(bytes, special);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ballast::DecodeTwice({reinterpret_cast<const char*>(data), size});
  return 0;
}
