#ifndef BALLAST_COMMON_JPEG_INPUT_H_
#define BALLAST_COMMON_JPEG_INPUT_H_

#include <csetjmp>
// <cstdio> first: jpeglib.h uses FILE without including it.
#include <cstdio>

#include <jpeglib.h>

#include "absl/strings/string_view.h"

namespace ballast {

// libjpeg's errors: a fatal one longjmps to `jump`, with its text in `message`;
// warnings are ignored, as Pillow does.
struct JpegErrors {
  JpegErrors();
  JpegErrors(const JpegErrors&) = delete;
  JpegErrors& operator=(const JpegErrors&) = delete;

  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
};

// A file in memory, which is never refilled. At its end libjpeg suspends
// instead of inventing an end of image, which distinguishes a truncated file
// from a damaged one. Pillow does the same.
struct JpegInput {
  JpegInput();
  // `bytes` must live while libjpeg reads them.
  void Set(absl::string_view bytes);

  jpeg_source_mgr base = {};
};

}  // namespace ballast

#endif  // BALLAST_COMMON_JPEG_INPUT_H_
