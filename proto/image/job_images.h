#ifndef BALLAST_PROTO_IMAGE_JOB_IMAGES_H_
#define BALLAST_PROTO_IMAGE_JOB_IMAGES_H_

#include "proto/model.pb.h"

namespace ballast {

// Questions about a model's images, for servers and ranks. The model must be
// complete: with all values of its profile, as in a Job.
//
// Only ApplyModelProfile, which completes a model, and ComposeRevision, which
// composes two configurations, also ask whether model.image_family is set
// (docs/decisions/0105-what-describes-a-models-images.md).

// Whether keys of the model describe its images: patch, merge, temporal_patch
// and the bounds of pixels their sizes, token_ids the tokens around them. True
// of Qwen's models and of a model without a profile, unless image_family
// replaces their images. Of other models image_family has the numbers, and the
// tokenizer has the tokens.
inline bool HasImageKeys(const v1::Model& model) {
  return !model.has_image_family();
}

// Whether batches list the size of each crop: in every form but merge order. If
// the list is absent, a consumer of batches knows that patches are in merge
// order.
inline bool ListsCropSizes(const v1::Model& model) {
  return model.image_form() != v1::Model::IMAGE_FORM_UNSPECIFIED &&
         model.image_form() != v1::Model::IMAGE_FORM_MERGE_ORDER;
}

// Whether batches list which crops belong to one image. They do not if keys
// describe the images, and their patches are in merge order: each is one crop.
inline bool ListsCrops(const v1::Model& model) {
  return !HasImageKeys(model) || ListsCropSizes(model);
}

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_JOB_IMAGES_H_
