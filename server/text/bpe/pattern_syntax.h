#ifndef BALLAST_SERVER_TEXT_BPE_PATTERN_SYNTAX_H_
#define BALLAST_SERVER_TEXT_BPE_PATTERN_SYNTAX_H_

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

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_PATTERN_SYNTAX_H_
