#include "server/model/model_rows.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "server/media/audio/audio_rows.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

struct Rules {
  Mutex mutex;
  // By profile, whose entries are never removed either.
  std::map<const v1::ModelProfile*, std::unique_ptr<const RowsRule>> rules
      ABSL_GUARDED_BY(mutex);
};

std::unique_ptr<const RowsRule> Open(const v1::ModelProfile& profile) {
  if (profile.has_audio()) return std::make_unique<AudioRows>(profile.audio());
  // A profile whose section has a fault is not known by any name.
  auto rule = OpenRowsRule(profile.medium());
  return rule.ok() ? *std::move(rule) : nullptr;
}

}  // namespace

const RowsRule* FindRowsRule(absl::string_view name) {
  static auto& known = *new Rules();
  const v1::ModelProfile* profile = FindProfile(name);
  if (profile == nullptr || !(profile->has_audio() || profile->has_medium())) {
    return nullptr;
  }
  const MutexLock lock(&known.mutex);
  auto& rule = known.rules[profile];
  if (rule == nullptr) rule = Open(*profile);
  return rule.get();
}

}  // namespace ballast
