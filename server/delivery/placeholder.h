#ifndef BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
#define BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_

#include <cstddef>

#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/delivery/sample_builder.h"
#include "server/image_plan/image_family.h"
#include "server/text/family_text.h"
#include "server/text/positions.h"
#include "server/text/video_text.h"

namespace ballast {

// Placeholders replace a sample that has a data fault, with exactly its size,
// so that every other sample stays where the schedule places it. Both functions
// write every byte of request.payload.

// Fills in grey images (kGreyPixel). The places of images that travel encoded
// are zeroed: the owner makes them grey (kSampleIsPlaceholder).
void FillVisionPlaceholder(const SampleRequest& request);

// As FillLanguagePlaceholder below, for a model with an image family: the
// placeholders of each image and video, then pad ids. `sides`: of the images.
void FillFamilyPlaceholder(const SampleRequest& request,
                           const FamilyText& family,
                           absl::Span<const TileShape> sides,
                           absl::Span<const VideoText> videos);

// Fills in the images' tokens (vision start, image tokens, vision end) as far
// as they fit, so that the language model still finds a token for each image
// embedding; then pad ids. Nothing is supervised. Positions as for any sample.
// The first `images` crops are of images; `videos` are the runs of videos.
void FillLanguagePlaceholder(const SampleRequest& request,
                             const v1::Model& model, size_t images,
                             absl::Span<const GridThw> videos);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
