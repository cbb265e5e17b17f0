#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The parts of a SentencePiece model that the server itself needs.
struct SentencePieceModel {
  enum class Kind : uint8_t {
    kText,         // matched by their pieces
    kControl,      // never matched in a text by the library
    kUserDefined,  // matched before all others
    kUnknown,
    kByte,  // a byte of a character that no piece has
  };
  struct Piece {
    Kind kind = Kind::kText;
    // The text that the piece stands for, with real spaces; for kByte the byte.
    std::string text;
  };
  std::vector<Piece> pieces;  // by id
  // True if the library prefixes a text with a space.
  bool adds_dummy_prefix = true;
  // -1 if the model has none.
  int32_t eos_id = -1;
  int32_t pad_id = -1;
};

// `file` is the content of a .model file. Errors: INVALID_ARGUMENT (not such a
// file; an unsupported setting, with its key).
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view file);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_MODEL_FILE_H_
