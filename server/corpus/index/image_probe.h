#ifndef BALLAST_SERVER_CORPUS_INDEX_IMAGE_PROBE_H_
#define BALLAST_SERVER_CORPUS_INDEX_IMAGE_PROBE_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// Finds an image's size in the first bytes of its file, like ReadImageHeader
// (server/image/image.h). OUT_OF_RANGE: needs more bytes. Called from several
// threads at once.
using ImageSizeReader =
    std::function<absl::StatusOr<ImageSize>(absl::string_view bytes)>;

// The size of the image in [offset, offset + size) of `file`. Reads 4 KiB,
// which is enough for most images, and four times as much each time it is not.
// Adds the image to `hash` unless that is null. Errors: INVALID_ARGUMENT (as
// `reader`; a side of 0; no size in the whole image); as File::ReadAt.
absl::StatusOr<ImageSize> ProbeImage(const File& file, uint64_t offset,
                                     uint64_t size,
                                     const ImageSizeReader& reader,
                                     ImagesHash* hash = nullptr);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_IMAGE_PROBE_H_
