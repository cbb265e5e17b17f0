#ifndef BALLAST_SERVER_DATA_JSONL_UNREAD_KEYS_H_
#define BALLAST_SERVER_DATA_JSONL_UNREAD_KEYS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Its header takes a second to read.
namespace simdjson::dom {
class element;
class object;
}  // namespace simdjson::dom

namespace ballast {

// Keys of JSON and columns that nothing reads, and without which a sample would
// teach something else: other media, answers marked as undesired, values of
// marks in the texts. All functions are pure.

// Whether a key or column of this name may hold media or name them:
// `image_url`, `img`, `jpg`, `pixel_values`; not `image_id`, `num_images` or
// `caption`.
bool IsMediaKey(absl::string_view name);

// Whether it says something of a picture, as the lists of addresses on the web
// do: `width`, `image_phash`, `clip_similarity_vitb32`.
bool DescribesPicture(absl::string_view name);

// Whether it holds an address: `url`, `URL`, `uri`, `link`.
bool IsAddressKey(absl::string_view name);

// Whether it says by a number which picture is meant: `image_id`, `imageId`.
bool IsPictureId(absl::string_view name);

// Whether an address is that of a file of media, by the ending of its path.
bool IsMediaAddress(absl::string_view address);

// Whether it marks an answer as undesired where it is false: `label`,
// `kto_tag`.
bool IsVerdict(absl::string_view name);

// Data faults of an object of JSON: a verdict that is false beside turns; a
// mark `<bbox>`, `<ref-object>` or `<region>` beside a key with its values;
// and, in a sample without media, media under a key that is not read. OK also
// if `json` is no object.
absl::Status CheckUnreadKeys(absl::string_view json, bool has_media);

// The same of the object `root` that `json` is; `paths`: of all media that the
// sample has. Also a key of media, or of maps of one, that names another file.
absl::Status CheckUnreadKeys(absl::string_view json,
                             const simdjson::dom::object& root, bool has_media,
                             const std::vector<absl::string_view>& paths);

// Whether a key of this name holds what belongs to another picture: `depth`,
// `mask_path`.
bool IsMapKey(absl::string_view name);

// Whether a key of media, or of maps such as `depth`, names a file that is none
// of `paths`, the media of the sample; false if these are none.
bool NamesOtherMedia(absl::string_view key, const simdjson::dom::element& value,
                     const std::vector<absl::string_view>& paths);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_UNREAD_KEYS_H_
