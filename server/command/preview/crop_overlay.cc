#include "server/command/preview/crop_overlay.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/command/draw/canvas.h"
#include "server/model/model_images.h"

namespace ballast {

namespace {

constexpr Rgb kPatchEdge = {79, 184, 204};
constexpr Rgb kCropEdge = {236, 120, 30};

int Round(double place) { return static_cast<int>(std::lround(place)); }

// Draws an even grid of lines, without its edge.
void DrawGrid(const CropPlace& crop, int thickness, Canvas* canvas) {
  const int left = Round(crop.left), width = Round(crop.width);
  const int top = Round(crop.top), height = Round(crop.height);
  for (uint32_t i = 1; i < crop.grid_w; ++i) {
    const int x = Round(crop.left + crop.width * i / crop.grid_w);
    canvas->FillBox({x, top, thickness, height}, kPatchEdge);
  }
  for (uint32_t i = 1; i < crop.grid_h; ++i) {
    const int y = Round(crop.top + crop.height * i / crop.grid_h);
    canvas->FillBox({left, y, width, thickness}, kPatchEdge);
  }
}

}  // namespace

std::vector<CropPlace> PlacesOfCrops(const ImagePlan& plan) {
  std::vector<CropPlace> places;
  for (const PlanStage& stage : plan.stages) {
    for (uint32_t i = 0; i < stage.rows * stage.columns; ++i) {
      CropPlace crop;
      crop.width = stage.crop.width;
      crop.height = stage.crop.height;
      crop.left = stage.crop.left + i % stage.columns * crop.width;
      crop.top = stage.crop.top + i / stage.columns * crop.height;
      // From this stage's canvas back to the image.
      const PlanStage* at = &stage;
      while (true) {
        const double x = static_cast<double>(at->from.width) / at->place.width;
        const double y =
            static_cast<double>(at->from.height) / at->place.height;
        crop.left = at->from.left + (crop.left - at->place.left) * x;
        crop.top = at->from.top + (crop.top - at->place.top) * y;
        crop.width *= x;
        crop.height *= y;
        if (at->source == PlanStage::kDecodedImage) break;
        at = &plan.stages[at->source];
      }
      places.push_back(crop);
    }
  }
  return places;
}

absl::StatusOr<RgbImage> DrawCropsOn(RgbImage image, const ModelImages& model,
                                     const SampleImages& images, size_t i) {
  std::vector<ImageGrid> grids;
  BALLAST_RETURN_IF_ERROR(model.Add(images, i, &grids).status());
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, model.Plan(images, i));
  std::vector<CropPlace> crops = PlacesOfCrops(plan);
  const int width = static_cast<int>(image.width);
  const int height = static_cast<int>(image.height);
  // Visible also where the page shows a large image smaller.
  const int thickness = std::max(1, std::max(width, height) / 1000);
  Canvas canvas(std::move(image.pixels), width, height);
  for (size_t k = 0; k < crops.size() && k < grids.size(); ++k) {
    crops[k].grid_h = grids[k].grid_h;
    crops[k].grid_w = grids[k].grid_w;
    DrawGrid(crops[k], thickness, &canvas);
  }
  for (const CropPlace& crop : crops) {
    const int left = Round(crop.left), top = Round(crop.top);
    canvas.DrawFrame({left, top, Round(crop.left + crop.width) - left,
                      Round(crop.top + crop.height) - top},
                     3 * thickness, kCropEdge);
  }
  image.pixels = canvas.pixels();
  return image;
}

namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

Json CropJson(const SampleView::Crop& crop) {
  Json json = {{"kind", MediumName(crop.kind)},
               {"width", crop.width},
               {"height", crop.height},
               {"grid_w", crop.grid_w},
               {"grid_h", crop.grid_h}};
  if (crop.frame.has_value()) {
    json["video"] = crop.frame->video;
    json["frame"] = crop.frame->number;
    json["seconds"] = crop.frame->seconds;
  }
  if (crop.kind == MediumKind::kAudio) json["frames"] = crop.frames;
  return json;
}

Json StoredJson(const SampleView::Stored& stored) {
  Json json = {{"kind", MediumName(stored.kind)}, {"bytes", stored.bytes}};
  if (!stored.fault.empty()) {
    json["fault"] = stored.fault;
    return json;
  }
  json.update({{"format", stored.format},
               {"width", stored.width},
               {"height", stored.height},
               {"frames", stored.frames},
               {"rate", stored.rate}});
  return json;
}

}  // namespace

std::string JobJson(const OpenedJob& job) {
  Json splits = Json::array();
  const v1::Job& all = job.scheduler->job();
  for (int i = 0; i < all.splits_size(); ++i) {
    const v1::Split split = all.splits(i);
    const auto scheduler = job.scheduler->OfSplit(split);
    if (!scheduler.ok()) continue;
    const v1::Job& own = (*scheduler)->job();
    Json end = nullptr;
    if (own.end_step() != 0) {
      const absl::StatusOr<uint64_t> first = FirstPosition(own, own.end_step());
      if (first.ok()) end = *first;
    }
    Json sources = Json::array();
    for (int k = 0; k < job.config.sources_size(); ++k) {
      if (job.config.sources(k).split() != split) continue;
      sources.push_back({{"name", job.config.sources(k).name()},
                         {"samples", job.sources[k]->index().size()}});
    }
    splits.push_back({{"name", SplitName(split)},
                      {"positions", std::move(end)},
                      {"sources", std::move(sources)}});
  }
  return Dump(
      {{"model", job.config.model().profile()}, {"splits", std::move(splits)}});
}

std::string ViewJson(const SampleView& view) {
  Json json = {{"split", SplitName(view.split)},
               {"position", view.position},
               {"step", view.step},
               {"micro_batch", view.micro_batch},
               {"source", view.source},
               {"ordinal", view.ordinal},
               {"name", view.name},
               {"file", view.location.file},
               {"offset", view.location.offset},
               {"tokens", view.tokens},
               {"label_tokens", view.label_tokens},
               {"patches", view.patches},
               {"record", view.record},
               {"cooked", view.cooked},
               {"fault", view.fault.empty() ? Json(nullptr) : Json(view.fault)},
               {"modules", Json::array()},
               {"media", Json::array()},
               {"crops", Json::array()},
               {"runs", Json::array()}};
  for (const SampleView::Share& share : view.shares) {
    json["modules"].push_back({{"module", ModuleName(share.module)},
                               {"cost", share.cost},
                               {"reader", share.reader},
                               {"owner", share.owner}});
  }
  for (const SampleView::Stored& stored : view.media) {
    json["media"].push_back(StoredJson(stored));
  }
  for (const SampleView::Crop& crop : view.crops) {
    json["crops"].push_back(CropJson(crop));
  }
  for (const TokenRun& run : view.runs) {
    json["runs"].push_back(
        {{"first", run.first},
         {"tokens", run.tokens},
         {"medium", run.medium.has_value() ? Json(MediumName(*run.medium))
                                           : Json(nullptr)},
         {"supervised", run.supervised},
         {"rejected", run.rejected},
         {"text", run.text}});
  }
  return Dump(json);
}

}  // namespace ballast
