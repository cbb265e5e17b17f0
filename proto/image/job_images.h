#ifndef BALLAST_PROTO_IMAGE_JOB_IMAGES_H_
#define BALLAST_PROTO_IMAGE_JOB_IMAGES_H_

#include <cstdint>

#include "proto/image/resample_weights.h"
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

// Whether every image has one placeholder for each merge * merge patches and no
// others, so that its rows of embeddings can be counted by patches. Other
// families have placeholders for the ends of rows or of the image, or none for
// patches of padding.
inline bool HasPlaceholdersByPatches(const v1::Model& model) {
  const v1::ImageFamily& family = model.image_family();
  const v1::ImageFamily::Marks& marks = family.marks();
  const bool writes_rows = !marks.row_end().empty();
  const bool writes_ends = !marks.before().empty() || !marks.after().empty();
  return family.rule() != v1::ImageFamily::RULE_PINPOINTS &&
         (family.tokens_a_row() == 0 || writes_rows) &&
         (family.tokens_an_image() == 0 || writes_ends);
}

// ---- How they are resized

// The library of model.resample. `fast` and an unset value mean Pillow 12.
constexpr ResampleLibrary GetLibrary(v1::Model::Resample resample) {
  switch (resample) {
    case v1::Model::RESAMPLE_PILLOW13:
      return ResampleLibrary::kPillow13;
    case v1::Model::RESAMPLE_TORCHVISION:
      return ResampleLibrary::kTorchvision;
    default:
      return ResampleLibrary::kPillow12;
  }
}

// The filter of model.image_family.filter. An unset value means bicubic.
constexpr ResampleFilter GetFilter(v1::ImageFamily::Filter filter) {
  switch (filter) {
    case v1::ImageFamily::FILTER_BILINEAR:
      return ResampleFilter::kBilinear;
    case v1::ImageFamily::FILTER_LANCZOS:
      return ResampleFilter::kLanczos;
    case v1::ImageFamily::FILTER_BOX:
      return ResampleFilter::kBox;
    case v1::ImageFamily::FILTER_OPENCV_CUBIC:
      return ResampleFilter::kOpenCvCubic;
    default:
      return ResampleFilter::kBicubic;
  }
}

// How the images of a job's model are resized. Qwen's models have no family;
// their images use bicubic.
inline Resampling GetResampling(const v1::Model& model) {
  return {GetFilter(model.image_family().filter()),
          GetLibrary(model.resample())};
}

// True if the library resizes along y before x. The order matters because
// pixels are rounded in between. Pillow 12 begins with y for images over a
// hundred times as high as wide whose height shrinks. Pillow 13 begins with y
// if the height shrinks by more than twice as many pixels as the width; a width
// that grows counts as a negative shrinkage. torchvision always begins with x.
constexpr bool IsResizedAlongYFirst(ResampleLibrary library, uint32_t width,
                                    uint32_t height, uint32_t new_width,
                                    uint32_t new_height) {
  if (new_height >= height) return false;
  switch (library) {
    case ResampleLibrary::kPillow12:
      return height > uint64_t{100} * width;
    case ResampleLibrary::kPillow13:
      return int64_t{height} - int64_t{new_height} >
             2 * (int64_t{width} - int64_t{new_width});
    case ResampleLibrary::kTorchvision:
      break;
  }
  return false;
}

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_JOB_IMAGES_H_
