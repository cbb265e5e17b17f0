#ifndef BALLAST_SERVER_DATA_INDEX_IMAGE_PROBE_H_
#define BALLAST_SERVER_DATA_INDEX_IMAGE_PROBE_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/image/engine_jpeg.h"
#include "server/files/file.h"
#include "server/sample/index_format.h"
#include "server/sample/source_index.h"

namespace ballast {

// Finds an image's size in the first bytes of its file, like ReadImageHeader
// (server/media/image/image.h). OUT_OF_RANGE: needs more bytes. Called from
// several threads at once.
using ImageSizeReader =
    std::function<absl::StatusOr<ImageSize>(absl::string_view bytes)>;

// Decides from the first bytes of an image's file whether JPEG engines may take
// it. OUT_OF_RANGE: needs more bytes. Called from several threads at once.
using ImageJudge =
    std::function<absl::StatusOr<EngineRefusal>(absl::string_view bytes)>;

// Decodes an image whole, as servers do; the errors of that. Called from
// several threads at once.
using ImageDecode = std::function<absl::Status(absl::string_view image)>;

// The refusal of JudgeForEngines, with its errors.
absl::StatusOr<EngineRefusal> JudgeHeader(absl::string_view bytes);

// The facts in an image's header.
struct ProbedImage {
  ImageSize size;
  ImageMark mark;
};

// Probes the image in [offset, offset + size) of `file`. Reads 4 KiB, which is
// enough for most images, and four times as much each time it is not; also its
// last bytes, and all of an image without its format's end (HasImageEnd), which
// `decode` then tries unless it is empty. Adds the image to `hash` unless that
// is null. Errors: INVALID_ARGUMENT (as `reader`; a side of 0; no size in the
// whole image); as `decode` and File::ReadAt.
absl::StatusOr<ProbedImage> ProbeImage(const File& file, uint64_t offset,
                                       uint64_t size,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       const ImageDecode& decode = {},
                                       ImagesHash* hash = nullptr);

// Copies the bytes of an image in [from, from + bytes) to `to`.
using ReadImageBytes =
    absl::FunctionRef<absl::Status(uint64_t from, uint64_t bytes, char* to)>;

// Probes an image of `size` bytes. Two images that `read` gives the same bytes
// of, as far as it is asked, are probed alike.
absl::StatusOr<ProbedImage> ProbeImage(ReadImageBytes read, uint64_t size,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       const ImageDecode& decode = {},
                                       ImagesHash* hash = nullptr);

// Probes an image in memory, `image` being its whole file.
absl::StatusOr<ProbedImage> ProbeImage(absl::string_view image,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       const ImageDecode& decode = {},
                                       ImagesHash* hash = nullptr);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_IMAGE_PROBE_H_
