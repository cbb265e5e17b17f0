#ifndef BALLAST_SERVER_CONFIG_METADATASET_H_
#define BALLAST_SERVER_CONFIG_METADATASET_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "proto/config.pb.h"
#include "server/settings/key_report.h"

namespace ballast {

// The part of a folder's split that `source`, of format energon, reads:
// energon.split_part, or by its split train, val or test.
std::string EnergonSplitPart(const v1::Source& source);

// A folder of a metadataset, or a prefix of a blend of token files.
struct BlendedPath {
  std::string path;
  // Its share of the samples; all of a blend sum to 1.
  double weight = 1;
  std::string split_part;      // of a folder, like the following
  std::string split_config;    // empty: the default
  std::string dataset_config;  // likewise
};

// The text of the file or object `path`, of at most `most` bytes.
using ReadText = std::function<absl::StatusOr<std::string>(
    const std::string& path, size_t most)>;

// Reads a metadataset of Energon, of version 1 or 2, and those that it names,
// through `read`, and returns its folders for `split_part`. Relative paths
// start at the file or object that names them. Labels (subflavors) and how
// Energon shuffles are passed over. Blocks as `read` does. Errors, naming the
// file and the key: INVALID_ARGUMENT (not a metadataset, no such split, a key
// that Energon does not have, metadatasets that name each other, over 10,000
// folders); UNIMPLEMENTED (what is not done here, with what would do: join,
// blend_epochized, subset, aux, a JSON-lines dataset); as `read`.
absl::StatusOr<std::vector<BlendedPath>> ReadMetadataset(
    const std::string& path, const std::string& split_part,
    const ReadText& read = ReadSmallFile);

// Parses weights and prefixes as Megatron's --data-path has them:
// `0.3 wiki/text 0.7 books/text`. Pure. Errors: INVALID_ARGUMENT naming the
// entry (no prefix, prefixes without weights, a weight that is no number above
// 0 or has no prefix, braces that do not fit, over 10,000 prefixes).
absl::StatusOr<std::vector<BlendedPath>> ParseTokenBlend(
    absl::string_view blend);

// Replaces each source of format energon whose path is a metadataset (a file
// .yaml), and each with a `blend`, by one source for each of its folders or
// prefixes: named NAME-FOLDER or NAME-PREFIX by the last name of its path, with
// its part of the weight, here and in order.mixture_changes, and its index.
// Paths of metadatasets start at `directory`; prefixes stay as they are, like
// the path of another source. Faults go to `report`.
void ExpandBlends(absl::string_view directory, const ReadText& read,
                  v1::Config* config, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_METADATASET_H_
