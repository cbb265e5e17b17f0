#include "server/text/bpe/regex.h"

#include <cstdint>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

std::string ErrorMessage(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) {
    return absl::StrCat("PCRE2 error ", code);
  }
  return reinterpret_cast<const char*>(text);
}

// A separate stack lets compiled patterns backtrack further than on the
// thread's.
constexpr size_t kFirstStack = size_t{32} << 10;
constexpr size_t kMaxStack = size_t{4} << 20;

}  // namespace

struct RegexScratch::Parts {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack =
      pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr);
  // Stores only the bounds of the match, no groups.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
};

RegexScratch::RegexScratch() : parts_(std::make_unique<Parts>()) {
  if (parts_->context != nullptr && parts_->stack != nullptr) {
    pcre2_jit_stack_assign(parts_->context, nullptr, parts_->stack);
  }
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(parts_->data);
  pcre2_match_context_free(parts_->context);
  pcre2_jit_stack_free(parts_->stack);
}

struct Regex::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

Regex::Regex(std::unique_ptr<Compiled> compiled)
    : compiled_(std::move(compiled)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

absl::StatusOr<Regex> Regex::Create(absl::string_view pattern) {
  auto compiled = std::make_unique<Compiled>();
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                    pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &at,
                    /*ccontext=*/nullptr);
  if (compiled->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pattern: ", ErrorMessage(error), " at byte ", at, " of ", pattern));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: it matches the empty text: ", pattern));
  }
  // PCRE2 interprets the pattern if it cannot generate code.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(compiled));
}

absl::StatusOr<std::optional<Regex::Match>> Regex::Find(
    absl::string_view text, size_t from, RegexScratch* scratch) const {
  RegexScratch::Parts& parts = *scratch->parts_;
  if (parts.data == nullptr || parts.context == nullptr) {
    return absl::ResourceExhaustedError("no memory to match a pattern with");
  }
  const int found = pcre2_match(
      compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
      from, PCRE2_NO_UTF_CHECK, parts.data, parts.context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found == PCRE2_ERROR_NOMEMORY) {
    return absl::ResourceExhaustedError("no memory to match a pattern with");
  }
  // The limits of PCRE2 follow from pattern and text.
  if (found < 0) {
    return AsDataFault(absl::ResourceExhaustedError(absl::StrCat(
        "splitting the text at byte ", from, ": ", ErrorMessage(found))));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(parts.data);
  // A lookbehind with \K could move backwards. No supported pattern has one,
  // but the check rules out an endless loop.
  if (bounds[0] < from || bounds[1] <= bounds[0]) {
    return absl::InvalidArgumentError("the pattern matches the empty text");
  }
  return Match{bounds[0], bounds[1]};
}

}  // namespace ballast
