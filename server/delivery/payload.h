#ifndef BALLAST_SERVER_DELIVERY_PAYLOAD_H_
#define BALLAST_SERVER_DELIVERY_PAYLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/block.h"
#include "server/delivery/sample_reader.h"
#include "server/sample/data_fault.h"
#include "server/sample/sample_source.h"
#include "server/settings/source_fields.h"
#include "server/text/sample_text.h"

namespace ballast {

// The result of reading a sample's images.
struct SampleCheck {
  std::optional<DataFault> fault;  // nullopt if all are good

  friend bool operator==(const SampleCheck&, const SampleCheck&) = default;
};

// Remembers, for the last kMaxCount positions of each split, whether their
// images are good. If not, the sample's text is not supervised. Thread-safe;
// threads at different positions rarely share a lock.
class ImageCheckCache {
 public:
  static constexpr size_t kMaxCount = size_t{1} << 16;

  // Replaces an earlier result.
  void Put(v1::Split split, uint64_t position, SampleCheck check);
  // nullopt if no result is remembered.
  std::optional<SampleCheck> Get(v1::Split split, uint64_t position) const;

 private:
  static constexpr size_t kShards = 64;
  struct Shard {
    mutable Mutex mutex;
    std::unordered_map<uint64_t, SampleCheck> checks ABSL_GUARDED_BY(mutex);
    std::deque<uint64_t> positions ABSL_GUARDED_BY(mutex);  // oldest first
  };
  std::array<std::array<Shard, kShards>, v1::Split_ARRAYSIZE> shards_;
};

// Converts the corpus's text format to the text library's: neither library
// knows the other.
inline TextForm GetForm(RawSample::TextFormat format) {
  switch (format) {
    case RawSample::TextFormat::kConversation:
    case RawSample::TextFormat::kPair:  // each of its two texts
      return TextForm::kConversation;
    case RawSample::TextFormat::kPlain:
      return TextForm::kDocument;
    case RawSample::TextFormat::kPackedBytes:
      return TextForm::kPackedBytes;
    case RawSample::TextFormat::kPackedJson:
      break;
  }
  return TextForm::kPackedJson;
}

// Views of a sample's payload as the arrays in it (docs/block.md).

// The place of one image, ImageBytes long.
absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload);

// Zeroes the bytes between and after the images.
void ClearVisionPadding(const SampleRequest& request);

// The arrays of one sequence.
struct LanguageArrays {
  absl::Span<int32_t> ids;        // [tokens]
  absl::Span<int32_t> labels;     // [tokens]
  absl::Span<int32_t> positions;  // [axes, tokens]
  absl::Span<uint32_t> values;    // [fields that a sample has one of]
  absl::Span<uint32_t> rows;      // [fields that a token has one of, tokens]
};

// Zeroes the bytes between and after the arrays. Returns the arrays of the
// sample's sequence, or of its two.
std::vector<LanguageArrays> OpenLanguagePayload(const SampleRequest& request,
                                                uint32_t position_axes,
                                                FieldCounts fields = {});

// How many fields of each kind.
FieldCounts CountFields(absl::Span<const FieldSpec> specs);

// The fields that a text is built with. `sample` and `specs` must outlive it.
inline TextFields GetTextFields(const RawSample& sample,
                                absl::Span<const FieldSpec> specs) {
  const bool text_is_object =
      sample.text_format == RawSample::TextFormat::kConversation ||
      sample.text_format == RawSample::TextFormat::kPackedJson;
  const bool from_text = sample.fields.empty() && text_is_object;
  return {specs, from_text ? sample.text : sample.fields};
}

// Whether the media of samples are good, as far as the job has encoders for
// them: a sample with a data fault in any has the same fault for every module,
// unless serve.on_bad_sample is `error`. Thread-safe.
class MediaChecks {
 public:
  // Nothing is owned.
  MediaChecks(const v1::Config* config, const SampleReader* reader);

  // Remembers what an encoder of `media` found.
  void Put(const SampleRequest& request, Media media,
           std::optional<DataFault> fault);
  // The fault of the sample's media, except media in `built`. Media that no
  // encoder has read are read and decoded, or compared with their hash, into
  // memory that is dropped. Blocks on the disk. Non-OK statuses are transient
  // faults.
  absl::StatusOr<std::optional<DataFault>> Check(const SampleRequest& request,
                                                 Media built, SampleWork* work);

 private:
  // Results of one kind of encoders' media.
  struct Kind {
    explicit Kind(Media media) : media(media) {}

    const Media media;
    bool is_checked = false;
    ImageCheckCache known;
  };

  // Reads and decodes them.
  absl::StatusOr<std::optional<DataFault>> Read(const SampleRequest& request,
                                                Kind* kind, SampleWork* work);

  const SampleReader* const reader_;
  Kind kinds_[2] = {Kind(Media::kImages), Kind(Media::kAudio)};
};

// Builds language payloads: reads the text, tokenises it and lays out ids,
// labels and positions. Thread-safe.
class LanguageBuilder {
 public:
  // `config` is a loaded one. Nothing is owned; all outlive this.
  LanguageBuilder(const v1::Config* config, const ModelText* text,
                  const SampleReader* reader, MediaChecks* checks);

  // Fills the payload, or returns the data fault that prevented it. Non-OK
  // statuses are transient faults. Blocks on the disk.
  absl::StatusOr<std::optional<DataFault>> Build(const SampleRequest& request,
                                                 SampleWork* work) const;

  // The fields of the source.
  absl::Span<const FieldSpec> GetFields(uint32_t source) const {
    return source < fields_.size() ? absl::MakeConstSpan(fields_[source])
                                   : absl::Span<const FieldSpec>();
  }

 private:
  // The text of each of the sample's sequences.
  absl::StatusOr<FaultOr<std::vector<TextSample>>> Tokenize(
      const SampleRequest& request, const RawSample& raw,
      const SampleImages& images, const MediaText& streams) const;

  const v1::Model& model_;
  const TextOptions text_options_;
  std::vector<std::vector<FieldSpec>> fields_;  // of each source
  const SampleReader* const reader_;
  MediaChecks* const checks_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PAYLOAD_H_
