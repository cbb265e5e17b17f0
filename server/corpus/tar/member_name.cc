#include "server/corpus/tar/member_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

bool IsImage(absl::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png" ||
         extension == "webp";
}

bool IsVideo(absl::string_view extension) {
  return extension == "mp4" || extension == "avi" || extension == "webm" ||
         extension == "mov" || extension == "mkv";
}

// Accepts at most 9 digits, so that the number fits.
std::optional<uint32_t> ParseNumber(absl::string_view digits) {
  uint32_t number = 0;
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(digits, &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

MemberName ParseMemberName(absl::string_view name) {
  MemberName result;
  while (absl::ConsumePrefix(&name, "./")) {
  }
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == name.npos) return result;
  result.extension = absl::AsciiStrToLower(name.substr(dot + 1));
  if (dot == base) return result;
  result.key = std::string(name.substr(0, dot));

  absl::string_view extension = result.extension;
  if (extension == "json") {
    result.kind = MemberName::Kind::kConversation;
  } else if (extension == "txt") {
    result.kind = MemberName::Kind::kDocument;
  } else if (extension == "tokens.bin") {
    result.kind = MemberName::Kind::kPackedBytes;
  } else if (extension == "tokens.json") {
    result.kind = MemberName::Kind::kPackedJson;
  } else if (IsImage(extension)) {
    result.kind = MemberName::Kind::kImage;
  } else if (IsVideo(extension.substr(extension.rfind('.') + 1))) {
    result.kind = MemberName::Kind::kVideo;
    const size_t second = extension.rfind('.');
    if (second != extension.npos) {
      result.number = ParseNumber(extension.substr(0, second));
    }
  } else if (const size_t last = extension.rfind('.');
             last != extension.npos && IsImage(extension.substr(last + 1))) {
    const absl::string_view numbers = extension.substr(0, last);
    const size_t between = numbers.find('.');
    result.number = ParseNumber(numbers.substr(0, between));
    if (!result.number) return result;
    if (between == numbers.npos) {
      result.kind = MemberName::Kind::kImage;
    } else if (const auto picture = ParseNumber(numbers.substr(between + 1))) {
      result.kind = MemberName::Kind::kPicture;
      result.picture = *picture;
    }
  }
  return result;
}

}  // namespace ballast
