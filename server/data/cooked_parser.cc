#include "server/data/cooked_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/probe_media.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Records that a scan gives the recipe at once.
constexpr size_t kMaxRecords = 64;
constexpr size_t kMaxBytes = size_t{1} << 20;

using Answer = absl::StatusOr<std::optional<CookedSample>>;

absl::Status ByRecipe(absl::string_view reason) {
  return OfKind(DataFaultError(reason), kByRecipe);
}

// `fault` of the recipe, if it is one, with its kind.
absl::Status WithKind(const absl::Status& fault) {
  return IsDataFault(fault) ? OfKind(fault, kByRecipe) : fault;
}

uint64_t GetSize(const Medium& medium) {
  if (const auto* range = std::get_if<ByteRange>(&medium.place)) {
    return range->size;
  }
  if (const auto* bytes = std::get_if<absl::string_view>(&medium.place)) {
    return bytes->size();
  }
  return 0;
}

// Finds the media that a recipe names. `left`: the most bytes of media in the
// record itself.
class MediaFinder {
 public:
  MediaFinder(const std::vector<Medium>* media, const MediaRoot* root,
              uint64_t left)
      : media_(*media), root_(root), left_(left) {}

  absl::StatusOr<Medium> Find(absl::string_view kind,
                              CookedSample::Medium named) {
    if (auto* path = std::get_if<std::string>(&named)) {
      if (root_ == nullptr) {
        return DataFaultError(absl::StrCat(
            kind, " \"", *path,
            "\" is a path, and a source of this format has its media in its "
            "own files; wanted record.media(name)"));
      }
      BALLAST_RETURN_IF_ERROR(CheckMediaPath(kind, *path));
      return Medium{"", MediumPath{std::move(*path)}};
    }
    const uint32_t number = std::get<uint32_t>(named);
    if (number >= media_.size()) {
      return DataFaultError(absl::StrCat(kind, " of another record: part ",
                                         number, " of ", media_.size()));
    }
    const uint64_t size = GetSize(media_[number]);
    if (size > left_) {
      return DataFaultError(
          absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
    }
    left_ -= size;
    return media_[number];
  }

 private:
  const std::vector<Medium>& media_;
  const MediaRoot* const root_;
  uint64_t left_;
};

// Cooks the records of a scan, many at a time.
class CookedScan final : public RawRecordSink {
 public:
  CookedScan(const Recipe* recipe, const std::string* source, const File* file,
             const MediaRoot* root, FileScanner* scanner)
      : recipe_(*recipe),
        source_(*source),
        file_(*file),
        root_(root),
        scanner_(*scanner) {}

  const std::string& name() const override { return scanner_.name(); }

  absl::Status Add(RawRecord record) override {
    record.given.source = source_;
    record.given.name = record.record.name;
    bytes_ += record.given.bytes();
    records_.push_back(std::move(record));
    if (records_.size() < kMaxRecords && bytes_ < kMaxBytes) {
      return absl::OkStatus();
    }
    return Flush();
  }

  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason) override {
    BALLAST_RETURN_IF_ERROR(Flush());
    return scanner_.AddBad(offset, key, reason);
  }

  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason) override {
    BALLAST_RETURN_IF_ERROR(Flush());
    return scanner_.AddDamage(offset, lost_key, reason);
  }

  void AddFiltered() override { scanner_.AddFiltered(); }
  void Advance(uint64_t offset) override { scanner_.Advance(offset); }

  absl::Status Flush() {
    std::vector<const RecipeRecord*> given;
    for (const RawRecord& record : records_) given.push_back(&record.given);
    std::vector<Answer> answers = recipe_.Cook(given);
    std::vector<RawRecord> records = std::exchange(records_, {});
    bytes_ = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      const uint64_t offset = records[i].record.entry.offset;
      const std::string key = records[i].record.key;
      if (answers[i].ok() && !answers[i]->has_value()) {
        scanner_.AddFiltered();
        continue;
      }
      // A fault of the data is listed with its place; what ends a scan is not.
      const std::string name = records[i].record.name;
      const absl::Status added =
          answers[i].ok()
              ? AddCooked(std::move(records[i]), **std::move(answers[i]))
          : IsDataFault(answers[i].status())
              ? OfKind(answers[i].status(), kByRecipe)
              : Annotate(answers[i].status(), name);
      BALLAST_RETURN_IF_ERROR(scanner_.Listed(offset, key, added));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddCooked(RawRecord raw, CookedSample cooked) {
    BALLAST_ASSIGN_OR_RETURN(
        Record record,
        MakeCookedRecord(std::move(raw), std::move(cooked), root_));
    BALLAST_RETURN_IF_ERROR(CheckMarks(record));
    BALLAST_RETURN_IF_ERROR(NameClips(&record));
    return scanner_.AddRecord(std::move(record), file_, root_);
  }

  const Recipe& recipe_;
  const std::string& source_;
  const File& file_;
  const MediaRoot* const root_;
  FileScanner& scanner_;
  std::vector<RawRecord> records_;
  size_t bytes_ = 0;
};

// Samples that were cooked for one module, or to fetch their media ahead, until
// they are read. An answer's key is IndexSampleRecord::text_check, the hashes
// of the record and of the answer. Thread-safe.
class RecentAnswers {
 public:
  // Returns an answer for one of its reads; nullopt if it is not held.
  std::optional<CookedSample> Take(uint64_t key) {
    MutexLock lock(&mutex_);
    const auto found = FindHeld(key);
    if (found == answers_.end()) return std::nullopt;
    if (--found->reads > 0) return found->answer;
    CookedSample answer = std::move(found->answer);
    bytes_ -= found->bytes;
    answers_.erase(found);
    return answer;
  }

  // The same without a read.
  std::optional<CookedSample> Look(uint64_t key) {
    MutexLock lock(&mutex_);
    const auto found = FindHeld(key);
    if (found == answers_.end()) return std::nullopt;
    return found->answer;
  }

  // Holds an answer for so many reads. Drops the oldest ones beyond kMost and
  // kMostBytes.
  void Put(uint64_t key, int reads, const CookedSample& answer) {
    const size_t bytes = answer.text.size();
    if (bytes > kMostBytes) return;
    MutexLock lock(&mutex_);
    answers_.push_back({key, reads, bytes, answer});
    bytes_ += bytes;
    while (answers_.size() > kMost || bytes_ > kMostBytes) {
      bytes_ -= answers_.front().bytes;
      answers_.pop_front();
    }
  }

 private:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostBytes = size_t{16} << 20;

  struct Held {
    uint64_t key;
    int reads;
    size_t bytes;
    CookedSample answer;
  };

  std::deque<Held>::iterator FindHeld(uint64_t key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find_if(answers_.begin(), answers_.end(),
                        [key](const Held& held) { return held.key == key; });
  }

  Mutex mutex_;
  std::deque<Held> answers_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

class CookedParser final : public RawBasedParser {
 public:
  CookedParser(std::unique_ptr<RawRecordParser> raw,
               std::shared_ptr<const Recipe> recipe, std::string source)
      : RawBasedParser(std::move(raw)),
        recipe_(std::move(recipe)),
        source_(std::move(source)) {}

  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    CookedScan scan(recipe_.get(), &source_, &file, media(), &scanner);
    BALLAST_RETURN_IF_ERROR(records().Scan(file, scan));
    return scan.Flush();
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& parts,
                              const IndexedKinds& /*kinds*/) const override {
    if (file.from() == ReadFrom::kMemory) {
      return absl::AbortedError("its recipe has to run");
    }
    BALLAST_ASSIGN_OR_RETURN(RawRecord raw,
                             records().Read(entry, file, file_name));
    const std::string where = raw.record.where;
    // Before Python sees it: a recipe's answer to another record says nothing.
    if (raw.given.hash() != entry.text_check >> 32) {
      return Annotate(DataFaultError("the record is another"), where);
    }
    raw.given.source = source_;
    raw.given.name = raw.record.name;
    if (parts.record) raw.record.given = RecordJson(raw.given);
    std::optional<CookedSample> sample = recent_.Take(entry.text_check);
    if (!sample.has_value()) {
      auto cooked = Cook(entry, raw.given);
      if (!cooked.ok()) return Annotate(cooked.status(), where);
      sample = *std::move(cooked);
      // A second module of this server reads it, too.
      recent_.Put(entry.text_check, kModules - 1, *sample);
    }
    return Annotated(
        MakeCookedRecord(std::move(raw), *std::move(sample), media()), where);
  }

  absl::StatusOr<std::vector<std::string>> StoredMedia(
      const IndexSampleRecord& entry, FileView file,
      absl::string_view file_name) const override {
    std::vector<std::string> paths;
    if (media() == nullptr || !media()->InStore() || entry.image_check == 0) {
      return paths;
    }
    std::optional<CookedSample> sample = recent_.Look(entry.text_check);
    if (!sample.has_value() && file.from() != ReadFrom::kMemory) {
      BALLAST_ASSIGN_OR_RETURN(const std::vector<ByteRange> ranges,
                               records().Ranges(entry, file, /*images=*/false));
      BALLAST_RETURN_IF_ERROR(file.Load(ranges));
      auto raw = records().Read(entry, file, file_name);
      if (!raw.ok() && !IsDataFault(raw.status())) return raw.status();
      // Read says what is wrong with one that is not understood.
      if (!raw.ok() || raw->given.hash() != entry.text_check >> 32) {
        return paths;
      }
      raw->given.source = source_;
      raw->given.name = raw->record.name;
      auto cooked = Cook(entry, raw->given);
      if (!cooked.ok()) return paths;
      sample = *std::move(cooked);
      recent_.Put(entry.text_check, kModules, *sample);
    }
    if (!sample.has_value()) return paths;
    return PathsOf(*sample);
  }

 private:
  // Modules that read a sample: its media and its text.
  static constexpr int kModules = 2;

  // The recipe's sample of a record, which is the index's. Errors: as Read.
  absl::StatusOr<CookedSample> Cook(const IndexSampleRecord& entry,
                                    const RecipeRecord& given) const {
    const RecipeRecord* const one = &given;
    Answer answer = std::move(recipe_->Cook({&one, 1})[0]);
    if (!answer.ok()) return WithKind(answer.status());
    const bool is_same =
        answer->has_value() &&
        (*answer)->hash == static_cast<uint32_t>(entry.text_check);
    if (is_same) return **std::move(answer);
    return ByRecipe(absl::StrCat(
        "the recipe ",
        answer->has_value() ? "gave another sample"
                            : "left the record out, and gave a sample",
        " when the source was indexed: `cook` must be pure; does it use the "
        "clock, random numbers other than record.random(), or records that it "
        "saw before? `ballast-server index --verify-recipe N` finds it"));
  }

  static absl::StatusOr<Record> Annotated(absl::StatusOr<Record> record,
                                          absl::string_view where) {
    if (record.ok()) return record;
    return Annotate(record.status(), where);
  }

  const std::shared_ptr<const Recipe> recipe_;
  const std::string source_;
  mutable RecentAnswers recent_;
};

}  // namespace

absl::StatusOr<Record> MakeCookedRecord(RawRecord raw, CookedSample cooked,
                                        const MediaRoot* root) {
  if (cooked.text.size() > kMaxTextBytes) {
    return DataFaultError(absl::StrCat("text of ", cooked.text.size(),
                                       " bytes, wanted at most ",
                                       kMaxTextBytes));
  }
  Record record = std::move(raw.record);
  record.text_format = cooked.is_document
                           ? RawSample::TextFormat::kPlain
                           : RawSample::TextFormat::kConversation;
  record.entry.text_check = uint64_t{raw.given.hash()} << 32 | cooked.hash;
  MediaFinder finder(&raw.media, root, kMaxSampleBytes - cooked.text.size());
  if (cooked.images.size() > kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  if (cooked.videos.size() > kMaxVideos) {
    return DataFaultError(absl::StrCat("over ", kMaxVideos, " videos"));
  }
  for (CookedSample::Medium& image : cooked.images) {
    BALLAST_ASSIGN_OR_RETURN(Medium medium,
                             finder.Find("image", std::move(image)));
    record.Add(MediumKind::kImage, std::move(medium));
  }
  size_t pictures = 0;
  for (CookedSample::Video& video : cooked.videos) {
    pictures += video.parts.size();
    if (video.parts.empty() || pictures > kMaxImages) {
      return DataFaultError(absl::StrCat(
          video.parts.empty() ? "a video of no" : "videos of over 10000",
          " pictures"));
    }
    RecordMedium& media = record.media.emplace_back();
    media.kind = video.is_audio ? MediumKind::kAudio : MediumKind::kVideo;
    media.is_list = video.is_list;
    for (CookedSample::Medium& part : video.parts) {
      BALLAST_ASSIGN_OR_RETURN(Medium medium,
                               finder.Find("video", std::move(part)));
      media.parts.push_back(std::move(medium));
    }
  }
  record.text = std::move(cooked.text);
  record.fields = std::move(cooked.fields);
  return record;
}

std::vector<std::string> PathsOf(const CookedSample& sample) {
  std::vector<std::string> paths;
  const auto add = [&](const CookedSample::Medium& medium) {
    const auto* path = std::get_if<std::string>(&medium);
    if (path != nullptr && CheckMediaPath("image", *path).ok()) {
      paths.push_back(*path);
    }
  };
  for (const CookedSample::Medium& image : sample.images) add(image);
  for (const CookedSample::Video& video : sample.videos) {
    for (const CookedSample::Medium& part : video.parts) add(part);
  }
  return paths;
}

std::unique_ptr<RecordParser> MakeCookedParser(
    std::unique_ptr<RawRecordParser> raw, std::shared_ptr<const Recipe> recipe,
    std::string source) {
  return std::make_unique<CookedParser>(std::move(raw), std::move(recipe),
                                        std::move(source));
}

}  // namespace ballast
