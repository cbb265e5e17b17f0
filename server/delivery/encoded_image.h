#ifndef BALLAST_SERVER_DELIVERY_ENCODED_IMAGE_H_
#define BALLAST_SERVER_DELIVERY_ENCODED_IMAGE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "server/corpus/data_fault.h"

namespace ballast {

// Returns the fault of an image's file if it is not the one that the index
// knows: `bytes` has another length than `encoded_bytes`
// (IndexedSample::encoded_bytes), or another hash than `content_hash`
// (SourceIndex::content_hashes; nullopt: the image has not been checked). Pure.
std::optional<DataFault> FindEncodedImageFault(
    absl::string_view bytes, uint32_t encoded_bytes,
    std::optional<uint64_t> content_hash);

// Returns the fault of a file of hash `found` if the index has `indexed`. Pure.
std::optional<DataFault> FindContentFault(uint64_t found, uint64_t indexed);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_ENCODED_IMAGE_H_
