#ifndef BALLAST_SERVER_CONFIG_MODEL_IMAGES_H_
#define BALLAST_SERVER_CONFIG_MODEL_IMAGES_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "server/config/model_profile.h"
#include "server/image_plan/image_planner.h"
#include "server/video/video_model.h"

namespace ballast {

// What a model makes of images, from their sizes alone, and its rule for
// videos. Immutable, so that threads may share it.
class ModelImages {
 public:
  // `model` is a complete one. Errors: INVALID_ARGUMENT naming the number of
  // its images that their rule cannot take.
  static absl::StatusOr<ModelImages> Create(const v1::Model& model);

  // An image's share of its sample.
  struct Share {
    uint32_t crops = 0;
    uint32_t placeholders = 0;  // tokens that the image's features replace
  };

  // Appends the grids of the crops of an image of height*width pixels, in a
  // sample of `images` images, to `grids`. Pure. Errors: INVALID_ARGUMENT for
  // an image that cannot be resized, or whose canvas is larger than any image.
  absl::StatusOr<Share> Add(uint32_t height, uint32_t width, uint32_t images,
                            std::vector<ImageGrid>* grids) const;

  // Placeholders of such an image.
  absl::StatusOr<uint32_t> Placeholders(uint32_t height, uint32_t width,
                                        uint32_t images) const;

  // Whether an image of height*width pixels that becomes one crop of `grid` may
  // travel encoded: ranks resize along the width first, and the library of
  // model.resample does so, too (proto/image/model_resampling.h).
  bool MayTravelEncoded(uint32_t height, uint32_t width,
                        const ImageGrid& grid) const;

  const ImagePlanner& planner() const { return planner_; }
  // How the model samples videos; nullptr if it takes none.
  const VideoModel* video() const {
    return video_.has_value() ? &*video_ : nullptr;
  }
  // Whether the model itself asks for an image's sides (rule `pinpoints`).
  bool wants_sides() const { return wants_sides_; }

 private:
  ModelImages(const v1::Model& model, ImagePlanner planner)
      : resample_(model.resample()), planner_(std::move(planner)) {}

  v1::Model::Resample resample_;
  ImagePlanner planner_;
  std::optional<VideoModel> video_;
  bool wants_sides_ = false;
};

// Whether a crop is the whole image, resized to exactly the crop's size: the
// plans that can be decoded and resized in one pass.
bool IsOneResize(const ImagePlan& plan, uint32_t height, uint32_t width);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_MODEL_IMAGES_H_
