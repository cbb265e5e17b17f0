#include "server/command/preview/sample_view.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/command/draw/draw_sample.h"
#include "server/data/jsonl/pair_json.h"
#include "server/delivery/block.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/text/text_token.h"

namespace ballast {

namespace {

std::string GetName(int32_t id, const v1::TokenIds& special) {
  if (special.has_vision_start() && id == special.vision_start()) {
    return "<|vision_start|>";
  }
  if (special.has_vision_end() && id == special.vision_end()) {
    return "<|vision_end|>";
  }
  if (special.has_im_start() && id == special.im_start()) return "<|im_start|>";
  if (special.has_im_end() && id == special.im_end()) return "<|im_end|>";
  if (special.has_end_of_text() && id == special.end_of_text()) {
    return "<|endoftext|>";
  }
  return absl::StrCat("<|", id, "|>");
}

std::string GetText(absl::Span<const int32_t> ids, const v1::TokenIds& special,
                    const Tokenizer& tokenizer) {
  std::string text;
  if (tokenizer.Decode(ids, &text).ok()) return text;
  // Decoding ids one by one would cut characters of several tokens, so known
  // ids are decoded together.
  text.clear();
  size_t first = 0;
  for (size_t i = 0; i <= ids.size(); ++i) {
    std::string unused;
    if (i < ids.size() && tokenizer.Decode(ids.subspan(i, 1), &unused).ok()) {
      continue;
    }
    std::string known;
    // Cannot fail: each id was decoded.
    tokenizer.Decode(ids.subspan(first, i - first), &known).IgnoreError();
    absl::StrAppend(&text, known);
    if (i < ids.size()) absl::StrAppend(&text, GetName(ids[i], special));
    first = i + 1;
  }
  return text;
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

std::vector<TokenRun> FindTokenRuns(absl::Span<const int32_t> ids,
                                    absl::Span<const int32_t> labels,
                                    const v1::TokenIds& special,
                                    const Tokenizer& tokenizer) {
  std::vector<TokenRun> runs;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    std::optional<MediumKind> medium;
    if (special.has_image() && ids[i] == special.image()) {
      medium = MediumKind::kImage;
    } else if (special.has_video() && ids[i] == special.video()) {
      medium = MediumKind::kVideo;
    } else if (special.has_audio() && ids[i] == special.audio()) {
      medium = MediumKind::kAudio;
    }
    const bool supervised = i > 0 && labels[i - 1] != kUnsupervised;
    if (runs.empty() || runs.back().medium != medium ||
        runs.back().supervised != supervised) {
      runs.push_back({i, 0, medium, supervised, ""});
    }
    ++runs.back().tokens;
  }
  for (TokenRun& run : runs) {
    if (!run.medium.has_value()) {
      run.text =
          GetText(ids.subspan(run.first, run.tokens), special, tokenizer);
    }
  }
  return runs;
}

namespace {

constexpr char kPictures[] = "pictures";  // instead of a codec

SampleView::Stored StoredImage(absl::string_view file) {
  SampleView::Stored image;
  image.bytes = file.size();
  const absl::StatusOr<ImageHeader> header = ReadImageHeader(file);
  if (!header.ok()) {
    image.fault = std::string(header.status().message());
    return image;
  }
  image.format = ImageFormatName(header->format);
  image.width = header->width;
  image.height = header->height;
  return image;
}

SampleView::Stored StoredStream(const IndexedMedium& medium) {
  const StreamFacts& facts = *medium.stream;
  SampleView::Stored stream;
  stream.kind = medium.kind;
  stream.frames = facts.frames;
  stream.rate = facts.fps;
  if (medium.kind == MediumKind::kAudio) {
    stream.format = AudioFormatName(GetAudioFacts(facts).format);
    return stream;
  }
  stream.width = facts.width;
  stream.height = facts.height;
  stream.format =
      (facts.flags & StreamFacts::kIsList) != 0
          ? std::string(kPictures)
          : std::string(facts.codec, strnlen(facts.codec, sizeof(facts.codec)));
  return stream;
}

// The features of a clip, rows of time in the block, as columns of a picture.
SampleView::Crop DrawFeatures(const ImageRecord& record, const uint8_t* data) {
  SampleView::Crop clip;
  clip.kind = MediumKind::kAudio;
  clip.frames = record.grid_t;
  clip.height = record.grid_w;
  clip.width = record.grid_h;
  std::vector<float> values(size_t{clip.height} * clip.width);
  std::memcpy(values.data(), data, values.size() * sizeof(float));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float scale = *most > *least ? 255 / (*most - *least) : 0;
  clip.pixels.resize(3 * values.size());
  for (uint32_t y = 0; y < clip.height; ++y) {
    for (uint32_t x = 0; x < clip.width; ++x) {
      const float value =
          values[size_t{x} * clip.height + (clip.height - 1 - y)] - *least;
      std::fill_n(clip.pixels.begin() + 3 * (size_t{y} * clip.width + x), 3,
                  static_cast<uint8_t>(value * scale));
    }
  }
  return clip;
}

absl::Status CheckNumber(uint64_t position, MediumKind kind, size_t count,
                         uint32_t number) {
  if (number < count) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("position ", position, " has ", count, " ",
                   WordsOf(kind).many, "; wanted number ", number, ", from 0"));
}

// Every fault is shown, and nothing is replaced.
v1::Config WithoutPlaceholders(v1::Config config) {
  config.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  return config;
}

absl::StatusOr<uint32_t> FindSource(const v1::Config& config, v1::Split split,
                                    const std::string& name) {
  std::string names;
  for (int i = 0; i < config.sources_size(); ++i) {
    if (config.sources(i).split() != split) continue;
    if (config.sources(i).name() == name) return i;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    config.sources(i).name());
  }
  return absl::NotFoundError(absl::StrCat("no source is called \"", name,
                                          "\"; wanted one of: ", names));
}

}  // namespace

// A sample in the schedule of its step.
struct SampleViewer::Place {
  const Scheduler* scheduler = nullptr;
  v1::StepSchedule schedule;
  uint32_t micro_batch = 0;
  uint32_t index = 0;  // within the micro-batch

  const v1::MicroBatchSchedule& columns() const {
    return schedule.micro_batches(micro_batch);
  }
  uint64_t position() const { return columns().position(index); }
  uint32_t source() const { return columns().source(index); }
  uint64_t ordinal() const { return columns().ordinal(index); }
};

SampleViewer::SampleViewer(const OpenedJob* job)
    : job_(job),
      config_(WithoutPlaceholders(job->config)),
      builder_(config_,
               FileSampleBuilder::Job{job->source_pointers(), job->text.get(),
                                      job->scheduler.get()}),
      clips_(/*processes=*/1, GetAudioFamily(job->config.model())) {}

absl::StatusOr<SampleViewer::Place> SampleViewer::Find(
    v1::Split split, uint64_t position) const {
  Place place;
  BALLAST_ASSIGN_OR_RETURN(place.scheduler, job_->scheduler->OfSplit(split));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> step,
                           place.scheduler->GetStep(position));
  if (!step.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("position ", position,
                     " belongs to no step: order.skips leaves it out"));
  }
  BALLAST_ASSIGN_OR_RETURN(place.schedule, place.scheduler->Schedule(*step));
  for (auto& columns : *place.schedule.mutable_micro_batches()) {
    // Removes passthrough: all images become pixels.
    columns.clear_encoded_bytes();
  }
  for (; place.micro_batch <
         static_cast<uint32_t>(place.schedule.micro_batches_size());
       ++place.micro_batch) {
    const auto& positions = place.columns().position();
    const auto at = std::find(positions.begin(), positions.end(), position);
    if (at == positions.end()) continue;
    place.index = at - positions.begin();
    return place;
  }
  return absl::InternalError(absl::StrCat(
      "position ", position, " is missing in the schedule of step ", *step));
}

absl::Status SampleViewer::AddPayload(const Place& place, v1::Module module,
                                      SampleView* view) const {
  const v1::MicroBatchSchedule& columns = place.columns();
  const auto share = std::find_if(
      columns.modules().begin(), columns.modules().end(),
      [&](const v1::ModuleSchedule& m) { return m.module() == module; });
  if (share == columns.modules().end()) return absl::OkStatus();
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(share->reader(place.index));
  role.set_split(place.schedule.split());
  BALLAST_ASSIGN_OR_RETURN(
      const PlannedBlock planned,
      PlanForBuilding(place.schedule, place.micro_batch, role,
                      DeliveryRule(v1::DELIVERY_OFF),
                      GetGeometry(place.scheduler->job())));
  const auto& samples = planned.plan.samples;
  const auto found = std::find_if(
      samples.begin(), samples.end(),
      [&](const PlannedSample& s) { return s.index == place.index; });
  if (found == samples.end()) {
    return absl::InternalError(absl::StrCat(
        "position ", place.position(),
        " is missing in the block of its reader, rank ", role.dp_rank()));
  }
  BALLAST_ASSIGN_OR_RETURN(AlignedBuffer payload,
                           AlignedBuffer::Create(found->record.payload_bytes));
  const SampleRequest request =
      GetRequest(planned, found - samples.begin(), payload.bytes());
  BALLAST_RETURN_IF_ERROR(builder_.Build(request).status());
  const uint8_t* const data = payload.bytes().data();
  if (GetMedia(module) == Media::kImages) {
    for (const ImageRecord& image : request.images) {
      const uint8_t* const rgb = data + image.data;
      view->crops.push_back({MediumKind::kImage,
                             image.height,
                             image.width,
                             image.grid_h,
                             image.grid_w,
                             {rgb, rgb + PixelBytes(image)}});
    }
    return absl::OkStatus();
  }
  if (GetMedia(module) == Media::kRows) {
    for (const ImageRecord& record : request.images) {
      view->crops.push_back(DrawFeatures(record, data + record.data));
    }
    return absl::OkStatus();
  }
  const v1::Model& model = place.scheduler->job().model();
  const FieldCounts fields = GetGeometry(place.scheduler->job()).fields;
  const SampleRecord& record = request.record;
  const uint8_t* at = data;
  uint32_t first = 0;
  ForEachSequence(record.tokens, record.first_tokens, [&](uint32_t tokens) {
    const LanguagePayload layout =
        LayOutLanguage(tokens, model.position_axes(), fields);
    const auto array = [&](uint64_t offset) {
      return absl::MakeConstSpan(reinterpret_cast<const int32_t*>(at + offset),
                                 tokens);
    };
    for (TokenRun& run : FindTokenRuns(array(layout.ids), array(layout.labels),
                                       model.token_ids(), *job_->tokenizer)) {
      run.first += first;
      run.rejected = first != 0;
      view->runs.push_back(std::move(run));
    }
    at += layout.bytes;
    first += tokens;
  });
  return absl::OkStatus();
}

// Adds facts about the sample as it is stored.
void SampleViewer::AddStored(const Place& place, SampleView* view) const {
  const SampleSource& source = *job_->sources[place.source()];
  view->location = source.Locate(place.ordinal());
  ReadParts parts;
  parts.record = true;
  const auto read = source.Read(place.ordinal(), parts);
  // The builder reports the fault.
  const RawSample* const raw = read.ok() && read->ok() ? &**read : nullptr;
  if (raw != nullptr) {
    view->name = raw->name;
    view->record = raw->record;
    if (!raw->record.empty()) {
      view->cooked = raw->text_format == RawSample::TextFormat::kPair
                         ? GetPairRecord(raw->text)
                         : raw->text;
    }
  }
  const absl::StatusOr<IndexedSample> indexed =
      source.index().sample(place.ordinal());
  if (!indexed.ok()) return;
  size_t number = 0;
  for (const IndexedMedium& medium : indexed->media) {
    if (medium.stream != nullptr) {
      view->media.push_back(StoredStream(medium));
    } else if (raw != nullptr && number < raw->media.size()) {
      view->media.push_back(StoredImage(raw->media[number].file()));
    }
    ++number;
  }
}

// Names the frames among the crops, which are in the schedule's order.
absl::Status SampleViewer::NameFrames(const Place& place,
                                      SampleView* view) const {
  BALLAST_ASSIGN_OR_RETURN(
      const IndexedSample indexed,
      job_->sources[place.source()]->index().sample(place.ordinal()));
  const std::vector<IndexedMedium> videos =
      indexed.media.of(MediumKind::kVideo);
  if (videos.empty()) return absl::OkStatus();
  const auto model = GetVideoModel(place.scheduler->job().model());
  if (!model.has_value()) return absl::InternalError("a model without videos");
  const v1::MicroBatchSchedule& columns = place.columns();
  const uint32_t item = GetFirstEntries(columns).image[place.index];
  std::vector<SampleView::Stored*> stored;
  for (SampleView::Stored& medium : view->media) {
    if (medium.kind == MediumKind::kVideo) stored.push_back(&medium);
  }
  uint32_t number = 0;
  size_t crop = 0;
  for (uint32_t k = item; k < item + columns.images(place.index); ++k) {
    const size_t first = crop;
    crop += GetCrops(columns, k);
    if (GridT(columns, k) == 0) continue;
    const StreamFacts& video = *videos[number].stream;
    const FrameTimes of_video = videos[number].times;
    BALLAST_ASSIGN_OR_RETURN(const VideoPlan plan,
                             PlanIndexedVideo(*model, video, of_video));
    const bool is_list = video.flags & StreamFacts::kIsList;
    // The pictures of a list have the interval that the plan assumes.
    const double fps =
        is_list ? model->temporal / plan.seconds_per_patch : video.fps;
    if (number < stored.size()) stored[number]->rate = fps;
    for (size_t i = 0; i < plan.frames.size(); ++i) {
      // Crops are missing only if there is a fault.
      if (first + i >= view->crops.size()) break;
      const uint32_t frame = plan.frames[i];
      SampleView::Crop& of_frame = view->crops[first + i];
      of_frame.kind = MediumKind::kVideo;
      of_frame.frame = {
          number, frame,
          VideoLength{video.frames, fps, of_video}.seconds(frame)};
    }
    ++number;
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleView> SampleViewer::View(v1::Split split,
                                              uint64_t position) const {
  BALLAST_ASSIGN_OR_RETURN(const Place place, Find(split, position));
  const v1::MicroBatchSchedule& columns = place.columns();
  SampleView view;
  view.split = split;
  view.position = position;
  view.step = place.schedule.step();
  view.micro_batch = place.micro_batch;
  view.source = place.schedule.sources(place.source());
  view.ordinal = place.ordinal();
  view.tokens = columns.tokens(place.index);
  view.label_tokens = columns.label_tokens(place.index);
  for (const v1::ModuleSchedule& module : columns.modules()) {
    view.shares.push_back({module.module(), module.cost(place.index),
                           module.reader(place.index),
                           module.owner(place.index)});
  }
  AddStored(place, &view);
  for (const ModuleKind& kind : ModuleKinds()) {
    const absl::Status built = AddPayload(place, kind.module, &view);
    if (!built.ok() && view.fault.empty()) {
      view.fault = std::string(built.message());
    }
  }
  view.patches = SamplePatches(columns)[place.index];
  BALLAST_RETURN_IF_ERROR(NameFrames(place, &view));
  return view;
}

absl::StatusOr<std::string> SampleViewer::ImageFile(v1::Split split,
                                                    uint64_t position,
                                                    uint32_t image) const {
  BALLAST_ASSIGN_OR_RETURN(const Place place, Find(split, position));
  ReadParts parts;
  parts.text = false;
  BALLAST_ASSIGN_OR_RETURN(
      FaultOr<RawSample> read,
      job_->sources[place.source()]->Read(place.ordinal(), parts));
  if (!read.ok()) return absl::DataLossError(read.fault().reason());
  const std::vector<const RawMedium*> files = read->of(MediumKind::kImage);
  BALLAST_RETURN_IF_ERROR(
      CheckNumber(position, MediumKind::kImage, files.size(), image));
  return std::string(files[image]->file());
}

absl::StatusOr<std::string> SampleViewer::ClipFile(v1::Split split,
                                                   uint64_t position,
                                                   uint32_t clip) const {
  BALLAST_ASSIGN_OR_RETURN(const Place place, Find(split, position));
  const SampleSource& source = *job_->sources[place.source()];
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           source.index().sample(place.ordinal()));
  const std::vector<IndexedMedium> heard = indexed.media.of(MediumKind::kAudio);
  BALLAST_RETURN_IF_ERROR(
      CheckNumber(position, MediumKind::kAudio, heard.size(), clip));
  ReadParts parts;
  parts.text = false;
  parts.whole_images = false;
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> read,
                           source.Read(place.ordinal(), parts));
  if (!read.ok()) return absl::DataLossError(read.fault().reason());
  const std::vector<const RawMedium*> files = read->of(MediumKind::kAudio);
  if (files.size() != heard.size()) {
    return absl::DataLossError(
        absl::StrCat("position ", position, ": found ", files.size(), " ",
                     WordsOf(MediumKind::kAudio).many, "; wanted ",
                     heard.size(), ", as in the index"));
  }
  BALLAST_ASSIGN_OR_RETURN(
      const ClipPlan plan,
      PlanIndexedClip(*GetAudioFamily(config_.model()), *heard[clip].stream));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<float> samples,
      clips_.ReadSamples(*files[clip], *heard[clip].stream, plan));
  std::vector<int16_t> pcm;
  pcm.reserve(samples.size());
  for (const float sample : samples) {
    pcm.push_back(static_cast<int16_t>(
        std::clamp(std::lround(sample * 32768), -32768L, 32767L)));
  }
  return WriteWav(pcm);
}

absl::StatusOr<uint64_t> SampleViewer::FindSample(v1::Split split,
                                                  const std::string& source,
                                                  uint64_t ordinal,
                                                  absl::Duration most) const {
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job_->scheduler->OfSplit(split));
  BALLAST_ASSIGN_OR_RETURN(const uint32_t number,
                           FindSource(config_, split, source));
  const uint64_t size = job_->sources[number]->index().size();
  if (ordinal >= size) {
    return absl::NotFoundError(absl::StrCat("source ", source, " has ", size,
                                            " samples; wanted number ", ordinal,
                                            ", from 0"));
  }
  const absl::Time end = absl::Now() + most;
  uint64_t looked_at = 0;
  for (uint64_t step = 0; absl::Now() < end; ++step) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler->Schedule(step));
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      for (int i = 0; i < columns.position_size(); ++i) {
        if (columns.source(i) == number && columns.ordinal(i) == ordinal) {
          return columns.position(i);
        }
      }
      looked_at += columns.position_size();
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat("sample ", ordinal, " of ", source,
                   " is not among the first ", looked_at, " positions"));
}

}  // namespace ballast
