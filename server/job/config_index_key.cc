#include "server/job/config_index_key.h"

#include "absl/strings/str_cat.h"
#include "server/text/model_text.h"
#include "server/video/model_videos.h"

namespace ballast {
namespace {

// Raised when conversations name media by other rules, or are refused for other
// reasons.
//   2: parts of images with bounds or a size of their own are refused, and
//      clips beside the turns
//   3: keys and parts that name different media, and two lists of turns
constexpr int kConversationRules = 3;

}  // namespace

IndexKey IndexKeyOf(const v1::Config& config, const Tokenizer& tokenizer) {
  IndexKey key;
  // A rotated image has its sides swapped.
  key.sizes =
      absl::StrCat("exif_orientation=", config.model().exif_orientation());
  absl::StrAppend(&key.sizes, "\nconversations=", kConversationRules);
  // Samples with videos are then bad, and not even measured.
  if (!VideoModelOf(config.model()).has_value()) {
    absl::StrAppend(&key.sizes, "\nvideos=none");
  }
  key.lengths = TextLengthKey(config.model(), tokenizer);
  key.limits = TextLimitKey(config);
  key.videos = VideoPlanKey(config.model());
  return key;
}

}  // namespace ballast
