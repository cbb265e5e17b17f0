#ifndef BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
#define BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_

#include "proto/config.pb.h"
#include "server/delivery/sample_builder.h"

namespace ballast {

// What stands for a sample that could not be read, in exactly its size, so that
// every other sample stays where the schedule says. Both write every byte of
// request.payload.

// Grey (128) images.
void FillVisionPlaceholder(const SampleRequest& request);

// The images' tokens (vision start, placeholders, vision end) as far as they
// fit, so that the language model still finds one for each image embedding;
// then pad ids. No label. Positions as for any sample.
void FillLanguagePlaceholder(const SampleRequest& request,
                             const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PLACEHOLDER_H_
