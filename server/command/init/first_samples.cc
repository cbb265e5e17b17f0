#include "server/command/init/first_samples.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "server/command/init/choose_form.h"
#include "server/data/form/own_reading.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/element_reader.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/megatron/token_index.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/unpack.h"
#include "server/data/source_files.h"
#include "server/data/tar/webdataset_reader.h"
#include "server/data/unpack_lines.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxSamples = 256;
// Samples of Parquet files, whose row groups are read whole.
constexpr uint64_t kMaxRows = 16;
constexpr uint64_t kMaxCounted = uint64_t{1} << 30;
// Bounds for a store, where each sample and each file may be a request, and for
// compressed files.
constexpr uint64_t kMaxSamplesOfPart = 64;
constexpr uint64_t kMaxFilesOfPart = 16;
// Letters of a path in messages: it may be media as text.
constexpr size_t kMostOfPath = 200;
// In place of a root: the path is absolute.
constexpr size_t kWhole = std::numeric_limits<size_t>::max();

v1::Source::Format FormatOf(SeenFiles::Format format) {
  switch (format) {
    case SeenFiles::Format::kWebDataset:
      return v1::Source::FORMAT_WEBDATASET;
    case SeenFiles::Format::kParquet:
      return v1::Source::FORMAT_PARQUET;
    case SeenFiles::Format::kCsv:
      return v1::Source::FORMAT_CSV;
    default:
      return v1::Source::FORMAT_JSONL;
  }
}

// Keeps record `wanted` of those that come.
class RecordFinder final : public RawRecordSink {
 public:
  RecordFinder(uint64_t wanted, bool reports)
      : left_(wanted), reports_(reports) {}

  void BeginFile(std::string name) { name_ = std::move(name); }
  std::optional<RawRecord>& found() { return found_; }

  const std::string& name() const override { return name_; }
  absl::Status Add(RawRecord record) override {
    if (left_-- > 0) return absl::OkStatus();
    found_ = std::move(record);
    return absl::CancelledError("found");
  }
  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason) override {
    if (!reports_) return absl::OkStatus();
    std::cerr << OneLine(absl::StrCat(name_, " at byte ", offset, ", sample ",
                                      key, ": ", reason.message()))
              << "\n";
    return absl::OkStatus();
  }
  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason) override {
    return AddBad(offset, lost_key, reason);
  }
  void AddFiltered() override {}
  void Advance(uint64_t /*offset*/) override {}

 private:
  std::string name_;
  uint64_t left_;
  const bool reports_;
  std::optional<RawRecord> found_;
};

// The first records of a source's first file, as a form reads them.
struct FirstRecords {
  std::vector<RawRecord> records;
  uint64_t bad = 0;
};

class RecordCollector final : public RawRecordSink {
 public:
  RecordCollector(std::string name, uint64_t most)
      : name_(std::move(name)), most_(most) {}

  FirstRecords Take() && { return std::move(found_); }
  bool is_full() const { return found_.records.size() + found_.bad >= most_; }

  const std::string& name() const override { return name_; }
  absl::Status Add(RawRecord record) override {
    found_.records.push_back(std::move(record));
    return Next();
  }
  absl::Status AddBad(uint64_t /*offset*/, absl::string_view /*key*/,
                      const absl::Status& /*reason*/) override {
    ++found_.bad;
    return Next();
  }
  absl::Status AddDamage(uint64_t /*offset*/, absl::string_view /*lost_key*/,
                         const absl::Status& /*reason*/) override {
    ++found_.bad;
    return absl::OkStatus();
  }
  void AddFiltered() override {}
  void Advance(uint64_t /*offset*/) override {}

 private:
  absl::Status Next() const {
    return is_full() ? absl::CancelledError("enough") : absl::OkStatus();
  }

  const std::string name_;
  const uint64_t most_;
  FirstRecords found_;
};

absl::StatusOr<FirstRecords> FindFirstRecords(const v1::Source& source,
                                              const std::string& directory,
                                              uint64_t most) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<RawRecordParser> parser,
                           format->make_raw(source, directory));
  const SourceFile& first = files.front();
  BALLAST_ASSIGN_OR_RETURN(
      const FirstLines opened,
      OpenFirstLines(first.packed ? first.packed->path : first.path));
  RecordCollector collector(first.name, most);
  const absl::Status scanned = parser->Scan(opened.file, collector);
  if (!scanned.ok() && !collector.is_full()) return scanned;
  return std::move(collector).Take();
}

// The keys by which the JSON of a preference pair says what it is.
std::string PairForm(absl::string_view json) {
  for (const char* key : {"rejected_response", "rejected_messages"}) {
    if (absl::StrContains(json, absl::StrCat("\"", key, "\""))) {
      return absl::StrCat("`messages` and `", key, "`");
    }
  }
  for (const char* key : {"prompt", "conversations", "messages"}) {
    if (absl::StrContains(json, absl::StrCat("\"", key, "\""))) {
      return absl::StrCat("`chosen` and `rejected` with `", key, "`");
    }
  }
  return "`chosen` and `rejected`, with the prompt in both";
}

// Collects what the samples of one group of files show.
class Looker {
 public:
  Looker(const std::vector<std::string>& files,
         const std::vector<std::string>& roots,
         const std::vector<v1::Source::Form>& given, DataTree* tree,
         SeenFiles* seen)
      : files_(files),
        roots_(roots),
        given_(given),
        in_store_(IsStoreUrl(files.front())),
        in_part_(in_store_ || IsPacked(files.front())),
        tree_(*tree),
        seen_(seen) {}

  void Look() {
    uint64_t counted = 0;
    uint64_t number = 0;
    for (const std::string& path : files_) {
      if (counted > 0 && (counted >= kMaxCounted || enough(number))) break;
      ++number;
      path_ = path;
      const absl::StatusOr<uint64_t> bytes = LookAt(path);
      if (!bytes.ok()) {
        Bad(bytes.status().message());
        break;
      }
      counted += *bytes;
    }
    if (counted > 0 && counted < seen_->bytes) {
      seen_->estimated = true;
      seen_->samples = static_cast<uint64_t>(
          static_cast<double>(seen_->samples) * seen_->bytes / counted);
    }
    const bool takes_form = seen_->format == SeenFiles::Format::kWebDataset ||
                            seen_->format == SeenFiles::Format::kJsonl ||
                            seen_->format == SeenFiles::Format::kParquet ||
                            seen_->format == SeenFiles::Format::kCsv;
    if (takes_form) TryForms();
    ChooseRoots();
  }

 private:
  // Takes the best form, if it explains more records than the format's own, or
  // if that passes over a key that may matter.
  void TryForms() {
    const bool is_explained = seen_->bad == 0 && seen_->looked_at > 0 &&
                              seen_->for_own_template == 0 && given_.empty();
    v1::Source source;
    source.set_name("any");
    // With all columns.
    source.set_recipe("any");
    source.set_format(FormatOf(seen_->format));
    source.add_media_root(files_.front().substr(0, files_.front().rfind('/')));
    std::string path = files_.front();
    for (const char c : {'\\', '*', '?', '[', ']'}) {
      for (size_t at = path.find(c); at != path.npos;
           at = path.find(c, at + 2)) {
        path.insert(at, 1, '\\');
      }
    }
    source.set_path(path);
    const uint64_t most = seen_->format == SeenFiles::Format::kParquet
                              ? kMaxRows
                              : kMaxSamplesOfPart;
    const absl::StatusOr<FirstRecords> first =
        FindFirstRecords(source, "", most);
    if (!first.ok() || first->records.empty()) {
      if (seen_->format == SeenFiles::Format::kCsv) {
        Bad(first.ok() ? "no rows" : first.status().message());
      }
      return;
    }
    uint64_t lost = 0;
    absl::Status first_lost;
    for (const RawRecord& record : first->records) {
      const absl::Status read = CheckOwnReading(record.given);
      if (read.ok() || lost++ > 0) continue;
      first_lost = Annotate(read, record.record.name);
    }
    if (is_explained && lost == 0) return;
    const uint64_t bad = first->bad;
    FormTrial trial = ChooseForm(first->records, given_);
    const uint64_t records = first->records.size() + bad;
    // Of those that were read by the format's own form.
    const double share_lost =
        static_cast<double>(lost) / static_cast<double>(records);
    const double own =
        seen_->looked_at == 0
            ? 0
            : 1 - std::min(1.0, static_cast<double>(seen_->bad) /
                                        static_cast<double>(seen_->looked_at) +
                                    share_lost);
    const double explained =
        static_cast<double>(trial.good) / static_cast<double>(records);
    const bool is_simpler = trial.for_own_template < seen_->for_own_template;
    if (trial.good == 0 && own == 0 && seen_->pairs == 0) {
      seen_->to_settle = trial.to_settle;
    }
    if (seen_->to_settle.empty() &&
        (trial.good == 0 || explained < own ||
         (explained == own && given_.empty() && !is_simpler && lost == 0))) {
      if (lost > 0 && seen_->bad == 0) {
        seen_->bad = std::min(lost, seen_->looked_at);
        seen_->first_fault = std::string(first_lost.message());
        if (own == 0) seen_->unknown = seen_->bad;
      }
      if (own > 0) return;
      const bool is_csv = seen_->format == SeenFiles::Format::kCsv;
      if (is_csv) {
        seen_->looked_at = seen_->unknown = seen_->bad = records;
      }
      if (is_csv || seen_->unknown > 0 || seen_->looked_at == 0) {
        seen_->first_fault = absl::StrCat(
            seen_->first_fault.empty() ? path_ : seen_->first_fault,
            is_csv ? ": no form of forms/ fits" : "", "; the keys are ",
            absl::StrJoin(trial.unread, ", "), trial.way_out);
      }
      return;
    }
    if (seen_->format == SeenFiles::Format::kCsv) {
      uint64_t bytes = 0;
      for (const RawRecord& record : first->records) {
        bytes += record.record.entry.length;
      }
      seen_->estimated = records >= most || files_.size() > 1;
      seen_->samples = seen_->estimated
                           ? seen_->bytes * first->records.size() / bytes
                           : records;
    }
    seen_->form = trial.form;
    seen_->explained = trial.good;
    seen_->example = trial.example;
    seen_->other_form = trial.also;
    seen_->unread = trial.unread;
    seen_->looked_at = records;
    seen_->bad = records - trial.good;
    seen_->unknown = seen_->bad;
    seen_->first_fault = trial.first_fault;
    seen_->for_own_template = trial.for_own_template;
    seen_->first_for_own_template = trial.first_for_own_template;
    seen_->pairs = 0;
    seen_->media = trial.media;
    seen_->most_text = trial.most_text;
    media_ = 0;
    missing_.clear();
    whole_ = 0;
    found_.clear();
    reached_.clear();
    path_ = files_.front();
    FindMedia(trial.paths, "its first records");
  }

  bool more() const {
    return seen_->looked_at < (in_part_ ? kMaxSamplesOfPart : kMaxSamples);
  }
  // Whether the rest is estimated, after so many files.
  bool enough(uint64_t files) const {
    return in_part_ && (files == kMaxFilesOfPart || !more());
  }

  void Bad(absl::string_view reason) {
    if (++seen_->bad == 1) {
      seen_->first_fault = absl::StrCat(path_, ": ", reason);
    }
  }

  // A sample that was read: `fault` is the first thing wrong with it.
  void Count(const absl::Status& fault, const MediaCounts& media,
             uint64_t text) {
    ++seen_->looked_at;
    if (GetBadKind(fault) == kForOwnTemplate) {
      if (++seen_->for_own_template == 1) {
        seen_->first_for_own_template =
            absl::StrCat(path_, ": ", fault.message());
      }
    } else if (!fault.ok()) {
      ++seen_->unknown;
      Bad(fault.message());
      return;
    }
    seen_->media.Add(media);
    seen_->most_text = std::max(seen_->most_text, text);
  }

  // Looks at the samples of a file. Returns how many of its bytes were counted.
  absl::StatusOr<uint64_t> LookAt(const std::string& path) {
    BALLAST_ASSIGN_OR_RETURN(const FirstLines first, OpenFirstLines(path));
    BALLAST_RETURN_IF_ERROR(CheckNotLfsPointer(first.file));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t counted, LookAt(first.file));
    const uint64_t size = first.file.stamp().size;
    return first.packed_bytes == 0 || size == 0
               ? counted
               : first.packed_bytes * counted / size;
  }

  // The same, of bytes that are not compressed.
  absl::StatusOr<uint64_t> LookAt(const File& file) {
    switch (seen_->format) {
      case SeenFiles::Format::kWebDataset:
      case SeenFiles::Format::kEnergon:
        return LookAtTar(file);
      case SeenFiles::Format::kJsonl:
        return LookAtLines(file);
      case SeenFiles::Format::kParquet:
        return LookAtRows(file);
      case SeenFiles::Format::kMegatron:
        return LookAtTokens(file);
      case SeenFiles::Format::kCsv:
        break;  // by a form alone
    }
    return file.stamp().size;
  }

  absl::StatusOr<uint64_t> LookAtTar(const File& file) {
    WebDatasetReader reader(&file, 0, file.stamp().size, /*whole=*/true);
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(const std::optional<WebDatasetSample> sample,
                               reader.Next());
      if (!sample.has_value()) return file.stamp().size;
      if (enough(/*files=*/0)) return sample->begin;
      ++seen_->samples;
      if (!more()) continue;
      absl::Status fault = sample->fault;
      if (fault.ok() &&
          sample->text_format == RawSample::TextFormat::kConversation &&
          sample->text.size <= kMaxTextBytes) {
        BALLAST_ASSIGN_OR_RETURN(
            const std::string text,
            file.ReadAt(sample->text.data, sample->text.size));
        const MediaCounts counts = CountKinds(sample->media);
        fault = CheckTurns(text, counts[MediumKind::kImage],
                           /*says_places=*/counts[MediumKind::kVideo] == 0);
      }
      Count(Annotate(fault, absl::StrCat("sample ", sample->key)),
            CountKinds(sample->media), sample->text.size);
    }
  }

  // Lines, or the elements of one array.
  absl::StatusOr<uint64_t> LookAtLines(const File& file) {
    BALLAST_ASSIGN_OR_RETURN(const bool is_array, IsJsonArray(file));
    if (is_array) {
      ElementReader reader(&file, kMaxTextBytes);
      return LookAtConversations(file, &reader, "element");
    }
    LineReader reader(&file, kMaxTextBytes);
    return LookAtConversations(file, &reader, "line");
  }

  // `what` names a line of the reader.
  template <typename Reader>
  absl::StatusOr<uint64_t> LookAtConversations(const File& file, Reader* reader,
                                               absl::string_view what) {
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(const std::optional<Line> line, reader->Next());
      if (!line.has_value()) return file.stamp().size;
      if (line->length == 0) continue;
      if (enough(/*files=*/0)) return line->offset;
      ++seen_->samples;
      if (!more()) continue;
      std::string text(line->text);
      absl::StatusOr<JsonSample> sample = ReadJsonSample(&text);
      absl::Status fault = sample.status();
      if (fault.ok() &&
          sample->text_format == RawSample::TextFormat::kConversation) {
        const MediaCounts counts = sample->counts();
        fault = CheckTurns(text, counts[MediumKind::kImage],
                           /*says_places=*/counts[MediumKind::kVideo] == 0);
      }
      const std::string place = absl::StrCat(what, " ", line->number);
      Count(Annotate(fault, place),
            sample.ok() ? sample->counts() : MediaCounts(), line->length);
      if (!sample.ok()) continue;
      FindMedia(sample->paths(), place);
    }
  }

  // OK if the text is a conversation, or a preference pair of two, which is
  // counted.
  // `says_places`: the turns say where each image is.
  absl::Status CheckTurns(std::string text, size_t images, bool says_places) {
    std::string split = text;
    BALLAST_ASSIGN_OR_RETURN(const bool is_pair, SplitPair(images, &split));
    if (!is_pair && says_places) {
      BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaPlace> places,
                               ReadMediaPlaces(text));
      const size_t marks = GetPaths("image", places).size();
      if (marks != images) {
        return DataFaultError(
            absl::StrCat(marks, " marks of images, and ", images, " images"));
      }
    }
    if (!is_pair) return ParseConversation(text).status();
    if (seen_->pairs++ == 0) seen_->pair_form = PairForm(text);
    const PairTexts pair = GetPairTexts(split);
    BALLAST_RETURN_IF_ERROR(ParseConversation(pair.chosen).status());
    return ParseConversation(pair.rejected).status();
  }

  absl::StatusOr<uint64_t> LookAtRows(const File& file) {
    ParquetColumns columns;
    columns.recognise = true;
    auto opened = OpenParquetFile(FileView(&file), columns);
    if (absl::IsFailedPrecondition(opened.status())) {
      columns.pairs = true;
      auto as_pairs = OpenParquetFile(FileView(&file), columns);
      if (as_pairs.ok()) opened = std::move(as_pairs);
    }
    if (absl::IsFailedPrecondition(opened.status())) {
      // Rows of another form, which a form may explain.
      if (seen_->first_fault.empty()) Bad(opened.status().message());
      ParquetColumns all;
      all.whole_rows = true;
      opened = OpenParquetFile(FileView(&file), all);
      BALLAST_RETURN_IF_ERROR(opened.status());
      for (const ParquetGroup& group : (*opened)->groups()) {
        seen_->samples += group.num_rows;
      }
      return file.stamp().size;
    }
    BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ParquetFile> parquet,
                             std::move(opened));
    for (const ParquetGroup& group : parquet->groups()) {
      seen_->samples += group.num_rows;
    }
    if (seen_->looked_at > 0 || parquet->groups().empty()) {
      return file.stamp().size;
    }
    // Of images their number is looked at alone.
    const auto nothing = [](uint64_t, auto) {};
    BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ParquetRows> rows,
                             in_store_ ? parquet->ReadHeads(file, 0, nothing)
                                       : parquet->ReadPlaces(&file, 0));
    const uint64_t most =
        std::min(kMaxRows, parquet->groups().front().num_rows);
    for (uint64_t i = 0; i < most; ++i) {
      const absl::StatusOr<ParquetRow> row = rows->Row(i);
      const absl::Status fault = row.ok() && !row->is_document
                                     ? CheckTurns(row->text, row->images.size(),
                                                  /*says_places=*/false)
                                     : row.status();
      Count(Annotate(fault, absl::StrCat("row ", i + 1)),
            row.ok() ? MediaCounts{{row->images.size(), row->videos.size(),
                                    row->audios.size()}}
                     : MediaCounts(),
            row.ok() ? row->text.size() : 0);
      if (!row.ok()) continue;
      std::vector<std::string> paths;
      for (const auto* media : {&row->videos, &row->audios}) {
        for (const ParquetVideo& each : *media) {
          if (!each.path.empty()) paths.push_back(each.path);
        }
      }
      FindMedia(paths, absl::StrCat("row ", i + 1));
    }
    return file.stamp().size;
  }

  // `index` is the .idx.
  absl::StatusOr<uint64_t> LookAtTokens(const File& index) {
    const std::string bin =
        absl::StrCat(absl::StripSuffix(path_, ".idx"), ".bin");
    BALLAST_ASSIGN_OR_RETURN(const File tokens, Storage::OfProcess().Open(bin));
    BALLAST_RETURN_IF_ERROR(ReadTokenIndex(
        index, tokens.stamp().size, [&](const TokenDocument& document) {
          ++seen_->samples;
          if (more()) Count(absl::OkStatus(), {}, document.tokens);
          return absl::OkStatus();
        }));
    return index.stamp().size;
  }

  // The folder from which a path that was found outside of every candidate can
  // be read: the tree's, or the first two names of one elsewhere.
  std::string RootOf(const std::string& real) const {
    if (absl::StartsWith(real, tree_.root() + "/")) return tree_.root();
    const size_t names = IsStoreUrl(real) ? real.find("://") + 3 : 1;
    size_t end = real.find('/', names);
    if (end != real.npos && !IsStoreUrl(real)) {
      end = std::min(real.find('/', end + 1), real.rfind('/'));
    }
    return end == real.npos ? "" : real.substr(0, end);
  }

  // Notes below which candidates the media of the sample at `place`
  // are.
  void FindMedia(const std::vector<std::string>& files,
                 absl::string_view place) {
    for (absl::string_view file : files) {
      if (!in_store_) absl::ConsumePrefix(&file, "file://");
      const bool is_whole = absl::StartsWith(file, "/") || IsStoreUrl(file);
      std::vector<size_t> at;  // numbers of roots
      for (size_t i = 0; i < roots_.size(); ++i) {
        std::string path =
            is_whole ? std::string(file) : absl::StrCat(roots_[i], "/", file);
        const std::optional<bool> found = tree_.HasFile(path);
        if (!found.has_value()) return;
        if (!*found) {
          if (is_whole) break;
          continue;
        }
        if (is_whole || absl::StrContains(file, "..")) {
          const std::string real = WithoutDots(path);
          const std::string root = RootOf(real);
          if (root.empty()) break;
          Reached(root, real);
          at = {is_whole ? kWhole : i};
          whole_ += is_whole ? 1 : 0;
          break;
        }
        at.push_back(i);
      }
      ++media_;
      if (at.empty() && missing_.empty()) {
        missing_ = absl::StrCat(
            path_, ": ", place, ": there is no ",
            Printable(file.substr(0, kMostOfPath)),
            is_whole ? "; wanted a file on this machine: set media_root to the "
                       "folder that holds it, or write other paths"
                     : " next to the file, in the folder or in one of its "
                       "folders; set media_root to the folder that paths of "
                       "media begin at");
      }
      if (at != std::vector<size_t>{kWhole}) found_.push_back(std::move(at));
    }
  }

  static std::string WithoutDots(const std::string& path) {
    const size_t names = IsStoreUrl(path) ? path.find("://") + 3 : 0;
    return path.substr(0, names) + std::filesystem::path(path.substr(names))
                                       .lexically_normal()
                                       .string();
  }

  // Narrows the folder of the files that were found in `root` to the one that
  // holds them all.
  void Reached(const std::string& root, const std::string& file) {
    std::string folder = file.substr(0, file.rfind('/'));
    if (root == tree_.root()) folder = root;
    const auto [held, is_new] = reached_.emplace(root, folder);
    while (!is_new && held->second.size() > root.size() &&
           folder != held->second &&
           !absl::StartsWith(folder, held->second + "/")) {
      held->second.resize(held->second.rfind('/'));
    }
  }

  // Takes the candidates that have most of the files that are left, one after
  // the other, then the folders of what leads elsewhere.
  void ChooseRoots() {
    if (media_ == 0) return;
    uint64_t missing = media_ - whole_;
    while (missing > 0) {
      std::vector<uint64_t> counts(roots_.size());
      for (const std::vector<size_t>& at : found_) {
        for (const size_t i : at) ++counts[i];
      }
      const auto best = std::max_element(counts.begin(), counts.end());
      if (best == counts.end() || *best == 0) break;
      const size_t taken = best - counts.begin();
      seen_->media_roots.push_back(roots_[taken]);
      missing -= *best;
      std::erase_if(found_, [=](const std::vector<size_t>& at) {
        return std::find(at.begin(), at.end(), taken) != at.end();
      });
    }
    std::vector<std::string>& roots = seen_->media_roots;
    for (const auto& reached : reached_) {
      const std::string& folder = reached.second;
      const bool known =
          std::any_of(roots.begin(), roots.end(), [&](const std::string& one) {
            return folder == one || absl::StartsWith(folder, one + "/");
          });
      if (known) continue;
      roots.push_back(folder);
      if (reached.first != tree_.root()) {
        seen_->roots_outside.push_back(folder);
      }
    }
    if (missing == 0) return;
    // Without any file each sample is bad.
    seen_->bad = missing == media_ ? seen_->looked_at : seen_->bad + 1;
    if (seen_->first_fault.empty()) seen_->first_fault = missing_;
  }

  const std::vector<std::string>& files_;
  const std::vector<std::string>& roots_;
  const std::vector<v1::Source::Form>& given_;
  const bool in_store_;
  const bool in_part_;
  // For each relative path that was found, or not, the roots that have it.
  std::vector<std::vector<size_t>> found_;
  std::map<std::string, std::string> reached_;  // by RootOf
  DataTree& tree_;
  SeenFiles* const seen_;
  std::string path_;
  uint64_t media_ = 0;  // files
  uint64_t whole_ = 0;  // of them absolute, and there
  std::string missing_;
};

}  // namespace

void LookAtFirstSamples(const std::vector<std::string>& files,
                        const std::vector<std::string>& roots,
                        const std::vector<v1::Source::Form>& given,
                        DataTree* tree, SeenFiles* seen) {
  Looker(files, roots, given, tree, seen).Look();
}

absl::StatusOr<RawRecord> FindRecord(const v1::Source& source,
                                     const std::string& directory,
                                     uint64_t number, bool reports) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<RawRecordParser> parser,
                           format->make_raw(source, directory));
  RecordFinder finder(number, reports);
  for (const SourceFile& each : files) {
    BALLAST_ASSIGN_OR_RETURN(
        const FirstLines first,
        OpenFirstLines(each.packed ? each.packed->path : each.path));
    finder.BeginFile(each.name);
    const absl::Status scanned = parser->Scan(first.file, finder);
    if (finder.found().has_value()) {
      RawRecord found = *std::move(finder.found());
      found.given.source = source.name();
      found.given.name = found.record.name;
      return found;
    }
    BALLAST_RETURN_IF_ERROR(scanned);
    if (first.is_cut) {
      return absl::NotFoundError(absl::StrCat(
          each.name, ": record ", number,
          ", counted from 0, is after the first lines, which alone are looked "
          "at in a compressed file; ask for an earlier one"));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "source ", source.name(), " has no record ", number, ", counted from 0"));
}

}  // namespace ballast
