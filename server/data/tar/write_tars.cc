#include "server/data/tar/write_tars.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/mutex.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/tar/tar_reader.h"
#include "server/files/file.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTars = 1'000'000;
// Enough of a video to recognise its container.
constexpr uint64_t kVideoHead = 64;

absl::string_view TextExtension(RawSample::TextFormat format) {
  switch (format) {
    case RawSample::TextFormat::kPlain:
      return "txt";
    case RawSample::TextFormat::kPackedBytes:
      return "tokens.bin";
    case RawSample::TextFormat::kPackedJson:
      return "tokens.json";
    default:
      return "json";
  }
}

// Adds the pictures of a list.
absl::Status AddPictures(const RawMedium& list, const std::string& name,
                         const std::string& key, TarWriter* tar) {
  for (size_t k = 0; k < list.pictures.size(); ++k) {
    const absl::string_view extension = ImageExtension(list.pictures[k]);
    if (extension.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has picture ", k,
          ", which is neither JPEG, PNG nor WebP, and has no name in a "
          "WebDataset"));
    }
    BALLAST_RETURN_IF_ERROR(
        tar->Add(absl::StrCat(key, ".", k, ".", extension), list.pictures[k]));
  }
  return absl::OkStatus();
}

// Adds the file of a video or a clip.
absl::Status AddStream(const RawMedium& stream, const std::string& name,
                       const std::string& key, TarWriter* tar) {
  std::string head(std::min<uint64_t>(stream.size, kVideoHead), '\0');
  const ssize_t read = pread(stream.fd->get(), head.data(), head.size(),
                             static_cast<off_t>(stream.offset));
  if (read < 0) return FileError(errno, "read", name);
  head.resize(read);
  const absl::string_view extension = stream.kind == MediumKind::kVideo
                                          ? VideoExtension(head)
                                          : AudioExtension(head);
  if (extension.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        " is neither MP4, MOV, WebM, Matroska nor AVI, and has no name in a "
        "WebDataset"));
  }
  BALLAST_RETURN_IF_ERROR(tar->AddFrom(absl::StrCat(key, ".", extension),
                                       stream.fd->get(), stream.offset,
                                       stream.size));
  return Annotate(CheckUnchanged(stream), name);
}

// Adds the media of a kind, of which all together have at most `most` bytes
// where they are not images: headers and padding take the rest.
absl::Status AddMedia(const RawSample& sample, MediumKind kind, uint64_t most,
                      const std::string& key, TarWriter* tar) {
  const std::vector<const RawMedium*> media = sample.of(kind);
  uint64_t bytes = 0;
  for (size_t i = 0; i < media.size(); ++i) {
    const RawMedium& medium = *media[i];
    const std::string name =
        absl::StrCat(sample.name, ": ", MediumName(kind), " ", i);
    bytes += medium.size;
    if (bytes > most) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " ends at ", bytes, " bytes of its sample; at most ", most,
          " have room: train on the source as it is"));
    }
    const std::string numbered = absl::StrCat(key, ".", i);
    const std::string& named = media.size() > 1 ? numbered : key;
    if (kind != MediumKind::kImage) {
      BALLAST_RETURN_IF_ERROR(medium.fd == nullptr
                                  ? AddPictures(medium, name, numbered, tar)
                                  : AddStream(medium, name, named, tar));
      continue;
    }
    const absl::string_view extension = ImageExtension(medium.file());
    if (extension.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name,
          " is neither JPEG, PNG nor WebP, and has no name in a WebDataset"));
    }
    BALLAST_RETURN_IF_ERROR(
        tar->Add(absl::StrCat(named, ".", extension), medium.file()));
  }
  return absl::OkStatus();
}

// Adds one sample to a tar.
absl::Status AddSample(const RawSample& sample, uint64_t ordinal,
                       TarWriter* tar) {
  if (!sample.fields.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        sample.name,
        ": a document with fields (sources[].fields), which have no place in a "
        "tar beside a text: train on the source as it is, or repack it without "
        "them"));
  }
  const std::string key = absl::StrFormat("%09d", ordinal);
  BALLAST_RETURN_IF_ERROR(
      AddMedia(sample, MediumKind::kImage, UINT64_MAX, key, tar));
  BALLAST_RETURN_IF_ERROR(
      AddMedia(sample, MediumKind::kVideo, kMaxSampleSpan / 2, key, tar));
  BALLAST_RETURN_IF_ERROR(
      AddMedia(sample, MediumKind::kAudio, kMaxSampleSpan / 4, key, tar));
  return tar->Add(absl::StrCat(key, ".", TextExtension(sample.text_format)),
                  sample.text_format == RawSample::TextFormat::kPair
                      ? GetPairRecord(sample.text)
                      : sample.text);
}

class Repacking {
 public:
  Repacking(const SampleSource* source, const RepackOptions* options)
      : source_(*source),
        options_(*options),
        all_(source->index().size()),
        tars_((all_ + options->samples_per_tar - 1) / options->samples_per_tar),
        range_(GetUnits(options->shard, tars_)) {}

  absl::StatusOr<RepackReport> Run() {
    if (tars_ > kMaxTars) {
      return absl::InvalidArgumentError(absl::StrCat(
          all_, " samples make ", tars_, " tars of ", options_.samples_per_tar,
          "; at most ", kMaxTars, " are possible"));
    }
    BALLAST_RETURN_IF_ERROR(CheckManifest());
    const uint64_t tars = range_.end - range_.begin;
    shard_samples_ = GetFirst(range_.end) - GetFirst(range_.begin);
    BALLAST_RETURN_IF_ERROR(RunAll(tars, options_.threads, [this](size_t i) {
      return WriteAndCount(range_.begin + i);
    }));
    MutexLock lock(&mutex_);
    report_.tars = tars;
    return report_;
  }

 private:
  uint64_t GetFirst(uint64_t tar) const {
    return std::min(tar * options_.samples_per_tar, all_);
  }
  std::string GetPath(uint64_t tar) const {
    return absl::StrFormat("%s/%s-%06d.tar", options_.directory, options_.name,
                           tar);
  }

  // What the tars hold, in a file next to them.
  absl::Status CheckManifest() const {
    const std::string path =
        absl::StrCat(options_.directory, "/", options_.name, ".repack.json");
    const std::string text = absl::StrFormat(
        "{\"samples\": %d, \"samples_per_tar\": %d, \"data\": \"%s\"}\n", all_,
        options_.samples_per_tar, source_.index().digest());
    constexpr size_t kMaxCount = 4096;
    const absl::StatusOr<std::string> found = ReadSmallFile(path, kMaxCount);
    if (absl::IsNotFound(found.status())) {
      return WriteFileAtomically(path, {text});
    }
    BALLAST_RETURN_IF_ERROR(found.status());
    if (*found == text) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": found ", *found, "wanted ", text,
        "The directory holds other samples, or other tars of them: remove its "
        "files, or choose another"));
  }

  absl::Status WriteAndCount(uint64_t tar) {
    RepackReport written;
    BALLAST_RETURN_IF_ERROR(Write(tar, &written));
    MutexLock lock(&mutex_);
    report_.resumed += written.resumed;
    report_.samples += written.samples;
    for (const MediumKind kind : MediumKinds()) {
      report_.media[kind] += written.media[kind];
    }
    report_.bytes += written.bytes;
    done_ += GetFirst(tar + 1) - GetFirst(tar);
    if (options_.progress) options_.progress(done_, shard_samples_);
    return absl::OkStatus();
  }

  absl::Status Write(uint64_t tar, RepackReport* written) const {
    const std::string path = GetPath(tar);
    std::error_code error;
    if (fs::exists(path, error)) {
      written->resumed = 1;
      return absl::OkStatus();
    }
    if (error) return FileError(error.value(), "look for", path);
    const std::string part = absl::StrCat(path, ".part");
    BALLAST_ASSIGN_OR_RETURN(const auto writer, TarWriter::Create(part));
    for (uint64_t i = GetFirst(tar); i < GetFirst(tar + 1); ++i) {
      BALLAST_ASSIGN_OR_RETURN(FaultOr<RawSample> sample,
                               source_.Read(i, ReadParts()));
      if (!sample.ok()) {
        return absl::DataLossError(
            absl::StrCat(sample.fault().reason(), "; index the source again"));
      }
      BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                               source_.index().sample(i));
      // The audio of videos is in their files.
      std::vector<RawMedium> own;
      auto medium = sample->media.begin();
      for (const IndexedMedium& of_index : indexed.media) {
        const bool is_heard =
            of_index.stream != nullptr && of_index.stream->is_in_video();
        if (!is_heard) own.push_back(std::move(*medium));
        ++medium;
      }
      sample->media = std::move(own);
      BALLAST_RETURN_IF_ERROR(AddSample(*sample, i, writer.get()));
      ++written->samples;
      written->bytes += sample->text.size();
      for (const RawMedium& each : sample->media) {
        ++written->media[each.kind];
        written->bytes += each.file().size() + each.size;
      }
    }
    BALLAST_RETURN_IF_ERROR(writer->Finish());
    BALLAST_RETURN_IF_ERROR(writer->Sync());
    fs::rename(part, path, error);
    return error ? FileError(error.value(), "rename a file to", path)
                 : absl::OkStatus();
  }

  const SampleSource& source_;
  const RepackOptions& options_;
  const uint64_t all_;
  const uint64_t tars_;
  const UnitRange range_;
  uint64_t shard_samples_ = 0;
  Mutex mutex_;
  RepackReport report_ ABSL_GUARDED_BY(mutex_);
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::string_view ImageExtension(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xFF\xD8")) return "jpg";
  if (absl::StartsWith(bytes, "\x89PNG")) return "png";
  if (absl::StartsWith(bytes, "RIFF") && bytes.substr(0, 12).size() == 12 &&
      bytes.substr(8, 4) == "WEBP") {
    return "webp";
  }
  return "";
}

absl::string_view VideoExtension(absl::string_view head) {
  if (absl::StartsWith(head, "RIFF") && head.substr(0, 12).size() == 12 &&
      head.substr(8, 4) == "AVI ") {
    return "avi";
  }
  if (absl::StartsWith(head, "\x1A\x45\xDF\xA3")) {
    return absl::StrContains(head, "webm") ? "webm" : "mkv";
  }
  // Old QuickTime files begin with another box.
  const absl::string_view box = head.size() < 8 ? "" : head.substr(4, 4);
  if (box == "ftyp") return head.substr(8, 4) == "qt  " ? "mov" : "mp4";
  for (const char* other : {"moov", "mdat", "wide", "free", "skip", "pnot"}) {
    if (box == other) return "mov";
  }
  return "";
}

absl::string_view AudioExtension(absl::string_view head) {
  if (absl::StartsWith(head, "RIFF") || absl::StartsWith(head, "RF64")) {
    return "wav";
  }
  if (absl::StartsWith(head, "fLaC")) return "flac";
  if (absl::StartsWith(head, "OggS")) return "ogg";
  return head.size() >= 8 && head.substr(4, 4) == "ftyp" ? "m4a" : "mp3";
}

absl::StatusOr<RepackReport> Repack(const SampleSource& source,
                                    const RepackOptions& options) {
  if (options.samples_per_tar == 0) {
    return absl::InvalidArgumentError("a tar has at least one sample");
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) {
    return FileError(error.value(), "make the directory", options.directory);
  }
  // Two processes must not write the same tar.
  BALLAST_ASSIGN_OR_RETURN(
      const File lock,
      File::OpenToAppend(absl::StrCat(options.directory, "/", options.name,
                                      ".shard-", options.shard.number, "-of-",
                                      options.shard.count, ".lock")));
  absl::StatusOr<RepackReport> report = Repacking(&source, &options).Run();
  if (report.ok()) fs::remove(lock.path(), error);
  return report;
}

}  // namespace ballast
