#include "server/command/preview/preview_pages.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/command/preview/crop_overlay.h"
#include "server/command/preview/gallery.h"
#include "server/command/preview/preview_html.h"
#include "server/media/encode.h"
#include "server/media/image/image.h"
#include "server/sample/sample_source.h"
#include "server/serve/http/pages.h"

namespace ballast {

absl::StatusOr<NameSearch> SearchNames(const OpenedJob& job, v1::Split split,
                                       absl::string_view text, size_t most,
                                       absl::Duration longest) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "no name to look for; wanted a part of one, such as a key or a line");
  }
  const absl::Time end = absl::Now() + longest;
  ReadParts parts;
  parts.images = false;
  NameSearch search;
  for (int i = 0; i < job.config.sources_size(); ++i) {
    if (job.config.sources(i).split() != split) continue;
    const SampleSource& source = *job.sources[i];
    const uint64_t size = source.index().size();
    for (uint64_t ordinal = 0; ordinal < size; ++ordinal) {
      if (search.found.size() == most || absl::Now() >= end) return search;
      ++search.looked_at;
      absl::StatusOr<FaultOr<RawSample>> read = source.Read(ordinal, parts);
      if (!read.ok() || !read->ok()) continue;
      if (!absl::StrContains((*read)->name, text)) continue;
      search.found.push_back(
          {job.config.sources(i).name(), ordinal, std::move((*read)->name)});
    }
  }
  search.complete = true;
  return search;
}

absl::StatusOr<RankSamples> SamplesOfRank(const OpenedJob& job,
                                          const RankPlace& place) {
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(place.split));
  BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                           scheduler->Schedule(place.step));
  if (place.micro_batch >=
      static_cast<uint32_t>(schedule.micro_batches_size())) {
    return absl::OutOfRangeError(absl::StrCat(
        "step ", place.step, " has ", schedule.micro_batches_size(),
        " micro-batches; wanted number ", place.micro_batch, ", from 0"));
  }
  const v1::MicroBatchSchedule& columns =
      schedule.micro_batches(place.micro_batch);
  for (const v1::ModuleSchedule& module : columns.modules()) {
    if (module.module() != place.module) continue;
    RankSamples samples;
    for (int i = 0; i < columns.position_size(); ++i) {
      const uint64_t position = columns.position(i);
      if (module.reader(i) == place.rank) samples.reads.push_back(position);
      if (TrainsOn(module, i, place.rank)) {
        samples.trains_on.push_back(position);
      }
    }
    std::sort(samples.reads.begin(), samples.reads.end());
    std::sort(samples.trains_on.begin(), samples.trains_on.end());
    return samples;
  }
  return absl::NotFoundError(
      absl::StrCat("the job has no module ", ModuleName(place.module)));
}

namespace {

constexpr size_t kKept = 4;
constexpr absl::Duration kLongestSearch = absl::Seconds(20);
constexpr size_t kMaxMatches = 20;
constexpr const char* kPaths[] = {
    "/api/job",   "/api/find",      "/api/image", "/api/sample", "/api/crop",
    "/api/crops", "/api/search",    "/api/rank",  "/api/audio",  "/api/gallery",
    "/api/card",  "/api/thumbnail", "/api/bad"};

using SharedView = std::shared_ptr<const SampleView>;

// The samples that were last looked at: a page asks for a sample and then for
// each of its pictures. Thread-safe.
class RecentViews {
 public:
  explicit RecentViews(const SampleViewer* viewer) : viewer_(viewer) {}

  absl::StatusOr<SharedView> Get(v1::Split split, uint64_t position) {
    {
      MutexLock lock(&mutex_);
      for (const SharedView& view : kept_) {
        if (view->split == split && view->position == position) return view;
      }
    }
    BALLAST_ASSIGN_OR_RETURN(SampleView built, viewer_->View(split, position));
    auto view = std::make_shared<const SampleView>(std::move(built));
    MutexLock lock(&mutex_);
    kept_.push_front(view);
    if (kept_.size() > kKept) kept_.pop_back();
    return view;
  }

 private:
  const SampleViewer* const viewer_;
  Mutex mutex_;
  std::deque<SharedView> kept_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::string> Parameter(const HttpRequest& request,
                                      const std::string& name) {
  const auto found = request.query.find(name);
  if (found != request.query.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat(request.path, " wants the parameter ", name));
}

absl::StatusOr<uint64_t> Number(const HttpRequest& request,
                                const std::string& name) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text, Parameter(request, name));
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", text, "\"; wanted a whole number"));
}

absl::StatusOr<v1::Split> GetSplit(const HttpRequest& request) {
  const auto found = request.query.find("split");
  if (found == request.query.end()) return v1::SPLIT_TRAIN;
  const std::optional<v1::Split> split = ParseSplit(found->second);
  if (split.has_value()) return *split;
  return absl::InvalidArgumentError(absl::StrCat(
      "split is \"", found->second, "\"; wanted train, valid or test"));
}

HttpResponse JsonAnswer(std::string json) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = std::move(json);
  return response;
}

// Bytes that are not UTF-8, such as a name's, become U+FFFD.
HttpResponse JsonAnswer(const nlohmann::ordered_json& json) {
  return JsonAnswer(
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

absl::StatusOr<HttpResponse> PngAnswer(absl::Span<const uint8_t> pixels,
                                       uint32_t width, uint32_t height) {
  HttpResponse response;
  response.content_type = "image/png";
  BALLAST_ASSIGN_OR_RETURN(response.body, EncodePng(pixels, width, height));
  return response;
}

HttpResponse Refuse(const absl::Status& why) {
  HttpResponse response =
      JsonAnswer(nlohmann::ordered_json{{"error", std::string(why.message())}});
  switch (why.code()) {
    case absl::StatusCode::kInvalidArgument:
      response.status = 400;
      break;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      response.status = 404;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      response.status = 504;
      break;
    default:
      response.status = 500;
  }
  return response;
}

// Answers the paths below /api.
class PreviewData {
 public:
  PreviewData(const OpenedJob* job, const SampleViewer* viewer)
      : job_(job), viewer_(viewer), recent_(viewer), gallery_(job) {}

  absl::StatusOr<HttpResponse> Answer(const HttpRequest& request) {
    if (request.path == "/api/job") return JsonAnswer(JobJson(*job_));
    BALLAST_ASSIGN_OR_RETURN(const v1::Split split, GetSplit(request));
    if (request.path == "/api/bad") {
      const auto cause = request.query.find("cause");
      return JsonAnswer(
          gallery_.BadJson(cause == request.query.end() ? "" : cause->second));
    }
    if (request.path == "/api/gallery") return ShowGallery(request);
    if (request.path == "/api/card") return Card(request);
    if (request.path == "/api/thumbnail") return Thumbnail(request);
    if (request.path == "/api/find") return Find(request, split);
    if (request.path == "/api/search") return Search(request, split);
    if (request.path == "/api/rank") return Rank(request, split);
    BALLAST_ASSIGN_OR_RETURN(const uint64_t position,
                             Number(request, "position"));
    if (request.path == "/api/image") return Image(request, split, position);
    if (request.path == "/api/audio") return Audio(request, split, position);
    BALLAST_ASSIGN_OR_RETURN(const SharedView view,
                             recent_.Get(split, position));
    if (request.path == "/api/sample") return JsonAnswer(ViewJson(*view));
    if (request.path == "/api/crops") return Crops(request, *view);
    if (request.path == "/api/crop") return Crop(request, *view);
    return absl::InternalError(
        absl::StrCat(request.path, " is among kPaths and is not answered"));
  }

  static bool Has(const std::string& path) {
    return std::find(std::begin(kPaths), std::end(kPaths), path) !=
           std::end(kPaths);
  }

 private:
  absl::StatusOr<HttpResponse> Find(const HttpRequest& request,
                                    v1::Split split) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string source,
                             Parameter(request, "source"));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t sample, Number(request, "sample"));
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t position,
        viewer_->FindSample(split, source, sample, kLongestSearch));
    return JsonAnswer(absl::StrCat("{\"position\":", position, "}"));
  }

  absl::StatusOr<HttpResponse> Search(const HttpRequest& request,
                                      v1::Split split) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string name,
                             Parameter(request, "name"));
    BALLAST_ASSIGN_OR_RETURN(
        const NameSearch search,
        SearchNames(*job_, split, name, kMaxMatches, kLongestSearch));
    nlohmann::ordered_json matches = nlohmann::ordered_json::array();
    for (const NamedSample& one : search.found) {
      matches.push_back({{"source", one.source},
                         {"sample", one.ordinal},
                         {"name", one.name}});
    }
    return JsonAnswer(nlohmann::ordered_json{{"matches", std::move(matches)},
                                             {"looked_at", search.looked_at},
                                             {"complete", search.complete}});
  }

  absl::StatusOr<HttpResponse> Rank(const HttpRequest& request,
                                    v1::Split split) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string name,
                             Parameter(request, "module"));
    const std::optional<v1::Module> module = ParseModule(name);
    if (!module.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("module is \"", name, "\"; wanted ",
                       absl::StrJoin(ModuleNames(), " or ")));
    }
    RankPlace place;
    place.split = split;
    place.module = *module;
    BALLAST_ASSIGN_OR_RETURN(place.rank, Number(request, "rank"));
    BALLAST_ASSIGN_OR_RETURN(place.step, Number(request, "step"));
    BALLAST_ASSIGN_OR_RETURN(place.micro_batch, Number(request, "micro_batch"));
    BALLAST_ASSIGN_OR_RETURN(const RankSamples samples,
                             SamplesOfRank(*job_, place));
    return JsonAnswer(nlohmann::ordered_json{{"reads", samples.reads},
                                             {"trains_on", samples.trains_on}});
  }

  absl::StatusOr<HttpResponse> ShowGallery(const HttpRequest& request) {
    BALLAST_ASSIGN_OR_RETURN(const std::string source,
                             Parameter(request, "source"));
    const auto text = [&](const char* name) {
      const auto found = request.query.find(name);
      return found == request.query.end() ? std::string() : found->second;
    };
    GalleryFilter filter;
    filter.only = text("only");
    filter.order = text("order");
    for (const auto& [name, number] : {std::pair{"least", &filter.least_tokens},
                                       std::pair{"most", &filter.most_tokens},
                                       std::pair{"from", &filter.from}}) {
      if (text(name).empty()) continue;
      BALLAST_ASSIGN_OR_RETURN(*number, Number(request, name));
    }
    BALLAST_ASSIGN_OR_RETURN(std::string json,
                             gallery_.PageJson(source, filter));
    return JsonAnswer(std::move(json));
  }

  absl::StatusOr<HttpResponse> Card(const HttpRequest& request) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string source,
                             Parameter(request, "source"));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t sample, Number(request, "sample"));
    BALLAST_ASSIGN_OR_RETURN(std::string json,
                             gallery_.CardJson(source, sample));
    return JsonAnswer(std::move(json));
  }

  absl::StatusOr<HttpResponse> Thumbnail(const HttpRequest& request) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string source,
                             Parameter(request, "source"));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t sample, Number(request, "sample"));
    HttpResponse response;
    response.content_type = "image/png";
    BALLAST_ASSIGN_OR_RETURN(response.body, gallery_.Thumbnail(source, sample));
    return response;
  }

  // The image of the parameter `image`, as stored.
  absl::StatusOr<std::string> File(const HttpRequest& request, v1::Split split,
                                   uint64_t position) const {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t image, Number(request, "image"));
    return viewer_->ImageFile(split, position, image);
  }

  absl::StatusOr<HttpResponse> Image(const HttpRequest& request,
                                     v1::Split split, uint64_t position) const {
    HttpResponse response;
    BALLAST_ASSIGN_OR_RETURN(response.body, File(request, split, position));
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(response.body);
    response.content_type =
        header.ok() ? absl::StrCat("image/", ImageFormatName(header->format))
                    : "application/octet-stream";
    return response;
  }

  absl::StatusOr<HttpResponse> Audio(const HttpRequest& request,
                                     v1::Split split, uint64_t position) const {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t clip, Number(request, "clip"));
    HttpResponse response;
    response.content_type = "audio/wav";
    BALLAST_ASSIGN_OR_RETURN(response.body,
                             viewer_->ClipFile(split, position, clip));
    return response;
  }

  absl::StatusOr<HttpResponse> Crops(const HttpRequest& request,
                                     const SampleView& view) const {
    BALLAST_ASSIGN_OR_RETURN(const std::string file,
                             File(request, view.split, view.position));
    const v1::Model& model = job_->config.model();
    ImageDecoder decoder(GetImageOptions(model));
    BALLAST_ASSIGN_OR_RETURN(RgbImage decoded, decoder.Decode(file));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t number, Number(request, "image"));
    std::vector<ImageSize> sides;
    for (const SampleView::Stored& stored : view.media) {
      if (stored.kind != MediumKind::kImage) continue;
      sides.push_back({stored.width, stored.height});
    }
    // As the decoder turns it.
    sides[number] = {decoded.width, decoded.height};
    BALLAST_ASSIGN_OR_RETURN(
        const SampleImages images,
        SampleImagesAt(*job_, view.split, view.position, sides));
    BALLAST_ASSIGN_OR_RETURN(
        const RgbImage drawn,
        DrawCropsOn(std::move(decoded), job_->text->images(), images, number));
    return PngAnswer(drawn.pixels, drawn.width, drawn.height);
  }

  static absl::StatusOr<HttpResponse> Crop(const HttpRequest& request,
                                           const SampleView& view) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t crop, Number(request, "crop"));
    if (crop >= view.crops.size()) {
      return absl::OutOfRangeError(
          absl::StrCat("position ", view.position, " has ", view.crops.size(),
                       " crops; wanted number ", crop, ", from 0"));
    }
    const SampleView::Crop& found = view.crops[crop];
    return PngAnswer(found.pixels, found.width, found.height);
  }

  const OpenedJob* const job_;
  const SampleViewer* const viewer_;
  RecentViews recent_;
  Gallery gallery_;
};

}  // namespace

HttpServer::Handler MakePreviewPages(const OpenedJob* job,
                                     const SampleViewer* viewer) {
  return [policy = PagePolicy(kPreviewHtml),
          data = std::make_shared<PreviewData>(job, viewer)](
             const HttpRequest& request) -> HttpResponse {
    std::optional<HttpResponse> refused =
        RefuseAtDoor(request, /*is_local=*/true);
    if (refused.has_value()) return *std::move(refused);
    if (request.path == "/") {
      HttpResponse response;
      response.content_type = "text/html; charset=utf-8";
      response.body = kPreviewHtml;
      response.headers = policy;
      return response;
    }
    if (!PreviewData::Has(request.path)) {
      return PlainAnswer(404, "nothing here; wanted /");
    }
    absl::StatusOr<HttpResponse> answer = data->Answer(request);
    return answer.ok() ? *std::move(answer) : Refuse(answer.status());
  };
}

}  // namespace ballast
