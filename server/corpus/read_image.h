#ifndef BALLAST_SERVER_CORPUS_READ_IMAGE_H_
#define BALLAST_SERVER_CORPUS_READ_IMAGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/sample_source.h"

// The images of a sample that is read, one after the other: each is added to
// `sample`, at its place if `parts` has one for it, and to `hash`. `images`:
// of the sample, in all.
namespace ballast {

// Reads the image in [offset, offset + size) of the file, straight to its
// place. Errors: as FileView::ReadAt.
absl::Status ReadImage(const FileView& file, uint64_t offset, uint64_t size,
                       size_t images, const ReadParts& parts, ImagesHash* hash,
                       RawSample* sample);

// As ReadImage, of an image of `size` bytes that `read` reads. Errors: as
// `read`.
absl::Status ReadImageBy(absl::FunctionRef<absl::Status(char* to)> read,
                         uint64_t size, size_t images, const ReadParts& parts,
                         ImagesHash* hash, RawSample* sample);

// Copies an image that is in memory.
void CopyImage(absl::string_view image, size_t images, const ReadParts& parts,
               ImagesHash* hash, RawSample* sample);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_READ_IMAGE_H_
