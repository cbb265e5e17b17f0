#include "server/audio/audio_families.h"

#include <map>

#include <google/protobuf/text_format.h>

namespace ballast {
namespace {

struct Embedded {
  absl::string_view name;
  absl::string_view text;
};
constexpr Embedded kEmbedded[] = {
#include "models/audio/embedded.inc"
};

using Families = std::map<std::string, v1::AudioFamily, std::less<>>;

// That each file is read and says all it must is tested
// (tests/server/audio/audio_plan_test.cc).
const Families& AllFamilies() {
  static const Families& families = *[] {
    auto* all = new Families;
    for (const Embedded& file : kEmbedded) {
      v1::AudioFamily family;
      if (google::protobuf::TextFormat::ParseFromString(std::string(file.text),
                                                        &family)) {
        all->emplace(file.name, family);
      }
    }
    return all;
  }();
  return families;
}

}  // namespace

const v1::AudioFamily* FindAudioFamily(absl::string_view name) {
  const auto found = AllFamilies().find(name);
  return found == AllFamilies().end() ? nullptr : &found->second;
}

std::vector<std::string> AudioFamilyNames() {
  std::vector<std::string> names;
  for (const auto& [name, family] : AllFamilies()) names.push_back(name);
  return names;
}

}  // namespace ballast
