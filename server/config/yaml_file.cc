#include "server/config/yaml_file.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

std::string KindOf(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  return "a text";
}

absl::Status Wanted(absl::string_view key, const YAML::Node& node,
                    absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": found ", KindOf(node), "; wanted ", wanted));
}

}  // namespace

absl::StatusOr<YAML::Node> ParseYaml(const std::string& text) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("not YAML: line ", error.mark.line + 1, ": ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not YAML: ", error.what()));
  }
}

YAML::Node FindKey(const YAML::Node& node, const std::string& key) {
  // An undefined node, which may be copied and asked, unlike YAML's zombie.
  const YAML::Node none(YAML::NodeType::Undefined);
  if (!node.IsDefined() || !node.IsMap()) return none;
  try {
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && entry.first.Scalar() == key) {
        return entry.second;
      }
    }
  } catch (const std::exception&) {
  }
  return none;
}

absl::StatusOr<std::string> TextOf(const YAML::Node& node,
                                   absl::string_view key) {
  if (!node.IsDefined() || !node.IsScalar()) {
    return Wanted(key, node, "a text");
  }
  return node.Scalar();
}

absl::StatusOr<std::vector<std::string>> TextsOf(const YAML::Node& node,
                                                 absl::string_view key,
                                                 size_t most) {
  std::vector<std::string> texts;
  if (node.IsDefined() && node.IsScalar()) return std::vector{node.Scalar()};
  if (!node.IsDefined() || !node.IsSequence()) {
    return Wanted(key, node, "a list of texts");
  }
  for (const auto& entry : node) {
    if (texts.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": over ", most, " entries"));
    }
    BALLAST_ASSIGN_OR_RETURN(std::string text,
                             TextOf(entry, absl::StrCat(key, "[]")));
    texts.push_back(std::move(text));
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> KeysOf(const YAML::Node& node,
                                                absl::string_view key,
                                                size_t most) {
  if (!node.IsDefined() || !node.IsMap()) return Wanted(key, node, "a map");
  std::vector<std::string> keys;
  for (const auto& entry : node) {
    if (keys.size() == most) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": over ", most, " entries"));
    }
    BALLAST_ASSIGN_OR_RETURN(std::string text, TextOf(entry.first, key));
    keys.push_back(std::move(text));
  }
  return keys;
}

}  // namespace ballast
