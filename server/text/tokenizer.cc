#include "server/text/tokenizer.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/text/bpe/bpe_tokenizer.h"
#include "server/text/sentencepiece/sentencepiece_tokenizer.h"

namespace ballast {
namespace {

// Several times the size of the largest tokenizer in use.
constexpr size_t kMaxFileBytes = size_t{256} << 20;

class BytesTokenizer final : public Tokenizer {
 public:
  absl::Status EncodeWithEnds(absl::string_view text, std::vector<int32_t>* ids,
                              std::vector<size_t>* ends) const override {
    ids->reserve(ids->size() + text.size());
    for (const char byte : text) {
      ids->push_back(static_cast<unsigned char>(byte));
    }
    if (ends != nullptr) {
      for (size_t end = 1; end <= text.size(); ++end) ends->push_back(end);
    }
    return absl::OkStatus();
  }

  absl::Status Decode(absl::Span<const int32_t> ids,
                      std::string* text) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id > 255) {
        return absl::InvalidArgumentError(
            absl::StrCat("id ", id, " is not a byte; wanted 0 to 255"));
      }
      text->push_back(static_cast<char>(id));
    }
    return absl::OkStatus();
  }

  std::optional<int32_t> SpecialTokenId(absl::string_view) const override {
    return std::nullopt;
  }

  std::string digest() const override { return "bytes-1"; }
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    const absl::Status status = absl::ErrnoToStatus(errno, "cannot be opened");
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; wanted the path of a tokenizer.json or a SentencePiece "
                     "model, or `bytes`"));
  }
  std::string content;
  char buffer[1 << 16];
  size_t read;
  while ((read = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    content.append(buffer, read);
    if (content.size() > kMaxFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("over ", kMaxFileBytes, " bytes; wanted a tokenizer"));
    }
  }
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, "cannot be read");
  }
  return content;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(
    const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(std::string content, ReadFile(path));
  // The first byte of a SentencePiece model is 0x0A, which is also white space.
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(content), "{")) {
    return MakeBpeTokenizer(content);
  }
  return MakeSentencePieceTokenizer(std::move(content));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const std::string& name_or_path) {
  if (name_or_path == "bytes") return std::make_unique<BytesTokenizer>();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      ReadTokenizer(name_or_path);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(),
                    absl::StrCat("tokenizer ", name_or_path));
  }
  return tokenizer;
}

}  // namespace ballast
