#include "server/command/preview/view_json.h"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/schedule/step_ranges.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

Json CropJson(const SampleView::Crop& crop) {
  Json json = {{"width", crop.width},
               {"height", crop.height},
               {"grid_w", crop.grid_w},
               {"grid_h", crop.grid_h}};
  if (crop.frame.has_value()) {
    json["video"] = crop.frame->video;
    json["frame"] = crop.frame->number;
    json["seconds"] = crop.frame->seconds;
  }
  return json;
}

Json ImageJson(const SampleView::Image& image) {
  if (!image.fault.empty()) {
    return {{"bytes", image.bytes}, {"fault", image.fault}};
  }
  return {{"width", image.header.width},
          {"height", image.header.height},
          {"format", ImageFormatName(image.header.format)},
          {"bytes", image.bytes}};
}

}  // namespace

const char* ImageFormatName(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return "jpeg";
    case ImageFormat::kPng:
      return "png";
    case ImageFormat::kWebp:
      return "webp";
  }
  return "";
}

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
               {"fault", view.fault.empty() ? Json(nullptr) : Json(view.fault)},
               {"modules", Json::array()},
               {"images", Json::array()},
               {"videos", Json::array()},
               {"crops", Json::array()},
               {"runs", Json::array()}};
  for (const SampleView::Share& share : view.shares) {
    json["modules"].push_back({{"module", ModuleName(share.module)},
                               {"cost", share.cost},
                               {"reader", share.reader},
                               {"owner", share.owner}});
  }
  for (const SampleView::Image& image : view.images) {
    json["images"].push_back(ImageJson(image));
  }
  for (const SampleView::Crop& crop : view.crops) {
    json["crops"].push_back(CropJson(crop));
  }
  for (const SampleView::Video& video : view.videos) {
    json["videos"].push_back({{"width", video.width},
                              {"height", video.height},
                              {"frames", video.frames},
                              {"fps", video.fps},
                              {"codec", video.codec}});
  }
  for (const TokenRun& run : view.runs) {
    json["runs"].push_back({{"first", run.first},
                            {"tokens", run.tokens},
                            {"image", run.image},
                            {"video", run.video},
                            {"supervised", run.supervised},
                            {"text", run.text}});
  }
  return Dump(json);
}

}  // namespace ballast
