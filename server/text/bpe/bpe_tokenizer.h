#ifndef BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Creates the tokenizer of a Hugging Face tokenizer.json with byte-level BPE.
// Its ids are those of encode(text, add_special_tokens=False). `json` is the
// file's content. Errors: as ParseTokenizerJson.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(
    absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_
