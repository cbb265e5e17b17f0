#include "server/corpus/megatron/megatron_parser.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/limits.h"
#include "server/corpus/megatron/token_index.h"
#include "server/storage/local_copy.h"
#include "server/storage/storage.h"
#include "server/storage/store_url.h"

namespace ballast {
namespace {

constexpr absl::string_view kBin = ".bin";
constexpr absl::string_view kIdx = ".idx";

uint64_t GetCheck(TokenType type, uint64_t tokens) {
  return tokens << 8 | static_cast<uint8_t>(type);
}

Record PlaceRecord(uint64_t number, absl::string_view file_name) {
  Record record;
  record.key = absl::StrCat(number);
  record.where = absl::StrCat("document ", number);
  record.name = absl::StrCat(file_name, ": ", record.where);
  record.text_format = RawSample::TextFormat::kPackedBytes;
  record.entry.line = static_cast<uint32_t>(number);
  return record;
}

class MegatronParser final : public RecordParser {
 public:
  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    const std::string path =
        absl::StrCat(absl::StripSuffix(file.path(), kBin), kIdx);
    std::shared_ptr<const LocalCopy> copy;
    if (IsStoreUrl(path)) {
      BALLAST_ASSIGN_OR_RETURN(copy, CopyToDisk(path));
    }
    BALLAST_ASSIGN_OR_RETURN(const File index,
                             File::Open(copy == nullptr ? path : copy->path()));
    BALLAST_ASSIGN_OR_RETURN(const TokenIndexHead head,
                             ReadTokenIndexHead(index));
    const uint64_t width = TokenBytes(head.type);
    BALLAST_RETURN_IF_ERROR(ReadTokenIndex(
        index, file.stamp().size, [&](const TokenDocument& document) {
          const absl::Status added = Add(document, head.type, file, scanner);
          BALLAST_RETURN_IF_ERROR(scanner.Listed(
              document.offset, absl::StrCat(document.number + 1), added));
          scanner.Advance(document.offset + width * document.tokens);
          return absl::OkStatus();
        }));
    return absl::OkStatus();
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& /*parts*/,
                              bool /*lists*/) const override {
    const auto type = static_cast<TokenType>(entry.text_check & 0xFF);
    const uint64_t tokens = entry.text_check >> 8;
    Record record = PlaceRecord(entry.line, file_name);
    if (entry.length != tokens * TokenBytes(type) ||
        tokens > kMaxTextBytes / sizeof(int32_t)) {
      return DataFaultError(absl::StrCat(
          record.where, ": ", tokens, " tokens in ", entry.length, " bytes"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             file.ReadAt(entry.offset, entry.length));
    auto ids = ToTokenIds(type, bytes);
    if (!ids.ok()) return Annotate(ids.status(), record.where);
    record.text = *std::move(ids);
    record.entry = entry;
    return record;
  }

  bool HoldsImages() const override { return false; }

 private:
  // Adds the document to the scan, or returns why it is bad.
  static absl::Status Add(const TokenDocument& document, TokenType type,
                          const File& file, FileScanner& scanner) {
    if (document.number >= std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError("over 2^32 - 2 documents in a file");
    }
    if (document.tokens == 0) return DataFaultError("no tokens");
    if (document.tokens > kMaxTextBytes / sizeof(int32_t)) {
      return DataFaultError(absl::StrCat(document.tokens,
                                         " tokens, wanted at most ",
                                         kMaxTextBytes / sizeof(int32_t)));
    }
    Record record = PlaceRecord(document.number + 1, scanner.name());
    record.known_tokens = document.tokens;
    record.entry.offset = document.offset;
    record.entry.length =
        static_cast<uint32_t>(document.tokens * TokenBytes(type));
    record.entry.text_check = GetCheck(type, document.tokens);
    return scanner.AddRecord(std::move(record), file, /*media=*/nullptr);
  }
};

// `path` names both files, one of them, or neither's ending.
absl::StatusOr<std::vector<std::string>> ListBins(const v1::Source& source,
                                                  absl::string_view directory) {
  absl::string_view path = source.path();
  if (!absl::ConsumeSuffix(&path, kBin)) absl::ConsumeSuffix(&path, kIdx);
  return Storage::OfProcess().ListFiles(directory, absl::StrCat(path, kBin));
}

}  // namespace

const RecordFormat kMegatronFormat = {
    v1::Source::FORMAT_MEGATRON,
    /*check=*/nullptr,
    ListBins,
    /*key=*/nullptr,
    /*names_media=*/false,
    /*in_groups=*/false,
    [](const v1::Source&,
       absl::string_view) -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      return std::make_unique<MegatronParser>();
    },
    [](const v1::Source& source,
       absl::string_view) -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      return absl::UnimplementedError(absl::StrCat(
          "source ", source.name(), ": a recipe has no records of token ids"));
    }};

}  // namespace ballast
