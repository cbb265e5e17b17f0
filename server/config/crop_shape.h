#ifndef BALLAST_SERVER_CONFIG_CROP_SHAPE_H_
#define BALLAST_SERVER_CONFIG_CROP_SHAPE_H_

#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "server/image_plan/image_family.h"

namespace ballast {

// What a rank must know of a complete model's crops beside the model itself.
v1::Job::CropShape CropShapeOf(const v1::Model& model);

// The form of a batch's pixels that comes nearest to what the family's
// processor returns; model.image_form overrides it.
v1::Model::ImageForm ImageFormOf(const ImageFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CROP_SHAPE_H_
