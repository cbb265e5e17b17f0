#include "server/media/encode.h"

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

struct RgbRows {
  absl::Span<const uint8_t> rgb;
  uint32_t width;
  uint32_t height;
};

// libjpeg calls error_exit on a fatal error; it must not return.
struct JpegError {
  jpeg_error_mgr base;  // first: libjpeg hands back a pointer to it
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

void ExitJpeg(j_common_ptr info) {
  auto* error = reinterpret_cast<JpegError*>(info->err);
  error->base.format_message(info, error->message);
  std::longjmp(error->back, 1);
}

// Has no object with a destructor, since longjmp skips them. `*out` is
// malloc'ed and the caller's to free, even after a failure.
bool CompressJpeg(const RgbRows& picture, int quality, JpegError* error,
                  unsigned char** out, unsigned long* size) {
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&error->base);
  error->base.error_exit = ExitJpeg;
  if (setjmp(error->back) != 0) {
    jpeg_destroy_compress(&info);
    return false;
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, out, size);
  info.image_width = picture.width;
  info.image_height = picture.height;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(picture.rgb.data()) +
                   size_t{3} * info.image_width * info.next_scanline;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

absl::StatusOr<std::string> EncodeJpeg(const RgbRows& picture, int quality) {
  JpegError error;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const bool done = CompressJpeg(picture, quality, &error, &bytes, &size);
  std::string file;
  if (done) file.assign(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  if (!done) {
    return absl::InternalError(absl::StrCat("libjpeg: ", error.message));
  }
  return file;
}

absl::StatusOr<std::string> EncodeWebp(const RgbRows& picture, int quality) {
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeRGB(picture.rgb.data(), picture.width, picture.height,
                    3 * picture.width, static_cast<float>(quality), &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  if (size == 0) return absl::InternalError("libwebp cannot encode a picture");
  return file;
}

absl::StatusOr<std::string> EncodePngFile(const RgbRows& picture) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.width;
  image.height = picture.height;
  image.format = PNG_FORMAT_RGB;
  // Noise does not compress; a high effort would only take time.
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0,
                                picture.rgb.data(), 0, nullptr) == 0) {
    return absl::InternalError(absl::StrCat("libpng: ", image.message));
  }
  file.resize(size);
  return file;
}

}  // namespace

absl::string_view FileExtension(FileFormat format) {
  switch (format) {
    case FileFormat::kJpeg:
      return "jpg";
    case FileFormat::kPng:
      return "png";
    case FileFormat::kWebp:
      return "webp";
  }
  return "";
}

absl::StatusOr<std::string> EncodeImage(absl::Span<const uint8_t> rgb,
                                        uint32_t width, uint32_t height,
                                        FileFormat format, int quality) {
  if (rgb.size() != uint64_t{3} * width * height) {
    return absl::InternalError(absl::StrCat("a picture of ", width, "x", height,
                                            " has ", rgb.size(), " bytes"));
  }
  const RgbRows picture = {rgb, width, height};
  switch (format) {
    case FileFormat::kJpeg:
      return EncodeJpeg(picture, quality);
    case FileFormat::kPng:
      return EncodePngFile(picture);
    case FileFormat::kWebp:
      return EncodeWebp(picture, quality);
  }
  return absl::InternalError("unknown file format");
}

absl::StatusOr<std::string> EncodePng(absl::Span<const uint8_t> rgb,
                                      uint32_t width, uint32_t height) {
  return EncodeImage(rgb, width, height, FileFormat::kPng, /*quality=*/100);
}

}  // namespace ballast
