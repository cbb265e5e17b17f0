#ifndef BALLAST_SERVER_DATA_ENERGON_ENERGON_TAR_H_
#define BALLAST_SERVER_DATA_ENERGON_ENERGON_TAR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/record_parser.h"
#include "server/data/tar/tar_reader.h"
#include "server/files/file.h"

namespace ballast {

// Most parts of one sample.
inline constexpr size_t kMaxParts = 20'000;

// A part of a sample: a member of the tar file.
struct EnergonPart {
  std::string name;   // what follows the first dot: "jpg", "0.json"
  uint64_t data = 0;  // offset in the tar file
  uint64_t size = 0;

  friend bool operator==(const EnergonPart&, const EnergonPart&) = default;
};

// A sample of an Energon tar file: consecutive members whose paths are the same
// up to the first dot of their base names.
struct EnergonTarSample {
  std::string key;  // the path up to that dot
  // From its first header to the first header of the next sample, or to the end
  // mark.
  uint64_t begin = 0;
  uint64_t end = 0;
  // In the order of the file.
  std::vector<EnergonPart> parts;

  friend bool operator==(const EnergonTarSample&,
                         const EnergonTarSample&) = default;
};

// The key and the name of the part that a member is; nullopt if it belongs to
// no sample: no dot, nothing before it, or a name such as __meta__ at the
// beginning. Views into `name`. Pure.
struct EnergonMemberName {
  absl::string_view key;
  absl::string_view part;
};
std::optional<EnergonMemberName> ParseEnergonMember(absl::string_view name);

// Groups the members of a tar file into samples as Energon does.
// Thread-compatible.
class EnergonTarReader {
 public:
  // As TarReader.
  EnergonTarReader(FileView file, uint64_t begin, uint64_t end, bool whole);

  // The next sample, or nullopt at the end. Errors: DATA_LOSS (the tar file is
  // damaged at offset(); a sample with over kMaxParts parts); as File::ReadAt.
  absl::StatusOr<std::optional<EnergonTarSample>> Next();

  uint64_t offset() const { return tar_.offset(); }
  // The sample whose parts Next was collecting when it failed, as far as they
  // were found; its key is empty if it was at the beginning of one.
  const EnergonTarSample& pending() const { return pending_; }

 private:
  TarReader tar_;
  // A member already read that belongs to the next sample.
  std::optional<TarMember> next_;
  EnergonTarSample pending_;
};

// The one sample in [begin, end) of a tar file. Errors: DATA_LOSS (none, or
// several); as EnergonTarReader.
absl::StatusOr<EnergonTarSample> ReadEnergonSample(FileView file,
                                                   uint64_t begin,
                                                   uint64_t end);

struct EnergonMeta {
  std::string folder;
  // The tar files below the folder, in the order of their ids.
  std::vector<std::string> shards;
  // The shards of each part of the split.
  std::vector<std::pair<std::string, std::vector<std::string>>> split;
  // The text of dataset.yaml.
  std::string dataset;
};

// The text of a dataset.yaml for samples that a cooker makes.
inline constexpr char kCrudeDataset[] =
    "__module__: megatron.energon\n__class__: CrudeWebdataset\n";

// Writes .nv-meta as `energon prepare` would, so that Energon reads the folder:
// dataset.yaml, split.yaml, .info.json, index.sqlite and index.uuid, and
// TAR.idx next to each tar. Replaces older files. Equal tars give equal bytes.
// Blocks on the disk. Errors: INVALID_ARGUMENT (two samples with one key, which
// Energon refuses); DATA_LOSS (a damaged tar); as the file system.
absl::Status WriteEnergonMeta(const EnergonMeta& meta);

// A sample of a tar file for a recipe: all its members, with the bytes of those
// that are no image, video or audio by their names. Blocks on the disk. Errors:
// a data fault (two members of one name; over the bounds of data_fault.h); as
// FileView::ReadAt.
absl::StatusOr<RawRecord> ReadRawMembers(FileView file, EnergonTarSample sample,
                                         absl::string_view file_name);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_ENERGON_ENERGON_TAR_H_
