#include "server/text/bpe/regex.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

struct NewerCharacters {
  uint32_t first;
  uint32_t last;
  const char* category;
};

constexpr NewerCharacters kNewer[] = {
#include "server/text/bpe/newer_characters.inc"
};

// White_Space; PCRE2's own \s also has U+180E.
constexpr char kWhiteSpace[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029})"
    R"(\x{202f}\x{205f}\x{3000})";

constexpr absl::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
    "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
    "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

// The form of \p{category} within a class.
std::string Property(absl::string_view category) {
  std::string text = absl::StrCat("\\p{", category, "}");
  for (const NewerCharacters& newer : kNewer) {
    if (!absl::StartsWith(newer.category, category)) continue;
    absl::StrAppendFormat(&text, "\\x{%x}-\\x{%x}", newer.first, newer.last);
  }
  return text;
}

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    while (at_ < pattern_.size()) {
      BALLAST_RETURN_IF_ERROR(Item());
    }
    if (!groups_.empty()) return Fault("an unterminated group");
    return std::move(out_);
  }

 private:
  struct Group {
    bool caseless;
  };

  absl::string_view rest() const { return pattern_.substr(at_); }
  bool Next(absl::string_view text) {
    if (!absl::StartsWith(rest(), text)) return false;
    at_ += text.size();
    return true;
  }
  bool caseless() const { return !groups_.empty() && groups_.back().caseless; }

  absl::Status Fault(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: ", what, " at byte ", at_, " of ", pattern_));
  }

  absl::Status Item() {
    const char c = pattern_[at_];
    switch (c) {
      case '[':
        return Class();
      case '(':
        return OpenGroup();
      case ')':
        if (groups_.empty()) return Fault("an unmatched `)`");
        groups_.pop_back();
        ++at_;
        out_.push_back(')');
        return Quantifier();
      case '|':
        ++at_;
        out_.push_back('|');
        return absl::OkStatus();
      case '\\':
        return Escape();
      case '.':
      case '^':
      case '$':
      case '*':
      case '+':
      case '?':
      case '{':
      case '}':
      case ']':
        return Fault(absl::StrCat("`", std::string(1, c),
                                  "`, which is not supported here,"));
      default:
        break;
    }
    const Utf8Character character = FirstCharacter(rest());
    at_ += character.bytes;
    Literal(character.code);
    return Quantifier();
  }

  // Appends a character in a form that means the same inside and outside a
  // class.
  void Literal(uint32_t code) {
    if (code < 0x80 && absl::ascii_isalnum(static_cast<char>(code))) {
      out_.push_back(static_cast<char>(code));
    } else {
      absl::StrAppendFormat(&out_, "\\x{%x}", code);
    }
  }

  absl::Status OpenGroup() {
    for (const char* head :
         {"(?:", "(?i:", "(?>", "(?=", "(?!", "(?<=", "(?<!"}) {
      if (!Next(head)) continue;
      groups_.push_back({caseless() || head == absl::string_view("(?i:")});
      out_ += head;
      return absl::OkStatus();
    }
    if (absl::StartsWith(rest(), "(?") || absl::StartsWith(rest(), "(*")) {
      return Fault("an unsupported kind of group");
    }
    ++at_;
    groups_.push_back({caseless()});
    out_ += "(?:";
    return absl::OkStatus();
  }

  // The character that an escape denotes; 0 if none.
  uint32_t EscapedCharacter() {
    if (rest().size() < 2) return 0;
    switch (const char c = rest()[1]) {
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      default:
        return absl::ascii_ispunct(c) ? static_cast<uint32_t>(c) : 0;
    }
  }

  absl::StatusOr<std::string> PropertyName() {
    const size_t end = rest().find('}');
    if (!absl::StartsWith(rest().substr(2), "{") || end == rest().npos) {
      return Fault("a property without its {name}");
    }
    const absl::string_view name = rest().substr(3, end - 3);
    if (std::find(std::begin(kCategories), std::end(kCategories), name) ==
        std::end(kCategories)) {
      return Fault(absl::StrCat("property ", name,
                                "; wanted a general category such as L or Nd"));
    }
    // \p{Lu} under (?i:...) differs between the two libraries.
    if (caseless()) return Fault("a property in a group (?i:...)");
    at_ += end + 1;
    return Property(name);
  }

  absl::Status Escape() {
    if (Next("\\s")) {
      absl::StrAppend(&out_, "[", kWhiteSpace, "]");
    } else if (Next("\\S")) {
      absl::StrAppend(&out_, "[^", kWhiteSpace, "]");
    } else if (Next("\\d")) {
      absl::StrAppend(&out_, "[", Property("Nd"), "]");
    } else if (const bool negated = absl::StartsWith(rest(), "\\P");
               negated || absl::StartsWith(rest(), "\\p")) {
      BALLAST_ASSIGN_OR_RETURN(const std::string items, PropertyName());
      absl::StrAppend(&out_, negated ? "[^" : "[", items, "]");
    } else if (const uint32_t code = EscapedCharacter(); code != 0) {
      at_ += 2;
      Literal(code);
    } else {
      return Fault("an unsupported escape");
    }
    return Quantifier();
  }

  // Reads one character of a class; a range may follow.
  absl::StatusOr<uint32_t> ClassCharacter() {
    if (absl::StartsWith(rest(), "\\")) {
      const uint32_t code = EscapedCharacter();
      if (code == 0) return Fault("an unsupported escape in [...]");
      at_ += 2;
      return code;
    }
    if (absl::StartsWith(rest(), "[") || absl::StartsWith(rest(), "&&")) {
      return Fault("a class within a class");
    }
    const Utf8Character character = FirstCharacter(rest());
    at_ += character.bytes;
    return character.code;
  }

  absl::Status Class() {
    ++at_;
    out_ += Next("^") ? "[^" : "[";
    if (absl::StartsWith(rest(), "]")) return Fault("an empty class");
    while (!Next("]")) {
      if (at_ == pattern_.size()) return Fault("an unterminated class");
      if (Next("\\s")) {
        out_ += kWhiteSpace;
      } else if (Next("\\d")) {
        out_ += Property("Nd");
      } else if (absl::StartsWith(rest(), "\\p")) {
        BALLAST_ASSIGN_OR_RETURN(const std::string items, PropertyName());
        out_ += items;
      } else {
        BALLAST_RETURN_IF_ERROR(ClassRange());
      }
    }
    out_.push_back(']');
    return Quantifier();
  }

  absl::Status ClassRange() {
    BALLAST_ASSIGN_OR_RETURN(const uint32_t first, ClassCharacter());
    Literal(first);
    if (!absl::StartsWith(rest(), "-") || absl::StartsWith(rest(), "-]")) {
      return absl::OkStatus();
    }
    ++at_;
    if (at_ == pattern_.size()) return Fault("an unterminated class");
    BALLAST_ASSIGN_OR_RETURN(const uint32_t last, ClassCharacter());
    if (last < first) return Fault("a range whose end is before its begin");
    out_.push_back('-');
    Literal(last);
    return absl::OkStatus();
  }

  // Reads a quantifier, if one follows the item.
  absl::Status Quantifier() {
    if (Next("*") || Next("+") || Next("?")) {
      out_.push_back(pattern_[at_ - 1]);
      // Lazy and possessive forms.
      if (Next("?") || Next("+")) out_.push_back(pattern_[at_ - 1]);
    } else if (absl::StartsWith(rest(), "{")) {
      const size_t end = rest().find('}');
      if (end == rest().npos) return Fault("a `{` without `}`");
      const absl::string_view bounds = rest().substr(1, end - 1);
      const size_t comma = bounds.find(',');
      const bool known =
          !bounds.empty() && absl::ascii_isdigit(bounds[0]) &&
          bounds.size() <= 9 &&
          bounds.find_first_not_of("0123456789,") == bounds.npos &&
          (comma == bounds.npos || bounds.find(',', comma + 1) == bounds.npos);
      if (!known) return Fault("a repetition that is not {n}, {n,} or {n,m}");
      absl::StrAppend(&out_, rest().substr(0, end + 1));
      at_ += end + 1;
    } else {
      return absl::OkStatus();
    }
    // The two libraries read these differently: x{2}+, x**.
    for (const char* more : {"*", "+", "?", "{"}) {
      if (absl::StartsWith(rest(), more)) {
        return Fault("a repetition of a repetition");
      }
    }
    return absl::OkStatus();
  }

  const absl::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::string> ToPcre2Pattern(absl::string_view pattern) {
  return Translator(pattern).Translate();
}

std::string Pcre2Literal(absl::string_view text) {
  std::string pattern;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    absl::StrAppendFormat(&pattern, "\\x{%x}", character.code);
    text.remove_prefix(character.bytes);
  }
  return pattern;
}

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
