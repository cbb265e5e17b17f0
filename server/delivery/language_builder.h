#ifndef BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/delivery/media_checks.h"
#include "server/delivery/sample_reader.h"
#include "server/sample/data_fault.h"
#include "server/sample/sample_source.h"
#include "server/settings/source_fields.h"
#include "server/text/sample_text.h"

namespace ballast {

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

// The fields that a text is built with. `sample` and `specs` must outlive it.
inline TextFields GetTextFields(const RawSample& sample,
                                absl::Span<const FieldSpec> specs) {
  const bool text_is_object =
      sample.text_format == RawSample::TextFormat::kConversation ||
      sample.text_format == RawSample::TextFormat::kPackedJson;
  const bool from_text = sample.fields.empty() && text_is_object;
  return {specs, from_text ? sample.text : sample.fields};
}

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

#endif  // BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_
