#include "server/command/commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/image/job_images.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/config/config_loader.h"
#include "server/delivery/file_sample_builder.h"
#include "server/job/job_setup.h"
#include "server/media/audio/audio_rows.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"

namespace ballast {

namespace {

using Json = nlohmann::ordered_json;

struct InspectSampleOptions {
  std::string config;
  uint64_t position = 0;
  std::string split = "train";
};

// One sample and its place in the schedule.
struct Found {
  v1::StepSchedule schedule;
  uint32_t micro_batch = 0;  // within the step
  uint32_t index = 0;        // within the micro-batch
  std::vector<ImageGrid> grids;

  const v1::MicroBatchSchedule& columns() const {
    return schedule.micro_batches(micro_batch);
  }
};

absl::StatusOr<Found> FindPosition(const OpenedJob& job, v1::Split split,
                                   uint64_t position) {
  Found found;
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(split));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> step,
                           scheduler->GetStep(position));
  if (!step.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("position ", position,
                     " belongs to no step: order.skips leaves it out"));
  }
  BALLAST_ASSIGN_OR_RETURN(found.schedule, scheduler->Schedule(*step));
  // One of the step's micro-batches holds every position of the step.
  for (const auto& columns : found.schedule.micro_batches()) {
    const auto& positions = columns.position();
    const auto at = std::find(positions.begin(), positions.end(), position);
    if (at != positions.end()) {
      found.index = at - positions.begin();
      break;
    }
    ++found.micro_batch;
  }
  const v1::MicroBatchSchedule& columns = found.columns();
  const std::vector<uint32_t> first = GetFirstEntries(columns).crop;
  const BlockGeometry geometry = GetGeometry(job.scheduler->job());
  for (uint32_t image = first[found.index]; image < first[found.index + 1];
       ++image) {
    const uint32_t h = columns.grid_h(image), w = columns.grid_w(image);
    found.grids.push_back({h * geometry.patch + geometry.margin,
                           w * geometry.patch + geometry.margin, h, w});
  }
  return found;
}

// Adds the arrays of a sequence whose payload is at `data`.
void AddSequence(const v1::Job& job, uint32_t tokens, const uint8_t* data,
                 Json* json) {
  FieldCounts counts;
  const std::vector<FieldPlace> places = PlaceFields(job.fields(), &counts);
  const uint32_t axes = job.model().position_axes();
  const LanguagePayload layout = LayOutLanguage(tokens, axes, counts);
  const auto array = [&](uint64_t offset) {
    return reinterpret_cast<const int32_t*>(data + offset);
  };
  const int32_t* ids = array(layout.ids);
  const int32_t* labels = array(layout.labels);
  (*json)["input_ids"] = std::vector<int32_t>(ids, ids + tokens);
  (*json)["labels"] = std::vector<int32_t>(labels, labels + tokens);
  for (uint32_t axis = 0; axis < axes; ++axis) {
    const int32_t* of_axis = array(layout.positions) + axis * tokens;
    const auto* floats = reinterpret_cast<const float*>(of_axis);
    (*json)["position_ids"].push_back(
        job.float_positions()
            ? Json(std::vector<float>(floats, floats + tokens))
            : Json(std::vector<int32_t>(of_axis, of_axis + tokens)));
  }
  for (int i = 0; i < job.fields_size(); ++i) {
    const FieldPlace& place = places[i];
    const uint32_t count = place.per_token ? tokens : 1;
    const uint64_t at = place.per_token
                            ? layout.rows + 4ull * place.number * tokens
                            : layout.values + 4ull * place.number;
    Json& numbers = (*json)["fields"][job.fields(i).name()];
    for (uint32_t k = 0; k < count; ++k) {
      if (job.fields(i).type() == v1::Source::Field::TYPE_INT32) {
        numbers.push_back(array(at)[k]);
      } else {
        numbers.push_back(reinterpret_cast<const float*>(array(at))[k]);
      }
    }
    if (!place.per_token) numbers = numbers[0];
  }
}

// Adds the sample's language payload as a block would hold it.
absl::Status AddText(const OpenedJob& job, const Found& found, Json* json) {
  const v1::MicroBatchSchedule& columns = found.columns();
  const uint32_t axes = job.config.model().position_axes();
  const uint32_t tokens = columns.tokens(found.index);
  const v1::Job& shape = job.scheduler->job();
  const BlockGeometry geometry = GetGeometry(shape);
  PayloadRow row;
  row.tokens = tokens;
  row.first_tokens = FirstTokens(columns, found.index);
  SampleRequest request;
  request.module = v1::MODULE_LANGUAGE;
  request.split = found.schedule.split();
  request.record.position = columns.position(found.index);
  request.record.source = columns.source(found.index);
  request.record.ordinal = columns.ordinal(found.index);
  request.record.tokens = tokens;
  request.record.first_tokens = row.first_tokens;
  request.record.label_tokens = columns.label_tokens(found.index);
  request.record.payload_bytes = PayloadBytes(row, Media::kText, geometry);
  request.grids = found.grids;
  BALLAST_ASSIGN_OR_RETURN(AlignedBuffer payload,
                           AlignedBuffer::Create(request.record.payload_bytes));
  request.payload = payload.bytes();
  // An unreadable sample is an error here, not a placeholder.
  v1::Config config = job.config;
  config.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  const FileSampleBuilder builder(
      config, FileSampleBuilder::Job{job.source_pointers(), job.text.get(),
                                     job.scheduler.get()});
  BALLAST_RETURN_IF_ERROR(builder.Build(request).status());

  const uint8_t* data = request.payload.data();
  ForEachSequence(tokens, row.first_tokens, [&](uint32_t of_sequence) {
    const bool is_first = data == request.payload.data();
    Json* const out = row.first_tokens == 0
                          ? json
                          : &(*json)[is_first ? "chosen" : "rejected"];
    AddSequence(shape, of_sequence, data, out);
    data += LayOutLanguage(of_sequence, axes, geometry.fields).bytes;
  });
  return absl::OkStatus();
}

void AddImages(const v1::Model& model, const Found& found, Json* json) {
  const v1::MicroBatchSchedule& columns = found.columns();
  const uint32_t first = GetFirstEntries(columns).image[found.index];
  size_t crop = 0;
  for (uint32_t k = first; k < first + columns.images(found.index); ++k) {
    const ImageGrid& grid = found.grids[crop];
    const uint32_t crops = GetCrops(columns, k);
    crop += crops;
    if (const uint32_t t = GridT(columns, k); t != 0) {
      (*json)["videos"].push_back(
          {{"frames", crops},
           {"resized_h", grid.height},
           {"resized_w", grid.width},
           {"grid_thw", {t, grid.grid_h, grid.grid_w}},
           {"video_tokens", t * ImageTokens(grid, model)},
           {"second_per_grid_ts", columns.seconds_per_patch(k)}});
      continue;
    }
    (*json)["images"].push_back({{"resized_h", grid.height},
                                 {"resized_w", grid.width},
                                 {"grid_thw", {1, grid.grid_h, grid.grid_w}},
                                 {"image_tokens", ImageTokens(grid, model)}});
  }
}

absl::Status AddFamilyImages(const OpenedJob& job, const Found& found,
                             Json* json) {
  const v1::MicroBatchSchedule& columns = found.columns();
  const SourceIndex& index = job.sources[columns.source(found.index)]->index();
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           index.sample(columns.ordinal(found.index)));
  const ModelImages& images = job.text->images();
  BALLAST_ASSIGN_OR_RETURN(
      const SampleImages of_sample,
      SampleImagesAt(job, found.schedule.split(), columns.position(found.index),
                     indexed.media.images()));
  for (const IndexedMedium& medium : indexed.media) {
    if (medium.kind != MediumKind::kImage) continue;
    const ImageSize& size = medium.size;
    std::vector<ImageGrid> grids;
    BALLAST_ASSIGN_OR_RETURN(const ModelImages::Share share,
                             images.Add(of_sample, medium.number, &grids));
    Json crops = Json::array();
    for (const ImageGrid& grid : grids) {
      crops.push_back({{"height", grid.height},
                       {"width", grid.width},
                       {"grid_thw", {1, grid.grid_h, grid.grid_w}}});
    }
    (*json)["images"].push_back({{"height", size.height},
                                 {"width", size.width},
                                 {"crops", std::move(crops)},
                                 {"image_tokens", share.placeholders}});
  }
  for (const IndexedMedium& medium : indexed.media) {
    if (medium.kind != MediumKind::kVideo) continue;
    BALLAST_ASSIGN_OR_RETURN(
        const VideoPlan plan,
        PlanIndexedVideo(*images.video(), *medium.stream, medium.times));
    (*json)["videos"].push_back(
        {{"frames", plan.frames.size()},
         {"resized_h", plan.height},
         {"resized_w", plan.width},
         {"grid_thw", {plan.grid_t, plan.grid_h, plan.grid_w}},
         {"video_tokens", plan.tokens}});
  }
  return absl::OkStatus();
}

absl::Status AddClips(const OpenedJob& job, const Found& found, Json* json) {
  const v1::MicroBatchSchedule& columns = found.columns();
  BALLAST_ASSIGN_OR_RETURN(
      const IndexedSample indexed,
      job.sources[columns.source(found.index)]->index().sample(
          columns.ordinal(found.index)));
  for (const IndexedMedium& medium : indexed.media) {
    if (medium.kind != MediumKind::kAudio) continue;
    const StreamFacts& clip = *medium.stream;
    const AudioFacts facts = GetAudioFacts(clip);
    BALLAST_ASSIGN_OR_RETURN(
        const ClipPlan plan,
        PlanIndexedClip(*GetAudioFamily(job.config.model()), clip));
    (*json)["clips"].push_back({{"format", AudioFormatName(facts.format)},
                                {"rate", facts.rate},
                                {"channels", facts.channels},
                                {"samples", plan.range.samples},
                                {"rows", plan.rows},
                                {"frames", plan.frames},
                                {"audio_tokens", plan.plan.tokens}});
  }
  return absl::OkStatus();
}

absl::Status InspectSample(const InspectSampleOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  BALLAST_ASSIGN_OR_RETURN(
      const Found found,
      FindPosition(job, *ParseSplit(options.split), options.position));
  const v1::MicroBatchSchedule& columns = found.columns();
  Json json = {
      {"position", options.position},
      {"sample",
       absl::StrCat(found.schedule.sources(columns.source(found.index)), ":",
                    columns.ordinal(found.index))},
      {"step", found.schedule.step()},
      {"micro_batch", found.micro_batch},
      {"tokens", columns.tokens(found.index)},
      {"label_tokens", columns.label_tokens(found.index)},
      {"images", Json::array()},
      {"cost", Json::object()}};
  if (HasImageKeys(job.config.model())) {
    AddImages(job.config.model(), found, &json);
  } else {
    BALLAST_RETURN_IF_ERROR(AddFamilyImages(job, found, &json));
  }
  BALLAST_RETURN_IF_ERROR(AddClips(job, found, &json));
  for (const v1::ModuleSchedule& module : columns.modules()) {
    json["cost"][std::string(ModuleName(module.module()))] =
        module.cost(found.index);
  }
  BALLAST_RETURN_IF_ERROR(AddText(job, found, &json));
  std::cout << json.dump() << "\n";
  return Flush(std::cout);
}

}  // namespace

void AddInspectSample(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectSampleOptions>();
  Command* command = line->AddCommand(
      inspect, "sample",
      R"(Prints the sample at a position as a server builds it.
One JSON object with the keys: position, sample, step, micro_batch, tokens,
label_tokens, images [{resized_h, resized_w, grid_thw, image_tokens}] (of a
family [{height, width, crops [{height, width, grid_thw}], image_tokens}]),
videos [{frames, resized_h, resized_w, grid_thw, video_tokens,
second_per_grid_ts}] and clips [{format, rate, channels, samples, rows, frames,
audio_tokens}] (samples at 16 kHz; rows of features, of which frames count) if
there are any,
cost {module: x}, input_ids, labels, position_ids [axis][token].)",
      "  ballast-server inspect sample --config ballast.yaml --position 17",
      [options] { return InspectSample(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command
      ->AddWholeNumber("--position", &options->position,
                       "place in the split's order, from 0")
      .Required();
  command->AddText("--split", &options->split, "whose order")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
}

absl::Status TransformJsonLines(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<nlohmann::ordered_json>(
        const nlohmann::json& object, const std::string& line)>& transform) {
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string place = absl::StrCat("standard input line ", number);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": not a JSON object"));
    }
    const auto result = transform(object, line);
    if (!result.ok()) return Annotate(result.status(), place);
    out << result->dump(-1, ' ', false,
                        nlohmann::ordered_json::error_handler_t::replace)
        << "\n";
  }
  return Flush(out);
}

absl::Status InspectFiles(
    absl::Span<const std::string> files, absl::string_view noun,
    absl::FunctionRef<absl::Status(const std::string& file,
                                   nlohmann::ordered_json* object)>
        inspect,
    std::ostream& out) {
  size_t failed = 0;
  for (const std::string& file : files) {
    nlohmann::ordered_json object = {{"file", file}};
    const absl::Status status = inspect(file, &object);
    if (!status.ok()) {
      ++failed;
      object["error"] = std::string(status.message());
    }
    // A file's name may be any bytes; JSON allows only UTF-8.
    out << object.dump(-1, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace)
        << std::endl;
    if (!out) return absl::UnavailableError("cannot write to standard output");
  }
  if (failed == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(failed, " of ", files.size(), " ", noun,
                   " failed; see `error` in their lines"));
}

}  // namespace ballast
