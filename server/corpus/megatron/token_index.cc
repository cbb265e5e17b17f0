#include "server/corpus/megatron/token_index.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

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

}  // namespace ballast
