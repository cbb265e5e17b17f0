#ifndef BALLAST_SERVER_DATA_MEGATRON_TOKEN_INDEX_H_
#define BALLAST_SERVER_DATA_MEGATRON_TOKEN_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

namespace ballast {

// The .idx of a pair NAME.bin and NAME.idx, as Megatron-LM's IndexedDataset
// writes it (version 1). All numbers are little-endian:
//
//   "MMIDIDX\0\0", version (u64), type of the tokens (u8), number of sequences
//   (u64), number of document_indices (u64)
//   sequence_lengths (i32), sequence_pointers (i64, bytes into .bin),
//   document_indices (i64: the first sequence of each document, then the number
//   of sequences)

// Types of tokens: Megatron's codes of NumPy's types.
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};
// Bytes of a token; 0: not one of these.
uint32_t TokenBytes(TokenType type);

// A document: contiguous tokens in the .bin.
struct TokenDocument {
  uint64_t number = 0;  // from 0
  uint64_t offset = 0;  // in bytes
  uint64_t tokens = 0;
};

struct TokenIndexHead {
  TokenType type = TokenType::kInt32;
  uint64_t sequences = 0;
  uint64_t documents = 0;
};

// Checks the head and the file's length. Errors: FAILED_PRECONDITION (not such
// a file: another format, version or type; modes of sequences); DATA_LOSS (cut,
// or longer than it says); as File::ReadAt.
absl::StatusOr<TokenIndexHead> ReadTokenIndexHead(const File& index);

// Passes each document to `add`, in order, whose error ends the reading.
// `size`: bytes of the .bin, within which all are. Memory does not grow with
// the file. Errors: DATA_LOSS (numbers that contradict each other, naming the
// place); as ReadTokenIndexHead.
absl::Status ReadTokenIndex(
    const File& index, uint64_t size,
    absl::FunctionRef<absl::Status(const TokenDocument& document)> add);

// The tokens as 32-bit little-endian ids. Errors: a data fault (a token below 0
// or above 2^31 - 1, naming it; bytes that are not whole tokens).
absl::StatusOr<std::string> ToTokenIds(TokenType type, absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_MEGATRON_TOKEN_INDEX_H_
