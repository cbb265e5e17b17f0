#include "server/storage/store_credentials.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace ballast {

absl::StatusOr<StoreKeys> KeysOfEnvironment(const GetVariable& get) {
  StoreKeys keys;
  keys.id = get("AWS_ACCESS_KEY_ID").value_or("");
  keys.secret = get("AWS_SECRET_ACCESS_KEY").value_or("");
  keys.session_token = get("AWS_SESSION_TOKEN").value_or("");
  for (const auto& [name, value] :
       {std::make_pair("AWS_ACCESS_KEY_ID", &keys.id),
        std::make_pair("AWS_SECRET_ACCESS_KEY", &keys.secret)}) {
    if (!value->empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "storage.s3.credentials is environment, but ", name,
        " is not set; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "choose credentials: instance, anonymous or a file"));
  }
  return keys;
}

absl::StatusOr<StoreKeys> ParseKeysFile(absl::string_view path,
                                        absl::string_view text) {
  StoreKeys keys;
  bool in_default = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      in_default = line == "[default]";
      continue;
    }
    if (!in_default) continue;
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(entry.first);
    const std::string value(absl::StripAsciiWhitespace(entry.second));
    if (name == "aws_access_key_id") keys.id = value;
    if (name == "aws_secret_access_key") keys.secret = value;
    if (name == "aws_session_token") keys.session_token = value;
  }
  if (keys.id.empty() || keys.secret.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": no ",
        keys.id.empty() ? "aws_access_key_id" : "aws_secret_access_key",
        " in a section [default]; storage.s3.credentials wants a file like "
        "~/.aws/credentials"));
  }
  return keys;
}

std::string WithoutKeys(absl::string_view message, const StoreKeys& keys) {
  std::string clean(message);
  for (const std::string* key : {&keys.id, &keys.secret, &keys.session_token}) {
    if (key->size() < 4) continue;  // no real key, and in many words
    clean = absl::StrReplaceAll(clean, {{*key, "***"}});
  }
  return clean;
}

}  // namespace ballast
