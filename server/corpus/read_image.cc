#include "server/corpus/read_image.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/status_macros.h"

namespace ballast {
namespace {

// The place of the sample's next image; nullptr: a string of its own.
char* PlaceOfNext(uint64_t size, size_t images, const ReadParts& parts,
                  const RawSample& sample) {
  return parts.places == nullptr || size == 0
             ? nullptr
             : (*parts.places)(sample.images.size(), images, size);
}

void AddPlaced(absl::string_view image, RawSample* sample) {
  sample->placed.resize(sample->images.size());
  sample->placed.push_back(image);
  sample->images.emplace_back();
}

void AddTo(ImagesHash* hash, absl::string_view image) {
  hash->Add(image.size(), image.substr(0, ImagesHash::kHeadBytes));
}

}  // namespace

absl::Status ReadImage(const FileView& file, uint64_t offset, uint64_t size,
                       size_t images, const ReadParts& parts, ImagesHash* hash,
                       RawSample* sample) {
  if (char* const place = PlaceOfNext(size, images, parts, *sample)) {
    BALLAST_RETURN_IF_ERROR(file.ReadAt(offset, size, place));
    AddTo(hash, {place, size});
    AddPlaced({place, size}, sample);
    return absl::OkStatus();
  }
  BALLAST_ASSIGN_OR_RETURN(std::string bytes, file.ReadAt(offset, size));
  AddTo(hash, bytes);
  sample->images.push_back(std::move(bytes));
  return absl::OkStatus();
}

absl::Status ReadImageBy(absl::FunctionRef<absl::Status(char* to)> read,
                         uint64_t size, size_t images, const ReadParts& parts,
                         ImagesHash* hash, RawSample* sample) {
  if (char* const place = PlaceOfNext(size, images, parts, *sample)) {
    BALLAST_RETURN_IF_ERROR(read(place));
    AddTo(hash, {place, size});
    AddPlaced({place, size}, sample);
    return absl::OkStatus();
  }
  std::string bytes(size, '\0');
  BALLAST_RETURN_IF_ERROR(read(bytes.data()));
  AddTo(hash, bytes);
  sample->images.push_back(std::move(bytes));
  return absl::OkStatus();
}

void CopyImage(absl::string_view image, size_t images, const ReadParts& parts,
               ImagesHash* hash, RawSample* sample) {
  AddTo(hash, image);
  if (char* const place = PlaceOfNext(image.size(), images, parts, *sample)) {
    std::memcpy(place, image.data(), image.size());
    AddPlaced({place, image.size()}, sample);
    return;
  }
  sample->images.emplace_back(image);
}

}  // namespace ballast
