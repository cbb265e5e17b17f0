#ifndef BALLAST_SERVER_DATA_TAR_WEBDATASET_READER_H_
#define BALLAST_SERVER_DATA_TAR_WEBDATASET_READER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/tar/tar_reader.h"
#include "server/files/file.h"
#include "server/sample/medium_kind.h"
#include "server/sample/sample_source.h"

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
    kAudio,
    kPicture,
    kIgnored,
  };
  Kind kind = Kind::kIgnored;
  // The path up to the first dot of the base name, without "./" before it.
  std::string key;
  // The rest of the name after that dot, in lower case.
  std::string extension;
  // The N of KEY.N.jpg, KEY.N.mp4 or KEY.N.wav, or of KEY.N.P.jpg.
  std::optional<uint32_t> number;
  // The P of KEY.N.P.jpg, a picture of a video.
  uint32_t picture = 0;
};

// Names without a dot, or with nothing before it, are ignored.
MemberName ParseMemberName(absl::string_view name);

// The places of one sample's parts in a tar file.
struct WebDatasetSample {
  std::string key;
  // [begin, end): its members' headers and bytes. Nothing of another sample is
  // between them.
  uint64_t begin = 0;
  uint64_t end = 0;
  // Set if `fault` is OK.
  RawSample::TextFormat text_format = RawSample::TextFormat::kConversation;
  TarMember text;
  // Kind by kind, in the order of their numbers.
  std::vector<MediumParts<TarMember>> media;
  // INVALID_ARGUMENT with the reason if the sample is bad, otherwise OK.
  absl::Status fault;
  // Of a sample without media: a member of its key that is not read and whose
  // name says nothing. Its content may be media (IsMediaContent).
  std::optional<TarMember> unknown;
};

// Whether a file that begins with `head` is an image, video, audio or array, or
// the base64 of an image. 16 bytes suffice. Pure.
bool IsMediaContent(absl::string_view head);

// A data fault: the member `name` is media, and is not read. `what` says how it
// is known: "is media by its name".
absl::Status UnreadMedia(absl::string_view name, absl::string_view what);

// Groups the members of a tar file into samples, as WebDataset does: a member's
// key is its path up to the first dot of its base name, what follows the dot is
// its extension (in lower case), and consecutive members with one key are one
// sample:
//   KEY.json or KEY.txt                text (a conversation, a plain document)
//   KEY.tokens.bin, KEY.tokens.json    text that is token ids already
//   KEY.jpg, .jpeg, .png, .webp        the image
//   KEY.0.jpg, KEY.1.png, …            images, from 0 without a gap
//   KEY.mp4, .avi, .webm, .mov, .mkv   the video
//   KEY.0.mp4, KEY.1.webm, …           videos, from 0 without a gap
//   KEY.0.0.jpg, KEY.0.1.jpg, …        pictures that are video 0, likewise
//   KEY.wav, .flac, .mp3, .ogg, .opus, .m4a, KEY.0.wav, …
//                                      audio, likewise
// Other members are ignored, wherever they are, unless a sample would lose
// something: one with a member that is media by its name, or without media
// beside one that may hold some, is bad; and so is a sample whose members all
// have a dot in their names that ends their key, as `Dr. Smith.jpg`, each by
// itself. Thread-compatible.
class WebDatasetReader {
 public:
  // As TarReader. Without `lists` pictures that are a video are not read, as
  // for models that take none. Likewise audio without `audios`.
  WebDatasetReader(FileView file, uint64_t begin, uint64_t end, bool whole,
                   bool lists = true, bool audios = true);
  ~WebDatasetReader();

  // The next sample, or nullopt at the end. Errors: DATA_LOSS (the tar file is
  // damaged at offset(); the sample before that place may lack members and is
  // not returned: TakePending); as File::ReadAt.
  absl::StatusOr<std::optional<WebDatasetSample>> Next();
  // The sample whose members Next was collecting when it failed, as far as they
  // were found; nullopt if it was at the beginning of one.
  std::optional<WebDatasetSample> TakePending();

  uint64_t offset() const { return tar_.offset(); }
  // Number of ignored members so far, by extension; a member without one counts
  // as "". Extensions over 32 bytes, and all after the first thousand, count as
  // "(other)".
  const absl::flat_hash_map<std::string, uint64_t>& ignored() const {
    return ignored_;
  }

 private:
  class Grouper;
  // A member that is not read.
  struct Unread {
    enum Kind { kMedia, kText, kContent, kUnknown };
    Kind kind = kUnknown;
    std::string key;
    std::string stem;  // its name up to the last dot
    TarMember member;
  };

  bool IsRead(const MemberName& name) const;
  void CountIgnored(absl::string_view extension);
  // Keeps a member that is not read for the sample of its key.
  void TakeUnread(const MemberName& name, TarMember member);
  // The first of unread_, and those of its stem, as a sample that is bad;
  // nullopt if they lose nothing.
  std::optional<WebDatasetSample> TakeLost();

  TarReader tar_;
  const bool lists_;
  const bool audios_;
  // A member already read that belongs to the next sample.
  std::optional<TarMember> next_;
  std::unique_ptr<Grouper> pending_;
  // Members of keys that have no sample yet; few of them.
  std::deque<Unread> unread_;
  absl::flat_hash_map<std::string, uint64_t> ignored_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_TAR_WEBDATASET_READER_H_
