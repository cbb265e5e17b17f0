#ifndef BALLAST_SERVER_CORPUS_TAR_MEMBER_NAME_H_
#define BALLAST_SERVER_CORPUS_TAR_MEMBER_NAME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// The role of a WebDataset member, from its name.
struct MemberName {
  enum class Kind {
    kConversation,
    kDocument,
    kPackedBytes,
    kPackedJson,
    kImage,
    kVideo,
    kPicture,
    kIgnored,
  };
  Kind kind = Kind::kIgnored;
  // The path up to the first dot of the base name, without "./" before it.
  std::string key;
  // The rest of the name after that dot, in lower case.
  std::string extension;
  // The N of KEY.N.jpg or KEY.N.mp4, or of KEY.N.P.jpg.
  std::optional<uint32_t> number;
  // The P of KEY.N.P.jpg, a picture of a video.
  uint32_t picture = 0;
};

// Names without a dot, or with nothing before it, are ignored.
MemberName ParseMemberName(absl::string_view name);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_MEMBER_NAME_H_
