#include "server/command/preview/gallery.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/file_source.h"
#include "server/data/index/bad_records.h"
#include "server/media/encode.h"
#include "server/media/image/image.h"
#include "server/model/model_images.h"
#include "server/sample/image_header.h"
#include "server/sample/sample_source.h"
#include "server/schedule/cost_model.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostCounts = 24;
constexpr size_t kShownText = 240;
constexpr uint32_t kThumbnailSide = 192;
constexpr size_t kShownBad = 200;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json HistogramJson(const Histogram& histogram) {
  return {{"width", histogram.width}, {"counts", histogram.counts}};
}

// Whether the header of a PNG or WebP file says that pixels may be transparent.
bool MayBeTransparent(absl::string_view file) {
  if (absl::StartsWith(file, "\x89PNG") && file.size() > 25) {
    const char colour = file[25];
    const absl::string_view head = file.substr(0, file.find("IDAT"));
    return colour == 4 || colour == 6 || absl::StrContains(head, "tRNS");
  }
  if (!absl::StartsWith(file, "RIFF") || file.size() < 25) return false;
  const absl::string_view kind = file.substr(12, 4);
  if (kind == "VP8X") return (file[20] & 0x10) != 0;
  return kind == "VP8L" && (file[24] & 0x10) != 0;
}

absl::StatusOr<bool> Passes(const GallerySample& sample,
                            const GalleryFilter& filter) {
  if (sample.tokens < filter.least_tokens ||
      sample.tokens > filter.most_tokens) {
    return false;
  }
  if (filter.only.empty()) return true;
  if (filter.only == "nothing_learnt") return sample.label_tokens == 0;
  if (filter.only == "truncated") return sample.truncated;
  if (filter.only == "images") return sample.images > 0;
  if (filter.only == "text") return sample.images == 0;
  return absl::InvalidArgumentError(
      absl::StrCat("only is \"", filter.only,
                   "\"; wanted nothing_learnt, truncated, images or text"));
}

}  // namespace

Histogram MakeHistogram(const std::vector<uint64_t>& values) {
  Histogram histogram;
  if (values.empty()) return histogram;
  const uint64_t most = *std::max_element(values.begin(), values.end());
  histogram.width = most / kMostCounts + 1;
  histogram.counts.resize(most / histogram.width + 1);
  for (const uint64_t value : values) {
    ++histogram.counts[value / histogram.width];
  }
  return histogram;
}

absl::StatusOr<int> Gallery::Find(absl::string_view source) const {
  std::string names;
  for (int i = 0; i < job_->config.sources_size(); ++i) {
    const std::string& name = job_->config.sources(i).name();
    if (name == source) return i;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::NotFoundError(absl::StrCat("no source is called \"", source,
                                          "\"; wanted one of: ", names));
}

absl::StatusOr<Gallery::Samples> Gallery::Measure(int source) {
  MutexLock lock(&mutex_);
  Samples& kept = measured_[source];
  if (kept != nullptr) return kept;
  const v1::Config& config = job_->config;
  const SourceIndex& index = job_->sources[source]->index();
  const std::vector<ModuleCost> costs =
      GetModuleCosts(CostAt(config.balance(), 0));
  const bool truncates =
      config.batch().on_too_long() == v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT;
  auto samples = std::make_shared<std::vector<GallerySample>>();
  const uint64_t measured = std::min(index.size(), kMostMeasured);
  samples->reserve(measured);
  for (uint64_t ordinal = 0; ordinal < measured; ++ordinal) {
    BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                             index.sample(ordinal));
    BALLAST_ASSIGN_OR_RETURN(
        const SampleSize size,
        MeasureSample(indexed,
                      GetSampleImages(config, source, ordinal, /*epoch=*/0,
                                      indexed.media.images()),
                      job_->text->images()));
    GallerySample& sample = samples->emplace_back();
    sample.ordinal = ordinal;
    sample.tokens = size.tokens;
    sample.label_tokens = size.label_tokens;
    sample.images = size.images;
    for (const ImageSize& image : indexed.media.images()) {
      sample.pixels += uint64_t{image.width} * image.height;
    }
    sample.cost = JointCost(size, costs);
    sample.truncated = truncates && size.tokens == config.batch().max_tokens();
  }
  kept = std::move(samples);
  return kept;
}

absl::StatusOr<std::string> Gallery::PageJson(absl::string_view source,
                                              const GalleryFilter& filter) {
  BALLAST_ASSIGN_OR_RETURN(const int number, Find(source));
  BALLAST_ASSIGN_OR_RETURN(const Samples samples, Measure(number));
  std::vector<uint64_t> tokens, images, pixels;
  std::vector<const GallerySample*> passing;
  for (const GallerySample& sample : *samples) {
    tokens.push_back(sample.tokens);
    images.push_back(sample.images);
    pixels.push_back(sample.pixels);
    BALLAST_ASSIGN_OR_RETURN(const bool passes, Passes(sample, filter));
    if (passes) passing.push_back(&sample);
  }
  const auto sort = [&](auto value) {
    std::stable_sort(
        passing.begin(), passing.end(),
        [&](const auto* a, const auto* b) { return value(*a) > value(*b); });
  };
  if (filter.order == "tokens") {
    sort([](const GallerySample& sample) { return sample.tokens; });
  } else if (filter.order == "cost") {
    sort([](const GallerySample& sample) { return sample.cost; });
  } else if (!filter.order.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "order is \"", filter.order, "\"; wanted tokens, cost or nothing"));
  }
  Json shown = Json::array();
  for (size_t i = filter.from; i < passing.size() && shown.size() < kShown;
       ++i) {
    const GallerySample& sample = *passing[i];
    shown.push_back({{"ordinal", sample.ordinal},
                     {"tokens", sample.tokens},
                     {"label_tokens", sample.label_tokens},
                     {"images", sample.images},
                     {"pixels", sample.pixels},
                     {"cost", sample.cost},
                     {"truncated", sample.truncated}});
  }
  return Dump({{"samples", job_->sources[number]->index().size()},
               {"measured", samples->size()},
               {"matches", passing.size()},
               {"shown", std::move(shown)},
               {"histograms",
                {{"tokens", HistogramJson(MakeHistogram(tokens))},
                 {"images", HistogramJson(MakeHistogram(images))},
                 {"pixels", HistogramJson(MakeHistogram(pixels))}}}});
}

absl::StatusOr<std::string> Gallery::CardJson(absl::string_view source,
                                              uint64_t ordinal) const {
  BALLAST_ASSIGN_OR_RETURN(const int number, Find(source));
  const SampleSource& samples = *job_->sources[number];
  if (ordinal >= samples.index().size()) {
    return absl::NotFoundError(absl::StrCat(
        source, " has ", samples.index().size(), " samples; wanted ", ordinal));
  }
  const absl::StatusOr<FaultOr<RawSample>> read =
      samples.Read(ordinal, ReadParts());
  if (!read.ok() || !read->ok()) {
    const absl::Status why =
        read.ok() ? read->fault().ToStatus() : read.status();
    return Dump({{"name", ""}, {"fault", std::string(why.message())}});
  }
  const RawSample& raw = **read;
  bool turned = false;
  bool transparent = false;
  for (const RawMedium* const medium : raw.of(MediumKind::kImage)) {
    const absl::string_view file = medium->file();
    transparent = transparent || MayBeTransparent(file);
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(file);
    if (!header.ok()) continue;
    const absl::StatusOr<Orientation> orientation =
        ReadOrientation(file, *header);
    turned = turned || (orientation.ok() && *orientation != kUpright);
  }
  return Dump({{"name", raw.name},
               {"text", raw.text.substr(0, kShownText)},
               {"turned", turned},
               {"transparent", transparent},
               {"fault", ""}});
}

absl::StatusOr<std::string> Gallery::Thumbnail(absl::string_view source,
                                               uint64_t ordinal) const {
  BALLAST_ASSIGN_OR_RETURN(const int number, Find(source));
  const SampleSource& samples = *job_->sources[number];
  if (ordinal >= samples.index().size()) {
    return absl::NotFoundError("no such sample");
  }
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> read,
                           samples.Read(ordinal, ReadParts()));
  if (!read.ok()) return read.fault().ToStatus();
  const std::vector<const RawMedium*> images = read->of(MediumKind::kImage);
  if (images.empty()) return absl::NotFoundError("it has no image");
  ImageDecoder decoder(GetImageOptions(job_->config.model()));
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image,
                           decoder.Decode(images.front()->file()));
  const uint32_t longest = std::max(image.width, image.height);
  const double scale = std::min(1.0, double{kThumbnailSide} / longest);
  const auto side = [scale](uint32_t whole) {
    return std::max<uint32_t>(1, static_cast<uint32_t>(whole * scale));
  };
  std::vector<uint8_t> small(size_t{3} * side(image.width) *
                             side(image.height));
  BALLAST_RETURN_IF_ERROR(Resize(image, decoder.options().resampling,
                                 side(image.width), side(image.height),
                                 absl::MakeSpan(small)));
  return EncodePng(small, side(image.width), side(image.height));
}

std::string Gallery::BadJson(absl::string_view cause) const {
  Json sources = Json::array();
  for (const v1::LeftOut& left_out : job_->left_out) {
    Json causes = Json::array();
    for (const v1::LeftOut::Cause& one : left_out.causes()) {
      causes.push_back({{"cause", one.cause()},
                        {"records", one.records()},
                        {"example", one.example()}});
    }
    Json records = Json::array();
    uint64_t listed = 0;
    const absl::StatusOr<int> number = Find(left_out.source());
    const auto* const files =
        number.ok()
            ? dynamic_cast<const FileSource*>(job_->sources[*number].get())
            : nullptr;
    if (files != nullptr) {
      const auto bad = ReadBadRecords(files->index_file());
      for (size_t i = 0; bad.ok() && i < bad->size(); ++i) {
        const BadSample& record = (*bad)[i];
        const std::string found = GetCause(record);
        if (!cause.empty() && found != cause) continue;
        ++listed;
        if (records.size() == kShownBad) continue;
        records.push_back({{"cause", found},
                           {"file", record.file},
                           {"offset", record.offset},
                           {"key", record.key},
                           {"reason", record.reason}});
      }
    }
    sources.push_back({{"name", left_out.source()},
                       {"samples", left_out.samples()},
                       {"bad", left_out.bad()},
                       {"causes", std::move(causes)},
                       {"listed", listed},
                       {"records", std::move(records)}});
  }
  return Dump({{"sources", std::move(sources)}});
}

}  // namespace ballast
