#ifndef BALLAST_SERVER_DATA_INDEX_PROBE_MEDIA_H_
#define BALLAST_SERVER_DATA_INDEX_PROBE_MEDIA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/data/index/image_probe.h"
#include "server/data/index/index_options.h"
#include "server/data/record_parser.h"
#include "server/files/file.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"
#include "server/sample/source_index.h"

namespace ballast {
// The facts that an index holds of media: of images one column each, of
// streams (StreamFacts) one.
struct MediaFactsView {
  absl::Span<const ImageSize> sizes;
  absl::Span<const ImageMark> marks;
  // One for each image, or empty: none is clean.
  absl::Span<const uint64_t> content_hashes;
  absl::Span<const StreamFacts> streams = {};
  // For each stream: the number of its sample, ascending. Empty: all are of the
  // first.
  absl::Span<const uint64_t> stream_samples = {};
  // One for each stream, or empty.
  absl::Span<const uint64_t> stream_hashes = {};
  // FrameTimes of the videos that have some, one after the other.
  FrameTimes times = {};
};

// The record of a sample of a tar file, whose fault is OK and whose text was
// read. `content` has the places of its media; it may be `sample`.
template <typename Sample, typename Content>
Record GetTarRecord(const Sample& sample, const Content& content,
                    std::string text, absl::string_view file_name) {
  Record record;
  record.key = Printable(sample.key);
  record.name = absl::StrCat(file_name, ": ", record.key);
  record.where = absl::StrCat("key ", record.key);
  record.text_format = content.text_format;
  record.entry.offset = sample.begin;
  record.entry.length = static_cast<uint32_t>(sample.end - sample.begin);
  record.entry.text_check = TextHash(sample.key, text);
  record.text = std::move(text);
  const auto get_medium = [](const auto& part) {
    return Medium{part.name, ByteRange{part.data, part.size}};
  };
  for (const auto& medium : content.media) {
    RecordMedium& of_record = record.media.emplace_back();
    of_record.kind = medium.kind;
    of_record.is_list = medium.is_list;
    for (const auto& part : medium.parts) {
      of_record.parts.push_back(get_medium(part));
    }
  }
  return record;
}

struct MediaFacts {
  std::vector<ImageSize> sizes;
  std::vector<ImageMark> marks;
  // May be shorter than the others: missing hashes are 0.
  std::vector<uint64_t> content_hashes;
  std::vector<StreamFacts> streams;
  std::vector<uint64_t> stream_samples;  // as in MediaFactsView
  std::vector<uint64_t> stream_hashes;   // as content_hashes
  std::vector<uint32_t> times;           // as in MediaFactsView

  // Appends the facts of samples whose first one has number `sample` here.
  void Append(const MediaFactsView& more, uint64_t sample) {
    if (!more.content_hashes.empty()) {
      content_hashes.resize(sizes.size());
      content_hashes.insert(content_hashes.end(), more.content_hashes.begin(),
                            more.content_hashes.end());
    }
    sizes.insert(sizes.end(), more.sizes.begin(), more.sizes.end());
    marks.insert(marks.end(), more.marks.begin(), more.marks.end());
    if (!more.stream_hashes.empty()) {
      stream_hashes.resize(streams.size());
      stream_hashes.insert(stream_hashes.end(), more.stream_hashes.begin(),
                           more.stream_hashes.end());
    }
    times.insert(times.end(), more.times.begin(), more.times.end());
    for (size_t i = 0; i < more.streams.size(); ++i) {
      streams.push_back(more.streams[i]);
      stream_samples.push_back(
          sample + (more.stream_samples.empty() ? 0 : more.stream_samples[i]));
    }
  }
  MediaFactsView view() const {
    return {sizes,          marks,         content_hashes, streams,
            stream_samples, stream_hashes, times};
  }
};

// Compares an image's size with what else is known of it.
using CheckImageSize =
    std::function<absl::Status(const Medium& image, const ImageSize& size)>;

// Collects what the index holds of one record's media, from their headers; with
// IndexOptions::hash also from all their bytes. Thread-compatible; blocks on
// the disk or the store.
class MediaProbe {
 public:
  // `file` is the record's data file, `root` the folder of media that it names;
  // null: it names none. All named images and pictures together have at most
  // `left` bytes. `check_size` may be empty.
  MediaProbe(const IndexOptions* options, const File* file,
             const MediaRoot* root, uint64_t left, CheckImageSize check_size)
      : options_(*options),
        file_(*file),
        root_(root),
        left_(left),
        check_size_(std::move(check_size)) {}

  // Adds the next medium; a video or clip of audio with the clip and rate that
  // the record says. Errors: INVALID_ARGUMENT (as ProbeImage and
  // options.read_video; a clip that ends before it starts; pictures of several
  // sizes; a model without videos; too many bytes); of a file that is missing
  // its kind (data_fault.h), and the archive that is in its place; as
  // File::ReadAt; of `check_size`.
  absl::Status Add(const RecordMedium& medium);

  const MediaFacts& facts() const { return facts_; }
  // IndexSampleRecord::image_check of what was added.
  uint64_t image_check() const { return hash_.value(); }
  // The latest modification of the named media of a mounted file system, in
  // nanoseconds since 1970; 0 without one.
  int64_t media_time_ns() const { return media_time_ns_; }

 private:
  struct Probed {
    ProbedImage image;
    uint64_t content_hash = 0;  // 0 unless options.hash
    std::string name;           // for messages
  };
  // `kind`, also of a picture's video, is for messages.
  absl::StatusOr<Probed> Probe(MediumKind kind, const Medium& image);
  absl::StatusOr<Probed> ProbeNamed(MediumKind kind, const MediumPath& named);
  absl::StatusOr<File> Open(MediumKind kind, const MediumPath& named);
  absl::Status AddImage(const Medium& image);
  absl::Status AddList(const RecordMedium& video);
  absl::Status AddStream(const RecordMedium& stream);
  absl::StatusOr<StreamFacts> GetFacts(const RawMedium& raw,
                                       const RecordMedium& stream);

  const IndexOptions& options_;
  const File& file_;
  const MediaRoot* const root_;
  uint64_t left_;
  const CheckImageSize check_size_;
  ImagesHash hash_;
  MediaFacts facts_;
  int64_t media_time_ns_ = 0;
};

// OK if the text of `record` mentions no video, or the record has videos: then
// marks are counted when the text is measured. Errors: INVALID_ARGUMENT, as
// CheckConversation and CheckNoVideoMark.
absl::Status CheckMarks(const Record& record);

// Checks that parts of a conversation name the members of a tar file in the
// members' order, medium by medium. Other names, such as paths before the tar
// was written, are not compared. Errors: INVALID_ARGUMENT (a part names a
// member of another place; as ReadMediaPlaces).
absl::Status CheckPlaces(const Record& record);

// Gives the media of a record of a tar file that run in time the bounds and
// rates that the parts of its conversation name. Errors: INVALID_ARGUMENT
// (another number of parts; a part of pictures for a file, or the other way
// round; another number of pictures; as ReadVideoParts).
absl::Status NameClips(Record* record);
// The same for media of one kind.
absl::Status NameClips(MediumKind kind, Record* record);

// Adds the audio of each video of a record to its media, with the video's own
// start and end (model.video.use_audio_in_video), among its other audio:
// encoders take all in the `order` of the text. Audio that is not in the order
// is after all. Errors: INVALID_ARGUMENT (a list of pictures).
absl::Status AddAudioOfVideos(const MediaOrder& order,
                              std::vector<RecordMedium>* media);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_PROBE_MEDIA_H_
