#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What the server itself must know of a SentencePiece model.
struct SentencePieceModel {
  enum class Kind : uint8_t {
    kText,         // found in texts by their pieces
    kControl,      // never found in a text by the library
    kUserDefined,  // found before all else
    kUnknown,
    kByte,  // of a character that no piece has
  };
  struct Piece {
    Kind kind = Kind::kText;
    // What the piece stands for, spaces as such; for kByte the byte.
    std::string text;
  };
  std::vector<Piece> pieces;  // by id
  // Whether the library puts a space before a text.
  bool adds_dummy_prefix = true;
  // -1 where the model has none.
  int32_t eos_id = -1;
  int32_t pad_id = -1;
};

// `file` is the content of a .model file. Errors: INVALID_ARGUMENT (not such a
// file; what it asks for is not supported, with the key).
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view file);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_
