#include "server/data/index/probe_media.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/sample/medium.h"

namespace ballast {
namespace {

// Why an image or a video (`medium`) cannot be opened, with its kind. Looks for
// an archive in place of one of its folders: "coco/train2017.zip" for
// "coco/train2017/1.jpg".
absl::Status Unopened(absl::string_view medium, const absl::Status& status,
                      absl::string_view path, const MediaRoot& media) {
  if (absl::IsPermissionDenied(status)) {
    return absl::PermissionDeniedError(
        absl::StrCat(status.message(),
                     "; let the user who runs ballast-server read it: a file "
                     "without that right is no bad record"));
  }
  if (!absl::IsNotFound(status)) return status;
  for (size_t end = path.rfind('/'); end != path.npos && end > 0;
       end = path.rfind('/', end - 1)) {
    const std::string archive = absl::StrCat(path.substr(0, end), ".zip");
    if (!media.Open(archive).ok()) continue;
    return OfKind(absl::NotFoundError(absl::StrCat(
                      status.message(), "; ", archive, " is there, unpack it")),
                  MediaKind(medium, kInZip));
  }
  return OfKind(
      absl::NotFoundError(absl::StrCat(status.message(), "; the path of a",
                                       medium == "image" ? "n " : " ", medium,
                                       " starts at the source's media_root")),
      MediaKind(medium, kMissing));
}

absl::Status CheckClip(const NamedMedium& named) {
  if (!named.start.has_value() || !named.end.has_value() ||
      *named.end > *named.start) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a clip from ", *named.start, " s to ", *named.end,
                   " s; wanted an end after the start"));
}

// The part of a video in a tar file fits the video, of `pictures` pictures.
absl::Status CheckPart(const NamedMedium& part, size_t pictures) {
  const auto fault = [](const auto&... pieces) {
    return absl::InvalidArgumentError(absl::StrCat(pieces...));
  };
  if (pictures == 0) {
    if (!part.frames.empty()) {
      return fault(
          "its part has the pictures of a list, and the tar a video "
          "file; wanted members KEY.V.P.jpg");
    }
    if (part.has_sample_fps) {
      return fault("`sample_fps` beside a video file; wanted `fps`");
    }
    return absl::OkStatus();
  }
  if (!part.frames.empty() && part.frames.size() != pictures) {
    return fault("its part names ", part.frames.size(),
                 " pictures, and the tar has ", pictures);
  }
  if (part.has_raw_fps) {
    return fault(
        "`raw_fps` of a list of pictures is not supported; wanted "
        "`sample_fps`");
  }
  if (part.start.has_value() || part.end.has_value() ||
      (part.fps > 0 && !part.has_sample_fps)) {
    return fault(
        "a clip or `fps` beside a video's pictures is not read by "
        "qwen-vl-utils; wanted `sample_fps`, and the pictures of the "
        "clip");
  }
  return absl::OkStatus();
}

absl::Status CheckTakesVideos(const IndexOptions& options) {
  if (options.read[MediumKind::kVideo]) return absl::OkStatus();
  const auto takes_videos = [](const v1::ModelProfile& profile) {
    return profile.has_videos();
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "video is not supported for this model.profile; wanted one of ",
      absl::StrJoin(ProfileNames(takes_videos), ", ")));
}

absl::Status CheckStream(const IndexOptions& options,
                         const RecordMedium& stream) {
  if (stream.kind == MediumKind::kVideo) {
    BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
  } else if (!options.read[stream.kind]) {
    return absl::InvalidArgumentError(absl::StrCat(
        MediumName(stream.kind),
        " is not supported for this model.profile; wanted ",
        stream.kind == MediumKind::kAudio
            ? absl::StrCat("one of ", absl::StrJoin(AudioFamilyNames(), ", "))
            : "a model of your own with a section medium"));
  }
  return CheckClip(stream.named);
}

// XXH3-64 of a range of a file.
absl::StatusOr<uint64_t> HashRange(const File& file, ByteRange range) {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  std::string chunk(std::min(range.size, kChunk), '\0');
  ContentHash hash;
  for (uint64_t done = 0; done < range.size;) {
    const uint64_t size = std::min<uint64_t>(chunk.size(), range.size - done);
    BALLAST_RETURN_IF_ERROR(
        file.ReadAt(range.offset + done, size, chunk.data()));
    hash.Add({chunk.data(), size});
    done += size;
  }
  return hash.value();
}

}  // namespace

absl::StatusOr<File> MediaProbe::Open(MediumKind kind,
                                      const MediumPath& named) {
  if (root_ == nullptr) {
    return absl::InternalError("a record of this format names no media");
  }
  absl::StatusOr<File> file = root_->Open(named.path);
  if (!file.ok()) {
    return Unopened(MediumName(kind), file.status(), named.path, *root_);
  }
  if (file->object() == nullptr) {
    media_time_ns_ = std::max(media_time_ns_, file->stamp().mtime_ns);
  }
  return file;
}

absl::StatusOr<MediaProbe::Probed> MediaProbe::ProbeNamed(
    MediumKind kind, const MediumPath& named) {
  BALLAST_ASSIGN_OR_RETURN(const File file, Open(kind, named));
  const uint64_t size = file.stamp().size;
  if (size > left_) {
    return absl::InvalidArgumentError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  left_ -= size;
  Probed probed;
  probed.name = file.path();
  const auto image =
      ProbeImage(file, 0, size, options_.read_image_size, options_.judge_image,
                 options_.decode_image, &hash_);
  if (!image.ok()) return Annotate(image.status(), file.path());
  probed.image = *image;
  if (options_.hash) {
    BALLAST_ASSIGN_OR_RETURN(probed.content_hash, HashRange(file, {0, size}));
  }
  return probed;
}

absl::StatusOr<MediaProbe::Probed> MediaProbe::Probe(MediumKind kind,
                                                     const Medium& medium) {
  if (const auto* named = std::get_if<MediumPath>(&medium.place)) {
    return ProbeNamed(kind, *named);
  }
  Probed probed;
  probed.name = Printable(medium.name);
  absl::StatusOr<ProbedImage> image;
  if (const auto* bytes = std::get_if<absl::string_view>(&medium.place)) {
    image = ProbeImage(*bytes, options_.read_image_size, options_.judge_image,
                       options_.decode_image, &hash_);
    if (options_.hash) probed.content_hash = Checksum(*bytes);
  } else if (const auto* range = std::get_if<ByteRange>(&medium.place)) {
    image =
        ProbeImage(file_, range->offset, range->size, options_.read_image_size,
                   options_.judge_image, options_.decode_image, &hash_);
    if (options_.hash && image.ok()) {
      BALLAST_ASSIGN_OR_RETURN(probed.content_hash, HashRange(file_, *range));
    }
  } else {
    image = absl::InternalError("an image in pieces is not indexed");
  }
  if (!image.ok()) return Annotate(image.status(), probed.name);
  probed.image = *image;
  return probed;
}

absl::Status MediaProbe::AddImage(const Medium& image) {
  if (!options_.no_images.empty()) {
    return absl::InvalidArgumentError(options_.no_images);
  }
  BALLAST_ASSIGN_OR_RETURN(const Probed probed,
                           Probe(MediumKind::kImage, image));
  if (check_size_) {
    BALLAST_RETURN_IF_ERROR(check_size_(image, probed.image.size));
  }
  facts_.sizes.push_back(probed.image.size);
  facts_.marks.push_back(probed.image.mark);
  if (options_.hash) facts_.content_hashes.push_back(probed.content_hash);
  return absl::OkStatus();
}

absl::Status MediaProbe::AddList(const RecordMedium& video) {
  BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options_));
  StreamFacts list = {};
  list.sample_fps = video.named.fps;
  list.flags = StreamFacts::kIsList;
  std::vector<uint64_t> hashes;
  for (const Medium& picture : video.parts) {
    BALLAST_ASSIGN_OR_RETURN(const Probed probed,
                             Probe(MediumKind::kVideo, picture));
    const ImageSize& size = probed.image.size;
    if (check_size_) BALLAST_RETURN_IF_ERROR(check_size_(picture, size));
    ++list.frames;
    ++list.key_frames;
    if (list.width == 0) {
      list.width = size.width;
      list.height = size.height;
    }
    if (size.width != list.width || size.height != list.height) {
      return absl::InvalidArgumentError(absl::StrCat(
          probed.name, ": ", size.width, "x", size.height,
          " pixels, and the video's first picture has ", list.width, "x",
          list.height, "; wanted one size for all pictures of a video"));
    }
    hashes.push_back(probed.content_hash);
  }
  facts_.streams.push_back(list);
  if (options_.hash) facts_.stream_hashes.push_back(PicturesHash(hashes));
  return absl::OkStatus();
}

absl::StatusOr<StreamFacts> MediaProbe::GetFacts(const RawMedium& raw,
                                                 const RecordMedium& stream) {
  const NamedMedium& named = stream.named;
  const StreamProbe& read = stream.is_in_video ? options_.read_audio_in_video
                                               : options_.read[stream.kind];
  absl::StatusOr<StreamProbed> found = read(raw);
  if (!found.ok() && stream.is_in_video) {
    return Annotate(found.status(),
                    "its audio (model.video.use_audio_in_video)");
  }
  BALLAST_RETURN_IF_ERROR(found.status());
  StreamFacts facts = found->facts;
  facts_.times.insert(facts_.times.end(), found->times.begin(),
                      found->times.end());
  if (stream.is_in_video) facts.flags |= StreamFacts::kInVideo;
  facts.sample_fps = named.fps;
  if (named.start.has_value()) {
    facts.start = *named.start;
    facts.flags |= StreamFacts::kHasStart;
  }
  if (named.end.has_value()) {
    facts.end = *named.end;
    facts.flags |= StreamFacts::kHasEnd;
  }
  if (options_.hash) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t hash, HashMedium(raw));
    facts_.stream_hashes.push_back(hash);
  }
  return facts;
}

absl::Status MediaProbe::AddStream(const RecordMedium& stream) {
  const Medium& part = stream.parts[0];
  std::string name = Printable(part.name);
  const auto add_opened =
      [&](const absl::StatusOr<RawMedium>& raw) -> absl::Status {
    BALLAST_RETURN_IF_ERROR(raw.status());
    BALLAST_ASSIGN_OR_RETURN(const StreamFacts facts, GetFacts(*raw, stream));
    facts_.streams.push_back(facts);
    return absl::OkStatus();
  };
  const auto add_range = [&](const File& file,
                             ByteRange range) -> absl::Status {
    BALLAST_RETURN_IF_ERROR(CheckStream(options_, stream));
    FileView view(&file);
    // Loads one version, for the hash and for the facts.
    if (view.object() != nullptr && range.size <= kMaxSampleBytes) {
      BALLAST_RETURN_IF_ERROR(view.Load({range}));
    }
    BALLAST_ASSIGN_OR_RETURN(
        const std::string head,
        view.ReadAt(range.offset,
                    std::min<uint64_t>(range.size, ImagesHash::kHeadBytes)));
    hash_.Add(range.size, head);
    return add_opened(OpenMedium(stream.kind, view, range.offset, range.size));
  };
  const auto add = [&]() -> absl::Status {
    if (const auto* range = std::get_if<ByteRange>(&part.place)) {
      return add_range(file_, *range);
    }
    if (const auto* bytes = std::get_if<absl::string_view>(&part.place)) {
      BALLAST_RETURN_IF_ERROR(CheckStream(options_, stream));
      hash_.Add(bytes->size(), bytes->substr(0, ImagesHash::kHeadBytes));
      return add_opened(MediumInMemory(stream.kind, *bytes, name));
    }
    const auto* named = std::get_if<MediumPath>(&part.place);
    if (named == nullptr) {
      return absl::InternalError("a video in pieces is not indexed");
    }
    BALLAST_ASSIGN_OR_RETURN(const File file, Open(stream.kind, *named));
    name = file.path();
    return add_range(file, {0, file.stamp().size});
  };
  const absl::Status added = add();
  return added.ok() || name.empty() ? added : Annotate(added, name);
}

absl::Status MediaProbe::Add(const RecordMedium& medium) {
  if (medium.kind == MediumKind::kImage) return AddImage(medium.parts[0]);
  return medium.is_list ? AddList(medium) : AddStream(medium);
}

absl::Status CheckMarks(const Record& record) {
  if (record.count(MediumKind::kImage) < record.media.size()) {
    return absl::OkStatus();
  }
  switch (record.text_format) {
    case RawSample::TextFormat::kConversation:
      return CheckConversation(record.text);
    case RawSample::TextFormat::kPlain:
      return CheckNoVideoMark(record.text);
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckPlaces(const Record& record) {
  PerMedium<std::vector<std::optional<absl::string_view>>> names;
  bool any_twice = false;
  for (const RecordMedium& medium : record.media) {
    auto& of_kind = names[medium.kind];
    of_kind.push_back(medium.parts[0].name);
    any_twice |= of_kind.size() > 1;
  }
  if (record.text_format != RawSample::TextFormat::kConversation ||
      !any_twice) {
    return absl::OkStatus();
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaPlace> places,
                           ReadMediaPlaces(record.text));
  for (const MediumKind kind : MediumKinds()) {
    const bool or_images =
        kind == MediumKind::kVideo && names[MediumKind::kImage].empty();
    BALLAST_RETURN_IF_ERROR(CheckNames(
        MediumName(kind), GetPaths(MediumName(kind), places, or_images),
        names[kind], /*of=*/""));
  }
  return absl::OkStatus();
}

absl::Status NameClips(MediumKind kind, Record* record) {
  const size_t count = record->count(kind);
  if (record->text_format != RawSample::TextFormat::kConversation ||
      count == 0) {
    return absl::OkStatus();
  }
  BALLAST_ASSIGN_OR_RETURN(std::vector<NamedMedium> parts,
                           kind == MediumKind::kAudio
                               ? ReadAudioParts(record->text)
                               : ReadVideoParts(record->text));
  if (parts.empty()) return absl::OkStatus();
  if (parts.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " parts of type ", MediumName(kind),
                     " in a sample with ", count, "; wanted as many"));
  }
  size_t i = 0;
  for (RecordMedium& medium : record->media) {
    if (medium.kind != kind) continue;
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckPart(parts[i], medium.is_list ? medium.parts.size() : 0),
                 absl::StrCat(MediumName(kind), " ", i)));
    medium.named = std::move(parts[i++]);
  }
  return absl::OkStatus();
}

absl::Status NameClips(Record* record) {
  BALLAST_RETURN_IF_ERROR(NameClips(MediumKind::kAudio, record));
  return NameClips(MediumKind::kVideo, record);
}

absl::Status AddAudioOfVideos(const MediaOrder& order,
                              std::vector<RecordMedium>* media) {
  const std::vector<uint32_t> videos_before =
      CountsBefore(order, MediumKind::kAudio, MediumKind::kVideo);
  const auto clips = std::find_if(
      media->begin(), media->end(),
      [](const auto& one) { return one.kind == MediumKind::kAudio; });
  const std::vector<RecordMedium> others(media->begin(), clips);
  std::vector<RecordMedium> heard;
  auto clip = clips;  // the next that is of no video
  const auto add_clips = [&](size_t before) {
    for (; clip != media->end(); ++clip) {
      const size_t number = clip - clips;
      if (number < videos_before.size() && videos_before[number] > before) {
        return;
      }
      if (number >= videos_before.size() && before != SIZE_MAX) return;
      heard.push_back(std::move(*clip));
    }
  };
  size_t videos = 0;
  for (const RecordMedium& video : others) {
    if (video.kind != MediumKind::kVideo) continue;
    if (video.is_list) {
      return absl::InvalidArgumentError(absl::StrCat(
          "video ", videos,
          ": a list of pictures has no audio (model.video.use_audio_in_video); "
          "wanted a video file"));
    }
    add_clips(videos++);
    heard.push_back(video);
    heard.back().kind = MediumKind::kAudio;
    heard.back().is_in_video = true;
  }
  add_clips(SIZE_MAX);
  *media = others;
  std::move(heard.begin(), heard.end(), std::back_inserter(*media));
  return absl::OkStatus();
}

}  // namespace ballast
