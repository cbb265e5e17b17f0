#include "server/data/energon/energon_tar.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// Whether the first folder or the name begins with "__" and ends with "__".
bool IsMeta(absl::string_view name) {
  const absl::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && absl::StartsWith(first, "__") &&
         absl::EndsWith(first, "__");
}

}  // namespace

std::optional<EnergonMemberName> ParseEnergonMember(absl::string_view name) {
  if (IsMeta(name)) return std::nullopt;
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == name.npos) return std::nullopt;
  if (dot == base) {
    // "dir/.x" is the part "x" of "dir/": Energon's rule has it so.
    if (base < 2) return std::nullopt;
    const size_t before = name.rfind('/', base - 2);
    const size_t begin = before == name.npos ? 0 : before + 1;
    const absl::string_view folder = name.substr(begin, base - begin);
    if (folder.size() < 2 || absl::StrContains(folder, '.')) {
      return std::nullopt;
    }
  }
  return EnergonMemberName{name.substr(0, dot), name.substr(dot + 1)};
}

EnergonTarReader::EnergonTarReader(FileView file, uint64_t begin, uint64_t end,
                                   bool whole)
    : tar_(file, begin, end, whole) {}

absl::StatusOr<std::optional<EnergonTarSample>> EnergonTarReader::Next() {
  EnergonTarSample& sample = pending_;
  sample = {};
  while (true) {
    if (!next_) {
      BALLAST_ASSIGN_OR_RETURN(next_, tar_.Next());
    }
    if (!next_) break;
    const std::optional<EnergonMemberName> name =
        next_->type == kTarFile ? ParseEnergonMember(next_->name)
                                : std::nullopt;
    if (!name) {
      // Belongs to the bytes of the sample before it.
      if (!sample.key.empty()) sample.end = next_->end;
      next_.reset();
      continue;
    }
    if (!sample.key.empty() && name->key != sample.key) break;
    if (sample.key.empty()) {
      sample.key = std::string(name->key);
      sample.begin = next_->header;
    }
    if (sample.parts.size() == kMaxParts) {
      return AsDataFault(absl::DataLossError(
          absl::StrCat("over ", kMaxParts, " parts of one sample")));
    }
    sample.parts.push_back({std::string(name->part), next_->data, next_->size});
    sample.end = next_->end;
    next_.reset();
  }
  if (sample.key.empty()) return std::nullopt;
  return std::exchange(pending_, {});
}

absl::StatusOr<EnergonTarSample> ReadEnergonSample(FileView file,
                                                   uint64_t begin,
                                                   uint64_t end) {
  if (begin > end || end > file.size()) {
    return AsDataFault(absl::DataLossError(absl::StrCat(
        "no sample in bytes ", begin, " to ", end, " of ", file.size())));
  }
  EnergonTarReader reader(file, begin, end, /*whole=*/false);
  BALLAST_ASSIGN_OR_RETURN(std::optional<EnergonTarSample> sample,
                           reader.Next());
  if (!sample || sample->begin != begin) {
    return AsDataFault(
        absl::DataLossError(absl::StrCat("no sample begins at byte ", begin)));
  }
  BALLAST_ASSIGN_OR_RETURN(const auto more, reader.Next());
  if (more) {
    return AsDataFault(absl::DataLossError(
        absl::StrCat("sample ", Printable(more->key),
                     " stands among the parts of ", Printable(sample->key))));
  }
  sample->end = end;
  return *std::move(sample);
}

namespace {

namespace fs = std::filesystem;

// The tables and indexes that Energon's reader asks for.
constexpr char kTables[] = R"(
BEGIN;
CREATE TABLE samples (
  tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE,
  sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER);
CREATE TABLE sample_parts (
  tar_file_id INTEGER, sample_index INTEGER, part_name TEXT,
  content_byte_offset INTEGER, content_byte_size INTEGER);
)";
constexpr char kIndexes[] = R"(
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq
  ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full
  ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset,
                  content_byte_size);
COMMIT;
)";

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
  }
};

// Writes index.sqlite.
class IndexWriter {
 public:
  absl::Status Open(const std::string& path) {
    path_ = path;
    std::error_code ignored;
    fs::remove(path, ignored);
    sqlite3* opened = nullptr;
    const int code =
        sqlite3_open_v2(path.c_str(), &opened,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    database_.reset(opened);
    if (code != SQLITE_OK) return Failed();
    // The file is new and has another name until it is whole.
    BALLAST_RETURN_IF_ERROR(
        Execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = NORMAL;"));
    BALLAST_RETURN_IF_ERROR(Execute(kTables));
    BALLAST_RETURN_IF_ERROR(
        Compile("INSERT INTO samples VALUES (?1, ?2, ?3, ?4, ?5)", &sample_));
    return Compile("INSERT INTO sample_parts VALUES (?1, ?2, ?3, ?4, ?5)",
                   &part_);
  }

  absl::Status Add(uint64_t tar, uint64_t number,
                   const EnergonTarSample& sample) {
    BALLAST_RETURN_IF_ERROR(Insert(sample_.get(), tar, 2, sample.key, 3, number,
                                   sample.begin, sample.end - sample.begin));
    for (const EnergonPart& part : sample.parts) {
      BALLAST_RETURN_IF_ERROR(Insert(part_.get(), tar, 3, part.name, 2, number,
                                     part.data, part.size));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    sample_.reset();
    part_.reset();
    return Execute(kIndexes);
  }

 private:
  absl::Status Insert(sqlite3_stmt* statement, uint64_t tar, int text_column,
                      const std::string& text, int number_column,
                      uint64_t number, uint64_t offset, uint64_t size) {
    sqlite3_reset(statement);
    sqlite3_bind_int64(statement, 1, static_cast<int64_t>(tar));
    sqlite3_bind_text(statement, text_column, text.data(),
                      static_cast<int>(text.size()), SQLITE_STATIC);
    sqlite3_bind_int64(statement, number_column, static_cast<int64_t>(number));
    sqlite3_bind_int64(statement, 4, static_cast<int64_t>(offset));
    sqlite3_bind_int64(statement, 5, static_cast<int64_t>(size));
    const int code = sqlite3_step(statement);
    if (code == SQLITE_DONE) return absl::OkStatus();
    if (code == SQLITE_CONSTRAINT) {
      return absl::InvalidArgumentError(
          absl::StrCat("two samples with the key ", Printable(text),
                       "; Energon wants different ones in all tars"));
    }
    return Failed();
  }

  absl::Status Execute(const char* sql) {
    return sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) ==
                   SQLITE_OK
               ? absl::OkStatus()
               : Failed();
  }

  absl::Status Compile(const char* sql,
                       std::unique_ptr<sqlite3_stmt, Finalize>* out) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr) !=
        SQLITE_OK) {
      return Failed();
    }
    out->reset(statement);
    return absl::OkStatus();
  }

  absl::Status Failed() const {
    return absl::UnavailableError(absl::StrCat(
        path_, ": cannot be written: ",
        database_ == nullptr ? "no memory" : sqlite3_errmsg(database_.get())));
  }

  std::string path_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  std::unique_ptr<sqlite3_stmt, Finalize> sample_;
  std::unique_ptr<sqlite3_stmt, Finalize> part_;
};

// A text in double quotes; YAML reads it as JSON does.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Adds the samples of one tar, writes its TAR.idx (where each begins, and the
// end, as u64) and returns their number.
absl::StatusOr<uint64_t> IndexTar(const std::string& path, uint64_t id,
                                  IndexWriter* index) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  EnergonTarReader tar(&file, 0, file.stamp().size, /*whole=*/true);
  uint64_t count = 0;
  uint64_t end = 0;
  std::vector<uint64_t> places;
  while (true) {
    const absl::StatusOr<std::optional<EnergonTarSample>> sample = tar.Next();
    if (!sample.ok()) return Annotate(sample.status(), path);
    if (!sample->has_value()) break;
    BALLAST_RETURN_IF_ERROR(index->Add(id, count++, **sample));
    places.push_back((*sample)->begin);
    end = (*sample)->end;
  }
  places.push_back(end);
  BALLAST_RETURN_IF_ERROR(WriteFileAtomically(
      absl::StrCat(path, ".idx"),
      {absl::string_view(reinterpret_cast<const char*>(places.data()),
                         places.size() * sizeof(uint64_t))}));
  return count;
}

}  // namespace

absl::Status WriteEnergonMeta(const EnergonMeta& meta) {
  const std::string folder = absl::StrCat(meta.folder, "/.nv-meta/");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return FileError(error.value(), "make the directory", folder);
  const std::string part = absl::StrCat(folder, "index.sqlite.part");
  std::string info = "{\n  \"energon_version\": null,\n  \"shard_counts\": {";
  {
    IndexWriter index;
    BALLAST_RETURN_IF_ERROR(index.Open(part));
    for (size_t i = 0; i < meta.shards.size(); ++i) {
      BALLAST_ASSIGN_OR_RETURN(
          const uint64_t count,
          IndexTar(absl::StrCat(meta.folder, "/", meta.shards[i]), i, &index));
      absl::StrAppend(&info, i == 0 ? "\n    " : ",\n    ",
                      Quoted(meta.shards[i]), ": ", count);
    }
    BALLAST_RETURN_IF_ERROR(index.Finish());
  }
  absl::StrAppend(&info, "\n  }\n}\n");
  fs::rename(part, absl::StrCat(folder, "index.sqlite"), error);
  if (error) return FileError(error.value(), "rename a file to", folder);
  std::string split = "split_parts:\n";
  for (const auto& [name, shards] : meta.split) {
    absl::StrAppend(&split, "  ", name, ":", shards.empty() ? " []\n" : "\n");
    for (const std::string& shard : shards) {
      absl::StrAppend(&split, "  - ", Quoted(shard), "\n");
    }
  }
  split += "exclude: []\n";
  // Energon keys its caches by this; equal folders may share one.
  const Digest id = ComputeDigest(info + split);
  const std::string uuid = absl::StrFormat(
      "%08x-%04x-4%03x-8%03x-%012x", id[0] >> 32, id[0] >> 16 & 0xFFFF,
      id[0] & 0xFFF, id[1] >> 52, id[1] & 0xFFFFFFFFFFFF);
  for (const auto& [name, text] : {std::pair<const char*, const std::string&>{
                                       "dataset.yaml", meta.dataset},
                                   {"split.yaml", split},
                                   {"index.uuid", uuid},
                                   {".info.json", info}}) {
    BALLAST_RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(folder, name), {text}));
  }
  return absl::OkStatus();
}

namespace {

constexpr absl::string_view kMediaExtensions[] = {
    "jpg",  "jpeg", "png", "webp", "gif",  "bmp", "tif", "tiff", "mp4", "avi",
    "webm", "mov",  "mkv", "wav",  "flac", "mp3", "ogg", "opus", "m4a"};

bool IsMedium(absl::string_view name) {
  const std::string extension =
      absl::AsciiStrToLower(name.substr(name.rfind('.') + 1));
  return std::find(std::begin(kMediaExtensions), std::end(kMediaExtensions),
                   extension) != std::end(kMediaExtensions);
}

}  // namespace

absl::StatusOr<RawRecord> ReadRawMembers(FileView file, EnergonTarSample sample,
                                         absl::string_view file_name) {
  if (sample.end - sample.begin > kMaxSampleSpan) {
    return DataFaultError(
        absl::StrCat("its members span ", sample.end - sample.begin,
                     " bytes, wanted at most ", kMaxSampleSpan));
  }
  RawRecord raw;
  raw.record.key = Printable(sample.key);
  raw.record.name = absl::StrCat(file_name, ": ", raw.record.key);
  raw.record.where = absl::StrCat("key ", raw.record.key);
  raw.record.entry.offset = sample.begin;
  raw.record.entry.length = static_cast<uint32_t>(sample.end - sample.begin);
  raw.given.kind = RecipeRecord::Kind::kMembers;
  // A key is a part of what the recipe is given, as its name.
  raw.given.text = std::move(sample.key);
  absl::flat_hash_set<absl::string_view> names;
  uint64_t left = kMaxTextBytes;
  for (const EnergonPart& part : sample.parts) {
    if (!names.insert(part.name).second) {
      return DataFaultError(
          absl::StrCat("two members .", Printable(part.name)));
    }
    RecipeRecord::Part& given = raw.given.parts.emplace_back();
    given.name = part.name;
    given.size = part.size;
    raw.media.push_back({part.name, ByteRange{part.data, part.size}});
    if (IsMedium(part.name)) continue;
    if (part.size > left) {
      return DataFaultError(absl::StrCat(
          "its members that are no image, video or audio have over ",
          kMaxTextBytes, " bytes"));
    }
    left -= part.size;
    BALLAST_ASSIGN_OR_RETURN(given.bytes, file.ReadAt(part.data, part.size));
  }
  return raw;
}

}  // namespace ballast
