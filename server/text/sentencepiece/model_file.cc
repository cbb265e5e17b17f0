#include "server/text/sentencepiece/model_file.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/text/sentencepiece/model.pb.h"

namespace ballast {
namespace {

using Kind = SentencePieceModel::Kind;
using sentencepiece::ModelFile;

// U+2581, which stands for a space in pieces.
constexpr absl::string_view kSpace = "\xE2\x96\x81";

Kind GetKind(ModelFile::Piece::Type type) {
  switch (type) {
    case ModelFile::Piece::UNKNOWN:
      return Kind::kUnknown;
    case ModelFile::Piece::CONTROL:
      return Kind::kControl;
    case ModelFile::Piece::USER_DEFINED:
      return Kind::kUserDefined;
    case ModelFile::Piece::BYTE:
      return Kind::kByte;
    case ModelFile::Piece::NORMAL:
    case ModelFile::Piece::UNUSED:
      break;
  }
  return Kind::kText;
}

// The byte named by a piece such as "<0x0A>".
std::optional<char> GetByte(absl::string_view piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || !absl::ConsumePrefix(&piece, "<0x") ||
      !absl::ConsumeSuffix(&piece, ">") || !absl::SimpleHexAtoi(piece, &byte) ||
      byte > 255) {
    return std::nullopt;
  }
  return static_cast<char>(byte);
}

absl::StatusOr<SentencePieceModel::Piece> ReadPiece(
    const ModelFile::Piece& piece) {
  SentencePieceModel::Piece read;
  read.kind = GetKind(piece.type());
  if (read.kind == Kind::kByte) {
    const std::optional<char> byte = GetByte(piece.piece());
    if (!byte) {
      return absl::InvalidArgumentError(
          "is of type BYTE and not spelled like <0x0A>");
    }
    read.text = std::string(1, *byte);
  } else {
    read.text = absl::StrReplaceAll(piece.piece(), {{kSpace, " "}});
  }
  return read;
}

// `id` if the model has it, else -1.
int32_t IdOrNone(int32_t id, const SentencePieceModel& model) {
  return id >= 0 && static_cast<size_t>(id) < model.pieces.size() ? id : -1;
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view file) {
  ModelFile parsed;
  if (!parsed.ParseFromArray(file.data(), static_cast<int>(file.size())) ||
      parsed.pieces().empty()) {
    return absl::InvalidArgumentError(
        "neither a tokenizer.json nor a SentencePiece model: damaged, or "
        "without pieces");
  }
  if (parsed.trainer().treat_whitespace_as_suffix()) {
    return absl::InvalidArgumentError(
        "trainer_spec.treat_whitespace_as_suffix: true is not supported; "
        "wanted a model with its spaces before the words");
  }
  SentencePieceModel model;
  model.pieces.reserve(parsed.pieces().size());
  for (const ModelFile::Piece& piece : parsed.pieces()) {
    absl::StatusOr<SentencePieceModel::Piece> read = ReadPiece(piece);
    if (!read.ok()) {
      return Annotate(read.status(),
                      absl::StrCat("piece ", model.pieces.size()));
    }
    model.pieces.push_back(*std::move(read));
  }
  model.adds_dummy_prefix = parsed.normalizer().add_dummy_prefix();
  model.eos_id = IdOrNone(parsed.trainer().eos_id(), model);
  model.pad_id = IdOrNone(parsed.trainer().pad_id(), model);
  return model;
}

}  // namespace ballast
