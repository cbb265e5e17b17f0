#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/tokenizer.h"

namespace ballast {

// The tokenizer of a SentencePiece model, `file` being the file's content:
// the ids of SentencePieceProcessor.encode, but that control symbols which a
// text spells out are found first, as Hugging Face does, and that the space
// which the model puts before a text is put nowhere else: neither behind such a
// symbol nor before a user-defined one (docs/text.md). Runs libsentencepiece in
// processes of its own (helper_process.h). Errors: those of
// ParseSentencePieceModel and SentencePieceHelper::Start.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string file);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
