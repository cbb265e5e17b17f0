#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Creates the tokenizer of a SentencePiece model; `file` is the file's content.
// Its ids are those of SentencePieceProcessor.encode, with two differences
// (docs/text.md): control symbols spelled out in a text are matched first, as
// Hugging Face does; and the space that the model puts before a text is put
// nowhere else, neither after such a symbol nor before a user-defined one. Runs
// libsentencepiece in separate processes (sentencepiece_helper.h). Errors: as
// ParseSentencePieceModel and SentencePieceHelper::Start.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string file);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
