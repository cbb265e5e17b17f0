#include "server/data/energon/energon_index.h"

#include <simdjson.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr int kMaxTextOfRow = 4096;
// Operations of SQLite's between two calls of the handler below.
constexpr int kOperationsPerStep = 1000;

// The name of a file as a URI; with `immutable` SQLite assumes that nobody
// writes it, so that it takes no locks and looks for no journal.
std::string GetUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = c == '/' || c == '-' || c == '_' || c == '.' ||
                       (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                       (c >= 'A' && c <= 'Z');
    if (plain) {
      uri += c;
    } else {
      absl::StrAppendFormat(&uri, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return uri + "?mode=ro&immutable=1";
}

// The bytes that the head of a database says it has; 0 if it says nothing.
uint64_t BytesByHead(absl::string_view head) {
  constexpr size_t kPageSize = 16;
  constexpr size_t kPageCount = 28;
  constexpr size_t kEnd = 32;
  if (head.size() < kEnd) return 0;
  const auto byte = [&](size_t at) {
    return static_cast<uint64_t>(static_cast<unsigned char>(head[at]));
  };
  const uint64_t page = byte(kPageSize) << 8 | byte(kPageSize + 1);
  const uint64_t count = byte(kPageCount) << 24 | byte(kPageCount + 1) << 16 |
                         byte(kPageCount + 2) << 8 | byte(kPageCount + 3);
  return count * (page == 1 ? 65536 : page);
}

// Ends a query whose pages lead round in circles.
int CountStep(void* steps_left) {
  uint64_t& left = *static_cast<uint64_t*>(steps_left);
  if (left == 0) return 1;
  --left;
  return 0;
}

}  // namespace

void EnergonIndex::CloseDatabase::operator()(sqlite3* database) const {
  sqlite3_close_v2(database);
}

void EnergonIndex::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

EnergonIndex::~EnergonIndex() = default;

absl::StatusOr<std::unique_ptr<EnergonIndex>> EnergonIndex::Open(
    const std::string& path, uint64_t tar_file_id) {
  if (!IsStoreUrl(path)) return OpenFile(path, tar_file_id);
  BALLAST_ASSIGN_OR_RETURN(auto copy, CopyToDisk(path));
  auto index = OpenFile(copy->path(), tar_file_id);
  if (!index.ok()) return Annotate(index.status(), path);
  (*index)->path_ = path;
  (*index)->copy_ = std::move(copy);
  return index;
}

absl::StatusOr<std::unique_ptr<EnergonIndex>> EnergonIndex::OpenFile(
    const std::string& path, uint64_t tar_file_id) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  const FileStamp stamp = file.stamp();
  constexpr uint64_t kHead = 100;
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      file.ReadAt(0, std::min<uint64_t>(kHead, stamp.size)));
  if (head.size() < kHead || BytesByHead(head) > stamp.size) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", stamp.size, " bytes, its head says ", BytesByHead(head),
        "; was it cut? Run `energon prepare` on the folder again"));
  }
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).string();
  if (error) return FileError(error.value(), "find", path);
  std::unique_ptr<EnergonIndex> index(new EnergonIndex());
  index->path_ = path;
  // A query that looks at all rows takes some twenty operations for each, and a
  // row has at least twenty bytes: this is twice as many.
  index->steps_left_ = 1000 + stamp.size / (kOperationsPerStep / 2);
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(
      GetUri(absolute).c_str(), &opened,
      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  index->database_.reset(opened);
  if (code != SQLITE_OK) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be opened: ", sqlite3_errstr(code)));
  }
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, 1 << 20);
  sqlite3_progress_handler(opened, kOperationsPerStep, CountStep,
                           &index->steps_left_);
  BALLAST_RETURN_IF_ERROR(index->Prepare(tar_file_id));
  return index;
}

absl::Status EnergonIndex::Prepare(uint64_t tar_file_id) {
  BALLAST_ASSIGN_OR_RETURN(const bool has_samples, HasTable("samples"));
  if (!has_samples) return Damaged("no table samples");
  BALLAST_ASSIGN_OR_RETURN(
      samples_,
      Compile("SELECT sample_index, sample_key, byte_offset, byte_size "
              "FROM samples WHERE tar_file_id = ?1 ORDER BY sample_index"));
  sqlite3_bind_int64(samples_.get(), 1, static_cast<int64_t>(tar_file_id));
  BALLAST_ASSIGN_OR_RETURN(const bool has_parts, HasTable("sample_parts"));
  if (has_parts) {
    BALLAST_ASSIGN_OR_RETURN(
        parts_,
        Compile("SELECT sample_index, part_name, content_byte_offset, "
                "content_byte_size FROM sample_parts WHERE tar_file_id = ?1 "
                "ORDER BY sample_index, content_byte_offset"));
    sqlite3_bind_int64(parts_.get(), 1, static_cast<int64_t>(tar_file_id));
    BALLAST_ASSIGN_OR_RETURN(part_pending_, Step(parts_.get()));
  }
  BALLAST_ASSIGN_OR_RETURN(const bool has_media, HasTable("media_metadata"));
  if (has_media) {
    BALLAST_ASSIGN_OR_RETURN(media_,
                             Compile("SELECT metadata_type, metadata_json FROM "
                                     "media_metadata WHERE entry_key = ?1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> EnergonIndex::HasTable(const char* name) {
  BALLAST_ASSIGN_OR_RETURN(
      const Statement statement,
      Compile("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = "
              "?1"));
  sqlite3_bind_text(statement.get(), 1, name, -1, SQLITE_STATIC);
  return Step(statement.get());
}

absl::StatusOr<EnergonIndex::Statement> EnergonIndex::Compile(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr) !=
      SQLITE_OK) {
    return Damaged(sqlite3_errmsg(database_.get()));
  }
  return Statement(statement);
}

absl::StatusOr<bool> EnergonIndex::Step(sqlite3_stmt* statement) {
  switch (sqlite3_step(statement)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    case SQLITE_INTERRUPT:
      return Damaged("more work than its size explains");
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(
          absl::StrCat(path_, ": no memory to read it"));
    case SQLITE_IOERR:
      return absl::UnavailableError(absl::StrCat(
          path_, ": cannot be read: ", sqlite3_errmsg(database_.get())));
    default:
      return Damaged(sqlite3_errmsg(database_.get()));
  }
}

absl::StatusOr<uint64_t> EnergonIndex::Number(sqlite3_stmt* statement,
                                              int column, const char* name) {
  const int64_t value = sqlite3_column_int64(statement, column);
  if (sqlite3_column_type(statement, column) == SQLITE_INTEGER && value >= 0) {
    return static_cast<uint64_t>(value);
  }
  return Damaged(
      absl::StrCat("a row whose ", name, " is not a number of 0 or more"));
}

absl::StatusOr<std::string> EnergonIndex::Text(sqlite3_stmt* statement,
                                               int column, const char* name) {
  if (sqlite3_column_type(statement, column) == SQLITE_TEXT) {
    const auto* text = sqlite3_column_text(statement, column);
    const int size = sqlite3_column_bytes(statement, column);
    if (text != nullptr && size > 0 && size <= kMaxTextOfRow) {
      return std::string(reinterpret_cast<const char*>(text), size);
    }
  }
  return Damaged(absl::StrCat("a row whose ", name, " is not a text of 1 to ",
                              kMaxTextOfRow, " bytes"));
}

absl::StatusOr<std::optional<EnergonTarSample>> EnergonIndex::Next() {
  BALLAST_ASSIGN_OR_RETURN(const bool found, Step(samples_.get()));
  if (!found) {
    if (!part_pending_) return std::nullopt;
    return Damaged("sample_parts of a sample that samples does not have");
  }
  BALLAST_ASSIGN_OR_RETURN(const uint64_t number,
                           Number(samples_.get(), 0, "sample_index"));
  if (any_sample_ && number <= last_sample_) {
    return Damaged(absl::StrCat("sample_index ", number, " twice"));
  }
  any_sample_ = true;
  last_sample_ = number;
  EnergonTarSample sample;
  BALLAST_ASSIGN_OR_RETURN(sample.key, Text(samples_.get(), 1, "sample_key"));
  BALLAST_ASSIGN_OR_RETURN(sample.begin,
                           Number(samples_.get(), 2, "byte_offset"));
  BALLAST_ASSIGN_OR_RETURN(const uint64_t size,
                           Number(samples_.get(), 3, "byte_size"));
  if (size > kMaxSampleSpan || sample.begin > INT64_MAX - size) {
    return Damaged(absl::StrCat("sample ", Printable(sample.key), " of ", size,
                                " bytes, wanted at most ", kMaxSampleSpan));
  }
  sample.end = sample.begin + size;
  BALLAST_RETURN_IF_ERROR(NextParts(number, &sample));
  return sample;
}

absl::Status EnergonIndex::NextParts(uint64_t sample, EnergonTarSample* found) {
  while (part_pending_) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t number,
                             Number(parts_.get(), 0, "sample_index"));
    if (number > sample) break;
    if (number < sample) {
      return Damaged("sample_parts of a sample that samples does not have");
    }
    EnergonPart part;
    BALLAST_ASSIGN_OR_RETURN(part.name, Text(parts_.get(), 1, "part_name"));
    BALLAST_ASSIGN_OR_RETURN(part.data,
                             Number(parts_.get(), 2, "content_byte_offset"));
    BALLAST_ASSIGN_OR_RETURN(part.size,
                             Number(parts_.get(), 3, "content_byte_size"));
    if (found->parts.size() == kMaxParts) {
      return Damaged(absl::StrCat("sample ", Printable(found->key), ": over ",
                                  kMaxParts, " parts"));
    }
    found->parts.push_back(std::move(part));
    BALLAST_ASSIGN_OR_RETURN(part_pending_, Step(parts_.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ImageSize>> EnergonIndex::GetSize(
    const std::string& part) {
  if (media_ == nullptr) return std::nullopt;
  // A separate look-up: not counted with the rows of samples.
  steps_left_ += 10;
  sqlite3_reset(media_.get());
  sqlite3_bind_text(media_.get(), 1, part.data(), static_cast<int>(part.size()),
                    SQLITE_TRANSIENT);
  BALLAST_ASSIGN_OR_RETURN(const bool found, Step(media_.get()));
  if (!found) return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const std::string type,
                           Text(media_.get(), 0, "metadata_type"));
  if (type != "image") return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const std::string json,
                           Text(media_.get(), 1, "metadata_json"));
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  uint64_t width = 0;
  uint64_t height = 0;
  constexpr uint64_t kMaxPixels = 0xFFFFFFFF;
  if (parser.parse(json).get(root) != simdjson::SUCCESS ||
      root["width"].get(width) != simdjson::SUCCESS ||
      root["height"].get(height) != simdjson::SUCCESS || width == 0 ||
      height == 0 || width > kMaxPixels || height > kMaxPixels) {
    return Damaged(absl::StrCat("media metadata of ", Printable(part), ": ",
                                Printable(json),
                                ", wanted a width and a height"));
  }
  return ImageSize{static_cast<uint32_t>(width), static_cast<uint32_t>(height)};
}

absl::Status EnergonIndex::Damaged(absl::string_view reason) {
  return absl::DataLossError(absl::StrCat(
      path_, ": ", reason, "; run `energon prepare` on the folder again"));
}

}  // namespace ballast
