#ifndef BALLAST_TESTS_BENCHMARKS_PLAIN_JPEG_H_
#define BALLAST_TESTS_BENCHMARKS_PLAIN_JPEG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

namespace ballast {

// The yardstick of decoding: libjpeg-turbo used as in its example, with default
// settings, to RGB. The decompressor and the result's memory are created once;
// rows go to a buffer of a few rows that stays in cache, or to a whole picture.
// Exits on a damaged file.
class PlainJpeg {
 public:
  PlainJpeg();
  ~PlainJpeg();
  PlainJpeg(const PlainJpeg&) = delete;
  PlainJpeg& operator=(const PlainJpeg&) = delete;

  // Decodes every row and drops it: the least that decoding can cost.
  void DecodeRows(absl::string_view bytes);

  // Decodes into pixels(), as most programs do.
  void DecodeWhole(absl::string_view bytes);
  const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  struct State;
  void Decode(absl::string_view bytes, bool whole);

  const std::unique_ptr<State> state_;
  std::vector<uint8_t> pixels_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_BENCHMARKS_PLAIN_JPEG_H_
