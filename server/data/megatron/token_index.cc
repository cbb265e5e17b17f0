#include "server/data/megatron/token_index.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/data/index/file_scan.h"
#include "server/data/record_parser.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr absl::string_view kOldMagic("TNTIDX\0\0", 8);
constexpr uint64_t kVersion = 1;
constexpr uint64_t kHeadBytes = 9 + 8 + 1 + 8 + 8;

template <typename Number>
Number Take(const std::string& bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

absl::Status Damaged(const File& index, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      index.path(), ": ", what,
      "; was the file cut, or written while it was copied? Make it and its "
      ".bin again"));
}

// Numbers that follow each other in a file, read in blocks.
template <typename Number>
class Column {
 public:
  Column(const File* file, uint64_t offset, uint64_t count)
      : file_(*file), offset_(offset), left_(count) {}

  absl::StatusOr<Number> Next() {
    if (next_ == values_.size()) {
      constexpr uint64_t kBlock = 1 << 16;
      values_.resize(std::min(left_, kBlock));
      if (values_.empty()) return absl::InternalError("no number is left");
      const uint64_t bytes = values_.size() * sizeof(Number);
      BALLAST_RETURN_IF_ERROR(file_.ReadAt(
          offset_, bytes, reinterpret_cast<char*>(values_.data())));
      offset_ += bytes;
      left_ -= values_.size();
      next_ = 0;
    }
    return values_[next_++];
  }

 private:
  const File& file_;
  uint64_t offset_;
  uint64_t left_;
  std::vector<Number> values_;
  size_t next_ = 0;
};

template <typename Number>
absl::StatusOr<std::string> Widen(absl::string_view bytes) {
  const size_t count = bytes.size() / sizeof(Number);
  std::string ids(count * sizeof(int32_t), '\0');
  for (size_t i = 0; i < count; ++i) {
    Number token;
    std::memcpy(&token, bytes.data() + i * sizeof(token), sizeof(token));
    const auto wide = static_cast<int64_t>(token);
    if (wide < 0 || wide > std::numeric_limits<int32_t>::max()) {
      return DataFaultError(absl::StrCat("token ", i, " is ", wide,
                                         "; wanted ids from 0 to 2^31 - 1"));
    }
    const auto id = static_cast<int32_t>(wide);
    std::memcpy(ids.data() + i * sizeof(id), &id, sizeof(id));
  }
  return ids;
}

}  // namespace

uint32_t TokenBytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;
}

absl::StatusOr<TokenIndexHead> ReadTokenIndexHead(const File& index) {
  const uint64_t size = index.stamp().size;
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      index.ReadAt(0, std::min<uint64_t>(kHeadBytes, size)));
  const auto refused = [&](const auto&... pieces) {
    return absl::FailedPreconditionError(
        absl::StrCat(index.path(), ": ", pieces...));
  };
  if (absl::StartsWith(head, kOldMagic)) {
    return refused(
        "an index of the old format of fairseq; make it again with Megatron's "
        "tools/preprocess_data.py, whose --dataset-impl is mmap");
  }
  if (!absl::StartsWith(head, kMagic)) {
    return refused(
        "not an index of token ids: it does not begin with MMIDIDX, as those "
        "of Megatron's tools/preprocess_data.py do");
  }
  if (head.size() < kHeadBytes) return Damaged(index, "its head is cut");
  const auto version = Take<uint64_t>(head, 9);
  if (version != kVersion) {
    return refused("version ", version, "; wanted ", kVersion);
  }
  TokenIndexHead found;
  found.type = static_cast<TokenType>(head[17]);
  if (TokenBytes(found.type) == 0) {
    return refused("tokens of type ", static_cast<int>(head[17]),
                   "; wanted 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 "
                   "(int64) or 8 (uint16)");
  }
  found.sequences = Take<uint64_t>(head, 18);
  const auto indices = Take<uint64_t>(head, 26);
  constexpr uint64_t kMaxCount = uint64_t{1} << 48;
  if (found.sequences > kMaxCount || indices > kMaxCount) {
    return Damaged(index, absl::StrCat(found.sequences, " sequences and ",
                                       indices, " document_indices"));
  }
  const uint64_t wanted = kHeadBytes + 12 * found.sequences + 8 * indices;
  if (size == wanted + found.sequences && found.sequences > 0) {
    return refused(
        "it has modes of sequences, as Megatron's multimodal data have; wanted "
        "token ids alone");
  }
  if (size != wanted || indices == 0) {
    return Damaged(
        index, absl::StrCat(size, " bytes, and its head says ", wanted, " for ",
                            found.sequences, " sequences and ", indices,
                            " document_indices"));
  }
  found.documents = indices - 1;
  return found;
}

absl::Status ReadTokenIndex(
    const File& index, uint64_t size,
    absl::FunctionRef<absl::Status(const TokenDocument& document)> add) {
  BALLAST_ASSIGN_OR_RETURN(const TokenIndexHead head,
                           ReadTokenIndexHead(index));
  const uint64_t width = TokenBytes(head.type);
  const uint64_t pointers_at = kHeadBytes + 4 * head.sequences;
  Column<int32_t> lengths(&index, kHeadBytes, head.sequences);
  Column<int64_t> pointers(&index, pointers_at, head.sequences);
  Column<int64_t> indices(&index, pointers_at + 8 * head.sequences,
                          head.documents + 1);
  BALLAST_ASSIGN_OR_RETURN(const int64_t first, indices.Next());
  if (first != 0) {
    return Damaged(index, absl::StrCat("document 0 begins at sequence ", first,
                                       ", wanted 0"));
  }
  uint64_t sequence = 0;
  for (uint64_t i = 0; i < head.documents; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const int64_t end, indices.Next());
    const bool is_last = i + 1 == head.documents;
    if (end < 0 || uint64_t(end) < sequence || uint64_t(end) > head.sequences ||
        (is_last && uint64_t(end) != head.sequences)) {
      return Damaged(index,
                     absl::StrCat("document ", i, " has sequences ", sequence,
                                  " to ", end, " of ", head.sequences));
    }
    TokenDocument document;
    document.number = i;
    for (const uint64_t begin = sequence; sequence < uint64_t(end);
         ++sequence) {
      BALLAST_ASSIGN_OR_RETURN(const int32_t length, lengths.Next());
      BALLAST_ASSIGN_OR_RETURN(const int64_t pointer, pointers.Next());
      if (sequence == begin) document.offset = static_cast<uint64_t>(pointer);
      const uint64_t wanted = document.offset + width * document.tokens;
      if (length < 0 || pointer < 0 || uint64_t(pointer) != wanted ||
          uint64_t(pointer) > size ||
          uint64_t(length) > (size - uint64_t(pointer)) / width) {
        return Damaged(
            index,
            absl::StrCat("sequence ", sequence, " has ", length, " tokens of ",
                         width, " bytes at byte ", pointer, " of a .bin of ",
                         size, " bytes, in a document that begins at byte ",
                         document.offset));
      }
      document.tokens += static_cast<uint64_t>(length);
    }
    BALLAST_RETURN_IF_ERROR(add(document));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ToTokenIds(TokenType type,
                                       absl::string_view bytes) {
  const uint32_t width = TokenBytes(type);
  if (width == 0 || bytes.size() % width != 0) {
    return DataFaultError(
        absl::StrCat(bytes.size(), " bytes of tokens of ", width, " bytes"));
  }
  switch (type) {
    case TokenType::kUint8:
      return Widen<uint8_t>(bytes);
    case TokenType::kInt8:
      return Widen<int8_t>(bytes);
    case TokenType::kInt16:
      return Widen<int16_t>(bytes);
    case TokenType::kInt32:
      return Widen<int32_t>(bytes);
    case TokenType::kInt64:
      return Widen<int64_t>(bytes);
    case TokenType::kUint16:
      return Widen<uint16_t>(bytes);
  }
  return DataFaultError("tokens of another type");
}

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
                              const IndexedKinds& /*kinds*/) const override {
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
