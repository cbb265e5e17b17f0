#include "trainer_shim/c_api/checkpoint.h"

#include <cstdint>
#include <cstring>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr absl::string_view kMagic = "BALLASTC";
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 24);

}  // namespace

std::string CheckpointBytes(const v1::Checkpoint& checkpoint) {
  std::string message;
  {
    google::protobuf::io::StringOutputStream stream(&message);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    checkpoint.SerializeToCodedStream(&coded);
  }
  Header header = {};
  std::memcpy(header.magic, kMagic.data(), sizeof(header.magic));
  header.version = kVersion;
  header.checksum = XXH3_64bits(message.data(), message.size());
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes + message;
}

absl::StatusOr<v1::Checkpoint> ParseCheckpoint(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these ", bytes.size(), " bytes are no checkpoint of Ballast's data"));
  }
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint is cut off after ", bytes.size(),
                     " bytes, in its header of ", sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("the checkpoint is of version ", header.version,
                     ", wanted ", kVersion, ": another release wrote it"));
  }
  const absl::string_view message = bytes.substr(sizeof(header));
  v1::Checkpoint checkpoint;
  if (XXH3_64bits(message.data(), message.size()) != header.checksum ||
      !checkpoint.ParseFromArray(message.data(), message.size())) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint of ", bytes.size(),
                     " bytes is damaged or cut off: its checksum differs"));
  }
  return checkpoint;
}

}  // namespace ballast
