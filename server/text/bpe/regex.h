#ifndef BALLAST_SERVER_TEXT_BPE_REGEX_H_
#define BALLAST_SERVER_TEXT_BPE_REGEX_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Translates a tokenizer's pattern from Oniguruma's syntax, as Hugging Face
// reads it, to PCRE2's, so that both match alike (with PCRE2_UTF and
// PCRE2_UCP): character classes are extended by what Unicode 15 and 16 added,
// and \s is Unicode's White_Space. Supported are
//   characters; \r \n \t \f; escaped punctuation
//   \s \S \d, \p{X} with a general category X (L, Lu, N, …), \P{X}
//   [...] and [^...] of characters, ranges, \s, \d and \p{X}
//   (...) (?:...) (?i:...) (?>...) (?=...) (?!...) (?<=...) (?<!...)
//   | * + ? and their lazy and possessive forms; {n} {n,} {n,m}
// which suffices for the patterns of GPT-2, GPT-4, Llama 3, Qwen and similar
// models. Syntax that the two libraries read differently is refused. Errors:
// INVALID_ARGUMENT naming what was found, and where.
absl::StatusOr<std::string> ToPcre2Pattern(absl::string_view pattern);

// A pattern, in PCRE2's syntax, that matches exactly `text`.
std::string Pcre2Literal(absl::string_view text);

// Per-thread working memory for matching, shared by all patterns.
// Thread-compatible.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

// A compiled PCRE2 pattern over UTF-8 and Unicode's classes. Thread-safe.
class Regex {
 public:
  // `pattern` is in PCRE2's syntax (ToPcre2Pattern). Errors: INVALID_ARGUMENT
  // (not a pattern; one that matches the empty text, which could not split
  // anything).
  static absl::StatusOr<Regex> Create(absl::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  struct Match {
    size_t begin;
    size_t end;
  };

  // The leftmost match at or after `from`, or none. `text` must be valid UTF-8.
  // Errors: RESOURCE_EXHAUSTED (the pattern backtracks beyond PCRE2's limit on
  // this text).
  absl::StatusOr<std::optional<Match>> Find(absl::string_view text, size_t from,
                                            RegexScratch* scratch) const;

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_REGEX_H_
