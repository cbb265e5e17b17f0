#ifndef BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_

#include <optional>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/corpus/data_fault.h"
#include "server/delivery/image_check_cache.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/sample_reader.h"
#include "server/text/model_text.h"

namespace ballast {

// Builds language payloads: reads the text, tokenises it and lays out ids,
// labels and positions. If ChecksImages(config), a sample whose images have a
// data fault has it here too; images that vision has not read are read and
// decoded, or compared with their hash, into memory that is dropped.
// Thread-safe.
class LanguageBuilder {
 public:
  // `config` is a loaded one. Nothing is owned; all outlive this.
  LanguageBuilder(const v1::Config* config, const ModelText* text,
                  const SampleReader* reader, ImageCheckCache* image_checks);

  // Fills the payload, or returns the data fault that prevented it. Non-OK
  // statuses are transient faults. Blocks on the disk.
  absl::StatusOr<std::optional<DataFault>> Build(const SampleRequest& request,
                                                 SampleWork* work) const;

 private:
  absl::StatusOr<std::optional<DataFault>> CheckImages(
      const SampleRequest& request, SampleWork* work) const;
  // `sides`: of the sample's images.
  absl::StatusOr<FaultOr<TextSample>> Tokenize(
      const SampleRequest& request, const RawSample& raw,
      absl::Span<const TileShape> sides, const SampleVideoText& videos) const;

  const v1::Model& model_;
  const TextOptions text_options_;
  const bool checks_images_;
  const SampleReader* const reader_;
  ImageCheckCache* const image_checks_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LANGUAGE_BUILDER_H_
