#ifndef BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
#define BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_

#include "absl/types/span.h"
#include "server/delivery/sample_builder.h"
#include "server/image_plan/image_family.h"
#include "server/text/model_text.h"
#include "server/text/positions.h"
#include "server/text/video_text.h"

namespace ballast {

// Placeholders replace a sample that has a data fault, with exactly its size,
// so that every other sample stays where the schedule places it. Both functions
// write every byte of request.payload.

// Fills in grey images (kGreyPixel). The places of images that travel encoded
// are zeroed: the owner makes them grey (kSampleIsPlaceholder).
void FillVisionPlaceholder(const SampleRequest& request);

// Fills in the placeholders of the sample's images and videos, of these sides,
// as far as they fit, so that the language model still finds a token for each
// image embedding, each run between vision start and end where the model has
// their ids; then pad ids. Nothing is supervised. Positions as for any sample.
void FillLanguagePlaceholder(const SampleRequest& request,
                             const ModelText& text,
                             absl::Span<const TileShape> sides,
                             absl::Span<const VideoText> videos,
                             absl::Span<const GridThw> video_grids);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
